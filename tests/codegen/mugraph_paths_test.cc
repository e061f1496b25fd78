// Tiles large enough for whole fragments, vectors and several warps: every data path, both 16-bit dtypes,
// f32, divisible and ragged, in the emulator against the float reference.
#include "core/schedule/enumerate.h"
#include "core/verify/reference.h"
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

void norms_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "5", "256", "128", "2", "2"},
                             {"bf16", "16", "256", "64", "2", "2"},
                             {"f16", "20", "200", "72", "1", "2"},
                             {"f16", "1", "128", "130", "2", "1"},
                             {"f32", "5", "48", "40", "2", "3"}})
    for (const KernelSchedule& way : {KernelSchedule{{}, 0, {1, 1, 4}, 0, true},
                                      {{}, 0, {1, 2, 2}, 0, false},
                                      {{}, 0, {1, 1, 4}, 2, true},
                                      {{}, 0, {2, 2, 1}, 3, true},
                                      {{}, 0, {1, 1, 4}, 3, true, true},
                                      {{}, 0, {1, 2, 2}, 2, true, true}})
      cases.push_back(sized_case("norm", kNormGraph, kNorm, sizes, way));
  all_are_right(cases);
}

void attention_is_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "64", "64", "128", "2", "2"},
                             {"bf16", "32", "32", "64", "1", "2"},
                             {"f16", "40", "24", "100", "2", "2"},
                             {"f32", "16", "16", "32", "2", "2"}})
    for (const KernelSchedule& way : {KernelSchedule{{}, 0, {2, 1, 1}, 0, true},
                                      {{}, 0, {2, 1, 1}, 2, true},
                                      {{}, 0, {1, 1, 2}, 3, true},
                                      {{}, 0, {1, 2, 1}, 0, false},
                                      {{}, 0, {2, 1, 1}, 2, true, true},
                                      {{}, 0, {1, 1, 2}, 3, true, true}})
      cases.push_back(sized_case("attention", kAttentionGraph, kAttention, sizes, way));
  all_are_right(cases);
}

// Norms of what the loop brings, and a scale: tiles that all warps make together.
const char kNormedAttentionGraph[] = R"(graph normed
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, INNER, COLUMNS]
in v: TYPE[2, COLUMNS, INNER]
nk = rms_norm(k, axis=1, eps=1e-5)
nv = rms_norm(v, axis=-1, eps=1e-5)
s = matmul(q, nk)
t = mul(s, 0.3125)
p = softmax(t, axis=-1)
o = matmul(p, nv)
out o
)";
const char kNormedAttention[] = R"(mugraph normed
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, INNER, COLUMNS]
in v: TYPE[2, COLUMNS, INNER]
tensor o: TYPE[2, ROWS, INNER]
kernel grid=[2, 1, GRID] loop=TURNS threads=128 {
  q0 = load(q, x=0, z=1)
  k0 = load(k, x=0, loop=2)
  v0 = load(v, x=0, loop=1)
  nk = rms_norm(k0, axis=[1], eps=1e-05)
  nv = rms_norm(v0, axis=[2], eps=1e-05)
  s = matmul(q0, nk)
  t = mul(s, 0.3125)
  top = max(t, axis=[2], keepdims=true)
  m = accumulate_max(top)
  d = sub(t, m)
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

void normed_attention_is_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "64", "64", "128", "2", "2"},
                             {"bf16", "32", "64", "96", "1", "2"},
                             {"f16", "48", "40", "104", "1", "2"}})
    for (const KernelSchedule& way : {KernelSchedule{{}, 0, {2, 1, 1}, 0, true},
                                      {{}, 0, {2, 1, 1}, 2, true},
                                      {{}, 0, {1, 2, 2}, 3, true},
                                      {{}, 0, {2, 1, 1}, 2, true, true}})
      cases.push_back(sized_case("normed attention", kNormedAttentionGraph, kNormedAttention, sizes, way));
  all_are_right(cases);
}

