// Who holds values of a block and who asks for them, and the layouts that come into question.
#include "core/codegen/block/layout_question.h"

#include <algorithm>
#include <numeric>

#include "core/codegen/block/reductions.h"

namespace quern {

namespace {

constexpr size_t kMostCandidates = 4;

void add(std::vector<RegisterLayout>& candidates, const RegisterLayout& layout) {
  if (layout.is_shared_out() || candidates.size() >= kMostCandidates) return;
  if (std::find(candidates.begin(), candidates.end(), layout) == candidates.end())
    candidates.push_back(layout);
}

}  // namespace

LayoutQuestion::LayoutQuestion(const BlockFacts& facts, const ProductPlans& plans)
    : facts_(facts),
      plans_(plans),
      program_(facts.program),
      held_(program_.ops.size()),
      variables_(program_.ops.size(), -1) {
  for (BlockValue value = 0; value < facts_.count(); ++value) visit(value);
  for (const Ask& ask : asks_)
    if (is_source(ask.value)) add_candidates(ask);
  for (const Variable& variable : tensors_) count_own(variable);
  for (const Variable& variable : tensors_) conversions_.tensors.emplace_back(variable.candidates.size(), 0);
  for (const Ask& ask : asks_) count_ask(ask);
}

std::map<BlockValue, RegisterLayout> LayoutQuestion::answer(const LayoutPlan& plan) const {
  auto chosen = [&](int variable) {
    return variable < 0 ? size_t{0} : static_cast<size_t>(plan.candidates[static_cast<size_t>(variable)]);
  };
  std::map<BlockValue, RegisterLayout> layouts;
  for (BlockValue value = 0; value < facts_.count(); ++value) {
    const size_t at = static_cast<size_t>(value);
    if (!held_[at].tiles.empty())
      layouts[value] = held_[at].tiles[chosen(held_[at].variable)].layout;
    else if (variables_[at] >= 0)
      layouts[value] = tensors_[static_cast<size_t>(variables_[at])].candidates[chosen(variables_[at])];
    else
      layouts[value] = usual(value);
  }
  return layouts;
}

bool LayoutQuestion::waits_for_parts(BlockValue value, Seen& seen) const {
  if (!seen.insert(value).second) return false;
  const BlockOp& op = program_.op(value);
  const bool stays = op.is_accumulate() || op.is_rescale_factor() || program_.stage(value) == Stage::before;
  if (!held(value).tiles.empty() && stays && !held(value).tiles[0].whole()) return true;
  if (op.is_reduce_cluster()) return true;
  if (program_.is_compute(value, OpKind::contraction) || program_.is_compute(value, OpKind::reduction))
    return false;
  return op.is_compute() && std::any_of(op.operands.begin(), op.operands.end(), [&](BlockValue operand) {
           return is_whole(value, operand) && waits_for_parts(operand, seen);
         });
}

void LayoutQuestion::visit(BlockValue value) {
  const BlockOp& op = program_.op(value);
  if (op.is_store()) return store(value);
  if (op.is_accumulate()) {
    accumulate(value);
  } else if (op.is_reduce_cluster()) {
    for (BlockValue operand : op.operands) publish(operand);
  } else if (program_.is_compute(value, OpKind::contraction)) {
    product(value);
  } else if (program_.is_compute(value, OpKind::reduction)) {
    const Layouts from = consult(op.operands[0], program_.stage(value));
    held(value).variable = from.variable;
    for (const RegisterLayout& layout : from.layouts)
      held(value).tiles.push_back(reduced_tile(program_, value, layout));
  } else if (program_.is_compute(value, OpKind::movement) && !facts_.is_free(value)) {
    for (BlockValue operand : op.operands) consult(operand, program_.stage(value));
    hold(value, facts_.blocked(value, register_type(op.type.dtype), -1));
  }
}

void LayoutQuestion::hold(BlockValue value, const RegisterLayout& layout, unsigned partial_warps) {
  RegisterTile tile;
  tile.layout = layout;
  tile.partial_warps = partial_warps;
  held(value).tiles = {tile};
}

void LayoutQuestion::product(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const MatmulPlan& plan = plans_.of(value);
  hold(value, plan.d, plan.partial_warps);
  for (size_t side : {size_t{0}, size_t{1}}) {
    if (plan.shared[side]) continue;
    if (plan.fma)
      consult(op.operands[side], program_.stage(value));
    else
      ask(op.operands[side], -1, {plans_.operand_layout(value, static_cast<int>(side))},
          program_.stage(value));
  }
}

void LayoutQuestion::accumulate(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  Held& own = held(value);
  if (op.combine() == Combine::concat) {
    consult(operand, Stage::loop);
    return hold(value, facts_.blocked(value, register_type(op.type.dtype), -1));
  }
  const bool partial = facts_.keeps_parts(value);
  if (partial) {
    own = held(operand);
  } else {
    const Layouts from = consult(operand, Stage::loop);
    own.variable = from.variable;
    for (const RegisterLayout& layout : from.layouts) own.tiles.emplace_back().layout = layout;
  }
  if (const auto at = facts_.factors.find(value); at != facts_.factors.end()) held(at->second) = own;
  if (op.combine() != Combine::rescaled_sum) return;
  const BlockValue factor = facts_.factors.at(op.operands[1]);
  const std::vector<int> dims = operand_dims(op.type.shape, program_.shape(factor));
  std::vector<RegisterLayout> wants;
  for (const RegisterTile& tile : own.tiles) wants.push_back(renumbered(tile.layout, dims));
  ask(factor, own.variable, std::move(wants), Stage::loop);
}

void LayoutQuestion::publish(BlockValue operand) {
  if (!waits_for_parts(operand)) return void(consult(operand, Stage::after));
  ask(operand, -1, {facts_.blocked(operand, DType::f32, program_.op(operand).type.rank() - 1)}, Stage::after);
}

void LayoutQuestion::store(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const DType dtype = facts_.place(op).dtype;
  const int inner = facts_.inner_dim(op);
  const RegisterLayout vectors = facts_.shared_out(value, dtype, inner, facts_.access_bits(value));
  Variable own{value, {}};
  if (waits_for_parts(op.operands[0])) own.candidates = {vectors};
  if (!vectors.is_shared_out()) {
    for (const RegisterLayout& layout : candidates(op.operands[0])) add(own.candidates, layout);
    add(own.candidates, vectors);
  } else if (own.candidates.empty()) {
    own.candidates = candidates(op.operands[0]);
  }
  const int variable = choose_for(std::move(own));
  ask(op.operands[0], variable, tensors_.back().candidates, program_.stage(value));
}

int LayoutQuestion::choose_for(Variable variable) {
  const int number = static_cast<int>(tensors_.size());
  variables_[static_cast<size_t>(variable.value)] = number;
  tensors_.push_back(std::move(variable));
  return number;
}

LayoutQuestion::Layouts LayoutQuestion::consult(BlockValue value, Stage stage) {
  if (const Held& known = held(value); !known.tiles.empty()) {
    Layouts out{known.variable, {}};
    for (const RegisterTile& tile : known.tiles) out.layouts.push_back(tile.layout);
    ask(value, known.variable, out.layouts, stage);  // parts are to be put together
    return out;
  }
  int& variable = variables_[static_cast<size_t>(value)];
  if (variable < 0) {
    variable = choose_for({value, candidates(value)});
    if (!is_source(value)) ask(value, variable, tensors_[static_cast<size_t>(variable)].candidates, stage);
  }
  return {variable, tensors_[static_cast<size_t>(variable)].candidates};
}

std::optional<RegisterLayout> LayoutQuestion::known_layout(BlockValue value, Seen& seen) const {
  if (!seen.insert(value).second) return std::nullopt;
  if (!held(value).tiles.empty()) return held(value).tiles[0].layout;
  if (const RegisterLayout* const demand = plans_.demand(value)) return *demand;
  const BlockOp& op = program_.op(value);
  if (program_.is_compute(value, OpKind::movement)) {
    const std::vector<int> dims = view_dims(program_, value);
    if (dims.empty() || std::find(dims.begin(), dims.end(), -1) != dims.end()) return std::nullopt;
    if (op.type.element_count() != program_.op(op.operands[0]).type.element_count()) return std::nullopt;
    if (auto layout = known_layout(op.operands[0], seen)) return renumbered(*layout, dims);
    return std::nullopt;
  }
  if (!facts_.is_elementwise(value)) return std::nullopt;
  for (BlockValue operand : op.operands)
    if (is_whole(value, operand))
      if (auto layout = known_layout(operand, seen)) return as_operand_of(value, operand, *layout);
  return std::nullopt;
}

RegisterLayout LayoutQuestion::as_operand_of(BlockValue value, BlockValue operand,
                                             const RegisterLayout& layout) const {
  std::vector<int> dims(program_.shape(operand).size());
  std::iota(dims.begin(), dims.end(), program_.op(value).type.rank() - static_cast<int>(dims.size()));
  return renumbered(layout, dims);
}

RegisterLayout LayoutQuestion::vectors(BlockValue value) const {
  const BlockValue root = facts_.root_load(value);
  if (root < 0) return facts_.blocked(value, DType::f32, program_.op(value).type.rank() - 1);
  return facts_.blocked(value, facts_.place(root).dtype, facts_.inner_dim(root), facts_.access_bits(root));
}

std::vector<RegisterLayout> LayoutQuestion::candidates(BlockValue value) const {
  std::vector<RegisterLayout> out;
  add(out, usual(value));
  Seen seen;
  collect(value, out, seen);
  add(out, vectors(value));
  return out;
}

void LayoutQuestion::collect(BlockValue value, std::vector<RegisterLayout>& out, Seen& seen) const {
  if (!seen.insert(value).second) return;
  for (const RegisterTile& tile : held(value).tiles) add(out, tile.layout);
  if (const RegisterLayout* const demand = plans_.demand(value)) add(out, *demand);
  if (!held(value).tiles.empty() || !program_.is_compute(value, OpKind::elementwise)) return;
  for (BlockValue operand : program_.op(value).operands) {
    if (!is_whole(value, operand)) continue;
    std::vector<RegisterLayout> of_operand;
    collect(operand, of_operand, seen);
    for (const RegisterLayout& layout : of_operand) add(out, as_operand_of(value, operand, layout));
  }
}

void LayoutQuestion::ask(BlockValue value, int variable, std::vector<RegisterLayout> wants, Stage stage,
                         Asked& asked) {
  if (program_.is_number(value)) return;
  auto& before = asked[value];  // who asks again has what was computed
  if (std::find(before.begin(), before.end(), wants) != before.end()) return;
  before.push_back(wants);
  if (is_source(value) || !held(value).tiles.empty()) {
    const bool once = program_.stage(value) == Stage::before;
    asks_.push_back({value, variable, std::move(wants), once ? 1 : times(stage)});
    return;
  }
  for (size_t i = 0; i < program_.op(value).operands.size(); ++i) {
    const std::vector<int> dims = facts_.asked_dims(value, i);
    std::vector<RegisterLayout> operands;
    for (const RegisterLayout& want : wants) operands.push_back(renumbered(want, dims));
    ask(program_.op(value).operands[i], variable, std::move(operands), stage, asked);
  }
}

void LayoutQuestion::add_candidates(const Ask& ask) {
  int& variable = variables_[static_cast<size_t>(ask.value)];
  if (variable < 0) variable = choose_for({ask.value, {usual(ask.value)}, false});
  Variable& own = tensors_[static_cast<size_t>(variable)];
  if (own.complete) return;
  for (const RegisterLayout& want : ask.wants) add(own.candidates, want);
}

Result<ChosenLayouts> choose_layouts(const BlockFacts& facts, const ProductPlans& plans, Chooser& chooser) {
  const LayoutQuestion question(facts, plans);
  auto plan = chooser.layouts(question.problem());
  if (!plan) return plan.status();
  ChosenLayouts out;
  out.layouts = question.answer(*plan);
  for (BlockValue value = 0; value < facts.count(); ++value)
    if (question.waits_for_parts(value)) out.in_parts.insert(value);
  out.cycles = plan->cost;
  out.conversion_cycles = question.conversion_cycles(*plan);
  return out;
}

}  // namespace quern
