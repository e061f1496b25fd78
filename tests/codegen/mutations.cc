#include "tests/codegen/mutations.h"

#include <algorithm>

#include "core/emulator/emulator.h"
#include "core/verify/reference.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace quern {

using namespace emulated;

void are_found(const MuGraphCase& test, const std::vector<Mutation>& mutations) {
  const EmittedMuGraph right = emitted(test);
  std::vector<ProgramSource> sources = {make_source(right.kernels, right.plan)};
  std::vector<Plan> plans = {right.plan};
  for (const Mutation& mutation : mutations) {
    assert_contains(right.kernels, mutation.right);
    const bool in_text = *mutation.right != '\0';
    assert_true(in_text || mutation.change);
    sources.push_back(make_source(
        in_text ? with(right.kernels, mutation.right, mutation.wrong) : right.kernels, right.plan));
    plans.push_back(right.plan);
    if (mutation.change) mutation.change(plans.back());
  }
  auto programs = compile_programs(sources);
  assert_ok(programs);
  std::vector<std::string> inputs;
  for (const TensorDesc& input : right.plan.inputs) inputs.push_back(random_buffer(input, 1, 0.5));
  const std::vector<std::string_view> views(inputs.begin(), inputs.end());
  for (size_t i = 0; i < plans.size(); ++i)
    for (uint64_t seed : {1, 2, 3, 4, 5}) {
      const auto outputs = run_plan((*programs)[i], plans[i], views, {.seed = seed});
      if (i == 0) {
        assert_ok(outputs);
        continue;
      }
      const Mutation& mutation = mutations[i - 1];
      if (outputs.ok()) fail_test(std::string("not found: ") + mutation.wrong);
      assert_error(outputs, ErrorCode::INTERNAL);
      const std::string message(outputs.status().message());
      if (std::none_of(mutation.rules.begin(), mutation.rules.end(),
                       [&](const char* rule) { return message.find(rule) != std::string::npos; }))
        fail_test(std::string(mutation.wrong) + ": " + message);
    }
}

}  // namespace quern
