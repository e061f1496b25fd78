// A conversion through shared memory: every thread stores what it holds, a barrier, every thread loads what
// it needs.
#pragma once

#include "core/schedule/layout.h"
#include "core/schedule/shared_access.h"

namespace quern {

struct SharedExchange {
  Layout memory;  // tensor -> offset, in elements; the tile takes 2^output_bits of them
  SharedAccess store, load;
  bool across_warps;  // the barrier is for the block; else one for the warp is enough

  int instructions() const { return store.instructions + load.instructions; }  // a warp
  int wavefronts() const { return store.wavefronts + load.wavefronts; }
};

// The fastest exchange between register layouts over the same tensor (inputs register, lane, warp; as many
// lanes and warps on both sides), of all widths up to `max_vector_bytes` a lane on either side. With equally
// wide vectors it never conflicts; unequal ones are taken only if they are faster in all.
SharedExchange plan_exchange(const Layout& source, const Layout& destination, int element_bytes,
                             int max_vector_bytes);
// Whether some warp needs what another warp stores.
bool crosses_warps(const Layout& source, const Layout& destination);

}  // namespace quern
