#include "core/verify/rounded_values.h"

#include <array>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "core/graph/decompose.h"
#include "core/graph/shrink.h"
#include "core/mugraph/narrow.h"
#include "core/mugraph/shrink.h"
#include "core/verify/evaluate_mugraph.h"
#include "core/verify/field.h"

namespace quern {

namespace {

constexpr double kMostWork = 2e6, kWholeWork = 2e4;  // of an instance
constexpr uint64_t kSeed = 0x5eed0f16;
constexpr int kMostDraws = 4;
constexpr DType kNarrow[] = {DType::f16, DType::bf16};

using FieldTensor = Elements<FieldValue>;

// First of the 16-bit values of a graph: their elements. Then of block operators: whether all elements of
// theirs are among them.
class RoundedElements : public FieldDomain {
 public:
  using FieldDomain::FieldDomain;

  // Conditions are true and false in turns: a branch that is never taken would not be seen.
  Value convert(Value value, DType from, DType to) const {
    return to == DType::boolean && is_float(from) ? integer((value.p ^ value.p >> 9) & 1)
                                                  : FieldDomain::convert(value, from, to);
  }
  Value finish(const Value& value, const Node& node) {
    if (!mugraph_) note(value, node.type.dtype);
    return value;
  }
  void note(const Value& value, DType dtype) {
    for (size_t i = 0; i < std::size(kNarrow); ++i)
      if (dtype == kNarrow[i]) elements_[i].insert(key_of(value));
  }
  void enter_mugraph() { mugraph_ = true; }
  void see(const BlockOp& op, const FieldTensor& elements) {
    std::array<bool, std::size(kNarrow)>& known =
        known_.try_emplace(&op, std::array{true, true}).first->second;
    for (size_t i = 0; i < known.size(); ++i)
      for (size_t e = 0; e < elements.size() && known[i]; ++e)
        known[i] = elements_[i].contains(key_of(elements[e]));
  }
  std::optional<DType> known(const BlockOp& op) const {
    const auto at = known_.find(&op);
    for (size_t i = 0; i < std::size(kNarrow); ++i)
      if (at != known_.end() && at->second[i]) return kNarrow[i];
    return std::nullopt;
  }

 private:
  static uint64_t key_of(const Value& value) {
    return value.identity_of == OpCode::input ? value.p : ~uint64_t{0};
  }
  bool mugraph_ = false;
  std::unordered_set<uint64_t> elements_[std::size(kNarrow)];
  std::unordered_map<const BlockOp*, std::array<bool, std::size(kNarrow)>> known_;
};

std::optional<Instance> small_instance(const Graph& graph, const MuGraph& mugraph) {
  if (work(graph) + work(mugraph) <= kWholeWork) return Instance{mugraph, graph};
  auto small = shrink(mugraph, graph);
  if (!small || work(small->graph) + work(small->mugraph) > kMostWork) return std::nullopt;
  return std::move(*small);
}

// Whether the trial says something.
bool run_trial(const Instance& instance, uint64_t seed, MuGraph& mugraph) {
  RoundedElements domain(seed);
  std::vector<FieldTensor> inputs;
  for (ValueId id : instance.graph.inputs) {
    const TensorType& type = instance.graph.node(id).type;
    FieldTensor& input = inputs.emplace_back();
    for (int64_t e = 0; e < type.element_count(); ++e) {
      input.push_back(domain.random(inputs.size() - 1, static_cast<uint64_t>(e), type.dtype));
      domain.note(input.back(), type.dtype);
    }
  }
  evaluate(decompose(instance.graph), domain, inputs);
  domain.enter_mugraph();
  if (!evaluate_mugraph(instance.mugraph, domain, inputs)) return true;
  if (domain.divided_by_zero()) return false;
  for (size_t k = 0; k < mugraph.kernels.size(); ++k)
    for (size_t i = 0; i < mugraph.kernels[k].ops.size(); ++i) {
      BlockOp& op = mugraph.kernels[k].ops[i];
      const bool number = op.kind == BlockOp::Kind::compute && op.code == OpCode::constant;
      if (!op.rounds_to && !number) op.rounds_to = domain.known(instance.mugraph.kernels[k].ops[i]);
    }
  return true;
}

bool same_operators(const MuGraph& a, const MuGraph& b) {
  bool same = a.kernels.size() == b.kernels.size();
  for (size_t k = 0; same && k < a.kernels.size(); ++k)
    same = a.kernels[k].ops.size() == b.kernels[k].ops.size();
  return same;
}

}  // namespace

void note_rounded_values(const Graph& graph, MuGraph& mugraph) {
  for (MuKernel& kernel : mugraph.kernels)
    for (BlockOp& op : kernel.ops) op.rounds_to = std::nullopt;
  note_narrow_loads(mugraph);
  const std::optional<Instance> instance = small_instance(graph, mugraph);
  if (!instance || !same_operators(mugraph, instance->mugraph)) return;
  for (uint64_t draw = 0; draw < kMostDraws; ++draw)
    if (run_trial(*instance, kSeed + draw, mugraph)) return;
}

}  // namespace quern
