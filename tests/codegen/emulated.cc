#include "tests/codegen/emulated.h"

#include <algorithm>

#include "core/codegen/baseline.h"
#include "core/emulator/emulator.h"
#include "core/graph/text.h"
#include "core/verify/reference.h"
#include "tests/support/test.h"

namespace quern {

using namespace emulated;

namespace {

constexpr size_t kBatch = 48;  // programs a compilation

std::string run_case(const EmulatedCase& test, const Emitted& emitted, Program& program) {
  const std::vector<std::string> buffers = input_buffers(test, emitted.plan);
  const std::vector<std::string_view> views(buffers.begin(), buffers.end());
  const auto outputs = run_plan(program, emitted.plan, views, {.seed = test.seed});
  return outputs ? judge(test, emitted.plan, buffers, *outputs) : outputs.status().message();
}

void run_batch(const EmulatedCase* cases, size_t count, std::vector<std::string>& failures) {
  std::vector<Emitted> emitted;
  std::vector<ProgramSource> sources;
  const Target& target = **find_target("sm_80");
  for (size_t i = 0; i < count; ++i) {
    auto result = emit_baseline(cases[i].graph, target);
    assert_ok(result);
    ProgramSource source{result->kernels, {}};
    for (const Launch& launch : result->plan.launches)
      if (std::find(source.kernels.begin(), source.kernels.end(), launch.kernel) == source.kernels.end())
        source.kernels.push_back(launch.kernel);
    sources.push_back(std::move(source));
    emitted.push_back(std::move(*result));
  }
  auto programs = compile_programs(sources);
  if (!programs) {
    failures.push_back(cases[0].label + " .. " + cases[count - 1].label + ": " + programs.status().message());
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string wrong = run_case(cases[i], emitted[i], (*programs)[i]);
    if (!wrong.empty()) failures.push_back(cases[i].label + ": " + wrong);
  }
}

}  // namespace

std::vector<std::string> input_buffers(const EmulatedCase& test, const Plan& plan) {
  std::vector<std::string> buffers;
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    buffers.push_back(random_buffer(plan.inputs[i], test.seed * 1000 + i, test.scale));
  return buffers;
}

std::string judge(const EmulatedCase& test, const Plan& plan, const std::vector<std::string>& buffers,
                  const std::vector<std::string>& outputs) {
  std::vector<RealTensor> inputs;
  for (size_t i = 0; i < buffers.size(); ++i)
    inputs.push_back(read_buffer(plan.inputs[i], buffers[i].data()));
  const std::vector<Expected> expected = expect_outputs(test.graph, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorDesc& desc = plan.outputs[i];
    const Comparison result = compare(desc, read_buffer(desc, outputs[i].data()), expected[i]);
    if (!result.acceptable) return desc.name + " " + result.what;
  }
  return "";
}

std::vector<std::string> find_failures(const std::vector<EmulatedCase>& cases) {
  std::vector<std::string> failures;
  for (size_t at = 0; at < cases.size(); at += kBatch)
    run_batch(&cases[at], std::min(kBatch, cases.size() - at), failures);
  return failures;
}

Graph test_graph(const std::string& text) {
  auto graph = parse_graph(text);
  if (!graph) print_message("%s\n", text.c_str());
  assert_ok(graph);
  return std::move(*graph);
}

}  // namespace quern
