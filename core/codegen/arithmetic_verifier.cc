#include "core/codegen/arithmetic_verifier.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/codegen/interpreter.h"
#include "core/graph/decompose.h"
#include "core/graph/shrink.h"
#include "core/graph/text.h"
#include "core/mugraph/shrink.h"
#include "core/verify/brink.h"
#include "core/verify/cancelling.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "core/verify/rounded_values.h"
#include "core/verify/sampled_runs.h"
#include "core/verify/trial_inputs.h"

namespace quern {

namespace {

constexpr double kWholeWork = 20'000;  // of a program that is run at its full shape
constexpr double kMostWork = 2e6;      // of an instance: beyond, one run of it for each class takes too long
// Of the bound of an element. What comes nearer on an instance of few elements exceeds it on a million; what
// is published stays below a third.
constexpr double kMostOfBound = 0.6;
// Of it: what comes no further is looked at again with the bounds of sampled runs.
constexpr double kSampledBound = 4;
constexpr double kDrawnWork = 1e6;  // of all draws of a class
// The classes of core/verify/cancelling.h and brink.h.
constexpr const char *kCancel = "cancel", *kBrink = "brink", *kOverflow = "overflow";
constexpr const char* kCancelled = "offset";  // the class of inputs before
// Of each of them for each draw of another class.
constexpr int kCancelDraws = 2;    // what a sum is multiplied by should cancel, too
constexpr int kBrinkDraws = 2;     // inputs grow and shrink in many combinations
constexpr int kOverflowDraws = 4;  // three: signs of the terms of a sum; one: what is inside
constexpr int64_t kTerms = 8;  // of a tile's part of a sum there: some may overflow, and others oppose them

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
  classes.push_back(kCancel);
  classes.push_back(kBrink);
  classes.push_back(kOverflow);
  return classes;
}

// Where other classes have `draws`, of a graph with so many float inputs. Of a large instance one is all that
// there is time for, but factors that are grouped in another way show where one input alone is hostile.
int draws_of(const std::string& cls, int draws, int floats) {
  const HostileClass* hostile = find_hostile_class(cls);
  if (hostile && hostile->inputs == HostileInputs::either) return std::max(draws, 1 + floats);
  if (draws == 1) return 1;
  if (hostile && hostile->inputs == HostileInputs::one) return std::max(draws, floats);
  if (cls == kCancel) return draws * kCancelDraws;
  return draws * (cls == kBrink ? kBrinkDraws : cls == kOverflow ? kOverflowDraws : 1);
}

// Of the seeds that a class goes through. What is inside has none of its own.
int nth_seed(const std::pair<std::string, int>& draw) {
  const auto& [cls, number] = draw;
  return cls == kOverflow ? number - number / kOverflowDraws : number;
}

// Whether what is not finite is where it belongs. Of what is finite other classes say more: here one rounding
// counts as much as the few terms of a sum.
bool infinities_fit(DType dtype, const RealTensor& actual, const Expected& expected) {
  for (size_t e = 0; e < actual.size(); ++e)
    if (!std::isfinite(actual[e]) &&
        !noise::meets(expected.demand[e], dtype, actual[e], expected.exact[e], expected.bound[e]))
      return false;
  return true;
}

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
  bool sampled = false;  // runs with random roundings have widened the bounds

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

  Trial& get(const Draw& draw, uint64_t seed) {
    const auto [at, is_new] = known_.try_emplace(draw);
    if (is_new) at->second = make(draw, seed);
    return at->second;
  }
  // Whether bounds may be others than they were.
  bool widen(Trial& trial) const {
    if (std::exchange(trial.sampled, true)) return false;
    widen_bounds(small_, joined(trial.inputs, trial.positions(iotas_)), tf32_, trial.expected);
    return true;
  }

 private:
  Trial make(const Draw& draw, uint64_t seed) const {
    Trial trial;
    const auto& [cls, number] = draw;
    const HostileClass* hostile = find_hostile_class(cls == kCancel ? kCancelled : cls);
    // Each float input once, the weights of products too, then those that are likely to show something.
    const std::vector<std::string> buffers =
        hostile ? hostile_inputs(small_, *hostile, seed, read_, static_cast<size_t>(number)) : random(seed);
    for (size_t i = 0; i < descs_.size(); ++i)
      trial.inputs.push_back(read_[i] ? read_buffer(descs_[i], buffers[i].data()) : RealTensor());
    trial.by_one = nth_seed(draw) % 4 >= 2;
    std::vector<RealTensor> all = joined(trial.inputs, trial.positions(iotas_));
    if (!change(draw, seed, trial.inputs.size(), all)) return trial;
    std::copy_n(all.begin(), trial.inputs.size(), trial.inputs.begin());
    trial.expected = expect_outputs(primitive_, all, tf32_);
    return trial;
  }

