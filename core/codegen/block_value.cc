// Values of a block graph where they are asked for: elementwise chains as expressions, coordinates and edges,
// and the way through shared memory for what is elsewhere.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"
#include "core/codegen/trace.h"
#include "core/lang/meaning.h"

namespace quern {

namespace {

bool is_cast(const BlockOp& op) { return op.kind == BlockOp::Kind::compute && op.code == OpCode::cast; }

// For each dimension of the result of a view its number in the operand; `dims` is the other way round.
std::vector<int> inverse_dims(const std::vector<int>& dims, size_t rank) {
  std::vector<int> back(rank, -1);
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] >= 0) back[static_cast<size_t>(dims[i])] = static_cast<int>(i);
  return back;
}

}  // namespace

const BlockEmitter::Array* BlockEmitter::find(BlockValue value, const Spread& want) const {
  for (const Array& array : arrays_[static_cast<size_t>(value)])
    if (array.whole() && (array.scope == Stage::before || array.scope == now_) &&
        serves(array.spread, want, program_.shape(value)))
      return &array;
  return nullptr;
}

CudaText BlockEmitter::read(const Array& array, const Spread& want, const std::string& index) const {
  const std::string at = register_index(index, array.spread, want);
  const DType type = register_type(array.dtype);
  if (array.words)
    return {"to_float(half_at<" + cuda_type(array.dtype) + ">(" + array.name + ", " + at + "))", type};
  const std::string element = array.name + "[" + at + "]";
  return {dtype_size(array.dtype) == 2 ? "to_float(" + element + ")" : element, type};
}

CudaText BlockEmitter::element(BlockValue value, const Spread& spread, const std::string& index) {
  if (program_.is_number(value)) return CudaText(program_.op(value).number);
  if (const Array* array = find(value, spread)) return read(*array, spread, index);
  const bool free = program_.is_compute(value, OpKind::elementwise) || is_cast(program_.op(value)) ||
                    program_.is_compute(value, OpKind::movement);
  if (free && (program_.users[static_cast<size_t>(value)].size() == 1 || program_.op(value).operands.empty()))
    return compute(value, spread, index);
  materialize(value, spread);
  const Array* array = find(value, spread);
  if (!array) {
    if (status_.ok()) fail(value, "does not come into the registers where it is needed");
    return CudaText(0.0);
  }
  return read(*array, spread, index);
}

CudaText BlockEmitter::compute(BlockValue value, const Spread& spread, const std::string& index) {
  const BlockOp& op = program_.op(value);
  if (program_.is_compute(value, OpKind::movement)) {
    const std::vector<int> dims = view_dims(program_, value);
    if (dims.empty() && !program_.shape(op.operands[0]).empty()) {
      fail(value, "moves elements within a tile");
      return CudaText(0.0);
    }
    const Ints& from = program_.shape(op.operands[0]);
    std::vector<int> back = inverse_dims(dims, op.type.shape.size());
    for (size_t d = 0; d < back.size(); ++d)  // repeated by a broadcast
      if (back[d] >= 0 && from[static_cast<size_t>(back[d])] == 1 && op.type.shape[d] != 1) back[d] = -1;
    return element(op.operands[0], renumbered(spread, back), renumbered_index(index, spread, back));
  }
  std::vector<TensorType> types;
  std::vector<CudaText> operands;
  for (BlockValue operand : op.operands) types.push_back(program_.op(operand).type);
  const DType wanted = is_cast(op) ? DType::f32 : compute_dtype(op.code, types);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const std::vector<int> dims = operand_dims(op.type.shape, program_.shape(op.operands[i]));
    CudaText operand =
        element(op.operands[i], renumbered(spread, dims), renumbered_index(index, spread, dims));
    const DType type = op.code == OpCode::where && i == 0 ? DType::boolean : wanted;
    if (!is_cast(op) && !operand.is_number())
      operand = CudaText(convert_text(operand.as(operand.type()), operand.type(), type), type);
    operands.push_back(std::move(operand));
  }
  if (is_cast(op)) {
    const DType dtype = *op.attrs.dtype, to = register_type(dtype);
    if (operands[0].is_number()) return {operands[0].as(to), to};
    std::string text = convert_text(operands[0].as(operands[0].type()), operands[0].type(), to);
    if (dtype_size(dtype) == 2) text = "to_float(" + round_text(text, dtype) + ")";
    return {text, to};
  }
  const CudaText result = apply_meaning<CudaText>(op.code, operands.data());
  const DType to = register_type(op.type.dtype);
  return {convert_text(result.as(result.type()), result.type(), to), to};
}

