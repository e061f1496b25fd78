// What rows are reduced to: accumulated in loops, and combined by the threads of a row.
#include <algorithm>
#include <limits>

#include "core/codegen/rows_emitter.h"

namespace quern {

using ir::Expr;
using ir::Scalar;

namespace {

// For the model: instructions and cycles of a sum over a team; cycles of one over a cluster.
constexpr double kTeamIssue = 20, kTeamCycles = 300, kClusterCycles = 1500;

}  // namespace

void RowsEmitter::reductions(ir::Builder& to, int level) {
  std::vector<ValueId> looped;
  std::vector<std::pair<ValueId, int>> picks;
  for (const auto& [value, at] : kernel_.levels) {
    if (at != level || running_.count(value)) continue;
    if (const auto position = picked_position(value))
      picks.emplace_back(value, *position);
    else
      looped.push_back(value);
  }
  // Rows arrive while the first loop goes through them.
  if (level == 0 && looped.empty())
    for (const auto& [value, position] : std::exchange(picks, {})) looped.push_back(value);
  Combined combined;
  writer_.begin_pass();
  for (ValueId value : looped) accumulate(to, combined, value);
  if (level == 0) store_points(true);
  ir::Body step = gathered(to, true);
  const std::vector<ValueId> running = running_sums(level);
  for (ValueId value : running) run_along(to, step, value);
  loop_over_row(to, std::move(step));
  for (ValueId value : running) settle(combined, value);
  for (const auto& [value, position] : picks) {
    writer_.begin_pass();
    const Expr number = writer_.value(position, DType::i32);
    accumulate(to, combined, value);
    pick(to, number);
  }
  to.add(std::move(combined.block));
  if (combined.cluster.empty()) return;
  counter_->block().once.chain += kClusterCycles;
  to.emit(ir::Instr::cluster_barrier);
  to.add(std::move(combined.cluster));
}

RowItems RowsEmitter::row_items() const {
  return {graph_, trace_, placed_.items, place_, space_.uses(loop_) | space_.uses(element_)};
}

std::optional<int> RowsEmitter::picked_position(ValueId reduction) const {
  return shape_.team > 1 ? row_items().picked_position(reduction) : std::nullopt;
}

std::vector<ValueId> RowsEmitter::running_sums(int level) const {
  std::vector<ValueId> sums;
  for (const auto& [value, at] : kernel_.levels) {
    if (at != level + 1 || picked_position(value)) continue;
    const auto maximum = row_items().maximum_of_numerators(value);
    if (shape_.team == 1 || !maximum || kernel_.levels.at(*maximum) != level || picked_position(*maximum))
      return {};
    sums.push_back(value);
  }
  return sums;
}

Expr RowsEmitter::finite(const Expr& maximum) {
  return ir::combine(OpCode::reduce_max, maximum,
                     ir::literal(std::numeric_limits<float>::lowest(), Scalar::f32), DType::f32);
}

Expr RowsEmitter::exp_fast(const Expr& exponent) {
  return ir::call(ir::Function::exp_fast, Scalar::f32, {exponent});
}

void RowsEmitter::run_along(ir::Builder& to, ir::Body& step, ValueId value) {
  const std::string number = std::to_string(reductions_++);
  const ValueId maximum = *row_items().maximum_of_numerators(value);
  const RunningSum& own = running_[value] = {maximum, ir::make_registers("r" + number, Scalar::f32, 1),
                                             ir::make_registers("m" + number, Scalar::f32, 1)};
  const Expr sum = ir::element(own.sum, 0), relative_to = ir::element(own.relative_to, 0),
             most = writer_.held(maximum);
  for (const auto& [symbol, start] :
       {std::pair(own.sum, 0.0f), {own.relative_to, std::numeric_limits<float>::lowest()}}) {
    to.declare(symbol);
    to.assign(ir::element(symbol, 0), ir::literal(start, Scalar::f32));
  }
  ir::Builder each(step);
  const Expr now = each.let(ir::make_variable("now" + number, Scalar::f32), finite(most));
  each.assign(sum, sum * exp_fast(relative_to - now));
  each.assign(relative_to, now);
  writer_.begin_pass();
  writer_.hold(maximum, now);
  writer_.approximate(trace_.computed(value));
  const Expr term = writer_.value(trace_.computed(value), DType::f32);
  ir::Builder(writer_.body(many() ? Scope::element : Scope::loop)).combine(OpCode::reduce_sum, sum, term);
  writer_.hold(maximum, most);
  const double trips = round_trips_;  // what the step has loaded is there
  each.add(gathered(to, true));
  round_trips_ = trips;
}

void RowsEmitter::settle(Combined& combined, ValueId value) {
  const RunningSum& own = running_.at(value);
  const Expr sum = ir::element(own.sum, 0), most = writer_.held(own.maximum);
  ir::Builder(combined.block).assign(sum, sum * exp_fast(ir::element(own.relative_to, 0) - finite(most)));
  combine_team(combined, value, own.sum, own.maximum);
  ir::Builder(shape_.cluster > 1 ? combined.cluster : combined.block).assign(sum, sum + (most - most));
  writer_.hold(value, sum);
}

void RowsEmitter::accumulate(ir::Builder& to, Combined& combined, ValueId value) {
  const DType dtype = type_of(value);
  const bool array = many() && shape_.team == 1;
  const ir::Symbol sums = ir::make_registers("r" + std::to_string(reductions_++), ir::scalar_of(dtype),
                                             array ? shape_.vector : 1);
  const Expr sum = ir::element(sums, array ? Expr(writer_.variable("v")) : Expr(0));
  to.declare(sums);
  auto start = [&](ir::Builder& each) { each.assign(sum, ir::identity(code_of(value), dtype)); };
  if (array)
    to.add(element_loop(start));
  else
    start(to);
  const Expr operand = writer_.value(trace_.computed(value), dtype);
  ir::Builder(writer_.body(many() ? Scope::element : Scope::loop)).combine(code_of(value), sum, operand);
  if (shape_.team > 1) combine_team(combined, value, sums);
  writer_.hold(value, sum);
}

void RowsEmitter::pick(ir::Builder& to, const Expr& position) {
  const ir::Body body = gathered(to, false);
  const Expr place = to.let(ir::make_variable("place" + std::to_string(picks_++), writer_.index_type()),
                            ir::cast(position, writer_.index_type()));
  row_loop_.run_at(to, place, body);
}

void RowsEmitter::combine_team(Combined& combined, ValueId value, const ir::Symbol& sums,
                               std::optional<ValueId> maximum) {
  counter_->block().once.slots += kTeamIssue * warps();
  counter_->block().once.chain += kTeamCycles;
  ir::Builder to(combined.block);
  const Scalar type = sums->type;
  const Expr sum = ir::element(sums, 0), combiner = ir::combiner(code_of(value), type);
  if (shape_.team == kWarp) return to.assign(sum, ir::call(ir::Function::warp_reduce, type, {sum, combiner}));
  const int team_warps = shape_.team / kWarp;
  const ir::Symbol scratch = shared_array(to, "scratch_" + sums->name, type, team_warps);
  to.assign(sum, ir::call(ir::Function::block_reduce, type, {sum, ir::address(scratch, 0), combiner},
                          {team_warps}));
  if (shape_.cluster > 1) combine_cluster(combined, value, sums, maximum);
}

void RowsEmitter::combine_cluster(Combined& combined, ValueId value, const ir::Symbol& sums,
                                  std::optional<ValueId> maximum) {
  counter_->block().once.slots += shape_.cluster * warps();
  const Scalar type = sums->type;
  const Expr sum = ir::element(sums, 0);
  ir::Builder leave(combined.block), take(combined.cluster);
  const ir::Symbol part = shared_array(leave, "part_" + sums->name, type, 1);
  parts_.insert_or_assign(value, part);
  leave.when(equal(row_loop_.lane(), 0),
             [&](ir::Builder& first) { first.assign(ir::element(part, 0), sum); });
  const ir::Symbol other = ir::make_vector("other_" + sums->name, type, 1),
                   most = ir::make_vector("most_" + sums->name, type, 1);
  take.declare(other);
  if (maximum) take.declare(most);
  auto load = [&](const ir::Symbol& into, const ir::Symbol& left, int block) {
    take.emit(ir::Instr::load_cluster, {into, ir::address(left, 0), block}, {type, 1});
    return ir::element(into, 0);
  };
  for (int block = 0; block < shape_.cluster; ++block) {
    Expr of_block = load(other, part, block);
    if (maximum)
      of_block = of_block *
                 exp_fast(finite(load(most, parts_.at(*maximum), block)) - finite(writer_.held(*maximum)));
    if (block == 0)
      take.assign(sum, of_block);
    else
      take.combine(code_of(value), sum, of_block);
  }
}

}  // namespace quern
