#include "core/schedule/bit_terms.h"

#include <bit>
#include <map>

#include "core/base/status.h"

namespace quern {

BitTerms bit_terms(const Layout& layout, std::string_view output) {
  BitTerms result;
  int input = 0;
  for (const LayoutDim& dim : layout.inputs()) {
    // One term for each diagonal of the matrix: all bits that move by the same distance.
    std::map<int, uint64_t> mask_of_shift;
    for (int bit = 0; bit < dim.bits; ++bit)
      for (uint64_t image = layout.basis(dim.name, bit, output); image != 0; image &= image - 1)
        mask_of_shift[std::countr_zero(image) - bit] |= uint64_t{1} << bit;
    for (auto [shift, mask] : mask_of_shift) {
      const uint64_t moved = shift >= 0 ? mask << shift : mask >> -shift;
      result.disjoint = result.disjoint && (result.reach & moved) == 0;
      result.reach |= moved;
      result.terms.push_back({input, mask, shift});
    }
    ++input;
  }
  return result;
}

uint64_t evaluate(const BitTerms& terms, const std::vector<uint64_t>& inputs) {
  uint64_t value = 0;
  for (const BitTerm& term : terms.terms) {
    const uint64_t bits = inputs.at(term.input) & term.mask;
    value ^= term.shift >= 0 ? bits << term.shift : bits >> -term.shift;
  }
  return value;
}

Layout join_threads(const Layout& layout) {
  std::vector<std::string_view> names, output_names;
  std::vector<LayoutDim> inputs;
  for (const LayoutDim& dim : layout.inputs())
    if (dim.name != kLane && dim.name != kWarp) {
      names.push_back(dim.name);
      inputs.push_back(dim);
    }
  for (std::string_view name : {kLane, kWarp})
    if (layout.has_input(name)) names.push_back(name);
  check(!layout.has_input(kWarp) || layout.input_bits(kLane) == 5, "a warp has 32 lanes");
  for (const LayoutDim& dim : layout.outputs()) output_names.push_back(dim.name);
  inputs.push_back({std::string(kThread), layout.input_bits(kLane) + layout.input_bits(kWarp)});
  return layout.reordered(names, output_names).reshaped(std::move(inputs), layout.outputs());
}

}  // namespace quern
