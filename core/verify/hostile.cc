#include "core/verify/hostile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/dtype_info.h"
#include "core/base/elements.h"
#include "core/base/random.h"
#include "core/verify/evaluate.h"
#include "core/verify/lengths.h"
#include "core/verify/reference.h"

namespace quern {

namespace {

using Doubles = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The numbers of a float dtype that matter here.
struct FloatRange {
  double largest;         // finite
  double smallest;        // normal
  double mean_deviation;  // the largest mean, in deviations, at which the deviation still has a few bits
};

FloatRange float_range(DType dtype) {
  const DTypeInfo& row = dtype_info(is_float(dtype) ? dtype : DType::f32);
  // Half of what the mantissa resolves, as a round number.
  const double half = power_of_two(row.mantissa - 1), digit = std::pow(10, std::floor(std::log10(half)));
  return {row.largest, power_of_two(row.least_exponent), std::min(1e5, std::floor(half / digit) * digit)};
}

template <class T>
T pick(Random& random, std::initializer_list<T> list) {
  return list.begin()[random.below(list.size())];
}

size_t count_of(const Ints& shape) {
  size_t count = 1;
  for (int64_t extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

uint64_t mix(uint64_t hash, uint64_t value) { return scramble(hash * 0x9e3779b97f4a7c15 + value + 1); }

Doubles uniform(size_t count, Random& random, double scale) {
  Doubles elements(count);
  for (double& element : elements) element = scale * random.symmetric();
  return elements;
}

// ---- blocks: a grid over the tensor whose cells share a random number ----

// Calls f(element, hash of its cell): dimension d is divided into cells of `tile[d]`.
template <class F>
void for_each_cell(const Ints& shape, const Ints& tile, uint64_t salt, F f) {
  Ints at(shape.size(), 0);
  if (shape.empty()) return f(size_t{0}, salt, at);
  const size_t last = shape.size() - 1;
  for (size_t element = 0, count = count_of(shape); element < count;) {
    uint64_t row = salt, cell = 0;
    for (size_t d = 0; d < last; ++d) row = mix(row, static_cast<uint64_t>(at[d] / tile[d]));
    int64_t cells = 0, left = 0;  // of the last dimension, and elements of this one
    for (at[last] = 0; at[last] < shape[last]; ++at[last], --left) {
      if (left == 0) cell = mix(row, static_cast<uint64_t>(cells++)), left = tile[last];
      f(element++, cell, at);
    }
    at[last] = 0;
    for (size_t d = last; d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

// What kernels divide a dimension into: elements, tiles, halves and quarters, nothing.
int64_t random_tile(int64_t extent, Random& random) {
  const int64_t tile =
      pick<int64_t>(random, {1, 8, 16, 32, 64, 128, (extent + 3) / 4, (extent + 1) / 2, extent});
  return std::clamp<int64_t>(tile, 1, std::max<int64_t>(extent, 1));
}

// A dimension of more than one element, if there is one; more often the last.
size_t random_dimension(const Ints& shape, Random& random) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1) dims.push_back(d);
  if (dims.empty()) return 0;
  return random.one_in(2) ? dims.back() : dims[random.below(dims.size())];
}

class Mask {
 public:
  Mask(const Ints& shape, Random& random) : shape_(shape), random_(random), masked_(count_of(shape), false) {
    if (shape.empty()) masked_[0] = random.one_in(2);
    if (shape.empty() || masked_.empty()) return;
    do {
      masked_.assign(masked_.size(), false);
      add_tiles();
      if (random.one_in(2)) add_rows();
      if (random.one_in(3)) add_cells(Ints(shape.size(), 1), 0.25);
      if (random.one_in(3)) add_padding();
      // Seldom all of it.
    } while (std::find(masked_.begin(), masked_.end(), false) == masked_.end() && !random.one_in(8));
  }
  bool operator[](size_t element) const { return masked_[element]; }

 private:
  void add_cells(const Ints& tile, double share) {
    const auto below = static_cast<uint64_t>(share * 1024);
    for_each_cell(shape_, tile, random_.bits(), [&](size_t element, uint64_t cell, const Ints&) {
      if (cell % 1024 < below) masked_[element] = true;
    });
  }
  void add_tiles() {
    Ints tile = shape_;
    for (size_t d = 0; d < shape_.size(); ++d)
      if (random_.one_in(2)) tile[d] = random_tile(shape_[d], random_);
    const size_t along = random_dimension(shape_, random_);
    while (shape_[along] > 1 && tile[along] == shape_[along])
      tile[along] = random_tile(shape_[along], random_);
    add_cells(tile, pick(random_, {0.125, 0.5, 0.875}));
  }
  void add_rows() {
    Ints tile(shape_.size(), 1);
    const size_t along = random_dimension(shape_, random_);
    tile[along] = shape_[along];
    add_cells(tile, 0.25);
  }
  // All from an index on, or up to one; the index differs from row to row, or is the same for all.
  void add_padding() {
    const size_t along = random_dimension(shape_, random_);
    const bool left = random_.one_in(2);
    Ints tile = random_.one_in(2) ? shape_ : Ints(shape_.size(), 1);
    tile[along] = shape_[along];
    for_each_cell(shape_, tile, random_.bits(), [&](size_t element, uint64_t cell, const Ints& at) {
      const auto length = static_cast<int64_t>(cell % static_cast<uint64_t>(shape_[along] + 1));
      if (left ? at[along] < length : at[along] >= length) masked_[element] = true;
    });
  }

  const Ints& shape_;
  Random& random_;
  std::vector<bool> masked_;
};

// ---- the classes ----

// An additive mask: mostly 0 where nothing is masked, now and then scores.
Doubles masked_by(double value, const Ints& shape, Random& random) {
  Doubles elements = uniform(count_of(shape), random, random.one_in(2) ? 1.0 : 0.0);
  const Mask mask(shape, random);
  for (size_t i = 0; i < elements.size(); ++i)
    if (mask[i]) elements[i] = value;
  return elements;
}

Doubles masked(DType, const Ints& shape, uint64_t seed) {
  Random random(seed);
  return masked_by(-kInfinity, shape, random);
}

Doubles lowest(DType dtype, const Ints& shape, uint64_t seed) {
  Random random(seed);
  const double largest = float_range(dtype).largest,
               large = largest > 1e30 ? 1e30 : std::min(1e4, largest);  // as masks have them
  return masked_by(random.one_in(2) ? -large : -largest, shape, random);
}

// Few enough that some rows and columns have none.
Doubles special(DType, const Ints& shape, uint64_t seed) {
  Random random(seed);
  Doubles elements = uniform(count_of(shape), random, 1);
  if (elements.empty()) return elements;
  int64_t most = shape.size() < 2 ? 2 : std::numeric_limits<int64_t>::max();
  for (int64_t extent : shape)
    if (extent > 1) most = std::min(most, 1 + extent / 4);
  const uint64_t count = 1 + random.below(static_cast<uint64_t>(std::min<int64_t>(most, 64)));
  const int kind = static_cast<int>(random.below(4));  // one kind, or all
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t which = kind < 3 ? static_cast<uint64_t>(kind) : random.below(3);
    elements[random.below(elements.size())] = which == 0   ? std::numeric_limits<double>::quiet_NaN()
                                              : which == 1 ? kInfinity
                                                           : -kInfinity;
  }
  return elements;
}

// Products of two such inputs over 64 to 1024 elements are sums of some 1e4; or the input itself is.
Doubles logits(DType, const Ints& shape, uint64_t seed) {
  Random random(seed);
  const double scale = pick(random, {30.0, 30.0, 30.0, 1e4});
  return uniform(count_of(shape), random, scale);
}

// Each row has a mean of its own, of one magnitude.
Doubles offset(DType dtype, const Ints& shape, uint64_t seed) {
  Random random(seed);
  const double ratio = float_range(dtype).mean_deviation;
  const double deviation = pick(random, {1.0, 1.0 / ratio, 10.0 / ratio});
  const bool equal = random.one_in(2);
  Doubles elements = uniform(count_of(shape), random, deviation);
  Ints tile(shape.size(), 1);
  if (!tile.empty()) tile.back() = std::max<int64_t>(shape.back(), 1);
  for_each_cell(shape, tile, random.bits(), [&](size_t element, uint64_t cell, const Ints&) {
    elements[element] += equal ? ratio * deviation : Random(cell).symmetric() * 2 * ratio * deviation;
  });
  return elements;
}

Doubles constant(DType, const Ints& shape, uint64_t seed) {
  Random random(seed);
  Doubles elements(count_of(shape));
  Ints tile(shape.size(), 1);
  if (!tile.empty()) {
    const size_t along = random_dimension(shape, random);
    tile[along] = std::max<int64_t>(shape[along], 1);
  }
  if (random.one_in(4)) tile = shape;  // one number everywhere
  for_each_cell(shape, tile, random.bits(), [&](size_t element, uint64_t cell, const Ints&) {
    Random row(cell);
    elements[element] = pick(row, {0.0, 0.0, 1.0, -1.0, 0.1, -0.7, 3.0, 100.0});
  });
  return elements;
}

// Products of two of them are subnormal or zero in f16; subnormals of the dtype; zeros of both signs.
Doubles tiny(DType dtype, const Ints& shape, uint64_t seed) {
  Random random(seed);
  const double subnormal = float_range(dtype).smallest;
  const double scale = pick(random, {1e-3, 1e-3, subnormal});
  Doubles elements = uniform(count_of(shape), random, scale);
  for (double& element : elements)
    if (random.one_in(8)) element = pick(random, {0.0, -0.0, subnormal * random.symmetric()});
  return elements;
}

// All of them, or one in `rare` of others.
Doubles largest(Random& random, double most, const Ints& shape, uint64_t rare) {
  if (rare == 1) return uniform(count_of(shape), random, most);
  Doubles elements = uniform(count_of(shape), random, 1);
  for (double& element : elements)
    if (random.one_in(rare)) element = (random.one_in(2) ? 1 : -1) * most;
  return elements;
}

Doubles huge(DType dtype, const Ints& shape, uint64_t seed) {
  Random random(seed);
  const double most = float_range(dtype).largest;
  const int kind = static_cast<int>(random.below(4));
  if (kind == 1) return uniform(count_of(shape), random, std::sqrt(most));  // squares still fit
  return largest(random, most, shape, kind == 0 ? 1 : kind == 2 ? 64 : 1024);
}

// Where other inputs are not, products with them still fit; and rounding decides nothing yet.
Doubles huge_alone(DType dtype, const Ints& shape, uint64_t seed) {
  Random random(seed);
  return largest(random, 0.75 * float_range(dtype).largest, shape, random.one_in(2) ? 1 : 64);
}

constexpr HostileClass kClasses[] = {
    {"masked", "-inf per element, tile, half, row, and in padding, as an additive mask has it",
     HostileInputs::one, masked},
    {"lowest", "the same with -1e30 (-1e4 in f16) or the lowest finite number of the dtype",
     HostileInputs::one, lowest},
    {"special", "a few NaN and infinities among friendly numbers", HostileInputs::one, special},
    {"logits", "products over 64 to 1024 elements reach 1e4, or the elements do", HostileInputs::all, logits},
    {"offset", "means of up to 1e5 deviations (500 in f16, 60 in bf16)", HostileInputs::all, offset},
    {"constant", "rows of one number each, many of them 0", HostileInputs::all, constant},
    {"tiny", "1e-3, whose products leave f16, and subnormals", HostileInputs::all, tiny},
    {"huge", "the largest finite numbers, in a few elements or in all", HostileInputs::either, huge,
     huge_alone},
};

// ---- integers and truth values ----

Doubles integers(const Ints& shape, Random& random) {
  constexpr double low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  const uint64_t rare = pick<uint64_t>(random, {2, 8, 64});
  Doubles elements(count_of(shape));
  for (double& element : elements)
    element = random.one_in(rare) ? pick(random, {low, low + 1, high, high - 1, -65536.0, 65537.0})
                                  : static_cast<double>(random.below(17)) - 8;
  return elements;
}

Doubles truth_values(const Ints& shape, Random& random) {
  const Mask mask(shape, random);
  Doubles elements(count_of(shape));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = !mask[i];
  return elements;
}

std::string place(const TensorDesc& desc, const Doubles& elements) {
  std::string buffer(static_cast<size_t>(desc.span()) * dtype_size(desc.dtype),
                     is_float(desc.dtype) ? '\xff' : '\0');
  std::optional<int64_t> first;
  bool both = false;
  size_t next = 0;
  if (desc.strides == dense_strides(desc.shape))
    store_elements(buffer.data(), desc.dtype, 0, elements);
  else
    for_each_offset(desc.shape, desc.strides, 0,
                    [&](int64_t at) { store_element(buffer.data(), desc.dtype, at, elements[next++]); });
  if (desc.dtype != DType::boolean) return buffer;
  for_each_offset(desc.shape, desc.strides, 0, [&](int64_t at) {
    if (!first) first = at;
    both = both || buffer[static_cast<size_t>(at)] != buffer[static_cast<size_t>(*first)];
  });
  if (first && !both) buffer[static_cast<size_t>(*first)] ^= 1;
  return buffer;
}

// ---- graphs ----

// The float inputs that something else than a product reads, as far as movements and casts go: masks are
// among them, queries, keys and values are not.
std::vector<bool> read_outside_products(const Graph& graph) {
  std::vector<ValueId> source(graph.nodes.size(), -1);
  std::vector<bool> read(graph.nodes.size(), false);
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    const OpKind kind = op_info(node.code).kind;
    if (node.code == OpCode::input) source[id] = static_cast<ValueId>(id);
    if (kind == OpKind::contraction) continue;
    const bool moves = (kind == OpKind::movement || kind == OpKind::conversion) && node.operands.size() == 1;
    for (ValueId operand : node.operands) {
      if (source[operand] < 0) continue;
      if (moves)
        source[id] = source[operand];
      else
        read[source[operand]] = true;
    }
  }
  return read;
}

// Which input is drawn from a class that spares the others; none if the graph has masks of its own.
std::optional<size_t> choose_input(const Graph& graph, Random& random, size_t which) {
  const std::vector<bool> read = read_outside_products(graph);
  std::vector<size_t> floats, likely;
  bool masks = false;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const DType dtype = graph.node(graph.inputs[i]).type.dtype;
    masks = masks || dtype == DType::boolean;
    if (!is_float(dtype)) continue;
    floats.push_back(i);
    if (read[graph.inputs[i]]) likely.push_back(i);
  }
  if (which < floats.size()) return floats[which];
  if (floats.empty() || (masks && random.one_in(2))) return std::nullopt;
  const std::vector<size_t>& from = likely.empty() || random.one_in(4) ? floats : likely;
  return from[random.below(from.size())];
}

uint64_t seed_of(uint64_t seed, const HostileClass& cls) {
  for (const char* c = cls.name; *c; ++c) seed = mix(seed, static_cast<uint64_t>(*c));
  return seed;
}

}  // namespace

std::span<const HostileClass> hostile_classes() { return kClasses; }

const HostileClass* find_hostile_class(std::string_view name) {
  for (const HostileClass& cls : kClasses)
    if (name == cls.name) return &cls;
  return nullptr;
}

std::string hostile_buffer(const TensorDesc& desc, size_t input_index, const HostileClass& cls,
                           uint64_t seed) {
  const uint64_t own = mix(seed_of(seed, cls), input_index);
  Random random(own);
  if (is_float(desc.dtype)) return place(desc, cls.elements(desc.dtype, desc.shape, own));
  return place(
      desc, desc.dtype == DType::boolean ? truth_values(desc.shape, random) : integers(desc.shape, random));
}

std::vector<std::string> hostile_inputs(const Graph& graph, const HostileClass& cls, uint64_t seed,
                                        const std::vector<bool>& read, size_t which) {
  Random random(seed_of(seed, cls));
  bool spares = cls.inputs == HostileInputs::one;
  if (cls.inputs == HostileInputs::either) {
    spares = which == SIZE_MAX ? seed % 4 == 3 : which > 0;
    if (which != SIZE_MAX) --which;
  }
  const std::optional<size_t> chosen = choose_input(graph, random, which);
  HostileClass own_class = cls;
  if (spares) own_class.elements = cls.alone;
  const std::vector<int64_t> extents = compared_positions(graph);
  std::vector<std::string> buffers;
  for (const TensorDesc& desc : graph.input_descs()) {
    const size_t i = buffers.size();
    const bool is_length = extents[i] > 0 && mix(seed, i) % 4 > 0;
    const bool friendly = spares && is_float(desc.dtype) && i != chosen;
    const uint64_t own = friendly ? mix(random.bits(), i) : seed;
    if (i < read.size() && !read[i])
      buffers.emplace_back();
    else if (is_length)
      buffers.push_back(length_buffer(desc, extents[i], mix(seed, i), true));
    else
      buffers.push_back(friendly ? random_buffer(desc, own) : hostile_buffer(desc, i, own_class, own));
  }
  return buffers;
}

}  // namespace quern
