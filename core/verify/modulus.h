// Arithmetic modulo primes below 2^32, and the pair of primes over which a trial of the verifier is made.
#pragma once

#include <cstdint>

namespace quern {

// A modulus below 2^32. A product or quotient costs two multiplications (Barrett), not a division.
class Modulus {
 public:
  explicit Modulus(uint32_t m) : m_(m), inverse_(~uint64_t{0} / m) {}
  uint32_t value() const { return m_; }

  uint32_t reduce(uint64_t x) const {
    const uint64_t quotient = static_cast<uint64_t>((static_cast<unsigned __int128>(x) * inverse_) >> 64);
    const uint64_t rest = x - quotient * m_;  // below 2m: the quotient is at most one too small
    return static_cast<uint32_t>(rest < m_ ? rest : rest - m_);
  }
  uint32_t add(uint32_t a, uint32_t b) const {
    const uint64_t sum = uint64_t{a} + b;
    return static_cast<uint32_t>(sum < m_ ? sum : sum - m_);
  }
  uint32_t negate(uint32_t a) const { return a ? m_ - a : 0; }
  uint32_t multiply(uint32_t a, uint32_t b) const { return reduce(uint64_t{a} * b); }
  uint32_t power(uint32_t base, uint64_t exponent) const;
  // Of a residue that is not 0; the modulus must be prime.
  uint32_t inverse(uint32_t a) const;
  // Any finite double, exactly: mantissa times a power of two.
  uint32_t residue(double value) const;

 private:
  uint32_t m_;
  uint64_t inverse_;
};

// By Miller and Rabin with bases that leave no doubt below 2^32.
bool is_prime(uint32_t n);

// Primes p = 2q + 1, with q drawn at random between kLeastPrime and 2^31.
inline constexpr uint32_t kLeastPrime = 1'900'000'000;
struct FieldPrimes {
  Modulus p, q;
};
FieldPrimes draw_primes(uint64_t seed);

// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
inline uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace quern
