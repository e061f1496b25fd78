// Key material: what a key is the hash of, as an ordered list of tagged, length-prefixed parts that can be
// printed and diffed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/hash.h"
#include "core/base/status.h"

namespace quern {

// The first part of every key material. Raise this when an equal graph, target, policy and toolchain may give
// a different plan than before for a reason that no other part shows: a fixed miscompilation, another launch
// ABI, another canonical form. All older keys then miss; nothing is deleted, eviction takes it in time.
inline constexpr std::string_view kKeyEpoch = "quern-35";

struct KeyPart {
  std::string_view tag, bytes;
  bool operator==(const KeyPart&) const = default;
};

// The bytes that are hashed. Two materials are equal exactly when their lists of parts are: no part can run
// into the next.
class KeyMaterial {
 public:
  // With room for parts of so many bytes.
  explicit KeyMaterial(size_t bytes = 0) {
    if (bytes > 0) bytes_.reserve(bytes + 128);
    add("epoch", kKeyEpoch);
  }
  KeyMaterial& add(std::string_view tag, std::string_view bytes) { return add(tag, {&bytes, 1}); }
  // The same of bytes that lie in pieces.
  KeyMaterial& add(std::string_view tag, std::span<const std::string_view> pieces);

  // Drops all but the first `bytes` bytes, which must be whole parts.
  void cut(size_t bytes) { bytes_.resize(bytes); }

  const std::string& bytes() const { return bytes_; }
  Hash128 key() const { return hash128(bytes_); }

 private:
  std::string bytes_;
};

// The key of a plan: the canonical graph text, the target, the numerics policy (bit 0: tf32 allowed), the
// toolchain fingerprint, and what the caller allows the search, which is no part when it is empty.
KeyMaterial plan_key(std::string_view canonical_graph, std::string_view target, uint32_t policy,
                     std::string_view toolchain, std::string_view constraints = {});
// The key of a request in the front index: the bytes as the client sent them. The toolchain stands beside
// them because the same request means another plan after the toolchain has changed.
KeyMaterial request_key(std::string_view request, std::string_view toolchain,
                        std::string_view constraints = {});
// The same in two steps: what the requests of a toolchain begin with, and the rest, which lies in pieces.
KeyMaterial request_key_head(std::string_view toolchain, size_t more = 0);
void add_request(KeyMaterial& head, std::span<const std::string_view> pieces, std::string_view constraints);

// The parts, as views into `material`; CORRUPT when it is no key material.
Result<std::vector<KeyPart>> parse_key_material(std::string_view material);
// The bytes of the part with this tag; empty when there is none.
std::string_view key_part(const std::vector<KeyPart>& parts, std::string_view tag);
// For people and for diff: a line "tag, N bytes:" for each part, then its bytes as indented lines, what
// cannot be printed as \xNN.
Result<std::string> print_key_material(std::string_view material);

}  // namespace quern
