// What the search finds when the model of schedules decides.
#include <chrono>

#include "core/graph/text.h"
#include "core/optimize/program_model.h"
#include "core/search/search.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

SearchResult found_by_time(const std::string& text) {
  const auto graph = parse_graph(text);
  assert_ok(graph);
  const Target& target = **find_target("sm_90a");
  SearchOptions options;
  options.time_of = SubgraphModel(target);
  Result<SearchResult> result = search(*graph, target, options);
  assert_ok(result);
  assert_false(result->candidates.empty());
  return std::move(*result);
}

// Causal attention of 8 heads; `dims` goes in front of rows and columns, `keys` in front of those of keys and values.
std::string attention(const std::string& dims, const std::string& keys, const std::string& perm) {
  return "graph g\nin q: bf16[" + dims + "700, 128]\nin k: bf16[" + keys + "700, 128]\nin v: bf16[" + keys +
         "700, 128]\nt = transpose(k, perm=" + perm +
         ")\ns = matmul(q, t)\nc = mul(s, 0.0883883)\ni = iota(shape=[700, 700], axis=0)\n"
         "j = iota(shape=[700, 700], axis=1)\nm = le(j, i)\nw = where(m, c, -1e30)\np = softmax(w)\n"
         "o = matmul(p, v)\nout o\n";
}

// A batch of one sequence is none: the same kernel, as fast, and heads may have keys in common.
void batches_of_one_cost_nothing(void**) {
  const double us = found_by_time(attention("8, ", "8, ", "[0, 2, 1]")).candidates[0].us;
  for (const auto& [dims, keys] :
       {std::pair{"1, 8, ", "1, 8, "}, {"1, 8, ", "1, 1, "}, {"1, 1, 8, ", "1, 1, 8, "}}) {
    const char* perm = std::string(dims).size() > 6 ? "[0, 1, 2, 4, 3]" : "[0, 1, 3, 2]";
    const SearchResult result = found_by_time(attention(dims, keys, perm));
    const Candidate& best = result.candidates[0];
    if (best.us > 1.05 * us)
      fail_test(std::to_string(best.us) + " us instead of " + std::to_string(us) + ":\n" +
                print_mugraph(best.mugraph));
  }
}

// Whether a subgraph with a mask is taken apart is asked of the subgraph with its mask.
void masks_are_part_of_what_a_piece_takes(void**) {
  const SearchResult result = found_by_time(attention("8, ", "8, ", "[0, 2, 1]"));
  const PieceReport& piece = result.report.pieces.back();
  assert_false(piece.apart);
  assert_true(piece.us < 1.01 * result.candidates[0].us && piece.us > 0.99 * result.candidates[0].us);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(batches_of_one_cost_nothing),
                              cmocka_unit_test(masks_are_part_of_what_a_piece_takes)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
