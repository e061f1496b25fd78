// Values that are in registers, but not in those where they are needed: moved as core/schedule's conversions
// say.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"
#include "core/schedule/bit_terms.h"

namespace quern {

namespace {

std::string text_of(const BitTerm& term, const std::string& variable) {
  if (term.shift >= 0) {
    const std::string bits = "(" + variable + " & " + std::to_string(term.mask) + ")";
    return term.shift == 0 ? bits : bits + " * " + std::to_string(uint64_t{1} << term.shift);
  }
  return "(" + variable + " >> " + std::to_string(-term.shift) + " & " +
         std::to_string(term.mask >> -term.shift) + ")";
}

std::string joined(const std::string& a, const char* sign, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + sign + b;
}

// Bit i of `variable` becomes bit bits[i].
std::string deposit(const std::string& variable, const std::vector<int>& bits) {
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

std::string BlockEmitter::address(const Layout& layout, std::string_view output, const std::string& index) {
  const BitTerms terms = bit_terms(layout, output);
  std::string threads, registers;
  for (const BitTerm& term : terms.terms) {
    const std::string& input = layout.inputs()[static_cast<size_t>(term.input)].name;
    const bool own = input == kRegister;
    std::string& text = own ? registers : threads;
    const bool rank = input == kWarp && layout.input_bits(kWarp) > warp_bits_;
    text = joined(text, " ^ ", text_of(term, own ? index : rank ? warp_and_rank() : input));
  }
  if (!threads.empty()) threads = define("int", "i", threads);
  // Added constants become part of an instruction, XORed ones do not.
  const std::string both =
      joined(threads, terms.disjoint ? " + " : " ^ ",
             terms.disjoint && !threads.empty() && !registers.empty() ? "(" + registers + ")" : registers);
  return both.empty() ? "0" : "(" + both + ")";
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

std::string BlockEmitter::warp_and_rank() const {
  return "(warp + rank * " + std::to_string(1 << warp_bits_) + ")";
}

void BlockEmitter::convert(BlockValue value, const Spread& want) {
  Array from;
  for (const Array& array : arrays_[static_cast<size_t>(value)])
    if (array.partial_lanes == 0 && (array.scope == Stage::before || array.scope == now_) &&
        (!array.spread.is_shared_out() || array.spread.ranks == want.ranks))
      from = array;
  if (from.name.empty()) return fail(value, "is in another block of the cluster");
  const Ints& shape = program_.shape(value);
  Array to;
  to.name = fresh(base_name(value));
  to.spread = within_tile(want, shape);
  to.dtype = register_type(from.dtype);
  to.scope = place_of(value);
  auto plan = plan_move(from, to.spread, shape);
  if (!plan) return fail(value, "cannot be converted: " + plan.status().message());
  conversion_cycles_ += plan->cost.cycles() * (to.scope == Stage::loop ? kernel_.turns : 1);
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
    std::string lines =
        cuda_type(to.dtype) + " " + to.name + "[" + std::to_string(to.spread.count()) + "];\n";
    for (size_t r = 0; r < plan->register_source.size(); ++r)
      lines += to.name + "[" + std::to_string(r) +
               "] = " + read(from, from.spread, std::to_string(plan->register_source[r])).as(to.dtype) +
               ";\n";
    text(to.scope) += lines;
  }
  arrays_[static_cast<size_t>(value)].push_back(std::move(to));
}

// Every round, a lane offers one of its registers and takes what another offers. Which one may depend on the
// lane: then it is selected.
void BlockEmitter::shuffle(const ShufflePlan& plan, const Array& from, const Array& to) {
  const std::string type = cuda_type(to.dtype);
  auto thread_number = [&](const F2Matrix& matrix) { return address(of_threads(matrix), kOffset, ""); };
  const std::string send = thread_number(plan.send), lane = thread_number(plan.lane),
                    receive = thread_number(plan.receive);
  const std::vector<uint64_t> sent = span_of(plan.send), received = span_of(plan.receive);
  std::string lines = type + " " + to.name + "[" + std::to_string(to.spread.count()) + "];\n";
  for (const ShuffleRound& round : plan.rounds) {
    for (uint64_t e = 0; e >> plan.word_bits == 0; ++e) {
      auto element = [&](uint64_t word) { return std::to_string((word << plan.word_bits) + e); };
      std::string offered;
      for (size_t i = sent.size(); i-- > 0;) {
        const std::string own = read(from, from.spread, element(round.send ^ sent[i])).as(to.dtype);
        offered = offered.empty()
                      ? own
                      : "(" + send + " == " + std::to_string(sent[i]) + " ? " + own + " : " + offered + ")";
      }
      const std::string got =
          round.local ? offered
                      : "shuffle(" + offered + ", " + lane + " ^ " + std::to_string(round.lane) + ")";
      if (received.size() == 1) {
        lines += to.name + "[" + element(round.receive) + "] = " + got + ";\n";
        continue;
      }
      lines += "{\n  const " + type + " got = " + got + ";\n";
      for (uint64_t word : received)
        lines += "  if (" + receive + " == " + std::to_string(word) + ") " + to.name + "[" +
                 element(round.receive ^ word) + "] = got;\n";
      lines += "}\n";
    }
  }
  text(to.scope) += lines;
}

// Through shared memory: what is partial by warp lies there side by side and is put together by who reads it.
void BlockEmitter::exchange(const SharedExchange& plan, const Array& from, const Array& to) {
  const std::string type = cuda_type(to.dtype);
  std::vector<BitMove> parts;
  for (int bit = 0; bit < warp_bits_; ++bit)
    if (from.partial_warps >> bit & 1) parts.push_back({bit, static_cast<int>(parts.size())});
  const int64_t size = int64_t{1} << plan.memory.output_bits(), copies = int64_t{1} << parts.size();
  const int buffer = shared_buffer(type, copies * size * (to.dtype == DType::boolean ? 1 : 4));
  const std::string s = shared_[static_cast<size_t>(buffer)].name;

  const SharedAccess &store = plan.store, &load = plan.load;
  const std::string stored = std::to_string(1 << store.vector_bits);
  std::string at = address(store.address, kOffset, "c");
  if (copies > 1) at = add_text(at, "(" + move_bits("warp", parts) + ") * " + std::to_string(size));
  std::string put = "#pragma unroll\nfor (int c = 0; c < " + std::to_string(store.instructions) +
                    "; ++c) {\n  Vector<" + type + ", " + stored +
                    "> v;\n#pragma unroll\n  for (int j = 0; j < " + stored + "; ++j) {\n    const int r = " +
                    add_text(deposit("j", store.element_bits), deposit("c", store.instruction_bits)) +
                    ";\n    v[j] = " + read(from, from.spread, "r").as(to.dtype) + ";\n  }\n  store_vector<" +
                    type + ", " + stored + ">(" + s + " + " + at + ", v);\n}\n";
  // Of threads that hold the same, the first; of warps that hold parts, all; and every block for itself.
  std::string first;
  if (store.idle_lanes) first = "(lane & " + std::to_string(store.idle_lanes) + ") == 0";
  const uint64_t warps = (uint64_t{1} << warp_bits_) - 1;
  if (const uint64_t idle = store.idle_warps & warps & ~uint64_t{from.partial_warps})
    first = joined(first, " && ", "(warp & " + std::to_string(idle) + ") == 0");
  if (!first.empty()) put = "if (" + first + ") {\n" + indent(put, 2) + "}\n";

  const std::string loaded = std::to_string(1 << load.vector_bits);
  std::string how_many, how;
  if (copies > 1) {
    how_many = ", " + std::to_string(copies);
    how = ", " + std::to_string(size) + ", " + cuda_combiner(from.reduction, to.dtype);
  }
  const std::string get = type + " " + to.name + "[" + std::to_string(to.spread.count()) +
                          "];\n#pragma unroll\nfor (int c = 0; c < " + std::to_string(load.instructions) +
                          "; ++c)\n  get_elements<" + type + ", " + loaded + how_many + ">(&" + to.name +
                          "[c * " + loaded + "], " + s + " + " + address(load.address, kOffset, "c") + how +
                          ");\n";
  if (plan.across_warps) {
    text(to.scope).add({put, {buffer}, {}});
    text(to.scope).add({get, {}, {buffer}});
  } else {
    text(to.scope).add({"__syncwarp();\n" + put + "__syncwarp();\n" + get, {buffer}, {buffer}});
  }
}

}  // namespace quern
