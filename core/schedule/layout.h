// Linear layouts (arXiv 2505.23819): where the elements of a tile live, as a linear map over F2.
//
// A layout maps a point of named input dimensions to a point of named output dimensions. Every dimension has
// 2^bits values, and bit i of an output is the XOR of some bits of the inputs. A *register layout* goes from
// (register, lane, warp) to tensor coordinates: the element that a thread holds in a register. A *memory
// layout* goes from tensor coordinates to `offset`, counted in elements.
//
// Points also have a flat form: the bits of all dimensions side by side, the first dimension lowest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/f2.h"

namespace quern {

inline constexpr std::string_view kRegister = "register";
inline constexpr std::string_view kLane = "lane";
inline constexpr std::string_view kWarp = "warp";
inline constexpr std::string_view kBlock = "block";
inline constexpr std::string_view kOffset = "offset";

struct LayoutDim {
  std::string name;
  int bits = 0;

  uint64_t size() const { return uint64_t{1} << bits; }
  bool operator==(const LayoutDim&) const = default;
};

class Layout {
 public:
  Layout() = default;  // no dimensions: the neutral element of the product
  // `matrix` is over flat points. Names are distinct on each side.
  Layout(std::vector<LayoutDim> inputs, std::vector<LayoutDim> outputs, F2Matrix matrix);
  // 2^bits values of `input` are as many values of `output`.
  static Layout identity(std::string_view input, std::string_view output, int bits);
  // All values of `input` go to 0 of no output dimension at all: a broadcast.
  static Layout zeros(std::string_view input, int bits);

  const std::vector<LayoutDim>& inputs() const { return inputs_; }
  const std::vector<LayoutDim>& outputs() const { return outputs_; }
  const F2Matrix& matrix() const { return matrix_; }
  int input_bits() const { return static_cast<int>(matrix_.columns.size()); }
  int output_bits() const { return matrix_.rows; }
  // 0 for a dimension that is not there.
  int input_bits(std::string_view name) const;
  int output_bits(std::string_view name) const;
  bool has_input(std::string_view name) const;
  bool has_output(std::string_view name) const;

  uint64_t apply(uint64_t flat_input) const { return matrix_.apply(flat_input); }
  // One number per dimension, in order.
  std::vector<uint64_t> apply(std::span<const uint64_t> point) const;
  uint64_t flat_input(std::span<const uint64_t> point) const;
  // The flat outputs of the bits of one input dimension, lowest bit first; empty if it is not there.
  std::vector<uint64_t> columns(std::string_view input) const;
  // What bit `bit` of `input` adds to `output`.
  uint64_t basis(std::string_view input, int bit, std::string_view output) const;
  // Coordinate of `output` in a flat output point, and where its lowest bit stands in there.
  uint64_t coordinate(uint64_t flat_output, std::string_view output) const;
  int output_shift(std::string_view output) const;
  int input_shift(std::string_view input) const;

  bool is_surjective() const { return f2_rank(matrix_.columns) == output_bits(); }
  bool is_injective() const { return f2_rank(matrix_.columns) == input_bits(); }
  bool operator==(const Layout&) const = default;

  // x -> next(this(x)). Every output of this is an input of `next`, no larger than there.
  Layout then(const Layout& next) const;
  // The Kronecker product: in dimensions that both have, `outer` takes the bits above those of this.
  Layout operator*(const Layout& outer) const;
  // The same map with dimensions in another order; each list is a permutation of the names.
  Layout reordered(std::span<const std::string_view> inputs, std::span<const std::string_view> outputs) const;
  // The same flat map cut into other dimensions; total bits stay.
  Layout reshaped(std::vector<LayoutDim> inputs, std::vector<LayoutDim> outputs) const;
  // The slice that a reduction over `output` leaves: what differed only there becomes a duplicate.
  Layout without_output(std::string_view output) const;
  // The part where `input` is 0.
  Layout without_input(std::string_view input) const;
  // Keeps the listed bits of `input`, renumbered from 0: the part where the others are 0.
  Layout with_input_bits(std::string_view input, std::span<const int> bits) const;
  // Keeps the low `bits` of `output`: coordinates wrap around.
  Layout wrapped(std::string_view output, int bits) const;
  // The bits of `input` whose images are independent of the lower ones: the others only make copies.
  std::vector<int> independent_bits(std::string_view input) const;

 private:
  std::vector<LayoutDim> inputs_, outputs_;
  F2Matrix matrix_;
};

}  // namespace quern
