// Values that are in registers, but not in those where they are needed: moved as core/schedule's conversions
// say.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/schedule/bit_terms.h"

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
Spread within_tile(Spread spread, const Ints& shape) {
  std::erase_if(spread.registers, [&](const CoordBit& bit) { return is_beyond(bit, shape); });
  for (CoordBit& bit : spread.lanes)
    if (is_beyond(bit, shape)) bit = {};
  for (std::vector<CoordBit>* bits : {&spread.warps, &spread.ranks})
    for (CoordBit& bit : *bits)
      if (is_beyond(bit, shape)) bit = {};
  return spread;
}

// Extents that hold all coordinates which a spread names.
Ints room_of(const Spread& spread, Ints shape) {
  for (size_t d = 0; d < shape.size(); ++d)
    shape[d] = std::max(shape[d], int64_t{1} << spread.bits(static_cast<int>(d)));
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

}  // namespace

Expr BlockEmitter::address(const Layout& layout, std::string_view output, const Expr& index) {
  const BitTerms terms = bit_terms(layout, output);
  Expr threads = 0, registers = 0;
  for (const BitTerm& term : terms.terms) {
    const std::string& input = layout.inputs()[static_cast<size_t>(term.input)].name;
    if (input == kRegister) {
      registers = registers ^ value_of(term, index);
      continue;
    }
    const bool ranks = input == kWarp && layout.input_bits(kWarp) > warp_bits_;
    threads = threads ^ value_of(term, ranks ? warp_and_rank() : Expr(input == kLane ? lane() : warp()));
  }
  threads = define("i", threads);
  // Added constants become part of an instruction, XORed ones do not.
  return terms.disjoint ? threads + registers : threads ^ registers;
}

// A thread whose bits are beyond the tile holds nothing of it: no copy to shuffle from, but no place in
// shared memory either.
Result<Conversion> BlockEmitter::plan_move(const Array& from, const Spread& to, const Ints& shape) const {
  const bool narrow = from.dtype == DType::boolean;
  const ConversionOptions options{.element_bytes = narrow ? 1 : 4,
                                  .max_vector_bytes = narrow ? 1 : 16,
                                  .permit_shuffles = !narrow,
                                  .permit_ldmatrix = false};
  const size_t ranks = std::max(from.spread.ranks.size(), to.ranks.size());
  if (from.whole()) {
    const Ints room = room_of(from.spread, shape);
    auto inside = plan_conversion(to_layout(from.spread, room, ranks), to_layout(to, room, ranks), options);
    if (!inside || inside->kind != ConversionKind::shared) return inside;
  }
  // What warps hold parts of, none of them holds.
  Spread held = from.spread;
  for (int bit = 0; bit < warp_bits_; ++bit)
    if (from.partial_warps >> bit & 1) held.warps[static_cast<size_t>(bit)] = {};
  Conversion out{.kind = ConversionKind::shared};
  out.shared = plan_exchange(to_layout(held, shape, ranks), to_layout(to, shape, ranks),
                             options.element_bytes, options.max_vector_bytes, false);
  out.shared->across_warps |= !from.whole();
  out.cost = cost_of(*out.shared);
  return out;
}

std::optional<int64_t> BlockEmitter::move_cycles(BlockValue value, Array from, const Spread& want) const {
  const Ints& shape = program_.shape(value);
  from.dtype = register_type(program_.op(value).type.dtype);
  from.partial_lanes = 0;  // put together by who makes it
  if (from.whole() && serves(from.spread, want, shape)) return 0;
  auto plan = plan_move(from, within_tile(want, shape), shape);
  if (!plan) return std::nullopt;
  return plan->cost.cycles();
}

Expr BlockEmitter::warp_and_rank() const { return Expr(warp()) + Expr(rank()) * (1 << warp_bits_); }

