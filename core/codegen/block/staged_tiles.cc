#include "core/codegen/block/staged_tiles.h"

#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/kernel/effects.h"

namespace quern {

namespace {

constexpr int64_t kLeastCopy = 4;  // bytes of cp.async

}  // namespace

Body& StagedTiles::copies_of(const TensorPlace& place, ir::Copies& copies) const {
  const bool all = place.pieces.empty()
                       ? facts_.is_settled(place)
                       : std::all_of(place.pieces.begin(), place.pieces.end(),
                                     [&](const TensorPlace& part) { return facts_.is_settled(part); });
  return all ? copies.of_inputs : copies.others;
}

StagedTiles::StagedTiles(const BlockFacts& facts, BlockBody& body, const ProductPlans& plans,
                         TileBounds& bounds, GlobalMemory& memory, SharedTiles& shared, Values& values)
    : BlockPart(facts, body),
      plans_(plans),
      bounds_(bounds),
      memory_(memory),
      shared_(shared),
      values_(values),
      stores_(facts, body, bounds, memory, shared, values),
      ring_(ir::make_memory("stage", ir::Space::shared, Scalar::byte)),
      full_(ir::make_memory("full", ir::Space::shared, Scalar::mbarrier)),
      empty_(ir::make_memory("empty", ir::Space::shared, Scalar::mbarrier)),
      arrived_once_(ir::make_memory("arrived_once", ir::Space::shared, Scalar::mbarrier)),
      once_read_(ir::make_memory("once_read", ir::Space::shared, Scalar::mbarrier)) {}

const SharedTile* StagedTiles::find(BlockValue load) const {
  const auto at = tiles_.find(load);
  return at == tiles_.end() ? nullptr : &at->second;
}

const SharedTile& StagedTiles::tile(BlockValue load) {
  if (read_by_threads_ < 0) read_by_threads_ = load;
  for (int d = 0; d < program_.op(load).type.rank(); ++d)
    if (is_unpadded(kernel_, schedule_, program_.op(load), facts_.place(load), d))
      fail(load,
           "has " + std::to_string(program_.shape(load)[static_cast<size_t>(d)]) +
               " elements where blocks cut it: tiles of no power of two are for wgmma alone, each of whose "
               "warpgroups has 64 rows and all columns");
  return panel(load);
}

const SharedTile& StagedTiles::panel(BlockValue load) {
  const auto [at, fresh_one] = tiles_.try_emplace(load);
  SharedTile& tile = at->second;
  if (!fresh_one) return tile;
  const BlockOp& op = program_.op(load);
  const TensorPlace& place = facts_.place(op);
  const RegisterLayout* const demand = plans_.demand(load);
  const RegisterLayout& wanted = demand ? *demand : values_.natural(load);
  const Ints* const panels = plans_.panel_extents(load);
  tile.value = load;
  tile.memory = ir::make_pointer(fresh("tile_" + base_name(load)), ring_, ir::scalar_of(place.dtype));
  Ints least;
  for (int d = 0; d < op.type.rank(); ++d)
    least.push_back(std::max(int64_t{1} << wanted.bits(d), panels ? (*panels)[static_cast<size_t>(d)] : 1));
  static_cast<StagedExtents&>(tile) =
      staged_extents(kernel_, schedule_, op, place, least, plans_.turned(load));
  if (schedule_.tma && target_.tma && bring_by_tma(tile)) return tile;
  copies_panels_ |= panels != nullptr;
  shared_.put_in_panels(tile, panels ? SharedTiles::bits_of(tile, shared_.dims_by_stride(tile))
                                     : shared_.bits_as_read(tile, wanted));
  Builder(copies_of(place, cp_async_)).add(copy(tile));
  return tile;
}

// The order in which neighbouring threads copy a tile: as it lies there. Where memory has neighbours along
// another dimension, a sector of these, then vectors of the tile: what the swizzle leaves in different banks.
std::vector<CoordBit> StagedTiles::copy_order(const SharedTile& tile, int inner) const {
  constexpr int kSectorBits = 3, kVectorBits = 2;  // of four bytes
  if (inner < 0 || inner == tile.inner) return tile.bits;
  std::vector<CoordBit> order;
  auto add = [&](const CoordBit& bit) {
    if (std::find(tile.bits.begin(), tile.bits.end(), bit) != tile.bits.end() &&
        std::find(order.begin(), order.end(), bit) == order.end())
      order.push_back(bit);
  };
  for (int bit = 0; bit < kSectorBits; ++bit) add({inner, bit});
  for (int bit = 0; bit < kVectorBits; ++bit) add({tile.inner, bit});
  for (const CoordBit& bit : tile.bits) add(bit);
  return order;
}

// All threads copy the tile, zeros where there is nothing.
Body StagedTiles::copy(const SharedTile& tile) {
  const BlockOp& op = program_.op(tile.value);
  const TensorPlace& place = facts_.place(op);
  // Vectors along the inner dimension, lanes and warps over the rest as it lies: what neighbouring lanes
  // write is in different banks.
  RegisterLayout vector;
  vector.registers = coord_bits(tile.inner, bits_for(tile.padded[static_cast<size_t>(tile.inner)]));
  const int inner = facts_.inner_dim(op), bits = facts_.vector_bits(tile.value, vector, inner);
  const RegisterLayout chunks = chunks_of(layout_in_order(copy_order(tile, inner), bits, warp_bits_), bits);
  const int64_t bytes = static_cast<int64_t>(dtype_size(place.dtype) << bits);
  Body body;
  Builder to(body);
  const std::vector<TilePiece> pieces = memory_.pieces(to, tile.value);
  to.when(leaders(chunks), [&](Builder& some) {
    if (bytes >= kLeastCopy && place.pieces.empty())
      return copy_from_own(some, tile, pieces.front(), chunks, bytes);
    some.unrolled("r", chunks.count(), [&](Builder& each, const Expr& r) {
      memory_.read_pieces(each, tile.value, chunks, r, pieces, [&](Builder& here, const TilePiece& piece) {
        copy_chunk(here, tile, piece, chunks, r, bytes);
      });
    });
  });
  return body;
}

// A thread's copies are numbers apart; of those beyond an edge nothing is read.
void StagedTiles::copy_from_own(Builder& to, const SharedTile& tile, const TilePiece& piece,
                                const RegisterLayout& chunks, int64_t bytes) {
  const Ints& strides = piece.place->strides;
  const Symbol own = ir::make_pointer(fresh("own"), piece.from, piece.from->type);
  to.let(own, ir::address(piece.from, bounds_.offset(chunks, strides, 0)));
  to.unrolled("r", chunks.count(), [&](Builder& each, const Expr& r) {
    std::vector<Expr> operands = {ir::address(tile.memory, shared_.place_in(tile, chunks, r)),
                                  ir::address(own, TileBounds::register_offset(chunks, strides, r))};
    if (const Expr within = bounds_.inside(tile.value, chunks, r); !within.is_number(1))
      operands.push_back(ir::select(within, bytes, 0));
    each.emit(Instr::cp_async, std::move(operands), {bytes});
  });
}

void StagedTiles::copy_chunk(Builder& to, const SharedTile& tile, const TilePiece& piece,
                             const RegisterLayout& chunks, const Expr& r, int64_t bytes) {
  const Expr within = bounds_.inside(tile.value, chunks, r),
             at = bounds_.offset(chunks, piece.place->strides, r);
  const Expr place_there = shared_.place_in(tile, chunks, r);
  if (bytes < kLeastCopy)
    return to.assign(ir::element(tile.memory, place_there),
                     ir::select(within, ir::element(piece.from, at), ir::zero(tile.memory->type)));
  std::vector<Expr> operands = {ir::address(tile.memory, place_there)};
  if (within.is_number(1)) {
    operands.push_back(ir::address(piece.from, at));
  } else {
    const Expr is_inside = to.let(ir::make_variable("inside", Scalar::boolean), within);
    operands.push_back(ir::address(piece.from, ir::select(is_inside, at, ir::cast(0, at.type()))));
    operands.push_back(ir::select(is_inside, bytes, 0));
  }
  to.emit(Instr::cp_async, std::move(operands), {bytes});
}

void StagedTiles::load(BlockValue value, const RegisterLayout& layout) {
  const SharedTile& tile = this->tile(value);
  const TensorPlace& place = facts_.place(value);
  const std::vector<int> beyond = shared_.beyond(tile, layout);
  RegisterTile out;
  out.dtype = place.dtype;
  out.layout = layout;
  out.scope = Stage::loop;
  auto& registers = out.layout.registers;
  int vector = 0;
  while (std::find(beyond.begin(), beyond.end(), tile.inner) == beyond.end() &&
         (dtype_size(place.dtype) << (vector + 1)) <= 16) {
    const auto at = std::find(registers.begin(), registers.end(), CoordBit{tile.inner, vector});
    if (at == registers.end()) break;
    std::rotate(registers.begin() + vector, at, at + 1);  // the vector's bits go first
    ++vector;
  }
  const bool pairs = is_packed_in_pairs(place.dtype);
  const Scalar element = ir::scalar_of(place.dtype);
  const std::string name = fresh(base_name(value));
  Body body;
  Builder to(body);
  if (pairs) {
    out.registers = ir::make_registers(name, Scalar::u32, layout.count() / 2);
    out.words = shared_.read_matrices(to, tile, place.dtype, layout, out.registers, layout.count() / 2, 0);
  }
  if (out.words) {
    out.layout = layout;
  } else {
    out.words = vector > 0 && pairs;
    out.registers =
        ir::make_registers(name, out.words ? Scalar::u32 : element, layout.count() >> (out.words ? 1 : 0));
    const RegisterLayout chunks = chunks_of(out.layout, vector);
    to.unrolled("r", chunks.count(), [&](Builder& each, const Expr& r) {
      const Expr within = beyond.empty() ? ir::truth(true) : bounds_.inside(value, chunks, r, false, beyond);
      each.emit(Instr::load_shared_or_zero,
                {ir::address(out.registers, r * (1 << vector >> (out.words ? 1 : 0))),
                 ir::address(tile.memory, shared_.place_in(tile, chunks, r)), within},
                {element, 1 << vector});
    });
  }
  body.insert(body.begin(), ir::Declare{out.registers});
  text(Stage::loop) += std::move(body);
  values_.hold(value, std::move(out));
}

ir::Arrival& StagedTiles::arrival_of(const SharedTile& tile) {
  if (arrivals_.empty() || schedule_.overlap) {
    const std::string number = arrivals_.empty() ? "" : std::to_string(arrivals_.size());
    arrivals_.push_back({ir::make_pointer("arrived" + number, full_, Scalar::mbarrier), {}});
  }
  arrivals_.back().tiles.push_back(tile.memory);
  return arrivals_.back();
}

void StagedTiles::place_transformed(SharedTile& tile, BlockValue operand, Scalar type) {
  tile.memory = ir::make_pointer(fresh("transformed_" + base_name(operand)), ring_, type);
  transformed_.emplace(operand, tile);
}

Status StagedTiles::check_transform() const {
  if (!schedule_.transform) return {};
  auto hands_over = [&](const StepList& steps) {
    return steps.writes_shared(body_.shared) ||
           std::any_of(steps.all().begin(), steps.all().end(),
                       [](const ir::Step& step) { return ir::has_barriers(step.body); });
  };
  const auto& all = body_.transforms;
  const bool alone = std::none_of(all.begin(), all.end(), [&](const auto& each) {
    return hands_over(each.second.once) || hands_over(each.second.iteration);
  });
  const bool in_place = std::all_of(transformed_.begin(), transformed_.end(), [&](const auto& each) {
    return is_made_in_place(each.first, each.second);
  });
  if (!all.empty() && alone && in_place) return {};
  const char why[] =
      "warps of their own (transform) make operands for products by wgmma in the loop, of tiles that TMA "
      "brings and nothing else reads, in their place: element by element and by sums within a warp";
  return Status(ErrorCode::UNSUPPORTED, why);
}

bool StagedTiles::is_made_in_place(BlockValue operand, const SharedTile& made) const {
  const SharedTile& from = tiles_.at(made.value);
  const DType dtype = facts_.place(made.value).dtype;
  auto shape = [](const SharedTile& tile) {
    return std::tie(tile.padded, tile.inner, tile.bits, tile.swizzle, tile.row_bits, tile.panel_bits,
                    tile.bytes);
  };
  const std::vector<RegisterTile>& read = values_.tiles(made.value);
  if (made.memory->type != ir::scalar_of(dtype) || shape(made) != shape(from) || read.size() != 1)
    return false;
  const RegisterLayout own = plans_.cooperative_layout(operand, dtype), &as_read = read[0].layout;
  auto has_all = [](const auto& bits) {
    return std::all_of(bits.begin(), bits.end(), [](const CoordBit& bit) { return bit.dim >= 0; });
  };
  return own.lanes == as_read.lanes && own.warps == as_read.warps && has_all(own.lanes) && has_all(own.warps);
}

ir::TileRing StagedTiles::draft() {
  ir::TileRing ring;
  ring.stage = ring_;
  ring.stages = schedule_.stages;
  for (const auto& [value, tile] : tiles_) ring.tiles.push_back({tile.memory, tile.bytes});
  ring.cp_async = std::move(cp_async_);
  ring.cp_async_for_wgmma = copies_panels_;
  ring.arrivals = std::move(arrivals_);
  for (const auto& [operand, tile] : transformed_) {
    ring.tiles.push_back({tile.memory, 0, tiles_.at(tile.value).memory});
    ir::Arrival made{ir::make_pointer("made_" + base_name(operand), full_, Scalar::mbarrier), {}};
    made.tiles.push_back(tile.memory);
    const BlockBody::Transform& own = body_.transforms[operand];
    for (const ir::Step& step : own.once.all()) Builder(made.transform_once).add(step.body);
    for (const ir::Step& step : own.iteration.all()) Builder(made.transform).add(step.body);
    ring.arrivals.push_back(std::move(made));
  }
  for (const Map& map : maps_)
    if (!map.symbol->written) ring.maps.push_back(map.symbol);
  ring.full = full_;
  ring.empty = empty_;
  ring.once = std::move(once_);
  ring.once_bytes = once_bytes_;
  ring.arrived_once = arrived_once_;
  ring.once_read = once_read_;
  ring.alignment = shared_.alignment();
  return ring;
}

}  // namespace quern
