// A producer: one warp that asks the copy engine for the tiles of all turns, beside those that compute.
// Stages go round between them by two mbarriers each: `landed`, when the bytes of a turn are there, and
// `free`, when every warp has read them. So no turn has a barrier of all threads, and a warp that is slow
// stops the others only when it is behind by the whole ring.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

namespace quern {

// Nobody but the copy engine fills stages: what threads copy, all of them would have to wait for.
Status BlockEmitter::check_producer() const {
  if (!schedule_.producer) return {};
  const auto loads = std::count_if(program_.ops.begin(), program_.ops.end(), [&](const BlockOp& op) {
    return op.kind == BlockOp::Kind::load && program_.stage(&op - &program_.ops[0]) == Stage::loop;
  });
  if (tensor_maps_.empty() || !staged_fetch_.empty() || !straight_fetch_.empty())
    return Status(ErrorCode::UNSUPPORTED,
                  std::string("a producer warp brings all tiles of a loop by the copy engine, which on ") +
                      target_.name + " can bring " + std::to_string(tensor_maps_.size()) + " of these " +
                      std::to_string(loads) +
                      " (tma=1; rows dense and of whole 16 bytes, edges only where the tensor ends)");
  return {};
}

// The whole life of the producer. It may end before what it asked for has landed, and before the others: the
// block, whose memory the engine writes, ends with the last of them.
std::string BlockEmitter::producer_text(const BlockPlan& plan) const {
  if (!schedule_.producer) return "";
  const std::string stages = std::to_string(schedule_.stages);
  // Before its first phase has ended an mbarrier takes a wait for the phase before that.
  const std::string turn = "mbarrier_wait(&free[turn % " + stages + "], (turn / " + stages + " & 1) ^ 1);\n" +
                           stage_tiles(plan) + turn_text_ + engine_request();
  const std::string loop = "#pragma unroll 1\nfor (int turn = 0; turn < " + std::to_string(kernel_.turns) +
                           "; ++turn) {\n" + indent(turn, 2) + "}\n";
  return "if (warp == " + std::to_string(schedule_.workers() / 32) + ") {\n  if (lane == 0) {\n" +
         indent(loop, 4) + "  }\n  return;\n}\n";
}

// Whether tensor cores may still be at work on a turn when the next one begins: they read nothing but the
// ring, and nobody looks at what they sum before the end.
bool BlockEmitter::products_go_on() const {
  return !in_flight_.empty() && std::all_of(plans_.begin(), plans_.end(), [&](const auto& each) {
    const auto& [value, plan] = each;
    if (!plan.wgmma || program_.stage(value) != Stage::loop) return true;
    const BlockOp& user = program_.op(program_.users[static_cast<size_t>(value)][0]);
    return plan.shared[0] && plan.shared[1] && !plan.made_by_all[0] && !plan.made_by_all[1] &&
           user.kind == BlockOp::Kind::accumulate && user.combine == Combine::sum;
  });
}

// The loop of those that compute. A stage is given back when the turn has read it; where products go on, a
// turn later.
std::string BlockEmitter::fed_loop(const BlockPlan& plan, const std::string& body) const {
  const std::string stages = std::to_string(schedule_.stages);
  const bool go_on = products_go_on();
  std::string turn = stage_tiles(plan) + turn_text_ + (begins_with_barrier(Stage::loop) ? barrier() : "") +
                     engine_wait() + body;
  if (go_on)
    turn += "wgmma_wait<" + std::to_string(in_flight_.size()) + ">();\n__syncwarp();\n" +
            "if (turn > 0 && lane == 0) mbarrier_arrive(&free[(turn - 1) % " + stages + "]);\n";
  else
    turn += wgmma_landing(in_flight_) + "__syncwarp();\nif (lane == 0) mbarrier_arrive(&free[turn % " +
            stages + "]);\n";
  return "#pragma unroll 1\nfor (int turn = 0; turn < " + std::to_string(kernel_.turns) + "; ++turn) {\n" +
         indent(turn, 2) + "}\n" + (go_on ? wgmma_landing(in_flight_) : "");
}

}  // namespace quern
