#include "capi/fork.h"

#include <pthread.h>

#include <atomic>

namespace quern {

namespace {
std::atomic<uint64_t> count{1};
}  // namespace

uint64_t fork_count() {
  static const int armed =
      pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
  (void)armed;
  return count.load(std::memory_order_relaxed);
}

}  // namespace quern