  // What some classes make of the first `count` inputs; false if there are no such.
  bool change(const Draw& draw, uint64_t seed, size_t count, std::vector<RealTensor>& inputs) const {
    const auto& [cls, number] = draw;
    if (cls == kCancel) return cancel_sum(primitive_, inputs, count, seed, number);
    if (cls == kBrink) return scale_to_brink(primitive_, inputs, count, seed, number);
    if (cls == kOverflow) return scale_to_overflow(primitive_, inputs, count, seed, number);
    return true;
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
  Instance instance{mugraph, graph_}, sums = instance;
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
    auto terms = shrink(mugraph, graph_, true, kTerms);
    sums = terms && work_of(*terms) <= kDrawnWork ? std::move(*terms) : instance;
  }
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const Node& node = instance.graph.node(instance.graph.inputs[i]);
    out.inputs.push_back(node.name + ": " + print_type(node.type));
  }
  out.elements = element_count(instance.graph.output_descs());
  out.seed = options_.seed;
  const Run usual = prepare(std::move(instance), schedule);
  const Run of_sums = prepare(std::move(sums), schedule);
  out.draws = usual.draws;
  const std::string text = usual.program.text() + of_sums.program.text();
  if (const auto known = known_.find(text); known != known_.end()) return known->second;
  if (!run_trials(usual, of_sums, out)) return out;
  return known_[text] = out;
}

ArithmeticVerifier::Run ArithmeticVerifier::prepare(Instance instance, const Schedule* schedule) {
  const int draws = std::clamp(static_cast<int>(kDrawnWork / work_of(instance)), 1, options_.draws);
  std::vector<bool> read = read_inputs(instance.graph, instance.mugraph, instance.graph_iotas.dtypes.size());
  const bool tf32 = schedule && std::any_of(schedule->kernels.begin(), schedule->kernels.end(),
                                            [](const KernelSchedule& kernel) { return kernel.tf32; });
  std::string key = print_graph(instance.graph) + std::to_string(draws) + (tf32 ? "tf32" : "");
  for (bool one : read) key += one ? "r" : "-";
  for (const auto& positions : instance.graph_iotas.by_one)
    for (double position : positions) key += " " + std::to_string(position);
  std::unique_ptr<Trials>& trials = trials_[key];
  if (!trials)
    trials = std::make_unique<Trials>(instance.graph, std::move(instance.graph_iotas), std::move(read), tf32);
  const std::vector<TensorDesc> inputs = instance.graph.input_descs();
  const auto floats = std::count_if(inputs.begin(), inputs.end(),
                                    [](const TensorDesc& desc) { return is_float(desc.dtype); });
  return {Interpreter(instance.mugraph, schedule), std::move(instance.mugraph_iotas), *trials, draws,
          static_cast<int>(floats)};
}

// All draws of a class one after the other; in front of them the one that refused a program last, which is
// likely to refuse its likes. False when that was stopped.
bool ArithmeticVerifier::run_trials(const Run& usual, const Run& of_sums, ArithmeticVerdict& out) {
  const auto run_of = [&](const std::string& cls) -> const Run& {
    return cls == kOverflow ? of_sums : usual;
  };
  std::vector<Draw> order;
  const auto count = [&](const std::string& cls) {
    return draws_of(cls, run_of(cls).draws, run_of(cls).floats);
  };
  if (last_refusal_ && last_refusal_->second < count(last_refusal_->first)) order.push_back(*last_refusal_);
  for (const std::string& cls : input_classes())
    for (int draw = 0; draw < count(cls); ++draw)
      if (order.empty() || order[0] != Draw(cls, draw)) order.emplace_back(cls, draw);
  for (const Draw& draw : order) {
    const auto& [cls, number] = draw;
    if (std::find(out.classes.begin(), out.classes.end(), cls) == out.classes.end())
      out.classes.push_back(cls);
    const uint64_t seed = options_.seed + static_cast<uint64_t>(nth_seed(draw));
    if (options_.stop()) {
      out.reason = "stopped before all inputs were run";
      return false;
    }
    const Run& run = run_of(cls);
    if (run_trial(run, run.trials.get(draw, seed), cls, out)) continue;
    out.reason = "class " + cls + ", seed " + std::to_string(seed) + ": " + out.reason;
    last_refusal_ = draw;
    return true;
  }
  out.classes = input_classes();
  out.verdict = Verdict::accepted;
  return true;
}

// Whether it is right; `out` says what is wrong.
bool ArithmeticVerifier::run_trial(const Run& run, Trial& trial, const std::string& cls,
                                   ArithmeticVerdict& out) {
  if (trial.expected.empty()) return true;
  const auto actual = run.program.run(joined(trial.inputs, trial.positions(run.iotas)), SumOrder::worst);
  if (!actual) {
    out.verdict = Verdict::rejected;
    out.reason = actual.status().message();
    return false;
  }
  for (size_t i = 0; i < actual->size(); ++i) {
    if (cls == kOverflow && infinities_fit(run.trials.outputs[i].dtype, (*actual)[i], trial.expected[i]))
      continue;
    auto compared = [&] { return compare(run.trials.outputs[i], (*actual)[i], trial.expected[i]); };
    auto is_far_enough = [](const Comparison& found) {
      return found.acceptable && found.worst <= kMostOfBound;
    };
    Comparison found = compared();
    if (!is_far_enough(found) && found.worst < kSampledBound && run.trials.widen(trial)) found = compared();
    if (found.worst > out.largest) {
      out.largest = found.worst;
      out.largest_class = cls;
    }
    if (is_far_enough(found)) continue;
    out.verdict = Verdict::rejected;
    out.reason = "output " + std::to_string(i) + " " +
                 (found.acceptable ? "is too near its bound to stay within on more elements" : found.what);
    return false;
  }
  return true;
}

}  // namespace quern
