// A product that is made a turn late. Where the loop makes a product, computes something from it, and sums
// the product of that with a tile that all warps make together (attention with normed values), the warps
// would have to wait for each other before the second product. So it is asked for in the next turn, behind
// the first product of that: the barrier that every turn has is between them, and tensor cores make it while
// the threads compute.
//
// Of the turn before the first there are zeros. The barrier of a turn stands behind what the threads compute,
// in front of the wait for the late product: compilers move waits to the front of what has no barriers or
// branches. Stages have been read by then, and are filled again.
#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

namespace quern {

BlockValue BlockEmitter::late_flat() const {
  return program_.op(late_.value).operands[static_cast<size_t>(1 - plans_.at(late_.value).tall)];
}

void BlockEmitter::find_late_product() {
  if (schedule_.producer) return;
  LateProduct late;
  for (const auto& [value, plan] : plans_) {
    if (!plan.wgmma || program_.stage(value) != Stage::loop) continue;
    BlockValue& place = is_summed(value) ? late.value : late.behind;
    if (place >= 0) return;
    place = value;
  }
  if (late.behind < 0 || late.behind > late.value) return;
  late_ = std::move(late);
  const MatmulPlan& plan = plans_.at(late_.value);
  const BlockValue tall = program_.op(late_.value).operands[static_cast<size_t>(plan.tall)];
  if (plan.shared[static_cast<size_t>(plan.tall)] || program_.stage(tall) != Stage::loop ||
      !plan.made_by_all[static_cast<size_t>(1 - plan.tall)] || kernel_.turns < schedule_.stages)
    late_ = {};
}

// What asks for the product of the turn before.
std::string BlockEmitter::late_group() {
  const MatmulPlan& plan = plans_.at(late_.value);
  const BlockOp& op = program_.op(late_.value);
  late_.sums = fresh(base_name(program_.users[static_cast<size_t>(late_.value)][0]));
  late_.words = fresh(base_name(op.operands[static_cast<size_t>(plan.tall)]) + "_pairs");
  const Spread& spread = plan.tall == 0 ? plan.a : plan.b;
  declared_ += "unsigned " + late_.words + "[" + std::to_string(spread.count() / 2) + "] = {};\n";
  late_.group = wgmma_group(late_.value, late_.sums, late_.words, "late_");
  return late_.group;
}

// The tile that the late product of this turn takes is made now; when that of the turn before has
// landed its sums can be scaled, and the other operand put where it takes it from.
void BlockEmitter::finish_late_turn(BlockValue accumulator, const Array& sums) {
  const MatmulPlan& plan = plans_.at(late_.value);
  const BlockValue tall = program_.op(late_.value).operands[static_cast<size_t>(plan.tall)];
  const Spread& spread = plan.tall == 0 ? plan.a : plan.b;
  const int summed_dim = program_.op(tall).type.rank() - (plan.tall == 0 ? 1 : 2);
  make_by_all(late_flat(), plan, program_.op(late_flat()).type.rank() - (plan.tall == 0 ? 2 : 1));
  late_.rest = wgmma_landing({late_.sums});
  if (program_.op(accumulator).combine == Combine::rescaled_sum) late_.rest += rescale(accumulator, sums);
  late_.rest += "#pragma unroll\nfor (int w = 0; w < " + std::to_string(spread.count() / 2) + "; ++w) " +
                late_.words + "[w] = " + word_of(tall, spread, plan.dtype, summed_dim, "(w * 2)") + ";\n";
}

// The tiles that turn `turn` makes, and that of the turn before, one after the other.
std::string BlockEmitter::late_tiles(const BlockPlan& plan) const {
  const MadeTile& made = made_.at(late_flat());
  const std::string type = cuda_type(plans_.at(late_.value).dtype);
  auto line = [&](const std::string& prefix, int turns) {
    return type + "* const " + prefix + made.tile.name + " = reinterpret_cast<" + type + "*>(shared + " +
           std::to_string(plan.offsets[static_cast<size_t>(made.buffer)]) + " + (turn + " +
           std::to_string(turns) + ") % " + std::to_string(made.copies) + " * " +
           std::to_string(made.tile.bytes) + ");\n";
  };
  return line("", 0) + line("late_", made.copies - 1);
}

std::string BlockEmitter::late_loop(const BlockPlan& plan, const std::string& body) const {
  const StagedTile& tile = made_.at(late_flat()).tile;
  const std::string turns = std::to_string(kernel_.turns);
  const int ahead = schedule_.stages;
  const bool copies = !staged_fetch_.empty();
  const std::string fetch = stage_tiles(plan) + turn_text_ + staged_fetch_ + engine_refill(),
                    commit = copies ? "cp_async_commit();\n" : "";
  // All but the last `pending` turns that were asked for are there for all threads.
  auto arrival = [&](int pending) {
    return (copies ? "cp_async_wait<" + std::to_string(pending) + ">();\n" : std::string()) +
           (copies_panels_ ? "fence_proxy_async();\n" : "") + "__syncthreads();\n";
  };
  const std::string zeros =
      "const int turn = 0;\n" + late_tiles(plan) + "for (int i = int(threadIdx.x); i < " +
      std::to_string(tile.bytes / 16) + "; i += " + std::to_string(schedule_.workers()) +
      ")\n  store_vector<unsigned, 4>(late_" + tile.name + " + i * 8, {});\nfence_proxy_async();\n";
  const std::string turn = "const int turn = step;\n" + stage_tiles(plan) + turn_text_ + straight_fetch_ +
                           late_tiles(plan) + engine_wait() + body + arrival(ahead - 2) + "if (step + " +
                           std::to_string(ahead) + " < " + turns + ") {\n  const int turn = step + " +
                           std::to_string(ahead) + ";\n" + indent(fetch, 2) + "}\n" + commit + late_.rest;
  const std::string last = "const int turn = " + turns + ";\n" + late_tiles(plan) + "wgmma_fence();\n" +
                           late_.group + wgmma_landing({late_.sums});
  return "__syncthreads();\n{\n" + indent(zeros, 2) + "}\n#pragma unroll 1\nfor (int turn = 0; turn < " +
         std::to_string(ahead) + "; ++turn) {\n" + indent(fetch + commit, 2) + "}\n" + arrival(ahead - 1) +
         "#pragma unroll 1\nfor (int step = 0; step < " + turns + "; ++step) {\n" + indent(turn, 2) +
         "}\n{\n" + indent(last, 2) + "}\n" + (copies ? "cp_async_wait<0>();\n" : "");
}

}  // namespace quern
