#include "core/schedule/tile_access.h"

#include <algorithm>
#include <bit>
#include <set>

#include "core/base/integers.h"
#include "core/schedule/tile_work.h"

namespace quern {

namespace {

constexpr int64_t kMostBytes = 16;       // of an access
constexpr int64_t kMostBoxExtent = 256;  // elements

// Whether vectors of so many elements begin where rows, pieces, blocks and iterations do.
bool vectors_fit(const MuKernel& kernel, const BlockOp& access, const TensorPlace& place, int inner,
                 int64_t number) {
  const size_t at = static_cast<size_t>(inner);
  auto rows_fit = [&](const TensorPlace& each) {
    for (size_t d = 0; d < each.shape.size(); ++d)
      if (d != at && each.shape[d] > 1 && each.strides[d] % number != 0) return false;
    return each.offset % number == 0 && each.shape[at] % number == 0;
  };
  const bool pieces_fit =
      std::all_of(place.pieces.begin(), place.pieces.end(),
                  [&](const TensorPlace& piece) { return rows_fit(piece) && piece.strides[at] == 1; });
  if (!pieces_fit || !rows_fit(place) || access.type.shape[at] % number != 0) return false;
  int64_t part = place.shape[at];
  for (int axis = 0; axis <= kGridAxes; ++axis) {
    if (!cuts(access, axis, inner)) continue;
    part = kernel.part(axis, part);
    if (part % number != 0) return false;
  }
  return true;
}

// Whether what lies behind the tile's part of a dimension, up to `padded`, is behind the end of the tensor:
// there TMA gives zeros, elsewhere it would give what belongs to other blocks or iterations.
bool ends_with_tensor(const MuKernel& kernel, const BlockOp& access, const TensorPlace& place, int dim,
                      int64_t padded) {
  int64_t tile = place.shape[static_cast<size_t>(dim)];
  bool cut = false, exact = true;
  for (int axis = 0; axis <= kGridAxes; ++axis) {
    if (!cuts(access, axis, dim) || kernel.parts(axis) == 1) continue;
    const int64_t next = kernel.part(axis, tile);
    exact &= !cut || tile % next == 0;
    cut = true;
    tile = next;
  }
  return !cut || (exact && tile == padded);
}

// Of one copy of a tile that has so many elements along its outermost dimension: equal parts.
int64_t box_extent(int64_t extent) {
  const int64_t parts = divide_up(extent, kMostBoxExtent);
  return extent % parts == 0 ? extent / parts : extent;
}

}  // namespace

int inner_dim(const TensorPlace& place, const Ints& tile) {
  int best = -1;
  for (int d = 0; d < static_cast<int>(tile.size()); ++d)
    if (place.strides[static_cast<size_t>(d)] == 1 && place.shape[static_cast<size_t>(d)] > 1 &&
        (best < 0 || tile[static_cast<size_t>(d)] > tile[static_cast<size_t>(best)]))
      best = d;
  return best;
}

std::optional<int64_t> run_bytes(const TensorPlace& place, const Ints& tile, size_t inner) {
  auto extent = [&](size_t d) { return std::min(tile[d], place.shape[d]); };
  int64_t all = 1, together = 1;
  for (size_t d = 0; d < tile.size(); ++d) all *= extent(d);
  for (size_t d = inner; d < tile.size();) {
    together *= extent(d);
    if (extent(d) < place.shape[d]) break;
    for (d = 0; d < tile.size() && (place.shape[d] == 1 || place.strides[d] != together);) ++d;
  }
  if (together >= all) return std::nullopt;
  return together * static_cast<int64_t>(dtype_size(place.dtype));
}

int vector_bits(const MuKernel& kernel, const BlockOp& access, const TensorPlace& place, int inner) {
  if (inner < 0) return 0;
  const auto size = static_cast<int64_t>(dtype_size(place.dtype));
  int bits = 0;
  while (size << (bits + 1) <= kMostBytes && vectors_fit(kernel, access, place, inner, int64_t{2} << bits))
    ++bits;
  return size << bits < 4 ? 0 : bits;
}

int shared_vector_bits(const Ints& tile, DType dtype, int inner, int thread_bits) {
  int all = -thread_bits, bits = 0;
  for (int64_t extent : tile) all += std::bit_width(static_cast<uint64_t>(padded(extent))) - 1;
  while (inner >= 0 && static_cast<int64_t>(dtype_size(dtype)) << (bits + 1) <= kMostBytes &&
         bits + 1 <= all && tile[static_cast<size_t>(inner)] % (int64_t{2} << bits) == 0)
    ++bits;
  return bits;
}

bool is_turned_matrix(const BlockOp& op) {
  if (!op.is_compute(OpCode::transpose) || op.type.rank() < 2) return false;
  Ints perm = *op.attrs().perm;
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return std::is_sorted(perm.begin(), perm.end());
}

bool differ_in_front(const Ints& a, const Ints& b) {
  const Ints &few = a.size() < b.size() ? a : b, &more = a.size() < b.size() ? b : a;
  const auto rest = static_cast<std::ptrdiff_t>(more.size() - few.size());
  return std::equal(few.begin(), few.end(), more.begin() + rest) &&
         std::all_of(more.begin(), more.begin() + rest, [](int64_t extent) { return extent == 1; });
}

bool is_stored_alone(const std::vector<BlockOp>& ops, BlockValue value) {
  std::set<BlockValue> made_of_it = {value};
  for (auto user = static_cast<size_t>(value) + 1; user < ops.size(); ++user) {
    const BlockOp& op = ops[user];
    const bool uses = std::any_of(op.operands.begin(), op.operands.end(),
                                  [&](BlockValue operand) { return made_of_it.contains(operand); });
    if (!uses || op.is_store()) continue;
    const bool by_elements = op.is_accumulate() || op.is_compute(OpKind::elementwise) ||
                             op.is_compute(OpCode::cast) || op.is_compute(OpCode::reshape);
    if (!by_elements || !differ_in_front(op.type.shape, ops[static_cast<size_t>(value)].type.shape))
      return false;
    made_of_it.insert(static_cast<BlockValue>(user));
  }
  return true;
}

bool feeds_product(const std::vector<BlockOp>& ops, BlockValue load) {
  auto is_product = [&](BlockValue value) {
    return ops[static_cast<size_t>(value)].is_compute(OpKind::contraction);
  };
  return std::any_of(ops.begin(), ops.end(), [&](const BlockOp& product) {
    if (!product.is_compute(OpKind::contraction)) return false;
    return std::any_of(product.operands.begin(), product.operands.end(), [&](BlockValue operand) {
      std::set<BlockValue> made_of = {operand};
      for (std::vector<BlockValue> left = {operand}; !left.empty();) {
        const BlockOp& op = ops[static_cast<size_t>(left.back())];
        left.pop_back();
        for (BlockValue each : op.operands)
          if (made_of.insert(each).second) left.push_back(each);
      }
      return made_of.contains(load) && std::none_of(made_of.begin(), made_of.end(), is_product);
    });
  });
}

bool has_tma_rows(const TensorPlace& place) {
  if (!place.pieces.empty()) return false;
  const auto size = static_cast<int64_t>(dtype_size(place.dtype));
  for (size_t d = 0; d < place.shape.size(); ++d)
    if (place.shape[d] > 1 && place.strides[d] != 1 && place.strides[d] * size % kTensorMapAlignment != 0)
      return false;
  return true;
}

bool is_staged(const std::vector<BlockOp>& ops, const KernelSchedule& schedule, BlockValue load, Stage stage,
               const TensorPlace& place) {
  return schedule.stages > 1 && stage == Stage::loop &&
         (!schedule.producer || has_tma_rows(place) || feeds_product(ops, load));
}

int multicast_axis(const KernelSchedule& schedule) {
  const auto& blocks = schedule.multicast;
  const auto pair = std::find_if(blocks.begin(), blocks.end(), [](int count) { return count > 1; });
  return pair == blocks.end() ? -1 : static_cast<int>(pair - blocks.begin());
}

bool is_multicast(const KernelSchedule& schedule, const BlockOp& load) {
  const int axis = multicast_axis(schedule);
  return axis >= 0 && load.map()[static_cast<size_t>(axis)] < 0;
}

bool is_panel(const TensorPlace& place, const Ints& tile) {
  const int rank = static_cast<int>(tile.size()), inner = inner_dim(place, tile);
  if (rank < 2 || inner < rank - 2) return false;
  const int64_t row = place.strides[static_cast<size_t>(inner == rank - 1 ? rank - 2 : rank - 1)];
  for (int d = 0; d < rank - 2; ++d)
    if (tile[static_cast<size_t>(d)] > 1 && place.strides[static_cast<size_t>(d)] <= row) return false;
  return true;
}

bool makes_panel(const TensorPlace& place, const Ints& tile) {
  constexpr int64_t kLeast = 16, kRowGroup = 8;  // k of wgmma; rows that lie together
  return std::min(tile[tile.size() - 2], tile.back()) >= kLeast &&
         tile[static_cast<size_t>(inner_dim(place, tile))] % kRowGroup == 0;
}

bool keeps_panel(const TensorPlace& place, const Ints& tile, bool as_it_is, bool three) {
  if (!is_panel(place, tile) || !makes_panel(place, tile) ||
      !std::all_of(tile.begin(), tile.end() - 2, [](int64_t extent) { return extent == 1; }))
    return false;
  const int64_t rows = tile[tile.size() - 2], share = three ? rows / 3 : rows;
  const bool lie_in_rows = inner_dim(place, tile) == static_cast<int>(tile.size()) - 1;
  return padded(share) == share && (!three || (as_it_is && lie_in_rows && share * 3 == rows)) &&
         (as_it_is || padded(tile.back()) == tile.back());
}

int64_t unpadded_unit(const BlockOp& load, const TensorPlace& place, int dim) {
  return inner_dim(place, load.type.shape) == dim ? kUnpaddedUnit : kColumnUnit;
}

bool is_unpadded(const MuKernel& kernel, const KernelSchedule& schedule, const BlockOp& load,
                 const TensorPlace& place, int dim) {
  const int64_t extent = load.type.shape[static_cast<size_t>(dim)];
  if (!schedule.producer || !schedule.wgmma || padded(extent) == extent ||
      extent % unpadded_unit(load, place, dim) != 0 || dim + 2 < load.type.rank() || load.loop_dim() == dim)
    return false;
  for (int axis = 0; axis < kGridAxes; ++axis)
    if (cuts(load, axis, dim) && kernel.parts(axis) > 1) return true;
  return false;
}

StagedExtents staged_extents(const MuKernel& kernel, const KernelSchedule& schedule, const BlockOp& load,
                             const TensorPlace& place, const Ints& least, std::optional<int> turned) {
  StagedExtents out;
  out.padded.reserve(least.size());
  for (size_t d = 0; d < load.type.shape.size(); ++d) {
    const int64_t extent = load.type.shape[d];
    out.padded.push_back(is_unpadded(kernel, schedule, load, place, static_cast<int>(d))
                             ? extent
                             : std::max(padded(extent), least[d]));
  }
  const int inner = inner_dim(place, load.type.shape);
  out.inner = turned.value_or(inner < 0 ? load.type.rank() - 1 : inner);
  int64_t& row = out.padded[static_cast<size_t>(out.inner)];
  row = std::max<int64_t>(row, kMostBytes / static_cast<int64_t>(dtype_size(place.dtype)));
  return out;
}

std::vector<int> dims_by_stride(const TensorPlace& place, const StagedExtents& tile) {
  std::vector<int> dims;
  dims.reserve(tile.padded.size());
  for (int d = 0; d < static_cast<int>(tile.padded.size()); ++d) {
    const size_t at = static_cast<size_t>(d);
    if (d != tile.inner && (place.shape[at] > 1 || tile.padded[at] > 1)) dims.push_back(d);
  }
  std::stable_sort(dims.begin(), dims.end(), [&](int a, int b) {
    return place.strides[static_cast<size_t>(a)] > place.strides[static_cast<size_t>(b)];
  });
  dims.push_back(tile.inner);
  return dims;
}

Ints starts_in_memory(const TensorPlace& place, const StagedExtents& tile, const std::vector<int>& dims) {
  Ints starts;
  starts.reserve(dims.size());
  int64_t rest = place.offset;
  for (int d : dims) {
    const size_t at = static_cast<size_t>(d);
    const int64_t stride = place.shape[at] > 1 ? place.strides[at] : 0;
    starts.push_back(d == tile.inner ? rest : stride > 0 ? rest / stride : 0);
    if (stride > 0) rest %= stride;
  }
  return starts;
}

int64_t panel_row(int64_t bytes) { return std::min(bytes & -bytes, kSwizzledRow); }

int64_t panel_elements(const StagedExtents& tile, int64_t size) {
  const int64_t inner = tile.padded[static_cast<size_t>(tile.inner)], row = panel_row(inner * size) / size;
  int64_t panel = row, last = row;
  for (size_t d = 0; d < tile.padded.size(); ++d) {
    if (static_cast<int>(d) == tile.inner) continue;
    panel *= padded(tile.padded[d]);
    last *= tile.padded[d];
  }
  return (inner / row - 1) * panel + last;
}

namespace {

// Whether what a copy brings lies where powers of two of rows would: but for the outermost dimension all are.
bool lies_by_powers_of_two(const TensorMap& map, const StagedExtents& tile, const std::vector<int>& dims) {
  const auto [panels, parts] = tile_boxes(map, tile, dims);
  const size_t outermost = outermost_dim(tile, dims);
  for (size_t i = 0; i + 1 < dims.size(); ++i) {
    const int64_t extent = tile.padded[static_cast<size_t>(dims[i])];
    if (padded(extent) != extent && (i != outermost || (panels > 1 && parts > 1))) return false;
  }
  return true;
}

}  // namespace

std::optional<TensorMap> tile_map(const MuKernel& kernel, const BlockOp& access, const TensorPlace& place,
                                  const StagedExtents& tile, const std::vector<int>& dims) {
  if (!place.pieces.empty() || place.strides[static_cast<size_t>(tile.inner)] != 1) return std::nullopt;
  TensorMap map;
  const Ints extents = place.extents_in_memory();
  map.buffer = place.arg;
  map.dtype = place.dtype;
  const int64_t size = static_cast<int64_t>(dtype_size(place.dtype));
  for (int d = 0; d < access.type.rank(); ++d)
    if (!ends_with_tensor(kernel, access, place, d, tile.padded[static_cast<size_t>(d)])) return std::nullopt;
  const int64_t row = panel_row(tile.padded[static_cast<size_t>(tile.inner)] * size);
  const Ints starts = starts_in_memory(place, tile, dims);
  for (auto* numbers : {&map.shape, &map.strides, &map.box}) numbers->reserve(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const int d = dims[i];
    const size_t at = static_cast<size_t>(d);
    map.shape.push_back(starts[i] + extents[at]);
    // The stride of a dimension of extent 1 is never used, but must be possible.
    map.strides.push_back(place.shape[at] > 1 || d == tile.inner ? place.strides[at]
                                                                 : kTensorMapAlignment / size);
    map.box.push_back(d == tile.inner     ? row / size
                      : d == dims.front() ? box_extent(tile.padded[at])
                                          : tile.padded[at]);
  }
  map.swizzle = row >= kLeastSwizzle ? static_cast<uint32_t>(row) : 0;
  if (!check_tensor_map(map).ok() || *std::max_element(map.box.begin(), map.box.end()) > kMostBoxExtent)
    return std::nullopt;
  if (!lies_by_powers_of_two(map, tile, dims)) return std::nullopt;
  return map;
}

size_t outermost_dim(const StagedExtents& tile, const std::vector<int>& dims) {
  const auto at = std::find_if(dims.begin(), dims.end() - 1,
                               [&](int d) { return tile.padded[static_cast<size_t>(d)] > 1; });
  return static_cast<size_t>(at - dims.begin());
}

bool share_out(TensorMap& map, const StagedExtents& tile, const std::vector<int>& dims) {
  constexpr int64_t kLeastRows = 8;
  const TileBoxes boxes = tile_boxes(map, tile, dims);
  if (boxes.panels * boxes.parts % 2 == 0) return true;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < map.box.size(); ++i) rows *= map.box[i];
  if (rows < 2 * kLeastRows) return false;
  map.box[outermost_dim(tile, dims)] /= 2;
  return true;
}

TileBoxes tile_boxes(const TensorMap& map, const StagedExtents& tile, const std::vector<int>& dims) {
  const size_t outermost = outermost_dim(tile, dims);
  const int dim = dims[outermost];
  return {tile.padded[static_cast<size_t>(tile.inner)] / map.box.back(),
          dim == tile.inner ? 1 : tile.padded[static_cast<size_t>(dim)] / map.box[outermost]};
}

}  // namespace quern
