#include "tests/emulator/fault_cases.h"

#include "tests/support/test.h"

namespace quern::emulated {

namespace {

constexpr int kSeeds = 5;

std::span<const FaultCase> all_cases;
std::vector<Program> programs;  // right, wrong, right, ...

// The text with one side of every pair.
std::string choose(std::string_view text, bool wrong) {
  std::string out;
  for (int part = 0; !text.empty(); part = (part + 1) % 3) {
    const size_t end = std::min(text.find('@'), text.size());
    if (part == 0 || part == (wrong ? 2 : 1)) out += text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

int compile_all(void**) {
  std::vector<ProgramSource> sources;
  for (const FaultCase& test : all_cases) {
    for (bool wrong : {false, true}) sources.push_back({choose(test.text, wrong), {"kernel"}});
  }
  auto compiled = compile_programs(sources);
  assert_ok(compiled);
  programs = std::move(*compiled);
  return 0;
}

void is_caught(void** state) {
  const FaultCase& test = *static_cast<const FaultCase*>(*state);
  const auto index = static_cast<size_t>(&test - all_cases.data());
  std::vector<float> input(test.length);
  for (uint32_t i = 0; i < test.length; ++i) input[i] = x(static_cast<int>(i));
  Plan plan =
      make_plan({make_tensor("x", DType::f32, test.length)}, {make_tensor("y", DType::f32, test.length)},
                test.grid, test.block, test.shared_bytes, test.workspace_bytes);
  plan.launches[0].cluster = test.cluster;
  if (test.cluster.count() > 1 || test.box > 0 || test.twice || test.first_overlaps) plan.target = "sm_90a";
  plan.launches[0].overlaps = test.first_overlaps;
  if (test.twice) {
    plan.launches.push_back(plan.launches[0]);
    plan.launches[1].overlaps = true;
  }
  if (test.box > 0) {
    plan.tensor_maps = {{{LaunchArg::Kind::input, 0}, DType::f32, {test.length}, {1}, {test.box}, 0}};
    plan.launches[0].args.push_back({LaunchArg::Kind::tensor_map, 0});
  }
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    auto right = run_plan(programs[2 * index], plan, {to_bytes(input)}, seed);
    assert_ok(right);
    std::vector<float> output = from_bytes<float>(right->front());
    for (uint32_t i = 0; i < test.length; ++i) assert_true(output[i] == test.value(static_cast<int>(i)));
    auto wrong = run_plan(programs[2 * index + 1], plan, {to_bytes(input)}, seed);
    assert_error(wrong, ErrorCode::INTERNAL, test.rule);
  }
}

}  // namespace

int run_fault_cases(const char* group, std::span<const FaultCase> cases) {
  all_cases = cases;
  std::vector<CMUnitTest> tests;
  for (const FaultCase& test : cases)
    tests.push_back({test.name, is_caught, nullptr, nullptr, const_cast<FaultCase*>(&test)});
  return _cmocka_run_group_tests(group, tests.data(), tests.size(), compile_all, nullptr);
}

}  // namespace quern::emulated
