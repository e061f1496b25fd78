// Tiles that TMA brings or stores: which qualify, and what is asked for.
#include <algorithm>
#include <functional>
#include <numeric>

#include "core/codegen/block/matrix_rows.h"
#include "core/codegen/block/staged_tiles.h"

namespace quern {

class StagedTiles::Tma : BlockPart {
 public:
  explicit Tma(StagedTiles& tiles) : BlockPart(tiles), tiles_(tiles), shared_(tiles.shared_) {}

  // Puts the tile in panels, a copy each (or several, of so much of its outermost dimension as a copy can
  // bring), if TMA can bring it.
  bool bring(SharedTile& tile);
  bool bring_once(const SharedTile& tile);
  // Registers go to a shared buffer, each thread fences what it wrote, and behind a barrier one thread asks
  // for the stores and waits until the buffer has been read.
  void store(BlockValue store);

 private:
  // The copies of all of a tile, of which `arrived` hears.
  void load(Builder& copies, const SharedTile& tile, const std::vector<int>& dims, const TensorMap& map,
            const Symbol& symbol, const Symbol& arrived);
  // That the copies of a tile bring.
  static int64_t bytes_of(const SharedTile& tile, const TensorMap& map);
  // Of each copy: its place in shared memory, what is behind that, and the coordinates. If blocks share the
  // tile, of the half that this one asks for: of the panels, or of the rows of one.
  std::vector<std::vector<Expr>> boxes(const SharedTile& tile, const std::vector<int>& dims,
                                       const TensorMap& map, const std::vector<Expr>& behind,
                                       bool half = false);
  // Why TMA stores no such tile, whatever its extents; null if it may.
  const char* why_never_stored(BlockValue store) const;
  Symbol map_symbol(bool written) const {
    return ir::make_memory("map" + std::to_string(tiles_.maps_.size()), ir::Space::tensor_map,
                           Scalar::tensor_map, written);
  }

