#include "core/codegen/mugraph_emitter.h"

#include <algorithm>
#include <map>

#include "core/codegen/arithmetic.h"
#include "core/codegen/block_order.h"
#include "core/codegen/finite_parts.h"
#include "core/codegen/library_step.h"
#include "core/codegen/mugraph_places.h"
#include "core/codegen/prelude.h"
#include "core/codegen/storage.h"
#include "core/kernel/branches.h"
#include "core/kernel/effects.h"
#include "core/kernel/join.h"
#include "core/kernel/verify_kernel.h"
#include "core/mugraph/tensor_view.h"
#include "core/mugraph/tile_masks.h"
#include "core/schedule/block_work.h"
#include "core/schedule/looks.h"
#include "core/verify/rounded_values.h"

namespace quern {

namespace {

class MuEmitter {
 public:
  MuEmitter(const Graph& graph, const MuGraph& mugraph, const Schedule& schedule, const Target& target,
            Optimizer* optimizer, const ir::PassObserver& observer)
      : graph_(graph),
        mugraph_(mugraph),
        schedule_(schedule),
        target_(target),
        optimizer_(optimizer),
        observer_(observer) {}

  Result<EmittedMuGraph> run() {
    Plan& plan = out_.plan;
    plan.tier = Tier::modelled;
    plan.target = target_.name;
    plan.inputs = graph_.input_descs();
    plan.outputs = graph_.output_descs();
    steps_ = steps_of(mugraph_);
    lives_ = tensor_lives(mugraph_, steps_);
    // What kernels of one launch use is in use until the launch ends.
    for (const Step& step : steps_)
      launches_.push_back(launches_.empty() ? 0 : launches_.back() + !schedule_.kernels[step.first].joined);
    auto places = place_tensors(mugraph_, plan, lives_, launches_);
    if (!places) return places.status();
    places_ = std::move(*places);
    plan.workspace_bytes = static_cast<uint64_t>(places_.workspace);
    for (const Step& step : steps_) {
      const MuKernel& kernel = mugraph_.kernels[step.first];
      if (kernel.custom) refused_ = step.first;
      Status status = kernel.custom ? block_kernel(kernel, step.first) : library_kernels(step);
      if (status.ok() && !parts_.empty() && launch_of(schedule_, step.first).end == step.first + 1) {
        look_ahead(step.first);
        status = launch_blocks();
        if (status.ok() && again_) status = launch_again();
      }
      if (!status.ok()) return status.with_context("kernel " + std::to_string(step.first));
      refused_.reset();
    }
    for (const auto& [tensor, to] : places_.copies)
      if (Status status = copy(places_.tensors[tensor], to); !status.ok()) return status;
    plan.certificate =
        "emitter: mugraph\naccumulation: f32\nlaunches: " + std::to_string(plan.launches.size()) + "\n";
    if (tf32_) plan.certificate += "products of f32: operands rounded to tf32\n";
    if (tf32x3_) plan.certificate += "products of f32: each three products in tf32 (3xTF32)\n";
    for (const EmittedBlock& block : out_.blocks) plan.certificate += explain(block);
    out_.source = std::string(prelude_text()) + "\n";
    if (!plan.tensor_maps.empty() || !shapes_.empty())
      out_.source += std::string(prelude_hopper_text()) + "\n";
    if (!shapes_.empty()) out_.source += std::string(prelude_wgmma_text()) + "\n";
    for (const WgmmaShape& shape : shapes_) out_.source += wgmma_text(shape);
    out_.source += out_.kernels;
    return std::move(out_);
  }

  // Behind a run() that failed: the kernel that stands in the way by itself, if one does.
  std::optional<size_t> refused() const { return refused_; }

