// What is added to a product's sums when the loop is over: large tiles are not held in registers meanwhile, and come in whole
// sectors, whatever way the sums lie in registers.
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

struct Use {
  const char *graph, *block;  // of the sums h and s, and the residuals r and r0
  const char* outputs;
  bool stays = true;  // persistent blocks can do it
};
constexpr Use kUses[] = {
    {"y = add(h, r)", "y0 = add(s, r0)", "y"},
    {"y = add(r, h)\nz = mul(r, 2)", "y0 = add(r0, s)\n  z0 = mul(r0, 2)", "y, z",
     false},  // what is stored as it was read moves by way of shared memory
    {"m = mul(h, h)\ny = sub(m, r)", "m0 = mul(s, s)\n  y0 = sub(m0, r0)", "y"},
    // Made of one value that several need: in one loop with both stores.
    {"g = sigmoid(r)\nm = mul(r, g)\ny = mul(h, m)\nb = sub(1, g)\nc = mul(h, b)\nz = mul(c, g)",
     "g0 = sigmoid(r0)\n  m0 = mul(r0, g0)\n  y0 = mul(s, m0)\n  n0 = number(1)\n  b0 = sub(n0, g0)\n"
     "  c0 = mul(s, b0)\n  z0 = mul(c0, g0)",
     "y, z", false},
};

constexpr char kGraph[] = R"(graph residual
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in r: TYPE[ROWS, COLUMNS]
h = matmul(x, w)
USE
out OUTPUTS
)";
constexpr char kKernel[] = R"(mugraph residual
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in r: TYPE[ROWS, COLUMNS]
TENSORS
kernel grid=[GRID, 2] loop=TURNS threads=128 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  p = matmul(x0, w0)
  s = accumulate_sum(p)
  r0 = load(r, y=0, x=1)
  USE
  STORES
}
out OUTPUTS
)";

MuGraphCase residual(const Use& use, const char* dtype, const char* rows, const char* columns,
                     const KernelSchedule& way) {
  std::string tensors, stores;
  for (const char* output : {"y", "z"}) {
    if (std::string(use.outputs).find(output) == std::string::npos) continue;
    tensors += "tensor " + std::string(output) + ": TYPE[ROWS, COLUMNS]\n";
    stores += "  store(" + std::string(output) + "0, " + output + ", y=0, x=1)\n";
  }
  auto fill = [&](const char* text, const char* uses) {
    return with(with(with(with(text, "USE", uses), "OUTPUTS", use.outputs), "TENSORS\n", tensors),
                "  STORES\n", stores);
  };
  return sized_case(std::string(use.graph) + " " + dtype, fill(kGraph, use.graph), fill(kKernel, use.block),
                    {dtype, rows, "64", columns, "2", "2"}, way);
}

std::vector<KernelSchedule> ways() {
  KernelSchedule direct, staged, producer, persistent, turns, stored;
  direct.warps = {2, 2, 1};
  staged.warps = {2, 1, 1};
  staged.stages = 2;
  producer.warps = {4, 1, 1};
  producer.stages = 2;
  producer.tma = producer.wgmma = producer.producer = true;
  for (KernelSchedule* each : {&direct, &staged, &producer}) each->tile = {128, 64, 0};
  persistent = producer;
  persistent.persistent = 3;
  turns = persistent;
  turns.persistent = 1;
  turns.pingpong = turns.setmaxnreg = true;
  stored = producer;
  stored.tma_store = true;
  return {direct, staged, producer, persistent, turns, stored};
}

void they_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& way : ways())
    for (const Use& use : kUses)
      for (const char* dtype : {"bf16", "f16", "f32"}) {
        if (way.wgmma && dtype == std::string("f32")) continue;  // takes 16 bits
        if (way.persistent > 0 && !use.stays) continue;
        cases.push_back(residual(use, dtype, "128", "256", way));
        cases.push_back(residual(use, dtype, "104", "248", way));  // the last tiles are not whole
      }
  all_are_right(cases);
}

// A product behind the loop makes its operands in front of it, which is where it loads them.
constexpr char kTwoProducts[] = R"(graph behind
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in r: TYPE[COLUMNS, 64]
h = matmul(x, w)
y = matmul(h, r)
out y
)";
constexpr char kBehind[] = R"(mugraph behind
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in r: TYPE[COLUMNS, 64]
tensor y: TYPE[ROWS, 64]
kernel grid=[GRID] loop=TURNS threads=128 {
  x0 = load(x, x=0, loop=1)
  w0 = load(w, loop=0)
  p = matmul(x0, w0)
  s = accumulate_sum(p)
  r0 = load(r)
  y0 = matmul(s, r0)
  store(y0, y, x=0)
}
out y
)";

