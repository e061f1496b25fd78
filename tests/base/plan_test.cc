// The encoding of plans: round trip, every cut refused, and no argument that points outside.
#include "core/base/plan.h"

#include "tests/support/test.h"

using namespace quern;

static Plan sample() {
  Plan plan;
  plan.tier = Tier::modelled;
  plan.target = "sm_90a";
  plan.inputs = {{"x", DType::f16, {16, 4096}, {4096, 1}}, {"s", DType::i32, {}, {}}};
  plan.outputs = {{"y", DType::bf16, {2, 0}, {1, 1}}};
  plan.launches = {{"k0",
                    {3, 2, 1},
                    {128, 1, 1},
                    {2, 1, 1},
                    1024,
                    {{LaunchArg::Kind::input, 1},
                     {LaunchArg::Kind::output, 0},
                     {LaunchArg::Kind::workspace, 256},
                     {LaunchArg::Kind::integer, -7},
                     {LaunchArg::Kind::tensor_map, 0}},
                    true}};
  plan.tensor_maps = {{{LaunchArg::Kind::input, 0}, DType::f16, {16, 4096}, {4096, 1}, {16, 64}, 128}};
  plan.workspace_bytes = 512;
  plan.certificate = "method: test\n";
  plan.cubin = std::string(
      "\x7f"
      "ELF\0rest",
      9);
  return plan;
}

static void round_trips(void**) {
  const Result<Plan> plan = decode_plan(encode_plan(sample()));
  assert_ok(plan);
  assert_true(*plan == sample());
}

static void every_cut_is_refused(void**) {
  const std::string bytes = encode_plan(sample());
  for (size_t length = 0; length < bytes.size(); ++length)
    assert_error(decode_plan(std::string_view(bytes).substr(0, length)).status(), ErrorCode::CORRUPT);
  assert_error(decode_plan(bytes + "x").status(), ErrorCode::CORRUPT);
}

static void arguments_stay_inside(void**) {
  for (const LaunchArg arg :
       {LaunchArg{LaunchArg::Kind::input, 2}, LaunchArg{LaunchArg::Kind::output, 1},
        LaunchArg{LaunchArg::Kind::workspace, 512}, LaunchArg{LaunchArg::Kind::input, -1},
        LaunchArg{LaunchArg::Kind::tensor_map, 1}}) {
    Plan plan = sample();
    plan.launches[0].args[0] = arg;
    assert_error(decode_plan(encode_plan(plan)).status(), ErrorCode::CORRUPT);
  }
}

static void tensor_maps_stay_inside_and_are_possible(void**) {
  auto refused = [](auto change) {
    Plan plan = sample();
    change(plan.tensor_maps[0]);
    assert_error(decode_plan(encode_plan(plan)).status(), ErrorCode::CORRUPT);
  };
  refused([](TensorMap& map) { map.buffer.value = 2; });
  refused([](TensorMap& map) { map.buffer = {LaunchArg::Kind::integer, 0}; });
  refused([](TensorMap& map) { map.buffer = {LaunchArg::Kind::workspace, 0}; });  // 512 bytes
  refused([](TensorMap& map) { map.shape[0] = 17; });
  refused([](TensorMap& map) { map.strides[0] = 4097; });
  refused([](TensorMap& map) { map.strides[1] = 2; });
  refused([](TensorMap& map) { map.box[0] = 257; });
  refused([](TensorMap& map) { map.box[1] = 128; });  // longer than the swizzle
  refused([](TensorMap& map) { map.box[1] = 4; });
  refused([](TensorMap& map) { map.box.pop_back(); });
  refused([](TensorMap& map) { map.swizzle = 16; });
}

static void any_damage_is_refused_or_another_plan(void**) {
  // The checksum is the cache's business; here no byte may lead to a crash or to a plan that points outside.
  const std::string bytes = encode_plan(sample());
  for (size_t at = 0; at < bytes.size(); ++at)
    for (int flip : {1, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      const Result<Plan> plan = decode_plan(damaged);
      if (plan) assert_false(*plan == sample());
    }
}

static void spans_count_addressed_elements(void**) {
  assert_int_equal((TensorDesc{"", DType::f16, {3, 4}, {10, 2}}.span()), 27);
  assert_int_equal((TensorDesc{"", DType::f16, {3, 0}, {10, 2}}.span()), 0);
  assert_int_equal((TensorDesc{"", DType::f16, {}, {}}.span()), 1);
  assert_int_equal((TensorDesc{"", DType::f16, {5, 7}, {0, 1}}.span()), 7);
  // No buffer has that many.
  assert_true((TensorDesc{"", DType::f32, {3, 4096}, {1, INT64_MAX / 1000}}.span()) == INT64_MAX / 16);
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(round_trips),
      cmocka_unit_test(every_cut_is_refused),
      cmocka_unit_test(arguments_stay_inside),
      cmocka_unit_test(tensor_maps_stay_inside_and_are_possible),
      cmocka_unit_test(any_damage_is_refused_or_another_plan),
      cmocka_unit_test(spans_count_addressed_elements),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
