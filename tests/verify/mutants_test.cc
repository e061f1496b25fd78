// Mutants of right muGraphs, decided by brute force in f64 on small shapes: the verifier must accept none
// that differs, and reject none that does not.
#include "tests/support/mutants.h"

#include <cmath>
#include <map>
#include <random>

#include "core/codegen/arithmetic_verifier.h"
#include "core/mugraph/mirage.h"
#include "core/mugraph/shrink.h"
#include "core/verify/evaluate_mugraph.h"
#include "core/verify/real_domains.h"
#include "core/verify/reference.h"
#include "core/verify/verifier.h"
#include "tests/mugraph/files.h"
#include "tests/verify/published.h"

using namespace quern;

namespace {

constexpr uint64_t kDraws = 30;  // a wrong rescaling shows only when the maximum moves
constexpr uint64_t kSpecialDraws = 10;

// Some mutants differ only where something is NaN or infinite, as a softmax that is not shifted by its
// maximum.
enum class Truth { equal, different, different_if_special, unclear };

// One or two elements of one input become NaN or infinite.
void spoil(std::vector<RealTensor>& inputs, uint64_t seed) {
  std::mt19937_64 random(seed);
  const double special[] = {std::nan(""), HUGE_VAL, -HUGE_VAL};
  RealTensor& input = inputs[random() % inputs.size()];
  for (uint64_t count = 1 + random() % 2; count-- > 0 && !input.empty();)
    input[random() % input.size()] = special[random() % 3];
}

// How far both are apart, relative to the largest element of the output; infinity where one is finite and the
// other is not.
double distance(const Graph& graph, const MuGraph& mugraph, const std::vector<RealTensor>& inputs) {
  const std::vector<RealTensor> expected = evaluate_reference(graph, inputs);
  RealDomain domain;
  const auto actual = evaluate_mugraph(mugraph, domain, inputs);
  if (!actual) return HUGE_VAL;
  double worst = 0;
  for (size_t output = 0; output < expected.size(); ++output) {
    double scale = 0;
    for (double value : expected[output])
      if (std::isfinite(value)) scale = std::max(scale, std::fabs(value));
    for (size_t e = 0; e < expected[output].size(); ++e) {
      const double wanted = expected[output][e], given = (*actual)[output][e];
      if (std::isfinite(wanted) != std::isfinite(given)) return HUGE_VAL;
      if (std::isfinite(wanted) && wanted != given) worst = std::max(worst, std::fabs(wanted - given) / scale);
    }
  }
  return worst;
}

// Evaluates both on random inputs, and then with NaN or infinities: all elements of all outputs.
Truth brute_force(const Graph& graph, const MuGraph& mugraph) {
  double worst = 0;
  for (uint64_t draw = 0; draw < kDraws + kSpecialDraws; ++draw) {
    std::vector<RealTensor> inputs;
    for (TensorDesc desc : graph.input_descs()) {
      desc.dtype = DType::f32;
      inputs.push_back(read_buffer(desc, random_buffer(desc, 1000 * draw + inputs.size(), 2.0).data()));
    }
    if (draw >= kDraws) spoil(inputs, draw);
    worst = std::max(worst, distance(graph, mugraph, inputs));
    if (worst > 1e-8) return draw < kDraws ? Truth::different : Truth::different_if_special;
  }
  return worst < 1e-11 ? Truth::equal : Truth::unclear;
}

struct Tally {
  std::map<std::pair<Truth, Verdict>, int> counts;
  std::map<std::string, int> undecided;
  int unclear = 0;
  int of(Truth truth, Verdict verdict) const {
    const auto at = counts.find({truth, verdict});
    return at == counts.end() ? 0 : at->second;
  }
  int total() const {
    int sum = 0;
    for (const auto& [key, count] : counts) sum += count;
    return sum;
  }
};

// `small` is what brute force decides on: the mutant itself, or its small instance.
void judge(const std::string& name, const Graph& graph, const Mutant& mutant, const Instance& small,
           const VerifyOptions& options, Tally& tally) {
  const Truth truth = brute_force(small.graph, small.mugraph);
  if (truth == Truth::unclear) {
    ++tally.unclear;
    return;
  }
  const Certificate certificate = verify(graph, mutant.mugraph, options);
  const bool special_only = truth == Truth::equal && certificate.verdict == Verdict::rejected &&
                            (certificate.reason.find("special inputs") != std::string::npos ||
                             certificate.reason.find("masked inputs") != std::string::npos);
  ++tally.counts[{special_only ? Truth::different_if_special : truth, certificate.verdict}];
  // What only infinities and NaN tell apart is for the second verdict, without which nothing is published.
  if (truth == Truth::different_if_special && certificate.verdict == Verdict::accepted) {
    const ArithmeticVerdict second = ArithmeticVerifier(graph).judge(mutant.mugraph);
    if (second.verdict == Verdict::accepted)
      fail_test("accepted by both verdicts, but different: " + name + ", " + mutant.change + "\n" +
                print_mugraph(mutant.mugraph) + second.print());
  }
  if (truth == Truth::different && certificate.verdict == Verdict::accepted)
    fail_test("accepted, but different: " + name + ", " + mutant.change + "\n" +
              print_mugraph(mutant.mugraph) + certificate.print());
  if (truth == Truth::equal && certificate.verdict == Verdict::rejected && !special_only)
    fail_test("rejected, but equal: " + name + ", " + mutant.change + "\n" + print_mugraph(mutant.mugraph) +
              certificate.print());
  if (certificate.verdict == Verdict::undecided)
    ++tally.undecided[name + ", " + mutant.change + ": " + certificate.reason];
}

void print_tally(const char* what, const Tally& tally) {
  print_message(
      "%s: %d mutants; different: %d rejected, %d undecided; only if special: %d rejected, %d undecided, %d "
      "accepted; equal: %d accepted, %d undecided; %d unclear in f64\n",
      what, tally.total(), tally.of(Truth::different, Verdict::rejected),
      tally.of(Truth::different, Verdict::undecided), tally.of(Truth::different_if_special, Verdict::rejected),
      tally.of(Truth::different_if_special, Verdict::undecided),
      tally.of(Truth::different_if_special, Verdict::accepted), tally.of(Truth::equal, Verdict::accepted),
      tally.of(Truth::equal, Verdict::undecided), tally.unclear);
  for (const auto& [change, count] : tally.undecided)
    print_message("  undecided: %s (%d)\n", change.c_str(), count);
}

// What holds for any tally: the verifier decides nearly everything.
void assert_decisive(const Tally& tally) {
  assert_int_equal(tally.of(Truth::different, Verdict::accepted), 0);
  assert_int_equal(tally.of(Truth::equal, Verdict::rejected), 0);
  // The second verdict is for the others. Which of them the first one sees is a matter of its seed.
  assert_true(tally.of(Truth::different_if_special, Verdict::accepted) <=
              3 * tally.of(Truth::different_if_special, Verdict::rejected));
  assert_true(tally.of(Truth::different, Verdict::rejected) > 0 &&
              tally.of(Truth::equal, Verdict::accepted) > 0);
  assert_true(tally.of(Truth::different, Verdict::undecided) == 0);
  assert_true(tally.of(Truth::equal, Verdict::undecided) * 20 <= tally.total());
}

bool is_full_size(const MuGraphFile& file) { return file.name.find("_b") != std::string::npos; }

void mutants_of_small_files(void**) {
  Tally tally;
  for (const MuGraphFile& file : mugraph_files()) {
    if (is_full_size(file)) continue;
    for (const Mutant& mutant : mutants(file.mugraph))
      judge(file.name, file.graph, mutant, {mutant.mugraph, file.graph}, {}, tally);
  }
  print_tally("small files", tally);
  assert_decisive(tally);
  assert_true(tally.total() >= 800);
}

// Two changes, which may undo each other: a sample.
void mutants_of_mutants(void**) {
  Tally tally;
  size_t next = 0;
  for (const MuGraphFile& file : mugraph_files()) {
    if (is_full_size(file)) continue;
    for (const Mutant& first : mutants(file.mugraph))
      for (const Mutant& second : mutants(first.mugraph))
        if (next++ % 17 == 0)
          judge(file.name, file.graph, {first.change + "; " + second.change, second.mugraph},
                {second.mugraph, file.graph}, {}, tally);
  }
  print_tally("mutants of mutants", tally);
  assert_decisive(tally);
  assert_true(tally.total() >= 1200);
}

// Judged at their full size, where the verifier itself must find a small instance.
void mutants_of_full_files(void**) {
  Tally tally;
  VerifyOptions options;
  options.sample_budget = 20'000;
  for (const MuGraphFile& file : mugraph_files()) {
    if (!is_full_size(file)) continue;
    for (const Mutant& mutant : mutants(file.mugraph)) {
      Result<Instance> small = shrink(mutant.mugraph, file.graph);
      if (small && work(small->mugraph) < 100'000)
        judge(file.name, file.graph, mutant, *small, options, tally);
    }
  }
  print_tally("full files", tally);
  assert_decisive(tally);
}

void mutants_of_published_mugraphs(void**) {
  const std::filesystem::path folder = published_folder();
  if (!std::filesystem::exists(folder)) skip_test("there is no " + folder.string());
  Tally tally;
  for (const Published& published : kPublished) {
    if (published.verdict != Verdict::accepted) continue;
    Result<std::vector<MuGraph>> mugraphs = read_mirage(read_test_file(folder / published.file));
    assert_ok(mugraphs);
    Result<Graph> graph = parse_graph(published.graph);
    assert_ok(graph);
    for (const MuGraph& mugraph : *mugraphs) {
      Result<Instance> small = shrink(mugraph, *graph);
      assert_ok(small);
      for (const Mutant& mutant : mutants(small->mugraph))
        judge(published.file, small->graph, mutant, {mutant.mugraph, small->graph}, {}, tally);
    }
  }
  print_tally("published muGraphs", tally);
  assert_decisive(tally);
  assert_true(tally.total() >= 2000);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(mutants_of_small_files),
      cmocka_unit_test(mutants_of_mutants),
      cmocka_unit_test(mutants_of_full_files),
      cmocka_unit_test(mutants_of_published_mugraphs),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
