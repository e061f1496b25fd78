// Factors on the two sides of a sum, and where the sum's infinities go: of the programs that any combination
// of a search's candidates makes, all are accepted by the second verdict, and right.
#include <cmath>
#include <set>

#include "core/codegen/arithmetic_verifier.h"
#include "core/codegen/interpreter.h"
#include "core/graph/decompose.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/program_model.h"
#include "core/optimize/ranking.h"
#include "core/search/assembly.h"
#include "core/search/pieces.h"
#include "core/verify/brink.h"
#include "core/verify/hostile.h"
#include "core/verify/rounded_values.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr int kBound = 11;        // of a subgraph
constexpr size_t kSchedules = 2;  // of a combination
constexpr int kTrials = 6;        // of each class
constexpr const char* kClasses[] = {"huge", "lowest"};

struct Trial {
  std::string name;
  std::vector<RealTensor> inputs;
  std::vector<Expected> expected;
};

std::vector<RealTensor> read_all(const Graph& graph, const std::vector<std::string>& buffers) {
  const std::vector<TensorDesc> descs = graph.input_descs();
  std::vector<RealTensor> tensors;
  for (size_t i = 0; i < descs.size(); ++i) tensors.push_back(read_buffer(descs[i], buffers[i].data()));
  return tensors;
}

// At the full shape.
std::vector<Trial> trials_of(const Graph& graph) {
  const Graph primitive = decompose(graph);
  std::vector<Trial> trials;
  auto add = [&](const std::string& name, std::vector<RealTensor> inputs) {
    std::vector<Expected> expected = expect_outputs(primitive, inputs);
    trials.push_back({name, std::move(inputs), std::move(expected)});
  };
  for (int number = 0; number < kTrials; ++number) {
    const uint64_t seed = 1000 + static_cast<uint64_t>(number);
    for (const char* name : kClasses)
      add(name, read_all(graph, hostile_inputs(graph, *find_hostile_class(name), seed)));
    std::vector<std::string> buffers;
    for (const TensorDesc& desc : graph.input_descs())
      buffers.push_back(random_buffer(desc, seed * 1000 + buffers.size()));
    std::vector<RealTensor> inputs = read_all(graph, buffers), again = inputs;
    if (scale_to_overflow(primitive, inputs, inputs.size(), seed, number)) add("overflow", std::move(inputs));
    if (scale_to_brink(primitive, again, again.size(), seed, 4 * number + 1)) add("brink", std::move(again));
  }
  return trials;
}

// What each subgraph may be computed by, the baseline's operators last.
std::vector<std::vector<MuGraph>> candidates_of(const std::vector<Piece>& pieces, const Target& target,
                                                bool by_time) {
  std::vector<std::vector<MuGraph>> all;
  for (const Piece& piece : pieces) {
    SearchOptions how;
    how.threads = 1;
    if (by_time) how.time_of = SubgraphModel(target);
    auto found = search(piece.graph, target, how);
    assert_ok(found);
    all.emplace_back();
    for (Candidate& candidate : found->candidates) all.back().push_back(std::move(candidate.mugraph));
    all.back().push_back(as_library_kernels(piece));
  }
  return all;
}

// Calls f(choice of every subgraph) for all combinations.
template <class F>
void for_each_combination(const std::vector<std::vector<MuGraph>>& candidates, F f) {
  std::vector<size_t> at(candidates.size(), 0);
  for (size_t p = 0; p < at.size();) {
    std::vector<const MuGraph*> parts;
    for (size_t i = 0; i < at.size(); ++i) parts.push_back(&candidates[i][at[i]]);
    f(parts);
    for (p = 0; p < at.size() && ++at[p] == candidates[p].size(); ++p) at[p] = 0;
  }
}

class Combinations {
 public:
  explicit Combinations(const Graph& graph) : graph_(graph), verifier_(graph), trials_(trials_of(graph)) {
    target_.sms = 2;  // small tiles, as large graphs have them
  }

  void run(bool by_time) {
    const std::vector<Piece> pieces = cut_into_pieces(graph_, kBound);
    std::vector<const Piece*> order;
    for (const Piece& piece : pieces) order.push_back(&piece);
    for_each_combination(candidates_of(pieces, target_, by_time),
                         [&](const std::vector<const MuGraph*>& parts) {
                           auto whole = assemble(graph_, order, parts);
                           assert_ok(whole);
                           check_programs(*whole);
                         });
  }

  size_t accepted = 0, refused = 0;

 private:
  void check_programs(const MuGraph& whole) {
    Candidate candidate;
    candidate.mugraph = whole;
    note_rounded_values(graph_, candidate.mugraph);
    for (const Implementation& each : rank_implementations(graph_, {candidate}, target_, {}, kSchedules)) {
      const auto cut = apply_schedule(candidate.mugraph, each.schedule);
      assert_ok(cut);
      const Interpreter program(*cut, &each.schedule);
      if (!seen_.insert(program.text()).second) continue;
      const bool accepts = verifier_.judge(candidate.mugraph, each.schedule).verdict == Verdict::accepted;
      ++(accepts ? accepted : refused);
      if (accepts) check_right(program);
    }
  }

  void check_right(const Interpreter& program) {
    for (const Trial& trial : trials_) {
      const auto actual = program.run(trial.inputs);
      assert_ok(actual);
      for (size_t i = 0; i < actual->size(); ++i) {
        const Comparison found = compare(outputs_[i], (*actual)[i], trial.expected[i]);
        if (!found.acceptable) fail_test(trial.name + ": " + found.what + "\n" + program.text());
      }
    }
  }

  const Graph& graph_;
  Target target_ = **find_target("sm_80");
  ArithmeticVerifier verifier_;
  const std::vector<Trial> trials_;
  const std::vector<TensorDesc> outputs_ = graph_.output_descs();
  std::set<std::string> seen_;
};

void check_combinations(const char* text) {
  const auto parsed = parse_graph(text);
  assert_ok(parsed);
  const Graph& graph = *parsed;
  Combinations combinations(graph);
  for (bool by_time : {false, true}) combinations.run(by_time);
  print_message("%zu accepted, %zu refused\n", combinations.accepted, combinations.refused);
  assert_true(combinations.accepted > 0);
  assert_int_equal(combinations.refused, 0);  // the search leaves factors where the sums keep their range
}

// The second output makes the graph so large that it is judged on a small instance, where sums have three
// terms.
void a_factor_below_one_in_front_and_one_above_behind(void**) {
  check_combinations(R"(graph g
in x: f32[16, 8]
in w: f32[8, 32]
in a: f32[2, 16, 24]
in b: f32[2, 24, 32]
s = mul(x, 0.3)
p = matmul(s, w)
y = mul(64.0, p)
q = matmul(a, b)
t = transpose(q, perm=[1, 0, 2])
z = reshape(t, shape=[16, 64])
out y, z
)");
}

void the_same_around_sums_of_rows(void**) {
  check_combinations(R"(graph g
in x: f32[24, 250]
in b: f32[24]
s = mul(x, 0.2)
r = sum(s, axis=1)
y = mul(r, 100)
z = add(y, b)
out y, z
)");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_factor_below_one_in_front_and_one_above_behind),
                              cmocka_unit_test(the_same_around_sums_of_rows)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
