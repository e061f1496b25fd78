#include "core/emulator/named_barrier.h"

#include <algorithm>

#include "core/emulator/clock.h"

namespace quern::emulated {

namespace {

constexpr int kMostNamed = 15;  // number 0 is __syncthreads

}  // namespace

std::vector<int> NamedBarriers::arrive(Name name, int count, int block_threads, int thread, bool waits,
                                       std::string& violation) {
  const std::string barrier = "barrier " + std::to_string(name.second);
  if (name.second < 1 || name.second > kMostNamed || count < 1 || count % kWarpSize != 0 ||
      count > block_threads) {
    violation = barrier + " for " + std::to_string(count) + " threads: barriers are 1 to " +
                std::to_string(kMostNamed) + ", for whole warps of the block";
    return {};
  }
  Waiting& waiting = waiting_.try_emplace(name, Waiting{count, {}, {}}).first->second;
  if (waiting.count != count) {
    violation = barrier + " for " + std::to_string(count) + " threads, where others wait for " +
                std::to_string(waiting.count);
    return {};
  }
  waiting.threads.push_back(thread);
  if (waits) waiting.waiting.push_back(thread);
  if (static_cast<int>(waiting.threads.size()) < count) return {};
  std::vector<int> met = std::move(waiting.threads), woken = std::move(waiting.waiting);
  waiting_.erase(name);
  std::sort(met.begin(), met.end());
  std::sort(woken.begin(), woken.end());
  // The hardware counts warps: threads of one warp come together.
  for (size_t i = 0; i < met.size(); ++i)
    if (met[i] % block_threads % kWarpSize != static_cast<int>(i) % kWarpSize)
      violation = barrier + " of parts of warps";
  return woken;
}

}  // namespace quern::emulated
