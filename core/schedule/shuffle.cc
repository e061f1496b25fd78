#include "core/schedule/shuffle.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/base/status.h"

namespace quern {

namespace {

// The search looks at no more than this many combinations for one lane bit, and of those at this many in all.
constexpr size_t kMaxCopies = 32;
constexpr int kMaxSteps = 20000;

// Where a destination's elements come from: for each bit of (register, lane, warp) the point (register, lane)
// of the source that it adds. The source's lane bits stand above its register bits.
class TransferSearch {
 public:
  TransferSearch(const Layout& source, const Layout& destination)
      : registers_(source.input_bits(kRegister)), lanes_(source.input_bits(kLane)) {
    F2Matrix warp_part{source.output_bits(), source.columns(kRegister)};
    register_span_ = F2Span(warp_part.columns);
    for (uint64_t column : source.columns(kLane)) warp_part.columns.push_back(column);
    span_ = F2Span(warp_part.columns);
    for (uint64_t copy : f2_kernel(warp_part)) {
      if (copies_.size() * 2 > kMaxCopies) break;
      const size_t size = copies_.size();
      for (size_t i = 0; i < size; ++i) copies_.push_back(copies_[i] ^ copy);
    }
    found_ = choose_registers(destination) && choose_warps(source, destination) && choose_lanes(destination);
  }

  bool found() const { return found_; }
  uint64_t register_part(uint64_t point) const { return point & ((uint64_t{1} << registers_) - 1); }
  uint64_t lane_part(uint64_t point) const { return point >> registers_; }

  std::vector<uint64_t> registers;  // source point of each destination register bit
  std::vector<uint64_t> warps;      // what each warp bit adds to the same warp's point
  // For each lane bit, the source point that it adds in a round together with `receive`, the destination
  // register bits that it flips so that no source lane has two words to offer.
  std::vector<uint64_t> lanes;
  std::vector<uint64_t> receive;

 private:
  std::optional<uint64_t> express(uint64_t element) const {
    if (auto point = register_span_.express(element)) return point;
    return span_.express(element);
  }

  bool choose_registers(const Layout& destination) {
    for (uint64_t column : destination.columns(kRegister)) {
      std::optional<uint64_t> point = express(column);
      if (!point) return false;
      registers.push_back(*point);
    }
    return true;
  }

  bool choose_warps(const Layout& source, const Layout& destination) {
    const std::vector<uint64_t> from = source.columns(kWarp), to = destination.columns(kWarp);
    for (size_t i = 0; i < from.size(); ++i) {
      std::optional<uint64_t> point = express(from[i] ^ to[i]);
      if (!point) return false;
      warps.push_back(*point);
    }
    return true;
  }

  bool choose_lanes(const Layout& destination) {
    for (uint64_t column : destination.columns(kLane)) {
      std::optional<uint64_t> point = span_.express(column);
      if (!point) return false;
      lane_points_.push_back(*point);
    }
    return choose_lane(0);
  }

  struct Choice {
    uint64_t point, receive;
    int cost;
  };

