// Schedules: their text, when they fit a muGraph, what cutting a muGraph differently keeps, and their
// ranking.
#include "core/schedule/schedule.h"

#include <algorithm>
#include <functional>

#include "core/mugraph/text.h"
#include "core/schedule/enumerate.h"
#include "core/schedule/model.h"
#include "core/verify/evaluate_mugraph.h"
#include "core/verify/real_domains.h"
#include "core/verify/reference.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

const char kNorm[] = R"(mugraph norm
in x: f16[3, 24]
in w: f16[24, 12]
tensor z: f16[3, 12]
kernel grid=[2] loop=3 threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  row = sum(x0, axis=[1], keepdims=true)
  a = accumulate_sum(xw)
  q = accumulate_sum(row)
  y = div(a, q)
  store(y, z, x=1)
}
out z
)";

MuGraph parse(const char* text) {
  auto mugraph = parse_mugraph(text);
  assert_ok(mugraph);
  return std::move(*mugraph);
}

void text_reads_back(void**) {
  Schedule schedule = default_schedule(parse(kNorm));
  schedule.kernels.push_back({.tile = {7, 2, 3}, .tile_k = 19, .warps = {2, 1, 8}, .stages = 3, .prefetch = false, .cluster = 4});
  schedule.kernels.push_back({.warps = {1, 1, 1}, .wgmma = true, .pdl = true, .choices = {{2, 0}, {0, 0, 1}, {4096}}});
  schedule.kernels.push_back({.warps = {1, 1, 1}, .stages = 3, .tma = true, .min_blocks = 2, .producer = true});
  schedule.kernels.push_back({.warps = {1, 1, 1}, .stages = 3, .tf32 = true});
  auto again = parse_schedule("# a comment\n" + print_schedule(schedule));
  assert_ok(again);
  assert_true(*again == schedule);
  assert_int_equal(again->kernels[1].threads(), 512);
  assert_int_equal(again->kernels[3].workers(), 32);
  assert_int_equal(again->kernels[3].threads(), 64);
  assert_true(again->kernels.back().tf32);
}

void a_wrong_text_is_refused_with_the_reason(void**) {
  const std::string good = "kernel warps=[1, 1, 1] prefetch=1";
  assert_ok(parse_schedule(good));
  assert_ok(parse_schedule("kernel"));
  const std::pair<std::string, const char*> wrong[] = {
      {"kernel tile=[1, 2]", "1:1: tile takes 3 numbers"},
      {good + "\n" + good + " levels=[1, x]", "2:1: levels takes integers, not \"x\""},
      {good + " levels=[1", "levels has no ]"},
      {good + " tma=2", "tma takes numbers from 0 to 1, not 2"},
      {good + " min_blocks=2x", "min_blocks takes integers, not \"2x\""},
      {good + " prefetch=0", "prefetch stands there twice"},
      {good + " tmaa=1", "there is no field \"tmaa\""},
      {good + " wgmma", "\"wgmma\" is no field"},
      {"kernel tile_k=-1", "tile_k takes numbers from 0"},
      {"kernel tile_k=99999999999999999999", "tile_k takes integers"},
      {"kernels", "expected \"kernel\""},
      {"nonsense", "expected \"kernel\""}};
  for (const auto& [text, reason] : wrong)
    assert_error(parse_schedule(text), ErrorCode::INVALID_ARGUMENT, reason);
  // Neither do numbers get further that came another way.
  const MuGraph mugraph = parse(kNorm);
  Schedule none = default_schedule(mugraph);
  none.kernels[0].tile_k = -1;
  assert_error(apply_schedule(mugraph, none), ErrorCode::INVALID_ARGUMENT, "tile_k takes numbers from 0");
}

void other_parts_compute_the_same(void**) {
  const MuGraph mugraph = parse(kNorm);
  const Schedule own = default_schedule(mugraph);
  std::vector<RealTensor> inputs(2);
  for (int i = 0; i < 72; ++i) inputs[0].push_back(1 + i % 7);
  for (int i = 0; i < 288; ++i) inputs[1].push_back(i % 5 - 2);
  RealDomain domain;
  auto wanted = evaluate_mugraph(mugraph, domain, inputs);
  assert_ok(wanted);
  for (int64_t tile : {12, 6, 4, 3, 1})
    for (int64_t tile_k : {24, 12, 5, 1}) {
      Schedule schedule = own;
      schedule.kernels[0].tile[0] = tile;
      schedule.kernels[0].tile_k = tile_k;
      auto cut = apply_schedule(mugraph, schedule);
      assert_ok(cut);
      assert_int_equal(cut->kernels[0].grid[0], (12 + tile - 1) / tile);
      assert_int_equal(cut->kernels[0].trip_count, (24 + tile_k - 1) / tile_k);
      auto got = evaluate_mugraph(*cut, domain, inputs);
      assert_ok(got);
      for (size_t e = 0; e < (*wanted)[0].size(); ++e)
        assert_true(std::abs((*wanted)[0][e] - (*got)[0][e]) < 1e-9);
    }
}

