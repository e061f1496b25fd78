// The attack on parsers and everything behind them: mutants of valid graph, muGraph and schedule texts, by
// bytes, tokens and lines. Whatever a text says, the answer is a Status or a result, never an abort, and what
// is accepted prints as a text that reads back as the same.
#pragma once

#include "tests/hostile/isolated.h"

namespace quern {

// They belong together.
struct Texts {
  std::string graph, mugraph, schedule, target;
};

// Texts of searched programs of a random graph of the hostile kind; empty if the search finds none.
std::vector<Texts> searched_texts(uint64_t seed);

// One to four changes to one of the three.
Texts mutate(const Texts& texts, uint64_t seed);

// Mutants of the seeds first .. first + count - 1, of the texts in turn. Counts are "texts", "graphs
// accepted", "muGraphs accepted", "schedules accepted", "muGraphs verified as the graph", "programs emitted";
// causes of findings "abort" and "text" (it reads back as another one).
Tally attack_texts(const std::vector<Texts>& corpus, uint64_t first, size_t count);

}  // namespace quern
