// Who holds values of a block and who asks for them, and the layouts that come into question.
#include "core/codegen/layout_question.h"

#include <algorithm>

namespace quern {

namespace {

constexpr size_t kMostCandidates = 4;

void add(std::vector<Spread>& candidates, const Spread& spread) {
  if (spread.is_shared_out() || candidates.size() >= kMostCandidates) return;
  if (std::find(candidates.begin(), candidates.end(), spread) == candidates.end())
    candidates.push_back(spread);
}

}  // namespace

BlockEmitter::LayoutQuestion::LayoutQuestion(const BlockEmitter& block)
    : block_(block),
      program_(block.program_),
      held_(program_.ops.size()),
      variables_(program_.ops.size(), -1) {
  for (BlockValue value = 0; value < count(); ++value) visit(value);
  for (const Ask& ask : asks_)
    if (is_source(ask.value)) add_candidates(ask);
  for (const Variable& variable : tensors_) count_own(variable);
  for (const Variable& variable : tensors_) conversions_.tensors.emplace_back(variable.candidates.size(), 0);
  for (const Ask& ask : asks_) count_ask(ask);
}

std::map<BlockValue, Spread> BlockEmitter::LayoutQuestion::answer(const LayoutPlan& plan) const {
  auto chosen = [&](int variable) {
    return variable < 0 ? size_t{0} : static_cast<size_t>(plan.candidates[static_cast<size_t>(variable)]);
  };
  std::map<BlockValue, Spread> layouts;
  for (BlockValue value = 0; value < count(); ++value) {
    const size_t at = static_cast<size_t>(value);
    if (!held_[at].arrays.empty())
      layouts[value] = held_[at].arrays[chosen(held_[at].variable)].spread;
    else if (variables_[at] >= 0)
      layouts[value] = tensors_[static_cast<size_t>(variables_[at])].candidates[chosen(variables_[at])];
    else
      layouts[value] = usual(value);
  }
  return layouts;
}

bool BlockEmitter::LayoutQuestion::waits_for_parts(BlockValue value) const {
  const BlockOp& op = program_.op(value);
  const bool stays = op.kind == BlockOp::Kind::accumulate || program_.stage(value) == Stage::before;
  if (!held(value).arrays.empty() && stays && !held(value).arrays[0].whole()) return true;
  if (op.kind == BlockOp::Kind::reduce_cluster) return true;
  if (program_.is_compute(value, OpKind::contraction) || program_.is_compute(value, OpKind::reduction))
    return false;
  return op.kind == BlockOp::Kind::compute &&
         std::any_of(op.operands.begin(), op.operands.end(), [&](BlockValue operand) {
           return program_.op(operand).type.element_count() == op.type.element_count() &&
                  waits_for_parts(operand);
         });
}

void BlockEmitter::LayoutQuestion::visit(BlockValue value) {
  const BlockOp& op = program_.op(value);
  if (op.kind == BlockOp::Kind::store) return store(value);
  if (op.kind == BlockOp::Kind::accumulate) {
    if (!op.operands.empty()) accumulate(value);
  } else if (op.kind == BlockOp::Kind::reduce_cluster) {
    for (BlockValue operand : op.operands) publish(operand);
  } else if (program_.is_compute(value, OpKind::contraction)) {
    product(value);
  } else if (program_.is_compute(value, OpKind::reduction)) {
    const Layouts from = consult(op.operands[0], program_.stage(value));
    held(value).variable = from.variable;
    for (const Spread& spread : from.spreads)
      held(value).arrays.push_back(block_.reduced_array(value, spread));
  } else if (program_.is_compute(value, OpKind::movement) && !block_.is_free(value)) {
    for (BlockValue operand : op.operands) consult(operand, program_.stage(value));
    hold(value, block_.blocked(value, register_type(op.type.dtype), -1));
  }
}

void BlockEmitter::LayoutQuestion::hold(BlockValue value, const Spread& spread, unsigned partial_warps) {
  Array array;
  array.spread = spread;
  array.partial_warps = partial_warps;
  held(value).arrays = {array};
}

void BlockEmitter::LayoutQuestion::product(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const MatmulPlan& plan = block_.plans_.at(value);
  hold(value, plan.d, plan.partial_warps);
  for (size_t side : {size_t{0}, size_t{1}}) {
    if (plan.shared[side]) continue;
    if (plan.fma)
      consult(op.operands[side], program_.stage(value));
    else
      ask(op.operands[side], -1, {block_.operand_spread(value, side)}, program_.stage(value));
  }
}

void BlockEmitter::LayoutQuestion::accumulate(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const BlockValue operand = op.operands[0];
  Held& own = held(value);
  if (op.combine == Combine::concat) {
    consult(operand, Stage::loop);
    return hold(value, block_.blocked(value, register_type(op.type.dtype), -1));
  }
  const bool partial = block_.keeps_parts(value);
  if (partial) {
    own = held(operand);
  } else {
    const Layouts from = consult(operand, Stage::loop);
    own.variable = from.variable;
    for (const Spread& spread : from.spreads) own.arrays.emplace_back().spread = spread;
  }
  if (const auto at = block_.factors_.find(value); at != block_.factors_.end()) held(at->second) = own;
  if (op.combine != Combine::rescaled_sum) return;
  const BlockValue factor = block_.factors_.at(op.operands[1]);
  const std::vector<int> dims = operand_dims(op.type.shape, program_.shape(factor));
  std::vector<Spread> wants;
  for (const Array& array : own.arrays) wants.push_back(renumbered(array.spread, dims));
  ask(factor, own.variable, std::move(wants), Stage::loop);
}

void BlockEmitter::LayoutQuestion::publish(BlockValue operand) {
  if (!waits_for_parts(operand)) return void(consult(operand, Stage::after));
  ask(operand, -1, {block_.blocked(operand, DType::f32, program_.op(operand).type.rank() - 1)}, Stage::after);
}

void BlockEmitter::LayoutQuestion::store(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const DType dtype = block_.places_[static_cast<size_t>(op.tensor)].dtype;
  const int inner = block_.inner_dim(op.tensor, op.type.shape);
  const Spread vectors = block_.shared_out(value, dtype, inner);
  Variable own{value, {}};
  if (waits_for_parts(op.operands[0])) own.candidates = {vectors};
  if (!vectors.is_shared_out()) {
    for (const Spread& spread : candidates(op.operands[0])) add(own.candidates, spread);
    add(own.candidates, vectors);
  } else if (own.candidates.empty()) {
    own.candidates = candidates(op.operands[0]);
  }
  const int variable = choose_for(std::move(own));
  ask(op.operands[0], variable, tensors_.back().candidates, program_.stage(value));
}

int BlockEmitter::LayoutQuestion::choose_for(Variable variable) {
  const int number = static_cast<int>(tensors_.size());
  variables_[static_cast<size_t>(variable.value)] = number;
  tensors_.push_back(std::move(variable));
  return number;
}

BlockEmitter::LayoutQuestion::Layouts BlockEmitter::LayoutQuestion::consult(BlockValue value, Stage stage) {
  if (const Held& known = held(value); !known.arrays.empty()) {
    Layouts out{known.variable, {}};
    for (const Array& array : known.arrays) out.spreads.push_back(array.spread);
    ask(value, known.variable, out.spreads, stage);  // parts are to be put together
    return out;
  }
  int& variable = variables_[static_cast<size_t>(value)];
  if (variable < 0) {
    variable = choose_for({value, candidates(value)});
    if (!is_source(value)) ask(value, variable, tensors_[static_cast<size_t>(variable)].candidates, stage);
  }
  return {variable, tensors_[static_cast<size_t>(variable)].candidates};
}

std::optional<Spread> BlockEmitter::LayoutQuestion::known_spread(BlockValue value) const {
  if (!held(value).arrays.empty()) return held(value).arrays[0].spread;
  if (const auto at = block_.demands_.find(value); at != block_.demands_.end()) return at->second;
  const BlockOp& op = program_.op(value);
  if (program_.is_compute(value, OpKind::movement)) {
    const std::vector<int> dims = view_dims(program_, value);
    if (dims.empty() || std::find(dims.begin(), dims.end(), -1) != dims.end()) return std::nullopt;
    if (op.type.element_count() != program_.op(op.operands[0]).type.element_count()) return std::nullopt;
    if (auto spread = known_spread(op.operands[0])) return renumbered(*spread, dims);
    return std::nullopt;
  }
  if (!program_.is_compute(value, OpKind::elementwise) && !is_cast(op)) return std::nullopt;
  for (BlockValue operand : op.operands)
    if (program_.shape(operand) == op.type.shape)
      if (auto spread = known_spread(operand)) return spread;
  return std::nullopt;
}

Spread BlockEmitter::LayoutQuestion::vectors(BlockValue value) const {
  const BlockValue root = block_.root_load(value);
  if (root < 0) return block_.blocked(value, DType::f32, program_.op(value).type.rank() - 1);
  const int32_t tensor = program_.op(root).tensor;
  return block_.blocked(value, block_.places_[static_cast<size_t>(tensor)].dtype,
                        block_.inner_dim(tensor, program_.shape(root)));
}

std::vector<Spread> BlockEmitter::LayoutQuestion::candidates(BlockValue value) const {
  std::vector<Spread> out;
  add(out, usual(value));
  collect(value, out);
  add(out, vectors(value));
  return out;
}

void BlockEmitter::LayoutQuestion::collect(BlockValue value, std::vector<Spread>& out) const {
  for (const Array& array : held(value).arrays) add(out, array.spread);
  if (const auto at = block_.demands_.find(value); at != block_.demands_.end()) add(out, at->second);
  if (!held(value).arrays.empty() || !program_.is_compute(value, OpKind::elementwise)) return;
  for (BlockValue operand : program_.op(value).operands)
    if (program_.shape(operand) == program_.shape(value)) collect(operand, out);
}

void BlockEmitter::LayoutQuestion::ask(BlockValue value, int variable, std::vector<Spread> wants,
                                       Stage stage) {
  if (program_.is_number(value)) return;
  if (is_source(value) || !held(value).arrays.empty()) {
    const bool once = program_.stage(value) == Stage::before;
    asks_.push_back({value, variable, std::move(wants), once ? 1 : times(stage)});
    return;
  }
  for (size_t i = 0; i < program_.op(value).operands.size(); ++i) {
    const std::vector<int> dims = block_.asked_dims(value, i);
    std::vector<Spread> operands;
    for (const Spread& want : wants) operands.push_back(renumbered(want, dims));
    ask(program_.op(value).operands[i], variable, std::move(operands), stage);
  }
}

void BlockEmitter::LayoutQuestion::add_candidates(const Ask& ask) {
  int& variable = variables_[static_cast<size_t>(ask.value)];
  if (variable < 0) variable = choose_for({ask.value, {usual(ask.value)}, false});
  Variable& own = tensors_[static_cast<size_t>(variable)];
  if (own.complete) return;
  for (const Spread& want : ask.wants) add(own.candidates, want);
}
Status BlockEmitter::choose_layouts() {
  const LayoutQuestion question(*this);
  auto plan = chooser_.layouts(question.problem());
  if (!plan) return plan.status();
  layouts_ = question.answer(*plan);
  for (BlockValue value = 0; value < static_cast<BlockValue>(program_.ops.size()); ++value)
    if (question.waits_for_parts(value)) in_parts_.insert(value);
  layout_cycles_ = plan->cost;
  planned_conversion_cycles_ = question.conversion_cycles(*plan);
  return {};
}

}  // namespace quern
