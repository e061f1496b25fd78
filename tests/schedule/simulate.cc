#include "tests/schedule/simulate.h"

#include <algorithm>
#include <iterator>

#include "tests/support/test.h"

namespace quern {

namespace {

// One group of lanes served at once: each bank delivers its distinct words one a cycle.
int64_t cycles(const std::vector<uint64_t>& byte_addresses, int bytes_each) {
  std::vector<uint64_t> words;
  for (uint64_t address : byte_addresses)
    for (uint64_t word = address / 4; word <= (address + bytes_each - 1) / 4; ++word) words.push_back(word);
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  int64_t words_of_bank[32] = {};
  for (uint64_t word : words) ++words_of_bank[word % 32];
  return *std::max_element(std::begin(words_of_bank), std::end(words_of_bank));
}

// A vector access: 4 bytes a lane serve 32 lanes at once, 8 bytes 16, 16 bytes 8.
int64_t vector_cycles(const std::vector<std::optional<uint64_t>>& lane_addresses, int bytes_each) {
  const size_t group = bytes_each <= 4 ? 32 : bytes_each == 8 ? 16 : 8;
  int64_t total = 0;
  for (size_t first = 0; first < lane_addresses.size(); first += group) {
    std::vector<uint64_t> addresses;
    for (size_t lane = first; lane < std::min(first + group, lane_addresses.size()); ++lane)
      if (lane_addresses[lane]) addresses.push_back(*lane_addresses[lane]);
    total += cycles(addresses, bytes_each);
  }
  return total;
}

uint64_t offset_of(const SharedAccess& access, uint64_t instruction, uint64_t lane, uint64_t warp) {
  const int lane_shift = access.address.input_shift(kLane), warp_shift = access.address.input_shift(kWarp);
  return access.address.apply(instruction | lane << lane_shift | warp << warp_shift);
}

// The register of element `element` of instruction `instruction`.
int register_of(const SharedAccess& access, int instruction, int element) {
  int result = 0;
  for (size_t i = 0; i < access.element_bits.size(); ++i)
    result |= (element >> i & 1) << access.element_bits[i];
  for (size_t i = 0; i < access.instruction_bits.size(); ++i)
    result |= (instruction >> i & 1) << access.instruction_bits[i];
  return result;
}

template <class Visit>
Traffic each_vector(const SharedAccess& access, const RegisterFile& registers, int element_bytes,
                    Visit visit) {
  Traffic traffic;
  for (size_t warp = 0; warp < registers.size(); ++warp) {
    if ((warp & access.idle_warps) != 0) continue;
    for (int n = 0; n < access.instructions; ++n) {
      std::vector<std::optional<uint64_t>> addresses(registers[warp].size());
      for (size_t lane = 0; lane < registers[warp].size(); ++lane) {
        if ((lane & access.idle_lanes) != 0) continue;
        const uint64_t offset = offset_of(access, n, lane, warp);
        assert_int_equal(offset % (uint64_t{1} << access.vector_bits), 0);
        addresses[lane] = offset * element_bytes;
        for (int e = 0; e < 1 << access.vector_bits; ++e)
          visit(warp, lane, register_of(access, n, e), offset + e);
      }
      traffic.wavefronts += vector_cycles(addresses, element_bytes << access.vector_bits);
      ++traffic.instructions;
    }
    ++traffic.warps;
  }
  return traffic;
}

}  // namespace

SharedAccess best_access(const Layout& registers, const Layout& memory, int element_bytes, AccessKind kind) {
  std::optional<SharedAccess> best;
  for (int bits = 0; element_bytes << bits <= 16; ++bits) {
    const auto other = shared_access(registers, memory, element_bytes, kind, bits);
    auto cost = [](const SharedAccess& access) { return std::pair(access.wavefronts, access.instructions); };
    if (other && (!best || cost(*other) < cost(*best))) best = other;
  }
  return best.value();
}

RegisterFile empty_registers(const Layout& layout) {
  const std::vector<int64_t> registers(size_t{1} << layout.input_bits(kRegister), kNothing);
  return RegisterFile(size_t{1} << layout.input_bits(kWarp),
                      std::vector<std::vector<int64_t>>(size_t{1} << layout.input_bits(kLane), registers));
}

RegisterFile fill(const Layout& layout) {
  RegisterFile result = empty_registers(layout);
  for (uint64_t w = 0; w < result.size(); ++w)
    for (uint64_t l = 0; l < result[w].size(); ++l)
      for (uint64_t r = 0; r < result[w][l].size(); ++r)
        result[w][l][r] = static_cast<int64_t>(
            layout.apply(r | l << layout.input_shift(kLane) | w << layout.input_shift(kWarp)));
  return result;
}

void run_shuffle(const ShufflePlan& plan, const std::vector<int>& filled, const RegisterFile& from,
                 RegisterFile& to) {
  for (uint64_t warp = 0; warp < from.size(); ++warp)
    for (const ShuffleRound& round : plan.rounds) {
      const uint64_t lanes = from[warp].size(), words = uint64_t{1} << plan.word_bits;
      auto thread = [&](uint64_t lane) { return lane | warp * lanes; };
      // First all lanes offer a word, then all lanes read one.
      std::vector<uint64_t> offered(lanes);
      for (uint64_t lane = 0; lane < lanes; ++lane)
        offered[lane] = round.send ^ plan.send.apply(thread(lane));
      for (uint64_t lane = 0; lane < lanes; ++lane) {
        const uint64_t source = round.lane ^ plan.lane.apply(thread(lane));
        const uint64_t word = round.receive ^ plan.receive.apply(thread(lane));
        if (round.local) assert_int_equal(source, lane);
        for (uint64_t e = 0; e < words; ++e)
          to[warp][lane].at(filled.at(word * words + e)) =
              from[warp].at(source).at(offered[source] * words + e);
      }
    }
}

Traffic run_store(const SharedAccess& access, const RegisterFile& from, int element_bytes,
                  std::vector<int64_t>& memory) {
  return each_vector(access, from, element_bytes, [&](size_t warp, size_t lane, int r, uint64_t offset) {
    assert_int_equal(memory.at(offset), kNothing);
    memory[offset] = from[warp][lane].at(r);
  });
}

Traffic run_load(const SharedAccess& access, const std::vector<int64_t>& memory, int element_bytes,
                 RegisterFile& to) {
  return each_vector(access, to, element_bytes, [&](size_t warp, size_t lane, int r, uint64_t offset) {
    to[warp][lane].at(r) = memory.at(offset);
  });
}

void run_copies(const std::vector<int>& copy_of, RegisterFile& registers) {
  for (auto& warp : registers)
    for (auto& lane : warp)
      for (size_t r = 0; r < lane.size(); ++r) lane[r] = lane[copy_of.at(r)];
}

}  // namespace quern
