#include "core/codegen/block/position_masks.h"

#include <limits>
#include <utility>

#include "core/base/dtype_info.h"
#include "core/base/integers.h"
#include "core/codegen/finite_parts.h"

namespace quern {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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

Expr words_are_zero(Builder& to, const std::string& name, ir::Instr load, const Symbol& memory,
                    const Expr& first, int64_t count, int64_t threads) {
  constexpr int64_t kAtOnce = 8;  // loads, of which none waits for another
  const int64_t loads = divide_up(count, threads);
  const Symbol found = ir::make_registers(name + "_found", Scalar::boolean, 1),
               part = ir::make_registers(name + "_part", Scalar::f32, 1),
               some = ir::make_variable(name + "_some", Scalar::i32);
  to.declare(found);
  to.assign(ir::element(found, 0), ir::truth(true));
  auto look = [&](Builder& each, const Expr& number) {
    const Expr at = each.named(name + "_at", number * threads + ir::thread_index());
    each.declare(part);
    each.emit(load, {ir::address(part, 0), ir::address(memory, first + at), less(at, count)},
              {Scalar::f32, 1, false});
    each.assign(ir::element(found, 0),
                both(ir::element(found, 0), equal(ir::element(part, 0), ir::literal(0, Scalar::f32))));
  };
  if (loads <= kAtOnce)
    to.unrolled(name + "_number", loads, look);
  else
    to.rolled(some, 0, divide_up(loads, kAtOnce), [&](Builder& few) {
      few.unrolled(name + "_number", kAtOnce,
                   [&](Builder& each, const Expr& number) { look(each, Expr(some) * kAtOnce + number); });
    });
  return ir::element(found, 0);
}

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

const std::optional<TileTruth<Expr>>& PositionMasks::known_truth(BlockValue condition) {
  const auto at = truths_.find(condition);
  return at != truths_.end() ? at->second : truths_[condition] = tile_truth(condition);
}

// What there is to pass over.
std::optional<PositionMasks::PassedOver> PositionMasks::passed_over() {
  if (schedule_.stages < 2) return std::nullopt;
  const auto work = masked_work(program_.ops, program_.stages,
                                [this](BlockValue condition) { return known_truth(condition).has_value(); });
  if (!work) return std::nullopt;
  PassedOver out{*work};
  std::set<std::vector<BlockValue>> seen;
  for (const std::vector<BlockValue>& chain : work->chains) {
    out.selects.insert(chain.begin(), chain.end());
    std::vector<BlockValue> conditions;
    for (BlockValue select : chain) conditions.push_back(program_.op(select).operands[0]);
    if (!seen.insert(conditions).second) continue;
    Expr possible = ir::truth(true);
    for (BlockValue condition : conditions) {
      const TileTruth<Expr>& truth = *known_truth(condition);
      out.tile.always = both(out.tile.always, truth.always);
      possible = both(possible, truth.possible);
    }
    out.tile.possible = either(out.tile.possible, possible);
  }
  if (out.tile.possible.is_number()) return std::nullopt;
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
  const std::string name = "finite" + std::to_string(tensor);
  TensorPlace& place =
      watched_
          .emplace(tensor, TensorPlace{name,
                                       DType::f32,
                                       {finite_parts(facts_.places[static_cast<size_t>(tensor)].shape)},
                                       {1},
                                       {}})
          .first->second;
  return words_are_zero(to, name, ir::Instr::load_global, memory_.pointer(-1, place), parts.first,
                        parts.count, schedule_.workers());
}

void PositionMasks::find() {
  // An iteration that overlaps the next has begun before it is known that it does nothing.
  if (schedule_.overlap && !schedule_.intervals) return;
  if (facts_.verdicts_in_front) return;  // all is wanted
  masks_ = passed_over();
  if (masks_ && schedule_.intervals) body_.masked_selects = masks_->selects;
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

// The registers that hold a value when the loop is through with what it did; nothing if none do.
const RegisterTile* PositionMasks::held(BlockValue value) const {
  const auto& tiles = values_.tiles(value);
  const bool is_there = !tiles.empty() && tiles[0].whole() && tiles[0].dtype == DType::f32 &&
                        (program_.op(value).is_accumulate() || tiles[0].scope == Stage::before);
  return is_there ? &tiles[0] : nullptr;
}

std::optional<ir::MaskedIterations> PositionMasks::draft() {
  if (!masks_) return std::nullopt;
  std::set<BlockValue> tiles;
  std::vector<BlockValue> rows;
  for (BlockValue value : masks_->work.finite)
    if (staged_.find(value) && program_.stage(value) == Stage::loop)
      tiles.insert(value);
    else
      rows.push_back(value);
  for (BlockValue value : rows)
    if (!held(value)) return std::nullopt;
  for (const MaskedWork::FarAbove& each : masks_->work.far_above)
    if (!held(each.value)) return std::nullopt;
  ir::MaskedIterations out;
  out.possible = masks_->tile.possible;
  out.certain = both(masks_->tile.always, bounds_.whole_iterations());
  if (schedule_.intervals) out.unmasked = body_.unmasked;
  if (facts_.verdicts) {
    for (BlockValue tile : std::exchange(tiles, {})) {
      const auto sums = sums_of_products(program_.ops, tile);
      for (BlockValue sum : sums.value_or(std::set<BlockValue>{})) {
        if (!held(sum)) return std::nullopt;
        out.sums.push_back(held(sum)->registers);
      }
      if (!sums) return std::nullopt;
    }
  }
  out.vanishes = ir::make_registers("vanishes", Scalar::boolean, 1);
  Builder to(out.look);
  Expr all = all_finite(to, tiles);
  auto number = [](double value) { return ir::literal(value, Scalar::f32); };
  auto each_of = [&](BlockValue value, const auto& test) {
    const Symbol& registers = held(value)->registers;
    for (int64_t r = 0; r < registers->count; ++r) all = both(all, test(ir::element(registers, r)));
  };
  for (const MaskedWork::FarAbove& far : masks_->work.far_above)
    each_of(far.value,
            [&](const Expr& row) { return ir::less_equal(number(kFarAbove), row - number(far.number)); });
  for (BlockValue value : rows)
    each_of(value, [&](const Expr& row) {
      return both(ir::less(number(-kInfinity), row), ir::less(row, number(kInfinity)));
    });
  to.assign(ir::element(out.vanishes, 0), all);
  return out;
}

}  // namespace quern
