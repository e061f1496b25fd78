#include "core/codegen/block/position_masks.h"

#include <cmath>

#include "core/base/dtype_info.h"
#include "core/base/integers.h"
#include "core/codegen/finite_parts.h"

namespace quern {

namespace {

constexpr double kVanishing = 128;  // e^-128 is 0 in f32

// Shows infinities and NaN among the numbers of a word: adding one to the bits of an exponent (of all but the
// sign, where there are no infinities) carries out of them if all are set, so that ((word & exponents) + one)
// & carries is 0 for finite numbers alone.
struct FiniteTest {
  uint32_t exponents, one, carries;
};
FiniteTest finite_test(DType dtype) {
  const DTypeInfo& row = dtype_info(dtype);
  const uint32_t one = row.infinities ? 1u << row.mantissa : 1, carry = 1u << (8 * row.bytes - 1);
  FiniteTest out = {carry - one, one, carry};
  for (size_t bits = 8 * row.bytes; bits < 32; bits *= 2)
    for (uint32_t* part : {&out.exponents, &out.one, &out.carries}) *part |= *part << bits;
  return out;
}

}  // namespace

// An integer that all iterations of the block compare positions with, as the length of a sequence is: read in front of all
// else, by all threads.
Expr PositionMasks::integer(BlockValue load) {
  const auto [at, fresh_one] = integers_.try_emplace(load, nullptr);
  if (!fresh_one) return Expr(at->second);
  const TensorPlace& place = facts_.place(load);
  at->second = ir::make_variable("integer" + std::to_string(load), Scalar::i32);
  const Symbol memory = memory_.pointer(program_.op(load).tensor(), place);
  Builder(body_.prologue).let(at->second, ir::element(memory, memory_.tile_begin(load, place)));
  return Expr(at->second);
}

std::optional<TileTruth<Expr>> PositionMasks::tile_truth(BlockValue condition) {
  const TileMasks<Expr, Expr> masks(
      program_.ops, [&](BlockValue value) -> std::optional<PositionRange<Expr>> {
        const BlockOp& op = program_.op(value);
        if (is_one_integer(op) && facts_.place(op).pieces.empty()) {
          const Expr read = integer(value);
          return PositionRange<Expr>{read, read, kMostOfAny};
        }
        if (!op.is_compute(OpCode::iota)) return std::nullopt;
        const size_t axis = static_cast<size_t>((*op.attrs().axis)[0]);
        const Expr first = op.has_access() ? bounds_.firsts(value)[axis] : Expr(0);
        const int64_t extent = op.type.shape[axis],
                      most = op.has_access() ? 2 * facts_.place(op).shape[axis] : extent;
        return PositionRange<Expr>{first, first + (extent - 1), most};
      });
  return masks.condition(condition);
}

// The scores of online softmax: a select by positions of a number for what is masked.
std::optional<PositionMasks::MaskedScores> PositionMasks::masked_scores(BlockValue value) {
  const BlockOp& op = program_.op(value);
  if (!op.is_compute(OpCode::where) || !program_.is_number(op.operands[2])) return std::nullopt;
  const auto own = tile_truth(op.operands[0]);
  if (!own) return std::nullopt;
  MaskedScores out{value, program_.op(op.operands[2]).number(), *own, {value}};
  if (const auto inner = masked_scores(op.operands[1]); inner && inner->masked == out.masked) {
    out.tile = {both(out.tile.always, inner->tile.always), both(out.tile.possible, inner->tile.possible)};
    out.selects.insert(inner->selects.begin(), inner->selects.end());
  }
  return out;
}

BlockValue PositionMasks::unscaled(BlockValue value) const {
  const BlockOp& op = program_.op(value);
  const std::optional<size_t> values = scaled_operand(program_, op);
  return values ? op.operands[*values] : value;
}

// Whether a value of the loop is 0 where all scores are masked, but for infinite and undefined factors, of
// which `tiles` are the staged ones.
bool PositionMasks::vanishes(BlockValue value, BlockValue scores, BlockValue maximum,
                             std::set<BlockValue>& tiles) const {
  const BlockOp& op = program_.op(value);
  if (!op.is_compute()) return false;
  auto from = [&](size_t i) { return vanishes(op.operands[i], scores, maximum, tiles); };
  auto is_finite_number = [&](BlockValue operand) {
    return program_.is_number(operand) && std::isfinite(program_.op(operand).number());
  };
  switch (op.code()) {
    case OpCode::exp: {
      const BlockOp& difference = program_.op(op.operands[0]);
      if (!difference.is_compute(OpCode::sub) ||
          (difference.operands[0] != scores && unscaled(difference.operands[0]) != scores))
        return false;
      const BlockOp& shift = program_.op(difference.operands[1]);
      const bool frame = shift.is_compute(OpCode::where);
      return difference.operands[1] == maximum || (frame && shift.operands[2] == maximum);
    }
    case OpCode::reduce_sum:
    case OpCode::cast:
    case OpCode::reshape:
    case OpCode::transpose:
    case OpCode::neg:
      return from(0);
    case OpCode::mul:
      return (is_finite_number(op.operands[1]) && from(0)) || (is_finite_number(op.operands[0]) && from(1));
    case OpCode::matmul:
      for (size_t side : {size_t{0}, size_t{1}}) {
        const BlockValue other = op.operands[1 - side];
        if (!from(side) || !program_.op(other).is_load() || !facts_.is_staged(other)) continue;
        tiles.insert(other);
        return true;
      }
      return false;
    default:
      return false;
  }
}

// What there is to pass over, if the loop is online softmax over masked scores and nothing else.
std::optional<PositionMasks::PassedOver> PositionMasks::passed_over() {
  if (schedule_.stages < 2 || stores_in_loop(program_.ops)) return std::nullopt;
  std::vector<BlockValue> sums;
  PassedOver out;
  for (BlockValue value = 0; value < facts_.count(); ++value) {
    const BlockOp& op = program_.op(value);
    if (!op.is_accumulate()) continue;
    if (op.combine() == Combine::rescaled_sum) {
      sums.push_back(value);
      continue;
    }
    if (op.combine() != Combine::max || out.maximum >= 0) return std::nullopt;
    out.maximum = value;
  }
  if (out.maximum < 0) return std::nullopt;
  const BlockValue maximum = program_.op(out.maximum).operands[0];
  BlockValue of_scores = unscaled(maximum);
  // Or of what is there for each row, which what reads the maximum behind the loop takes into account (lower_block).
  if (program_.op(of_scores).is_compute(OpCode::max) && facts_.cluster_blocks() == 1) {
    const std::vector<BlockValue>& operands = program_.op(of_scores).operands;
    for (size_t i : {size_t{0}, size_t{1}})
      if (const BlockValue rest = unscaled(operands[i]);
          program_.op(rest).is_compute(OpCode::reduce_max) && program_.stage(operands[1 - i]) != Stage::loop)
        of_scores = rest;
  }
  const BlockOp& largest = program_.op(of_scores);
  if (!largest.is_compute(OpCode::reduce_max)) return std::nullopt;
  const auto scores = masked_scores(largest.operands[0]);
  if (!scores || scores->tile.possible.is_number()) return std::nullopt;
  if (of_scores != maximum && !std::isinf(scores->masked)) return std::nullopt;
  out.scores = *scores;
  for (BlockValue sum : sums) {
    const BlockOp& op = program_.op(sum);
    if (op.operands[1] != out.maximum || !vanishes(op.operands[0], scores->value, out.maximum, out.tiles))
      return std::nullopt;
  }
  return out;
}

// Reads this thread's part of a staged tile, and gives whether all numbers in it are finite. The threads that
// compute read all of the tile between them.
Expr PositionMasks::finite_part(Builder& to, BlockValue value) const {
  const SharedTile& tile = *staged_.find(value);
  const DType dtype = facts_.place(value).dtype;
  const FiniteTest test = finite_test(dtype);
  const Symbol words = ir::make_pointer("words" + std::to_string(value), tile.memory, Scalar::u32),
               found = ir::make_registers("found" + std::to_string(value), Scalar::u32, 1),
               vector = ir::make_registers("vector" + std::to_string(value), Scalar::u32, 4);
  auto number = [](uint32_t bits) { return ir::cast(Expr(int64_t{bits}), Scalar::u32); };
  to.let(words, ir::address(tile.memory, 0));
  to.declare(found, true);
  const int64_t size = static_cast<int64_t>(dtype_size(dtype)), vectors = size * tile.elements / 16,
                workers = schedule_.workers();
  to.unrolled("c", divide_up(vectors, workers), [&](Builder& each, const Expr& c) {
    const Expr at = ir::thread_index() + c * workers;
    each.when(vectors % workers == 0 ? ir::truth(true) : less(at, vectors), [&](Builder& there) {
      there.declare(vector);
      there.emit(Instr::load_shared, {ir::address(vector, 0), ir::address(words, at * 4)}, {Scalar::u32, 4});
      there.unrolled("w", 4, [&](Builder& one, const Expr& w) {
        one.assign(ir::element(found, 0),
                   ir::operation(ir::Operator::bit_or, ir::element(found, 0),
                                 (ir::element(vector, w) & number(test.exponents)) + number(test.one)));
      });
    });
  });
  return equal(ir::element(found, 0) & number(test.carries), number(0));
}

// Of the parts that finite_parts.h cuts the tensor into those that the block's tiles lie in, over all iterations.
PositionMasks::Parts PositionMasks::parts_read(int32_t tensor, const std::vector<BlockValue>& tiles) const {
  const Ints& shape = facts_.places[static_cast<size_t>(tensor)].shape;
  const BlockOp& op = program_.op(tiles[0]);
  Parts out{0, finite_parts(shape)};
  if (tiles.size() > 1 || op.tensor() != tensor) return out;
  Expr index = 0;
  for (size_t d = 0; d < dims_before_parts(shape) && op.type.shape[d] == 1; ++d) {
    if (op.loop_dim() == static_cast<int>(d)) break;
    index = index * shape[d] + bounds_.firsts(tiles[0])[d];
    out.count /= shape[d];
  }
  out.first = index * out.count;
  return out;
}

// Reads whether all numbers in these parts of the tensor's memory are finite, as the kernel in front has found
// (finite_parts.h). Each thread that computes reads some of what was found.
Expr PositionMasks::known_finite(Builder& to, int32_t tensor, const Parts& parts) {
  constexpr int64_t kUnrolled = 4;  // loads, of which none waits for another
  const std::string name = "finite" + std::to_string(tensor);
  const int64_t workers = schedule_.workers(), loads = divide_up(parts.count, workers);
  TensorPlace& place =
      watched_
          .emplace(tensor, TensorPlace{name,
                                       DType::f32,
                                       {finite_parts(facts_.places[static_cast<size_t>(tensor)].shape)},
                                       {1},
                                       {}})
          .first->second;
  const Symbol memory = memory_.pointer(-1, place),
               found = ir::make_registers(name + "_found", Scalar::boolean, 1),
               part = ir::make_registers(name + "_part", Scalar::f32, 1),
               number = ir::make_variable(name + "_number", Scalar::i32);
  to.declare(found);
  to.assign(ir::element(found, 0), ir::truth(true));
  auto look = [&](Builder& each, const Expr& load) {
    const Expr at = each.named(name + "_at", load * workers + ir::thread_index());
    each.declare(part);
    each.emit(Instr::load_global,
              {ir::address(part, 0), ir::address(memory, parts.first + at), less(at, parts.count)},
              {Scalar::f32, 1, false});
    each.assign(ir::element(found, 0),
                both(ir::element(found, 0), equal(ir::element(part, 0), ir::literal(0, Scalar::f32))));
  };
  if (loads <= kUnrolled)
    to.unrolled(name + "_number", loads, look);
  else
    to.rolled(number, 0, loads, [&](Builder& each) { look(each, Expr(number)); });
  return ir::element(found, 0);
}

void PositionMasks::find() {
  // An iteration that overlaps the next has begun before it is known that it does nothing.
  if (schedule_.overlap && !schedule_.intervals) return;
  masks_ = passed_over();
  if (masks_ && schedule_.intervals) body_.masked_selects = masks_->scores.selects;
}

// That all numbers of the tiles are finite: of what a kernel in front has looked at (with intervals), or of
// what is staged.
Expr PositionMasks::all_finite(Builder& to, const std::set<BlockValue>& tiles) {
  Expr all = ir::truth(true);
  std::map<int32_t, std::vector<BlockValue>> tensors;
  for (BlockValue tile : tiles)
    if (schedule_.intervals)
      for (int32_t tensor : facts_.place(tile).memory) tensors[tensor].push_back(tile);
    else
      all = both(all, finite_part(to, tile));
  for (const auto& [tensor, own] : tensors)
    all = both(all, known_finite(to, tensor, parts_read(tensor, own)));
  return all;
}

std::optional<ir::MaskedIterations> PositionMasks::draft() {
  if (!masks_) return std::nullopt;
  const auto& maxima = values_.tiles(masks_->maximum);
  if (maxima.empty() || !maxima[0].whole() || maxima[0].dtype != DType::f32) return std::nullopt;
  for (BlockValue tile : masks_->tiles)
    if (!staged_.find(tile)) return std::nullopt;
  const Symbol& maximum = maxima[0].registers;
  ir::MaskedIterations out;
  out.possible = masks_->scores.tile.possible;
  out.certain = both(masks_->scores.tile.always, bounds_.whole_iterations());
  if (schedule_.intervals) out.unmasked = body_.unmasked;
  out.vanishes = ir::make_registers("vanishes", Scalar::boolean, 1);
  Builder to(out.look);
  Expr all = all_finite(to, masks_->tiles);
  for (int64_t r = 0; r < maximum->count; ++r)
    all =
        both(all, ir::less_equal(ir::literal(kVanishing, Scalar::f32),
                                 ir::element(maximum, r) - ir::literal(masks_->scores.masked, Scalar::f32)));
  to.assign(ir::element(out.vanishes, 0), all);
  return out;
}

}  // namespace quern
