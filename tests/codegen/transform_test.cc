// Operands of wgmma that warps of their own make of what TMA has brought (transform): right in the emulator where stages go round,
// proved, with faults that are found, and refused where warps would have to hand something to each other.
#include "core/schedule/enumerate.h"
#include "core/verify/rounded_values.h"
#include "tests/codegen/mutations.h"
#include "tests/codegen/proofs.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

KernelSchedule way(const WarpCounts& warps, int stages, bool overlap = false, bool shared_a = false) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tma = out.wgmma = out.producer = out.setmaxnreg = out.transform = true;
  out.overlap = overlap;
  out.shared_a = shared_a;
  return out;
}

// Attention with values, keys or both that are made of what is loaded (@).
MuGraphCase attention(const std::string& keys, const std::string& values, const Sizes& sizes,
                      const KernelSchedule& schedule, std::string mugraph = kAttention) {
  std::string graph = kAttentionGraph;
  auto make = [&](const std::string& made, const std::string& name, const std::string& of) {
    if (of.empty()) return;
    graph = with(with(graph, ", " + name + ")", ", " + made + ")"), "s = matmul",
                 made + " = " + with(of, "@", name) + "\ns = matmul");
    mugraph = with(with(mugraph, ", " + name + "0)", ", " + made + "0)"), "s = matmul",
                   made + "0 = " + with(of, "@", name + "0") + "\n  s = matmul");
  };
  make("c", "k", keys);
  make("w", "v", values);
  return sized_case("attention of " + keys + " and " + values, graph, mugraph, sizes, schedule);
}
const char kNormed[] = "rms_norm(@, axis=[2], eps=1e-05)";
const Sizes kOne = {"bf16", "64", "64", "160", "1", "5"}, kTwo = {"f16", "128", "32", "160", "2", "5"},
            kWide = {"f16", "128", "64", "256", "1", "4"};

std::vector<MuGraphCase> attentions() {
  return {attention("", kNormed, kOne, way({4, 1, 1}, 2)),
          attention("", kNormed, kTwo, way({4, 1, 1}, 3, true)),
          attention("", kNormed, kTwo, way({4, 1, 1}, 3, true, true)),
          attention("", kNormed, kWide, way({8, 1, 1}, 3, true)),
          attention("silu(@)", "", kOne, way({4, 1, 1}, 2)),
          attention("silu(@)", kNormed, kTwo, way({4, 1, 1}, 4, true)),
          // Two elements for each thread, which come by ldmatrix.
          attention("", kNormed, {"f16", "64", "16", "64", "1", "4"}, way({4, 1, 1}, 2)),
          attention("", kNormed, {"f16", "64", "16", "64", "1", "4"}, way({4, 1, 1}, 3, true))};
}

// Of two blocks of a cluster each has half of the keys.
std::string in_clusters() {
  const std::string cut =
      with(with(kAttention, "loop=2)", "cluster=2, loop=2)"), "loop=1)", "cluster=1, loop=1)");
  return with(with(cut, "loop=TURNS", "cluster=2 loop=TURNS"), "y = div(n, l)",
              "lc = cluster_rescaled(l, m)\n  nc = cluster_rescaled(n, m)\n  y = div(nc, lc)");
}

// Keys and values of which positions mask some tiles wholly.
MuGraphCase masked_attention(const KernelSchedule& schedule) {
  const std::string positions = R"(i = iota(axis=[0], shape=[ROWS, COLUMNS], dtype=i32)
j = iota(axis=[1], shape=[ROWS, COLUMNS], dtype=i32)
c = le(j, i)
)";
  const std::string graph = with(with(kAttentionGraph, "s = matmul(q, k)\n",
                                      positions + "u = silu(k)\nw = rms_norm(v, axis=[2], eps=1e-05)\n"
                                                  "z = matmul(q, u)\ns = where(c, z, -inf)\n"),
                                 ", v)", ", w)"),
                    tensors =
                        "tensor i: i32[ROWS, COLUMNS]\ntensor j: i32[ROWS, COLUMNS]\n"
                        "tensor c: bool[ROWS, COLUMNS]\ntensor o:";
  std::string mugraph =
      with(with(kAttention, "tensor o:", tensors), "kernel grid", positions + "kernel grid");
  mugraph = with(mugraph, "  s = matmul(q0, k0)\n",
                 "  c0 = load(c, z=0, loop=1)\n  u0 = silu(k0)\n  w0 = rms_norm(v0, axis=[2], eps=1e-05)\n"
                 "  x = matmul(q0, u0)\n  s = where(c0, x, -inf)\n");
  MuGraphCase out = sized_case("masked attention", graph, with(mugraph, "(e, v0)", "(e, w0)"),
                               {"f16", "128", "64", "128", "2", "4"}, schedule);
  for (size_t k = 0; k + 1 < out.schedule.kernels.size(); ++k) out.schedule.kernels[k] = {};
  return out;
}

