// About ten kernels, as CUDA text and as kernel IR. The first line of tests/golden/kernels/NAME.sched names graph,
// muGraph and target; the rest is the schedule, or nothing for the muGraph's own. $QUERN_UPDATE_GOLDEN=1 writes
// NAME.cu and NAME.ir anew: read them then.
#include <filesystem>
#include <sstream>

#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/kernel/print_ir.h"
#include "core/mugraph/text.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

const std::filesystem::path kGolden = test_root() / "tests/golden";

EmittedMuGraph emit_case(const std::string& text) {
  std::istringstream words(text);
  std::string mark, graph_file, mugraph_file, target;
  words >> mark >> graph_file >> mugraph_file >> target;
  assert_string_equal(mark.c_str(), "#");
  const auto graph = parse_graph(read_test_file(kGolden / graph_file));
  assert_ok(graph);
  const auto mugraph = parse_mugraph(read_test_file(kGolden / mugraph_file));
  assert_ok(mugraph);
  auto schedule = parse_schedule(text);
  assert_ok(schedule);
  if (schedule->kernels.empty()) schedule = default_schedule(*mugraph);
  auto emitted = emit_mugraph(*graph, *mugraph, *schedule, **find_target(target));
  assert_ok(emitted);
  return std::move(*emitted);
}

void check_text(const std::filesystem::path& golden, const std::string& text) {
  if (std::getenv("QUERN_UPDATE_GOLDEN")) write_test_file(golden, text);
  assert_text_equal(text, read_test_file(golden));
}

void kernels_are_golden(void**) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(kGolden / "kernels")) {
    std::filesystem::path path = file.path();
    if (path.extension() != ".sched") continue;
    ++count;
    const EmittedMuGraph emitted = emit_case(read_test_file(path));
    std::string ir;
    for (const LaunchedKernel& each : emitted.code) ir += (ir.empty() ? "" : "\n") + print_ir(each.kernel);
    check_text(path.replace_extension(".cu"), emitted.kernels);
    check_text(path.replace_extension(".ir"), ir);
  }
  assert_true(count >= 10);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(kernels_are_golden)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
