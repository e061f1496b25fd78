#include "core/optimize/registers.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace quern {

namespace {

// Bytes on the stack by the name of the function. Lines begin otherwise from NVRTC than from nvcc.
std::map<std::string, int64_t> stack_bytes(const std::string& log) {
  static const std::string kFunction = "Function properties for ", kBytes = " bytes stack frame";
  std::map<std::string, int64_t> bytes;
  std::istringstream lines(log);
  std::string function;
  for (std::string line; std::getline(lines, line);) {
    if (const size_t at = line.find(kFunction); at != std::string::npos)
      function = line.substr(at + kFunction.size());
    else if (const size_t end = line.find(kBytes); end != std::string::npos && end > 0)
      bytes[function] +=
          std::strtoll(line.c_str() + line.find_last_not_of("0123456789", end - 1) + 1, nullptr, 10);
  }
  return bytes;
}

// What decides how many registers a thread takes: operators, tiles, warps and data paths. How many blocks and
// turns there are does not, nor how many stages.
std::string traits(const MuKernel& applied, KernelSchedule schedule) {
  schedule.grid = {1, 1, 1, 1};
  schedule.turns = std::min<int64_t>(schedule.turns, 2);
  schedule.stages = std::min(schedule.stages, 1);
  schedule.overlaps = false;
  schedule.choices = {};
  std::string text = print_schedule({{schedule}});
  for (const BlockOp& op : applied.ops) {
    text += std::to_string(static_cast<int>(op.kind)) + " " + std::to_string(static_cast<int>(op.code));
    for (int64_t extent : op.type.shape) text += " " + std::to_string(extent);
    text += "\n";
  }
  return text;
}

}  // namespace

int64_t CrowdedKernels::add(const MuGraph& mugraph, const Schedule& schedule, const EmittedMuGraph& emitted,
                            const std::string& log) {
  const auto applied = apply_schedule(mugraph, schedule);
  check(applied.ok(), "the schedule of a program does not fit its muGraph");
  const std::map<std::string, int64_t> bytes = stack_bytes(log);
  for (const EmittedBlock& block : emitted.blocks)
    if (const auto own = bytes.find(block.function); own != bytes.end() && own->second > 0)
      crowded_.insert(traits(applied->kernels[block.kernel], schedule.kernels[block.kernel]));
  int64_t sum = 0;
  for (const auto& [function, own] : bytes) sum += own;
  return sum;
}

bool CrowdedKernels::expects(const MuGraph& mugraph, const Schedule& schedule) const {
  if (crowded_.empty()) return false;
  const auto applied = apply_schedule(mugraph, schedule);
  check(applied.ok(), "a schedule of the enumeration does not fit its muGraph");
  for (size_t k = 0; k < applied->kernels.size(); ++k)
    if (applied->kernels[k].custom && crowded_.count(traits(applied->kernels[k], schedule.kernels[k])))
      return true;
  return false;
}

}  // namespace quern
