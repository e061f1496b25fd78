// What is learnt from the log of ptxas and from the emitter: which kernels do not fit, and which others would not.
#include "core/optimize/registers.h"

#include "core/graph/text.h"
#include "core/jit/compiler.h"
#include "core/mugraph/text.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

struct Subject {
  Graph graph;
  MuGraph mugraph;

  Subject() {
    const auto folder = test_root();
    auto parsed = parse_graph(read_test_file(folder / "examples/gqa_b1.qg"));
    auto made = parse_mugraph(read_test_file(folder / "tests/golden/mugraph/gqa_b1-split.qmu"));
    assert_ok(parsed);
    assert_ok(made);
    graph = std::move(*parsed);
    mugraph = std::move(*made);
  }
  EmittedMuGraph emit(const Schedule& schedule) const {
    auto emitted = emit_mugraph(graph, mugraph, schedule, **find_target("sm_90a"));
    assert_ok(emitted);
    return std::move(*emitted);
  }
};

std::string log_of(const std::string& function, int bytes, const char* begin) {
  return "ptxas info    : Compiling entry function '" + function +
         "' for 'sm_90a'\nptxas info    : Function properties for " + function + "\n" + begin +
         std::to_string(bytes) + " bytes stack frame, 184 bytes spill stores, 188 bytes spill loads\n";
}

void a_crowded_kernel_is_known_again(void**) {
  const Subject subject;
  Schedule schedule = default_schedule(subject.mugraph);
  assert_int_equal(schedule.kernels.size(), 2);
  const EmittedMuGraph emitted = subject.emit(schedule);
  for (const char* begin : {"    ", "ptxas         .     "}) {
    UnfitKernels spilling(**find_target("sm_90a"));
    assert_int_equal(spilling.add(subject.mugraph, schedule, emitted,
                                 log_of(emitted.blocks[0].function, 0, begin) +
                                     log_of(emitted.blocks[1].function, 0, begin)),
                     0);
    assert_false(spilling.expects(subject.mugraph, schedule));
    assert_false(spilling.suspects(subject.mugraph, schedule));
    assert_int_equal(spilling.add(subject.mugraph, schedule, emitted,
                                 log_of(emitted.blocks[0].function, 168, begin) +
                                     log_of(emitted.blocks[1].function, 0, begin)),
                     168);
    assert_true(spilling.expects(subject.mugraph, schedule));
    // What wants as large a share of fewer registers is suspected.
    Schedule dense = schedule;
    dense.kernels[0].min_blocks = 4;
    assert_false(spilling.expects(subject.mugraph, dense));
    assert_true(spilling.suspects(subject.mugraph, dense));
    // Whatever the other kernel does, and however deep the ring is.
    Schedule other = schedule;
    other.kernels[1].warps = {1, 1, 8};
    assert_true(spilling.expects(subject.mugraph, other));
    other.kernels[0].stages = 2;
    assert_false(spilling.expects(subject.mugraph, other));
    spilling.add(subject.mugraph, other, subject.emit(other), log_of(emitted.blocks[0].function, 8, begin));
    other.kernels[0].stages = 3;
    assert_true(spilling.expects(subject.mugraph, other));
    // More warps have less each.
    other.kernels[0].warps[0] *= 2;
    assert_false(spilling.expects(subject.mugraph, other));
  }
}

// By the emitter, for whatever stands in its schedule.
void a_refused_kernel_is_known_again(void**) {
  const Subject subject;
  const Schedule schedule = default_schedule(subject.mugraph);
  UnfitKernels unfit(**find_target("sm_90a"));
  unfit.add(subject.mugraph, schedule, 1);
  assert_true(unfit.expects(subject.mugraph, schedule));
  Schedule other = schedule;
  other.kernels[0].stages = 2;
  assert_true(unfit.expects(subject.mugraph, other));
  other.kernels[1].warps = {1, 1, 8};
  assert_false(unfit.expects(subject.mugraph, other));
}

void the_emitter_says_which_kernel_it_refuses(void**) {
  const Subject subject;
  Schedule schedule = default_schedule(subject.mugraph);
  auto refused_of = [&] {
    std::optional<size_t> refused;
    assert_error(emit_mugraph(subject.graph, subject.mugraph, schedule, **find_target("sm_90a"), nullptr, {},
                              &refused),
                 ErrorCode::UNSUPPORTED, "");
    return refused;
  };
  schedule.kernels[0].warps = {4, 1, 1};
  schedule.kernels[0].wgmma = schedule.kernels[0].tma = schedule.kernels[0].producer = true;
  schedule.kernels[0].overlap = true;
  schedule.kernels[0].stages = 3;
  assert_true(refused_of() == std::optional<size_t>(0));
}

// What ptxas has been seen to get wrong.
void warpgroups_with_a_stack_are_found(void**) {
  const Subject subject;
  Schedule schedule = default_schedule(subject.mugraph);
  const EmittedMuGraph emitted = subject.emit(schedule);
  const auto spilling = [&](int first, int second) {
    return spilling_warpgroups(schedule, emitted.blocks,
                               log_of(emitted.blocks[0].function, first, "    ") +
                                   log_of(emitted.blocks[1].function, second, "    "));
  };
  assert_text_equal(spilling(168, 8), "");
  schedule.kernels[0].wgmma = true;
  assert_text_equal(spilling(0, 8), "");
  assert_text_equal(spilling(8, 0), emitted.blocks[0].function);
}

void the_real_log_is_understood(void**) {
  auto nvrtc = open_nvrtc("");
  if (!nvrtc) skip_test("there is no NVRTC: " + nvrtc.status().message());
  const Subject subject;
  const Schedule schedule = default_schedule(subject.mugraph);
  EmittedMuGraph emitted = subject.emit(schedule);
  // An array that is not unrolled has no place in registers.
  const std::string source =
      "extern \"C\" __global__ void " + emitted.blocks[0].function +
      "(float* x, int n) {\n  float a[64];\n  for (int i = 0; i < 64; ++i) a[i] = x[i] * x[i + n];\n"
      "  x[n] = a[x[n] > 0.0f ? n & 63 : 1];\n}\n";
  const auto output = (*nvrtc)->compile({source, "sm_90a", {"--ptxas-options=-v"}});
  assert_ok(output);
  UnfitKernels spilling(**find_target("sm_90a"));
  assert_true(spilling.add(subject.mugraph, schedule, emitted, output->log) >= 256);
  assert_true(spilling.expects(subject.mugraph, schedule));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_crowded_kernel_is_known_again), cmocka_unit_test(a_refused_kernel_is_known_again),
      cmocka_unit_test(the_emitter_says_which_kernel_it_refuses),
      cmocka_unit_test(warpgroups_with_a_stack_are_found), cmocka_unit_test(the_real_log_is_understood)};
  return cmocka_run_group_tests_name("optimize-registers", tests, nullptr, nullptr);
}
