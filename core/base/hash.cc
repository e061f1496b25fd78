#include "core/base/hash.h"

#include <xxhash.h>

#include <charconv>
#include <cstdio>

namespace quern {

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