void operands_of_products_are_there(void**) {
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& way : {ways()[0], ways()[1]})
    for (const char* dtype : {"bf16", "f32"}) {
      KernelSchedule own = way;
      own.tile = {};
      cases.push_back(sized_case("behind", kTwoProducts, kBehind, {dtype, "64", "64", "128", "2", "2"}, own));
    }
  all_are_right(cases);
}

// A mask behind the loop is asked for as the sums lie, whose rows are reduced, and as the next product takes them.
constexpr char kTwice[] = R"(graph twice
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in m: i32[ROWS, COLUMNS]
in r: TYPE[COLUMNS, 64]
h = matmul(x, w)
s = where(m, h, -1000)
t = max(s, axis=[1], keepdims=true)
d = sub(s, t)
e = exp(d)
y = matmul(e, r)
out y
)";
constexpr char kAskedTwice[] = R"(mugraph twice
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in m: i32[ROWS, COLUMNS]
in r: TYPE[COLUMNS, 64]
tensor y: TYPE[ROWS, 64]
kernel grid=[GRID] loop=TURNS threads=128 {
  m0 = load(m, x=0)
  x0 = load(x, x=0, loop=1)
  w0 = load(w, loop=0)
  p = matmul(x0, w0)
  a = accumulate_sum(p)
  s0 = where(m0, a, -1000)
  t = max(s0, axis=[1], keepdims=true)
  d = sub(s0, t)
  e = exp(d)
  r0 = load(r)
  y0 = matmul(e, r0)
  store(y0, y, x=0)
}
out y
)";

void late_loads_are_converted_where_they_are(void**) {
  std::vector<MuGraphCase> cases;
  for (const std::array<int, 3>& warps : {std::array{1, 2, 1}, std::array{1, 2, 2}}) {
    KernelSchedule way = ways()[1];
    way.tile = {};
    way.warps = warps;
    cases.push_back(sized_case("twice", kTwice, kAskedTwice, {"f16", "64", "40", "128", "4", "1"}, way));
  }
  all_are_right(cases);
}

// In front of the first product's wait there is no load of theirs; with a store for each chunk, one load for each.
void large_ones_are_not_held(void**) {
  KernelSchedule way = ways()[3];
  const EmittedMuGraph program = emitted(residual(kUses[0], "bf16", "128", "256", way));
  const std::string& text = program.kernels;
  const size_t sums = text.find("wgmma_wait<0>"), load = text.find("load_written_elements<bf16, 8");
  assert_true(sums != std::string::npos && load != std::string::npos && load > sums);
  assert_true(text.find("exchange_words<unsigned, 4>", load) != std::string::npos);
  assert_true(text.find("dynamic_shared") == text.rfind("dynamic_shared"));  // the ring alone
}

// What two outputs are made of is loaded, and computed, behind the loop, a chunk at a time.
void outputs_share_a_loop(void**) {
  const EmittedMuGraph program = emitted(residual(kUses[3], "bf16", "128", "256", ways()[2]));
  const std::string text = program.kernels.substr(program.kernels.find("wgmma_wait<0>"));
  const size_t sigmoid = text.find("exp_fast");
  assert_true(sigmoid != std::string::npos && text.find("exp_fast", sigmoid + 1) == std::string::npos);
  assert_true(program.kernels.find("exp_fast", program.kernels.find("__global__")) >
              program.kernels.find("wgmma_wait<0>"));
  const size_t first = text.find("store_vector<bf16, 8>("),
               second = text.find("store_vector<bf16, 8>(", first + 1);
  assert_true(sigmoid < first && second != std::string::npos);
  assert_true(text.substr(first, second - first).find("int c = 0") == std::string::npos);
}

// Ways through values that meet again are many more than the values.
void long_chains_take_no_time(void**) {
  std::string graph = "v0 = mul(r, 0.5)\n", block = "half = number(0.5)\n  v00 = mul(r0, half)\n";
  std::string last = "v0";
  for (int i = 1; i < 40; ++i) {
    const std::string next = "v" + std::to_string(i);
    graph += next + " = mul(" + last + ", " + last + ")\n";
    block += "  " + next + "0 = mul(" + last + "0, " + last + "0)\n";
    last = next;
  }
  graph += "y = add(h, " + last + ")\nz = mul(h, " + last + ")";
  block += "  y0 = add(s, " + last + "0)\n  z0 = mul(s, " + last + "0)";
  all_are_right({residual({graph.c_str(), block.c_str(), "y, z"}, "bf16", "128", "256", ways()[2])});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(they_are_right),
                              cmocka_unit_test(outputs_share_a_loop),
                              cmocka_unit_test(operands_of_products_are_there),
                              cmocka_unit_test(late_loads_are_converted_where_they_are),
                              cmocka_unit_test(large_ones_are_not_held),
                              cmocka_unit_test(long_chains_take_no_time)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
