#include "core/schedule/layout.h"

#include <algorithm>
#include <numeric>

#include "core/base/status.h"

namespace quern {

namespace {

int total_bits(const std::vector<LayoutDim>& dims) {
  return std::accumulate(dims.begin(), dims.end(), 0,
                         [](int sum, const LayoutDim& d) { return sum + d.bits; });
}

const LayoutDim* find_dim(const std::vector<LayoutDim>& dims, std::string_view name) {
  auto it = std::find_if(dims.begin(), dims.end(), [&](const LayoutDim& d) { return d.name == name; });
  return it == dims.end() ? nullptr : &*it;
}

int bits_of(const std::vector<LayoutDim>& dims, std::string_view name) {
  const LayoutDim* dim = find_dim(dims, name);
  return dim == nullptr ? 0 : dim->bits;
}

// Where the lowest bit of `name` stands in a flat point.
int shift_of(const std::vector<LayoutDim>& dims, std::string_view name) {
  int shift = 0;
  for (const LayoutDim& dim : dims) {
    if (dim.name == name) return shift;
    shift += dim.bits;
  }
  fatal(__FILE__, __LINE__, "a layout has no dimension " + std::string(name));
}

uint64_t low_mask(int bits) { return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

// The flat point over `to` with the coordinates of `flat` over `from`; `extra` bits higher in each dimension
// named in `below`, which stand under those of `from`.
uint64_t move_point(uint64_t flat, const std::vector<LayoutDim>& from, const std::vector<LayoutDim>& to,
                    const std::vector<LayoutDim>& below = {}) {
  uint64_t result = 0;
  int shift = 0;
  for (const LayoutDim& dim : from) {
    if (dim.bits > 0) {
      uint64_t coordinate = flat >> shift & low_mask(dim.bits);
      result |= coordinate << (shift_of(to, dim.name) + bits_of(below, dim.name));
    }
    shift += dim.bits;
  }
  return result;
}

std::vector<LayoutDim> merged(const std::vector<LayoutDim>& low, const std::vector<LayoutDim>& high) {
  std::vector<LayoutDim> result = low;
  for (const LayoutDim& dim : high) {
    auto it =
        std::find_if(result.begin(), result.end(), [&](const LayoutDim& d) { return d.name == dim.name; });
    if (it == result.end())
      result.push_back(dim);
    else
      it->bits += dim.bits;
  }
  return result;
}

std::vector<LayoutDim> permuted(const std::vector<LayoutDim>& dims, std::span<const std::string_view> names) {
  check(dims.size() == names.size(), "a reordering names every dimension once");
  std::vector<LayoutDim> result;
  for (std::string_view name : names) {
    const LayoutDim* dim = find_dim(dims, name);
    check(dim != nullptr, "a reordering names a dimension that is not there");
    result.push_back(*dim);
  }
  return result;
}

}  // namespace

Layout::Layout(std::vector<LayoutDim> inputs, std::vector<LayoutDim> outputs, F2Matrix matrix)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)), matrix_(std::move(matrix)) {
  check(total_bits(inputs_) == input_bits() && total_bits(outputs_) == matrix_.rows,
        "a layout's matrix fits its dimensions");
  check(input_bits() <= 64 && matrix_.rows <= 64, "a layout has at most 64 bits on each side");
  for (uint64_t column : matrix_.columns)
    check((column & ~low_mask(matrix_.rows)) == 0, "a layout's columns fit its outputs");
  for (const auto* dims : {&inputs_, &outputs_})
    for (const LayoutDim& dim : *dims)
      check(find_dim(*dims, dim.name) == &dim, "a layout's dimensions have distinct names");
}

Layout Layout::identity(std::string_view input, std::string_view output, int bits) {
  return Layout({{std::string(input), bits}}, {{std::string(output), bits}}, f2_identity(bits));
}

Layout Layout::zeros(std::string_view input, int bits) {
  return Layout({{std::string(input), bits}}, {}, {0, std::vector<uint64_t>(bits)});
}

int Layout::input_bits(std::string_view name) const { return bits_of(inputs_, name); }
int Layout::output_bits(std::string_view name) const { return bits_of(outputs_, name); }
bool Layout::has_input(std::string_view name) const { return find_dim(inputs_, name) != nullptr; }
bool Layout::has_output(std::string_view name) const { return find_dim(outputs_, name) != nullptr; }
int Layout::output_shift(std::string_view output) const { return shift_of(outputs_, output); }
int Layout::input_shift(std::string_view input) const { return shift_of(inputs_, input); }

uint64_t Layout::flat_input(std::span<const uint64_t> point) const {
  check(point.size() == inputs_.size(), "a point has one coordinate for each input dimension");
  uint64_t flat = 0;
  int shift = 0;
  for (size_t i = 0; i < point.size(); ++i) {
    check((point[i] & ~low_mask(inputs_[i].bits)) == 0, "a coordinate is within its dimension");
    if (inputs_[i].bits > 0) flat |= point[i] << shift;
    shift += inputs_[i].bits;
  }
  return flat;
}

