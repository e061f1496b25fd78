// Sets of values of which a maximum or a minimum was taken. In the field the maximum of a set is a random
// function of the set: associative, commutative and idempotent, and any element more or less gives another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quern {

class ChoiceSets {
 public:
  using Id = uint32_t;  // 0 names no set

  // A set of two different elements.
  Id pair(uint64_t a, uint64_t b);
  // The set with one element more; itself if the element is in it.
  Id with(Id set, uint64_t element);
  Id unite(Id a, Id b);
  // The same for equal sets, however they were made.
  uint64_t fingerprint(Id set) const { return sets_[set - 1].fingerprint; }

 private:
  // The first `count` elements of a block. Sets that grow element by element share one.
  struct Set {
    uint32_t block, count;
    uint64_t fingerprint;
  };
  // Large blocks have a hash table of positions, with open addressing; others are scanned.
  struct Block {
    size_t first;
    uint32_t used, capacity;
    size_t table;    // its first slot
    size_t mask = 0;  // slots less one; 0: no table
  };

  Block new_block(uint32_t capacity);
  void put(Block& block, uint64_t element);
  bool contains(const Set& set, uint64_t element) const;
  Id append(Set set, uint64_t element);

  std::vector<Set> sets_;
  std::vector<Block> blocks_;
  std::vector<uint64_t> elements_;
  std::vector<uint32_t> slots_;  // 1 + position in the block; 0: free
};

}  // namespace quern
