#include "core/verify/verifier.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "core/graph/decompose.h"
#include "core/graph/shrink.h"
#include "core/mugraph/shrink.h"
#include "core/verify/degree.h"
#include "core/verify/evaluate_mugraph.h"
#include "core/verify/field.h"
#include "core/verify/full_shape.h"
#include "core/verify/real_domains.h"
#include "core/verify/reference.h"

namespace quern {

namespace {

constexpr int kMaxTrials = 40, kMaxRedrawn = 8, kRealDraws = 30;
constexpr double kMostWork = 5e6;  // of an instance that could not be shrunk

using FieldTensor = Elements<FieldValue>;

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

// Inputs and outputs of a muGraph must have the shapes of the graph's.
Status check_interface(const Graph& graph, const MuGraph& mugraph) {
  auto compare = [&](const char* what, const std::vector<ValueId>& values,
                     const std::vector<int32_t>& tensors) {
    if (values.size() != tensors.size())
      return Status(ErrorCode::INVALID_GRAPH, std::to_string(tensors.size()) + " " + what + "s instead of " +
                                                  std::to_string(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const Ints& wanted = graph.node(values[i]).type.shape;
      const Ints& given = mugraph.tensors[static_cast<size_t>(tensors[i])].type.shape;
      if (wanted != given)
        return Status(ErrorCode::INVALID_GRAPH, std::string(what) + " " + std::to_string(i) + " has shape " +
                                                    print_ints(given) + " instead of " + print_ints(wanted));
    }
    return Status();
  };
  Status status = compare("input", graph.inputs, mugraph.inputs);
  return status.ok() ? compare("output", graph.outputs, mugraph.outputs) : status;
}

// Whether a number written in the programs may stand for an extent: then it does not follow when the extent
// shrinks, and a difference on the small instance says little.
bool names_extent(const Graph& graph, const MuGraph& mugraph) {
  std::set<double> extents;
  auto note = [&](const TensorType& type) {
    for (int64_t extent : type.shape)
      if (extent > 1) extents.insert(static_cast<double>(extent));
  };
  for (const Node& node : graph.nodes) note(node.type);
  for (const MuTensor& tensor : mugraph.tensors) note(tensor.type);
  for (const MuKernel& kernel : mugraph.kernels) {
    if (kernel.turns > 1) extents.insert(static_cast<double>(kernel.turns));
    for (const BlockOp& op : kernel.ops) note(op.type);
  }
  auto stands_for_one = [&](double number) {
    number = std::fabs(number);
    if (!(number > 0) || number == 1) return false;
    for (double candidate : {number, 1 / number, number * number, 1 / (number * number)})
      if (const double whole = std::round(candidate);
          std::fabs(candidate - whole) < 1e-6 * whole && extents.count(whole))
        return true;
    return false;
  };
  for (const Node& node : graph.nodes)
    if (node.code == OpCode::constant && stands_for_one(node.number)) return true;
  for (const MuKernel& kernel : mugraph.kernels)
    for (const BlockOp& op : kernel.ops)
      if (op.kind == BlockOp::Kind::compute && op.code == OpCode::constant && op.extents.empty() &&
          stands_for_one(op.number))
        return true;
  return false;
}

class Judgement {
 public:
  Judgement(const Graph& graph, const MuGraph& mugraph, const VerifyOptions& options, FullShape& full_shape)
      : options_(options), graph_(graph), mugraph_(mugraph), full_shape_(full_shape), seeds_(options.seed) {
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
    if (!choose_instance()) return;
    certificate_.method = "random evaluation mod p = " + std::to_string(kFieldP) +
                          " and q = " + std::to_string(kFieldQ) + ", exp(x) = w^x";
    primitive_ = decompose(instance_.graph);
    for (ValueId id : instance_.graph.inputs) {
      const Node& node = instance_.graph.node(id);
      certificate_.inputs.push_back(node.name + ": " + print_type(node.type));
    }
    if (!bound_error()) return;
    for (int trials = 0; trials < wanted_trials_; ++trials) {
      if (options_.stop()) return conclude(Verdict::undecided, "stopped before all trials were made");
      if (!run_trial()) return;
    }
    if (certificate_.shrunk && !compare_samples()) return;
    if (certificate_.error_bound > options_.max_error)
      return conclude(Verdict::undecided,
                      "the programs are too complicated: nothing differs, but the error bound is " +
                          print_number(certificate_.error_bound));
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

  // ---- trials ----

  std::vector<FieldTensor> random_inputs(const FieldDomain& domain) const {
    std::vector<FieldTensor> inputs;
    for (ValueId id : instance_.graph.inputs) {
      const int64_t count = instance_.graph.node(id).type.element_count();
      FieldTensor& input = inputs.emplace_back();
      input.reserve(static_cast<size_t>(count));
      for (int64_t e = 0; e < count; ++e)
        input.push_back(domain.random(inputs.size() - 1, static_cast<uint64_t>(e)));
    }
    return inputs;
  }

  // False when that settles it.
  bool run_trial() {
    for (;;) {
      const uint64_t seed = next_seed();
      FieldDomain domain(seed);
      const std::vector<FieldTensor> inputs = random_inputs(domain);
      const std::vector<FieldTensor> expected = evaluate(primitive_, domain, inputs);
      const bool graph_divides = domain.divided_by_zero();
      auto actual = evaluate_mugraph(instance_.mugraph, domain, inputs);
      if (!actual) return conclude(Verdict::rejected, actual.status().message()), false;
      if (!domain.divided_by_zero()) {
        certificate_.seeds.push_back(seed);
        return compare_all(expected, *actual);
      }
      if (++certificate_.redrawn < kMaxRedrawn) continue;
      if (graph_divides)
        conclude(Verdict::undecided, "the graph divides by zero for all inputs that were drawn");
      else
        conclude(Verdict::rejected, "the muGraph divides by zero where the graph does not");
      return false;
    }
  }

  bool compare_all(const std::vector<FieldTensor>& expected, const std::vector<FieldTensor>& actual) {
    certificate_.elements = 0;
    for (size_t output = 0; output < expected.size(); ++output) {
      certificate_.elements += static_cast<int64_t>(expected[output].size());
      for (size_t e = 0; e < expected[output].size(); ++e)
        if (!expected[output][e].agrees(actual[output][e])) {
          differs(output, static_cast<int64_t>(e));
          return false;
        }
    }
    return true;
  }

  // An element of the instance differs in the field.
  void differs(size_t output, int64_t at) {
    const std::string where = element_name(instance_.graph, output, at);
    const std::string instance = certificate_.shrunk ? " on the small instance" : "";
    if (equal_in_reals())
      return conclude(Verdict::undecided, where + " differs by the laws of the field" + instance +
                                              ", but everything agrees in f64");
    if (certificate_.shrunk && names_extent(graph_, mugraph_)) {
      // compare_samples concludes when the full shape differs, too.
      if (compare_samples())
        conclude(Verdict::undecided, where +
                                         " differs on the small instance, where numbers written in the "
                                         "programs may stand for extents; the sampled elements at the full "
                                         "shape agree");
      return;
    }
    conclude(Verdict::rejected, where + " differs" + instance);
  }

  // Whether all elements agree in f64 as far as rounding lets one tell, however often one draws.
  bool equal_in_reals() {
    for (int draw = 0; draw < kRealDraws; ++draw)
      if (!equal_in_one_draw()) return false;
    return true;
  }

  bool equal_in_one_draw() {
    std::vector<RealTensor> inputs;
    for (const TensorDesc& desc : instance_.graph.input_descs()) {
      TensorDesc dense = desc;
      dense.strides = dense_strides(desc.shape);
      if (is_float(dense.dtype)) dense.dtype = DType::f32;
      inputs.push_back(read_buffer(dense, random_buffer(dense, next_seed()).data()));
    }
    RealDomain domain;
    const std::vector<RealTensor> expected = evaluate(primitive_, domain, inputs);
    const auto actual = evaluate_mugraph(instance_.mugraph, domain, inputs);
    if (!actual) return false;
    for (size_t output = 0; output < expected.size(); ++output) {
      double scale = 0;
      for (double value : expected[output]) scale = std::max(scale, std::fabs(value));
      for (size_t e = 0; e < expected[output].size(); ++e) {
        const double a = expected[output][e], b = (*actual)[output][e];
        if (std::isnan(a) ? !std::isnan(b) : !(a == b || std::fabs(a - b) <= 1e-10 * scale)) return false;
      }
    }
    return true;
  }

  // ---- how sure that is ----

  // Sets the bound and the number of trials. False when the muGraph cannot be evaluated.
  bool bound_error() {
    DegreeDomain domain;
    std::vector<Elements<Degree>> inputs;
    for (ValueId id : instance_.graph.inputs)
      inputs.emplace_back(static_cast<size_t>(instance_.graph.node(id).type.element_count()),
                          DegreeDomain::input());
    const auto expected = evaluate(primitive_, domain, inputs);
    const auto actual = evaluate_mugraph(instance_.mugraph, domain, inputs);
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
    const double q = static_cast<double>(kFieldQ);
    const double miss = degree / q + domain.exponentials().meet(q) + domain.opaques().meet(q);
    const double kept = 1 - domain.divisions().vanish(q);
    const double bound = kept > 0 ? std::min(1.0, miss / kept) : 1;
    // The outcome of a max or a comparison is no polynomial: it takes trials to see both.
    certificate_.choices = domain.choices();
    double algebra = 1, outcomes = domain.choices() > 0 ? 1 : 0;
    for (wanted_trials_ = 0; wanted_trials_ < kMaxTrials;) {
      algebra *= bound;
      outcomes /= 2;
      certificate_.error_bound = std::min(1.0, algebra + outcomes);
      if (++wanted_trials_ >= options_.trials && certificate_.error_bound <= options_.max_error) return true;
    }
    // They may still be found to differ.
    wanted_trials_ = options_.trials;
    return true;
  }

  // ---- the full shape ----

  // False when an element differs, which is then concluded.
  bool compare_samples() {
    const FullShape::Comparison found = full_shape_.compare(mugraph_, options_.stop);
    certificate_.samples = found.compared;
    certificate_.samples_note = found.cut_short;
    if (!found.misfit.ok())
      conclude(Verdict::rejected, "at the full shape: " + found.misfit.message());
    else if (found.differs)
      conclude(Verdict::rejected, element_name(graph_, found.differs->first, found.differs->second) +
                                      " differs at the full shape");
    return found.misfit.ok() && !found.differs;
  }

  const VerifyOptions& options_;
  const Graph& graph_;
  MuGraph mugraph_;
  FullShape& full_shape_;
  uint64_t seeds_;
  Instance instance_;
  Graph primitive_;  // of the instance
  int wanted_trials_ = 0;
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
  return Judgement(graph_, mugraph, options_, *full_shape_).run();
}

Certificate verify(const Graph& graph, const MuGraph& mugraph, const VerifyOptions& options) {
  return Verifier(graph, options).verify(mugraph);
}

}  // namespace quern
