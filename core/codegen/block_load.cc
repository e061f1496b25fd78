// Loads and stores: straight between global memory and registers, or through tiles in shared memory that
// cp.async fills ahead of time.
#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/codegen/block_emitter.h"

namespace quern {

Symbol BlockEmitter::pointer(int32_t tensor, const TensorPlace& place) {
  for (const TensorParameter& known : parameters_)
    if (known.place == &place) return known.symbol;
  const bool written = std::any_of(program_.ops.begin(), program_.ops.end(), [&](const BlockOp& op) {
    return op.kind == BlockOp::Kind::store && op.tensor == tensor;
  });
  parameters_.push_back(
      {&place, ir::make_memory(place.name, ir::Space::global, ir::scalar_of(place.dtype), written)});
  return parameters_.back().symbol;
}

Symbol BlockEmitter::tile_pointer(Builder& to, const std::string& prefix, BlockValue value,
                                  const TensorPlace& place, int64_t begin) {
  const Symbol tensor = pointer(program_.op(value).tensor, place);
  Expr at = place.offset;
  for (size_t d = 0; d < place.strides.size(); ++d)
    at = at + ir::cast(firsts_[static_cast<size_t>(value)][d], Scalar::i64) * place.strides[d];
  if (begin > 0) at = at - Expr(begin * place.strides[static_cast<size_t>(axis_of(value))]);
  const Symbol tile = ir::make_pointer(fresh(prefix), tensor, tensor->type);
  to.let(tile, ir::address(tensor, at));
  return tile;
}

std::vector<BlockEmitter::TilePiece> BlockEmitter::tile_pieces(Builder& to, BlockValue value) {
  const TensorPlace& place = places_[static_cast<size_t>(program_.op(value).tensor)];
  if (place.pieces.empty()) return {{&place, tile_pointer(to, "at", value, place), 0, 0}};
  std::vector<TilePiece> out;
  int64_t begin = 0;
  for (const TensorPlace& piece : place.pieces) {
    const int64_t end = begin + piece.shape[static_cast<size_t>(place.axis)];
    if (begin < end) out.push_back({&piece, tile_pointer(to, "at", value, piece, begin), begin, end});
    begin = end;
  }
  return out;
}

bool BlockEmitter::is_settled(const TensorPlace& place) const {
  return place.arg.kind == LaunchArg::Kind::input && !first_;
}

Body& BlockEmitter::copies_of(const TensorPlace& place, ir::Copies& copies) const {
  const bool all = place.pieces.empty()
                       ? is_settled(place)
                       : std::all_of(place.pieces.begin(), place.pieces.end(),
                                     [&](const TensorPlace& part) { return is_settled(part); });
  return all ? copies.of_inputs : copies.others;
}

int BlockEmitter::axis_of(BlockValue value) const {
  return places_[static_cast<size_t>(program_.op(value).tensor)].axis;
}

// Whether every tile lies in one piece: where pieces begin, tiles do.
bool BlockEmitter::pieces_hold_tiles(BlockValue value, const std::vector<TilePiece>& pieces) const {
  const BlockOp& op = program_.op(value);
  const int dim = axis_of(value);
  int64_t part = places_[static_cast<size_t>(op.tensor)].shape[static_cast<size_t>(dim)];
  Ints parts;
  for (int axis = 0; axis <= kGridAxes; ++axis)
    if (cuts(op, axis, dim)) parts.push_back(part = kernel_.part(axis, part));
  auto begins_there = [&](int64_t at) { return at % part == 0; };
  return !parts.empty() && std::all_of(parts.begin(), parts.end(), begins_there) &&
         std::all_of(pieces.begin(), pieces.end(),
                     [&](const TilePiece& piece) { return begins_there(piece.begin); });
}

void BlockEmitter::read_pieces(Builder& to, BlockValue value, const Spread& chunks, const Expr& chunk,
                               const std::vector<TilePiece>& pieces,
                               const std::function<void(Builder&, const TilePiece&)>& read) {
  if (pieces.size() == 1) return read(to, pieces[0]);
  Expr at = firsts_[static_cast<size_t>(value)][static_cast<size_t>(axis_of(value))];
  if (!pieces_hold_tiles(value, pieces)) at = at + coordinate(chunks, axis_of(value), chunk);
  at = to.named("row", at);
  for (const TilePiece& piece : pieces) {
    Expr there = ir::truth(true);  // what lies outside the tensor is the last one's
    if (piece.begin > pieces.front().begin) there = both(there, less_equal(Expr(piece.begin), at));
    if (piece.end < pieces.back().end) there = both(there, less(at, Expr(piece.end)));
    to.when(there, [&](Builder& here) { read(here, piece); });
  }
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
  auto divides_pieces = [&](int64_t number) {
    return std::all_of(place.pieces.begin(), place.pieces.end(), [&](const TensorPlace& piece) {
      for (size_t d = 0; d < piece.shape.size(); ++d)
        if (static_cast<int>(d) != inner && piece.shape[d] > 1 && piece.strides[d] % number != 0)
          return false;
      const size_t at = static_cast<size_t>(inner);
      return piece.offset % number == 0 && piece.shape[at] % number == 0 && piece.strides[at] == 1;
    });
  };
  auto divides = [&](int64_t number) {
    const TileDim& dim = dims_[static_cast<size_t>(value)][static_cast<size_t>(inner)];
    if (place.shape[static_cast<size_t>(inner)] % number != 0 || dim.tile % number != 0 ||
        place.offset % number != 0 || !divides_pieces(number))
      return false;
    // Wherever blocks and iterations cut it, they cut between vectors.
    int64_t part = place.shape[static_cast<size_t>(inner)];
    for (int axis = 0; axis <= kGridAxes; ++axis) {
      if (!cuts(op, axis, inner)) continue;
      part = kernel_.part(axis, part);
      if (part % number != 0) return false;
    }
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
    load_direct(value, spread);
}

void BlockEmitter::load_direct(BlockValue value, const Spread& spread) {
  const BlockOp& op = program_.op(value);
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
  const int inner = inner_dim(op.tensor, op.type.shape), vector = vector_bits(value, spread, inner);
  Array array;
  array.dtype = place.dtype;
  array.spread = spread;
  array.words = vector > 0 && is_packed_in_pairs(place.dtype);
  auto& registers = array.spread.registers;
  for (int bit = vector - 1; bit >= 0; --bit) {  // the vector's bits go first
    const auto at = std::find(registers.begin(), registers.end(), CoordBit{inner, bit});
    std::rotate(registers.begin(), at, at + 1);
  }
  const bool loop = program_.stage(value) == Stage::loop, ahead = loop && prefetches();
  array.scope = loop ? Stage::loop : Stage::before;
  const int count = spread.count() >> (array.words ? 1 : 0), per = 1 << vector;
  const Scalar element = ir::scalar_of(place.dtype), type = array.words ? Scalar::u32 : element;
  array.registers = fresh_registers(base_name(value), type, count);
  const Symbol to =
      ahead ? ir::make_registers("next_" + array.registers->name, type, count) : array.registers;

  Body fetch;
  Builder out(fetch);
  const std::vector<TilePiece> pieces = tile_pieces(out, value);
  const Spread chunks = chunks_of(array.spread, vector);
  out.unrolled("r", chunks.count(), [&](Builder& each, const Expr& r) {
    const Expr within = inside(value, chunks, r);
    read_pieces(each, value, chunks, r, pieces, [&](Builder& here, const TilePiece& piece) {
      const Expr at = offset(chunks, piece.place->strides, r);
      if (vector == 0)
        return here.assign(ir::element(to, r),
                           ir::select(within, ir::element(piece.from, at), ir::zero(element)));
      const std::vector<Expr> operands = {ir::address(to, r * (array.words ? per / 2 : per)),
                                          ir::address(piece.from, at), within};
      here.emit(is_settled(*piece.place) ? Instr::load_global : Instr::load_written, operands,
                {element, per, !is_shared_by_blocks(op)});
    });
  });
  if (loop) {
    Builder declared(declared_);
    declared.declare(to, ahead);
    Builder(direct_fetch_).add(std::move(fetch));
    if (ahead) {
      declared.declare(array.registers, true);
      Builder(take_).unrolled("r", count, [&](Builder& each, const Expr& r) {
        each.assign(ir::element(array.registers, r), ir::element(to, r));
      });
    }
  } else {
    fetch.insert(fetch.begin(), ir::Declare{to});
    text(Stage::before) += std::move(fetch);
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
  tile.memory = ir::make_pointer(fresh("tile_" + base_name(value)), ring_, ir::scalar_of(place.dtype));
  tile.inner = inner_dim(op.tensor, op.type.shape);
  const auto demand = demands_.find(value);
  const Spread& wanted = demand == demands_.end() ? natural(value) : demand->second;
  for (int d = 0; d < op.type.rank(); ++d)
    tile.padded.push_back(
        int64_t{1} << std::max(bits_for(op.type.shape[static_cast<size_t>(d)]), wanted.bits(d)));
  if (tile.inner < 0) tile.inner = op.type.rank() - 1;
  if (const auto turned = turned_.find(value); turned != turned_.end()) tile.inner = turned->second;
  const auto panels = panels_.find(value);
  if (panels != panels_.end())
    for (size_t d = 0; d < tile.padded.size(); ++d)
      tile.padded[d] = std::max(tile.padded[d], panels->second[d]);
  auto& inner = tile.padded[static_cast<size_t>(tile.inner)];
  inner = std::max<int64_t>(inner, 16 / static_cast<int64_t>(dtype_size(place.dtype)));
  if (schedule_.tma && target_.tma && place.pieces.empty() && bring_by_tma(tile)) return tile;
  copies_panels_ |= panels != panels_.end();
  put_in_panels(tile,
                panels != panels_.end() ? bits_of(tile, dims_by_stride(tile)) : bits_as_read(tile, wanted));
  Builder(copies_of(place, staged_fetch_)).add(stage_copy(tile));
  return tile;
}

// The order in which neighbouring threads copy a tile: as it lies there. Where memory has neighbours along another
// dimension, a sector of these, then vectors of the tile: what the swizzle leaves in different banks.
std::vector<CoordBit> BlockEmitter::copy_order(const StagedTile& tile, int inner) const {
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
Body BlockEmitter::stage_copy(const StagedTile& tile) {
  const BlockOp& op = program_.op(tile.value);
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
  const Ints& padded = tile.padded;
  // Vectors along the inner dimension, lanes and warps over the rest as it lies: what neighbouring lanes
  // write is in different banks.
  Spread vector;
  for (int bit = 0; (int64_t{1} << bit) < padded[static_cast<size_t>(tile.inner)]; ++bit)
    vector.registers.push_back({tile.inner, bit});
  const int inner = inner_dim(op.tensor, op.type.shape), bits = vector_bits(tile.value, vector, inner);
  const bool by_words = (dtype_size(place.dtype) << bits) >= 4;
  const Spread chunks = chunks_of(spread_in_order(copy_order(tile, inner), bits, warp_bits_), bits);
  const int64_t bytes = static_cast<int64_t>(dtype_size(place.dtype) << bits);
  Body body;
  Builder to(body);
  const std::vector<TilePiece> pieces = tile_pieces(to, tile.value);
  auto copy = [&](Builder& here, const TilePiece& piece, const Spread& spread, const Expr& r) {
    const Expr within = inside(tile.value, spread, r), at = offset(spread, piece.place->strides, r);
    const Expr place_there = place_in(tile, spread, r);
    if (!by_words)
      return here.assign(
          ir::element(tile.memory, place_there),
          ir::select(within, ir::element(piece.from, at), ir::zero(ir::scalar_of(place.dtype))));
    std::vector<Expr> operands = {ir::address(tile.memory, place_there)};
    if (within.is_number(1)) {
      operands.push_back(ir::address(piece.from, at));
    } else {
      const Expr is_inside = here.let(ir::make_variable("inside", Scalar::boolean), within);
      operands.push_back(ir::address(piece.from, ir::select(is_inside, at, ir::cast(0, at.type()))));
      operands.push_back(ir::select(is_inside, bytes, 0));
    }
    here.emit(Instr::cp_async, std::move(operands), {bytes});
  };
  to.when(leaders(chunks), [&](Builder& some) {
    if (by_words && place.pieces.empty()) {
      // A thread's copies are numbers apart; of those beyond an edge nothing is read.
      const Symbol from = pieces.front().from, own = ir::make_pointer(fresh("own"), from, from->type);
      some.let(own, ir::address(from, offset(chunks, place.strides, 0)));
      return some.unrolled("r", chunks.count(), [&](Builder& each, const Expr& r) {
        std::vector<Expr> operands = {ir::address(tile.memory, place_in(tile, chunks, r)),
                                      ir::address(own, register_offset(chunks, place.strides, r))};
        if (const Expr within = inside(tile.value, chunks, r); !within.is_number(1))
          operands.push_back(ir::select(within, bytes, 0));
        each.emit(Instr::cp_async, std::move(operands), {bytes});
      });
    }
    some.unrolled("r", chunks.count(), [&](Builder& each, const Expr& r) {
      read_pieces(each, tile.value, chunks, r, pieces,
                  [&](Builder& here, const TilePiece& piece) { copy(here, piece, chunks, r); });
    });
  });
  return body;
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
  auto& registers = array.spread.registers;
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
    array.registers = ir::make_registers(name, Scalar::u32, spread.count() / 2);
    array.words = read_matrices(to, tile, place.dtype, spread, array.registers, spread.count() / 2, 0);
  }
  if (array.words) {
    array.spread = spread;
  } else {
    array.words = vector > 0 && pairs;
    array.registers = ir::make_registers(name, array.words ? Scalar::u32 : element,
                                         spread.count() >> (array.words ? 1 : 0));
    const Spread chunks = chunks_of(array.spread, vector);
    to.unrolled("r", chunks.count(), [&](Builder& each, const Expr& r) {
      const Expr within = beyond.empty() ? ir::truth(true) : inside(value, chunks, r, false, beyond);
      each.emit(Instr::load_shared_or_zero,
                {ir::address(array.registers, r * (1 << vector >> (array.words ? 1 : 0))),
                 ir::address(tile.memory, place_in(tile, chunks, r)), within},
                {element, 1 << vector});
    });
  }
  body.insert(body.begin(), ir::Declare{array.registers});
  text(Stage::loop) += std::move(body);
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

// How registers of `spread` are stored. Pairs of 16 bits, as tensor cores leave them, have neighbours in other lanes:
// lanes exchange words until each has up to 16 bytes that lie together.
BlockEmitter::StoreForm BlockEmitter::store_form(BlockValue value, Spread spread) const {
  const BlockOp& op = program_.op(value);
  const DType dtype = places_[static_cast<size_t>(op.tensor)].dtype;
  const int inner = inner_dim(op.tensor, op.type.shape);
  auto lowest_first = [&](Spread& to, int first, int last) {
    for (int bit = last - 1; bit >= first; --bit) {
      const auto at = std::find(to.registers.begin(), to.registers.end(), CoordBit{inner, bit});
      std::rotate(to.registers.begin(), at, at + 1);
    }
  };
  StoreForm form{std::move(spread), {}, 0, 0};
  form.vector = vector_bits(value, form.registers, inner);
  const bool every_lane = std::all_of(form.registers.lanes.begin(), form.registers.lanes.end(),
                                      [](const CoordBit& lane) { return lane.dim >= 0; });
  if (is_packed_in_pairs(dtype) && form.vector == 1 && every_lane)
    for (int words = kMostExchangedBits; words > 0; --words) {
      Spread exchanged = form.registers;
      bool there = true;
      for (int bit = 0; bit < words && there; ++bit) {
        CoordBit& lane = exchanged.lanes[static_cast<size_t>(bit)];
        const auto at = std::find(exchanged.registers.begin(), exchanged.registers.end(),
                                  CoordBit{inner, 1 + kMostExchangedBits + bit});
        there = lane == CoordBit{inner, 1 + bit} && at != exchanged.registers.end();
        if (there) std::swap(lane, *at);
      }
      if (!there || vector_bits(value, exchanged, inner) != 1 + words) continue;
      lowest_first(form.registers, 1 + kMostExchangedBits, 1 + kMostExchangedBits + words);
      lowest_first(form.registers, 0, 1);
      lowest_first(exchanged, 0, 1 + words);
      form.vector = 1 + words;
      form.exchanged = words;
      form.stored = std::move(exchanged);
      return form;
    }
  lowest_first(form.registers, 0, form.vector);
  form.stored = form.registers;
  return form;
}

void BlockEmitter::store(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
  const BlockValue source = op.operands[0];
  const StoreForm form = store_form(value, natural(value));
  const Spread &spread = form.registers, chunks = chunks_of(form.stored, form.vector);
  const int per = 1 << form.vector;
  const DType type = register_type(place.dtype);
  const Scalar element_type = ir::scalar_of(place.dtype);
  auto number = [&](const Expr& r) {
    return ir::rounded(ir::converted(element(source, spread, r), type), place.dtype);
  };
  Body body;
  Builder out(body);
  const Symbol to = tile_pointer(out, "to", value, place);
  out.when(both(leaders(spread), storing_block(op, spread)), [&](Builder& some) {
    some.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
      const Symbol v = ir::make_vector("v", element_type, per);
      auto gather = [&](Builder& all) {
        all.declare(v);
        all.unrolled("j", per, [&](Builder& one, const Expr& j) {
          one.assign(ir::element(v, j), number(one.named("r", c * per + j)));
        });
        if (form.exchanged > 0) all.emit(Instr::exchange_words, {v}, {element_type, per});
      };
      if (form.exchanged > 0) gather(each);  // by all lanes, whichever of them store
      each.when(inside(value, chunks, c), [&](Builder& there) {
        const Expr at = offset(chunks, place.strides, c);
        if (form.vector == 0) return there.assign(ir::element(to, at), number(c));
        if (form.exchanged == 0) gather(there);
        there.emit(Instr::store_global, {ir::address(to, at), v}, {element_type, per});
      });
    });
  });
  text(now_) += std::move(body);
}

}  // namespace quern
