// Which layouts the tensors of a block may have and what they cost, as a question to core/schedule's layout
// choice.
//
// Registers hold what cannot be computed again for free: sums of products in the fragments of tensor cores,
// reductions in slices of what they reduce, loads. The rest is computed where it is asked for. What there is
// to choose is how reductions, accumulators and exchanges ask for their operands, how stores ask for what
// they write, and how loads come first.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

namespace quern {

namespace {

constexpr size_t kMostCandidates = 4;
constexpr int64_t kNever = 1 << 28;  // cycles of what cannot be done
// Issue cycles of a warp: of an access to global memory and of every sector of 32 bytes that it touches; of
// an access to a tile in shared memory; of an elementwise operator.
constexpr int64_t kAccess = 4, kSector = 1, kSharedAccess = 4, kCompute = 1;
constexpr int64_t kShuffle = 4;  // and the sum

bool is_cast(const BlockOp& op) { return op.kind == BlockOp::Kind::compute && op.code == OpCode::cast; }

void add(std::vector<Spread>& candidates, const Spread& spread) {
  if (spread.is_shared_out() || candidates.size() >= kMostCandidates) return;
  if (std::find(candidates.begin(), candidates.end(), spread) == candidates.end())
    candidates.push_back(spread);
}

}  // namespace

class BlockEmitter::LayoutQuestion {
 public:
  explicit LayoutQuestion(const BlockEmitter& block)
      : block_(block),
        program_(block.program_),
        held_(program_.ops.size()),
        variables_(program_.ops.size(), -1) {
    for (BlockValue value = 0; value < count(); ++value) visit(value);
    for (const Ask& ask : asks_)
      if (is_source(ask.value)) add_candidates(ask);
    for (const Variable& variable : tensors_) count_own(variable);
    for (const Variable& variable : tensors_)
      conversions_.tensors.emplace_back(variable.candidates.size(), 0);
    for (const Ask& ask : asks_) count_ask(ask);
  }

  const LayoutProblem& problem() const { return problem_; }
  // Of what is held, so that all can be had where they are asked for.
  int64_t conversion_cycles(const LayoutPlan& plan) const {
    return *layout_cost(conversions_, plan.candidates);
  }