// A norm may stand in a loop that cuts other dimensions than its own.
void loops_beside_norms_are_cut(void**) {
  for (const auto& [axis, works] : {std::pair{"1", true}, {"0", false}}) {
    std::string text = R"(mugraph normed
in p: f16[3, 24]
in v: f16[24, 8]
tensor o: f16[3, 8]
kernel grid=[1] loop=3 threads=128 {
  p0 = load(p, loop=1)
  v0 = load(v, loop=0)
  n = rms_norm(v0, axis=[AXIS], eps=1e-05)
  s = matmul(p0, n)
  a = accumulate_sum(s)
  store(a, o)
}
out o
)";
    text.replace(text.find("AXIS"), 4, axis);
    Schedule schedule = default_schedule(parse(text.c_str()));
    schedule.kernels[0].tile_k = 6;
    assert_int_equal(apply_schedule(parse(text.c_str()), schedule).ok(), works);
  }
}

void what_does_not_fit_is_refused(void**) {
  const MuGraph mugraph = parse(kNorm);
  auto refused = [&](auto change) {
    Schedule schedule = default_schedule(mugraph);
    change(schedule.kernels[0]);
    auto cut = apply_schedule(mugraph, schedule);
    return !cut && cut.status().code() == ErrorCode::INVALID_ARGUMENT;
  };
  assert_true(refused([](KernelSchedule& kernel) { kernel.tile[0] = 13; }));
  assert_true(refused([](KernelSchedule& kernel) { kernel.tile_k = 25; }));
  assert_true(refused([](KernelSchedule& kernel) { kernel.warps = {1, 3, 1}; }));
  assert_true(refused([](KernelSchedule& kernel) { kernel.warps = {4, 4, 2}; }));
  assert_true(refused([](KernelSchedule& kernel) { kernel.stages = 1; }));
  assert_true(refused([](KernelSchedule& kernel) {
    kernel.stages = 2;
    kernel.producer = true;
  }));
  // An iteration's own maximum stays an iteration's own: its size is part of the meaning.
  const MuGraph nested = parse(R"(mugraph nested
in x: f16[3, 24]
tensor z: f16[3, 1]
kernel grid=[1] loop=3 threads=128 {
  x0 = load(x, loop=1)
  top = max(x0, axis=[1], keepdims=true)
  a = accumulate_sum(top)
  store(a, z, x=0)
}
out z
)");
  Schedule schedule = default_schedule(nested);
  assert_ok(apply_schedule(nested, schedule));
  schedule.kernels[0].tile_k = 6;
  assert_false(apply_schedule(nested, schedule).ok());
}

void every_enumerated_schedule_fits(void**) {
  const MuGraph mugraph = parse(kNorm);
  for (const Target& target : all_targets()) {
    const std::vector<Schedule> schedules = enumerate_schedules(mugraph, target);
    assert_true(schedules.size() > 3);
    double last = 0;
    for (const Schedule& schedule : schedules) {
      auto modelled = LaunchTimes(target).of_all(mugraph, schedule);
      assert_ok(modelled);
      const double time = *modelled;
      assert_true(time >= last);
      last = time;
    }
  }
}

// What a loop makes of products is overlapped with those that multiply it, and there are none.
void sums_of_rows_alone_are_not_overlapped(void**) {
  const MuGraph mugraph = parse(R"(mugraph sums
in q: bf16[1024, 64]
in k: bf16[64, 1024]
tensor m: f32[1024, 1]
tensor r: f32[1024, 1]
kernel grid=[8] loop=8 threads=256 {
  q0 = load(q, x=0)
  k0 = load(k, loop=1)
  s = matmul(q0, k0)
  own = max(s, axis=[1], keepdims=true)
  top = accumulate_max(own)
  d = sub(s, top)
  e = exp(d)
  part = sum(e, axis=[1], keepdims=true)
  all = accumulate_rescaled(part, top)
  store(top, m, x=0)
  store(all, r, x=0)
}
out m, r
)");
  const std::vector<Schedule> schedules = enumerate_schedules(mugraph, **find_target("sm_90a"));
  assert_true(schedules.size() > 3);
  assert_true(schedules[0].kernels[0].producer);
  for (const Schedule& each : schedules) assert_false(each.kernels[0].overlap);
}

const char kLayer[] = R"(mugraph layer
in x: TYPE[64, 1024]
in w: TYPE[1024, 2048]
tensor z: TYPE[64, 2048]
kernel grid=[32] loop=16 threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z, x=1)
}
out z
)";

void the_documentation_has_the_table_of_fields(void**) {
  const std::string text = read_test_file(test_root() / "docs/mugraphs.md");
  assert_true(text.find("\n\n" + schedule_field_table() + "\n") != std::string::npos);
}