// Values with weights, which warps that make operands load in front of the loop; behind a launch that makes the queries.
MuGraphCase attention_with_weights(const Sizes& sizes, const KernelSchedule& schedule) {
  const std::string
      made = "w00 = rms_norm(v0, axis=[2], eps=1e-05)\n  g0 = load(g)\n  w0 = mul(w00, g0)\n  ",
      negated = "kernel grid=[2] threads=128 {\n  a = load(q, x=0)\n  b = neg(a)\n  store(b, z, x=0)\n}\n";
  std::string graph = with(kAttentionGraph, "s = matmul(q, k)",
                           "z = neg(q)\nn = rms_norm(v, axis=-1, eps=1e-5)\nw = mul(n, g)\ns = matmul(z, k)"),
              mugraph = with(with(kAttention, "s = matmul", made + "s = matmul"), "(e, v0)", "(e, w0)");
  graph = with(graph, ", v)", ", w)");
  for (std::string* text : {&graph, &mugraph})
    *text =
        with(*text, "in v: TYPE[2, COLUMNS, INNER]\n", "in v: TYPE[2, COLUMNS, INNER]\nin g: TYPE[INNER]\n");
  mugraph = with(with(mugraph, "kernel grid=[2, 1", negated + "kernel grid=[2, 1"), "load(q, x=0, z",
                 "load(z, x=0, z");
  mugraph = with(mugraph, "tensor o:", "tensor z: TYPE[2, ROWS, INNER]\ntensor o:");
  MuGraphCase out = sized_case("attention with weights", graph, mugraph, sizes, schedule);
  out.schedule.kernels[0] = {};
  out.schedule.kernels[1].pdl = true;
  return out;
}

void all_are_made_and_proved(const std::vector<MuGraphCase>& cases) {
  for (const MuGraphCase& each : cases) assert_contains(emitted(each).source, "// transform");
  all_are_proved(cases);
}

void operands_are_made_beside_products(void**) {
  std::vector<MuGraphCase> cases = attentions();
  for (const KernelSchedule& each : {way({4, 1, 1}, 2), way({4, 1, 1}, 3, true, true)})
    cases.push_back(attention_with_weights(kTwo, each));
  for (const KernelSchedule& each : {way({4, 1, 1}, 2), way({4, 1, 1}, 3, true)}) {
    cases.push_back(attention("", kNormed, kWide, each, in_clusters()));
    cases.push_back(masked_attention(each));
  }
  all_are_made_and_proved(cases);
  all_are_right(cases);
}

// Blocks that stay make those of the next tile while the last ones of this are read.
void blocks_that_stay_make_them_for_each_tile(void**) {
  std::vector<MuGraphCase> cases;
  for (KernelSchedule each : {way({4, 1, 1}, 2), way({4, 1, 1}, 3, true), way({4, 1, 1}, 3, true, true)})
    for (int64_t blocks : {1, 3}) {
      each.persistent = blocks;
      cases.push_back(attention("", kNormed, kTwo, each));
      cases.push_back(attention_with_weights(kTwo, each));
    }
  all_are_made_and_proved(cases);
  all_are_right(cases);
}

void they_are_right_on_hostile_inputs(void**) {
  KernelSchedule stays = way({4, 1, 1}, 3, true, true);
  stays.persistent = 1;
  all_are_right_on_hostile_inputs({attention("", kNormed, kTwo, way({4, 1, 1}, 3, true)),
                                   attention("silu(@)", kNormed, kOne, way({4, 1, 1}, 2)),
                                   attention("", kNormed, kWide, way({8, 1, 1}, 3, true), in_clusters()),
                                   attention_with_weights(kTwo, stays), masked_attention(way({4, 1, 1}, 2))});
}

// Products that stay outstanding read the next stage's operand, too.
const char kProduct[] = R"(mugraph product
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID] loop=TURNS threads=128 {
  x0 = load(x, x=0, loop=1)
  w0 = load(w, loop=0)
  s0 = silu(w0)
  xw = matmul(x0, s0)
  a = accumulate_sum(xw)
  store(a, z, x=0)
}
out z
)";
// With wgmma's rows along the columns it is the rows that are made.
void sums_of_products_are_right(void**) {
  const Sizes sizes = {"f16", "128", "256", "64", "1", "4"};
  const std::string graph = with(kProductGraph, "z = matmul(x, w)", "s = silu(w)\nz = matmul(x, s)");
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& each : {way({4, 1, 1}, 2), way({8, 1, 1}, 3), way({4, 2, 1}, 4)})
    cases.push_back(sized_case("product", graph, kProduct, sizes, each));
  const std::string of_rows = with(kProductGraph, "z = matmul(x, w)", "s = silu(x)\nz = matmul(s, w)"),
                    rows = with(with(kProduct, "silu(w0)", "silu(x0)"), "matmul(x0, s0)", "matmul(s0, w0)");
  cases.push_back(sized_case("product of rows", of_rows, rows, sizes, way({1, 4, 1}, 3)));
  all_are_made_and_proved(cases);
  all_are_right(cases);
}

