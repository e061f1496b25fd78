#include "core/codegen/arithmetic_verifier.h"

#include <algorithm>

#include "core/codegen/interpreter.h"
#include "core/codegen/short_iotas.h"
#include "core/graph/decompose.h"
#include "core/graph/shrink.h"
#include "core/graph/text.h"
#include "core/mugraph/shrink.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "core/verify/rounded_values.h"

namespace quern {

namespace {

constexpr double kWholeWork = 20'000;  // of a program that is run at its full shape
constexpr double kMostWork = 2e6;  // of an instance: beyond, one run of it for each class takes too long
constexpr double kDrawnWork = 1e6;  // of all draws of a class

double work_of(const Instance& instance) { return work(instance.graph) + work(instance.mugraph); }

ArithmeticVerdict refused(Verdict verdict, const Status& status) {
  ArithmeticVerdict out;
  out.verdict = verdict;
  out.reason = status.message();
  return out;
}

int64_t element_count(const std::vector<TensorDesc>& descs) {
  int64_t total = 0;
  for (const TensorDesc& desc : descs) total += TensorType{desc.dtype, desc.shape, false}.element_count();
  return total;
}

std::vector<RealTensor> joined(std::vector<RealTensor> inputs, const std::vector<RealTensor>& more) {
  inputs.insert(inputs.end(), more.begin(), more.end());
  return inputs;
}

}  // namespace

// One draw of the inputs of a graph, and what must come out.
struct ArithmeticVerifier::Trial {
  std::string cls;
  uint64_t seed = 0;
  std::vector<RealTensor> inputs;  // without iotas
  std::vector<Expected> expected;
};

struct ArithmeticVerifier::Trials {
  std::vector<TensorDesc> outputs;
  std::vector<Trial> list;
};

ArithmeticVerifier::ArithmeticVerifier(const Graph& graph, const ArithmeticOptions& options)
    : graph_(graph), options_(options) {}
ArithmeticVerifier::~ArithmeticVerifier() = default;

const ArithmeticVerifier::Trials& ArithmeticVerifier::trials_of(const Graph& small,
                                                                const std::vector<RealTensor>& iotas,
                                                                int draws, bool tf32) {
  const std::string key = print_graph(small) + std::to_string(draws) + (tf32 ? "tf32" : "");
  std::unique_ptr<Trials>& trials = trials_[key];
  if (trials) return *trials;
  trials = std::make_unique<Trials>();
  trials->outputs = small.output_descs();
  const Graph primitive = decompose(small);
  std::vector<TensorDesc> descs = small.input_descs();
  descs.resize(descs.size() - iotas.size());
  auto add = [&](const std::string& cls, uint64_t seed, const std::vector<std::string>& buffers) {
    Trial trial{cls, seed, {}, {}};
    for (size_t i = 0; i < descs.size(); ++i)
      trial.inputs.push_back(read_buffer(descs[i], buffers[i].data()));
    trial.expected = expect_outputs(primitive, joined(trial.inputs, iotas), tf32);
    trials->list.push_back(std::move(trial));
  };
  for (int draw = 0; draw < draws; ++draw) {
    const uint64_t seed = options_.seed + static_cast<uint64_t>(draw);
    std::vector<std::string> buffers;
    for (const TensorDesc& desc : descs) buffers.push_back(random_buffer(desc, seed * 1000 + buffers.size()));
    add("random", seed, buffers);
  }
  for (const HostileClass& cls : hostile_classes())
    for (int draw = 0; draw < draws; ++draw) {
      const uint64_t seed = options_.seed + static_cast<uint64_t>(draw);
      add(cls.name, seed, hostile_inputs(small, cls, seed));
    }
  return *trials;
}

ArithmeticVerdict ArithmeticVerifier::judge(const MuGraph& mugraph, const Schedule& schedule) {
  auto applied = apply_schedule(mugraph, schedule);
  if (applied) note_rounded_values(graph_, *applied);
  return applied ? judge_cut(*applied, &schedule) : refused(Verdict::rejected, applied.status());
}

ArithmeticVerdict ArithmeticVerifier::judge(const MuGraph& mugraph) {
  MuGraph own = mugraph;
  const Status status = validate(own);
  return status.ok() ? judge_cut(own, nullptr) : refused(Verdict::rejected, status);
}

// `schedule` is that of `mugraph`, or null.
ArithmeticVerdict ArithmeticVerifier::judge_cut(const MuGraph& mugraph, const Schedule* schedule) {
  ArithmeticVerdict out;
  Instance instance{mugraph, graph_};
  if (work_of(instance) > kWholeWork) {
    auto small = shrink(mugraph, graph_, true);
    if (small && work_of(*small) < work_of(instance)) {
      instance = std::move(*small);
      out.shrunk = true;
    }
    if (work_of(instance) > kMostWork) {
      out.reason = small ? "the smallest instance is too large to be interpreted" : small.status().message();
      return out;
    }
  }
  for (ValueId id : instance.graph.inputs) {
    const Node& node = instance.graph.node(id);
    out.inputs.push_back(node.name + ": " + print_type(node.type));
  }
  out.elements = element_count(instance.graph.output_descs());
  out.seed = options_.seed;
  out.draws = std::clamp(static_cast<int>(kDrawnWork / work_of(instance)), 1, options_.draws);

  const std::vector<RealTensor> iotas = iotas_to_inputs(graph_, instance.graph),
                                own_iotas = iotas_to_inputs(mugraph, instance.mugraph);
  const bool tf32 = schedule && std::any_of(schedule->kernels.begin(), schedule->kernels.end(),
                                            [](const KernelSchedule& kernel) { return kernel.tf32; });
  const Interpreter program(instance.mugraph, schedule);
  const auto [known, is_new] = known_.try_emplace(program.text(), out);
  if (!is_new) return known->second;
  const Trials& trials = trials_of(instance.graph, iotas, out.draws, tf32);
  out.verdict = Verdict::accepted;
  for (const Trial& trial : trials.list) {
    if (out.classes.empty() || out.classes.back() != trial.cls) out.classes.push_back(trial.cls);
    const auto actual = program.run(joined(trial.inputs, own_iotas));
    if (!actual) return known->second = refused(Verdict::rejected, actual.status());
    for (size_t i = 0; i < actual->size(); ++i) {
      const Comparison found = compare(trials.outputs[i], (*actual)[i], trial.expected[i]);
      if (found.worst > out.largest) {
        out.largest = found.worst;
        out.largest_class = trial.cls;
      }
      if (found.acceptable) continue;
      out.verdict = Verdict::rejected;
      out.reason = "class " + trial.cls + ", seed " + std::to_string(trial.seed) + ": output " +
                   std::to_string(i) + " " + found.what;
      return known->second = out;
    }
  }
  return known->second = out;
}

}  // namespace quern
