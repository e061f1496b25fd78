#include "core/codegen/arithmetic_verifier.h"

#include <algorithm>
#include <deque>

#include "core/codegen/interpreter.h"
#include "core/codegen/short_iotas.h"
#include "core/graph/decompose.h"
#include "core/graph/shrink.h"
#include "core/graph/text.h"
#include "core/mugraph/shrink.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "core/verify/rounded_values.h"
#include "core/verify/trial_inputs.h"

namespace quern {

namespace {

constexpr double kWholeWork = 20'000;  // of a program that is run at its full shape
constexpr double kMostWork = 2e6;      // of an instance: beyond, one run of it for each class takes too long
constexpr double kDrawnWork = 1e6;     // of all draws of a class

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
  std::vector<RealTensor> inputs;  // without iotas; empty where nobody reads it
  std::vector<Expected> expected;
};

// Those of a small graph, made when they are asked for.
class ArithmeticVerifier::Trials {
 public:
  // `iotas` are the last inputs; `read` says which of the others are.
  Trials(const Graph& small, std::vector<RealTensor> iotas, std::vector<bool> read, bool tf32)
      : outputs(small.output_descs()),
        small_(small),
        primitive_(decompose(small)),
        iotas_(std::move(iotas)),
        read_(std::move(read)),
        descs_(small.input_descs()),
        tf32_(tf32) {
    descs_.resize(descs_.size() - iotas_.size());
  }

  const std::vector<TensorDesc> outputs;

  // Of a class, random inputs without one, by number.
  const Trial& get(size_t number, const HostileClass* cls, uint64_t seed) {
    if (number < list_.size()) return list_[number];
    Trial trial;
    const std::vector<std::string> buffers = cls ? hostile_inputs(small_, *cls, seed, read_) : random(seed);
    for (size_t i = 0; i < descs_.size(); ++i)
      trial.inputs.push_back(read_[i] ? read_buffer(descs_[i], buffers[i].data()) : RealTensor());
    trial.expected = expect_outputs(primitive_, joined(trial.inputs, iotas_), tf32_);
    list_.push_back(std::move(trial));
    return list_.back();
  }

 private:
  std::vector<std::string> random(uint64_t seed) const {
    std::vector<std::string> buffers;
    for (size_t i = 0; i < descs_.size(); ++i)
      buffers.push_back(read_[i] ? random_buffer(descs_[i], seed * 1000 + i) : "");
    return buffers;
  }

  const Graph small_, primitive_;
  const std::vector<RealTensor> iotas_;
  const std::vector<bool> read_;
  std::vector<TensorDesc> descs_;
  const bool tf32_;
  std::deque<Trial> list_;
};

ArithmeticVerifier::ArithmeticVerifier(const Graph& graph, const ArithmeticOptions& options)
    : graph_(graph), options_(options) {}
ArithmeticVerifier::~ArithmeticVerifier() = default;

ArithmeticVerdict ArithmeticVerifier::judge(const MuGraph& mugraph, const Schedule& schedule) {
  MuGraph noted = mugraph;
  note_rounded_values(graph_, noted);
  auto applied = apply_schedule(noted, schedule);
  return applied ? judge_cut(*applied, &schedule) : refused(Verdict::rejected, applied.status());
}

ArithmeticVerdict ArithmeticVerifier::judge(const MuGraph& mugraph) {
  MuGraph own = mugraph;
  const Status status = validate(own);
  if (status.ok()) note_rounded_values(graph_, own);
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

  std::vector<bool> read = read_inputs(instance.graph, instance.mugraph);
  std::vector<RealTensor> iotas = iotas_to_inputs(graph_, instance.graph);
  const std::vector<RealTensor> own_iotas = iotas_to_inputs(mugraph, instance.mugraph);
  const bool tf32 = schedule && std::any_of(schedule->kernels.begin(), schedule->kernels.end(),
                                            [](const KernelSchedule& kernel) { return kernel.tf32; });
  const Interpreter program(instance.mugraph, schedule);
  const std::string text = program.text();
  if (const auto known = known_.find(text); known != known_.end()) return known->second;
  std::string key = print_graph(instance.graph) + std::to_string(out.draws) + (tf32 ? "tf32" : "");
  for (bool one : read) key += one ? "r" : "-";
  std::unique_ptr<Trials>& trials = trials_[key];
  if (!trials) trials = std::make_unique<Trials>(instance.graph, std::move(iotas), std::move(read), tf32);
  if (!run_trials(program, own_iotas, *trials, out)) return out;
  return known_[text] = out;
}

// All draws of a class one after the other. False when that was stopped.
bool ArithmeticVerifier::run_trials(const Interpreter& program, const std::vector<RealTensor>& iotas,
                                    Trials& trials, ArithmeticVerdict& out) const {
  std::vector<const HostileClass*> classes = {nullptr};  // random inputs
  for (const HostileClass& cls : hostile_classes()) classes.push_back(&cls);
  size_t number = 0;
  for (const HostileClass* cls : classes) {
    out.classes.push_back(cls ? cls->name : "random");
    for (int draw = 0; draw < out.draws; ++draw) {
      const uint64_t seed = options_.seed + static_cast<uint64_t>(draw);
      if (options_.stop()) {
        out.reason = "stopped before all inputs were run";
        return false;
      }
      if (run_trial(program, iotas, trials, trials.get(number++, cls, seed), out)) continue;
      out.reason = "class " + out.classes.back() + ", seed " + std::to_string(seed) + ": " + out.reason;
      return true;
    }
  }
  out.verdict = Verdict::accepted;
  return true;
}

// Whether it is right; `out` says what is wrong.
bool ArithmeticVerifier::run_trial(const Interpreter& program, const std::vector<RealTensor>& iotas,
                                   const Trials& trials, const Trial& trial, ArithmeticVerdict& out) const {
  const auto actual = program.run(joined(trial.inputs, iotas));
  if (!actual) {
    out.verdict = Verdict::rejected;
    out.reason = actual.status().message();
    return false;
  }
  for (size_t i = 0; i < actual->size(); ++i) {
    const Comparison found = compare(trials.outputs[i], (*actual)[i], trial.expected[i]);
    if (found.worst > out.largest) {
      out.largest = found.worst;
      out.largest_class = out.classes.back();
    }
    if (found.acceptable) continue;
    out.verdict = Verdict::rejected;
    out.reason = "output " + std::to_string(i) + " " + found.what;
    return false;
  }
  return true;
}

}  // namespace quern
