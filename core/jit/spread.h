// How the blocks of a launch that overlaps the one in front of it are kept from crowding on some SMs.
#pragma once

#include <cstdint>

#include "core/base/plan.h"
#include "core/jit/driver.h"

namespace quern {

// Of a kernel, how much dynamic shared memory its launches may ask for; from cuda.h (CUfunction_attribute).
inline constexpr int kMaxDynamicSharedBytes = 8;
// What a launch of clusters has among its attributes.
CuLaunchAttribute cluster_attribute(const Launch& launch);

// The multiprocessors of the current context's device.
struct Multiprocessors {
  int count = 0, shared_bytes = 0;
};
Result<Multiprocessors> multiprocessors(const Driver& driver);

// What a launch of `function` asks for as dynamic shared memory, in bytes: launch.shared_bytes, or more.
//
// A launch that overlaps the one in front of it finds SMs that are partly taken, and gets some with room for one block more
// than its share while others have one less: a kernel of two blocks an SM then takes as long as one of three. So
// large blocks ask for as much shared memory as keeps any SM from taking more than its share. Clusters do not find room
// everywhere, as their blocks are of one GPC: their share is the least with which the driver has room for all at once, if
// there is one. To ask that, it sets the function's limit of dynamic shared memory, which is for the caller to set again.
uint32_t evenly_spread_bytes(const Driver& driver, const Multiprocessors& sms, const Launch& launch,
                             void* function);

}  // namespace quern
