// What the batches of an attack found, a file each in one folder: so that any number of processes work on it,
// and what was interrupted goes on where it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "tests/hostile/isolated.h"

namespace quern {

class AttackLedger {
 public:
  // Makes the folder if there is none.
  explicit AttackLedger(std::filesystem::path folder);

  // First seeds of the batches that are done.
  std::set<uint64_t> done() const;
  // All of the batch appears at once.
  void add(uint64_t first, const Tally& tally) const;
  // Of all batches. Of findings the first lines, behind the names of their files.
  Tally total() const;

 private:
  const std::filesystem::path folder_;
};

// A table of what was run and what was wrong, for people: `seconds` and `jobs` of this run.
std::string attack_table(const Tally& tally, double seconds, size_t jobs);

}  // namespace quern
