#include "core/codegen/block/global_memory.h"

#include <algorithm>

#include "core/base/dtype_info.h"

namespace quern {

namespace {

// Those that a thread has asked for and not used yet.
constexpr int kAheadRegisters = 32;

}  // namespace

Symbol GlobalMemory::pointer(int32_t tensor, const TensorPlace& place, bool written) {
  for (const Parameter& known : parameters_)
    if (known.place == &place) return known.symbol;
  written = written || std::any_of(program_.ops.begin(), program_.ops.end(),
                                   [&](const BlockOp& op) { return op.is_store() && op.tensor() == tensor; });
  parameters_.push_back(
      {&place, ir::make_memory(place.name, ir::Space::global, ir::scalar_of(place.dtype), written)});
  return parameters_.back().symbol;
}

Expr GlobalMemory::tile_begin(BlockValue access, const TensorPlace& place) const {
  Expr at = place.offset;
  for (size_t d = 0; d < place.strides.size(); ++d)
    at = at + ir::cast(bounds_.firsts(access)[d], Scalar::i64) * place.strides[d];
  return at;
}

Symbol GlobalMemory::tile_pointer(Builder& to, const std::string& prefix, BlockValue value,
                                  const TensorPlace& place, int64_t begin) {
  const Symbol tensor = pointer(program_.op(value).tensor(), place);
  Expr at = tile_begin(value, place);
  if (begin > 0) at = at - Expr(begin * place.strides[static_cast<size_t>(facts_.place(value).axis)]);
  const Symbol tile = ir::make_pointer(fresh(prefix), tensor, tensor->type);
  to.let(tile, ir::address(tensor, at));
  return tile;
}

std::vector<TilePiece> GlobalMemory::pieces(Builder& to, BlockValue value) {
  const TensorPlace& place = facts_.place(value);
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

// Whether every tile lies in one piece: where pieces begin, tiles do.
bool GlobalMemory::pieces_hold_tiles(BlockValue value, const std::vector<TilePiece>& pieces) const {
  const BlockOp& op = program_.op(value);
  const int dim = facts_.place(value).axis;
  int64_t part = facts_.place(op).shape[static_cast<size_t>(dim)];
  Ints parts;
  for (int axis = 0; axis <= kGridAxes; ++axis)
    if (cuts(op, axis, dim)) parts.push_back(part = kernel_.part(axis, part));
  auto begins_there = [&](int64_t at) { return at % part == 0; };
  return !parts.empty() && std::all_of(parts.begin(), parts.end(), begins_there) &&
         std::all_of(pieces.begin(), pieces.end(),
                     [&](const TilePiece& piece) { return begins_there(piece.begin); });
}

void GlobalMemory::read_pieces(Builder& to, BlockValue value, const RegisterLayout& chunks, const Expr& chunk,
                               const std::vector<TilePiece>& pieces, const ReadPiece& read) {
  if (pieces.size() == 1) return read(to, pieces[0]);
  Expr at = bounds_.firsts(value)[static_cast<size_t>(facts_.place(value).axis)];
  if (!pieces_hold_tiles(value, pieces))
    at = at + bounds_.coordinate(chunks, facts_.place(value).axis, chunk);
  at = to.named("row", at);
  for (const TilePiece& piece : pieces) {
    Expr there = ir::truth(true);  // what lies outside the tensor is the last one's
    if (piece.begin > pieces.front().begin) there = both(there, less_equal(Expr(piece.begin), at));
    if (piece.end < pieces.back().end) there = both(there, less(at, Expr(piece.end)));
    to.when(there, [&](Builder& here) { read(here, piece); });
  }
}

int64_t GlobalMemory::ChunkLoad::ahead() const { return std::max(1, kAheadRegisters / registers); }

// Where what comes after the loop asks for it, and nothing that is computed in front of the loop, whoever asks for that.
bool GlobalMemory::comes_late(BlockValue load, const RegisterTile& tile) const {
  const auto& users = program_.users[static_cast<size_t>(load)];
  return now() == Stage::after && tile.scope == Stage::before &&
         tile.registers->count > BlockFacts::kMostHeld &&
         std::all_of(users.begin(), users.end(), [&](BlockValue user) {
           const BlockOp& op = program_.op(user);
           return program_.stage(user) == Stage::after && (op.is_store() || facts_.is_elementwise(user));
         });
}

bool GlobalMemory::is_for_stores_alone(BlockValue value) const {
  std::set<BlockValue> seen;
  for (std::vector<BlockValue> left = {value}; !left.empty();) {
    const BlockValue each = left.back();
    left.pop_back();
    if (!seen.insert(each).second) continue;
    for (BlockValue user : program_.users[static_cast<size_t>(each)]) {
      const auto& stores = in_store_->stores;
      if (std::find(stores.begin(), stores.end(), user) != stores.end()) continue;
      if (!facts_.is_elementwise(user)) return false;
      left.push_back(user);
    }
  }
  return true;
}

bool GlobalMemory::reaches(BlockValue value, std::set<BlockValue>& reached) const {
  const BlockOp& op = program_.op(value);
  if (program_.is_number(value) || !values_.tiles(value).empty() || !reached.insert(value).second ||
      op.is_load())
    return true;
  return facts_.is_elementwise(value) &&
         std::all_of(op.operands.begin(), op.operands.end(),
                     [&](BlockValue operand) { return reaches(operand, reached); });
}

std::vector<BlockValue> GlobalMemory::stored_together(BlockValue first, const AccessForm& form) const {
  std::vector<BlockValue> stores = {first};
  std::set<BlockValue> common;
  if (now() != Stage::after || !reaches(program_.op(first).operands[0], common)) return stores;
  for (BlockValue value = first + 1; value < facts_.count(); ++value) {
    const BlockOp& op = program_.op(value);
    std::set<BlockValue> own;
    if (op.is_store() && program_.stage(value) == Stage::after && op.map() == program_.op(first).map() &&
        program_.shape(value) == program_.shape(first) &&
        access_form(facts_, value, values_.natural(value)) == form && reaches(op.operands[0], own) &&
        std::any_of(own.begin(), own.end(), [&](BlockValue each) { return common.contains(each); }))
      stores.push_back(value);
  }
  return stores;
}

bool GlobalMemory::make_in_store(BlockValue value, const RegisterTile& tile, const Assign& assign) {
  if (!in_store_ || !in_store_->chunk || tile.scope != Stage::after ||
      tile.layout != in_store_->form.registers || tile.registers->count <= BlockFacts::kMostHeld ||
      !is_for_stores_alone(value))
    return false;
  const int per = 1 << in_store_->form.step();
  Body made;
  Builder(made).unrolled("j", per, [&](Builder& one, const Expr& j) {
    assign(one, one.named("r", *in_store_->chunk * per + j));
  });
  Builder(in_store_->declared).declare(tile.registers);
  Builder(in_store_->made).add(std::move(made));  // behind what it is made of
  return true;
}

// Where lanes exchange words, every lane gets what lies together first.
GlobalMemory::ChunkLoad GlobalMemory::chunk_load(BlockValue value, const AccessForm& form, bool words,
                                                 const Symbol& to, std::vector<TilePiece> from) {
  const DType dtype = facts_.place(value).dtype;
  const bool streams = !facts_.is_shared_by_blocks(program_.op(value));
  const RegisterLayout chunks = chunks_of(form.moved, form.vector);
  const int per = 1 << form.vector, registers = words ? per / 2 : per;
  const Scalar element = ir::scalar_of(dtype);
  ChunkLoad out;
  out.registers = registers;
  out.ask = [=, this, from = std::move(from)](Builder& each, const Expr& c) {
    const Expr within = bounds_.inside(value, chunks, c);
    read_pieces(each, value, chunks, c, from, [&](Builder& here, const TilePiece& piece) {
      const Expr at = bounds_.offset(chunks, piece.place->strides, c);
      if (per == 1)
        return here.assign(ir::element(to, c),
                           ir::select(within, ir::element(piece.from, at), ir::zero(element)));
      here.emit(facts_.is_settled(*piece.place) ? Instr::load_global : Instr::load_written,
                {ir::address(to, c * registers), ir::address(piece.from, at), within},
                {element, per, streams});
    });
  };
  out.hand_over = [=](Builder& each, const Expr& c) {
    const Symbol v = ir::make_vector(to->name + "_chunk", Scalar::u32, registers);
    each.declare(v);
    each.unrolled("w", registers, [&](Builder& one, const Expr& w) {
      one.assign(ir::element(v, w), ir::element(to, c * registers + w));
    });
    each.emit(Instr::exchange_words, {v}, {Scalar::u32, registers});
    each.unrolled("w", registers, [&](Builder& one, const Expr& w) {
      one.assign(ir::element(to, c * registers + w), ir::element(v, w));
    });
  };
  if (form.exchanged == 0) out.hand_over = nullptr;
  return out;
}

void GlobalMemory::load(BlockValue value, const RegisterLayout& layout, bool as_it_is) {
  const TensorPlace& place = facts_.place(value);
  const AccessForm form = access_form(facts_, value, layout);
  RegisterTile tile;
  tile.dtype = place.dtype;
  tile.layout = form.registers;
  tile.words = form.vector > 0 && is_packed_in_pairs(place.dtype);
  const bool loop = program_.stage(value) == Stage::loop, ahead = loop && facts_.prefetches();
  tile.scope = loop ? Stage::loop : Stage::before;
  const int count = layout.count() >> (tile.words ? 1 : 0);
  const Scalar type = tile.words ? Scalar::u32 : ir::scalar_of(place.dtype);
  tile.registers = fresh_registers(base_name(value), type, count);
  if (as_it_is && comes_late(value, tile)) tile.scope = Stage::after;
  const Symbol to = ahead ? ir::make_registers("next_" + tile.registers->name, type, count) : tile.registers;

  Body fetch;
  Builder out(fetch);
  const ChunkLoad chunk = chunk_load(value, form, tile.words, to, pieces(out, value));
  const int64_t chunks = layout.count() >> form.vector;
  if (in_store_ && tile.scope == Stage::after && is_for_stores_alone(value) &&
      in_store_->form.registers == form.registers && in_store_->form.step() == form.step()) {
    in_store_->loads.push_back(chunk);
  } else {
    out.unrolled("r", chunks, chunk.ask);
    if (chunk.hand_over) out.unrolled("c", chunks, chunk.hand_over);
  }
  place_load(value, std::move(tile), to, std::move(fetch));
}

// `fetch` fills `to`: the tile's registers, or those of the next iteration's tile.
void GlobalMemory::place_load(BlockValue value, RegisterTile tile, const Symbol& to, Body fetch) {
  if (tile.scope == Stage::loop) {
    const bool ahead = to != tile.registers;
    Builder declared(body_.declared);
    declared.declare(to, ahead);
    Builder(fetch_).add(std::move(fetch));
    if (ahead) {
      declared.declare(tile.registers, true);
      Builder(next_).unrolled("r", to->count, [&](Builder& each, const Expr& r) {
        each.assign(ir::element(tile.registers, r), ir::element(to, r));
      });
    }
  } else {
    fetch.insert(fetch.begin(), ir::Declare{to});
    text(tile.scope) += std::move(fetch);
  }
  values_.hold(value, std::move(tile));
}

// Which blocks of a cluster have something to store: all, if the store or the value gives each its part; the
// first of those that have the same. Where they are no power of two, those beyond one have none.
Expr GlobalMemory::storing_block(const BlockOp& op, const RegisterLayout& layout) const {
  if (facts_.cluster_blocks() == 1 || op.map()[static_cast<size_t>(Axis::cluster)] >= 0)
    return ir::truth(true);
  if (!layout.is_shared_out()) return equal(rank(), 0);
  int same = 0;
  for (size_t i = 0; i < layout.ranks.size(); ++i)
    if (layout.ranks[i].dim < 0) same |= 1 << i;
  const int64_t sharing = int64_t{1} << layout.ranks.size();
  const Expr has_part = sharing < facts_.cluster_blocks() ? less(rank(), sharing) : ir::truth(true);
  return same ? both(has_part, equal(Expr(rank()) & same, 0)) : has_part;
}

void GlobalMemory::store_chunk(Builder& to, BlockValue store, const Symbol& begin,
                               const RegisterLayout& chunks, const Expr& chunk) {
  const TensorPlace& place = facts_.place(store);
  const AccessForm& form = in_store_->form;
  const int per = 1 << form.vector;
  const Scalar element = ir::scalar_of(place.dtype);
  auto number = [&](const Expr& r) {
    const Value source = values_.element(program_.op(store).operands[0], form.registers, r);
    return ir::rounded(ir::converted(source, register_type(place.dtype)), place.dtype);
  };
  if (form.by_rows)
    return rows_.store(
        to, store, form, [&](const Expr& r) { return number(chunk * (1 << form.step()) + r); },
        [&](Builder& each, const Expr& access, const Symbol& own) {
          const Expr c = each.named("at_c", chunk * (1 << form.together) + access);
          each.when(bounds_.inside(store, chunks, c), [&](Builder& there) {
            there.store(Instr::store_global, ir::address(begin, bounds_.offset(chunks, place.strides, c)),
                        element, per, [&](Builder&, const Expr& j) { return ir::element(own, j); });
          });
        });
  const bool alone = in_store_->stores.size() == 1;
  const Symbol v = ir::make_vector(alone ? "v" : "of_" + begin->name, element, per);
  auto gather = [&](Builder& all) {
    all.declare(v);
    all.unrolled("j", per, [&](Builder& one, const Expr& j) {
      one.assign(ir::element(v, j), number(one.named("r", chunk * per + j)));
    });
    if (form.exchanged > 0) all.emit(Instr::exchange_words, {v}, {element, per});
  };
  if (form.exchanged > 0) gather(to);  // by all lanes, whichever of them store
  to.when(bounds_.inside(store, chunks, chunk), [&](Builder& there) {
    const Expr at = bounds_.offset(chunks, place.strides, chunk);
    if (form.vector == 0) return there.assign(ir::element(begin, at), number(chunk));
    if (form.exchanged == 0) gather(there);
    there.emit(Instr::store_global, {ir::address(begin, at), v}, {element, per});
  });
}

void GlobalMemory::store(BlockValue value) {
  if (stored_.contains(value)) return;
  const BlockOp& op = program_.op(value);
  const AccessForm form = access_form(facts_, value, values_.natural(value));
  const RegisterLayout chunks = chunks_of(form.moved, form.vector);
  InStore in_store{stored_together(value, form), form};
  stored_.insert(in_store.stores.begin(), in_store.stores.end());
  in_store_ = &in_store;
  Body body;
  Builder out(body);
  std::vector<Symbol> begins;
  for (BlockValue store : in_store.stores)
    begins.push_back(tile_pointer(out, "to", store, facts_.place(store)));
  Body stores;
  const int64_t steps = chunks.count() >> form.together;
  Builder(stores).when(both(leaders(form.registers), storing_block(op, form.registers)), [&](Builder& some) {
    some.unrolled(form.by_rows ? "step" : "c", steps, [&](Builder& all_of_chunk, const Expr& c) {
      in_store.chunk = c;
      Body stored;
      Builder each(stored);
      for (size_t i = 0; i < begins.size(); ++i) store_chunk(each, in_store.stores[i], begins[i], chunks, c);
      for (const ChunkLoad& load : in_store.loads) {
        if (load.ahead() < steps)
          all_of_chunk.when(less(c + load.ahead(), steps),
                            [&](Builder& later) { load.ask(later, c + load.ahead()); });
        if (load.hand_over) load.hand_over(all_of_chunk, c);
      }
      all_of_chunk.add(std::move(in_store.made));
      all_of_chunk.add(std::move(stored));
    });
  });
  in_store_ = nullptr;
  for (const ChunkLoad& load : in_store.loads) out.unrolled("c", std::min(load.ahead(), steps), load.ask);
  out.add(std::move(in_store.declared));
  out.add(std::move(stores));
  text(now()) += std::move(body);
}

}  // namespace quern