 private:
  bool uses_pdl(size_t k) const { return schedule_.kernels[k].pdl && target_.tma; }
  // Whether it is in the first launch, and that overlaps what the caller enqueued before. One whose inputs a
  // kernel in front looks at is not first. Loops that load into registers need the L1 cache for what is under
  // way: whoever begins beside another kernel gets it as that one left it, and takes longer (a Llama layer
  // 150 us instead of 134).
  bool overlaps_caller(size_t k, bool behind = false) const {
    if (!out_.plan.launches.empty() || !target_.tma) return false;
    bool all = true;
    const LaunchedKernels launch = launch_of(schedule_, k);
    for (size_t part = launch.first; part < launch.end; ++part) {
      const KernelSchedule& schedule = schedule_.kernels[part];
      all = all && (!schedule.intervals || behind) &&
            (schedule.stages > 0 || mugraph_.kernels[part].trip_count == 1);
    }
    return all;
  }

  BlockFacts facts_of(const MuKernel& kernel, const KernelSchedule& schedule, bool first) const {
    return BlockFacts(kernel, lower_block(mugraph_, kernel), places_.read, schedule, first, target_,
                      approximate_functions(out_.plan.outputs),
                      block_order(mugraph_, kernel, schedule, target_));
  }

  Status block_kernel(const MuKernel& kernel, size_t k) {
    if (looks_behind(mugraph_, schedule_, k))
      if (Status status = block_kernel(kernel, k, true); again_) return status;
    return block_kernel(kernel, k, false);
  }

  // `behind`: its sums tell a launch behind what is finite; does nothing where there can be none.
  Status block_kernel(const MuKernel& kernel, size_t k, bool behind) {
    Chooser chooser(schedule_.kernels[k].choices, optimizer_);
    const bool first = overlaps_caller(k, behind);
    KernelSchedule schedule = schedule_.kernels[k];
    schedule.pdl = uses_pdl(k) || first;
    BlockFacts facts = facts_of(kernel, schedule, first);
    TensorPlace verdicts{"verdicts", DType::f32, {}, {1}, {}};
    if (behind) facts.verdicts = &verdicts;
    auto block = lower_to_draft(facts, chooser);
    if (!block) return block.status();
    if (behind) {
      verdicts.shape = {static_cast<int64_t>(block->grid.count())};
      again_ = lower_again(kernel, k, verdicts);
      if (!again_) return {};
      const LaunchArg room = room_for_words(verdicts.shape[0]);
      for (BlockKernel* part : {&*block, &*again_}) part->args[*part->verdicts] = room;
    }
    if (Status status = compare_products(k, block->products); !status.ok()) return status;
    // A look in a launch of its own: what is in front of that has ended when it begins, as it overlaps with nothing.
    block->draft.only_looks_at_previous =
        block->watched.size() == 1 && !looked_.contains(block->watched[0].tensor);
    for (const BlockKernel::Watched& watched : block->watched) {
      if (!looked_.contains(watched.tensor)) {
        auto arg = look_for_finite(watched.tensor, uses_pdl(k));
        if (!arg) return arg.status();
        looked_.emplace(watched.tensor, *arg);
      }
      block->args[watched.arg] = looked_.at(watched.tensor);
    }
    if (Status status = complete(*block, schedule.pdl, chooser, out_.plan.launches.size()); !status.ok())
      return status;
    out_.blocks.push_back({k, chooser.made(), chooser.proven(), chooser.candidates(), block->costs,
                           block->draft.kernel.name, ""});
    overlaps_ = schedule.pdl && (first || !out_.plan.launches.empty());
    add_part(std::move(*block));
    return {};
  }

  void add_part(BlockKernel block) {
    for (LaunchArg& arg : block.args)
      if (arg.kind == LaunchArg::Kind::tensor_map)
        arg.value += static_cast<int64_t>(out_.plan.tensor_maps.size());
    shapes_.merge(block.shapes);
    tf32_ |= block.tf32;
    tf32x3_ |= block.tf32x3;
    for (TensorMap& map : block.tensor_maps) out_.plan.tensor_maps.push_back(std::move(map));
    parts_.push_back(std::move(block));
  }

