#include "core/verify/verifier.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/graph/decompose.h"
#include "core/graph/shrink.h"
#include "core/mugraph/kept_casts.h"
#include "core/mugraph/shrink.h"
#include "core/verify/degree.h"
#include "core/verify/evaluate_mugraph.h"
#include "core/verify/findings.h"
#include "core/verify/full_shape.h"
#include "core/verify/interface.h"
#include "core/verify/numbers.h"
#include "core/verify/rounded_values.h"
#include "core/verify/trial_inputs.h"

namespace quern {

namespace {

constexpr int kMaxTrials = 40, kMaxRedrawn = 8;
constexpr double kMostWork = 2e6;  // of an instance that could not be shrunk; as the arithmetic verifier has it
// Ordered trials: those that every program needs, where nothing depends on an order; and as many more as cost
// little, or as it takes to see every branch of every condition.
constexpr int kFewTrials = 4, kMoreTrials = 64, kMostTrials = 256;
constexpr double kMostTrialWork = 2e6;  // of all trials together, once every kind of input was shown twice
constexpr int kRealDraws = 30;      // to see a difference that the field has seen as one of real numbers

using FieldTensor = Elements<FieldValue>;
using OrderedTensor = Elements<OrderedValue>;

std::string coordinates(const Ints& shape, int64_t offset) {
  Ints at;
  for (int64_t stride : dense_strides(shape)) {
    at.push_back(offset / stride);
    offset %= stride;
  }
  return print_ints(at);
}

std::string element_name(const Graph& graph, size_t output, int64_t at) {
  const Node& node = graph.node(graph.outputs[output]);
  return "output " + std::to_string(output) + " " + coordinates(node.type.shape, at);
}

// Whether the order of values can matter: then the outcomes of ordered trials are many.
bool depends_on_order(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    switch (node.code) {
      case OpCode::max:
      case OpCode::min:
      case OpCode::relu:
      case OpCode::abs:
      case OpCode::lt:
      case OpCode::le:
      case OpCode::eq:
      case OpCode::where:
      case OpCode::cast:
      case OpCode::reduce_max:
        return true;
      default:
        return !is_float(node.type.dtype);
    }
  });
}

class Judgement {
 public:
  // `keeps_casts`: casts of the muGraph that are only multiplied keep precision.
  Judgement(const Graph& graph, const MuGraph& mugraph, bool keeps_casts, const VerifyOptions& options,
            FullShape& full_shape)
      : options_(options),
        graph_(graph),
        mugraph_(mugraph),
        keeps_casts_(keeps_casts),
        full_shape_(full_shape),
        seeds_(options.seed),
        stop_(options.stop) {
    certificate_.graph = graph.name;
    certificate_.mugraph = mugraph.name;
    certificate_.seed = options.seed;
  }

  Certificate run() {
    decide();
    return std::move(certificate_);
  }

