// The mbarriers of a block and TMA that signals them, with the rules of the PTX ISA: a copy may
// be seen only by those who have waited for the phase in which its bytes were announced, and by those whom
// these tell.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/emulator/async_copy.h"
#include "core/emulator/clock.h"
#include "core/emulator/memory.h"

namespace quern::emulated {

// Functions that return text return the rule that was broken, empty if none.
class Mbarriers {
 public:
  Mbarriers(Memory& memory, Clock& clock) : memory_(memory), clock_(clock) {}

  void begin_cluster();
  std::string init(uintptr_t barrier, int arrivals, int thread);
  void fence_init(int thread);
  std::string arrive(uintptr_t barrier, int64_t bytes, int thread);
  std::string copy(const Copy& copy, uintptr_t barrier, int thread);

  // Whether the phase of this parity has ended; if so, what it tells becomes the thread's. `violation` is set
  // when the barrier may not be waited at.
  bool try_wait(uintptr_t barrier, unsigned parity, int thread, std::string& violation);
  // A copy arrives, any of those that are under way.
  bool any_under_way() const { return !under_way_.empty(); }
  std::string land_one(std::mt19937_64& random);
  std::string end_cluster() const;
  // "phase 3 lacks 1 arrival and 128 bytes".
  std::string describe(uintptr_t barrier) const;

 private:
  struct Counted {
    Copy copy;
    uint32_t phase;
    uintptr_t barrier;
  };
  struct Barrier {
    int number = 0, maker = 0, arrivals = 1, missing = 1;
    int64_t bytes = 0;            // announced and not landed
    uint32_t phase = 0;           // that has not ended
    bool shown = false;           // to TMA
    Knowledge coming{}, told{};   // of the phase that has not ended, and of those that have
    std::vector<Counted> landed;  // that nobody has waited for
  };
  Barrier* find(uintptr_t address, int thread, std::string& violation);
  std::string end_phase(uintptr_t address, Barrier& barrier);

  Memory& memory_;
  Clock& clock_;
  std::map<uintptr_t, Barrier> barriers_;
  std::vector<Counted> under_way_;
};

}  // namespace quern::emulated
