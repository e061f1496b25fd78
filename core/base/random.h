// Random numbers that are the same everywhere, unlike the distributions of the standard library.
#pragma once

#include <cstdint>

namespace quern {

// The finaliser of splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014):
// a bijection whose every output bit depends on every input bit.
inline uint64_t scramble(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() { return scramble(state_ += 0x9e3779b97f4a7c15); }
  // In [0, n), n > 0; as good as uniform for the small n that tests draw.
  uint64_t below(uint64_t n) { return bits() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  // In [-1, 1).
  double symmetric() { return 2 * (static_cast<double>(bits() >> 11) * 0x1p-53) - 1; }

 private:
  uint64_t state_;
};

}  // namespace quern
