// What kernels hand on goes to DRAM and comes from there as far as the L2 cache has no room for it.
#include "core/schedule/cache_model.h"

#include <cmath>

#include "tests/mugraph/texts.h"

using namespace quern;

namespace {

const char kMuGraph[] = R"(mugraph g
in x: f32[ROWS, 1024]
tensor t: f32[ROWS, 1024]
tensor z: f32[ROWS, 1024]
kernel grid=[4] threads=128 {
  a = load(x, x=0)
  b = exp(a)
  store(b, t, x=0)
}
kernel grid=[4] threads=128 {
  c = load(t, x=0)
  d = load(x, x=0)
  e = add(c, d)
  store(e, z, x=0)
}
out z
)";

void what_has_no_room_goes_to_memory(void**) {
  Target target = **find_target("sm_90a");
  target.l2_mib = 50;
  struct Case {
    const char* rows;
    double written, read;  // of what is handed on; 4 KB a row
  };
  // Up to 20 of the 50 MiB nothing is gone, beyond all 50 everything: what is read comes behind what was written.
  for (const Case& each :
       {Case{"1024", 0, 0}, Case{"5120", 0, 2.0 / 3}, Case{"8960", 0.5, 1}, Case{"16384", 1, 1}}) {
    const MuGraph mugraph = mugraph_of(with(kMuGraph, "ROWS", each.rows));
    const auto first = shares_of_dram(mugraph, mugraph.kernels[0], target),
               second = shares_of_dram(mugraph, mugraph.kernels[1], target);
    assert_true(first.at(0) == 1 && second.at(0) == 1 && second.at(2) == 1);
    assert_true(std::abs(first.at(1) - each.written) < 1e-9);
    assert_true(std::abs(second.at(1) - each.read) < 1e-9);
  }
}

// What is given out goes to DRAM whatever fits the cache, in the shape in which it is stored or in another one.
void outputs_go_to_memory_in_any_shape(void**) {
  const MuGraph mugraph = mugraph_of(R"(mugraph g
in x: f32[64, 1024]
tensor t: f32[64, 1024]
tensor z: f32[64, 32, 32]
kernel grid=[4] threads=128 {
  a = load(x, x=0)
  b = exp(a)
  store(b, t, x=0)
}
z = reshape(t, shape=[64, 32, 32])
out z
)");
  assert_true(shares_of_dram(mugraph, mugraph.kernels[0], **find_target("sm_90a")).at(1) == 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(what_has_no_room_goes_to_memory),
                              cmocka_unit_test(outputs_go_to_memory_in_any_shape)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
