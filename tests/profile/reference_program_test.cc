// The reference for GPUs says what the CPU's says, of every element: its text runs in the emulator.
#include "core/profile/reference_program.h"

#include <cmath>
#include <cstring>

#include "core/base/random.h"
#include "core/emulator/emulator.h"
#include "core/graph/text.h"
#include "core/jit/compiler.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "tests/support/hostile_graph.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_workload.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

const Target& target() { return **find_target("sm_90a"); }

struct Trial {
  std::string label;
  Graph graph;
  std::vector<std::string> inputs;
  bool tf32 = false;
  double tolerance = 1e-6;  // relative, of bounds
};

Trial random_trial(std::string label, const Graph& graph, uint64_t seed) {
  Trial trial{std::move(label), graph, {}, false};
  for (const TensorDesc& desc : graph.input_descs())
    trial.inputs.push_back(random_buffer(desc, scramble(seed * 100 + trial.inputs.size())));
  return trial;
}

std::vector<Expected> expected_of(const Trial& trial, bool& special) {
  std::vector<RealTensor> inputs;
  special = has_special_numbers(trial.graph, trial.inputs);
  for (const std::string& bytes : trial.inputs)
    inputs.push_back(read_buffer(trial.graph.input_descs()[inputs.size()], bytes.data()));
  return expect_outputs(trial.graph, inputs, trial.tf32);
}

std::vector<std::string_view> views(const std::vector<std::string>& of) { return {of.begin(), of.end()}; }

bool close(double a, double b, double relative) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b);
  return a == b || std::fabs(a - b) <= relative * std::max(std::fabs(a), std::fabs(b));
}

// What the GPU's wants of each element, beside the CPU's.
std::string difference(const Trial& trial, const std::vector<std::string>& wanted,
                       const std::vector<Expected>& expected) {
  for (size_t o = 0; o < expected.size(); ++o)
    for (size_t i = 0; i < expected[o].exact.size(); ++i) {
      WantedElement one;
      std::memcpy(&one, wanted[o].data() + i * sizeof one, sizeof one);
      if (close(one.exact, expected[o].exact[i], 1e-12) &&
          close(one.bound, expected[o].bound[i], trial.tolerance) &&
          one.demand == static_cast<int>(expected[o].demand[i]))
        continue;
      char text[200];
      std::snprintf(text, sizeof text,
                    ": output %zu [%zu]: %.17g +- %.17g (%d) instead of %.17g +- %.17g (%d)", o, i, one.exact,
                    one.bound, one.demand, expected[o].exact[i], expected[o].bound[i],
                    static_cast<int>(expected[o].demand[i]));
      return trial.label + text;
    }
  return "";
}

// A buffer that is right: the exact values, rounded.
std::vector<std::string> right_outputs(const Trial& trial, const std::vector<Expected>& expected) {
  std::vector<std::string> outputs;
  for (const TensorDesc& desc : trial.graph.output_descs())
    outputs.push_back(write_buffer(desc, expected[outputs.size()].exact));
  return outputs;
}

struct Found {
  int64_t first = -1;
  double error = 0, bound = 0, norm = 0, largest = 0;
};
Found found_in(const std::string& parts) {
  Found found;
  for (size_t at = 0; at < parts.size(); at += sizeof(ComparedPart)) {
    ComparedPart part;
    std::memcpy(&part, parts.data() + at, sizeof part);
    if (part.first >= 0 && (found.first < 0 || part.first < found.first)) found.first = part.first;
    found.error += part.error, found.bound += part.bound, found.norm += part.norm;
    found.largest = std::max(found.largest, part.largest);
  }
  return found;
}

