// The golden muGraphs of the six workload families, by several schedules each, in the emulator against the
// float reference of their graphs.
#include "tests/codegen/mugraph_cases.h"
#include "tests/mugraph/files.h"

namespace {

using namespace quern;

std::vector<KernelSchedule> ways(const KernelSchedule& own) {
  std::vector<KernelSchedule> out;
  for (const std::array<int, 3>& warps :
       {std::array<int, 3>{1, 1, 4}, {1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 2, 2}})
    for (int stages : {0, 2, 3}) {
      KernelSchedule way = own;
      way.warps = warps;
      way.stages = stages;
      way.ahead = warps[2] == 4;
      out.push_back(way);
    }
  return out;
}

void golden_mugraphs_are_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const MuGraphFile& file : mugraph_files()) {
    const std::string& name = file.name;
    if (name.find("_small") == std::string::npos && name.find("_ragged") == std::string::npos) continue;
    const bool cluster = name.find("cluster") != std::string::npos;
    const Schedule own = default_schedule(file.mugraph);
    for (const KernelSchedule& way : ways(own.kernels[0])) {
      Schedule schedule = own;
      for (size_t k = 0; k < own.kernels.size(); ++k) {
        schedule.kernels[k].warps = way.warps;
        schedule.kernels[k].stages = way.stages;
        schedule.kernels[k].ahead = way.ahead;
      }
      cases.push_back({name + ", " + print_schedule(schedule), file.graph, file.mugraph, schedule, 1.0, cluster ? "sm_90a" : "sm_80"});
    }
  }
  assert_true(cases.size() > 60);
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(golden_mugraphs_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
