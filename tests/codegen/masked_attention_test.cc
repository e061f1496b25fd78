// Attention whose keys are masked, in the emulator: by truth values and by numbers that are added, with -inf,
// -1e30 and the lowest finite number, in patterns that leave whole tiles, splits and rows without a key; in
// one loop, over a cluster and over a second kernel; for all dtypes and data paths.
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/verify/reference.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

constexpr int64_t kRows = 16, kKeys = 64;

// Whether row i sees key j. Tiles have 16 keys, halves are splits.
struct Mask {
  const char* name;
  bool (*sees)(int64_t i, int64_t j);
};
constexpr Mask kMasks[] = {
    {"causal", [](int64_t i, int64_t j) { return j <= 3 * i; }},
    {"window", [](int64_t i, int64_t j) { return j <= 4 * i && 4 * i < j + 20; }},
    {"left padding", [](int64_t, int64_t j) { return j >= 37; }},
    {"cache", [](int64_t, int64_t j) { return j < 9; }},
    {"first half", [](int64_t i, int64_t j) { return i % 2 == 0 ? j < 32 : j >= 32; }},
    {"whole rows", [](int64_t i, int64_t j) { return i % 3 != 0 && j % 5 != 0; }},
    {"no key", [](int64_t, int64_t) { return false; }},
    {"one key", [](int64_t i, int64_t j) { return j == (7 * i + 50) % kKeys; }},
};

struct Number {
  const char* name;
  double value;
};

double lowest(const std::string& dtype) {
  return dtype == "f16" ? -65504 : dtype == "bf16" ? -3.3895313892515355e38 : -3.4028234663852886e38;
}

std::vector<Number> numbers_of(const std::string& dtype) {
  std::vector<Number> out = {{"-inf", -std::numeric_limits<double>::infinity()}, {"lowest", lowest(dtype)}};
  if (dtype == "f16")
    out.push_back({"-1000", -1000});
  else
    out.push_back({"-1e30", dtype == "bf16" ? -1.0002555517425873e30 : -1e30});
  return out;
}

// `mask`: how scores become masked ones.
const char kGraph[] = R"(graph masked
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, INNER, COLUMNS]
in v: TYPE[2, COLUMNS, INNER]
in c: MASK[ROWS, COLUMNS]
s = matmul(q, k)
MASKED
p = softmax(a, axis=-1)
o = matmul(p, v)
out o
)";
const char kInputs[] = R"(mugraph masked
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, INNER, COLUMNS]
in v: TYPE[2, COLUMNS, INNER]
in c: MASK[ROWS, COLUMNS]
tensor o: TYPE[2, ROWS, INNER]
)";
const char kTurn[] = R"(  s = matmul(q0, k0)
  MASKED
  top = max(a, axis=[2], keepdims=true)
  m = accumulate_max(top)
  d = sub(a, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  pv = matmul(e, v0)
  n = accumulate_rescaled(pv, m)
)";

std::string loop() {
  return std::string(kInputs) + R"(kernel grid=[2] loop=TURNS threads=128 {
  q0 = load(q, x=0)
  k0 = load(k, x=0, loop=2)
  v0 = load(v, x=0, loop=1)
  c0 = load(c, loop=1)
)" + kTurn +
         R"(  y = div(n, l)
  store(y, o, x=0)
}
out o
)";
}

std::string cluster() {
  return std::string(kInputs) + R"(kernel grid=[2] cluster=2 loop=TURNS threads=128 {
  q0 = load(q, x=0)
  k0 = load(k, x=0, cluster=2, loop=2)
  v0 = load(v, x=0, cluster=1, loop=1)
  c0 = load(c, cluster=1, loop=1)
)" + kTurn +
         R"(  lc = cluster_rescaled(l, m)
  nc = cluster_rescaled(n, m)
  y = div(nc, lc)
  store(y, o, x=0)
}
out o
)";
}

std::string split() {
  return std::string(kInputs) + R"(tensor pm: f32[2, 2, ROWS, 1]
tensor pl: f32[2, 2, ROWS, 1]
tensor pn: f32[2, 2, ROWS, INNER]
kernel grid=[2, 2] loop=TURNS threads=128 {
  q0 = load(q, x=0)
  k0 = load(k, x=0, y=2, loop=2)
  v0 = load(v, x=0, y=1, loop=1)
  c0 = load(c, y=1, loop=1)
)" + kTurn +
         R"(  m4 = reshape(m, shape=[1, 1, ROWS, 1])
  l4 = reshape(l, shape=[1, 1, ROWS, 1])
  n4 = reshape(n, shape=[1, 1, ROWS, INNER])
  store(m4, pm, x=1, y=0)
  store(l4, pl, x=1, y=0)
  store(n4, pn, x=1, y=0)
}
kernel grid=[2] loop=1 threads=128 {
  m0 = load(pm, x=1)
  l0 = load(pl, x=1)
  n0 = load(pn, x=1)
  top = max(m0, axis=[0], keepdims=false)
  d = sub(m0, top)
  f = exp(d)
  lf = mul(l0, f)
  nf = mul(n0, f)
  l = sum(lf, axis=[0], keepdims=false)
  n = sum(nf, axis=[0], keepdims=false)
  y = div(n, l)
  store(y, o, x=0)
}
out o
)";
}

