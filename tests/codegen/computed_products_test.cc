// Scores that are computed twice, by a kernel that hands their maxima and sums on and by one that is given these: right in the
// emulator, and refused where the two would not have the same bits.
#include "tests/codegen/mugraph_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

MuGraphCase probabilities(const KernelSchedule& first, const KernelSchedule& second) {
  MuGraphCase out;
  out.label = "probabilities";
  out.graph =
      graph_of("graph g\nin q: bf16[64, 32]\nin k: bf16[32, 64]\ns = matmul(q, k)\np = softmax(s)\nout p\n");
  out.mugraph = mugraph_of(R"(mugraph g
in q: bf16[64, 32]
in k: bf16[32, 64]
tensor m: f32[64, 1]
tensor l: f32[64, 1]
tensor p: bf16[64, 64]
kernel grid=[2] loop=2 threads=128 {
  a = load(q, x=0)
  b = load(k, loop=1)
  s = matmul(a, b)
  t = max(s, axis=[1], keepdims=true)
  h = accumulate_max(t)
  d = sub(s, h)
  e = exp(d)
  r = sum(e, axis=[1], keepdims=true)
  n = accumulate_rescaled(r, h)
  store(h, m, x=0)
  store(n, l, x=0)
}
kernel grid=[2] loop=2 threads=128 {
  a = load(q, x=0)
  b = load(k, loop=1)
  s = matmul(a, b)
  h = load(m, x=0)
  n = load(l, x=0)
  d = sub(s, h)
  e = exp(d)
  c = div(e, n)
  store(c, p, x=0, loop=1)
}
out p
)");
  out.schedule.kernels = {first, second};
  return out;
}

KernelSchedule warps(int rows, int columns, int inner) {
  KernelSchedule out;
  out.warps = {rows, columns, inner};
  return out;
}

void equal_scores_are_right(void**) {
  all_are_right({probabilities(warps(2, 2, 1), warps(2, 2, 1)), probabilities(warps(2, 2, 1), warps(1, 4, 1)),
                 probabilities(warps(1, 1, 2), warps(2, 1, 2))});
}

void other_bits_are_refused(void**) {
  for (const auto& [first, second] :
       {std::pair(warps(2, 2, 1), warps(2, 1, 2)), std::pair(warps(1, 1, 2), warps(2, 2, 1))}) {
    const auto made = emit(probabilities(first, second));
    assert_true(!made && made.status().code() == ErrorCode::UNSUPPORTED);
    assert_contains(made.status().message(), "computes it again by mma of bf16");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(equal_scores_are_right),
                              cmocka_unit_test(other_bits_are_refused)};
  return cmocka_run_group_tests_name("computed_products", tests, nullptr, nullptr);
}
