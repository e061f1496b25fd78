#include "core/jit/tensor_maps.h"

#include <bit>

namespace quern {

namespace {

// From cuda.h: unsigned integers of 1, 2 and 4 bytes, because elements are only moved.
int data_type(DType dtype) { return std::countr_zero(dtype_size(dtype)); }
int swizzle_mode(uint32_t bytes) { return bytes == 0 ? 0 : std::countr_zero(bytes / 16); }
constexpr int kPromoteTo256Bytes = 3;  // what L2 fetches at a time: neighbours are wanted by other blocks

}  // namespace

TensorMaps::TensorMaps(std::shared_ptr<const Driver> driver, const std::vector<TensorMap>& maps)
    : driver_(std::move(driver)), maps_(maps), kept_(maps.size()) {}

Status TensorMaps::encode(size_t index, uint64_t address, CuTensorMap& out) {
  const std::lock_guard lock(mutex_);
  Kept& kept = kept_[index];
  for (size_t i = 0; i < kKept; ++i)
    if (kept.addresses[i] == address && address != 0) {
      out = kept.encoded[i];
      return {};
    }
  const TensorMap& map = maps_[index];
  if (Status status = check_tensor_map(map); !status.ok()) return status;
  const uint32_t rank = static_cast<uint32_t>(map.shape.size());
  uint64_t extents[kMostTensorMapDims], strides[kMostTensorMapDims];
  uint32_t box[kMostTensorMapDims];
  const uint32_t steps[kMostTensorMapDims] = {1, 1, 1, 1, 1};
  for (uint32_t i = 0; i < rank; ++i) {  // the driver counts from the innermost
    const size_t d = rank - 1 - i;
    extents[i] = static_cast<uint64_t>(map.shape[d]);
    box[i] = static_cast<uint32_t>(map.box[d]);
    if (i > 0) strides[i - 1] = static_cast<uint64_t>(map.strides[d]) * dtype_size(map.dtype);
  }
  const Status status =
      driver_->check(driver_->api().encode_tensor_map(
                         &out, data_type(map.dtype), rank, reinterpret_cast<void*>(address), extents, strides,
                         box, steps, 0, swizzle_mode(map.swizzle), kPromoteTo256Bytes, 0),
                     "encoding tensor map " + std::to_string(index));
  if (!status.ok()) return status;
  kept.addresses[kept.next] = address;
  kept.encoded[kept.next] = out;
  kept.next = (kept.next + 1) % kKept;
  return {};
}

}  // namespace quern
