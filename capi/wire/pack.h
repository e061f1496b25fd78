// A pack: plans in one file, signed with ed25519, to carry them from one cache to another.
//
//   pack  = "QRNP" version:u32 public_key:32 bytes signature:64 bytes body
//   body  = created_ms:u64 count:u32 entry*
//   entry = length:u32 and as many bytes: the payload of an Import message (capi/wire/PROTOCOL.md)
//
// Numbers are little-endian. The signature is of everything else, in this order.
#pragma once

#include <string>
#include <vector>

#include "capi/wire/messages.h"

namespace quern {

struct Pack {
  uint64_t created_ms = 0;
  std::vector<wire::Import> plans;
};

// 64 bytes of libsodium's, and the 32 of them that others may know.
struct SigningKey {
  std::string secret, public_key;
};

// The key in `path`, which must be private to this user; where there is none, a new one is made and written,
// with mode 0600. IO, PERMISSION, CORRUPT.
Result<SigningKey> read_or_make_key(const std::string& path);
// A public key from 64 hexadecimal digits, or from a file with such lines. INVALID_ARGUMENT.
Result<std::vector<std::string>> read_public_keys(const std::string& text_or_path);
std::string hex_of(std::string_view bytes);

// What is shown of a plan, as it is imported elsewhere; without measured times.
wire::Import import_of(wire::ShowReply shown);
std::string sign_pack(const Pack& pack, const SigningKey& key);
// Nothing of a pack is looked at before its signature holds. PERMISSION when it is signed by none of
// `trusted`, CORRUPT when it was changed, cut short, or is none.
Result<Pack> open_pack(std::string_view bytes, const std::vector<std::string>& trusted);

}  // namespace quern
