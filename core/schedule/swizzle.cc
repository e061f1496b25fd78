#include "core/schedule/swizzle.h"

#include <algorithm>
#include <initializer_list>

#include "core/base/status.h"
#include "core/schedule/shared_access.h"

namespace quern {

namespace {

using Vectors = std::vector<uint64_t>;

constexpr int kBankBits = 5;

Vectors joined(std::initializer_list<Vectors> parts) {
  Vectors result;
  for (const Vectors& part : parts) result.insert(result.end(), part.begin(), part.end());
  return result;
}

// Whether the members of `vector` are independent, of the span of `others` as well.
bool stand_apart(const Vectors& vector, const Vectors& others) {
  return f2_rank(joined({others, vector})) == f2_rank(others) + static_cast<int>(vector.size());
}

// Members of `candidates`, in order, that are independent of `given` and of each other.
Vectors extension(const Vectors& given, const Vectors& candidates) {
  F2Span span;
  // Only independent vectors count against the span's limit.
  for (uint64_t v : given)
    if (!span.contains(v)) span.add(v);
  Vectors result;
  for (uint64_t v : candidates)
    if (!span.contains(v)) {
      span.add(v);
      result.push_back(v);
    }
  return result;
}

// Segments inside `room` (a basis): nothing of `within_word`, nothing of `first`, and of `second` as little
// as their number permits.
Vectors segments(const Vectors& room, const Vectors& within_word, const Vectors& first, const Vectors& second,
                 int wanted) {
  const Vectors x = joined({within_word, first}), y = joined({within_word, second});
  const Vectors common = f2_intersection(x, y);
  const Vectors only_x = extension(common, x), only_y = extension(common, y);
  Vectors result = extension(joined({x, y}), room);
  for (size_t i = 0; i < std::min(only_x.size(), only_y.size()); ++i) result.push_back(only_x[i] ^ only_y[i]);
  // The wide side stays free of conflicts: what is still wanted comes out of what only the narrow side
  // touches.
  for (size_t i = only_x.size(); i < only_y.size(); ++i) result.push_back(only_y[i]);
  check(static_cast<int>(result.size()) >= wanted, "there are as many segments as the banks leave");
  result.resize(std::max(wanted, 0));
  return result;
}

}  // namespace

std::optional<Layout> swizzled_memory(const std::vector<LayoutDim>& tensor, const AccessColumns& wide,
                                      const AccessColumns& narrow, int element_bytes) {
  int bits = 0;
  for (const LayoutDim& dim : tensor) bits += dim.bits;
  const size_t narrow_bits = narrow.vector.size(), wide_bits = wide.vector.size();
  check(
      narrow_bits <= wide_bits && std::equal(narrow.vector.begin(), narrow.vector.end(), wide.vector.begin()),
      "the narrow vector is a part of the wide one");
  // Beyond the narrow vector, the wide one goes on with bits that the narrow side addresses.
  const Vectors more(wide.vector.begin() + narrow_bits, wide.vector.end());
  if (!stand_apart(wide.vector, wide.others)) return std::nullopt;
  if (!stand_apart(narrow.vector, joined({narrow.others, wide.others, more}))) return std::nullopt;

  // A basis of the tensor whose part after the wide vector holds all other bits of the wide side and,
  // together with `more`, those of the narrow side: so no address moves within a vector.
  const Vectors units = f2_identity(bits).columns;
  const Vectors room = extension(wide.vector, joined({wide.others, narrow.others, units}));
  F2Span basis(joined({wide.vector, room}));
  auto in_room = [&](uint64_t v) {
    const uint64_t made_of = *basis.express(v) >> wide_bits;
    uint64_t part = 0;
    for (size_t i = 0; i < room.size(); ++i)
      if (made_of >> i & 1) part ^= room[i];
    return part == v;
  };
  for (uint64_t v : wide.others) check(in_room(v), "the wide side's addresses are multiples of its vector");

  const int word_bits = word_element_bits(element_bytes);
  Vectors within_word;  // beyond the wide vector
  if (word_bits > static_cast<int>(wide_bits)) {
    within_word = extension({}, joined({wide.together, narrow.together, room}));
    std::erase_if(within_word, [&](uint64_t v) { return !in_room(v); });
    within_word.resize(std::min<size_t>(within_word.size(), word_bits - wide_bits));
  }
  const int in_words = std::max<int>(word_bits, static_cast<int>(wide_bits));
  const Vectors first_word(wide.vector.begin(), wide.vector.begin() + std::min<size_t>(wide_bits, word_bits));
  const Vectors touched_by_narrow = joined({narrow.vector, narrow.together, first_word, within_word});
  const Vectors second = f2_intersection(touched_by_narrow, room);
  const int bank_bits = kBankBits + word_bits - in_words;  // that the wide vector leaves free
  const int free_bits = static_cast<int>(room.size() - within_word.size());
  const Vectors high = segments(room, within_word, wide.together, second, std::max(0, free_bits - bank_bits));
  const Vectors banks = extension(joined({within_word, high}), joined({wide.together, second, room}));

  const F2Matrix placed{bits, joined({wide.vector, within_word, banks, high})};
  const std::optional<F2Matrix> matrix = f2_solve(placed, f2_identity(bits));
  check(matrix.has_value(), "every element has a place");
  return Layout(tensor, {{std::string(kOffset), bits}}, *matrix);
}

}  // namespace quern
