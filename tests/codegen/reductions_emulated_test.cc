// Every reduction of ops.def with every dtype, by the baseline and by every form of a muGraph: in the
// emulator against the float reference, on inputs that tell all reductions apart, and on NaN and infinities
// wherever they may stand.
#include <cmath>
#include <cstdlib>
#include <random>

#include "core/codegen/baseline.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/emulator/emulator.h"
#include "core/graph/decompose.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "tests/codegen/emulated.h"
#include "tests/mugraph/reduction_forms.h"

namespace {

using namespace quern;
using namespace emulated;

constexpr DType kDTypes[] = {DType::f16, DType::bf16, DType::f32, DType::i32};
constexpr size_t kBatch = 48;  // programs a compilation

struct Case {
  std::string label;
  Graph graph;
  Emitted emitted;
};

// One buffer an input, several times: friendly numbers; hostile ones; one NaN, first, last or anywhere.
std::vector<std::vector<std::string>> inputs_of(const Graph& graph, uint64_t seed) {
  const std::vector<TensorDesc> descs = graph.input_descs();
  std::vector<std::string> friendly;
  for (size_t i = 0; i < descs.size(); ++i) friendly.push_back(random_buffer(descs[i], seed + i));
  std::vector<std::vector<std::string>> all = {friendly};
  for (const char* name : {"special", "masked"})
    all.push_back(hostile_inputs(graph, *find_hostile_class(name), seed));
  std::mt19937_64 random(seed);
  const int64_t count = graph.node(graph.inputs[0]).type.element_count();
  if (!is_float(descs[0].dtype) || count == 0) return all;
  for (int64_t at : {int64_t{0}, count - 1, static_cast<int64_t>(random() % static_cast<uint64_t>(count))}) {
    all.push_back(friendly);
    store_element(all.back()[0].data(), descs[0].dtype, at, std::nan(""));
  }
  return all;
}

std::string run_case(const Case& test, Program& program, const std::vector<std::string>& inputs) {
  const std::vector<std::string_view> views(inputs.begin(), inputs.end());
  const auto outputs = run_plan(program, test.emitted.plan, views, {.seed = 7});
  if (!outputs) return outputs.status().message();
  return judge({test.label, test.graph}, test.emitted.plan, inputs, *outputs);
}

void all_are_right(const std::vector<Case>& cases) {
  int failures = 0;
  for (size_t first = 0; first < cases.size(); first += kBatch) {
    const size_t last = std::min(first + kBatch, cases.size());
    std::vector<ProgramSource> sources;
    for (size_t i = first; i < last; ++i) {
      ProgramSource source{cases[i].emitted.kernels, {}};
      for (const Launch& launch : cases[i].emitted.plan.launches)
        if (std::find(source.kernels.begin(), source.kernels.end(), launch.kernel) == source.kernels.end())
          source.kernels.push_back(launch.kernel);
      sources.push_back(std::move(source));
    }
    auto programs = compile_programs(sources);
    assert_ok(programs);
    for (size_t i = first; i < last; ++i)
      for (const auto& inputs : inputs_of(cases[i].graph, i))
        if (const std::string wrong = run_case(cases[i], (*programs)[i - first], inputs); !wrong.empty()) {
          print_error("%s: %s\n", cases[i].label.c_str(), wrong.c_str());
          if (std::getenv("QUERN_SHOW_TEXT")) print_error("%s\n", cases[i].emitted.kernels.c_str());
          ++failures;
        }
  }
  assert_int_equal(failures, 0);
}

std::string label_of(const OpInfo& op, DType dtype, const std::string& what) {
  return std::string(op.text) + " of " + dtype_name(dtype) + ", " + what;
}

// ---- the baseline ----

void the_baseline_is_right(void**) {
  std::vector<Case> cases;
  const Target& target = **find_target("sm_80");
  for (const OpInfo* op : all_reductions())
    for (DType dtype : kDTypes)
      for (const auto& [shape, axes] : std::vector<std::pair<Ints, Ints>>{{{5, 37, 19}, {2}},
                                                                          {{5, 37, 19}, {0, 1}},
                                                                          {{3, 70}, {1}},
                                                                          {{2, 1300}, {1}},
                                                                          {{2, 40000}, {0, 1}},
                                                                          {{4, 1}, {1}},
                                                                          {{1, 6}, {0}},
                                                                          {{3, 0}, {1}},
                                                                          {{0, 3}, {1}}}) {
        const std::string text = std::string("graph g\nin x: ") + dtype_name(dtype) + print_ints(shape) +
                                 "\ny = " + op->text + "(x, axis=" + print_ints(axes) + ")\nout y\n";
        Graph graph = test_graph(text);
        auto emitted = emit_baseline(graph, target);
        assert_ok(emitted);
        cases.push_back({label_of(*op, dtype, print_ints(shape)), std::move(graph), std::move(*emitted)});
      }
  all_are_right(cases);
}

// Else the cases above would show nothing: on some of the buffers that a reduction is tried with, no other
// reduction gives the same.
void inputs_tell_reductions_apart(void**) {
  for (DType dtype : kDTypes)
    for (const OpInfo* op : all_reductions())
      for (const OpInfo* other : all_reductions()) {
        if (op == other) continue;
        const ReductionForm& form = reduction_forms()[0];
        const Graph graph = graph_of(form, op->text, dtype), wrong = graph_of(form, other->text, dtype);
        for (uint64_t seed = 0; seed < 20; ++seed) {
          size_t different = 0;
          for (const auto& buffers : inputs_of(graph, seed)) {
            const RealTensor x = read_buffer(graph.input_descs()[0], buffers[0].data());
            const RealTensor right = evaluate_reference(decompose(graph), {x})[0];
            const RealTensor instead = evaluate_reference(decompose(wrong), {x})[0];
            for (size_t i = 0; i < right.size(); ++i)
              different += right[i] != instead[i] && !(std::isnan(right[i]) && std::isnan(instead[i]));
          }
          assert_true(different > 0);
        }
      }
}

// ---- muGraphs ----

void every_form_is_right(void**) {
  std::vector<Case> cases;
  for (const char* name : {"sm_80", "sm_90a"})
    for (const ReductionForm& form : reduction_forms())
      for (const OpInfo* op : all_reductions())
        for (DType dtype : kDTypes)
          for (const std::array<int, 3>& warps : {std::array{1, 1, 1}, {1, 2, 2}}) {
            if (form.name == "a cluster" && name == std::string("sm_80")) continue;
            const MuGraph mugraph = mugraph_of(form, op->text, dtype);
            Schedule schedule = default_schedule(mugraph);
            for (KernelSchedule& kernel : schedule.kernels) kernel.warps = warps;
            Graph graph = graph_of(form, op->text, dtype);
            auto emitted = emit_mugraph(graph, mugraph, schedule, **find_target(name));
            assert_ok(emitted);
            cases.push_back(
                {label_of(*op, dtype, form.name + " on " + name + ", " + print_schedule(schedule)),
                 std::move(graph), std::move(*emitted)});
          }
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(the_baseline_is_right),
                              cmocka_unit_test(inputs_tell_reductions_apart),
                              cmocka_unit_test(every_form_is_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