  std::vector<Choice> choices(int lane) const {
    std::vector<Choice> result;
    const uint64_t own = uint64_t{1} << lane;
    for (uint64_t receive = 0; receive >> registers.size() == 0; ++receive) {
      uint64_t point = lane_points_[lane];
      for (uint64_t bits = receive; bits != 0; bits &= bits - 1) point ^= registers[std::countr_zero(bits)];
      for (uint64_t copy : copies_) {
        const uint64_t p = point ^ copy;
        // No selection is best, then no movement between lanes.
        const int cost = 4 * (register_part(p) != 0) + 4 * (receive != 0) + (lane_part(p) != own ? 2 : 0) +
                         (std::popcount(receive) > 1 ? 1 : 0);
        result.push_back({p, receive, cost});
      }
    }
    std::stable_sort(result.begin(), result.end(),
                     [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
    return result;
  }

  // Two lanes that read from the same lane must read the same word: whatever combination of lane bits leaves
  // the source lane where it is must leave the source word, too.
  bool fits(uint64_t point) const {
    std::vector<uint64_t> lane_parts;
    for (uint64_t earlier : lanes) lane_parts.push_back(lane_part(earlier));
    std::optional<uint64_t> same = F2Span(lane_parts).express(lane_part(point));
    if (!same) return true;
    for (uint64_t bits = *same; bits != 0; bits &= bits - 1) point ^= lanes[std::countr_zero(bits)];
    return point == 0;
  }

  bool choose_lane(int lane) {
    if (lane == lanes_) return true;
    for (const Choice& choice : choices(lane)) {
      if (++steps_ > kMaxSteps) return false;
      if (!fits(choice.point)) continue;
      lanes.push_back(choice.point);
      receive.push_back(choice.receive);
      if (choose_lane(lane + 1)) return true;
      lanes.pop_back();
      receive.pop_back();
    }
    return false;
  }

  int registers_, lanes_;
  F2Span register_span_, span_;
  std::vector<uint64_t> copies_ = {0};  // points that hold the same element as point 0
  std::vector<uint64_t> lane_points_;
  int steps_ = 0;
  bool found_ = false;
};

// What the sender must offer, as a function of its own lane: the word of whoever reads from it.
F2Matrix offered_word(const TransferSearch& transfer, int lanes, int word_bits) {
  F2Span sources;
  for (uint64_t point : transfer.lanes) sources.add(transfer.lane_part(point));
  for (int lane = 0; lane < lanes; ++lane) sources.add(uint64_t{1} << lane);
  F2Matrix offered{word_bits, {}};
  for (int lane = 0; lane < lanes; ++lane) {
    // Sums of lane bits that nobody reads from (numbers from `lanes` on) offer word 0.
    uint64_t word = 0;
    for (uint64_t bits = *sources.express(uint64_t{1} << lane); bits != 0; bits &= bits - 1)
      if (std::countr_zero(bits) < lanes)
        word ^= transfer.register_part(transfer.lanes[std::countr_zero(bits)]);
    offered.columns.push_back(word);
  }
  return offered;
}

ShufflePlan plan_from(const TransferSearch& transfer, const Layout& source, const Layout& destination) {
  const int lanes = source.input_bits(kLane);
  ShufflePlan plan;
  const F2Matrix offered = offered_word(transfer, lanes, source.input_bits(kRegister));
  plan.send = offered;
  plan.lane.rows = lanes;
  for (uint64_t point : transfer.lanes) plan.lane.columns.push_back(transfer.lane_part(point));
  plan.receive = {destination.input_bits(kRegister), transfer.receive};
  for (uint64_t point : transfer.warps) {
    const uint64_t from = transfer.lane_part(point);
    plan.send.columns.push_back(transfer.register_part(point) ^ offered.apply(from));
    plan.lane.columns.push_back(from);
    plan.receive.columns.push_back(0);
  }
  bool stays = true;
  for (size_t i = 0; i < plan.lane.columns.size(); ++i)
    stays = stays && plan.lane.columns[i] == (i < static_cast<size_t>(lanes) ? uint64_t{1} << i : 0);
  for (uint64_t word = 0; word >> transfer.registers.size() == 0; ++word) {
    uint64_t point = 0;
    for (uint64_t bits = word; bits != 0; bits &= bits - 1)
      point ^= transfer.registers[std::countr_zero(bits)];
    const uint64_t from = transfer.lane_part(point);
    plan.rounds.push_back(
        {transfer.register_part(point) ^ offered.apply(from), from, word, stays && from == 0});
  }
  return plan;
}

// The layout without its low `bits` register bits, of which nothing else may make use.
Layout of_words(const Layout& layout, int bits) {
  std::vector<int> kept(layout.input_bits(kRegister) - bits);
  std::iota(kept.begin(), kept.end(), bits);
  return layout.with_input_bits(kRegister, kept);
}

}  // namespace

int ShufflePlan::shuffles() const {
  return static_cast<int>(
      std::count_if(rounds.begin(), rounds.end(), [](const ShuffleRound& r) { return !r.local; }));
}

int ShufflePlan::selects() const {
  const int choices = (1 << f2_rank(send.columns)) - 1 + (1 << f2_rank(receive.columns)) - 1;
  return choices * static_cast<int>(rounds.size());
}

std::optional<ShufflePlan> plan_shuffle(const Layout& source, const Layout& destination, int word_bits) {
  check(source.outputs() == destination.outputs(), "a conversion is between layouts of one tensor");
  check(source.input_bits(kLane) == destination.input_bits(kLane) &&
            source.input_bits(kWarp) == destination.input_bits(kWarp),
        "a conversion is between layouts of the same threads");
  const std::vector<uint64_t> from = source.columns(kRegister), to = destination.columns(kRegister);
  int same = 0;
  while (same < word_bits && same < static_cast<int>(std::min(from.size(), to.size())) &&
         from[same] == to[same])
    ++same;
  for (; same >= 0; --same) {
    const Layout source_words = of_words(source, same), destination_words = of_words(destination, same);
    TransferSearch transfer(source_words, destination_words);
    if (!transfer.found()) continue;
    ShufflePlan plan = plan_from(transfer, source_words, destination_words);
    plan.word_bits = same;
    return plan;
  }
  return std::nullopt;
}

}  // namespace quern