// Only who allows it gets tf32, and only for products that it changes.
void tf32_is_enumerated_where_it_is_allowed(void**) {
  auto layer = [](const std::string& dtype) {
    std::string text = kLayer;
    for (size_t at; (at = text.find("TYPE")) != std::string::npos;) text.replace(at, 4, dtype);
    return parse(text.c_str());
  };
  auto has_tf32 = [](const Schedule& schedule) { return schedule.kernels[0].tf32; };
  auto has_tf32x3 = [](const Schedule& schedule) { return schedule.kernels[0].tf32x3; };
  const MuGraph wide = layer("f32");
  for (const Target& target : all_targets()) {
    const std::vector<Schedule> exact = enumerate_schedules(wide, target),
                                allowed = enumerate_schedules(wide, target, true),
                                of_16_bits = enumerate_schedules(layer("f16"), target, true);
    assert_int_equal(std::count_if(exact.begin(), exact.end(), has_tf32), 0);
    assert_int_equal(std::count_if(of_16_bits.begin(), of_16_bits.end(), has_tf32), 0);
    // Three products in tf32 lose nothing: everybody gets them.
    assert_true(std::count_if(exact.begin(), exact.end(), has_tf32x3) > 3);
    assert_int_equal(std::count_if(of_16_bits.begin(), of_16_bits.end(), has_tf32x3), 0);
    // Both kinds, and what is faster first.
    assert_true(std::count_if(allowed.begin(), allowed.end(), has_tf32) > 3);
    assert_true(std::count_if(allowed.begin(), allowed.end(), std::not_fn(has_tf32)) > 3);
    // In tf32 tensor cores have half their rate, which on some GPUs is no more than that of exact products.
    if (target.mma_tflops < 5 * target.fma_tflops) continue;
    assert_true(has_tf32(allowed[0]));
    assert_true(*LaunchTimes(target).of_all(wide, allowed[0]) < *LaunchTimes(target).of_all(wide, exact[0]));
  }
}

// Two small products of one input, and one of what the first makes.
const char kNeighbours[] = R"(mugraph neighbours
in x: f16[16, 1024]
in w: f16[1024, 2048]
in v: f16[1024, 512]
in u: f16[2048, 64]
tensor y: f16[16, 2048]
tensor z: f16[16, 512]
tensor r: f16[16, 64]
kernel grid=[64] threads=128 {
  x0 = load(x)
  w0 = load(w, x=1)
  xw = matmul(x0, w0)
  store(xw, y, x=1)
}
kernel grid=[16] threads=128 {
  x0 = load(x)
  v0 = load(v, x=1)
  xv = matmul(x0, v0)
  store(xv, z, x=1)
}
kernel grid=[4] threads=128 {
  y0 = load(y)
  u0 = load(u, x=1)
  yu = matmul(y0, u0)
  store(yu, r, x=1)
}
out y, z, r
)";

void independent_neighbours_are_joined(void**) {
  const MuGraph mugraph = parse(kNeighbours);
  const Target& target = **find_target("sm_90a");
  const std::vector<Schedule> schedules = enumerate_schedules(mugraph, target);
  for (const Schedule& schedule : schedules) assert_ok(apply_schedule(mugraph, schedule));
  assert_true(schedules[0].kernels[1].joined);
  assert_true(std::none_of(schedules.begin(), schedules.end(),
                           [](const Schedule& schedule) { return schedule.kernels[2].joined; }));
  // Launches of their own are there to be measured, and are slower by the model.
  const auto apart = std::find_if(schedules.begin(), schedules.end(),
                                  [](const Schedule& schedule) { return !schedule.kernels[1].joined; });
  assert_true(apart != schedules.end());
  const double joined_us = *LaunchTimes(target).of_all(mugraph, schedules[0]),
               apart_us = *LaunchTimes(target).of_all(mugraph, *apart);
  assert_true(joined_us < apart_us);
  // A launch cannot bring its bytes faster than the others do together.
  const auto cut = apply_schedule(mugraph, schedules[0]);
  const KernelTime both = modelled_launch(*cut, schedules[0], 1, target);
  for (size_t k = 0; k < 2; ++k)
    assert_true(both.us >= modelled_kernel(*cut, cut->kernels[k], schedules[0].kernels[k], target).memory_us);
  assert_int_equal(launch_of(schedules[0], 1).first, 0);
  assert_int_equal(launch_of(schedules[0], 0).end, 2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(text_reads_back),
                              cmocka_unit_test(the_documentation_has_the_table_of_fields),
                              cmocka_unit_test(a_wrong_text_is_refused_with_the_reason),
                              cmocka_unit_test(other_parts_compute_the_same),
                              cmocka_unit_test(loops_beside_norms_are_cut),
                              cmocka_unit_test(what_does_not_fit_is_refused),
                              cmocka_unit_test(every_enumerated_schedule_fits),
                              cmocka_unit_test(sums_of_rows_alone_are_not_overlapped),
                              cmocka_unit_test(independent_neighbours_are_joined),
                              cmocka_unit_test(tf32_is_enumerated_where_it_is_allowed)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