// With the lowest f16 in such a row, numerators are e^0.01 instead of 1, and round by up to half a unit of
// f16.
bool leaves_rows_without_a_key(const Mask& mask, int64_t rows) {
  for (int64_t i = 0, j; i < rows; ++i) {
    for (j = 0; j < kKeys && !mask.sees(i, j);) ++j;
    if (j == kKeys) return true;
  }
  return false;
}

// Numerators of equal scores sum up to 64 times the values, which are near the largest number: both sums and
// their quotient must be finite (core/mugraph/numerators.h).
InputKind largest_values(const Number& number) {
  auto buffer = [number](const TensorDesc& desc, size_t input) {
    RealTensor elements;
    for (int64_t e = 0; e < desc.span(); ++e)
      elements.push_back(input < 2    ? 0.0
                         : input == 2 ? -0.75 * lowest(dtype_name(desc.dtype)) * (e % 3 == 1 ? -1 : 1)
                         : desc.dtype == DType::boolean ? e % 5 != 0
                         : e % 5 != 0                   ? 0.0
                                                        : number.value);
    return write_buffer(desc, elements);
  };
  return {"largest values " + std::string(number.name), buffer};
}

// Scores are up to some 50, so that tiles differ.
std::vector<InputKind> inputs_of(const std::vector<Number>& added, int64_t rows) {
  std::vector<InputKind> out = {largest_values(added[0])};
  for (const Mask& mask : kMasks)
    for (const Number& number : added) {
      if (number.value == lowest("f16") && leaves_rows_without_a_key(mask, rows)) continue;
      auto buffer = [&mask, number](const TensorDesc& desc, size_t input) {
        if (input < 3) return random_buffer(desc, 77 + input, input == 2 ? 1.0 : 3.5);
        RealTensor elements;
        for (int64_t i = 0; i < desc.shape[0]; ++i)
          for (int64_t j = 0; j < kKeys; ++j)
            elements.push_back(desc.dtype == DType::boolean ? mask.sees(i, j)
                               : mask.sees(i, j)            ? 0.0
                                                            : number.value);
        return write_buffer(desc, elements);
      };
      out.push_back({std::string(mask.name) + " " + number.name, buffer});
    }
  return out;
}

void add_cases(std::vector<MuGraphCase>& cases, const std::string& mugraph, const std::string& label,
               const std::vector<KernelSchedule>& ways, const char* trip_count, int64_t rows = kRows) {
  const std::string all_rows = std::to_string(rows);
  for (const std::string dtype : {"f16", "bf16", "f32"})
    for (const KernelSchedule& way : ways) {
      if (way.wgmma && dtype == "f32") continue;
      auto add = [&](const std::string& type, const std::string& masked, const std::string& in_block,
                     const std::vector<Number>& added, const std::string& name) {
        const Sizes sizes{dtype.c_str(), all_rows.c_str(), "16", "64", "1", trip_count};
        auto fill = [&](const std::string& text, const std::string& how) {
          return with(with(text, "MASKED", how), "MASK", type);
        };
        cases.push_back(
            sized_case(label + " " + name, fill(kGraph, masked), fill(mugraph, in_block), sizes, way));
        cases.back().inputs = inputs_of(added, rows);
        if (way.tma || label == "cluster") cases.back().target = "sm_90a";
      };
      for (const Number& number : numbers_of(dtype)) {
        const std::string text = print_number(number.value);
        const std::string masked = "where(c, s, " + text + ")", in_block = "where(c0, s, " + text + ")";
        add("bool", "a = " + masked, "a = " + in_block, {{"", number.value}}, number.name);
        // A scale behind the mask, no power of two.
        add("bool", "b = " + masked + "\na = mul(b, 0.30078125)",
            "b = " + in_block + "\n  a = mul(b, 0.30078125)", {{"", number.value}},
            std::string("scaled ") + number.name);
      }
      add(dtype, "a = add(s, c)", "a = add(s, c0)", numbers_of(dtype), "added");
    }
}

void loops_are_right(void**) {
  std::vector<MuGraphCase> cases;
  add_cases(cases, loop(), "loop", {{{}, 0, {1, 1, 2}, 0, true}, {{}, 0, {1, 2, 1}, 2, true, true}}, "4");
  all_are_right(cases);
}

