#include "core/schedule/bit_terms.h"

#include <bit>
#include <map>

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

}  // namespace quern