const char kAdapterGraph[] = R"(graph adapter
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in a: TYPE[INNER, 16]
in b: TYPE[16, COLUMNS]
d = matmul(x, a)
e = matmul(d, b)
c = matmul(x, w)
s = silu(c)
o = add(s, e)
out o
)";
const char kAdapter[] = R"(mugraph adapter
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in a: TYPE[INNER, 16]
in b: TYPE[16, COLUMNS]
tensor o: TYPE[ROWS, COLUMNS]
kernel grid=[GRID] loop=TURNS threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  a0 = load(a, loop=0)
  b0 = load(b, x=1)
  xw = matmul(x0, w0)
  xa = matmul(x0, a0)
  c = accumulate_sum(xw)
  d = accumulate_sum(xa)
  e = matmul(d, b0)
  s = silu(c)
  y = add(s, e)
  store(y, o, x=1)
}
out o
)";

void adapters_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "16", "256", "128", "2", "1"},
                             {"f16", "2", "128", "64", "1", "2"},
                             {"bf16", "9", "144", "80", "2", "2"}})
    for (const KernelSchedule& way : {KernelSchedule{{}, 0, {1, 1, 4}, 0, true},
                                      {{}, 0, {1, 2, 1}, 0, false},
                                      {{}, 0, {1, 1, 4}, 2, true},
                                      {{}, 0, {1, 2, 1}, 4, true, true}})
      cases.push_back(sized_case("adapter", kAdapterGraph, kAdapter, sizes, way));
  all_are_right(cases);
}

const char kRowsGraph[] = R"(graph rows
in h: TYPE[ROWS, INNER]
in x: TYPE[ROWS, INNER]
in g: TYPE[INNER]
n = rms_norm(h, g, axis=-1, eps=1e-5)
c = add(n, x)
o = softmax(c, axis=-1)
out o
)";
const char kRows[] = R"(mugraph rows
in h: TYPE[ROWS, INNER]
in x: TYPE[ROWS, INNER]
in g: TYPE[INNER]
tensor o: TYPE[ROWS, INNER]
kernel grid=[GRID] threads=128 {
  h0 = load(h, x=0)
  x0 = load(x, x=0)
  g0 = load(g)
  n = rms_norm(h0, g0, axis=[1], eps=1e-05)
  c = add(n, x0)
  y = softmax(c, axis=[1])
  store(y, o, x=0)
}
out o
)";

void rows_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "3", "1024", "", "3", ""},
                             {"f32", "5", "300", "", "2", ""},
                             {"bf16", "4", "77", "", "2", ""}})
    for (const KernelSchedule& way : {KernelSchedule{{}, 0, {1, 1, 4}, 0, true}, {{}, 0, {1, 1, 1}, 0, true}})
      cases.push_back(sized_case("rows", kRowsGraph, kRows, sizes, way));
  all_are_right(cases);
}

// Schedules as the enumeration gives them, from all of its range.
// An inner dimension that blocks of a cluster and iterations cut: where a block's part is no whole number of
// vectors, vectors would be misaligned, and reach into the part of the next block.

void parts_of_no_whole_vectors_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f32", "16", "44", "32", "1", "3"}, {"f16", "16", "88", "32", "1", "3"}})
    for (const KernelSchedule& way :
         {KernelSchedule{{}, 0, {1, 1, 2}, 0, true}, {{}, 0, {1, 1, 2}, 2, true}}) {
      cases.push_back(sized_case("parts", kProductGraph, kParts, sizes, way));
      cases.back().target = "sm_90a";
    }
  all_are_right(cases);
}

void enumerated_schedules_are_right(void**) {
  std::vector<MuGraphCase> cases;
  auto sample = [&](const MuGraphCase& base, size_t count) {
    const auto target = find_target("sm_90a");
    assert_ok(target);
    const std::vector<Schedule> all = enumerate_schedules(base.mugraph, **target);
    assert_true(all.size() > count);
    for (size_t i = 0; i < count; ++i) {
      MuGraphCase test = base;
      test.schedule = all[i * all.size() / count];
      test.label = base.mugraph.name + ": " + print_schedule(test.schedule);
      test.target = "sm_90a";
      cases.push_back(std::move(test));
    }
  };
  const KernelSchedule own{{}, 0, {1, 1, 4}, 0, true};
  sample(sized_case("norm", kNormGraph, kNorm, {"f16", "16", "512", "256", "2", "2"}, own), 16);
  sample(sized_case("norm", kNormGraph, kNorm, {"f16", "24", "320", "192", "2", "2"}, own), 12);
  sample(sized_case("attention", kAttentionGraph, kAttention, {"f16", "128", "64", "256", "2", "4"}, own),
         16);
  sample(sized_case("adapter", kAdapterGraph, kAdapter, {"bf16", "16", "256", "256", "2", "2"}, own), 12);
  all_are_right(cases);
}