  // A kernel with all iterations of all its blocks, for when sums of one were not finite. It has nothing to do but for such
  // inputs, so that no choice of it matters; nothing if persistent blocks cannot do it.
  std::optional<BlockKernel> lower_again(const MuKernel& kernel, size_t k, const TensorPlace& verdicts) {
    KernelSchedule schedule = schedule_.kernels[k];
    schedule.intervals = schedule.overlap = schedule.tma_store = false;
    schedule.min_blocks = 0;
    schedule.persistent = target_.sms;
    schedule.pdl = target_.tma;
    BlockFacts facts = facts_of(kernel, schedule, false);
    facts.verdicts_in_front = &verdicts;
    Chooser chooser({}, nullptr);
    auto block = lower_to_draft(facts, chooser);
    if (!block || !complete(*block, schedule.pdl, chooser, out_.plan.launches.size() + 1).ok()) return {};
    return std::move(*block);
  }

  Status launch_again() {
    BlockKernel block = *std::exchange(again_, std::nullopt);
    out_.blocks.back().again = block.draft.kernel.name;
    overlaps_ = target_.tma;
    add_part(std::move(block));
    return launch_blocks();
  }

  // From what was lowered to the kernel's code, as the next part of the launch of that number.
  Status complete(BlockKernel& block, bool waits, Chooser& chooser, size_t launch) {
    const size_t part = parts_.size() + looks_.size();
    ir::Draft& draft = block.draft;
    ir::Kernel& code = draft.kernel;
    code.name = "q" + std::to_string(launch) + (part == 0 ? "" : "_" + std::to_string(part)) + "_block";
    draft.waits_for_previous = waits;
    // A launch behind it without the attribute waits for its end all the same.
    if (target_.tma) draft.launches_dependents = ir::LaunchesDependents::at_once;
    if (Status status = run_passes(draft, {target_, chooser}, observer_); !status.ok()) return status;
    if (ir::confuses_wgmma(code.body)) code.body = ir::without_branches(code.body);
    if (ir::confuses_wgmma(code.body))
      return Status(ErrorCode::UNSUPPORTED,
                    "beside a left operand of wgmma that lives through a loop it has exact quotients, roots "
                    "or powers, branches around what it chooses from, or assigns tiles in branches");
    static_cast<ir::DraftCosts&>(block.costs) = draft.costs;
    return verify_kernel(code);
  }

  // A kernel that depends on an earlier one computes the products that both have with the same bits (computed_products.h).
  Status compare_products(size_t k, ComputedProducts products) {
    if (products.empty()) return {};
    KernelAccesses accesses = accesses_of(mugraph_, mugraph_.kernels[k]);
    for (const ProductsOfKernel& earlier : products_) {
      if (independent(earlier.accesses, accesses)) continue;
      for (const auto& [what, how] : earlier.products)
        if (const auto at = products.find(what); at != products.end() && at->second != how) {
          refused_.reset();
          return Status(ErrorCode::UNSUPPORTED, "kernel " + std::to_string(earlier.kernel) +
                                                    " computes a product by " + how +
                                                    ", and this one computes it again by " + at->second);
        }
    }
    products_.push_back({k, std::move(accesses), std::move(products)});
    return {};
  }

  // What block_kernel() has made since the last one, as a launch.
  Status launch_blocks() {
    std::vector<ir::KernelPart> parts = kernel_parts();
    const bool joined = parts.size() > 1;
    Launch launch;
    launch.kernel =
        joined ? "q" + std::to_string(out_.plan.launches.size()) + "_joined" : parts[0].kernel.name;
    for (EmittedBlock& block : out_.blocks)
      if (std::any_of(parts.begin(), parts.end(),
                      [&](const ir::KernelPart& part) { return part.kernel.name == block.function; }))
        block.function = launch.kernel;
    for (auto& [tensor, part] : looks_) parts_.push_back(std::move(part));
    looks_.clear();
    for (const BlockKernel& part : parts_)
      launch.args.insert(launch.args.end(), part.args.begin(), part.args.end());
    launch.block.x = static_cast<uint32_t>(parts[0].kernel.threads);
    // A wait is for the kernel in front alone; as every block waits before it lets the next kernel begin, and
    // before it can end, the ones before that have ended too: kernels see all that came before them, never
    // more than two run at a time, and the end of the last one is the end of the plan. So what the caller
    // enqueued has ended when the second launch begins.
    launch.overlaps = overlaps_;
    if (joined) {
      const auto made = ir::join_kernels(launch.kernel, std::move(parts));
      if (!made) return made.status();
      launch.grid = made->grid;
      launch.cluster = made->cluster;
      launch.shared_bytes = static_cast<uint32_t>(made->shared_bytes);
      out_.kernels += print_cuda(*made) + "\n";
    } else {
      launch.grid = parts[0].grid;
      launch.cluster = parts[0].cluster;
      launch.shared_bytes = static_cast<uint32_t>(parts[0].kernel.shared_bytes);
      out_.kernels += print_cuda(parts[0].kernel) + "\n";
    }
    for (BlockKernel& part : parts_)
      out_.code.push_back({std::move(part.draft.kernel), std::move(part.facts), out_.plan.launches.size()});
    out_.plan.launches.push_back(std::move(launch));
    parts_.clear();
    return {};
  }

