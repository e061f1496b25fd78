// The interpreter of kernel arithmetic against the emulator, which runs the emitted text: the same muGraph,
// schedule and inputs, friendly and hostile, give the same elements as far as the order of sums lets them,
// and the same verdict.
#include "core/codegen/interpreter.h"

#include <algorithm>
#include <cmath>

#include "core/emulator/emulator.h"
#include "core/graph/decompose.h"
#include "core/verify/hostile.h"
#include "core/verify/rounded_values.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/files.h"
#include "tests/support/test.h"

namespace {

using namespace quern;
using namespace quern::emulated;

struct Inputs {
  std::string name;
  std::vector<std::string> buffers;
};

std::vector<Inputs> all_inputs(const Graph& graph, uint64_t seed) {
  std::vector<Inputs> out(1);
  out[0].name = "random";
  for (const TensorDesc& desc : graph.input_descs())
    out[0].buffers.push_back(random_buffer(desc, seed * 1000 + out[0].buffers.size()));
  for (const HostileClass& cls : hostile_classes())
    out.push_back({cls.name, hostile_inputs(graph, cls, seed)});
  return out;
}

double unit(DType dtype) {
  return dtype == DType::f16 ? 0x1p-10 : dtype == DType::bf16 ? 0x1p-7 : is_float(dtype) ? 0x1p-20 : 0;
}

// Sums of another order differ by no more than the unfused program's rounding, which is what the bound is
// made of; where the bound asks for nothing, they may overflow in one order only.
bool alike(double a, double b, DType dtype, const Expected& expected, size_t e) {
  using enum Expected::Demand;
  const bool finite = std::isfinite(a) && std::isfinite(b);
  if (!finite && expected.demand[e] != close)
    return expected.demand[e] != nan && expected.demand[e] != infinity ? true
           : std::isnan(a)                                             ? std::isnan(b)
                                                                       : a == b;
  if (!finite) return std::isnan(a) ? std::isnan(b) : a == b;
  return std::fabs(a - b) <= 2 * unit(dtype) * std::max(std::fabs(a), std::fabs(b)) + expected.bound[e] / 4;
}

std::string difference(const MuGraphCase& test, const Interpreter& interpreter, Program& program,
                       const Plan& plan, const Inputs& inputs) {
  std::vector<RealTensor> values;
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    values.push_back(read_buffer(plan.inputs[i], inputs.buffers[i].data()));
  const std::vector<std::string_view> views(inputs.buffers.begin(), inputs.buffers.end());
  const auto ran = run_plan(program, plan, views, {.seed = 7});
  const auto interpreted = interpreter.run(values);
  if (!ran || !interpreted) return ran ? interpreted.status().message() : ran.status().message();
  const Graph primitive = decompose(test.graph);
  const bool tf32 = test.schedule.kernels[0].tf32;
  const std::vector<Expected> expected = expect_outputs(primitive, values, tf32);
  for (size_t i = 0; i < ran->size(); ++i) {
    const TensorDesc& desc = plan.outputs[i];
    const RealTensor emulated = read_buffer(desc, (*ran)[i].data()), &own = (*interpreted)[i];
    for (size_t e = 0; e < own.size(); ++e)
      if (!alike(own[e], emulated[e], desc.dtype, expected[i], e))
        return "element " + std::to_string(e) + ": interpreted " + std::to_string(own[e]) + ", emulated " +
               std::to_string(emulated[e]);
    const bool accepted = compare(desc, own, expected[i]).acceptable;
    if (accepted != compare(desc, emulated, expected[i]).acceptable)
      return accepted ? "only the interpreter accepts" : "only the emulator accepts";
  }
  return "";
}

void agree(const std::vector<MuGraphCase>& cases) {
  std::vector<Plan> plans;
  std::vector<ProgramSource> sources;
  for (const MuGraphCase& test : cases) {
    EmittedMuGraph program = emitted(test);
    sources.push_back(make_source(program.kernels, program.plan));
    plans.push_back(std::move(program.plan));
  }
  auto programs = compile_programs(sources);
  assert_ok(programs);
  int wrong = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    auto cut = apply_schedule(cases[i].mugraph, cases[i].schedule);
    assert_ok(cut);
    note_rounded_values(cases[i].graph, *cut);
    const Interpreter interpreter(*cut, &cases[i].schedule);
    for (uint64_t seed = 1; seed <= 2; ++seed)
      for (const Inputs& inputs : all_inputs(cases[i].graph, seed))
        if (const std::string what = difference(cases[i], interpreter, (*programs)[i], plans[i], inputs);
            !what.empty()) {
          print_error("%s, %s, seed %d: %s\n", cases[i].label.c_str(), inputs.name.c_str(),
                      static_cast<int>(seed), what.c_str());
          ++wrong;
        }
  }
  assert_int_equal(wrong, 0);
}

KernelSchedule way(std::array<int, 3> warps, int stages, bool tf32 = false) {
  KernelSchedule out;
  out.warps = warps;
  out.stages = stages;
  out.tf32 = tf32;
  return out;
}

void hand_written_mugraphs(void**) {
  std::vector<MuGraphCase> cases;
  for (const MuGraphFile& file : mugraph_files()) {
    if (file.name.find("_small") == std::string::npos && file.name.find("_ragged") == std::string::npos)
      continue;
    const bool cluster = file.name.find("cluster") != std::string::npos;
    cases.push_back({file.name, file.graph, file.mugraph, default_schedule(file.mugraph), 1.0,
                     cluster ? "sm_90a" : "sm_80"});
  }
  assert_true(cases.size() > 10);
  agree(cases);
}

// f16 and bf16 on tensor cores, f32 without and in tf32; ragged edges.
void every_operand_dtype(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* dtype : {"f16", "bf16", "f32"})
    for (const KernelSchedule& each : {way({1, 1, 2}, 0), way({1, 2, 1}, 2), way({1, 1, 2}, 2, true)}) {
      if (each.tf32 && dtype[1] != '3') continue;
      const std::string label = std::string(dtype) + (each.tf32 ? " tf32" : "");
      cases.push_back(
          sized_case("norm " + label, kNormGraph, kNorm, {dtype, "5", "67", "45", "2", "3"}, each));
      cases.push_back(sized_case("attention " + label, kAttentionGraph, kAttention,
                                 {dtype, "20", "24", "100", "2", "2"}, each));
    }
  agree(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(hand_written_mugraphs),
      cmocka_unit_test(every_operand_dtype),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
