// The shape of wgmma, the tensor-core product of a warpgroup. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include <cstdint>

namespace quern {

constexpr int kWgmmaWarps = 4;                           // of a warpgroup
constexpr int64_t kWgmmaRows = 64, kWgmmaColumns = 256;  // of one instruction; columns at most

}  // namespace quern
