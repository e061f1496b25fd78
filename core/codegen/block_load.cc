// Loads and stores: straight between global memory and registers, or through tiles in shared memory that
// cp.async fills ahead of time.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

namespace quern {

namespace {

std::string unrolled(const std::string& variable, int count, const std::string& body) {
  return "#pragma unroll\nfor (int " + variable + " = 0; " + variable + " < " + std::to_string(count) +
         "; ++" + variable + ") {\n" + indent(body, 2) + "}\n";
}

}  // namespace

std::string BlockEmitter::pointer(int32_t tensor, bool written) {
  for (auto& [known, writes] : parameters_)
    if (known == tensor) {
      writes |= written;
      return places_[static_cast<size_t>(tensor)].name;
    }
  parameters_.emplace_back(tensor, written);
  return places_[static_cast<size_t>(tensor)].name;
}

// The tensor's pointer at the first element of the tile.
std::string BlockEmitter::tile_pointer(BlockValue value, const std::string& pointer) const {
  const BlockOp& op = program_.op(value);
  const Ints& strides = places_[static_cast<size_t>(op.tensor)].strides;
  std::string out = pointer;
  for (size_t d = 0; d < strides.size(); ++d) {
    const std::string& first = firsts_[static_cast<size_t>(value)][d];
    if (first == "0" || strides[d] == 0) continue;
    out += " + static_cast<long long>(" + first + ") * " + std::to_string(strides[d]);
  }
  return out;
}

bool BlockEmitter::is_staged(BlockValue value) const {
  return schedule_.stages > 1 && program_.stage(value) == Stage::loop &&
         places_[static_cast<size_t>(program_.op(value).tensor)].dtype != DType::boolean;
}

// The dimension whose neighbours are neighbours in memory; -1: none.
int BlockEmitter::inner_dim(int32_t tensor, const Ints& tile) const {
  const TensorPlace& place = places_[static_cast<size_t>(tensor)];
  int best = -1;
  for (int d = 0; d < static_cast<int>(tile.size()); ++d)
    if (place.strides[static_cast<size_t>(d)] == 1 && place.shape[static_cast<size_t>(d)] > 1 &&
        (best < 0 || tile[static_cast<size_t>(d)] > tile[static_cast<size_t>(best)]))
      best = d;
  return best;
}

// Low bits of `inner` that are in registers and can move as one access of up to 16 bytes: every vector is
// aligned, of whole words, and either inside the tensor or outside.
int BlockEmitter::vector_bits(BlockValue value, const Spread& spread, int inner) const {
  if (inner < 0) return 0;
  const BlockOp& op = program_.op(value);
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
  auto divides = [&](int64_t number) {
    const TileDim& dim = dims_[static_cast<size_t>(value)][static_cast<size_t>(inner)];
    if (place.shape[static_cast<size_t>(inner)] % number != 0 || dim.tile % number != 0) return false;
    for (size_t d = 0; d < place.shape.size(); ++d)
      if (static_cast<int>(d) != inner && place.shape[d] > 1 && place.strides[d] % number != 0) return false;
    return true;
  };
  int bits = 0;
  while ((dtype_size(place.dtype) << (bits + 1)) <= 16 && divides(int64_t{2} << bits) &&
         std::find(spread.registers.begin(), spread.registers.end(), CoordBit{inner, bits}) !=
             spread.registers.end())
    ++bits;
  return dtype_size(place.dtype) << bits < 4 ? 0 : bits;  // vectors have whole words
}

void BlockEmitter::load(BlockValue value, const Spread& spread) {
  if (is_staged(value))
    load_staged(value, spread);
  else
    load_straight(value, spread);
}

void BlockEmitter::load_straight(BlockValue value, const Spread& spread) {
  const BlockOp& op = program_.op(value);
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
  const int inner = inner_dim(op.tensor, op.type.shape), vector = vector_bits(value, spread, inner);
  Array array;
  array.dtype = place.dtype;
  array.spread = spread;
  array.words = vector > 0 && dtype_size(place.dtype) == 2;
  auto& registers = array.spread.registers;
  for (int bit = vector - 1; bit >= 0; --bit) {  // the vector's bits go first
    const auto at = std::find(registers.begin(), registers.end(), CoordBit{inner, bit});
    std::rotate(registers.begin(), at, at + 1);
  }
  const bool loop = program_.stage(value) == Stage::loop;
  array.scope = loop ? Stage::loop : Stage::before;
  array.name = fresh(base_name(value));
  const bool ahead = loop && loads_ahead();
  const std::string to = ahead ? "next_" + array.name : array.name, from = fresh("at");
  const int count = spread.count() >> (array.words ? 1 : 0), per = 1 << vector;
  const std::string type = array.words ? "unsigned" : cuda_type(place.dtype),
                    element = cuda_type(place.dtype);
  const std::string declaration =
      type + " " + to + "[" + std::to_string(count) + "]" + (ahead ? " = {}" : "") + ";\n";
  const Spread chunks = chunks_of(array.spread, vector);
  const std::string within = inside(value, chunks, "r"), at = offset(chunks, place.strides, "r");
  std::string body;
  if (vector == 0)
    body = to + "[r] = " + (within.empty() ? "" : within + " ? ") + from + "[" + at + "]" +
           (within.empty() ? "" : " : " + element + "{}") + ";\n";
  else
    body = (place.arg.kind != LaunchArg::Kind::input
                ? "load_written_elements<" + element + ", " + std::to_string(per)
                : "load_elements<" + element + ", " + std::to_string(per) + ", " +
                      (is_shared_by_blocks(op) ? "false" : "true")) +
           ">(&" + to + "[r * " + std::to_string(array.words ? per / 2 : per) + "], " + from + " + " + at +
           ", " + (within.empty() ? "true" : within) + ");\n";
  const std::string base =
      "const " + element + "* const " + from + " = " + tile_pointer(value, pointer(op.tensor, false)) + ";\n";
  const std::string lines = base + unrolled("r", chunks.count(), body);
  if (loop) {
    declared_ += declaration;
    straight_fetch_ += lines;
    if (ahead) {
      declared_ += type + " " + array.name + "[" + std::to_string(count) + "] = {};\n";
      take_ += unrolled("r", count, array.name + "[r] = " + to + "[r];\n");
    }
  } else {
    text(Stage::before) += declaration + lines;
  }
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

const BlockEmitter::StagedTile& BlockEmitter::stage_tile(BlockValue value) {
  const auto [at, fresh_one] = staged_.try_emplace(value);
  StagedTile& tile = at->second;
  if (!fresh_one) return tile;
  const BlockOp& op = program_.op(value);
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
  tile.value = value;
  tile.name = fresh_constant("tile_" + base_name(value));
  tile.inner = inner_dim(op.tensor, op.type.shape);
  const auto demand = demands_.find(value);
  const Spread& wanted = demand == demands_.end() ? natural(value) : demand->second;
  for (int d = 0; d < op.type.rank(); ++d)
    tile.padded.push_back(
        int64_t{1} << std::max(bits_for(op.type.shape[static_cast<size_t>(d)]), wanted.bits(d)));
  if (tile.inner < 0) tile.inner = op.type.rank() - 1;
  const auto panels = panels_.find(value);
  if (panels != panels_.end())
    for (size_t d = 0; d < tile.padded.size(); ++d)
      tile.padded[d] = std::max(tile.padded[d], panels->second[d]);
  auto& inner = tile.padded[static_cast<size_t>(tile.inner)];
  inner = std::max<int64_t>(inner, 16 / static_cast<int64_t>(dtype_size(place.dtype)));
  if (schedule_.tma && target_.tma && bring_by_engine(tile)) return tile;
  copies_panels_ |= panels != panels_.end();
  put_in_panels(tile,
                panels != panels_.end() ? bits_of(tile, dims_by_stride(tile)) : bits_as_read(tile, wanted));
  staged_fetch_ += stage_copy(tile);
  return tile;
}

// All threads copy the tile, zeros where there is nothing; `slot` is the stage.
std::string BlockEmitter::stage_copy(const StagedTile& tile) {
  const BlockOp& op = program_.op(tile.value);
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
  const Ints& padded = tile.padded;
  // Vectors along the inner dimension, lanes and warps over the rest as it lies: what neighbouring lanes
  // write is in different banks.
  Spread vector;
  for (int bit = 0; (int64_t{1} << bit) < padded[static_cast<size_t>(tile.inner)]; ++bit)
    vector.registers.push_back({tile.inner, bit});
  int bits = vector_bits(tile.value, vector, inner_dim(op.tensor, op.type.shape));
  if ((dtype_size(place.dtype) << bits) < 4) bits = 0;
  const Spread chunks = chunks_of(spread_in_order(tile.bits, bits, warp_bits_), bits);
  const std::string element = cuda_type(place.dtype), from = fresh("at");
  const std::string within = inside(tile.value, chunks, "r"), at = offset(chunks, place.strides, "r");
  const std::string to = tile.name + " + " + place_in(tile, chunks, "r");
  std::string body;
  if (bits > 0) {
    const std::string bytes = std::to_string(dtype_size(place.dtype) << bits);
    body = within.empty() ? "cp_async<" + bytes + ">(" + to + ", " + from + " + " + at + ");\n"
                          : "const bool inside = " + within + ";\ncp_async<" + bytes + ">(" + to + ", " +
                                from + " + (inside ? " + at + " : 0), inside ? " + bytes + " : 0);\n";
  } else {
    body = "*(" + to + ") = " + (within.empty() ? "" : within + " ? ") + from + "[" + at + "]" +
           (within.empty() ? "" : " : " + element + "{}") + ";\n";
  }
  std::string lines = unrolled("r", chunks.count(), body);
  if (const std::string condition = leaders(chunks); !condition.empty())
    lines = "if (" + condition + ") {\n" + indent(lines, 2) + "}\n";
  return "const " + element + "* const " + from + " = " +
         tile_pointer(tile.value, pointer(op.tensor, false)) + ";\n" + lines;
}

// Dimensions along which the spread reaches beyond what the tile has room for.
std::vector<int> BlockEmitter::beyond_tile(const StagedTile& tile, const Spread& spread) {
  std::vector<int> dims;
  for (int d = 0; d < static_cast<int>(tile.padded.size()); ++d)
    if ((int64_t{1} << spread.bits(d)) > tile.padded[static_cast<size_t>(d)]) dims.push_back(d);
  return dims;
}

// As matrices where the spread is one of tensor cores, else in vectors.
void BlockEmitter::load_staged(BlockValue value, const Spread& spread) {
  const StagedTile& tile = stage_tile(value);
  const TensorPlace& place = places_[static_cast<size_t>(program_.op(value).tensor)];
  const std::vector<int> beyond = beyond_tile(tile, spread);
  Array array;
  array.dtype = place.dtype;
  array.spread = spread;
  array.scope = Stage::loop;
  array.name = fresh(base_name(value));
  auto& registers = array.spread.registers;
  int vector = 0;
  while (std::find(beyond.begin(), beyond.end(), tile.inner) == beyond.end() &&
         (dtype_size(place.dtype) << (vector + 1)) <= 16) {
    const auto at = std::find(registers.begin(), registers.end(), CoordBit{tile.inner, vector});
    if (at == registers.end()) break;
    std::rotate(registers.begin() + vector, at, at + 1);  // the vector's bits go first
    ++vector;
  }
  const std::string element = cuda_type(place.dtype), count = std::to_string(spread.count()),
                    half_count = std::to_string(spread.count() / 2);
  std::string matrices;
  if (dtype_size(place.dtype) == 2)
    matrices = read_matrices(tile, place.dtype, spread, array.name, spread.count() / 2, "");
  std::string lines;
  if (!matrices.empty()) {
    array.spread = spread;
    array.words = true;
    lines = "unsigned " + array.name + "[" + half_count + "];\n" + matrices;
  } else {
    array.words = vector > 0 && dtype_size(place.dtype) == 2;
    const Spread chunks = chunks_of(array.spread, vector);
    const std::string within = beyond.empty() ? "true" : inside(value, chunks, "r", false, beyond);
    const std::string per = std::to_string(1 << vector >> (array.words ? 1 : 0));
    lines = (array.words ? "unsigned " : element + " ") + array.name + "[" +
            (array.words ? half_count : count) + "];\n" +
            unrolled("r", chunks.count(),
                     "read_elements<" + element + ", " + std::to_string(1 << vector) + ">(&" + array.name +
                         "[r * " + per + "], " + tile.name + " + " + place_in(tile, chunks, "r") + ", " +
                         within + ");\n");
  }
  text(Stage::loop) += lines;
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

void BlockEmitter::store(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
  const BlockValue source = op.operands[0];
  const int inner = inner_dim(op.tensor, op.type.shape);
  Spread spread = natural(value);
  const int vector = vector_bits(value, spread, inner);
  for (int bit = vector - 1; bit >= 0; --bit) {
    const auto at = std::find(spread.registers.begin(), spread.registers.end(), CoordBit{inner, bit});
    std::rotate(spread.registers.begin(), at, at + 1);
  }
  const Spread chunks = chunks_of(spread, vector);
  const DType type = register_type(place.dtype);
  const CudaText result = element(source, spread, "r");
  const std::string number = round_text(convert_text(result.as(result.is_number() ? type : result.type()),
                                                     result.is_number() ? type : result.type(), type),
                                        place.dtype);
  const std::string memory = pointer(op.tensor, true), to = fresh("to"), dtype = cuda_type(place.dtype);
  const std::string within = inside(value, chunks, "c"), at = offset(chunks, place.strides, "c");
  std::string body;
  if (vector == 0) {
    body = "const int r = c;\n" + to + "[" + at + "] = " + number + ";\n";
  } else {
    const std::string per = std::to_string(1 << vector);
    body = "Vector<" + dtype + ", " + per + "> v;\n" +
           unrolled("j", 1 << vector, "const int r = c * " + per + " + j;\nv[j] = " + number + ";\n") +
           "store_vector<" + dtype + ", " + per + ">(" + to + " + " + at + ", v);\n";
  }
  if (!within.empty()) body = "if (" + within + ") {\n" + indent(body, 2) + "}\n";
  std::string lines = unrolled("c", chunks.count(), body);
  for (const std::string& condition : {leaders(spread), storing_block(op, spread)})
    if (!condition.empty()) lines = "if (" + condition + ") {\n" + indent(lines, 2) + "}\n";
  text(now_) += dtype + "* const " + to + " = " + tile_pointer(value, memory) + ";\n" + lines;
}

}  // namespace quern
