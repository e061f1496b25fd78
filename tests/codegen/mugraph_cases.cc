#include "tests/codegen/mugraph_cases.h"

#include <algorithm>
#include <cstdlib>

#include "core/emulator/emulator.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "tests/support/test.h"

namespace quern {

using namespace emulated;

namespace {

// Empty if the case is right with these inputs.
std::string judge(const MuGraphCase& test, const InputKind& kind, const Plan& plan, Program& program) {
  std::vector<std::string> buffers;
  std::vector<RealTensor> inputs;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    buffers.push_back(kind.buffer(plan.inputs[i], i));
    inputs.push_back(read_buffer(plan.inputs[i], buffers.back().data()));
  }
  const std::vector<std::string_view> views(buffers.begin(), buffers.end());
  const auto outputs = run_plan(program, plan, views, {.seed = 7});
  if (!outputs) return outputs.status().message();
  const bool tf32 = std::any_of(test.schedule.kernels.begin(), test.schedule.kernels.end(),
                                [](const KernelSchedule& kernel) { return kernel.tf32; });
  const std::vector<Expected> expected = expect_outputs(test.graph, inputs, tf32);
  for (size_t i = 0; i < outputs->size(); ++i) {
    const TensorDesc& desc = plan.outputs[i];
    const Comparison result = compare(desc, read_buffer(desc, (*outputs)[i].data()), expected[i]);
    if (!result.acceptable) return desc.name + " " + result.what;
  }
  return "";
}

std::vector<std::string> find_failures(const std::vector<MuGraphCase>& cases) {
  std::vector<std::string> failures;
  std::vector<const MuGraphCase*> kept;
  std::vector<Plan> plans;
  std::vector<ProgramSource> sources;
  for (const MuGraphCase& test : cases) {
    auto program = emit(test);
    if (!program) {
      failures.push_back(test.label + ": " + program.status().message());
      continue;
    }
    if (std::getenv("QUERN_SHOW_TEXT"))
      print_message("// %s\n%s\n", test.label.c_str(), program->kernels.c_str());
    sources.push_back(make_source(program->kernels, program->plan));
    plans.push_back(std::move(program->plan));
    kept.push_back(&test);
  }
  auto programs = compile_programs(sources);
  if (!programs) {
    failures.push_back("compilation: " + programs.status().message());
    return failures;
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    std::vector<InputKind> kinds = kept[i]->inputs;
    if (kinds.empty())
      kinds.push_back({"random", [&](const TensorDesc& desc, size_t input) {
                         return random_buffer(desc, 1000 + input, kept[i]->scale);
                       }});
    for (const InputKind& kind : kinds)
      if (const std::string wrong = judge(*kept[i], kind, plans[i], (*programs)[i]); !wrong.empty())
        failures.push_back(kept[i]->label + ", " + kind.label + ": " + wrong);
  }
  return failures;
}

}  // namespace

Result<EmittedMuGraph> emit(const MuGraphCase& test) {
  const auto found = find_target(test.target);
  assert_ok(found);
  Target target = **found;
  target.l2_mib = test.l2_mib.value_or(target.l2_mib);
  return emit_mugraph(test.graph, test.mugraph, test.schedule, target);
}

EmittedMuGraph emitted(const MuGraphCase& test) {
  auto out = emit(test);
  if (!out) fail_test(test.label + ": " + out.status().message());
  return std::move(*out);
}

void all_are_right(const std::vector<MuGraphCase>& cases) {
  const std::vector<std::string> failures = find_failures(cases);
  for (const std::string& failure : failures) {
    print_error("%s\n", failure.c_str());
    for (const MuGraphCase& test : cases)
      if (failure.starts_with(test.label))
        print_error("%s%s", print_graph(test.graph).c_str(), print_mugraph(test.mugraph).c_str());
  }
  assert_int_equal(failures.size(), 0);
}

void all_are_right_on_hostile_inputs(std::vector<MuGraphCase> cases) {
  for (MuGraphCase& each : cases) {
    each.inputs.push_back({"random", [scale = each.scale](const TensorDesc& desc, size_t i) {
                             return random_buffer(desc, 1000 + i, scale);
                           }});
    for (const HostileClass& cls : hostile_classes())
      each.inputs.push_back({cls.name, [buffers = hostile_inputs(each.graph, cls, 1)](
                                           const TensorDesc&, size_t i) { return buffers[i]; }});
  }
  all_are_right(cases);
}

}  // namespace quern