  StagedTiles& tiles_;
  SharedTiles& shared_;
};

bool StagedTiles::bring_by_tma(SharedTile& tile) { return Tma(*this).bring(tile); }
bool StagedTiles::bring_once(const SharedTile& tile) { return Tma(*this).bring_once(tile); }

void StagedTiles::store(BlockValue value) {
  if (schedule_.tma_store) return Tma(*this).store(value);
  if (is_stored_by_stmatrix(facts_, value, values_.natural(value))) return stores_.store(value);
  memory_.store(value);
}

bool StagedTiles::Tma::bring(SharedTile& tile) {
  const BlockOp& op = program_.op(tile.value);
  const std::vector<int> dims = shared_.dims_by_stride(tile);
  auto map = tile_map(kernel_, op, facts_.place(op), tile, dims);
  if (!map) return false;
  const bool shares = is_multicast(schedule_, op);
  if (shares && !share_out(*map, tile, dims)) {
    fail(tile.value, "has too few rows for two blocks to load half of each (multicast)");
    return false;
  }
  shared_.put_in_panels(tile, shared_.bits_of(tile, dims));
  ir::Arrival& arrival = tiles_.arrival_of(tile);
  const Symbol symbol = map_symbol(false), &arrived = arrival.barrier;
  Builder copies(tiles_.copies_of(facts_.place(op), arrival.copies));
  if (shares) {
    const int mask = (1 << schedule_.multicast_blocks()) - 1;
    for (std::vector<Expr>& operands : boxes(tile, dims, *map, {symbol, arrived, mask}, true))
      copies.emit(Instr::tma_load_multicast, std::move(operands), {static_cast<int>(dims.size())});
    ++tiles_.multicast_;
  } else {
    load(copies, tile, dims, *map, symbol, arrived);
  }
  arrival.bytes += bytes_of(tile, *map);
  ++tiles_.tma_tiles_;
  tiles_.maps_.push_back({std::move(*map), symbol, op.tensor()});
  return true;
}

bool StagedTiles::Tma::bring_once(const SharedTile& tile) {
  const BlockOp& op = program_.op(tile.value);
  const TensorPlace& place = facts_.place(op);
  if (!schedule_.producer || !place.pieces.empty()) return false;
  // Three warpgroups have fewer rows than a power of two: those of the next block do not come, and nothing reads what is there.
  SharedTile brought = tile;
  const size_t rows = static_cast<size_t>(op.type.rank()) - 2;
  if (facts_.has_three_warpgroups()) brought.padded[rows] = program_.shape(tile.value)[rows];
  const std::vector<int> dims = shared_.dims_by_stride(tile);
  auto map = tile_map(kernel_, op, place, brought, dims);
  if (!map) return false;
  const Symbol symbol = map_symbol(false);
  Builder copies(tiles_.copies_of(place, tiles_.once_));
  load(copies, brought, dims, *map, symbol, tiles_.arrived_once_);
  tiles_.once_bytes_ += bytes_of(brought, *map);
  tiles_.once_tiles_.push_back(tile.memory);
  tiles_.maps_.push_back({std::move(*map), symbol, op.tensor()});
  return true;
}

void StagedTiles::Tma::load(Builder& copies, const SharedTile& tile, const std::vector<int>& dims,
                            const TensorMap& map, const Symbol& symbol, const Symbol& arrived) {
  const bool once = !facts_.is_shared_by_blocks(program_.op(tile.value));
  for (std::vector<Expr>& operands : boxes(tile, dims, map, {symbol, arrived}))
    copies.emit(Instr::tma_load, std::move(operands), {static_cast<int>(dims.size()), once});
}

int64_t StagedTiles::Tma::bytes_of(const SharedTile& tile, const TensorMap& map) {
  return std::accumulate(tile.padded.begin(), tile.padded.end(), static_cast<int64_t>(dtype_size(map.dtype)),
                         std::multiplies<>());
}

std::vector<std::vector<Expr>> StagedTiles::Tma::boxes(const SharedTile& tile, const std::vector<int>& dims,
                                                       const TensorMap& map, const std::vector<Expr>& behind,
                                                       bool half) {
  const auto [panels, parts] = tile_boxes(map, tile, dims);
  const int outermost = dims[outermost_dim(tile, dims)];
  const bool by_panels = panels % 2 == 0;
  const int64_t part_rows = map.box[outermost_dim(tile, dims)], copies = panels * parts / (half ? 2 : 1),
                own_parts = half && !by_panels ? parts / 2 : parts;
  int64_t size = int64_t{1} << tile.panel_bits;  // of what a copy brings, or a panel that it leaves room in
  if (parts > 1) size = std::accumulate(map.box.begin(), map.box.end(), int64_t{1}, std::multiplies<>());
  const auto& firsts = tiles_.bounds_.firsts(tile.value);
  const Ints starts = starts_in_memory(facts_.place(tile.value), tile, dims);
  auto of_block = [&](int64_t own, bool is_cut) { return half && is_cut ? Expr(rank()) * own : Expr(0); };
  std::vector<std::vector<Expr>> out;
  for (int64_t copy = 0; copy < copies; ++copy) {
    const Expr panel = of_block(panels / 2, by_panels) + copy / own_parts,
               part = of_block(parts / 2, !by_panels) + copy % own_parts,
               number = of_block(by_panels ? copies : own_parts, true) +
                        (copy / own_parts * parts + copy % own_parts);
    std::vector<Expr>& operands = out.emplace_back();
    operands.push_back(ir::address(tile.memory, number * size));
    operands.insert(operands.end(), behind.begin(), behind.end());
    for (size_t i = dims.size(); i-- > 0;) {
      const Expr first = starts[i] + firsts[static_cast<size_t>(dims[i])];
      operands.push_back(dims[i] == tile.inner  ? first + panel * (int64_t{1} << tile.row_bits)
                         : dims[i] == outermost ? first + part * part_rows
                                                : first);
    }
  }
  return out;
}

const char* StagedTiles::Tma::why_never_stored(BlockValue store) const {
  const TensorPlace& place = facts_.place(store);
  if (!target_.tma) return "the target has no TMA (sm_90)";
  if (now() == Stage::loop) return "it is stored in every iteration";
  if (facts_.cluster_blocks() > 1) return "blocks of a cluster may have parts of it";
  if (!place.pieces.empty()) return "its tensor lies in pieces";
  if (facts_.inner_dim(program_.op(store)) < 0) return "its elements do not lie next to each other";
  return nullptr;
}

void StagedTiles::Tma::store(BlockValue store) {
  if (const char* why = why_never_stored(store))
    return fail(store, std::string("cannot be stored by TMA (tma_store): ") + why);
  const BlockOp& op = program_.op(store);
  const RegisterLayout layout = tiles_.values_.natural(store);
  SharedStores& stores = tiles_.stores_;
  SharedTile tile = stores.room_for(store, layout);
  const std::vector<int> dims = shared_.dims_by_stride(tile);
  auto map = tile_map(kernel_, op, facts_.place(op), tile, dims);
  if (!map)
    return fail(
        store,
        "cannot be stored by TMA (tma_store): its rows must be dense and of whole 16 bytes, its tile of at "
        "most 256 elements along all dimensions but two, and of a power of two where blocks cut it, or as "
        "wgmma leaves it");
  stores.place(tile);
  const auto& extents = tiles_.bounds_.dims(store);
  const bool has_others =
      std::any_of(extents.begin(), extents.end(), [](const TileDim& dim) { return dim.own != nullptr; });
  stores.fill(tile, store, layout, !has_others);
  if (has_others) return stores.store_rows(tile, store);  // a box cannot leave out what other blocks store
  const Symbol symbol = map_symbol(true);
  Body body;
  Builder(body).when(equal(ir::thread_index(), 0), [&](Builder& one) {
    for (std::vector<Expr>& operands : boxes(tile, dims, *map, {symbol}))
      one.emit(Instr::tma_store, std::move(operands), {static_cast<int>(dims.size())});
    one.emit(Instr::tma_store_commit);
    one.emit(Instr::tma_store_wait, {}, {0});
  });
  text(now()) += std::move(body);
  tiles_.maps_.push_back({std::move(*map), symbol, op.tensor()});
}

}  // namespace quern
