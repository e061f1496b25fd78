#include "core/verify/choice_sets.h"

#include <algorithm>
#include <bit>

#include "core/verify/modulus.h"

namespace quern {

namespace {
constexpr uint32_t kScanned = 32;  // elements of the largest block without a table
}  // namespace

ChoiceSets::Block ChoiceSets::new_block(uint32_t capacity) {
  Block block{elements_.size(), 0, capacity, slots_.size()};
  elements_.resize(elements_.size() + capacity);
  if (capacity > kScanned) {
    block.mask = std::bit_ceil(size_t{2} * capacity) - 1;
    slots_.resize(slots_.size() + block.mask + 1);
  }
  return block;
}

void ChoiceSets::put(Block& block, uint64_t element) {
  elements_[block.first + block.used++] = element;
  if (block.mask == 0) return;
  size_t slot = mix(element) & block.mask;
  while (slots_[block.table + slot] != 0) slot = (slot + 1) & block.mask;
  slots_[block.table + slot] = block.used;
}

bool ChoiceSets::contains(const Set& set, uint64_t element) const {
  const Block& block = blocks_[set.block];
  const uint64_t* first = &elements_[block.first];
  if (block.mask == 0) return std::find(first, first + set.count, element) != first + set.count;
  size_t slot = mix(element) & block.mask;
  for (; const uint32_t position = slots_[block.table + slot]; slot = (slot + 1) & block.mask)
    if (first[position - 1] == element) return position <= set.count;
  return false;
}

// The element is not in the set.
ChoiceSets::Id ChoiceSets::append(Set set, uint64_t element) {
  if (blocks_[set.block].used != set.count || blocks_[set.block].used == blocks_[set.block].capacity) {
    const size_t from = blocks_[set.block].first;
    Block block = new_block(2 * set.count);
    for (uint32_t i = 0; i < set.count; ++i) put(block, elements_[from + i]);
    set.block = static_cast<uint32_t>(blocks_.size());
    blocks_.push_back(block);
  }
  put(blocks_[set.block], element);
  sets_.push_back({set.block, set.count + 1, set.fingerprint + mix(element)});
  return static_cast<Id>(sets_.size());
}

ChoiceSets::Id ChoiceSets::pair(uint64_t a, uint64_t b) {
  blocks_.push_back(new_block(2));
  put(blocks_.back(), a);
  return append({static_cast<uint32_t>(blocks_.size() - 1), 1, mix(a)}, b);
}

ChoiceSets::Id ChoiceSets::with(Id set, uint64_t element) {
  return contains(sets_[set - 1], element) ? set : append(sets_[set - 1], element);
}

ChoiceSets::Id ChoiceSets::unite(Id a, Id b) {
  if (a == b) return a;
  if (sets_[a - 1].count < sets_[b - 1].count) std::swap(a, b);
  const Set smaller = sets_[b - 1];
  for (uint32_t i = 0; i < smaller.count; ++i) a = with(a, elements_[blocks_[smaller.block].first + i]);
  return a;
}

}  // namespace quern