// Masks come through the ring, by TMA, and threads read them while products are under way.
void overlapped_loops_are_right(void**) {
  KernelSchedule way;
  way.warps = {4, 1, 1};
  way.stages = 3;
  way.tma = way.wgmma = way.producer = way.overlap = true;
  std::vector<MuGraphCase> cases;
  add_cases(cases, loop(), "overlapped", {way}, "4", 64);
  all_are_right(cases);
}

// Scores in f32 that are cast from scaled ones of 16 bits, behind the mask: their numerators enter tensor cores as the
// 16-bit numbers that the graph makes of them, wherever the scale has gone.
void cast_scores_stay_on_tensor_cores(void**) {
  KernelSchedule way;
  way.warps = {4, 1, 1};
  way.stages = 2;
  way.tma = way.wgmma = way.producer = true;
  std::string graph = with(kGraph, "MASKED",
                           "t = mul(s, 0.30078125)\nf = cast(t, dtype=f32)\na = where(c, f, -inf)"),
              mugraph = with(loop(), "MASKED", "t = mul(s, 0.30078125)\n  a = where(c0, t, -inf)");
  graph = with(graph, "p = softmax(a, axis=-1)", "w = softmax(a, axis=-1)\np = cast(w, dtype=TYPE)");
  std::vector<MuGraphCase> cases = {sized_case("cast", with(graph, "MASK", "bool"),
                                               with(mugraph, "MASK", "bool"),
                                               {"f16", "64", "16", "64", "1", "4"}, way)};
  cases[0].inputs = inputs_of({{"", 0}}, 64);
  cases[0].target = "sm_90a";
  const std::string source = emitted(cases[0]).source, kernel = source.substr(source.rfind("__global__"));
  assert_true(kernel.find("wgmma<") != std::string::npos);
  if (kernel.find("multiply_add(") != std::string::npos) fail_test("a product by fma:\n" + kernel);
  all_are_right(cases);
}

void clusters_are_right(void**) {
  std::vector<MuGraphCase> cases;
  add_cases(cases, cluster(), "cluster", {{{}, 0, {1, 1, 2}, 2, true}}, "2");
  all_are_right(cases);
}

void splits_are_right(void**) {
  std::vector<MuGraphCase> cases;
  add_cases(cases, split(), "split", {{{}, 0, {1, 1, 2}, 0, false}}, "2");
  all_are_right(cases);
}

// Sums that no quotient hides: NaN where a whole row is masked, and only there.
void sums_alone_are_right(void**) {
  const char graph[] = R"(graph sums
in s: TYPE[ROWS, COLUMNS]
m = max(s, axis=1, keepdims=true)
d = sub(s, m)
e = exp(d)
l = sum(e, axis=1, keepdims=true)
g = log(l)
z = add(g, m)
out l, z
)";
  const char mugraph[] = R"(mugraph sums
in s: TYPE[ROWS, COLUMNS]
tensor o: TYPE[ROWS, 1]
tensor z: TYPE[ROWS, 1]
kernel grid=[2] loop=TURNS threads=128 {
  s0 = load(s, x=0, loop=1)
  t = max(s0, axis=[1], keepdims=true)
  m = accumulate_max(t)
  d = sub(s0, m)
  e = exp(d)
  r = sum(e, axis=[1], keepdims=true)
  l = accumulate_rescaled(r, m)
  u = sub(m, m)
  w = add(l, u)
  g = log(w)
  y = add(g, m)
  store(w, o, x=0)
  store(y, z, x=0)
}
out o, z
)";
  auto masked = [](const TensorDesc& desc, size_t) {
    RealTensor elements;
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kKeys; ++j)
        elements.push_back(i % 4 == 0 || (i % 4 == 1 && j < 40) ? -std::numeric_limits<double>::infinity()
                                                                : static_cast<double>((i + 3 * j) % 7));
    return write_buffer(desc, elements);
  };
  std::vector<MuGraphCase> cases;
  for (const char* dtype : {"f16", "bf16", "f32"})
    for (const char* trip_count : {"1", "4"}) {
      cases.push_back(sized_case("sums", graph, mugraph, {dtype, "16", "16", "64", "1", trip_count},
                                 {{}, 0, {1, 1, 2}, 0, true}));
      cases.back().inputs = {{"masked", masked}};
    }
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(loops_are_right),
                              cmocka_unit_test(overlapped_loops_are_right),
                              cmocka_unit_test(cast_scores_stay_on_tensor_cores),
                              cmocka_unit_test(sums_alone_are_right),
                              cmocka_unit_test(clusters_are_right),
                              cmocka_unit_test(splits_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
