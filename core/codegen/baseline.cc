#include "core/codegen/baseline.h"

#include <map>

#include "core/base/integers.h"
#include "core/codegen/baseline_kernel.h"
#include "core/codegen/prelude.h"
#include "core/codegen/prepare.h"
#include "core/graph/decompose.h"
#include "core/kernel/join.h"
#include "core/kernel/verify_kernel.h"
#include "core/schedule/model.h"

namespace quern {

namespace {

// A kernel of the program with what it makes, for readers.
struct MadeKernel {
  BaselineKernel code;
  ir::LaunchFacts facts;
  std::string makes;
};

// Equal kernels have one text and several launches.
class ProgramText {
 public:
  explicit ProgramText(std::string prefix) : prefix_(std::move(prefix)) {}

  // Of several kernels: joined. The kernels get their names.
  Launch add(std::vector<MadeKernel>& made) {
    std::string text;
    for (MadeKernel& each : made) {
      each.code.kernel.name.clear();  // until it is known whether it is like another
      text += print_cuda(each.code.kernel);
      if (made.size() > 1) text += "// " + std::to_string(each.code.grid.x) + "\n";
    }
    Launch launch;
    const auto [at, fresh] = names_.try_emplace(text);
    if (fresh)
      at->second = prefix_ + "q" + std::to_string(names_.size() - 1) + "_" +
                   (made.size() > 1 ? "joined" : made[0].code.kind);
    launch.kernel = at->second;
    std::vector<ir::KernelPart> parts;
    for (MadeKernel& each : made) {
      ir::Kernel& kernel = each.code.kernel;
      kernel.name = made.size() == 1 ? at->second
                                     : at->second + "_" + std::to_string(parts.size()) + "_" + each.code.kind;
      launch.args.insert(launch.args.end(), each.code.args.begin(), each.code.args.end());
      parts.push_back({kernel, each.facts.grid, each.facts.cluster});
      parts.back().kernel.comment = each.makes;
    }
    const ir::KernelPart& one = parts[0];
    launch.grid = one.grid;
    launch.cluster = one.cluster;
    launch.block.x = static_cast<uint32_t>(one.kernel.threads);
    launch.shared_bytes = static_cast<uint32_t>(one.kernel.shared_bytes);
    if (parts.size() == 1) {
      if (fresh) text_ += print_cuda(one.kernel) + "\n";
      return launch;
    }
    const auto joined = ir::join_kernels(at->second, std::move(parts));
    check(joined.ok(), "kernels are joined that do not go together");
    launch.grid = joined->grid;
    launch.shared_bytes = static_cast<uint32_t>(joined->shared_bytes);
    if (fresh) text_ += print_cuda(*joined) + "\n";
    return launch;
  }
  std::string take() { return std::move(text_); }
  size_t kernels() const { return names_.size(); }

