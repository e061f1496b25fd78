#include "core/codegen/arithmetic_verifier.h"

#include <algorithm>

#include "core/codegen/interpreter.h"
#include "core/codegen/short_iotas.h"
#include "core/graph/decompose.h"
#include "core/graph/shrink.h"
#include "core/graph/text.h"
#include "core/mugraph/shrink.h"
#include "core/verify/brink.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "core/verify/rounded_values.h"
#include "core/verify/trial_inputs.h"

namespace quern {

namespace {

constexpr double kWholeWork = 20'000;  // of a program that is run at its full shape
constexpr double kMostWork = 2e6;      // of an instance: beyond, one run of it for each class takes too long
// Of the bound of an element. What comes nearer on an instance of few elements exceeds it on a million; what is
// published stays below a third.
constexpr double kMostOfBound = 0.75;
constexpr double kDrawnWork = 1e6;       // of all draws of a class
constexpr const char* kBrink = "brink";  // the class of core/verify/brink.h
constexpr int kBrinkDraws = 2;  // for each draw of another class: inputs grow and shrink in many combinations

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

std::vector<std::string> input_classes() {
  std::vector<std::string> classes = {"random"};
  for (const HostileClass& cls : hostile_classes()) classes.push_back(cls.name);
  classes.push_back(kBrink);
  return classes;
}

// Where other classes have `draws`.
int draws_of(const std::string& cls, int draws) { return cls == kBrink ? kBrinkDraws * draws : draws; }

std::vector<RealTensor> joined(std::vector<RealTensor> inputs, const std::vector<RealTensor>& more) {
  inputs.insert(inputs.end(), more.begin(), more.end());
  return inputs;
}

}  // namespace

// One draw of the inputs of a graph, and what must come out.
struct ArithmeticVerifier::Trial {
  std::vector<RealTensor> inputs;  // without iotas; empty where nobody reads it
  std::vector<Expected> expected;  // none: there are no such inputs
  bool by_one = false;

  const std::vector<RealTensor>& positions(const ShortIotas& iotas) const {
    return by_one ? iotas.by_one : iotas.in_strides;
  }
};

// Those of a small graph, made when they are asked for.
class ArithmeticVerifier::Trials {
 public:
  // `iotas` are the last inputs; `read` says which of the others are.
  Trials(const Graph& small, ShortIotas iotas, std::vector<bool> read, bool tf32)
      : outputs(small.output_descs()),
        small_(small),
        primitive_(decompose(small)),
        iotas_(std::move(iotas)),
        read_(std::move(read)),
        descs_(small.input_descs()),
        tf32_(tf32) {
    descs_.resize(descs_.size() - iotas_.by_one.size());
  }

  const std::vector<TensorDesc> outputs;

  const Trial& get(const Draw& draw, uint64_t seed) {
    const auto [at, is_new] = known_.try_emplace(draw);
    if (is_new) at->second = make(draw, seed);
    return at->second;
  }

 private:
  Trial make(const Draw& draw, uint64_t seed) const {
    Trial trial;
    const auto& [cls, number] = draw;
    const HostileClass* hostile = find_hostile_class(cls);
    const std::vector<std::string> buffers =
        hostile ? hostile_inputs(small_, *hostile, seed, read_) : random(seed);
    for (size_t i = 0; i < descs_.size(); ++i)
      trial.inputs.push_back(read_[i] ? read_buffer(descs_[i], buffers[i].data()) : RealTensor());
    trial.by_one = number % 4 >= 2;
    std::vector<RealTensor> all = joined(trial.inputs, trial.positions(iotas_));
    const bool brink = cls == kBrink && scale_to_brink(primitive_, all, trial.inputs.size(), seed, number);
    if (brink) std::copy_n(all.begin(), trial.inputs.size(), trial.inputs.begin());
    if (brink || cls != kBrink) trial.expected = expect_outputs(primitive_, all, tf32_);
    return trial;
  }

  std::vector<std::string> random(uint64_t seed) const {
    std::vector<std::string> buffers;
    for (size_t i = 0; i < descs_.size(); ++i)
      buffers.push_back(read_[i] ? random_buffer(descs_[i], seed * 1000 + i) : "");
    return buffers;
  }

  const Graph small_, primitive_;
  const ShortIotas iotas_;
  const std::vector<bool> read_;
  std::vector<TensorDesc> descs_;
  const bool tf32_;
  std::map<Draw, Trial> known_;
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
  ShortIotas iotas = iotas_to_inputs(graph_, instance.graph);
  const ShortIotas own_iotas = iotas_to_inputs(mugraph, instance.mugraph);
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

// All draws of a class one after the other; in front of them the one that refused a program last, which is likely to
// refuse its likes. False when that was stopped.
bool ArithmeticVerifier::run_trials(const Interpreter& program, const ShortIotas& iotas, Trials& trials,
                                    ArithmeticVerdict& out) {
  std::vector<Draw> order;
  if (last_refusal_ && last_refusal_->second < draws_of(last_refusal_->first, out.draws))
    order.push_back(*last_refusal_);
  for (const std::string& cls : input_classes())
    for (int draw = 0; draw < draws_of(cls, out.draws); ++draw)
      if (order.empty() || order[0] != Draw(cls, draw)) order.emplace_back(cls, draw);
  for (const Draw& draw : order) {
    const auto& [cls, number] = draw;
    if (std::find(out.classes.begin(), out.classes.end(), cls) == out.classes.end())
      out.classes.push_back(cls);
    const uint64_t seed = options_.seed + static_cast<uint64_t>(number);
    if (options_.stop()) {
      out.reason = "stopped before all inputs were run";
      return false;
    }
    if (run_trial(program, iotas, trials, trials.get(draw, seed), cls, out)) continue;
    out.reason = "class " + cls + ", seed " + std::to_string(seed) + ": " + out.reason;
    last_refusal_ = draw;
    return true;
  }
  out.classes = input_classes();
  out.verdict = Verdict::accepted;
  return true;
}

// Whether it is right; `out` says what is wrong.
bool ArithmeticVerifier::run_trial(const Interpreter& program, const ShortIotas& iotas, const Trials& trials,
                                   const Trial& trial, const std::string& cls, ArithmeticVerdict& out) const {
  if (trial.expected.empty()) return true;
  const auto actual = program.run(joined(trial.inputs, trial.positions(iotas)));
  if (!actual) {
    out.verdict = Verdict::rejected;
    out.reason = actual.status().message();
    return false;
  }
  for (size_t i = 0; i < actual->size(); ++i) {
    const Comparison found = compare(trials.outputs[i], (*actual)[i], trial.expected[i]);
    if (found.worst > out.largest) {
      out.largest = found.worst;
      out.largest_class = cls;
    }
    if (found.acceptable && found.worst <= kMostOfBound) continue;
    out.verdict = Verdict::rejected;
    out.reason = "output " + std::to_string(i) + " " +
                 (found.acceptable ? "is too near its bound to stay within on more elements" : found.what);
    return false;
  }
  return true;
}

}  // namespace quern