void BlockEmitter::materialize(BlockValue value, const Spread& spread) {
  const BlockOp& op = program_.op(value);
  if (op.kind == BlockOp::Kind::load) return load(value, spread);
  const bool free = program_.is_compute(value, OpKind::elementwise) || is_cast(op) ||
                    program_.is_compute(value, OpKind::movement);
  if (free) {
    const Stage place = place_of(value);
    const CudaText result = compute(value, spread, "r");
    Array array;
    array.name = fresh(base_name(value));
    array.spread = spread;
    array.dtype = register_type(op.type.dtype);
    array.scope = place;
    text(place) += cuda_type(array.dtype) + " " + array.name + "[" + std::to_string(spread.count()) +
                   "];\n#pragma unroll\nfor (int r = 0; r < " + std::to_string(spread.count()) + "; ++r) " +
                   array.name + "[r] = " + result.as(array.dtype) + ";\n";
    arrays_[static_cast<size_t>(value)].push_back(std::move(array));
    return;
  }
  if (arrays_[static_cast<size_t>(value)].empty()) {
    fail(value, "is used before it is made");
    return;
  }
  finish_lanes(value);
  if (!find(value, spread)) exchange(value, spread);
}

// Puts the partial results of lanes together, so that every lane has them.
void BlockEmitter::finish_lanes(BlockValue value) {
  Array array = arrays_[static_cast<size_t>(value)].front();
  for (const Array& other : arrays_[static_cast<size_t>(value)])
    if (other.partial_lanes == 0 && (other.scope == Stage::before || other.scope == now_)) return;
  const std::string count = std::to_string(array.spread.count()), from = array.name;
  array.name = fresh(base_name(value));
  array.scope = place_of(value);
  std::string lines = cuda_type(array.dtype) + " " + array.name + "[" + count +
                      "];\n#pragma unroll\nfor (int r = 0; r < " + count + "; ++r) {\n  " + array.name +
                      "[r] = " + from + "[r];\n";
  for (int bit = 0; bit < kLaneBits; ++bit) {
    if (!(array.partial_lanes >> bit & 1)) continue;
    const std::string other = "shuffle_xor(" + array.name + "[r], " + std::to_string(1 << bit) + ")";
    const CudaText a(array.name + "[r]", array.dtype), b(other, array.dtype);
    const CudaText both = array.maximum ? max(a, b) : a + b;
    lines += "  " + array.name + "[r] = " + both.as(array.dtype) + ";\n";
  }
  array.partial_lanes = 0;
  text(array.scope) += lines + "}\n";
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

// Through shared memory: what is partial by warp lies there side by side and is put together by who reads it.
void BlockEmitter::exchange(BlockValue value, const Spread& want) {
  Array have;
  for (const Array& array : arrays_[static_cast<size_t>(value)])
    if (array.partial_lanes == 0 && (array.scope == Stage::before || array.scope == now_)) have = array;
  const Stage place = place_of(value);
  const Ints& shape = program_.shape(value);
  Ints pitch(shape.size(), 1);
  int64_t size = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    pitch[d] = size;
    size *= shape[d];
    if (d + 1 == shape.size() && shape[d] >= 16) size = (size + 3) / 4 * 4 + 4;
  }
  std::vector<BitMove> parts;
  for (int bit = 0; bit < warp_bits_; ++bit)
    if (have.partial_warps >> bit & 1) parts.push_back({bit, static_cast<int>(parts.size())});
  const int64_t copies = int64_t{1} << parts.size(), bytes = copies * size * 4;
  const std::string type = cuda_type(register_type(have.dtype));
  const int buffer = shared_buffer(type, bytes);
  const std::string s = shared_[static_cast<size_t>(buffer)].name;

  // As many neighbours at once as both the tile and the registers allow.
  auto vector_of = [&](Spread& spread) {
    const int last = static_cast<int>(shape.size()) - 1;
    int vector = 0;
    while (last >= 0 && vector < 2 && type != "bool") {
      const int64_t next = int64_t{2} << vector;
      bool aligned = shape[static_cast<size_t>(last)] % next == 0 && size % next == 0;
      for (int d = 0; d < last; ++d) aligned &= pitch[static_cast<size_t>(d)] % next == 0;
      const auto at = std::find(spread.registers.begin(), spread.registers.end(), CoordBit{last, vector});
      if (!aligned || at == spread.registers.end()) break;
      std::rotate(spread.registers.begin() + vector, at, at + 1);
      ++vector;
    }
    return vector;
  };
  auto chunks = [](Spread spread, int vector) {
    spread.registers.erase(spread.registers.begin(), spread.registers.begin() + vector);
    return spread;
  };
  // Warps that hold parts all write; they are told apart by their part.
  const std::string condition = leaders(have.spread, have.partial_warps);
  Spread writes = have.spread;
  const int write_bits = vector_of(writes);
  const Spread write_chunks = chunks(writes, write_bits);
  const std::string within = inside(value, write_chunks, "c", false), per = std::to_string(1 << write_bits);
  std::string at = offset(write_chunks, pitch, "c");
  if (copies > 1) at = add_text(at, "(" + move_bits("warp", parts) + ") * " + std::to_string(size));
  std::string write = type + " v[" + per + "];\n#pragma unroll\nfor (int j = 0; j < " + per +
                      "; ++j) {\n  const int r = c * " + per +
                      " + j;\n  v[j] = " + read(have, writes, "r").as(register_type(have.dtype)) +
                      ";\n}\nput_elements(" + s + " + " + at + ", v);\n";
  if (!within.empty()) write = "if (" + within + ") {\n" + indent(write, 2) + "}\n";
  std::string loop = "#pragma unroll\nfor (int c = 0; c < " + std::to_string(write_chunks.count()) +
                     "; ++c) {\n" + indent(write, 2) + "}\n";
  if (!condition.empty()) loop = "if (" + condition + ") {\n" + indent(loop, 2) + "}\n";
  text(place).add({loop, {buffer}, {}});

  Array array;
  array.name = fresh(base_name(value));
  array.spread = want;
  array.dtype = register_type(have.dtype);
  array.scope = place;
  const int read_bits = vector_of(array.spread);
  const Spread read_chunks = chunks(array.spread, read_bits);
  const std::string missing = inside(value, read_chunks, "c", false), step = std::to_string(1 << read_bits);
  std::string lines = type + " " + array.name + "[" + std::to_string(want.count()) +
                      "];\n#pragma unroll\nfor (int c = 0; c < " + std::to_string(read_chunks.count()) +
                      "; ++c)\n  get_elements<" + type + ", " + step + ", " + std::to_string(copies) + ", " +
                      (have.maximum ? "true" : "false") + ">(&" + array.name + "[c * " + step + "], " + s +
                      " + " + offset(read_chunks, pitch, "c") + ", " + std::to_string(size) + ", " +
                      (missing.empty() ? "true" : missing) + ");\n";
  text(place).add({lines, {}, {buffer}});
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

BlockValue BlockEmitter::root_load(BlockValue value) const {
  const BlockOp& op = program_.op(value);
  if (op.kind == BlockOp::Kind::load) return value;
  if (!program_.is_compute(value, OpKind::elementwise) && !is_cast(op)) return -1;
  for (BlockValue operand : op.operands)
    if (program_.shape(operand) == op.type.shape)
      if (const BlockValue load = root_load(operand); load >= 0) return load;
  return -1;
}

std::optional<Spread> BlockEmitter::known_spread(BlockValue value) const {
  for (const Array& array : arrays_[static_cast<size_t>(value)])
    if (array.scope == Stage::before || array.scope == now_) return array.spread;
  if (const auto at = demands_.find(value); at != demands_.end()) return at->second;
  const BlockOp& op = program_.op(value);
  if (program_.is_compute(value, OpKind::movement)) {
    const std::vector<int> dims = view_dims(program_, value);
    if (dims.empty() || std::find(dims.begin(), dims.end(), -1) != dims.end()) return std::nullopt;
    if (op.type.element_count() != program_.op(op.operands[0]).type.element_count()) return std::nullopt;
    if (auto spread = known_spread(op.operands[0])) return renumbered(*spread, dims);
    return std::nullopt;
  }
  if (!program_.is_compute(value, OpKind::elementwise) && !is_cast(op)) return std::nullopt;
  for (BlockValue operand : op.operands)
    if (program_.shape(operand) == op.type.shape)
      if (auto spread = known_spread(operand)) return spread;
  return std::nullopt;
}

// The spread that a value has, or will be asked for in, or that loads it best.
Spread BlockEmitter::natural(BlockValue value) {
  if (auto spread = known_spread(value)) return *spread;
  const BlockValue root = root_load(value);
  if (root >= 0) {
    const int inner = inner_dim(program_.op(root).tensor, program_.shape(root));
    return blocked(value, places_[static_cast<size_t>(program_.op(root).tensor)].dtype, inner);
  }
  return blocked(value, DType::f32, program_.op(value).type.rank() - 1);
}

Spread BlockEmitter::blocked(BlockValue value, DType dtype, int inner) const {
  const Ints& shape = program_.shape(value);
  int all = -(kLaneBits + warp_bits_);
  for (int64_t extent : shape) all += bits_for(extent);
  if (inner < 0) inner = static_cast<int>(shape.size()) - 1;
  int vector = 0;
  while (inner >= 0 && (dtype_size(dtype) << (vector + 1)) <= 16 && vector + 1 <= all &&
         shape[static_cast<size_t>(inner)] % (int64_t{2} << vector) == 0)
    ++vector;
  return blocked_spread(shape, std::max(inner, 0), vector, warp_bits_);
}

std::string BlockEmitter::define(const std::string& type, const std::string& prefix,
                                 const std::string& expression) {
  const auto [at, fresh_one] = defined_.try_emplace(expression);
  if (fresh_one) {
    at->second = fresh_constant(prefix);
    prologue_ += "const " + type + " " + at->second + " = " + expression + ";\n";
  }
  return at->second;
}

std::string BlockEmitter::coordinate(const Spread& spread, int dim, const std::string& index) {
  std::string thread = thread_part(spread, dim);
  if (thread != "0") thread = define("int", "i", thread);
  return add_text(thread, register_part(index, spread, dim));
}

std::string BlockEmitter::offset(const Spread& spread, const Ints& strides, const std::string& index) {
  std::string out = "0";
  for (int d = 0; d < static_cast<int>(strides.size()); ++d) {
    const std::string at = coordinate(spread, d, index);
    const int64_t stride = strides[static_cast<size_t>(d)];
    if (at == "0" || stride == 0) continue;
    const bool wide = stride * (int64_t{1} << spread.bits(d)) > 0x7fffffff;
    std::string part = stride == 1 ? at : "(" + at + ") * " + std::to_string(stride);
    if (wide) part += "ll";
    out = add_text(out, part);
  }
  return out;
}

std::string BlockEmitter::inside(BlockValue value, const Spread& spread, const std::string& index, bool edges,
                                 const std::vector<int>& dims) {
  std::string out;
  const auto& own = dims_[static_cast<size_t>(value)];
  for (int d = 0; d < static_cast<int>(own.size()); ++d) {
    if (!dims.empty() && std::find(dims.begin(), dims.end(), d) == dims.end()) continue;
    const TileDim& dim = own[static_cast<size_t>(d)];
    const bool ragged = edges && !dim.left.empty();
    if (!ragged && (int64_t{1} << spread.bits(d)) <= dim.tile) continue;
    const std::string at = coordinate(spread, d, index);
    out += (out.empty() ? "" : " && ") + std::string("(") + at + ") < " +
           (ragged ? dim.left : std::to_string(dim.tile));
  }
  return out;
}

// Of threads that hold the same tile, the first.
std::string BlockEmitter::leaders(const Spread& spread, unsigned but_warps) const {
  unsigned lanes = 0, warps = 0;
  for (size_t i = 0; i < spread.lanes.size(); ++i)
    if (spread.lanes[i].dim < 0) lanes |= 1u << i;
  for (size_t i = 0; i < spread.warps.size(); ++i)
    if (spread.warps[i].dim < 0) warps |= 1u << i;
  warps &= ~but_warps;
  std::string out;
  if (lanes) out = "(lane & " + std::to_string(lanes) + ") == 0";
  if (warps) out += (out.empty() ? "" : " && ") + std::string("(warp & ") + std::to_string(warps) + ") == 0";
  return out;
}

}  // namespace quern
