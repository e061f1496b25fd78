#include "core/codegen/block/conversions.h"

#include <algorithm>

#include "core/codegen/block/global_memory.h"
#include "core/schedule/bit_terms.h"
#include "core/schedule/tile_access.h"

namespace quern {

namespace {

Expr value_of(const BitTerm& term, const Expr& variable) {
  if (term.shift >= 0) return (variable & static_cast<int64_t>(term.mask)) * (int64_t{1} << term.shift);
  return variable >> -term.shift & static_cast<int64_t>(term.mask >> -term.shift);
}

// Bit i of `variable` becomes bit bits[i].
Expr deposit(const Expr& variable, const std::vector<int>& bits) {
  std::vector<BitMove> moves;
  for (size_t i = 0; i < bits.size(); ++i) moves.push_back({static_cast<int>(i), bits[i]});
  return move_bits(variable, std::move(moves));
}

// The same with nothing where bits are beyond the tile.
RegisterLayout within_tile(RegisterLayout layout, const Ints& shape) {
  std::erase_if(layout.registers, [&](const CoordBit& bit) { return is_beyond(bit, shape); });
  for (CoordBit& bit : layout.lanes)
    if (is_beyond(bit, shape)) bit = {};
  for (std::vector<CoordBit>* bits : {&layout.warps, &layout.ranks})
    for (CoordBit& bit : *bits)
      if (is_beyond(bit, shape)) bit = {};
  return layout;
}

// Extents that hold all coordinates which a layout names.
Ints room_of(const RegisterLayout& layout, Ints shape) {
  for (size_t d = 0; d < shape.size(); ++d)
    shape[d] = std::max(shape[d], int64_t{1} << layout.bits(static_cast<int>(d)));
  return shape;
}

// A map from threads to some number, as a layout.
Layout of_threads(const F2Matrix& matrix) {
  return Layout({{std::string(kLane), kLaneBits},
                 {std::string(kWarp), static_cast<int>(matrix.columns.size()) - kLaneBits}},
                {{std::string(kOffset), matrix.rows}}, matrix);
}

std::vector<uint64_t> span_of(const F2Matrix& matrix) {
  std::vector<uint64_t> out = {0};
  for (uint64_t column : matrix.columns)
    if (std::find(out.begin(), out.end(), column) == out.end())
      for (size_t i = 0, count = out.size(); i < count; ++i) out.push_back(out[i] ^ column);
  return out;
}

// As linear() numbers them.
Expr warp_and_rank(int warp_bits) { return Expr(warp()) + Expr(rank()) * (1 << warp_bits); }

// A thread whose bits are beyond the tile holds nothing of it: no copy to shuffle from, but no place in
// shared memory either.
Result<Conversion> plan_move(const BlockFacts& facts, const RegisterTile& from, const RegisterLayout& to,
                             const Ints& shape) {
  if (!from.layout.ends.empty() || !to.ends.empty() || (!from.whole() && facts.has_three_warpgroups()))
    return Status(ErrorCode::UNSUPPORTED, "registers or warps that hold it are no power of two");
  const bool narrow = from.dtype == DType::boolean;
  const ConversionOptions options{.element_bytes = narrow ? 1 : 4,
                                  .max_vector_bytes = narrow ? 1 : 16,
                                  .permit_shuffles = !narrow};
  const size_t ranks = std::max(from.layout.ranks.size(), to.ranks.size());
  if (from.whole()) {
    const Ints room = room_of(from.layout, shape);
    auto inside = plan_conversion(linear(from.layout, room, ranks), linear(to, room, ranks), options);
    if (!inside || inside->kind != ConversionKind::shared) return inside;
  }
  // What warps hold parts of, none of them holds.
  RegisterLayout held = from.layout;
  for (int bit = 0; bit < facts.warp_bits; ++bit)
    if (from.partial_warps >> bit & 1) held.warps[static_cast<size_t>(bit)] = {};
  Conversion out{.kind = ConversionKind::shared};
  out.shared = plan_exchange(linear(held, shape, ranks), linear(to, shape, ranks), options.element_bytes,
                             options.max_vector_bytes);
  out.shared->across_warps |= !from.whole();
  out.cost = cost_of(*out.shared);
  return out;
}

}  // namespace

std::optional<int64_t> move_cycles(const BlockFacts& facts, BlockValue value, RegisterTile from,
                                   const RegisterLayout& want) {
  const Ints& shape = facts.program.shape(value);
  from.dtype = register_type(facts.program.op(value).type.dtype);
  from.partial_lanes = 0;  // put together by who makes it
  if (from.whole() && serves(from.layout, want, shape)) return 0;
  auto plan = plan_move(facts, from, within_tile(want, shape), shape);
  if (!plan) return std::nullopt;
  return plan->cost.cycles();
}

std::optional<int64_t> moved_load_cycles(const BlockFacts& facts, BlockValue load, const RegisterLayout& from,
                                         const RegisterLayout& want) {
  auto has_sectors = [&](const RegisterLayout& layout) {
    const AccessForm form = access_form(facts, load, layout);
    return run_bytes(facts, load, form.moved, form.vector) >= kSectorBytes;
  };
  const bool once = facts.program.stage(load) == Stage::before && !facts.is_staged(load);
  if (!facts.program.op(load).is_load() || !once || has_sectors(want) || !has_sectors(from)) return std::nullopt;
  RegisterTile tile;
  tile.layout = from;
  return move_cycles(facts, load, std::move(tile), want);
}

Expr Conversions::address(const Layout& layout, std::string_view output, const Expr& index) {
  const BitTerms terms = bit_terms(layout, output);
  Expr threads = 0, registers = 0;
  for (const BitTerm& term : terms.terms) {
    const std::string& input = layout.inputs()[static_cast<size_t>(term.input)].name;
    if (input == kRegister) {
      registers = registers ^ value_of(term, index);
      continue;
    }
    const bool ranks = input == kWarp && layout.input_bits(kWarp) > warp_bits_;
    threads =
        threads ^ value_of(term, ranks ? warp_and_rank(warp_bits_) : Expr(input == kLane ? lane() : warp()));
  }
  threads = bounds_.define("i", threads);
  // Added constants become part of an instruction, XORed ones do not.
  return terms.disjoint ? threads + registers : threads ^ registers;
}

void Conversions::convert(BlockValue value, const RegisterLayout& want) {
  RegisterTile from;
  for (const RegisterTile& tile : values_.tiles(value))
    if (tile.partial_lanes == 0 && values_.is_defined_now(tile) &&
        (!tile.layout.is_shared_out() || tile.layout.ranks == want.ranks))
      from = tile;
  if (!from.registers) return fail(value, "is in another block of the cluster");
  RegisterTile to;
  to.layout = within_tile(want, program_.shape(value));
  to.dtype = register_type(from.dtype);
  to.registers = fresh_registers(base_name(value), ir::scalar_of(to.dtype), to.layout.count());
  to.scope = from.scope == Stage::after ? Stage::after : place_of(value);  // where a load that comes late is
  auto plan = plan_move(facts_, from, to.layout, program_.shape(value));
  if (!plan) return fail(value, "cannot be converted: " + plan.status().message());
  cycles_ += plan->cost.cycles() * (to.scope == Stage::loop ? kernel_.trip_count : 1);
  if (plan->shared) {
    // Registers in the order in which they are loaded.
    RegisterLayout& layout = to.layout;
    const std::vector<CoordBit> registers = layout.registers;
    layout.registers.clear();
    for (const std::vector<int>* bits :
         {&plan->shared->load.element_bits, &plan->shared->load.instruction_bits})
      for (int bit : *bits) layout.registers.push_back(registers[static_cast<size_t>(bit)]);
    exchange(*plan->shared, from, to);
  } else if (plan->shuffle) {
    shuffle(*plan->shuffle, from, to);
  } else {
    move_registers(*plan, from, to);
  }
  values_.hold(value, std::move(to));
}

void Conversions::move_registers(const Conversion& plan, const RegisterTile& from, const RegisterTile& to) {
  Body body;
  Builder out(body);
  out.declare(to.registers);
  for (size_t r = 0; r < plan.register_source.size(); ++r)
    out.assign(ir::element(to.registers, static_cast<int64_t>(r)),
               values_.read(from, from.layout, static_cast<int64_t>(plan.register_source[r])).as(to.dtype));
  text(to.scope) += std::move(body);
}

// Every round, a lane offers one of its registers and takes what another offers. Which one may depend on the
// lane: then it is selected.
void Conversions::shuffle(const ShufflePlan& plan, const RegisterTile& from, const RegisterTile& to) {
  const Scalar type = ir::scalar_of(to.dtype);
  auto thread_number = [&](const F2Matrix& matrix) { return address(of_threads(matrix), kOffset, 0); };
  const Expr send = thread_number(plan.send), from_lane = thread_number(plan.lane),
             receive = thread_number(plan.receive);
  const std::vector<uint64_t> sent = span_of(plan.send), received = span_of(plan.receive);
  auto number = [](uint64_t n) { return Expr(static_cast<int64_t>(n)); };
  Body body;
  Builder out(body);
  out.declare(to.registers);
  for (const ShuffleRound& round : plan.rounds) {
    for (uint64_t e = 0; e >> plan.word_bits == 0; ++e) {
      auto element = [&](uint64_t word) { return number((word << plan.word_bits) + e); };
      std::optional<Expr> offered;
      for (size_t i = sent.size(); i-- > 0;) {
        const Expr own = values_.read(from, from.layout, element(round.send ^ sent[i])).as(to.dtype);
        offered = offered ? ir::select(equal(send, number(sent[i])), own, *offered) : own;
      }
      const Expr got =
          round.local ? *offered
                      : ir::call(ir::Function::shuffle, type, {*offered, from_lane ^ number(round.lane)});
      if (received.size() == 1) {
        out.assign(ir::element(to.registers, element(round.receive)), got);
        continue;
      }
      out.scope([&](Builder& one) {
        const Expr word_got = one.let(ir::make_variable("got", type), got);
        for (uint64_t word : received)
          one.when(equal(receive, number(word)), [&](Builder& taken) {
            taken.assign(ir::element(to.registers, element(round.receive ^ word)), word_got);
          });
      });
    }
  }
  text(to.scope) += std::move(body);
}

// Through shared memory: what is partial by warp lies there side by side and is put together by who reads it.
void Conversions::exchange(const SharedExchange& plan, const RegisterTile& from, const RegisterTile& to) {
  std::vector<BitMove> parts;
  for (int bit = 0; bit < warp_bits_; ++bit)
    if (from.partial_warps >> bit & 1) parts.push_back({bit, static_cast<int>(parts.size())});
  const int64_t size = int64_t{1} << plan.memory.output_bits(), copies = int64_t{1} << parts.size();
  const Symbol buffer =
      shared_buffer(ir::scalar_of(to.dtype), copies * size * (to.dtype == DType::boolean ? 1 : 4));
  Body put = this->put(plan, from, to, buffer, size, parts),
       get = this->get(plan, from, to, buffer, size, copies);
  if (plan.across_warps) {
    text(to.scope) += std::move(put);
    text(to.scope) += std::move(get);
    return;
  }
  Body within_warp;
  Builder all(within_warp);
  all.emit(Instr::warp_barrier);
  all.add(std::move(put));
  all.emit(Instr::warp_barrier);
  all.add(std::move(get));
  text(to.scope) += std::move(within_warp);
}

// Of threads that hold the same, the first; of warps that hold parts, all; and every block for itself.
Body Conversions::put(const SharedExchange& plan, const RegisterTile& from, const RegisterTile& to,
                      const Symbol& buffer, int64_t size, const std::vector<BitMove>& parts) {
  const SharedAccess& store = plan.store;
  const uint64_t warps = (uint64_t{1} << warp_bits_) - 1;
  const uint64_t idle_warps = store.idle_warps & warps & ~uint64_t{from.partial_warps};
  auto first_of = [](const Symbol& number, uint64_t idle) {
    return idle ? equal(Expr(number) & static_cast<int64_t>(idle), 0) : ir::truth(true);
  };
  Body body;
  Builder(body).when(
      both(first_of(lane(), store.idle_lanes), first_of(warp(), idle_warps)), [&](Builder& some) {
        some.unrolled("c", store.instructions, [&](Builder& each, const Expr& c) {
          const Expr at = address(store.address, kOffset, c) + move_bits(warp(), parts) * size;
          each.store(Instr::store_shared, ir::address(buffer, at), ir::scalar_of(to.dtype),
                     1 << store.vector_bits, [&](Builder& one, const Expr& j) {
                       const Expr r = one.named(
                           "r", deposit(j, store.element_bits) + deposit(c, store.instruction_bits));
                       return values_.read(from, from.layout, r).as(to.dtype);
                     });
        });
      });
  return body;
}

Body Conversions::get(const SharedExchange& plan, const RegisterTile& from, const RegisterTile& to,
                      const Symbol& buffer, int64_t size, int64_t copies) {
  const Scalar type = ir::scalar_of(to.dtype);
  const int loaded = 1 << plan.load.vector_bits;
  Body body;
  Builder out(body);
  out.declare(to.registers);
  out.unrolled("c", plan.load.instructions, [&](Builder& each, const Expr& c) {
    std::vector<Expr> operands = {ir::address(to.registers, c * loaded),
                                  ir::address(buffer, address(plan.load.address, kOffset, c))};
    ir::TemplateArgs templates = {type, loaded};
    if (copies > 1) {
      operands.push_back(size);
      operands.push_back(ir::combiner(from.reduction, type));
      templates.push_back(copies);
    }
    each.emit(Instr::load_shared, std::move(operands), std::move(templates));
  });
  return body;
}

}  // namespace quern