  Status library_kernels(const Step& step) {
    std::vector<Ints> strides;
    for (const TensorPlace& place : places_.tensors) strides.push_back(place.strides);
    auto library = library_step(mugraph_, step, lives_, strides);
    if (!library) return library.status();
    auto arguments = [&](const std::vector<int32_t>& tensors) {
      std::vector<LaunchArg> args;
      for (int32_t tensor : tensors) args.push_back(places_.tensors[static_cast<size_t>(tensor)].arg);
      return args;
    };
    if (library->outputs.empty()) return {};
    return baseline_program(library->graph, arguments(library->inputs), arguments(library->outputs));
  }

  // Of a tensor that is complete, to one more output.
  Status copy(const TensorPlace& from, const LaunchArg& to) {
    Graph graph;
    graph.outputs = {add_input(graph, from.dtype, from.shape, from.strides, from.name)};
    return baseline_program(graph, {from.arg}, {to});
  }

  // A launch that finds which parts of a tensor's memory are finite, at the same time as the next one if that
  // is `overlapped`; gives where it writes that.
  Result<LaunchArg> look_for_finite(int32_t tensor, bool overlapped) {
    const TensorPlace& place = places_.tensors[static_cast<size_t>(tensor)];
    auto graph = finite_graph(place.dtype, place.shape, place.strides);
    if (!graph) return graph.status();
    const LaunchArg parts = room_for_parts(place.shape);
    const auto alone = overlapped ? ir::LaunchesDependents::at_once : ir::LaunchesDependents::never;
    if (Status status = baseline_program(*graph, {place.arg}, {parts}, alone); !status.ok()) return status;
    return parts;
  }

  LaunchArg room_for_parts(const Ints& shape) { return room_for_words(finite_parts(shape)); }
  LaunchArg room_for_words(int64_t count) {
    const LaunchArg parts{LaunchArg::Kind::workspace, round_up(places_.workspace, kWorkspaceAlignment)};
    places_.workspace = parts.value + count * static_cast<int64_t>(sizeof(float));
    out_.plan.workspace_bytes = std::max(out_.plan.workspace_bytes, static_cast<uint64_t>(places_.workspace));
    return parts;
  }

  // Puts blocks into the launch that ends with kernel `k` which look for what the next kernel wants to know
  // (launch_that_looks). Where they do not fit, that one gets a launch in front.
  void look_ahead(size_t k) {
    size_t next = k + 1;
    while (next < mugraph_.kernels.size() && !mugraph_.kernels[next].custom) ++next;
    if (next == mugraph_.kernels.size()) return;
    const auto launch = launch_that_looks(mugraph_, schedule_, next);
    if (!launch || launch->end != k + 1) return;
    for (int32_t tensor : tensors_to_look_at(mugraph_, mugraph_.kernels[next])) {
      const TensorPlace& place = places_.tensors[static_cast<size_t>(tensor)];
      if (looked_.contains(tensor) || place.strides != dense_strides(place.shape)) continue;
      const LaunchArg parts = room_for_parts(place.shape);
      if (auto part = looking_blocks(place, parts, k)) {
        looks_.push_back({tensor, std::move(*part)});
        looked_.emplace(tensor, parts);
      }
    }
    if (looks_.empty() || ir::join_kernels("", kernel_parts()).ok()) return;
    for (const auto& [tensor, part] : looks_) looked_.erase(tensor);
    looks_.clear();
  }

