#include "tests/hostile/wrong_mugraphs.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/codegen/arithmetic_verifier.h"
#include "core/graph/decompose.h"
#include "core/graph/text.h"
#include "core/mugraph/shrink.h"
#include "core/mugraph/text.h"
#include "core/search/search.h"
#include "core/verify/evaluate.h"
#include "core/verify/evaluate_mugraph.h"
#include "core/verify/real_domains.h"
#include "core/verify/verifier.h"
#include "tests/support/hostile_graph.h"
#include "tests/support/mutants.h"

namespace quern {

namespace {

constexpr int kDraws = 6;
constexpr size_t kBatch = 4;              // graphs of a process
constexpr unsigned kSecondsAGraph = 120;  // before it counts as a hang
constexpr size_t kCandidates = 3;         // of a graph
constexpr double kMostWork = 400'000;     // of a muGraph that is evaluated

// A value of a dtype is a number that the dtype has, on both sides: to cast it to the dtype once more changes
// nothing. Rounded is only what becomes another dtype, as rounding each value would hide what is different.
struct TypedDomain : RealDomain {
  double cast(double value, DType from, DType to) {
    return from == to ? value : RealDomain::cast(value, from, to);
  }
};

// Small numbers, so that comparisons are decided both ways and equalities sometimes hold.
RealTensor draw(const TensorDesc& desc, std::mt19937_64& random) {
  RealTensor elements(static_cast<size_t>(desc.element_count()));
  const uint64_t range = random() % 2 ? 12 : 160;  // i32 count keys, too
  for (double& element : elements) {
    const uint64_t bits = random();
    if (desc.dtype == DType::boolean)
      element = static_cast<double>(bits & 1);
    else if (desc.dtype == DType::i32)
      element = static_cast<double>(bits % range) - static_cast<double>(range / 4);
    else  // a quarter are multiples of 1/4, zero among them
      element = bits % 4 ? static_cast<double>(bits >> 11) * 0x1p-51 - 2
                         : static_cast<double>(bits / 4 % 9) / 4 - 1;
    element = round_to(desc.dtype, element);
  }
  return elements;
}

// Of an output: the largest difference, relative to the largest finite element.
double difference(const RealTensor& expected, const RealTensor& actual) {
  if (expected.size() != actual.size()) return HUGE_VAL;
  double scale = 0, worst = 0;
  for (double value : expected)
    if (std::isfinite(value)) scale = std::max(scale, std::fabs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == actual[i] || (std::isnan(expected[i]) && std::isnan(actual[i]))) continue;
    const double error = std::fabs(expected[i] - actual[i]);
    if (!std::isfinite(error)) return HUGE_VAL;
    worst = std::max(worst, error / std::max(scale, 1e-300));
  }
  return worst;
}

std::string describe(Truth truth) {
  return truth == Truth::equal ? "equal" : truth == Truth::different ? "different" : "unclear";
}

class VerifierAttack {
 public:
  VerifierAttack(size_t most, Report& report) : most_(most), report_(report) {}

  void attack(uint64_t seed) {
    const Graph graph = hostile_graph(seed);
    report_.doing("the search for\n" + print_graph(graph));
    report_.count("graphs");
    SearchOptions how;
    how.limit = std::chrono::milliseconds(700);
    how.threads = 1;
    auto found = search(graph, **find_target(seed % 2 ? "sm_80" : "sm_90a"), how);
    check(found.ok(), "the search refuses its options");
    for (size_t i = 0; i < std::min(kCandidates, found->candidates.size()); ++i) {
      auto small = shrink(found->candidates[i].mugraph, graph);
      if (small && work(small->mugraph) < kMostWork) attack(*small, seed);
    }
  }

 private:
  void attack(const Instance& original, uint64_t seed) {
    report_.count("muGraphs");
    if (compare_by_evaluation(original.graph, original.mugraph, seed) == Truth::different)
      report_.find("original", print(original.graph, {"none", original.mugraph}, "the search found it"));
    std::vector<Mutant> all = mutants(original.mugraph);
    std::mt19937_64 random(seed);
    std::shuffle(all.begin(), all.end(), random);
    all.resize(std::min(all.size(), most_));
    for (const Mutant& mutant : all) judge(original.graph, mutant, seed);
  }

  void judge(const Graph& graph, const Mutant& mutant, uint64_t seed) {
    report_.doing(print(graph, mutant, "in evaluation or verification"));
    report_.count("mutants");
    const Truth truth = compare_by_evaluation(graph, mutant.mugraph, seed);
    VerifyOptions options;
    options.seed = seed;
    const Certificate certificate = verify(graph, mutant.mugraph, options);
    // What is accepted is so by both verdicts.
    Verdict verdict = certificate.verdict;
    if (verdict == Verdict::accepted) verdict = ArithmeticVerifier(graph).judge(mutant.mugraph).verdict;
    report_.count(describe(truth) + ", " + verdict_name(verdict));
    if (truth == Truth::different && verdict == Verdict::accepted)
      report_.find("accepted", print(graph, mutant, "accepted, seed " + std::to_string(seed)));
  }

  static std::string print(const Graph& graph, const Mutant& mutant, const std::string& what) {
    return "# " + what + "; change: " + mutant.change + "\n== graph\n" + print_graph(graph) + "== mugraph\n" +
           print_mugraph(mutant.mugraph);
  }

  const size_t most_;
  Report& report_;
};

}  // namespace

Truth compare_by_evaluation(const Graph& graph, const MuGraph& mugraph, uint64_t seed) {
  std::mt19937_64 random(seed);
  const Graph primitive = decompose(graph);
  TypedDomain domain;
  double worst = 0;
  for (int i = 0; i < kDraws && worst < 1e-3; ++i) {
    std::vector<RealTensor> inputs;
    for (const TensorDesc& desc : graph.input_descs()) inputs.push_back(draw(desc, random));
    const std::vector<RealTensor> expected = evaluate(primitive, domain, inputs);
    const auto actual = evaluate_mugraph(mugraph, domain, inputs);
    if (!actual) return Truth::different;
    for (size_t output = 0; output < expected.size(); ++output)
      worst = std::max(worst, difference(expected[output], (*actual)[output]));
  }
  return worst >= 1e-3 ? Truth::different : worst < 1e-10 ? Truth::equal : Truth::unclear;
}

Tally attack_verifier(uint64_t first, size_t count, size_t most) {
  return run_in_batches(count, kBatch, kSecondsAGraph, [&](size_t begin, size_t many, Report& report) {
    VerifierAttack attack(most, report);
    for (uint64_t seed = first + begin; seed < first + begin + many; ++seed) attack.attack(seed);
  });
}

}  // namespace quern
