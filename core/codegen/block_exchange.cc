// Partial results of lanes put together by shuffles, and tiles that a block leaves in shared memory for the
// others of its cluster.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

namespace quern {

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
    lines +=
        "  " + array.name + "[r] = " +
        cuda_combine(array.reduction, {array.name + "[r]", array.dtype}, {other, array.dtype}, array.dtype) +
        ";\n";
  }
  array.partial_lanes = 0;
  text(array.scope) += lines + "}\n";
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

// Places for a tile in shared memory. `pitch`: elements from one coordinate to the next.
BlockEmitter::SharedTile BlockEmitter::shared_tile(BlockValue value, DType dtype) {
  SharedTile tile;
  const Ints& shape = program_.shape(value);
  tile.pitch.assign(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 0;) {
    tile.pitch[d] = tile.size;
    tile.size *= shape[d];
    if (d + 1 == shape.size() && shape[d] >= 16) tile.size = (tile.size + 3) / 4 * 4 + 4;
  }
  tile.dtype = register_type(dtype);
  tile.buffer = shared_buffer(cuda_type(tile.dtype), tile.size * 4);
  tile.name = shared_[static_cast<size_t>(tile.buffer)].name;
  return tile;
}

// As many neighbours at once as both the tile and the registers allow; their bits of the register's number go
// first.
int BlockEmitter::shared_vector(BlockValue value, const SharedTile& tile, Spread& spread) const {
  const Ints& shape = program_.shape(value);
  const int last = static_cast<int>(shape.size()) - 1;
  int vector = 0;
  while (last >= 0 && vector < 2 && tile.dtype != DType::boolean) {
    const int64_t next = int64_t{2} << vector;
    bool aligned = shape[static_cast<size_t>(last)] % next == 0 && tile.size % next == 0;
    for (int d = 0; d < last; ++d) aligned &= tile.pitch[static_cast<size_t>(d)] % next == 0;
    const auto at = std::find(spread.registers.begin(), spread.registers.end(), CoordBit{last, vector});
    if (!aligned || at == spread.registers.end()) break;
    std::rotate(spread.registers.begin() + vector, at, at + 1);
    ++vector;
  }
  return vector;
}

// Writes a tile to shared memory, where other blocks will read it.
std::string BlockEmitter::put_shared(BlockValue value, const Array& have, SharedTile& tile) {
  tile = shared_tile(value, have.dtype);
  const std::string type = cuda_type(tile.dtype), condition = leaders(have.spread);
  Spread writes = have.spread;
  const int vector = shared_vector(value, tile, writes);
  const Spread chunks = chunks_of(writes, vector);
  const std::string within = inside(value, chunks, "c", false), per = std::to_string(1 << vector);
  const std::string at = offset(chunks, tile.pitch, "c");
  std::string write = "Vector<" + type + ", " + per + "> v;\n#pragma unroll\nfor (int j = 0; j < " + per +
                      "; ++j) {\n  const int r = c * " + per +
                      " + j;\n  v[j] = " + read(have, writes, "r").as(tile.dtype) + ";\n}\nstore_vector<" +
                      type + ", " + per + ">(" + tile.name + " + " + at + ", v);\n";
  if (!within.empty()) write = "if (" + within + ") {\n" + indent(write, 2) + "}\n";
  std::string loop = "#pragma unroll\nfor (int c = 0; c < " + std::to_string(chunks.count()) + "; ++c) {\n" +
                     indent(write, 2) + "}\n";
  if (!condition.empty()) loop = "if (" + condition + ") {\n" + indent(loop, 2) + "}\n";
  return loop;
}

// Of threads that hold the same tile, the first.
std::string BlockEmitter::leaders(const Spread& spread) const {
  unsigned lanes = 0, warps = 0;
  for (size_t i = 0; i < spread.lanes.size(); ++i)
    if (spread.lanes[i].dim < 0) lanes |= 1u << i;
  for (size_t i = 0; i < spread.warps.size(); ++i)
    if (spread.warps[i].dim < 0) warps |= 1u << i;
  std::string out;
  if (lanes) out = "(lane & " + std::to_string(lanes) + ") == 0";
  if (warps) out += (out.empty() ? "" : " && ") + std::string("(warp & ") + std::to_string(warps) + ") == 0";
  return out;
}

}  // namespace quern
