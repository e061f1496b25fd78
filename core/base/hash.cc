#include "core/base/hash.h"

#include <sys/random.h>
#include <xxhash.h>

#include <bit>
#include <charconv>
#include <cstdio>

namespace quern {

namespace {

// Without randomness (a kernel that has just started and a full signal mask) the addresses of this process
// must do.
Hash128 make_table_key() {
  Hash128 key;
  if (getrandom(&key, sizeof key, GRND_NONBLOCK) != sizeof key)
    key = hash128(std::to_string(reinterpret_cast<uintptr_t>(&key)) +
                  std::to_string(reinterpret_cast<uintptr_t>(&make_table_key)));
  return key;
}

struct Sip {
  uint64_t a, b, c, d;

  void round() {
    a += b, c += d;
    b = std::rotl(b, 13) ^ a, d = std::rotl(d, 16) ^ c;
    a = std::rotl(a, 32);
    c += b, a += d;
    b = std::rotl(b, 17) ^ c, d = std::rotl(d, 21) ^ a;
    c = std::rotl(c, 32);
  }
  void word(uint64_t word) {
    d ^= word;
    round();
    a ^= word;
  }
};

}  // namespace

Hash128 hash128(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string to_hex(const Hash128& hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high),
                static_cast<unsigned long long>(hash.low));
  return text;
}

std::optional<Hash128> parse_hash(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  Hash128 hash;
  const char* middle = text.data() + 16;
  const auto high = std::from_chars(text.data(), middle, hash.high, 16);
  const auto low = std::from_chars(middle, middle + 16, hash.low, 16);
  if (high.ptr != middle || low.ptr != middle + 16) return std::nullopt;
  return hash;
}

}  // namespace quern

// J.-P. Aumasson, D. J. Bernstein, SipHash: a fast short-input PRF, 2012; one round a word, three at the end.
size_t std::hash<quern::Hash128>::operator()(const quern::Hash128& hash) const noexcept {
  static const quern::Hash128 key = quern::make_table_key();
  quern::Sip sip{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d, key.low ^ 0x6c7967656e657261,
                 key.high ^ 0x7465646279746573};
  sip.word(hash.low);
  sip.word(hash.high);
  sip.word(uint64_t{sizeof hash} << 56);
  sip.c ^= 0xff;
  for (int i = 0; i < 3; ++i) sip.round();
  return sip.a ^ sip.b ^ sip.c ^ sip.d;
}
