// Tiles that TMA brings: which loads qualify, and what is asked for.
#include <algorithm>

#include "core/codegen/block/staged_tiles.h"

namespace quern {

namespace {

constexpr int64_t kMostBoxExtent = 256;  // elements

}  // namespace

// Whether what lies behind the tile's part of a dimension, up to `padded`, is behind the end of the tensor:
// there TMA gives zeros, elsewhere it would give what belongs to other blocks or iterations.
bool StagedTiles::ends_with_tensor(const BlockOp& op, int dim, int64_t padded) const {
  int64_t tile = facts_.place(op).shape[static_cast<size_t>(dim)];
  bool cut = false, exact = true;
  for (int axis = 0; axis <= kGridAxes; ++axis) {
    if (!cuts(op, axis, dim) || kernel_.parts(axis) == 1) continue;
    const int64_t next = kernel_.part(axis, tile);
    exact &= !cut || tile % next == 0;
    cut = true;
    tile = next;
  }
  return !cut || (exact && tile == padded);
}

// Coordinates along `dims` of where the tensor begins in what its argument points to: maps begin there.
Ints StagedTiles::starts_in_memory(const SharedTile& tile, const std::vector<int>& dims) const {
  const TensorPlace& place = facts_.place(tile.value);
  Ints starts;
  int64_t rest = place.offset;
  for (int d : dims) {
    const size_t at = static_cast<size_t>(d);
    const int64_t stride = place.shape[at] > 1 ? place.strides[at] : 0;
    starts.push_back(d == tile.inner ? rest : stride > 0 ? rest / stride : 0);
    if (stride > 0) rest %= stride;
  }
  return starts;
}

// The map by which TMA brings the tile, if it can.
std::optional<TensorMap> StagedTiles::tensor_map(const SharedTile& tile, const std::vector<int>& dims) const {
  const BlockOp& op = program_.op(tile.value);
  const TensorPlace& place = facts_.place(op);
  if (place.strides[static_cast<size_t>(tile.inner)] != 1) return std::nullopt;
  TensorMap map;
  map.buffer = place.arg;
  map.dtype = place.dtype;
  const int64_t size = static_cast<int64_t>(dtype_size(place.dtype));
  for (int d = 0; d < op.type.rank(); ++d)
    if (!ends_with_tensor(op, d, tile.padded[static_cast<size_t>(d)])) return std::nullopt;
  const int64_t row = std::min(tile.padded[static_cast<size_t>(tile.inner)] * size, kSwizzledRow);
  const Ints starts = starts_in_memory(tile, dims);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int d = dims[i];
    const size_t at = static_cast<size_t>(d);
    map.shape.push_back(starts[i] + place.shape[at]);
    // The stride of a dimension of extent 1 is never used, but must be possible.
    map.strides.push_back(place.shape[at] > 1 || d == tile.inner ? place.strides[at]
                                                                 : kTensorMapAlignment / size);
    map.box.push_back(d == tile.inner     ? row / size
                      : d == dims.front() ? std::min(tile.padded[at], kMostBoxExtent)
                                          : tile.padded[at]);
  }
  map.swizzle = row >= kLeastSwizzle ? static_cast<uint32_t>(row) : 0;
  if (!check_tensor_map(map).ok() || *std::max_element(map.box.begin(), map.box.end()) > kMostBoxExtent)
    return std::nullopt;
  return map;
}

// Puts the tile in panels, a copy each (or several, of so much of its outermost dimension as a copy can
// bring), if the engine can bring it.
bool StagedTiles::bring_by_tma(SharedTile& tile) {
  const BlockOp& op = program_.op(tile.value);
  const std::vector<int> dims = shared_.dims_by_stride(tile);
  auto map = tensor_map(tile, dims);
  if (!map) return false;
  shared_.put_in_panels(tile, shared_.bits_of(tile, dims));
  const int64_t panels = tile.padded[static_cast<size_t>(tile.inner)] >> tile.row_bits;
  const int outermost = dims.front();
  const int64_t parts =
      outermost == tile.inner ? 1 : tile.padded[static_cast<size_t>(outermost)] / map->box.front();
  const Symbol symbol =
      ir::make_memory("map" + std::to_string(maps_.size()), ir::Space::tensor_map, Scalar::tensor_map);
  const auto& firsts = bounds_.firsts(tile.value);
  const Ints starts = starts_in_memory(tile, dims);
  for (int64_t copy = 0; copy < panels * parts; ++copy) {
    const int64_t panel = copy / parts, part = copy % parts;
    std::vector<Expr> operands = {ir::address(tile.memory, (copy << tile.panel_bits) / parts), Expr(symbol),
                                  Expr(arrived_)};
    for (size_t i = dims.size(); i-- > 0;) {
      const Expr first = starts[i] + firsts[static_cast<size_t>(dims[i])];
      operands.push_back(dims[i] == tile.inner  ? first + (panel << tile.row_bits)
                         : dims[i] == outermost ? first + part * map->box.front()
                                                : first);
    }
    Builder(copies_of(facts_.place(op), tma_))
        .emit(Instr::tma_load, std::move(operands),
              {static_cast<int>(dims.size()), !facts_.is_shared_by_blocks(op)});
  }
  tma_bytes_ += (panels << tile.panel_bits) * static_cast<int64_t>(dtype_size(map->dtype));
  maps_.push_back({std::move(*map), symbol, op.tensor()});
  return true;
}

}  // namespace quern
