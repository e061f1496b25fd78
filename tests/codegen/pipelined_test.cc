// Products that are software-pipelined: in the emulator against the float reference.
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

bool is_late(const MuGraphCase& test) { return emitted(test).kernels.find("previous_") != std::string::npos; }

// Values that all warps norm together, and keys too if KEYS is nk.
const char kNormedGraph[] = R"(graph normed
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, INNER, COLUMNS]
in v: TYPE[2, COLUMNS, INNER]
nk = rms_norm(k, axis=1, eps=1e-5)
nv = rms_norm(v, axis=-1, eps=1e-5)
s = matmul(q, KEYS)
p = softmax(s, axis=-1)
o = matmul(p, nv)
out o
)";
const char kNormed[] = R"(mugraph normed
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, INNER, COLUMNS]
in v: TYPE[2, COLUMNS, INNER]
tensor o: TYPE[2, ROWS, INNER]
kernel grid=[2, 1, GRID] loop=TURNS threads=128 {
  q0 = load(q, x=0, z=1)
  k = load(k, x=0, loop=2)
  v0 = load(v, x=0, loop=1)
  nk = rms_norm(k, axis=[1], eps=1e-05)
  nv = rms_norm(v0, axis=[2], eps=1e-05)
  s = matmul(q0, KEYS)
  top = max(s, axis=[2], keepdims=true)
  m = accumulate_max(top)
  d = sub(s, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  pv = matmul(e, nv)
  n = accumulate_rescaled(pv, m)
  y = div(n, l)
  store(y, o, x=0, z=1)
}
out o
)";

std::string with_keys(std::string text, const std::string& keys) {
  return text.replace(text.find("KEYS"), 4, keys);
}

KernelSchedule way(std::array<int, 3> warps, int stages, bool tma) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tma = tma;
  out.wgmma = true;
  return out;
}

void normed_attention_is_right(void**) {
  std::vector<MuGraphCase> cases;
  const Sizes sizes = {"f16", "100", "40", "360", "1", "5"};
  for (const char* keys : {"k", "nk"})
    for (const KernelSchedule& each :
         {way({4, 1, 1}, 2, true), way({8, 1, 1}, 3, true), way({4, 2, 1}, 2, false)}) {
      cases.push_back(sized_case(std::string("normed ") + keys, with_keys(kNormedGraph, keys),
                                 with_keys(kNormed, keys), sizes, each));
      assert_true(is_late(cases.back()));
    }
  // With a producer nothing is pipelined, and the barriers around what all warps make are those of some
  // threads.
  KernelSchedule fed = way({4, 1, 1}, 2, true);
  fed.producer = true;
  cases.push_back(sized_case("normed nk", with_keys(kNormedGraph, "nk"), with_keys(kNormed, "nk"),
                             {"f16", "100", "40", "320", "1", "5"}, fed));
  assert_false(is_late(cases.back()));
  all_are_right(cases);
}

// Iterations for it are missing, a tile that all warps make, or a second product behind the first.
void others_are_in_time(void**) {
  const Sizes sizes = {"f16", "64", "64", "256", "1", "4"};
  assert_false(is_late(sized_case("normed", with_keys(kNormedGraph, "k"), with_keys(kNormed, "k"), sizes,
                                  way({4, 1, 1}, 5, true))));
  assert_false(is_late(sized_case("attention", kAttentionGraph, kAttention, sizes, way({4, 1, 1}, 4, true))));
  assert_false(is_late(sized_case("norm", kNormGraph, kNorm, sizes, way({4, 1, 1}, 4, true))));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(normed_attention_is_right),
                              cmocka_unit_test(others_are_in_time)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
