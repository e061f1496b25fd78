// Which launch looks at what loops with `intervals` do not load.
#include "core/schedule/looks.h"

#include "core/mugraph/tile_masks.h"
#include "core/mugraph/views.h"
#include "tests/mugraph/texts.h"

using namespace quern;

namespace {

const char kMuGraph[] = R"(mugraph g
in x: f32[64, 64]
in v: f32[64, 8]
tensor i: i32[64, 64]
tensor j: i32[64, 64]
tensor m: bool[64, 64]
tensor t: f32[64, 64]
tensor u: f32[64, 8]
tensor z: f32[64, 8]
i = iota(shape=[64, 64], axis=[0], dtype=i32)
j = iota(shape=[64, 64], axis=[1], dtype=i32)
m = le(j, i)
kernel grid=[4] threads=128 {
  a = load(x, x=0)
  b = exp(a)
  store(b, t, x=0)
}
kernel grid=[4] threads=128 {
  c = load(v, x=0)
  d = exp(c)
  store(d, u, x=0)
}
kernel grid=[4] loop=8 threads=128 {
  e = load(t, x=0, loop=1)
  f = load(m, x=0, loop=1)
  g = load(VALUES, loop=0)
  h = where(f, e, 0)
  p = matmul(h, g)
  s = accumulate_sum(p)
  store(s, z, x=0)
}
out z, u
)";

void the_launch_in_front_looks(void**) {
  struct Case {
    const char* values;
    KernelSchedule in_front;  // of the second kernel
    int64_t first;            // kernel of the launch that looks, of those with blocks; -1: none
  };
  KernelSchedule alone, joined, fed, stays;
  alone.warps = {1, 1, 4};
  joined = fed = stays = alone;
  joined.joined = true;
  fed.producer = true;
  stays.persistent = 2;
  for (const Case& each : {Case{"v", alone, 1}, Case{"v", joined, 0}, Case{"v", fed, -1},
                           Case{"v", stays, -1}, Case{"u", alone, -1}}) {
    MuGraph mugraph = mugraph_of(with(kMuGraph, "VALUES", each.values));
    use_views(mugraph);
    const size_t last = mugraph.kernels.size() - 1;
    Schedule schedule = default_schedule(mugraph);
    for (size_t k = last - 2; k < last; ++k) schedule.kernels[k] = k == last - 2 ? alone : each.in_front;
    assert_true(!launch_that_looks(mugraph, schedule, last));
    schedule.kernels[last].intervals = true;
    const auto launch = launch_that_looks(mugraph, schedule, last);
    assert_int_equal(launch ? static_cast<int64_t>(launch->first + 2 - last) : -1, each.first);
    if (launch) assert_int_equal(launch->end, last);
  }
}

// Sums show what is not finite where some block visits each tile of the values, and makes nothing but products of them.
void sums_show_what_is_visited(void**) {
  struct Case {
    const char *from, *to;
    bool show;
  };
  const char kMask[] = "m = le(j, i)", kTensor[] = "tensor m:", kProduct[] = "p = matmul(h, g)";
  for (const Case& each : {Case{kMask, kMask, true}, Case{kMask, "d = sub(i, 20)\nm = le(j, d)", false},
                           Case{kMask, "d = add(i, 20)\nm = le(j, d)", true},
                           Case{kProduct, "y = exp(g)\n  p = matmul(h, y)", false},
                           Case{kProduct, "y = mul(g, 2)\n  p = matmul(h, y)", false}}) {
    const std::string text = with(with(kMuGraph, "VALUES", "v"), each.from, each.to);
    MuGraph mugraph = mugraph_of(
        text.find("\nd = ") == text.npos ? text : with(text, kTensor, "tensor d: i32[64, 64]\ntensor m:"));
    use_views(mugraph);
    if (sums_show_finite(mugraph, mugraph.kernels.back()) != each.show) print_error("%s\n", each.to);
    assert_int_equal(sums_show_finite(mugraph, mugraph.kernels.back()), each.show);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(the_launch_in_front_looks),
                              cmocka_unit_test(sums_show_what_is_visited)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