// The comparison finds what compare() finds: in right outputs, and with one element changed.
std::string compare_difference(const Trial& trial, emulated::Program& program,
                               const ReferenceProgram& reference, const std::vector<std::string>& wanted,
                               const std::vector<Expected>& expected) {
  std::vector<std::string> inputs = wanted;
  for (std::string& bytes : right_outputs(trial, expected)) inputs.push_back(std::move(bytes));
  const std::vector<TensorDesc> descs = trial.graph.output_descs();
  for (const bool changed : {false, true}) {
    if (changed && inputs.back().empty()) continue;
    if (changed) inputs.back().back() ^= descs.back().dtype == DType::boolean ? 2 : 0x42;
    const auto parts = run_plan(program, reference.compare, views(inputs), {});
    if (!parts) return trial.label + ": " + parts.status().message();
    for (size_t o = 0; o < descs.size(); ++o) {
      const RealTensor actual = read_buffer(descs[o], inputs[descs.size() + o].data());
      const Comparison wants = compare(descs[o], actual, expected[o]);
      const Found found = found_in((*parts)[o]);
      const bool broken_bool = changed && o + 1 == descs.size() && descs[o].dtype == DType::boolean;
      const double error = std::sqrt(found.error) / (found.norm > 0 ? std::sqrt(found.norm) : 1);
      if ((found.first < 0) != (wants.acceptable && !broken_bool) ||
          !close(found.largest, wants.worst, trial.tolerance) || !close(error, wants.error, 1e-6))
        return trial.label + ", output " + std::to_string(o) +
               ": compared otherwise than on the CPU: " + wants.what;
    }
  }
  return "";
}

void run_trials(const std::vector<Trial>& trials) {
  std::vector<ReferenceProgram> references;
  std::vector<emulated::ProgramSource> sources;
  for (const Trial& trial : trials) {
    auto reference = emit_reference(trial.graph, target());
    assert_ok(reference);
    Plan both = reference->evaluate;
    both.launches.insert(both.launches.end(), reference->compare.launches.begin(),
                         reference->compare.launches.end());
    sources.push_back(emulated::make_source(reference->source, both));
    references.push_back(std::move(*reference));
  }
  auto programs = emulated::compile_programs(sources);
  assert_ok(programs);
  std::string faults;
  for (size_t i = 0; i < trials.size(); ++i) {
    bool special = false;
    const std::vector<Expected> expected = expected_of(trials[i], special);
    std::vector<std::string> inputs = trials[i].inputs;
    const int32_t flags[] = {special, trials[i].tf32};
    inputs.emplace_back(reinterpret_cast<const char*>(flags), sizeof flags);
    const auto wanted = run_plan((*programs)[i], references[i].evaluate, views(inputs), {});
    std::string fault = wanted ? difference(trials[i], *wanted, expected)
                               : trials[i].label + ": " + wanted.status().message();
    if (fault.empty())
      fault = compare_difference(trials[i], (*programs)[i], references[i], *wanted, expected);
    if (!fault.empty()) faults += fault + "\n";
  }
  if (!faults.empty()) fail_test(faults);
}

// Every operator is among them.
void random_graphs_of_all_operators(void**) {
  std::vector<Trial> trials;
  RandomGraphOptions small;
  small.max_elements = 300;
  small.extents = {1, 2, 3, 5, 8};
  for (uint64_t seed = 1; seed <= 24; ++seed)
    trials.push_back(random_trial("random graph " + std::to_string(seed), random_graph(seed, small), seed));
  run_trials(trials);
}