 private:
  std::string prefix_;
  std::map<std::string, std::string> names_;
  std::string text_;
};

// Whether two kernels touch different memory, or both read.
bool independent(const MadeKernel& a, const MadeKernel& b) {
  auto end = [](const MadeKernel& kernel, size_t i) {
    return kernel.code.args[i].value +
           kernel.facts.parameters[i].elements * ir::bytes_of(kernel.code.kernel.parameters[i].symbol->type);
  };
  for (size_t i = 0; i < a.code.args.size(); ++i)
    for (size_t j = 0; j < b.code.args.size(); ++j) {
      const LaunchArg &x = a.code.args[i], &y = b.code.args[j];
      const bool written =
          a.code.kernel.parameters[i].symbol->written || b.code.kernel.parameters[j].symbol->written;
      if (!written || x.kind != y.kind) continue;
      if (x.kind == LaunchArg::Kind::workspace ? x.value < end(b, j) && y.value < end(a, i)
                                               : x.value == y.value)
        return false;
    }
  return true;
}

// All that it reads and writes comes from and goes to DRAM.
BlockWork with_bytes(const LaunchWork& work) {
  BlockWork out = work.block;
  for (const BufferAccess& access : work.accesses) {
    out.unique_bytes += access.bytes;
    if (!access.written) out.fresh_bytes += access.bytes;
  }
  return out;
}

// Whether one more kernel is to share the launch of some: it may, and that is faster by the model.
bool gains_by_joining(const std::vector<MadeKernel>& made, const MadeKernel& next, const Target& target) {
  std::vector<BlockWork> works;
  std::vector<KernelSchedule> schedules;
  auto add = [&](const MadeKernel& each) {
    works.push_back(with_bytes(each.code.work));
    schedules.push_back(each.code.work.schedule);
  };
  for (const MadeKernel& each : made) {
    if (each.code.cluster > 1 || next.code.cluster > 1 || !independent(each, next)) return false;
    add(each);
  }
  const double apart = modelled_joined(works, schedules, target).us +
                       modelled_block(with_bytes(next.code.work), next.code.work.schedule, target).us;
  add(next);
  if (modelled_joined(works, schedules, target).us >= apart) return false;
  std::vector<ir::KernelPart> parts;
  for (const MadeKernel& each : made)
    parts.push_back({each.code.kernel, each.facts.grid, each.facts.cluster});
  parts.push_back({next.code.kernel, next.facts.grid, next.facts.cluster});
  return ir::join_kernels("", std::move(parts)).ok();
}

// "s, d12": the values that a kernel makes, for the reader of the text.
std::string describe(const Graph& graph, const Kernel& kernel) {
  std::string out;
  for (const auto& [value, role] : kernel.makes) {
    if (out.size() > 80) return out + ", ...";
    const Node& node = graph.node(value);
    out += (out.empty() ? "" : ", ") + (node.name.empty() ? std::string(op_info(node.code).text) : node.name);
  }
  return out;
}

// What the parameters of launch number `launch` point to. Places of the workspace are used again: the one
// that is meant is in use.
ir::LaunchFacts launch_facts(const BaselineKernel& code, const Plan& plan, const Storage& storage,
                             int launch) {
  ir::LaunchFacts facts;
  facts.grid = code.grid;
  facts.cluster.x = code.cluster;
  for (size_t i = 0; i < code.args.size(); ++i) {
    const LaunchArg& arg = code.args[i];
    const size_t at = static_cast<size_t>(arg.value);
    ir::ParameterFacts parameter;
    if (arg.kind == LaunchArg::Kind::input)
      parameter.elements = plan.inputs[at].span();
    else if (arg.kind == LaunchArg::Kind::output)
      parameter.elements = plan.outputs[at].span();
    else
      for (size_t b = 0; b < storage.buffers().size(); ++b) {
        const MemoryBuffer& buffer = storage.buffers()[b];
        if (storage.offsets()[b] == arg.value && buffer.first <= launch && launch <= buffer.last)
          parameter.elements = buffer.bytes / ir::bytes_of(code.kernel.parameters[i].symbol->type);
      }
    facts.parameters.push_back(parameter);
  }
  return facts;
}

std::string certificate(const Graph& graph, size_t launches, size_t kernels) {
  return "emitter: baseline\naccumulation: f32\nlaunches: " + std::to_string(launches) +
         "\nkernels: " + std::to_string(kernels) + "\nvalues: " + std::to_string(graph.nodes.size()) + "\n";
}

}  // namespace

BlockGrid block_grid(int64_t blocks) {
  constexpr int64_t kMaxX = 0x7fffffff, kFold = int64_t{1} << 30;
  BlockGrid out;
  if (blocks <= kMaxX) {
    out.grid.x = static_cast<uint32_t>(blocks);
    out.number = ir::block_index(0, ir::Scalar::u32);
    return out;
  }
  out.grid.x = static_cast<uint32_t>(kFold);
  out.grid.y = static_cast<uint32_t>(divide_up(blocks, kFold));
  out.number = ir::cast(ir::block_index(1, ir::Scalar::u32), ir::Scalar::u64) * kFold +
               ir::block_index(0, ir::Scalar::u32);
  out.exact = false;
  return out;
}

Result<Emitted> emit_baseline(const Graph& graph, const Target& target, const ir::PassObserver& observer,
                              ir::LaunchesDependents alone, const std::string& prefix) {
  const Graph prepared = prepare(decompose(graph), target);
  const Partition parts = partition(prepared, target);
  const Storage storage(prepared, parts);

  Emitted emitted;
  Plan& plan = emitted.plan;
  plan.tier = Tier::baseline;
  plan.target = target.name;
  plan.inputs = graph.input_descs();
  plan.outputs = graph.output_descs();
  plan.workspace_bytes = static_cast<uint64_t>(storage.workspace_bytes());
  ProgramText text(prefix);
  // Of several kernels each begins while the one in front of it ends (programmatic dependent launch): it
  // waits before it touches memory. A block lets the next kernel begin when its own work is done: blocks that
  // came sooner would wait where they found room, not where the GPU would put them.
  const BaselineProgram program{prepared, parts, storage, target, target.tma && parts.kernels.size() > 1};
  std::vector<MadeKernel> made;  // of the launch that is being made
  auto launch = [&] {
    if (made.empty()) return;
    Launch one = text.add(made);
    one.overlaps = program.overlapped && !plan.launches.empty();
    for (MadeKernel& each : made) {
      emitted.work.push_back(std::move(each.code.work));
      emitted.work.back().joined = &each != made.data();
      emitted.code.push_back({std::move(each.code.kernel), std::move(each.facts), plan.launches.size()});
    }
    plan.launches.push_back(std::move(one));
    made.clear();
  };
  for (size_t k = 0; k < parts.kernels.size(); ++k) {
    const Kernel& kernel = parts.kernels[k];
    MadeKernel next{kernel.is_matmul() ? emit_matmul(program, kernel) : emit_rows(program, kernel), {}, ""};
    ir::Draft draft;
    draft.kernel = std::move(next.code.kernel);
    draft.kernel.name = next.code.kind;
    draft.waits_for_previous = program.overlapped;
    draft.launches_dependents = program.overlapped ? ir::LaunchesDependents::at_end : alone;
    Chooser chooser({}, nullptr);
    if (Status status = run_passes(draft, {target, chooser}, observer); !status.ok()) return status;
    next.code.kernel = std::move(draft.kernel);
    if (Status status = verify_kernel(next.code.kernel); !status.ok()) return status;
    next.facts = launch_facts(next.code, plan, storage, static_cast<int>(k));
    next.makes = describe(prepared, kernel);
    if (!made.empty() && !gains_by_joining(made, next, target)) launch();
    made.push_back(std::move(next));
  }
  launch();
  plan.certificate = certificate(prepared, plan.launches.size(), text.kernels());
  emitted.kernels = text.take();
  emitted.source = std::string(prelude_text()) + "\n" + emitted.kernels;
  return emitted;
}

}  // namespace quern
