// Tiles that TMA brings: which loads qualify, where their elements lie in swizzled shared memory,
// and the ring of stages with an mbarrier each.
#include <algorithm>

#include "core/codegen/block_emitter.h"

namespace quern {

namespace {

constexpr int64_t kMostBoxExtent = 256;                    // elements
constexpr int64_t kSwizzledRow = 128, kLeastSwizzle = 32;  // bytes

}  // namespace

// Whether what lies behind the tile's part of a dimension, up to `padded`, is behind the end of the tensor:
// there TMA gives zeros, elsewhere it would give what belongs to other blocks or iterations.
bool BlockEmitter::ends_with_tensor(const BlockOp& op, int dim, int64_t padded) const {
  int64_t tile = places_[static_cast<size_t>(op.tensor)].shape[static_cast<size_t>(dim)];
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

// Outermost first, `inner` last; without those of extent 1.
std::vector<int> BlockEmitter::dims_by_stride(const StagedTile& tile) const {
  const TensorPlace& place = places_[static_cast<size_t>(program_.op(tile.value).tensor)];
  std::vector<int> dims;
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

// Those of all dimensions but the inner one, the last of `dims` but one first.
std::vector<CoordBit> BlockEmitter::bits_of(const StagedTile& tile, const std::vector<int>& dims) {
  std::vector<CoordBit> bits;
  for (size_t i = dims.size() - 1; i-- > 0;)
    for (int bit = 0; (int64_t{1} << bit) < tile.padded[static_cast<size_t>(dims[i])]; ++bit)
      bits.push_back({dims[i], bit});
  return bits;
}

// The same, but first those that lanes tell apart, of fragments the pair in a word before them: what ldmatrix
// reads together lies in eight rows that follow each other. (Of tf32, where rows are not those of matrices, a
// lane's next word: then four lanes that read 32 bytes each are two rows apart, in different banks.)
std::vector<CoordBit> BlockEmitter::bits_as_read(const StagedTile& tile, const Spread& spread) const {
  std::vector<CoordBit> bits;
  const std::vector<CoordBit> all = bits_of(tile, dims_by_stride(tile));
  auto add = [&](const CoordBit& bit) {
    const bool is_there = std::find(all.begin(), all.end(), bit) != all.end();
    if (is_there && std::find(bits.begin(), bits.end(), bit) == bits.end()) bits.push_back(bit);
  };
  if (!spread.registers.empty() && spread.registers[0].dim == spread.lanes[0].dim) add(spread.registers[0]);
  for (const CoordBit& bit : spread.lanes) add(bit);
  for (const CoordBit& bit : all) add(bit);
  return bits;
}

// Rows of the innermost dimension are cut into panels as wide as a swizzle (core/schedule's swizzled_panels);
// a panel holds all other dimensions row after row, their bits in this order.
void BlockEmitter::put_in_panels(StagedTile& tile, const std::vector<CoordBit>& others) const {
  const int64_t size =
      static_cast<int64_t>(dtype_size(places_[static_cast<size_t>(program_.op(tile.value).tensor)].dtype));
  const int64_t inner = tile.padded[static_cast<size_t>(tile.inner)],
                row = std::min(inner * size, kSwizzledRow);
  tile.row_bits = bits_for(row / size);
  tile.swizzle = row >= kLeastSwizzle ? static_cast<int>((row - 1) / size & 0x70 / size) : 0;
  for (int bit = 0; bit < tile.row_bits; ++bit) tile.bits.push_back({tile.inner, bit});
  tile.bits.insert(tile.bits.end(), others.begin(), others.end());
  tile.panel_bits = static_cast<int>(tile.bits.size());
  for (int bit = tile.row_bits; bit < bits_for(inner); ++bit) tile.bits.push_back({tile.inner, bit});
  tile.bit_places.resize(tile.padded.size());
  for (size_t d = 0; d < tile.padded.size(); ++d)
    tile.bit_places[d].resize(static_cast<size_t>(bits_for(tile.padded[d])));
  for (size_t at = 0; at < tile.bits.size(); ++at)
    tile.bit_places[static_cast<size_t>(tile.bits[at].dim)][static_cast<size_t>(tile.bits[at].bit)] =
        static_cast<int>(at);
  const int64_t unit = stage_alignment();  // where the tile behind it can begin
  tile.bytes = ((size << tile.bits.size()) + unit - 1) / unit * unit;
}

// Coordinates along `dims` of where the tensor begins in what its argument points to: maps begin there.
Ints BlockEmitter::starts_in_memory(const StagedTile& tile, const std::vector<int>& dims) const {
  const TensorPlace& place = places_[static_cast<size_t>(program_.op(tile.value).tensor)];
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
std::optional<TensorMap> BlockEmitter::tensor_map(const StagedTile& tile,
                                                  const std::vector<int>& dims) const {
  const BlockOp& op = program_.op(tile.value);
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
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
bool BlockEmitter::bring_by_tma(StagedTile& tile) {
  const BlockOp& op = program_.op(tile.value);
  const std::vector<int> dims = dims_by_stride(tile);
  auto map = tensor_map(tile, dims);
  if (!map) return false;
  put_in_panels(tile, bits_of(tile, dims));
  const int64_t panels = tile.padded[static_cast<size_t>(tile.inner)] >> tile.row_bits;
  const int outermost = dims.front();
  const int64_t parts =
      outermost == tile.inner ? 1 : tile.padded[static_cast<size_t>(outermost)] / map->box.front();
  map_symbols_.push_back(ir::make_memory("map" + std::to_string(tensor_maps_.size()), ir::Space::tensor_map,
                                         Scalar::tensor_map));
  const auto& firsts = firsts_[static_cast<size_t>(tile.value)];
  const Ints starts = starts_in_memory(tile, dims);
  for (int64_t copy = 0; copy < panels * parts; ++copy) {
    const int64_t panel = copy / parts, part = copy % parts;
    std::vector<Expr> operands = {ir::address(tile.memory, (copy << tile.panel_bits) / parts),
                                  Expr(map_symbols_.back()), Expr(arrived_)};
    for (size_t i = dims.size(); i-- > 0;) {
      const Expr first = starts[i] + firsts[static_cast<size_t>(dims[i])];
      operands.push_back(dims[i] == tile.inner  ? first + (panel << tile.row_bits)
                         : dims[i] == outermost ? first + part * map->box.front()
                                                : first);
    }
    Builder(copies_of(places_[static_cast<size_t>(op.tensor)], tma_fetch_))
        .emit(Instr::tma_load, std::move(operands),
              {static_cast<int>(dims.size()), !is_shared_by_blocks(op)});
  }
  tma_bytes_ += (panels << tile.panel_bits) * static_cast<int64_t>(dtype_size(map->dtype));
  tensor_maps_.push_back(std::move(*map));
  map_tensors_.push_back(op.tensor);
  return true;
}

bool BlockEmitter::is_shared_by_blocks(const BlockOp& op) const {
  for (int axis = 0; axis < kGridAxes; ++axis)
    if (kernel_.grid[static_cast<size_t>(axis)] > 1 && op.map[static_cast<size_t>(axis)] < 0) return true;
  return false;
}

// Where in a staged tile, counted in elements, what register `index` of a thread stands for lies.
// Without the swizzle: where the hardware looks when it swizzles by itself.
Expr BlockEmitter::place_in(const StagedTile& tile, const Spread& spread, const Expr& index, bool swizzled) {
  return place_from(thread_place(tile, spread, swizzled), tile, spread, index, swizzled);
}

namespace {

// Bits that are somewhere in the tile, and where they are. Who reads beyond it looks at beyond_tile first.
template <class Bits>
std::vector<BitMove> moves_into(const std::vector<std::vector<int>>& bit_places, const Bits& bits) {
  std::vector<BitMove> moves;
  int from = 0;
  for (const CoordBit& bit : bits) {
    const int number = from++;
    if (bit.dim < 0) continue;
    const std::vector<int>& places = bit_places[static_cast<size_t>(bit.dim)];
    if (bit.bit < static_cast<int>(places.size()))
      moves.push_back({number, places[static_cast<size_t>(bit.bit)]});
  }
  return moves;
}

}  // namespace

// Where a thread's register 0 lies, and from there (or from another register's place) the one that the bits of `index`
// lead to.
Expr BlockEmitter::thread_place(const StagedTile& tile, const Spread& spread, bool swizzled) {
  if (tile.bit_places.empty()) return offset(spread, tile.pitch, 0);
  const Expr thread = move_bits(lane(), moves_into(tile.bit_places, spread.lanes)) +
                      move_bits(warp(), moves_into(tile.bit_places, spread.warps));
  if (tile.swizzle == 0 || !swizzled) return define("i", thread);
  return define("i", ir::call(ir::Function::swizzled, Scalar::i32, {thread}, {tile.swizzle}));
}

Expr BlockEmitter::place_from(const Expr& base, const StagedTile& tile, const Spread& spread,
                              const Expr& index, bool swizzled) const {
  if (tile.bit_places.empty()) return base + register_offset(spread, tile.pitch, index);
  const Expr mine = move_bits(index, moves_into(tile.bit_places, spread.registers));
  if (tile.swizzle == 0 || !swizzled) return base + mine;
  return ir::call(ir::Function::swizzled_sum, Scalar::i32, {base, mine}, {tile.swizzle});
}

}  // namespace quern
