#include "core/verify/rounded_values.h"

#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/graph/decompose.h"
#include "core/graph/shrink.h"
#include "core/mugraph/kept_casts.h"
#include "core/mugraph/narrow.h"
#include "core/mugraph/numerators.h"
#include "core/mugraph/shrink.h"
#include "core/verify/evaluate_mugraph.h"
#include "core/verify/interface.h"
#include "core/verify/stop.h"
#include "core/verify/trial_inputs.h"

namespace quern {

namespace {

constexpr double kMostWork = 2e6, kWholeWork = 2e4;  // of an instance
constexpr uint64_t kSeed = 0x5eed0f16;
constexpr int kMostDraws = 4;

}  // namespace

void RoundedValues::note(const Value& value, DType dtype) {
  const uint64_t key = key_of(value);
  bool narrow = false;
  for (size_t i = 0; i < kNarrow.size(); ++i) {
    if (dtype == kNarrow[i]) {
      values_[i].insert(key);
      if (value.identity_of == OpCode::input) values_[i].insert(key_of(negate(value)));
    }
    narrow |= values_[i].contains(key);
  }
  // A 16-bit value that is cast to f32 afterwards is none that is computed in f32.
  if (dtype == DType::f32 && !narrow) values_[kF32].insert(key);
}

void RoundedValues::note_inputs(const Graph& graph, const std::vector<Elements<FieldValue>>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const FieldValue& value : inputs[i]) note(value, graph.node(graph.inputs[i]).type.dtype);
}

FieldValue RoundedValues::store(const Value& value, DType from, DType to) {
  const Value stored = FieldDomain::store(value, from, to);
  for (size_t i = 0; i < kNarrow.size(); ++i)
    if (to == kNarrow[i] && !values_[i].contains(key_of(stored))) invented_ = to;
  return stored;
}

void RoundedValues::see(const BlockOp& op, const Elements<FieldValue>& elements) {
  const auto [at, fresh] = seen_.try_emplace(&op);
  Known& known = at->second.all;
  if (fresh) known.fill(true);
  at->second.are_zeros &= std::all_of(elements.begin(), elements.end(),
                                      [](const FieldValue& value) { return key_of(value) == 0; });
  for (size_t i = 0; i < known.size(); ++i)
    for (size_t e = 0; e < elements.size() && known[i]; ++e)
      known[i] = values_[i].contains(key_of(elements[e]));
}

std::optional<DType> RoundedValues::known_of(const BlockOp& op, size_t first) const {
  const auto at = seen_.find(&op);
  for (size_t i = 0; i < kNarrow.size(); ++i)
    if (at != seen_.end() && at->second.all[first + i]) return kNarrow[i];
  return std::nullopt;
}

void RoundedValues::note_softmaxes(const Graph& primitive) {
  const std::vector<std::optional<DType>> dtypes = softmax_dtypes(primitive);
  for (size_t id = 0; id < dtypes.size(); ++id)
    for (size_t i = 0; i < kNarrow.size(); ++i)
      if (dtypes[id] == kNarrow[i]) softmaxes_[&primitive.nodes[id]] = kSoftmax + i;
}

bool RoundedValues::known_in_f32(const BlockOp& op) const {
  const auto at = seen_.find(&op);
  return at != seen_.end() && at->second.all[kF32] && !at->second.are_zeros;
}