  // The launch that is being made: kernels, and blocks that look for later ones.
  std::vector<ir::KernelPart> kernel_parts() const {
    std::vector<ir::KernelPart> out;
    for (const BlockKernel& part : parts_) out.push_back({part.draft.kernel, part.grid, part.cluster});
    for (const auto& [tensor, part] : looks_) out.push_back({part.draft.kernel, part.grid, part.cluster});
    return out;
  }

  // Beside kernel `k`, with as many threads.
  Result<BlockKernel> looking_blocks(const TensorPlace& tensor, const LaunchArg& parts, size_t k) {
    const int threads = mugraph_.kernels[k].threads;
    const auto mugraph = finite_mugraph(tensor.dtype, tensor.shape, threads);
    if (!mugraph) return mugraph.status();
    std::vector<TensorPlace> places;
    for (int32_t t : {0, 1}) places.push_back(dense_place(*mugraph, t));
    places[0].name = tensor.name;
    places[0].arg = tensor.arg;
    places[1].name = "finite";
    places[1].arg = parts;
    KernelSchedule schedule;
    schedule.warps = {1, 1, threads / 32};
    schedule.min_blocks = schedule_.kernels[k].min_blocks;
    const bool first = overlaps_caller(k);
    schedule.pdl = uses_pdl(k) || first;
    const MuKernel& kernel = mugraph->kernels[0];
    const BlockFacts facts(kernel, lower_block(*mugraph, kernel), places, schedule, first, target_, false,
                           {});
    Chooser chooser({}, nullptr);
    auto block = lower_to_draft(facts, chooser);
    if (!block) return block;
    if (Status status = complete(*block, schedule.pdl, chooser, out_.plan.launches.size()); !status.ok())
      return status;
    return block;
  }

  // A program of the baseline emitter becomes part of this one.
  Status baseline_program(const Graph& graph, const std::vector<LaunchArg>& inputs,
                          const std::vector<LaunchArg>& outputs,
                          ir::LaunchesDependents alone = ir::LaunchesDependents::never) {
    const size_t before = out_.plan.launches.size();
    auto emitted = emit_baseline(graph, target_, observer_, alone, "k" + std::to_string(before) + "_");
    if (!emitted) return emitted.status();
    const int64_t behind = round_up(places_.workspace, 256);
    for (Launch launch : emitted->plan.launches) {
      for (LaunchArg& arg : launch.args) {
        if (arg.kind == LaunchArg::Kind::input)
          arg = inputs[static_cast<size_t>(arg.value)];
        else if (arg.kind == LaunchArg::Kind::output)
          arg = outputs[static_cast<size_t>(arg.value)];
        else if (arg.kind == LaunchArg::Kind::workspace)
          arg.value += behind;
      }
      out_.plan.launches.push_back(std::move(launch));
    }
    if (emitted->plan.workspace_bytes > 0)
      out_.plan.workspace_bytes =
          std::max(out_.plan.workspace_bytes, static_cast<uint64_t>(behind) + emitted->plan.workspace_bytes);
    out_.kernels += emitted->kernels;
    for (LaunchedKernel& each : emitted->code) each.launch += before;
    std::move(emitted->code.begin(), emitted->code.end(), std::back_inserter(out_.code));
    return {};
  }

