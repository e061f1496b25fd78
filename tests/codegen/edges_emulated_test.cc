// The table of edges in docs/language.md: every row's program gives the row's result in the reference, and as
// a baseline plan in the emulator.
#include <cmath>
#include <sstream>

#include "core/codegen/baseline.h"
#include "core/emulator/emulator.h"
#include "core/verify/reference.h"
#include "tests/codegen/emulated.h"
#include "tests/support/test.h"

using namespace quern;
using namespace quern::emulated;

namespace {

struct Row {
  std::string label;
  Graph graph;
  std::vector<std::string> inputs;
  RealTensor result;
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

// What stands between backquotes.
std::vector<std::string> quoted(const std::string& cell) {
  std::vector<std::string> parts = split(cell, '`'), result;
  for (size_t i = 1; i < parts.size(); i += 2) result.push_back(parts[i]);
  return result;
}

RealTensor numbers(const std::string& list) {
  RealTensor result;
  for (const std::string& part : split(list, ',')) result.push_back(std::strtod(part.c_str(), nullptr));
  return result;
}

Row read_row(const std::vector<std::string>& cells) {
  Row row{cells[1], {}, {}, numbers(quoted(cells[4])[0])};
  std::string text = "graph edge\n";
  std::vector<RealTensor> inputs;
  for (const std::string& input : quoted(cells[2])) {
    const size_t equal = input.find(" = ");
    text += "in " + input.substr(0, equal) + "\n";
    inputs.push_back(equal == std::string::npos ? RealTensor() : numbers(input.substr(equal + 3)));
  }
  for (const std::string& statement : split(quoted(cells[3])[0], ';')) text += statement + "\n";
  row.graph = test_graph(text + "out y\n");
  for (const TensorDesc& desc : row.graph.input_descs()) {
    assert_int_equal(inputs[row.inputs.size()].size(), desc.element_count());
    row.inputs.push_back(write_buffer(desc, inputs[row.inputs.size()]));
  }
  return row;
}

std::vector<Row> read_table() {
  std::vector<Row> rows;
  bool inside = false;
  for (const std::string& line : split(read_test_file(test_root() / "docs/language.md"), '\n')) {
    if (line.starts_with("## ")) inside = line.starts_with("## NaN");
    if (inside && line.starts_with("| ") && !line.starts_with("| what happens"))
      rows.push_back(read_row(split(line, '|')));
  }
  return rows;
}

// Of zeros of either sign, and of what is subnormal in f32, one is as good as another.
bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 1e-6 * std::fabs(b) + 0x1p-126;
}

std::string difference(const Row& row, const RealTensor& actual) {
  if (actual.size() != row.result.size()) return "another number of elements";
  for (size_t i = 0; i < actual.size(); ++i)
    if (!same(actual[i], row.result[i]))
      return "element " + std::to_string(i) + ": " + std::to_string(actual[i]) + " instead of " +
             std::to_string(row.result[i]);
  return "";
}

RealTensor by_reference(const Row& row) {
  std::vector<RealTensor> inputs;
  for (const TensorDesc& desc : row.graph.input_descs())
    inputs.push_back(read_buffer(desc, row.inputs[inputs.size()].data()));
  RealTensor result = evaluate_reference(row.graph, inputs)[0];
  for (double& element : result) element = round_to(row.graph.output_descs()[0].dtype, element);
  return result;
}

void the_reference_does_what_the_table_says(void**) {
  const std::vector<Row> rows = read_table();
  assert_true(rows.size() > 30);
  int wrong = 0;
  for (const Row& row : rows)
    if (const std::string what = difference(row, by_reference(row)); !what.empty()) {
      print_error("%s %s\n", row.label.c_str(), what.c_str());
      ++wrong;
    }
  assert_int_equal(wrong, 0);
}

void so_do_baseline_plans(void**) {
  const std::vector<Row> rows = read_table();
  const Target& target = **find_target("sm_80");
  std::vector<ProgramSource> sources;
  std::vector<Plan> plans;
  for (const Row& row : rows) {
    auto emitted = emit_baseline(row.graph, target);
    if (!emitted) fail_test(row.label + emitted.status().message());
    sources.push_back(make_source(emitted->kernels, emitted->plan));
    plans.push_back(std::move(emitted->plan));
  }
  auto programs = compile_programs(sources);
  assert_ok(programs);
  int wrong = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<std::string_view> views(rows[i].inputs.begin(), rows[i].inputs.end());
    const auto outputs = run_plan((*programs)[i], plans[i], views);
    const std::string what =
        !outputs ? outputs.status().message()
                 : difference(rows[i], read_buffer(plans[i].outputs[0], (*outputs)[0].data()));
    if (what.empty()) continue;
    print_error("%s %s\n", rows[i].label.c_str(), what.c_str());
    ++wrong;
  }
  assert_int_equal(wrong, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_reference_does_what_the_table_says),
      cmocka_unit_test(so_do_baseline_plans),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
