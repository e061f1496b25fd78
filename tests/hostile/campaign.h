// The attack on programs: random graphs of the hostile kind, the best-ranked programs of their searches and
// their baselines, run in the emulator on friendly and on hostile inputs, each element compared with the
// reference by the rule of acceptance (core/verify/reference.h). tests/hostile runs a bounded part of it,
// tools/bench/attack as much as one likes.
#pragma once

#include <chrono>

#include "tests/hostile/case.h"
#include "tests/hostile/isolated.h"

namespace quern {

struct CampaignOptions {
  std::vector<std::string> targets = {"sm_80", "sm_90a"};
  size_t best = 3;    // programs of a graph for a target, as ranked
  size_t others = 1;  // and programs from anywhere in the ranking, with TMA or wgmma if there are any
  bool baseline = true;
  std::chrono::milliseconds search_limit{1500};
  size_t compilers = 0;  // at a time; 0: as many as there are processors
  size_t batch = 4;  // graphs of a process, whose programs share compilations
};

// "random", then those of core/verify/hostile.h.
std::vector<std::string> input_classes();

// The graphs of seeds first .. first + count - 1. Counts are "graphs", "programs", "runs on CLASS", "wrong on
// CLASS", "refused: WHY"; causes of findings are "wrong", "abort" (also a crash or a hang), "rule" (of the
// GPU, broken by a program), "compile" and "search" (it found its own program wrong).
Tally attack_graphs(uint64_t first, size_t count, const CampaignOptions& options);

// The same for cases; findings name the case by its first comment.
Tally attack_cases(const std::vector<HostileCase>& cases, const CampaignOptions& options);

}  // namespace quern
