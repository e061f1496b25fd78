#include "core/schedule/cache_model.h"

#include <algorithm>

#include "core/mugraph/dependence.h"
#include "core/schedule/block_work.h"

namespace quern {

namespace {

bool is_in(const std::vector<int32_t>& tensors, int32_t tensor) {
  return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
}

}  // namespace

CacheModel::CacheModel(const Target& target) : bytes_(target.l2_mib * (1 << 20)) {}

double CacheModel::read(int64_t buffer, double bytes) {
  const auto last = last_.find(buffer);
  const double away = last == last_.end() ? bytes : bytes * missing(passed_ + bytes - last->second);
  touch(buffer, bytes);
  return away;
}

double CacheModel::write(int64_t buffer, double bytes, bool output) {
  touch(buffer, bytes);
  return output ? bytes : bytes * missing(bytes);
}

// The share of a buffer that is gone when so many bytes passed since it came. The cache is not used up to the
// last line, and what is in it does not leave in order.
double CacheModel::missing(double passed) const {
  return std::clamp((passed - 0.4 * bytes_) / (0.6 * bytes_), 0.0, 1.0);
}

void CacheModel::touch(int64_t buffer, double bytes) {
  passed_ += bytes;
  last_[buffer] = passed_ - bytes;
}

std::map<int32_t, double> shares_of_dram(const MuGraph& mugraph, const MuKernel& kernel,
                                         const Target& target) {
  CacheModel cache(target);
  auto bytes = [&](int32_t tensor) { return bytes_of(mugraph.tensors[static_cast<size_t>(tensor)].type); };
  for (const MuKernel& each : mugraph.kernels) {
    if (&each == &kernel) break;
    if (is_view(mugraph, each)) continue;
    const KernelAccesses accesses = accesses_of(mugraph, each);
    for (int32_t tensor : accesses.reads) cache.read(tensor, bytes(tensor));
    for (int32_t tensor : accesses.writes) cache.write(tensor, bytes(tensor), false);
  }
  // Of the largest part of what is read in pieces.
  auto read = [&](int32_t tensor) {
    double most = 0, share = 0;
    for (int32_t source : memory_of(mugraph, tensor)) {
      const double all = bytes(source), away = cache.read(source, all);
      if (all <= most) continue;
      most = all;
      share = is_in(mugraph.inputs, source) ? 1 : away / all;
    }
    return share;
  };
  // Views of it may be the output.
  auto is_output = [&](int32_t tensor) {
    return std::any_of(mugraph.outputs.begin(), mugraph.outputs.end(),
                       [&](int32_t output) { return is_in(memory_of(mugraph, output), tensor); });
  };
  auto write = [&](int32_t tensor) {
    const double all = bytes(tensor), away = cache.write(tensor, all, is_output(tensor));
    return all > 0 ? away / all : 0;
  };
  std::map<int32_t, double> out;
  for (const BlockOp& op : kernel.ops)
    if (op.has_access() && !out.contains(op.tensor()))
      out[op.tensor()] = op.is_store() ? write(op.tensor()) : read(op.tensor());
  return out;
}

}  // namespace quern
