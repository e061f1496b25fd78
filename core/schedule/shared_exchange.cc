#include "core/schedule/shared_exchange.h"

#include <algorithm>
#include <bit>

#include "core/base/status.h"
#include "core/schedule/swizzle.h"

namespace quern {

namespace {

using Vectors = std::vector<uint64_t>;

bool contains(const Vectors& vectors, uint64_t v) {
  return std::find(vectors.begin(), vectors.end(), v) != vectors.end();
}

Vectors pick(const Vectors& columns, const std::vector<int>& bits) {
  Vectors result;
  for (int bit : bits) result.push_back(columns[bit]);
  return result;
}

// What one side brings along, whatever the width of its vectors.
struct Side {
  Side(const Layout& layout, AccessKind kind) {
    const UsedBits used = used_bits(layout, kind);
    registers = pick(layout.columns(kRegister), used.registers);
    lanes = layout.columns(kLane);
    for (size_t i = 0; i < lanes.size(); ++i)  // idle lanes touch nothing of their own
      if (std::find(used.lanes.begin(), used.lanes.end(), static_cast<int>(i)) == used.lanes.end())
        lanes[i] = 0;
    warps = pick(layout.columns(kWarp), used.warps);
  }

  AccessColumns columns(const Vectors& vector, int element_bytes) const {
    AccessColumns result{vector, {}, {}};
    for (uint64_t v : registers)
      if (!contains(vector, v)) result.others.push_back(v);
    for (const Vectors* part : {&lanes, &warps})
      for (uint64_t v : *part)
        if (v != 0) result.others.push_back(v);
    const size_t together = together_lane_bits(static_cast<int>(vector.size()), element_bytes);
    result.together.assign(lanes.begin(), lanes.begin() + std::min(together, lanes.size()));
    return result;
  }

  Vectors registers, lanes, warps;
};

// Bits along a vector that both sides can use, then what the wide side adds: best what the narrow side's
// lanes go along, for then they fill the banks that the wide vectors take.
std::optional<Vectors> choose_vector(const Side& wide, const Side& narrow, size_t wide_bits,
                                     size_t narrow_bits, int element_bytes) {
  Vectors vector;
  for (uint64_t v : wide.registers)
    if (vector.size() < narrow_bits && contains(narrow.registers, v)) vector.push_back(v);
  if (vector.size() < narrow_bits) return std::nullopt;
  const Vectors together = narrow.columns(vector, element_bytes).together;
  for (bool preferred : {true, false})
    for (uint64_t v : wide.registers)
      if (vector.size() < wide_bits && !contains(vector, v) && contains(together, v) == preferred)
        vector.push_back(v);
  if (vector.size() < wide_bits) return std::nullopt;
  return vector;
}

class ExchangeSearch {
 public:
  ExchangeSearch(const Layout& source, const Layout& destination, int element_bytes, int max_vector_bytes)
      : source_(source),
        destination_(destination),
        element_bytes_(element_bytes),
        max_bits_(std::countr_zero(static_cast<unsigned>(max_vector_bytes / element_bytes))),
        from_(source, AccessKind::store),
        to_(destination, AccessKind::load) {}

  void try_vectors() {
    for (int store = max_bits_; store >= 0; --store)
      for (int load = max_bits_; load >= 0; --load) {
        const bool store_is_wide = store >= load;
        const Side& wide = store_is_wide ? from_ : to_;
        const Side& narrow = store_is_wide ? to_ : from_;
        const size_t wide_bits = std::max(store, load), narrow_bits = std::min(store, load);
        std::optional<Vectors> vector = choose_vector(wide, narrow, wide_bits, narrow_bits, element_bytes_);
        if (!vector) continue;
        const Vectors narrow_vector(vector->begin(), vector->begin() + narrow_bits);
        keep_if_better(wide.columns(*vector, element_bytes_), narrow.columns(narrow_vector, element_bytes_),
                       store, load);
      }
  }

  const std::optional<SharedExchange>& best() const { return best_; }

 private:
  void keep_if_better(const AccessColumns& wide, const AccessColumns& narrow, int store_bits, int load_bits) {
    std::optional<Layout> memory = swizzled_memory(source_.outputs(), wide, narrow, element_bytes_);
    if (!memory) return;
    auto store = shared_access(source_, *memory, element_bytes_, AccessKind::store, store_bits);
    auto load = shared_access(destination_, *memory, element_bytes_, AccessKind::load, load_bits);
    if (!store || !load) return;
    SharedExchange found{std::move(*memory), std::move(*store), std::move(*load),
                         crosses_warps(source_, destination_)};
    // An instruction costs its issue besides its wavefronts.
    auto cost = [](const SharedExchange& e) { return e.wavefronts() + e.instructions(); };
    if (!best_ || cost(found) < cost(*best_)) best_ = std::move(found);
  }

  const Layout& source_;
  const Layout& destination_;
  int element_bytes_, max_bits_;
  Side from_, to_;
  std::optional<SharedExchange> best_;
};

}  // namespace

SharedExchange plan_exchange(const Layout& source, const Layout& destination, int element_bytes,
                             int max_vector_bytes) {
  check(max_vector_bytes >= element_bytes && max_vector_bytes <= 16 &&
            std::has_single_bit(static_cast<unsigned>(max_vector_bytes)),
        "a shared-memory access moves at least an element and at most 16 bytes a lane");
  ExchangeSearch search(source, destination, element_bytes, max_vector_bytes);
  search.try_vectors();
  check(search.best().has_value(), "single elements can always be exchanged");
  return *search.best();
}

bool crosses_warps(const Layout& source, const Layout& destination) {
  // Of copies only one is stored, perhaps by another warp than the one that wants it.
  const UsedBits stored = used_bits(source, AccessKind::store);
  const Vectors from = source.columns(kWarp), to = destination.columns(kWarp);
  if (stored.warps.size() != from.size()) return true;
  F2Span own(pick(source.columns(kRegister), stored.registers));
  own.add_all(pick(source.columns(kLane), stored.lanes));
  for (std::string_view input : {kRegister, kLane})
    for (uint64_t v : destination.columns(input))
      if (!own.contains(v)) return true;
  for (size_t i = 0; i < from.size(); ++i)
    if (!own.contains(from[i] ^ to[i])) return true;
  return false;
}

}  // namespace quern