namespace {

std::optional<Instance> small_instance(const Graph& graph, const MuGraph& mugraph) {
  if (work(graph) + work(mugraph) <= kWholeWork) return Instance{mugraph, graph};
  auto small = shrink(mugraph, graph, true);  // both count alike
  if (!small || work(small->graph) + work(small->mugraph) > kMostWork) return std::nullopt;
  return std::move(*small);
}

std::vector<Elements<FieldValue>> with_iotas(std::vector<Elements<FieldValue>> inputs,
                                             const ShortIotas& iotas, RoundedValues& domain) {
  for (size_t i = 0; i < iotas.by_one.size(); ++i) {
    Elements<FieldValue>& input = inputs.emplace_back();
    for (double position : iotas.by_one[i]) input.push_back(domain.number(position, iotas.dtypes[i]));
  }
  return inputs;
}

// Whether the trial says something.
bool run_trial(const Instance& instance, uint64_t seed, Stop& stop, MuGraph& mugraph) {
  Stoppable<RoundedValues> domain(stop, seed);
  const std::vector<bool> read =
      read_inputs(instance.graph, instance.mugraph, instance.graph_iotas.dtypes.size());
  std::vector<Elements<FieldValue>> inputs;
  for (size_t i = 0; i < read.size(); ++i) {
    const TensorType& type = instance.graph.node(instance.graph.inputs[i]).type;
    Elements<FieldValue>& input =
        inputs.emplace_back(static_cast<size_t>(read[i] ? type.element_count() : 0));
    domain.random(i, type.dtype, 0, 1, static_cast<int64_t>(input.size()), input.data());
  }
  const std::vector<Elements<FieldValue>> of_graph = with_iotas(inputs, instance.graph_iotas, domain);
  domain.note_inputs(instance.graph, of_graph);
  const Graph primitive = decompose(instance.graph);
  domain.note_softmaxes(primitive);
  evaluate(primitive, domain, of_graph);
  domain.enter_mugraph();
  if (!evaluate_mugraph(instance.mugraph, domain, with_iotas(inputs, instance.mugraph_iotas, domain)))
    return true;
  if (domain.divided_by_zero()) return false;
  for (size_t k = 0; k < mugraph.kernels.size(); ++k)
    for (size_t i = 0; i < mugraph.kernels[k].ops.size(); ++i) {
      BlockOp& op = mugraph.kernels[k].ops[i];
      if (op.is_compute(OpCode::constant)) continue;
      const BlockOp& small = instance.mugraph.kernels[k].ops[i];
      if (!op.rounds_to) op.rounds_to = domain.known(small);
      if (!op.softmax_rounds_to) op.softmax_rounds_to = domain.known_softmax(small);
      op.in_f32 = op.in_f32 || domain.known_in_f32(small);
    }
  return true;
}

void run_trials(const Instance& instance, Stop& stop, MuGraph& mugraph) {
  for (uint64_t draw = 0; draw < kMostDraws; ++draw)
    if (run_trial(instance, kSeed + draw, stop, mugraph)) return;
}

bool same_operators(const MuGraph& a, const MuGraph& b) {
  bool same = a.kernels.size() == b.kernels.size();
  for (size_t k = 0; same && k < a.kernels.size(); ++k)
    same = a.kernels[k].ops.size() == b.kernels[k].ops.size();
  return same;
}

}  // namespace

void note_rounded_values(const Graph& graph, MuGraph& mugraph, std::function<bool()> stop) {
  if (mugraph.noted || !check_interface(graph, mugraph).ok()) return;
  for (MuKernel& kernel : mugraph.kernels)
    for (BlockOp& op : kernel.ops) op.rounds_to = op.softmax_rounds_to = std::nullopt, op.in_f32 = false;
  note_narrow_loads(mugraph);
  Stop ask(std::move(stop));
  if (ask.now()) return;
  const std::optional<Instance> instance = small_instance(graph, mugraph);
  if (instance && same_operators(mugraph, instance->mugraph)) {
    run_trials(*instance, ask, mugraph);
    // Casts that the graph keeps precise the muGraph may round, or keep precise as well.
    const std::vector<bool> kept = kept_casts(graph);
    Instance keeping = *instance;
    if (std::find(kept.begin(), kept.end(), true) != kept.end() && mark_kept_casts(keeping.mugraph))
      run_trials(keeping, ask, mugraph);
  }
  note_in_f32(mugraph);
  scale_numerators(mugraph);
  mugraph.noted = !ask.now();
}

void copy_notes(const MuGraph& from, MuGraph& to) {
  if (!from.noted || !same_operators(from, to)) return;
  for (size_t k = 0; k < to.kernels.size(); ++k)
    for (size_t i = 0; i < to.kernels[k].ops.size(); ++i) {
      to.kernels[k].ops[i].rounds_to = from.kernels[k].ops[i].rounds_to;
      to.kernels[k].ops[i].softmax_rounds_to = from.kernels[k].ops[i].softmax_rounds_to;
      to.kernels[k].ops[i].of_narrow = from.kernels[k].ops[i].of_narrow;
      to.kernels[k].ops[i].in_f32 = from.kernels[k].ops[i].in_f32;
      to.kernels[k].ops[i].down = from.kernels[k].ops[i].down;
    }
  to.noted = true;
}

bool has_rounded_tensors(const MuGraph& mugraph) {
  return std::any_of(mugraph.tensors.begin(), mugraph.tensors.end(), [](const MuTensor& tensor) {
    return is_narrow(tensor.type.dtype);
  });
}

}  // namespace quern
