#include "core/base/threads.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace quern {

bool run_on_threads(int threads, const std::function<void()>& work) {
  std::atomic<bool> enough_memory{true};
  auto guarded = [&] {
    try {
      work();
    } catch (const std::bad_alloc&) {
      enough_memory = false;
    }
  };
  std::vector<std::thread> others;
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back(guarded);
  } catch (const std::system_error&) {  // no more threads: these will do
  } catch (const std::bad_alloc&) {
  }
  guarded();
  for (std::thread& thread : others) thread.join();
  return enough_memory;
}

bool run_for_each(size_t count, int threads, const std::function<void(size_t)>& f) {
  std::atomic<size_t> next{0};
  return run_on_threads(static_cast<int>(std::min<size_t>(static_cast<size_t>(threads), count)), [&] {
    for (size_t i; (i = next++) < count;) f(i);
  });
}

}  // namespace quern
