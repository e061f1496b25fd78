#include "core/optimize/registers.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "core/schedule/block_work.h"

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

// What decides whether the emitter takes a kernel is all of its schedule.
std::string all_of(KernelSchedule schedule, bool joined) {
  schedule.choices = {};
  schedule.joined = joined;
  return print_schedule({{schedule}});
}

// What decides how many registers a thread takes is, of a schedule, warps and data paths. How many blocks and
// iterations there are does not, nor how many stages.
std::string schedule_traits(KernelSchedule schedule, bool joined) {
  schedule = without_tiling(schedule);
  schedule.stages = std::min(schedule.stages, 1);
  schedule.persistent = std::min<int64_t>(schedule.persistent, 1);
  schedule.pdl = false;
  return all_of(std::move(schedule), joined);
}

// And of the kernel its operators and tiles.
std::string kernel_traits(const MuKernel& applied) {
  std::string text = applied.trip_count > 1 ? "loop\n" : "";
  for (const BlockOp& op : applied.ops) {
    text += std::to_string(static_cast<int>(op.kind()));
    if (op.is_compute()) text += " " + std::to_string(static_cast<int>(op.code())) + ":";
    for (int64_t extent : op.type.shape) text += " " + std::to_string(extent);
    text += "\n";
  }
  return text;
}

// Products and reductions, and whether there is a loop: kernels of one kind hold their values alike.
std::string kind_of(const MuKernel& kernel, const KernelSchedule& schedule) {
  std::multiset<int> codes;
  for (const BlockOp& op : kernel.ops)
    if (op.is_compute(OpKind::contraction) || op.is_compute(OpKind::reduction))
      codes.insert(static_cast<int>(op.code()));
  std::string text = schedule.persistent > 0 ? "persistent" : kernel.trip_count > 1 ? "loop" : "once";
  for (int code : codes) text += " " + std::to_string(code);
  return text;
}

double most_registers(const KernelSchedule& schedule) {
  if (schedule.setmaxnreg) return static_cast<double>(schedule.most_registers());
  return std::min(255.0, 65536.0 / schedule.threads() / std::max(1, schedule.min_blocks));
}

// Of the registers that a thread may have, what it wants by the model.
double share(const MuGraph& applied, const MuKernel& kernel, const KernelSchedule& schedule,
             const Target& target) {
  return block_work(applied, kernel, schedule, target).registers / most_registers(schedule);
}

MuGraph applied_to(const MuGraph& mugraph, const Schedule& schedule) {
  auto applied = apply_schedule(mugraph, schedule);
  check(applied.ok(), "a schedule of the enumeration does not fit its muGraph");
  return std::move(*applied);
}

}  // namespace

std::string spilling_warpgroups(const Schedule& schedule, const std::vector<EmittedBlock>& blocks,
                                const std::string& log) {
  const std::map<std::string, int64_t> bytes = stack_bytes(log);
  for (const EmittedBlock& block : blocks)
    for (const std::string& function : {block.function, block.again})
      if (const auto own = bytes.find(function); own != bytes.end() && own->second > 0)
        if (schedule.kernels[block.kernel].wgmma) return function;
  return "";
}

void UnfitKernels::add(const MuGraph& mugraph, const Schedule& schedule, size_t kernel) {
  refused_[all_of(schedule.kernels[kernel], is_joined(schedule, kernel))].insert(
      kernel_traits(applied_to(mugraph, schedule).kernels[kernel]));
}

int64_t UnfitKernels::add(const MuGraph& mugraph, const Schedule& schedule, const EmittedMuGraph& emitted,
                          const std::string& log) {
  const MuGraph applied = applied_to(mugraph, schedule);
  const std::map<std::string, int64_t> bytes = stack_bytes(log);
  auto spilled = [&](const std::string& function) {
    const auto at = bytes.find(function);
    return at == bytes.end() ? 0 : at->second;
  };
  for (const EmittedBlock& block : emitted.blocks) {
    const int64_t own = spilled(block.function);
    if (own == 0 && spilled(block.again) == 0) continue;
    const MuKernel& kernel = applied.kernels[block.kernel];
    const KernelSchedule& how = schedule.kernels[block.kernel];
    const bool joined = is_joined(schedule, block.kernel);
    crowded_[schedule_traits(how, joined)].insert(kernel_traits(kernel));
    if (joined || own == 0) continue;
    const double wanted = 1 + static_cast<double>(own) / 4 / most_registers(how);
    double& fitting = fitting_.try_emplace(kind_of(kernel, how), 1e9).first->second;
    fitting = std::min(fitting, share(applied, kernel, how, target_) / wanted);
  }
  int64_t sum = 0;
  for (const auto& [function, own] : bytes) sum += own;
  return sum;
}

bool UnfitKernels::expects(const KernelSchedule& schedule, bool joined,
                           const std::function<MuKernel()>& applied) const {
  auto known = [&](const auto& kernels, const std::string& traits) {
    const auto at = kernels.find(traits);
    return at != kernels.end() && at->second.count(kernel_traits(applied())) > 0;
  };
  return known(crowded_, schedule_traits(schedule, joined)) || known(refused_, all_of(schedule, joined));
}

bool UnfitKernels::expects(const MuGraph& mugraph, const Schedule& schedule) const {
  if (crowded_.empty() && refused_.empty()) return false;
  const MuGraph applied = applied_to(mugraph, schedule);
  for (size_t k = 0; k < applied.kernels.size(); ++k)
    if (applied.kernels[k].custom &&
        expects(schedule.kernels[k], is_joined(schedule, k), [&] { return applied.kernels[k]; }))
      return true;
  return false;
}

bool UnfitKernels::suspects(const MuGraph& mugraph, const Schedule& schedule) const {
  if (fitting_.empty()) return false;
  const MuGraph applied = applied_to(mugraph, schedule);
  for (size_t k = 0; k < applied.kernels.size(); ++k) {
    const MuKernel& kernel = applied.kernels[k];
    if (!kernel.custom || is_joined(schedule, k)) continue;
    const auto fitting = fitting_.find(kind_of(kernel, schedule.kernels[k]));
    if (fitting != fitting_.end() && share(applied, kernel, schedule.kernels[k], target_) >= fitting->second)
      return true;
  }
  return false;
}

}  // namespace quern
