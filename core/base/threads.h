// Work on several threads.
#pragma once

#include <functional>

namespace quern {

// Runs `work` on this thread and on others, `threads` in all or as many as the system gives. False when one
// of them has run out of memory; the others come to their end all the same.
bool run_on_threads(int threads, const std::function<void()>& work);

// Runs f(i) for all i below `count`, each once. Of what has run out of memory nothing more is to be expected.
bool run_for_each(size_t count, int threads, const std::function<void(size_t)>& f);

}  // namespace quern