 private:
  uint64_t next_seed() {
    // splitmix64 (Steele, Lea, Flood 2014)
    uint64_t z = seeds_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  void conclude(Verdict verdict, std::string reason = "") {
    certificate_.verdict = verdict;
    certificate_.reason = std::move(reason);
  }

  void decide() {
    if (Status status = validate(mugraph_); !status.ok())
      return conclude(Verdict::rejected, "the muGraph is not valid: " + status.message());
    if (Status status = check_interface(graph_, mugraph_); !status.ok())
      return conclude(Verdict::rejected, status.message());
    if (keeps_casts_ && !mark_kept_casts(mugraph_))
      return conclude(Verdict::rejected, "no cast of the muGraph keeps precision");
    if (!choose_instance()) return;
    certificate_.method =
        "random evaluation mod p = 2q + 1 and q, exp(x) = w^x; ordered values over the same field";
    if (keeps_casts_) certificate_.method += "; casts that are only multiplied keep precision";
    primitive_ = decompose(instance_.graph);
    read_ = read_inputs(instance_.graph, instance_.mugraph);
    literals_ = finite_numbers(graph_, mugraph_);
    for (ValueId id : instance_.graph.inputs) {
      const Node& node = instance_.graph.node(id);
      certificate_.inputs.push_back(node.name + ": " + print_type(node.type));
    }
    if (run_all_trials()) conclude_nothing_differs();
    if (stopped_) conclude(Verdict::undecided, "stopped before all trials were made");
  }

  // False when that settles it, or when it was stopped.
  bool run_all_trials() {
    if (!bound_error()) return false;
    for (int trials = 0; trials < wanted_trials_; ++trials)
      if (!run_trial()) return false;
    return run_ordered_trials() && (!certificate_.shrunk || compare_samples());
  }

  // In the middle of trials, which say nothing then.
  bool stopped() { return stopped_ |= stop_.now(); }

  void conclude_nothing_differs() {
    if (certificate_.error_bound > options_.max_error)
      return conclude(Verdict::undecided,
                      "the programs are too complicated: nothing differs, but the error bound is " +
                          print_number(certificate_.error_bound));
    for (const auto& [what, coverage] : {std::pair{"graph", &graph_coverage_}, {"muGraph", &mugraph_coverage_}})
      if (const std::string branch = coverage->missing(); !branch.empty())
        return conclude(Verdict::undecided, "no trial shows " + branch + " of the " + what + " in an output");
    if (const std::optional<size_t> output = sameness_.constant())
      return conclude(Verdict::undecided,
                      "output " + std::to_string(*output) + " is the same number in all trials");
    conclude(Verdict::accepted);
  }

  // ---- the instance ----

  bool choose_instance() {
    const double whole = work(graph_) + work(mugraph_);
    instance_ = {mugraph_, graph_};
    if (whole <= options_.whole_work) return true;
    auto small = shrink(mugraph_, graph_);
    if (small && work(small->graph) + work(small->mugraph) < whole) {
      instance_ = std::move(*small);
      certificate_.shrunk = true;
    }
    if (work(instance_.graph) + work(instance_.mugraph) <= kMostWork) return true;
    // Too large to be accepted, but sampled elements may show that it is wrong.
    certificate_.shrunk = true;
    if (compare_samples())
      conclude(Verdict::undecided,
               small ? "the smallest instance is too large to be evaluated" : small.status().message());
    return false;
  }

  // ---- trials in the field ----

  std::vector<FieldTensor> random_inputs(const FieldDomain& domain) const {
    std::vector<FieldTensor> inputs;
    for (size_t i = 0; i < instance_.graph.inputs.size(); ++i) {
      const TensorType& type = instance_.graph.node(instance_.graph.inputs[i]).type;
      inputs.emplace_back(static_cast<size_t>(read_[i] ? type.element_count() : 0));
      domain.random(i, type.dtype, 0, 1, static_cast<int64_t>(inputs[i].size()), inputs[i].data());
    }
    return inputs;
  }

  // False when that settles it.
  bool run_trial() {
    if (certificate_.seeds.empty() && has_rounded_tensors(instance_.mugraph))
      return run_trial_in<RoundedValues>();
    return run_trial_in<FieldDomain>();
  }

  template <class Domain>
  bool run_trial_in() {
    for (;;) {
      const uint64_t seed = next_seed();
      Stoppable<Domain> domain(stop_, seed);
      const std::vector<FieldTensor> inputs = random_inputs(domain);
      const std::vector<FieldTensor> expected = evaluate(primitive_, domain, inputs);
      const bool graph_divides = domain.divided_by_zero();
      if constexpr (requires { domain.enter_mugraph(); }) {
        domain.note_inputs(instance_.graph, inputs);
        domain.enter_mugraph();
      }
      auto actual = evaluate_mugraph(instance_.mugraph, domain, inputs);
      if (stopped()) return false;
      if (!actual) return conclude(Verdict::rejected, actual.status().message()), false;
      if (!domain.divided_by_zero()) {
        certificate_.seeds.push_back(seed);
        certificate_.primes.push_back(domain.primes().q.value());
        if (!compare_all(expected, *actual)) return false;
        if constexpr (requires { domain.invented(); })
          if (domain.invented()) return conclude_rounded(*domain.invented()), false;
        return true;
      }
      if (++certificate_.redrawn < kMaxRedrawn) continue;
      if (graph_divides)
        conclude(Verdict::undecided, "the graph divides by zero for all inputs that were drawn");
      else
        conclude(Verdict::rejected, "the muGraph divides by zero where the graph does not");
      return false;
    }
  }

  void conclude_rounded(DType dtype) {
    conclude(Verdict::rejected, std::string("a tensor of dtype ") + dtype_name(dtype) +
                                    " holds values that the graph does not have in " + dtype_name(dtype));
  }

  bool compare_all(const std::vector<FieldTensor>& expected, const std::vector<FieldTensor>& actual) {
    certificate_.elements = 0;
    for (size_t output = 0; output < expected.size(); ++output) {
      certificate_.elements += static_cast<int64_t>(expected[output].size());
      for (size_t e = 0; e < expected[output].size(); ++e)
        if (!expected[output][e].agrees(actual[output][e])) {
          differs(element_name(instance_.graph, output, static_cast<int64_t>(e)) + " differs");
          return false;
        }
    }
    return true;
  }

  // An element of the instance differs in the field.
  void differs(const std::string& where) {
    for (int draw = 0; draw < kRealDraws; ++draw)
      if (const Ordered found = compare_ordered(draw); found.agreement == Agreement::different)
        return differs_in_reals(found.where);
    conclude(Verdict::undecided, where + " by the laws of the field" + on_instance() +
                                     ", but everything agrees in f64");
  }

  std::string on_instance() const { return certificate_.shrunk ? " on the small instance" : ""; }

  void differs_in_reals(const std::string& where) {
    if (!certificate_.shrunk || !names_extent(graph_, mugraph_))
      return conclude(Verdict::rejected, where + on_instance());
    // compare_samples concludes when the full shape differs, too.
    if (compare_samples())
      conclude(Verdict::undecided, where +
                                       " on the small instance, where numbers written in the programs may "
                                       "stand for extents; the sampled elements at the full shape agree");
  }

  // ---- trials in ordered values ----

  struct Ordered {
    Agreement agreement = Agreement::equal;  // the worst of all elements
    std::string where;                       // "output 0 [1, 2] differs: 3.5 instead of 1.25"
    int64_t unknown = 0;
  };

  // The n-th ordered trial.
  Ordered compare_ordered(int n) {
    const TrialKind kind = trial_kind(n);
    const uint64_t seed = next_seed();
    Stoppable<OrderedDomain> graph_domain(stop_, seed), mugraph_domain(stop_, seed);
    const std::vector<OrderedTensor> inputs =
        trial_inputs(instance_.graph, read_, n, seed, literals_, graph_domain);
    const std::vector<OrderedTensor> expected = evaluate(primitive_, graph_domain, inputs);
    const auto actual = evaluate_mugraph(instance_.mugraph, mugraph_domain, inputs);
    if (stopped()) return {};
    if (!actual) return {Agreement::different, actual.status().message(), 0};
    graph_coverage_.note(graph_domain, expected);
    mugraph_coverage_.note(mugraph_domain, *actual);
    Ordered worst;
    for (size_t output = 0; output < expected.size(); ++output)
      for (size_t e = 0; e < expected[output].size(); ++e) {
        const OrderedValue &a = expected[output][e], &b = (*actual)[output][e];
        sameness_.note(output, a);
        const Agreement now = agreement(a, b, has_special_inputs(kind));
        worst.unknown += now == Agreement::unknown;
        if (now <= worst.agreement || now == Agreement::unknown) continue;
        worst.agreement = now;
        worst.where = element_name(instance_.graph, output, static_cast<int64_t>(e)) + " differs";
        if (now == Agreement::different)
          worst.where += ": " + print_number(b.real) + " instead of " + print_number(a.real) + " (" +
                         trial_kind_name(kind) + " inputs)";
      }
    return worst;
  }

  // False when that settles it.
  bool run_ordered_trials() {
    const bool ordered = depends_on_order(primitive_);
    const double cost = work(instance_.graph) + work(instance_.mugraph);
    const int cheap =
        static_cast<int>(std::min<double>(kMoreTrials, options_.cheap_work / std::max(cost, 1.0)));
    const int wanted = ordered ? std::max(kAllKinds, cheap) : kFewTrials;
    for (int n = 0; n < kMostTrials; ++n) {
      if (n >= wanted && graph_coverage_.missing().empty() && mugraph_coverage_.missing().empty()) break;
      if (n >= 2 * kAllKinds && cost * n > kMostTrialWork) break;
      const Ordered found = compare_ordered(n);
      if (stopped_) return false;
      if (found.agreement == Agreement::different) return differs_in_reals(found.where), false;
      if (found.agreement == Agreement::by_field) return differs(found.where), false;
      certificate_.unknown += found.unknown;
      ++certificate_.ordered_trials;
    }
    certificate_.ordered_miss = std::ldexp(1, -certificate_.ordered_trials);
    certificate_.conditions = graph_coverage_.conditions();
    return true;
  }

  // ---- how sure that is ----

  // Sets the bound and the number of trials. False when the muGraph cannot be evaluated.
  bool bound_error() {
    Stoppable<DegreeDomain> domain(stop_);
    std::vector<Elements<Degree>> inputs;
    for (size_t i = 0; i < read_.size(); ++i) {
      const TensorType& type = instance_.graph.node(instance_.graph.inputs[i]).type;
      inputs.emplace_back(static_cast<size_t>(read_[i] ? type.element_count() : 0), DegreeDomain::input());
    }
    const auto expected = evaluate(primitive_, domain, inputs);
    const auto actual = evaluate_mugraph(instance_.mugraph, domain, inputs);
    if (stopped()) return false;
    if (!actual) return conclude(Verdict::rejected, actual.status().message()), false;
    double degree = 0;
    for (size_t output = 0; output < expected.size(); ++output)
      for (size_t e = 0; e < expected[output].size(); ++e) {
        const Degree &a = expected[output][e], &b = (*actual)[output][e];
        degree = std::max({degree, a.num_p + b.den_p, b.num_p + a.den_p});
      }
    certificate_.degree = degree;
    certificate_.exponent_degree = domain.exponentials().degree;
    certificate_.exponentials = domain.exponentials().count;
    certificate_.opaques = domain.opaques().count;
    // A trial misses a difference when the numerator of it vanishes, or when values that differ meet as
    // arguments; all given that no divisor vanishes. Every variable has at least q values.
    const double q = static_cast<double>(kLeastPrime);
    const double miss = degree / q + domain.exponentials().meet(q) + domain.opaques().meet(q);
    const double kept = 1 - domain.divisions().vanish(q);
    const double bound = kept > 0 ? std::min(1.0, miss / kept) : 1;
    certificate_.choices = domain.choices();
    certificate_.error_bound = 1;
    for (wanted_trials_ = 0; wanted_trials_ < kMaxTrials;) {
      certificate_.error_bound *= bound;
      if (++wanted_trials_ >= options_.trials && certificate_.error_bound <= options_.max_error) return true;
    }
    // They may still be found to differ.
    wanted_trials_ = options_.trials;
    return true;
  }

  // ---- the full shape ----

  // False when an element differs, which is then concluded.
  bool compare_samples() {
    const FullShape::Comparison found = full_shape_.compare(mugraph_, stop_);
    certificate_.samples = found.compared;
    certificate_.samples_note = found.cut_short;
    if (!found.misfit.ok())
      conclude(Verdict::rejected, "at the full shape: " + found.misfit.message());
    else if (found.differs)
      conclude(Verdict::rejected, element_name(graph_, found.differs->first, found.differs->second) +
                                      " differs at the full shape");
    if (!found.misfit.ok() || found.differs) return false;
    const std::string foreign = found.every_output ? "" : foreign_number(graph_, mugraph_);
    if (foreign.empty()) return true;
    conclude(Verdict::undecided, foreign + ", and not all outputs could be compared at the full shape");
    return false;
  }

  const VerifyOptions& options_;
  const Graph& graph_;
  MuGraph mugraph_;
  const bool keeps_casts_;
  FullShape& full_shape_;
  uint64_t seeds_;
  Stop stop_;
  bool stopped_ = false;  // in the middle of a trial
  Instance instance_;
  Graph primitive_;  // of the instance
  std::vector<bool> read_;        // inputs of the instance
  std::vector<double> literals_;  // of both programs
  int wanted_trials_ = 0;
  Coverage graph_coverage_, mugraph_coverage_;
  Sameness sameness_;
  Certificate certificate_;
};

}  // namespace

Verifier::Verifier(const Graph& graph, const VerifyOptions& options) : graph_(graph), options_(options) {
  // 63 bits, as many as the command line takes back.
  std::random_device random;
  while (options_.seed == 0) options_.seed = (uint64_t{random()} << 31) ^ (random() & 0x7fffffff);
  full_shape_ = std::make_unique<FullShape>(graph_, options_.seed, options_.sample_budget);
}
Verifier::~Verifier() = default;

Certificate Verifier::verify(const MuGraph& mugraph) {
  Certificate out = Judgement(graph_, mugraph, false, options_, *full_shape_).run();
  if (out.verdict != Verdict::rejected) return out;
  const std::vector<bool> kept = kept_casts(graph_);
  if (std::find(kept.begin(), kept.end(), true) == kept.end()) return out;
  // What the graph does not round in front of a product may be rounded there by the muGraph.
  Certificate keeping = Judgement(graph_, mugraph, true, options_, *full_shape_).run();
  return keeping.verdict == Verdict::rejected ? out : keeping;
}

Certificate verify(const Graph& graph, const MuGraph& mugraph, const VerifyOptions& options) {
  return Verifier(graph, options).verify(mugraph);
}

}  // namespace quern
