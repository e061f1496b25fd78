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

// The backward pass of a norm behind a product: what the product's piece was taken apart into, and what is computed of it, is
// one kernel for the sums of rows and columns, and what puts its parts together.
void parts_are_joined_with_others(void**) {
  const SearchResult result = found_by_time(R"(graph g
in dy: bf16[1024, 2048]
in x: bf16[1024, 1024]
in w: bf16[2048, 1024]
in g: bf16[1024]
t = matmul(dy, w)
d = cast(t, dtype=f32)
f = cast(x, dtype=f32)
m = mean(f, axis=-1, keepdims=true)
c = sub(f, m)
q = square(c)
v = mean(q, axis=-1, keepdims=true)
e = add(v, 1e-5)
r = rsqrt(e)
n = mul(c, r)
gf = cast(g, dtype=f32)
p = mul(d, gf)
pm = mean(p, axis=-1, keepdims=true)
a = sub(p, pm)
b = mul(p, n)
bm = mean(b, axis=-1, keepdims=true)
k = mul(n, bm)
l = sub(a, k)
o = mul(r, l)
y = cast(o, dtype=bf16)
h = mul(d, n)
dg = sum(h, axis=0)
db = sum(d, axis=0)
out y
out dg
out db
)");
  const MuGraph& best = result.candidates[0].mugraph;
  int64_t reading = 0;  // kernels that read x
  for (const MuKernel& kernel : best.kernels)
    reading += kernel.custom && std::any_of(kernel.ops.begin(), kernel.ops.end(), [&](const BlockOp& op) {
                 return op.is_load() && op.tensor() == best.inputs[1];
               });
  assert_int_equal(reading, 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(batches_of_one_cost_nothing),
                              cmocka_unit_test(parts_are_joined_with_others),
                              cmocka_unit_test(masks_are_part_of_what_a_piece_takes)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
