#include "core/verify/modulus.h"

#include <cmath>
#include <cstdlib>
#include <utility>

namespace quern {

uint32_t Modulus::power(uint32_t base, uint64_t exponent) const {
  uint32_t result = reduce(1);
  for (; exponent; exponent >>= 1, base = multiply(base, base))
    if (exponent & 1) result = multiply(result, base);
  return result;
}

// The extended Euclidean algorithm.
uint32_t Modulus::inverse(uint32_t a) const {
  int64_t r = m_, next_r = a, t = 0, next_t = 1;
  while (next_r != 0) {
    const int64_t quotient = r / next_r;
    r = std::exchange(next_r, r - quotient * next_r);
    t = std::exchange(next_t, t - quotient * next_t);
  }
  return static_cast<uint32_t>(t < 0 ? t + int64_t{m_} : t);
}

uint32_t Modulus::residue(double value) const {
  const double magnitude = std::fabs(value);
  if (magnitude < 0x1p53 && magnitude == std::floor(magnitude)) {
    const uint32_t whole = reduce(static_cast<uint64_t>(magnitude));
    return value < 0 ? negate(whole) : whole;
  }
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);
  const int shift = exponent - 53;
  const uint32_t mantissa = reduce(static_cast<uint64_t>(std::ldexp(fraction, 53)));
  const uint32_t scale = power(2, static_cast<uint64_t>(std::abs(shift)));
  const uint32_t scaled = multiply(mantissa, shift < 0 ? inverse(scale) : scale);
  return value < 0 ? negate(scaled) : scaled;
}

bool is_prime(uint32_t n) {
  if (n < 2) return false;
  for (uint32_t small : {2u, 3u, 5u, 7u, 11u, 13u, 17u, 19u, 23u, 29u, 31u, 37u, 41u, 43u, 47u, 53u, 59u, 61u})
    if (n % small == 0) return n == small;
  const Modulus m(n);
  const int twos = __builtin_ctz(n - 1);
  // No composite number below 4,759,123,141 passes for all three (Jaeschke 1993).
  for (uint32_t base : {2u, 7u, 61u}) {
    uint32_t x = m.power(base, (n - 1) >> twos);
    bool passes = x == 1 || x == n - 1;
    for (int i = 1; i < twos && !passes; ++i) passes = (x = m.multiply(x, x)) == n - 1;
    if (!passes) return false;
  }
  return true;
}

FieldPrimes draw_primes(uint64_t seed) {
  constexpr uint64_t kChoices = (uint64_t{1} << 31) - kLeastPrime;
  for (uint64_t draw = mix(seed);; draw = mix(draw)) {
    const uint32_t q = static_cast<uint32_t>(kLeastPrime + draw % kChoices) | 1;
    // 2q + 1 is a multiple of 3 unless q is 2 modulo 3.
    if (q % 3 == 2 && is_prime(q) && is_prime(2 * q + 1)) return {Modulus(2 * q + 1), Modulus(q)};
  }
}

}  // namespace quern
