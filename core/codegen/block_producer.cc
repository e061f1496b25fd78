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

// The loop of those that compute.
std::string BlockEmitter::fed_loop(const BlockPlan& plan, const std::string& body) const {
  const std::string stages = std::to_string(schedule_.stages);
  const std::string turn = stage_tiles(plan) + turn_text_ +
                           (begins_with_barrier(Stage::loop) ? barrier() : "") + engine_wait() + body +
                           "__syncwarp();\nif (lane == 0) mbarrier_arrive(&free[turn % " + stages + "]);\n";
  return "#pragma unroll 1\nfor (int turn = 0; turn < " + std::to_string(kernel_.turns) + "; ++turn) {\n" +
         indent(turn, 2) + "}\n";
}

}  // namespace quern