// The search may put a factor in front of a product. Near the largest number that overflows, and the product
// does not.
void factors_are_behind_products(void**) {
  const char graph[] = R"(graph factor
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
p = matmul(x, w)
z = mul(p, 64.0)
out z
)";
  const char mugraph[] = R"(mugraph factor
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID] loop=TURNS threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  s = mul(w0, 64)
  p = matmul(x0, s)
  a = accumulate_sum(p)
  store(a, z, x=1)
}
out z
)";
  auto large = [](const TensorDesc& desc, size_t input) {
    return random_buffer(desc, 5 + input, input == 0 ? 1e-5 : 2e38);
  };
  std::vector<MuGraphCase> cases;
  for (const char* dtype : {"bf16", "f32"})
    for (const char* trip_count : {"1", "4"})
      for (int stages : {0, 2}) {
        KernelSchedule way;
        way.warps = {1, 1, 4};
        way.stages = stages;
        cases.push_back(sized_case("factor", graph, mugraph, {dtype, "16", "64", "64", "2", trip_count}, way));
        cases.back().inputs = {{"large", large}};
      }
  all_are_right(cases);
}

// Tensor cores round w / -8.5 to 11 bits, where the graph rounds the product alone: that shows where the
// terms cancel. The factor is made of numbers, and stands behind a transpose.
void factors_that_round_are_behind_products(void**) {
  const char graph[] = R"(graph factor
in x: TYPE[ROWS, INNER]
in w: TYPE[COLUMNS, INNER]
t = transpose(w, perm=[1, 0])
p = matmul(x, t)
z = div(p, -8.5)
out z
)";
  const char mugraph[] = R"(mugraph factor
in x: TYPE[ROWS, INNER]
in w: TYPE[COLUMNS, INNER]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID] loop=TURNS threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=0, loop=1)
  c = reciprocal(-8.5)
  s = mul(w0, c)
  t = transpose(s, perm=[1, 0])
  p = matmul(x0, t)
  a = accumulate_sum(p)
  store(a, z, x=1)
}
out z
)";
  std::vector<MuGraphCase> cases;
  for (const char* dtype : {"f16", "bf16"})
    for (const char* trip_count : {"1", "4"}) {
      KernelSchedule way;
      way.warps = {1, 1, 4};
      cases.push_back(
          sized_case("rounding factor", graph, mugraph, {dtype, "16", "256", "64", "2", trip_count}, way));
    }
  all_are_right(cases);
}

}  // namespace

// Of eight elements of a row in each thread, its sum alone.
void softmaxes_divide_once_a_row(void**) {
  const std::string io = "in x: TYPE[ROWS, COLUMNS]\n";
  KernelSchedule way;
  way.warps = {4, 1, 1};
  const MuGraphCase test = sized_case("softmax", "graph softmax\n" + io + "y = softmax(x)\nout y\n",
                                      "mugraph softmax\n" + io +
                                          "tensor y: TYPE[ROWS, COLUMNS]\nkernel grid=[GRID] threads=128 {\n"
                                          "  x0 = load(x, x=0)\n  p = softmax(x0, axis=[1])\n  store(p, y, x=0)\n}\nout y\n",
                                      {"f32", "24", "", "256", "2", ""}, way);
  const std::string text = emitted(test).kernels;
  const std::string kernel = text.substr(text.find("__global__"));
  assert_contains(kernel, "1.000000000e+00f / ");
  size_t divisions = 0;
  for (size_t at = 0; (at = kernel.find("] / ", at)) != std::string::npos; ++at) ++divisions;
  assert_int_equal(divisions, 0);
  all_are_right({test});
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(norms_are_right),
                              cmocka_unit_test(attention_is_right),
                              cmocka_unit_test(normed_attention_is_right),
                              cmocka_unit_test(adapters_are_right),
                              cmocka_unit_test(rows_are_right),
                              cmocka_unit_test(parts_of_no_whole_vectors_are_right),
                              cmocka_unit_test(factors_are_behind_products),
                              cmocka_unit_test(factors_that_round_are_behind_products),
                              cmocka_unit_test(softmaxes_divide_once_a_row),
                              cmocka_unit_test(enumerated_schedules_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
