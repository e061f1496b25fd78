// Programmatic dependent launch: kernels that begin while the one in front of them, or what the caller
// enqueued, still runs: in the emulator, where nobody may touch what the other one writes.
#include "core/optimize/prove_program.h"
#include "tests/codegen/sized_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

// A product of rows that another kernel norms, with a weight that is an input.
const char kGraph[] = R"(graph behind_a_norm
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
h = rms_norm(x, axis=-1, eps=1e-5)
y = matmul(h, w)
out y
)";
const char kMuGraph[] = R"(mugraph behind_a_norm
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
tensor y: TYPE[ROWS, COLUMNS]
tensor h: TYPE[ROWS, INNER]
kernel grid=[ROWS] threads=128 {
  x0 = load(x, x=0)
  h0 = rms_norm(x0, axis=[1], eps=1e-05)
  store(h0, h, x=0)
}
kernel grid=[2] loop=TURNS threads=128 {
  h0 = load(h, loop=1)
  w0 = load(w, x=1, loop=0)
  p0 = matmul(h0, w0)
  s = accumulate_sum(p0)
  store(s, y, x=1)
}
out y
)";

constexpr Sizes kSizes{"f16", "64", "256", "128", "", "4"};

MuGraphCase behind_a_norm(const KernelSchedule& product) {
  MuGraphCase out = sized_case("behind a norm", kGraph, kMuGraph, kSizes, product);
  out.schedule.kernels[0] = {};
  out.schedule.kernels[1].pdl = true;
  out.target = "sm_90a";
  out.label += print_schedule(out.schedule);
  return out;
}

KernelSchedule schedule_of(const char* text) {
  const auto schedule = parse_schedule(text);
  assert_ok(schedule);
  return schedule->kernels[0];
}

// Of the two, the weight is asked for first, by a producer, by the first thread or by all.
void inputs_come_before_the_wait(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* text : {"kernel stages=3 tma=1 wgmma=1 producer=1 warps=[4, 1, 1]",
                           "kernel stages=3 tma=1 wgmma=1 warps=[4, 1, 1]", "kernel stages=3 warps=[2, 2, 1]",
                           "kernel stages=2 warps=[1, 2, 2]"}) {
    cases.push_back(behind_a_norm(schedule_of(text)));
    const EmittedMuGraph program = emitted(cases.back());
    const std::string product = program.source.substr(program.source.rfind("__global__"));
    const size_t wait = product.find("grid_wait()"),
                 first = product.find(cases.back().schedule.kernels[1].tma ? "tma_load" : "cp_async<");
    if (first > wait || wait == std::string::npos) fail_test(cases.back().label + product);
    for (const KernelProof& each : prove_program(program, nullptr))
      if (each.proof.disproof()) fail_test(cases.back().label + ": " + each.proof.summary());
  }
  all_are_right(cases);
}

// The first launch overlaps what the caller enqueued; not if its loop loads into registers.
void the_first_launch_overlaps_the_callers(void**) {
  const MuGraphCase ring = behind_a_norm(schedule_of("kernel stages=3 warps=[2, 2, 1]"));
  const EmittedMuGraph program = emitted(ring);
  assert_true(program.plan.launches[0].overlaps && program.plan.launches[1].overlaps);
  MuGraphCase older = ring;
  older.target = "sm_80";
  older.schedule.kernels[1].pdl = false;
  assert_false(emitted(older).plan.launches[0].overlaps);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(inputs_come_before_the_wait),
                              cmocka_unit_test(the_first_launch_overlaps_the_callers)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
