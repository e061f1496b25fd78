// The instructions of wgmma as text: each names up to 128 registers one by one, so they are written by this
// program, those that a kernel uses (WgmmaShape in device/wgmma.cuh).
#pragma once

#include <string>

#include "core/base/dtype.h"

namespace quern {

struct WgmmaShape {
  DType dtype = DType::f16;  // f16 or bf16
  int columns = 8;           // 8, 16, 24 ... 256
  auto operator<=>(const WgmmaShape&) const = default;
};
inline constexpr int kMostWgmmaColumns = 256;

std::string wgmma_text(const WgmmaShape& shape);

}  // namespace quern
