#include "core/codegen/baseline.h"

#include <map>

#include "core/base/integers.h"
#include "core/codegen/baseline_kernel.h"
#include "core/codegen/prelude.h"
#include "core/codegen/prepare.h"
#include "core/graph/decompose.h"
#include "core/kernel/verify_kernel.h"

namespace quern {

namespace {

// Equal kernels have one text and several launches.
class ProgramText {
 public:
  Launch add(const BaselineKernel& made, const std::string& makes) {
    BaselineKernel kernel = made;
    Launch launch;
    const auto [at, fresh] = names_.try_emplace(print_cuda(kernel.kernel));
    if (fresh) {
      at->second = "q" + std::to_string(names_.size() - 1) + "_" + kernel.kind;
      kernel.kernel.name = at->second;
      kernel.kernel.comment = makes;
      text_ += print_cuda(kernel.kernel) + "\n";
    }
    launch.kernel = at->second;
    launch.grid = kernel.grid;
    launch.cluster.x = kernel.cluster;
    launch.block.x = static_cast<uint32_t>(kernel.kernel.threads);
    launch.shared_bytes = static_cast<uint32_t>(kernel.kernel.shared_bytes);
    launch.args = std::move(kernel.args);
    return launch;
  }
  std::string take() { return std::move(text_); }
  size_t kernels() const { return names_.size(); }

 private:
  std::map<std::string, std::string> names_;
  std::string text_;
};

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

// What the parameters of launch number `launch` point to. Places of the workspace are used again: the one that is
// meant is in use.
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

std::string certificate(const Graph& graph, const Partition& partition, size_t kernels) {
  return "emitter: baseline\naccumulation: f32\nlaunches: " + std::to_string(partition.kernels.size()) +
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

Result<Emitted> emit_baseline(const Graph& graph, const Target& target, const ir::PassObserver& observer) {
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
  ProgramText text;
  // Of several kernels each begins while the one in front of it ends (programmatic dependent launch): it waits before it
  // touches memory. A block lets the next kernel begin when its own work is done: blocks that came sooner would wait where
  // they found room, not where the GPU would put them.
  const BaselineProgram program{prepared, parts, storage, target, target.tma && parts.kernels.size() > 1};
  for (const Kernel& kernel : parts.kernels) {
    BaselineKernel code = kernel.is_matmul() ? emit_matmul(program, kernel) : emit_rows(program, kernel);
    ir::Draft draft;
    draft.kernel = std::move(code.kernel);
    draft.kernel.name = code.kind;
    draft.waits_for_previous = program.overlapped;
    if (program.overlapped) draft.launches_dependents = ir::LaunchesDependents::at_end;
    Chooser chooser({}, nullptr);
    if (Status status = run_passes(draft, {target, chooser}, observer); !status.ok()) return status;
    code.kernel = std::move(draft.kernel);
    code.kernel.name.clear();  // until it is known whether it is like another
    if (Status status = verify_kernel(code.kernel); !status.ok()) return status;
    emitted.work.push_back(std::move(code.work));
    const bool first = plan.launches.empty();
    plan.launches.push_back(text.add(code, describe(prepared, kernel)));
    plan.launches.back().overlaps = program.overlapped && !first;
    ir::LaunchFacts facts = launch_facts(code, plan, storage, static_cast<int>(plan.launches.size()) - 1);
    code.kernel.name = plan.launches.back().kernel;
    emitted.code.push_back({std::move(code.kernel), std::move(facts), plan.launches.size() - 1});
  }
  plan.certificate = certificate(prepared, parts, text.kernels());
  emitted.kernels = text.take();
  emitted.source = std::string(prelude_text()) + "\n" + emitted.kernels;
  return emitted;
}

}  // namespace quern
