// Gives every buffer, the ring of staged tiles and its mbarriers their places in the block's shared memory.
// Buffers that are never needed at the same moment may lie in the same place.
#include "core/base/integers.h"
#include "core/kernel/builder.h"
#include "core/kernel/passes/passes.h"

namespace quern::ir {

Status plan_shared_memory(Draft& draft, const PassContext& context) {
  TileRing& ring = draft.ring;
  std::vector<MemoryBuffer> needed;
  for (const SharedBuffer& buffer : draft.buffers)
    needed.push_back(buffer.first < 0
                         ? MemoryBuffer{}
                         : MemoryBuffer{buffer.bytes, buffer.first, buffer.last, buffer.alignment});
  needed.push_back({ring.stage_bytes() * ring.stages, ring.first, ring.last, ring.alignment});
  const auto memory = context.chooser.memory(needed);
  if (!memory) return memory.status();
  for (size_t i = 0; i < draft.buffers.size(); ++i) draft.buffers[i].offset = memory->offsets[i];
  ring.offset = memory->offsets.back();
  ring.barriers_at = round_up(memory->peak, 8);
  draft.costs.shared_bytes = memory->peak;

  const int64_t mbarriers = draft.mbarrier_bytes(),
                bytes = mbarriers == 0 ? memory->peak : ring.barriers_at + mbarriers;
  if (bytes > context.target.shared_bytes_per_block)
    return Status(ErrorCode::UNSUPPORTED, "a block needs " + std::to_string(bytes) +
                                              " bytes of shared memory, " + context.target.name + " has " +
                                              std::to_string(context.target.shared_bytes_per_block));
  Builder to(draft.memory_names);
  if (bytes > 0) to.let(draft.memory, call(Function::dynamic_shared, Scalar::byte, {}, {Scalar::byte}));
  for (const SharedBuffer& buffer : draft.buffers)
    to.let(buffer.symbol, address(draft.memory, buffer.offset));
  draft.kernel.shared_bytes += bytes;
  return {};
}

}  // namespace quern::ir