void BlockEmitter::convert(BlockValue value, const Spread& want) {
  Array from;
  for (const Array& array : arrays_[static_cast<size_t>(value)])
    if (array.partial_lanes == 0 && (array.scope == Stage::before || array.scope == now_) &&
        (!array.spread.is_shared_out() || array.spread.ranks == want.ranks))
      from = array;
  if (!from.registers) return fail(value, "is in another block of the cluster");
  const Ints& shape = program_.shape(value);
  Array to;
  to.spread = within_tile(want, shape);
  to.dtype = register_type(from.dtype);
  to.registers = fresh_registers(base_name(value), ir::scalar_of(to.dtype), to.spread.count());
  to.scope = place_of(value);
  auto plan = plan_move(from, to.spread, shape);
  if (!plan) return fail(value, "cannot be converted: " + plan.status().message());
  conversion_cycles_ += plan->cost.cycles() * (to.scope == Stage::loop ? kernel_.trip_count : 1);
  if (plan->shared) {
    // Registers in the order in which they are loaded.
    Spread& spread = to.spread;
    const std::vector<CoordBit> registers = spread.registers;
    spread.registers.clear();
    for (const std::vector<int>* bits :
         {&plan->shared->load.element_bits, &plan->shared->load.instruction_bits})
      for (int bit : *bits) spread.registers.push_back(registers[static_cast<size_t>(bit)]);
    exchange(*plan->shared, from, to);
  } else if (plan->shuffle) {
    shuffle(*plan->shuffle, from, to);
  } else {
    Body body;
    Builder out(body);
    out.declare(to.registers);
    for (size_t r = 0; r < plan->register_source.size(); ++r)
      out.assign(ir::element(to.registers, static_cast<int64_t>(r)),
                 read(from, from.spread, static_cast<int64_t>(plan->register_source[r])).as(to.dtype));
    text(to.scope) += std::move(body);
  }
  arrays_[static_cast<size_t>(value)].push_back(std::move(to));
}

// Every round, a lane offers one of its registers and takes what another offers. Which one may depend on the
// lane: then it is selected.
void BlockEmitter::shuffle(const ShufflePlan& plan, const Array& from, const Array& to) {
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
        const Expr own = read(from, from.spread, element(round.send ^ sent[i])).as(to.dtype);
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
void BlockEmitter::exchange(const SharedExchange& plan, const Array& from, const Array& to) {
  const Scalar type = ir::scalar_of(to.dtype);
  std::vector<BitMove> parts;
  for (int bit = 0; bit < warp_bits_; ++bit)
    if (from.partial_warps >> bit & 1) parts.push_back({bit, static_cast<int>(parts.size())});
  const int64_t size = int64_t{1} << plan.memory.output_bits(), copies = int64_t{1} << parts.size();
  const Symbol buffer = shared_buffer(type, copies * size * (to.dtype == DType::boolean ? 1 : 4));

  const SharedAccess &store = plan.store, &load = plan.load;
  const int stored = 1 << store.vector_bits, loaded = 1 << load.vector_bits;
  // Of threads that hold the same, the first; of warps that hold parts, all; and every block for itself.
  const uint64_t warps = (uint64_t{1} << warp_bits_) - 1;
  const uint64_t idle_warps = store.idle_warps & warps & ~uint64_t{from.partial_warps};
  auto first_of = [](const Symbol& number, uint64_t idle) {
    return idle ? equal(Expr(number) & static_cast<int64_t>(idle), 0) : ir::truth(true);
  };
  Body put, get;
  Builder(put).when(
      both(first_of(lane(), store.idle_lanes), first_of(warp(), idle_warps)), [&](Builder& some) {
        some.unrolled("c", store.instructions, [&](Builder& each, const Expr& c) {
          const Expr at = address(store.address, kOffset, c) + move_bits(warp(), parts) * size;
          each.store(
              Instr::store_shared, ir::address(buffer, at), type, stored, [&](Builder& one, const Expr& j) {
                const Expr r =
                    one.named("r", deposit(j, store.element_bits) + deposit(c, store.instruction_bits));
                return read(from, from.spread, r).as(to.dtype);
              });
        });
      });
  Builder out(get);
  out.declare(to.registers);
  out.unrolled("c", load.instructions, [&](Builder& each, const Expr& c) {
    std::vector<Expr> operands = {ir::address(to.registers, c * loaded),
                                  ir::address(buffer, address(load.address, kOffset, c))};
    ir::TemplateArgs templates = {type, loaded};
    if (copies > 1) {
      operands.push_back(size);
      operands.push_back(ir::combiner(from.reduction, type));
      templates.push_back(copies);
    }
    each.emit(Instr::load_shared, std::move(operands), std::move(templates));
  });
  if (plan.across_warps) {
    text(to.scope) += std::move(put);
    text(to.scope) += std::move(get);
    return;
  }
  Body both_parts;
  Builder all(both_parts);
  all.emit(Instr::warp_barrier);
  all.add(std::move(put));
  all.emit(Instr::warp_barrier);
  all.add(std::move(get));
  text(to.scope) += std::move(both_parts);
}

}  // namespace quern
