// XXH3-128: the hash of keys, requests and records. Fast, not cryptographic: whoever trusts it compares what
// was hashed.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quern {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
};

Hash128 hash128(std::string_view bytes);
// 32 lower-case hexadecimal digits, the high half first.
std::string to_hex(const Hash128& hash);
// Nothing unless `text` is exactly 32 hexadecimal digits.
std::optional<Hash128> parse_hash(std::string_view text);

}  // namespace quern

// For tables in memory: SipHash-1-3 with a key of this process, because a client may choose its hashes so
// that all of them would fall into one bucket.
template <>
struct std::hash<quern::Hash128> {
  size_t operator()(const quern::Hash128& hash) const noexcept;
};