  const Graph& graph_;
  const MuGraph& mugraph_;
  const Schedule& schedule_;
  const Target& target_;
  std::vector<Step> steps_;
  MuGraphPlaces places_;
  std::vector<TensorLife> lives_;                     // by tensor
  std::vector<int> launches_;                         // by step: those of one launch have one number
  // Of the launch that is being made: kernels, and, by tensor, what looks for later ones.
  std::vector<BlockKernel> parts_;
  std::vector<std::pair<int32_t, BlockKernel>> looks_;
  bool overlaps_ = false;  // it, and what is in front of it
  std::optional<BlockKernel> again_;     // what is launched behind it (looks_behind)
  std::map<int32_t, LaunchArg> looked_;  // by tensor: where parts that are not finite are noted
  struct ProductsOfKernel {
    size_t kernel;
    KernelAccesses accesses;
    ComputedProducts products;
  };
  std::vector<ProductsOfKernel> products_;  // of block kernels that have any
  std::set<WgmmaShape> shapes_;
  bool tf32_ = false, tf32x3_ = false;
  std::optional<size_t> refused_;
  Optimizer* const optimizer_;
  const ir::PassObserver& observer_;
  EmittedMuGraph out_;
};

std::string barriers_text(int once, int iteration) {
  return std::to_string(once) + " outside of the loop and " + std::to_string(iteration) +
         " in each iteration";
}

}  // namespace

std::string explain(const EmittedBlock& block) {
  const BlockCosts& costs = block.costs;
  return "block " + std::to_string(block.kernel) + ": " +
         "barriers: " + barriers_text(costs.barriers_once, costs.barriers_per_iteration) +
         " (in the order of the muGraph " + barriers_text(costs.listed_once, costs.listed_per_iteration) +
         "), " + std::to_string(costs.shared_bytes) + " bytes of shared memory, " +
         std::to_string(costs.conversion_cycles) + " cycles of conversions a warp\n";
}

std::string explain_choices(const EmittedMuGraph& greedy, const EmittedMuGraph& optimal) {
  check(greedy.blocks.size() == optimal.blocks.size(), "two emissions of one program");
  std::string out;
  for (size_t b = 0; b < optimal.blocks.size(); ++b) {
    const EmittedBlock& block = optimal.blocks[b];
    const BlockCosts &own = greedy.blocks[b].costs, &best = block.costs;
    auto line = [&](const char* what, const std::string& rules, const std::string& least,
                    const std::string& unit, bool proven) {
      out += "block " + std::to_string(block.kernel) + ", " + what + ": greedy " + rules + ", optimal " +
             least + unit + (proven ? "" : " (as far as there was time)") + "\n";
    };
    line("layouts", std::to_string(own.layout_cycles), std::to_string(best.layout_cycles),
         " cycles a warp, of which conversions " + std::to_string(best.conversion_cycles),
         block.proven.layouts);
    line("barriers", barriers_text(own.barriers_once, own.barriers_per_iteration),
         barriers_text(best.barriers_once, best.barriers_per_iteration), "", block.proven.levels);
    line("shared memory", std::to_string(own.shared_bytes), std::to_string(best.shared_bytes), " bytes",
         block.proven.offsets);
  }
  return out;
}

std::map<size_t, LaunchRange> EmittedMuGraph::launches_of_kernels() const {
  std::map<size_t, LaunchRange> out;
  for (const EmittedBlock& block : blocks)
    for (size_t i = 0; i < plan.launches.size(); ++i) {
      const std::string& name = plan.launches[i].kernel;
      if (name != block.function && name != block.again) continue;
      LaunchRange& range = out.try_emplace(block.kernel, LaunchRange{i, i + 1}).first->second;
      range.end = i + 1;
    }
  return out;
}

Schedule with_choices(const Schedule& schedule, const EmittedMuGraph& emitted) {
  Schedule out = schedule;
  for (const EmittedBlock& block : emitted.blocks) out.kernels[block.kernel].choices = block.choices;
  return out;
}

Result<EmittedMuGraph> emit_mugraph(const Graph& graph, const MuGraph& mugraph, const Schedule& schedule,
                                    const Target& target, Optimizer* optimizer,
                                    const ir::PassObserver& observer, std::optional<size_t>* refused) {
  MuGraph noted = mugraph;
  note_rounded_values(graph, noted);
  auto applied = apply_schedule(noted, schedule);
  if (!applied) return applied.status();
  MuEmitter emitter(graph, *applied, schedule, target, optimizer, observer);
  auto emitted = emitter.run();
  if (!emitted && refused) *refused = emitter.refused();
  return emitted;
}

}  // namespace quern
