// Conversions that stay inside a warp: shuffles, in as many rounds as a thread has words to receive.
//
// In a round every lane offers one of its words, and reads the word that one lane offers. Which word, which
// lane and which register the result goes to are linear in the bits of lane and warp, up to a constant of the
// round. Words are 2^word_bits neighbouring registers (of at most 4 bytes): the low register bits, which keep
// their place.
#pragma once

#include <optional>
#include <vector>

#include "core/schedule/layout.h"

namespace quern {

struct ShuffleRound {
  uint64_t send;     // word offered, to be XORed with ShufflePlan::send of the sender's (lane, warp)
  uint64_t lane;     // lane read from, to be XORed with ShufflePlan::lane
  uint64_t receive;  // word written, to be XORed with ShufflePlan::receive
  bool local;        // every lane reads from itself: a move, no shuffle
};

struct ShufflePlan {
  int word_bits = 0;
  F2Matrix send;     // (lane bits, warp bits) -> bits of the source's word number
  F2Matrix lane;     // (lane bits, warp bits) -> lane bits
  F2Matrix receive;  // (lane bits, warp bits) -> bits of the destination's word number
  std::vector<ShuffleRound> rounds;

  int shuffles() const;
  // Selections by lane or warp that the emitter needs because a word's number is not the same for all
  // threads: a choice out of 2^r words takes 2^r - 1.
  int selects() const;
  // Every round is a move of the same words in all threads.
  bool is_register_permutation() const { return shuffles() == 0 && selects() == 0; }
};

// The plan from `source` to `destination`, register layouts over the same outputs (in the same order) with
// the same lanes and warps; inputs are (register, lane, warp). The destination's register bits are
// independent. `word_bits` is the largest word tried. Nothing if elements must cross warps, or if a lane
// would have to offer several words in one round.
std::optional<ShufflePlan> plan_shuffle(const Layout& source, const Layout& destination, int word_bits);

}  // namespace quern