  std::map<BlockValue, Spread> answer(const LayoutPlan& plan) const {
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

  // Whether some of the tiles that the value is made of, element by element, are partial.
  bool waits_for_parts(BlockValue value) const {
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

 private:
  // What registers hold of a value, for every candidate of a variable; without one there is one array.
  struct Held {
    int variable = -1;
    std::vector<Array> arrays;
  };
  // A tensor with a choice.
  struct Variable {
    BlockValue value;
    std::vector<Spread> candidates;
    bool complete = true;  // no more candidates: something else depends on them
  };
  // A value that is held, or a source, asked for in a spread for every candidate of a variable (or in one).
  struct Ask {
    BlockValue value;
    int variable;
    std::vector<Spread> wants;
    int64_t times;
  };
  struct Layouts {
    int variable;
    std::vector<Spread> spreads;
  };

  BlockValue count() const { return static_cast<BlockValue>(program_.ops.size()); }
  Held& held(BlockValue value) { return held_[static_cast<size_t>(value)]; }
  const Held& held(BlockValue value) const { return held_[static_cast<size_t>(value)]; }
  // Comes from memory again whenever it is asked for in another spread.
  bool is_source(BlockValue value) const {
    const BlockOp::Kind kind = program_.op(value).kind;
    return kind == BlockOp::Kind::load || kind == BlockOp::Kind::reduce_cluster;
  }
  int64_t times(Stage stage) const { return stage == Stage::loop ? block_.kernel_.turns : 1; }

  void visit(BlockValue value) {
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

  void hold(BlockValue value, const Spread& spread, unsigned partial_warps = 0) {
    Array array;
    array.spread = spread;
    array.partial_warps = partial_warps;
    held(value).arrays = {array};
  }

  void product(BlockValue value) {
    const BlockOp& op = program_.op(value);
    const MatmulPlan& plan = block_.plans_.at(value);
    if (!plan.tensor_cores) {
      for (BlockValue operand : op.operands) consult(operand, program_.stage(value));
      return hold(value, block_.blocked(value, DType::f32, op.type.rank() - 1));
    }
    hold(value, plan.d, plan.partial_warps);
    for (size_t side : {size_t{0}, size_t{1}})
      if (!plan.shared[side])
        ask(op.operands[side], -1, {block_.operand_spread(value, side)}, program_.stage(value));
  }

  // Sums of products lie as tensor cores have them, others as their operand.
  void accumulate(BlockValue value) {
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

  void publish(BlockValue operand) {
    if (!waits_for_parts(operand)) return void(consult(operand, Stage::after));
    ask(operand, -1, {block_.blocked(operand, DType::f32, program_.op(operand).type.rank() - 1)},
        Stage::after);
  }

  // As the value lies, if every thread has whole results; else in vectors, of which every block of a cluster
  // has its part.
  void store(BlockValue value) {
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

  int choose_for(Variable variable) {
    const int number = static_cast<int>(tensors_.size());
    variables_[static_cast<size_t>(variable.value)] = number;
    tensors_.push_back(std::move(variable));
    return number;
  }

  // In which layouts an operator asks for all of an operand: where it lies, or as is to be chosen.
  Layouts consult(BlockValue value, Stage stage) {
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

  // The spread that a value has, or is asked for in by a product, or that loads it best; nothing if it is
  // made of nothing that has one.
  std::optional<Spread> known_spread(BlockValue value) const {
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

  // In vectors of the load that the value is made of.
  Spread vectors(BlockValue value) const {
    const BlockValue root = block_.root_load(value);
    if (root < 0) return block_.blocked(value, DType::f32, program_.op(value).type.rank() - 1);
    const int32_t tensor = program_.op(root).tensor;
    return block_.blocked(value, block_.places_[static_cast<size_t>(tensor)].dtype,
                          block_.inner_dim(tensor, program_.shape(root)));
  }

  Spread usual(BlockValue value) const {
    const auto spread = known_spread(value);
    return spread ? *spread : vectors(value);
  }

  // The usual one first.
  std::vector<Spread> candidates(BlockValue value) const {
    std::vector<Spread> out;
    add(out, usual(value));
    collect(value, out);
    add(out, vectors(value));
    return out;
  }

  // Those of what the value is made of, element by element.
  void collect(BlockValue value, std::vector<Spread>& out) const {
    for (const Array& array : held(value).arrays) add(out, array.spread);
    if (const auto at = block_.demands_.find(value); at != block_.demands_.end()) add(out, at->second);
    if (!held(value).arrays.empty() || !program_.is_compute(value, OpKind::elementwise)) return;
    for (BlockValue operand : program_.op(value).operands)
      if (program_.shape(operand) == program_.shape(value)) collect(operand, out);
  }

  // Down to what is held or comes from memory.
  void ask(BlockValue value, int variable, std::vector<Spread> wants, Stage stage) {
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

  void add_candidates(const Ask& ask) {
    int& variable = variables_[static_cast<size_t>(ask.value)];
    if (variable < 0) variable = choose_for({ask.value, {usual(ask.value)}, false});
    Variable& own = tensors_[static_cast<size_t>(variable)];
    if (own.complete) return;
    for (const Spread& want : ask.wants) add(own.candidates, want);
  }

  // What a tensor costs by itself.
  void count_own(const Variable& variable) {
    const BlockOp& op = program_.op(variable.value);
    std::vector<int64_t> costs;
    for (const Spread& spread : variable.candidates) {
      if (is_source(variable.value) || op.kind == BlockOp::Kind::store)
        costs.push_back(memory_cycles(variable.value, spread));
      else
        costs.push_back(spread.count() * kCompute * times(program_.stage(variable.value)));
      for (BlockValue user : program_.users[static_cast<size_t>(variable.value)])
        if (program_.is_compute(user, OpKind::reduction)) costs.back() += reduce_cycles(user, spread);
    }
    problem_.tensors.push_back(std::move(costs));
  }

  int64_t reduce_cycles(BlockValue value, const Spread& from) const {
    const Array array = block_.reduced_array(value, from);
    const int rounds = __builtin_popcount(array.partial_lanes);
    return (from.count() * kCompute + int64_t{array.spread.count()} * rounds * kShuffle) *
           times(program_.stage(value));
  }

  // Of a load or store, or of reading what the blocks of a cluster have left.
  int64_t memory_cycles(BlockValue value, const Spread& spread) const {
    const BlockOp& op = program_.op(value);
    if (op.kind == BlockOp::Kind::reduce_cluster)
      return spread.count() * block_.cluster_blocks() * kSharedAccess;
    const int inner = block_.inner_dim(op.tensor, op.type.shape),
              vector = block_.vector_bits(value, spread, inner);
    const int64_t accesses = (int64_t{spread.count()} >> vector) * times(program_.stage(value));
    if (op.kind == BlockOp::Kind::load && block_.is_staged(value)) return accesses * kSharedAccess;
    int run = vector;  // neighbours in memory that lanes have together
    for (const CoordBit& lane : spread.lanes) run += lane == CoordBit{inner, run};
    const int64_t size =
        static_cast<int64_t>(dtype_size(block_.places_[static_cast<size_t>(op.tensor)].dtype));
    const int64_t bytes = (size << vector) * 32;
    return accesses * (kAccess + bytes / std::min<int64_t>(32, size << run) * kSector);
  }

  void count_ask(const Ask& ask) {
    const Held& from = held(ask.value);
    const int variable = is_source(ask.value) ? variables_[static_cast<size_t>(ask.value)] : from.variable;
    std::vector<std::vector<int64_t>> costs;
    if (is_source(ask.value)) {
      const Variable& own = tensors_[static_cast<size_t>(variable)];
      for (const Spread& spread : own.candidates) {
        costs.emplace_back();
        for (const Spread& want : ask.wants)
          costs.back().push_back(
              serves(spread, want, program_.shape(ask.value)) ? 0 : memory_cycles(ask.value, want));
      }
    } else {
      for (const Array& array : from.arrays) {
        costs.emplace_back();
        for (const Spread& want : ask.wants)
          costs.back().push_back(block_.move_cycles(ask.value, array, want).value_or(kNever) * ask.times);
      }
    }
    if (!is_source(ask.value)) count_edge(conversions_, variable, ask.variable, costs);
    count_edge(problem_, variable, ask.variable, costs);
  }

  // Between variables, or of one alone, where the other side has no choice. What nobody can choose stands
  // with the first.
  static void count_edge(LayoutProblem& problem, int from, int to,
                         const std::vector<std::vector<int64_t>>& costs) {
    if (from >= 0 && to >= 0 && from != to) return problem.edges.push_back({from, to, costs});
    if (problem.tensors.empty()) return;
    std::vector<int64_t>& own = problem.tensors[static_cast<size_t>(std::max({from, to, 0}))];
    for (size_t i = 0; i < own.size(); ++i) own[i] += costs[from >= 0 ? i : 0][to >= 0 ? i : 0];
  }

  const BlockEmitter& block_;
  const BlockProgram& program_;
  std::vector<Held> held_;
  std::vector<int> variables_;  // of values, -1: none
  std::vector<Variable> tensors_;
  std::vector<Ask> asks_;
  LayoutProblem problem_, conversions_;
};

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