void hostile_inputs_of_all_classes(void**) {
  std::vector<Trial> trials;
  const char* graphs[] = {
      "graph attention\nin q: f16[6, 8]\nin k: f16[8, 10]\nin v: f16[10, 4]\nin m: f16[6, 10]\ns = matmul(q, "
      "k)\n"
      "t = add(s, m)\np = softmax(t)\no = matmul(p, v)\nout o\n",
      "graph eager\nin q: bf16[6, 8]\nin k: bf16[8, 10]\nin v: bf16[10, 4]\nin m: f32[6, 10]\ns = matmul(q, "
      "k)\n"
      "t = add(s, m)\np = softmax(t)\nh = cast(p, dtype=bf16)\no = matmul(h, v)\nout o\n",
      "graph norm\nin x: bf16[5, 16]\nin w: bf16[16]\nn = layer_norm(x, w)\ng = gelu_tanh(n)\nl = "
      "log(x)\nout g, l\n",
      "graph linear\nin x: f32[4, 9]\nin w: f32[9, 7]\ny = matmul(x, w)\nz = silu(y)\nr = reciprocal(x)\n"
      "p = pow(x, 2.5)\nm = max(y, axis=1)\nout z, r, p, m\n",
      "graph integers\nin a: i32[6, 7]\nin c: bool[6, 7]\nb = mul(a, a)\nd = where(c, b, a)\ns = sum(d, "
      "axis=0)\n"
      "f = cast(d, dtype=f16)\nl = lt(a, 3)\nout s, f, l\n"};
  for (const char* text : graphs)
    for (const HostileClass& cls : hostile_classes()) {
      auto graph = parse_graph(text);
      assert_ok(graph);
      Trial trial{graph->name + ", " + cls.name, *graph, hostile_inputs(*graph, cls, 1), false};
      trial.tf32 = graph->name == "linear" && cls.inputs == HostileInputs::one;
      trials.push_back(std::move(trial));
    }
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Graph graph = hostile_graph(seed);
    int64_t elements = 0;
    for (const Node& node : graph.nodes) elements += node.type.element_count();
    if (elements > 20000) continue;
    const HostileClass& cls = hostile_classes()[seed % hostile_classes().size()];
    trials.push_back(
        {"hostile graph " + std::to_string(seed), graph, hostile_inputs(graph, cls, seed), false});
  }
  run_trials(trials);
}

// Each thread of a block takes a part of such a sum: the terms of another order, but the same bounds.
void long_sums_in_parts(void**) {
  std::vector<Trial> trials;
  const char* graphs[] = {
      "graph sums\nin x: f16[3, 1030]\nin y: f16[3, 1030]\nd = sub(x, y)\nq = square(d)\nl = sum(q)\n"
      "m = mean(x, axis=1)\nout l, m\n",
      "graph largest\nin x: f32[2, 1500, 3]\na = max(x, axis=1)\nb = min(x, axis=[0, 1])\nout a, b\n",
      "graph dot\nin x: bf16[2, 2000]\nin w: bf16[2000, 3]\ny = matmul(x, w)\nout y\n",
      "graph count\nin c: i32[1200, 2]\ns = sum(c)\nm = max(c, axis=0)\nout s, m\n"};
  for (const char* text : graphs)
    for (const HostileClass& cls : hostile_classes()) {
      auto graph = parse_graph(text);
      assert_ok(graph);
      trials.push_back({graph->name + ", " + cls.name, *graph, hostile_inputs(*graph, cls, 1), false, 1e-2});
    }
  run_trials(trials);
}

// NVRTC takes it, and says how long that lasts.
void it_compiles_for_gpus(void**) {
  auto compiler = open_nvrtc("");
  if (!compiler) skip_test(compiler.status().message());
  for (uint64_t seed = 1; seed <= 3; ++seed)
    assert_ok(make_reference(random_workload(seed), target(), **compiler));
  const auto graph = parse_graph(read_test_file(test_root() / "examples/gqa_b1.qg"));
  assert_ok(graph);
  const auto reference = make_reference(*graph, target(), **compiler);
  assert_ok(reference);
  const auto again = decode_reference(encode_reference(*reference));
  assert_ok(again);
  assert_true(again->evaluate == reference->evaluate && again->compare == reference->compare);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(random_graphs_of_all_operators),
      cmocka_unit_test(hostile_inputs_of_all_classes),
      cmocka_unit_test(long_sums_in_parts),
      cmocka_unit_test(it_compiles_for_gpus),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