std::vector<uint64_t> Layout::apply(std::span<const uint64_t> point) const {
  const uint64_t flat = apply(flat_input(point));
  std::vector<uint64_t> result;
  for (const LayoutDim& dim : outputs_) result.push_back(coordinate(flat, dim.name));
  return result;
}

std::vector<uint64_t> Layout::columns(std::string_view input) const {
  const int bits = input_bits(input);
  if (bits == 0) return {};
  auto first = matrix_.columns.begin() + input_shift(input);
  return {first, first + bits};
}

uint64_t Layout::basis(std::string_view input, int bit, std::string_view output) const {
  check(bit >= 0 && bit < input_bits(input), "a basis vector belongs to a bit of an input");
  return coordinate(matrix_.columns[input_shift(input) + bit], output);
}

uint64_t Layout::coordinate(uint64_t flat_output, std::string_view output) const {
  const int bits = output_bits(output);
  return bits == 0 ? 0 : flat_output >> output_shift(output) & low_mask(bits);
}

Layout Layout::then(const Layout& next) const {
  F2Matrix matrix{next.output_bits(), {}};
  for (const LayoutDim& dim : outputs_)
    check(next.has_input(dim.name) && dim.bits <= next.input_bits(dim.name),
          "composed layouts fit: " + dim.name);
  for (uint64_t column : matrix_.columns)
    matrix.columns.push_back(next.apply(move_point(column, outputs_, next.inputs_)));
  return Layout(inputs_, next.outputs_, std::move(matrix));
}

Layout Layout::operator*(const Layout& outer) const {
  std::vector<LayoutDim> inputs = merged(inputs_, outer.inputs_), outputs = merged(outputs_, outer.outputs_);
  F2Matrix matrix{total_bits(outputs), {}};
  for (const LayoutDim& dim : inputs) {
    for (uint64_t column : columns(dim.name)) matrix.columns.push_back(move_point(column, outputs_, outputs));
    for (uint64_t column : outer.columns(dim.name))
      matrix.columns.push_back(move_point(column, outer.outputs_, outputs, outputs_));
  }
  return Layout(std::move(inputs), std::move(outputs), std::move(matrix));
}

Layout Layout::reordered(std::span<const std::string_view> inputs,
                         std::span<const std::string_view> outputs) const {
  std::vector<LayoutDim> new_inputs = permuted(inputs_, inputs), new_outputs = permuted(outputs_, outputs);
  F2Matrix matrix{output_bits(), {}};
  for (std::string_view name : inputs)
    for (uint64_t column : columns(name)) matrix.columns.push_back(move_point(column, outputs_, new_outputs));
  return Layout(std::move(new_inputs), std::move(new_outputs), std::move(matrix));
}

Layout Layout::reshaped(std::vector<LayoutDim> inputs, std::vector<LayoutDim> outputs) const {
  return Layout(std::move(inputs), std::move(outputs), matrix_);
}

Layout Layout::without_output(std::string_view output) const {
  std::vector<LayoutDim> outputs = wrapped(output, 0).outputs();
  std::erase_if(outputs, [&](const LayoutDim& dim) { return dim.name == output; });
  return wrapped(output, 0).reshaped(inputs_, std::move(outputs));
}

Layout Layout::without_input(std::string_view input) const {
  Layout fixed = with_input_bits(input, {});
  std::erase_if(fixed.inputs_, [&](const LayoutDim& dim) { return dim.name == input; });
  return fixed;
}

Layout Layout::with_input_bits(std::string_view input, std::span<const int> bits) const {
  std::vector<LayoutDim> inputs = inputs_;
  F2Matrix matrix{output_bits(), {}};
  for (LayoutDim& dim : inputs) {
    const std::vector<uint64_t> whole = columns(dim.name);
    if (dim.name != input) {
      matrix.columns.insert(matrix.columns.end(), whole.begin(), whole.end());
      continue;
    }
    for (int bit : bits) matrix.columns.push_back(whole.at(bit));
    dim.bits = static_cast<int>(bits.size());
  }
  return Layout(std::move(inputs), outputs_, std::move(matrix));
}

Layout Layout::wrapped(std::string_view output, int bits) const {
  check(has_output(output) && bits <= output_bits(output), "only an output's own bits can be kept");
  std::vector<LayoutDim> outputs = outputs_;
  for (LayoutDim& dim : outputs)
    if (dim.name == output) dim.bits = bits;
  F2Matrix matrix{total_bits(outputs), {}};
  const int shift = output_shift(output), dropped = output_bits(output) - bits;
  for (uint64_t column : matrix_.columns) {
    const uint64_t below = column & low_mask(shift + bits);
    const uint64_t above = shift + bits + dropped == 64 ? 0 : column >> (shift + bits + dropped);
    matrix.columns.push_back(below | (above == 0 ? 0 : above << (shift + bits)));
  }
  return Layout(inputs_, std::move(outputs), std::move(matrix));
}

std::vector<int> Layout::independent_bits(std::string_view input) const {
  std::vector<int> result;
  F2Span span;
  int bit = 0;
  for (uint64_t column : columns(input)) {
    if (span.add(column)) result.push_back(bit);
    ++bit;
  }
  return result;
}

}  // namespace quern