// A tile takes the place of what it is made of where each thread writes what it has read.
void tiles_are_made_in_place(void**) {
  const std::string source = emitted(attention("", kNormed, kWide, way({8, 1, 1}, 3, true))).source;
  assert_true(source.find("iteration % 3 * 16384") != std::string::npos);
}

void planted_faults_are_found(void**) {
  const std::vector<const char*> kUnordered = {"no synchronisation between", "race", "proxy",
                                               "asynchronous copy"};
  are_found(attention("", kNormed, kOne, way({4, 1, 1}, 3, true)),
            {{"fence_proxy_async();", "", kUnordered},
             {"mbarrier_arrive(full + iteration % 3 * 3 + 2);", "", {"deadlock"}},
             {"mbarrier_wait(full + iteration % 3 * 3 + 2, iteration / 3 & 1);", "", kUnordered},
             {"mbarrier_wait(full + iteration % 3 * 3 + 1, iteration / 3 & 1);", "", kUnordered},
             {"mbarrier_init(full + 2, 4);",
              "mbarrier_init(full + 2, 3);",
              {"arrivals", "race", "no synchronisation", "proxy"}}});
}

void others_are_refused(void**) {
  // Sums over what several warps have.
  assert_error(emit(attention("rms_norm(@, axis=[1], eps=1e-05)", "", kOne, way({4, 1, 1}, 2))),
               ErrorCode::UNSUPPORTED, "warps of their own (transform)");
  // Weights of which each thread would need those that another one has loaded.
  std::string graph = with(with(kAttentionGraph, "s = matmul(q, k)", "c = mul(k, g)\ns = matmul(q, c)"),
                           "in v:", "in g: TYPE[INNER, 1]\nin v:"),
              mugraph = with(with(kAttention, "s = matmul(q0, k0)",
                                  "g0 = load(g)\n  c0 = mul(k0, g0)\n  s = matmul(q0, c0)"),
                             "in v:", "in g: TYPE[INNER, 1]\nin v:");
  assert_error(emit(sized_case("weights", graph, mugraph, kOne, way({4, 1, 1}, 2))), ErrorCode::UNSUPPORTED,
               "warps of their own (transform)");
  // Less than a word for each thread.
  assert_error(emit(attention("silu(@)", "", {"f16", "128", "16", "64", "1", "4"}, way({8, 1, 1}, 2))),
               ErrorCode::UNSUPPORTED, "warps of their own (transform)");
  // Nothing to make.
  assert_error(emit(attention("", "", kOne, way({4, 1, 1}, 2))), ErrorCode::UNSUPPORTED, "transform");
  KernelSchedule without = way({4, 1, 1}, 2);
  without.setmaxnreg = false;
  assert_error(emit(attention("", kNormed, kOne, without)), ErrorCode::INVALID_ARGUMENT, "transform");
  KernelSchedule crowded = way({4, 1, 1}, 2);
  crowded.min_blocks = 4;
  assert_error(emit(attention("", kNormed, kOne, crowded)), ErrorCode::INVALID_ARGUMENT, "transform");
  KernelSchedule many = way({16, 1, 1}, 2);
  assert_error(emit(attention("", kNormed, kOne, many)), ErrorCode::INVALID_ARGUMENT, "transform");
}

// It is tried where there is something to make, and nowhere else.
void it_is_enumerated_where_operands_are_made(void**) {
  auto tries = [](MuGraphCase each) {
    note_rounded_values(each.graph, each.mugraph);
    const auto all = enumerate_schedules(each.mugraph, **find_target("sm_90a"));
    return std::any_of(all.begin(), all.end(), [](const Schedule& one) { return one.kernels[0].transform; });
  };
  assert_true(tries(attention("", kNormed, kWide, {})));
  assert_false(tries(attention("", "", kWide, {})));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(operands_are_made_beside_products),
                              cmocka_unit_test(blocks_that_stay_make_them_for_each_tile),
                              cmocka_unit_test(they_are_right_on_hostile_inputs),
                              cmocka_unit_test(sums_of_products_are_right),
                              cmocka_unit_test(tiles_are_made_in_place),
                              cmocka_unit_test(planted_faults_are_found),
                              cmocka_unit_test(others_are_refused),
                              cmocka_unit_test(it_is_enumerated_where_operands_are_made)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
