#include "capi/wire/pack.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "capi/wire/paths.h"
#include "core/base/bytes.h"
#include "core/base/private_file.h"

namespace quern {

namespace {

constexpr std::string_view kMagic = "QRNP";
constexpr uint32_t kVersion = 1;  // raise it when the bytes of a pack change meaning
constexpr size_t kPublicBytes = crypto_sign_PUBLICKEYBYTES, kSignatureBytes = crypto_sign_BYTES;
constexpr size_t kBodyAt = kMagic.size() + sizeof kVersion + kPublicBytes + kSignatureBytes;

const unsigned char* raw(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* raw(std::string& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

Status corrupt(const std::string& what) { return Status(ErrorCode::CORRUPT, what); }

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file.is_open() || file.bad())
    return Status(errno == ENOENT ? ErrorCode::NOT_FOUND : ErrorCode::IO, path + ": " + std::strerror(errno));
  return text;
}

bool start_sodium() { return sodium_init() >= 0; }

std::string from_hex(const std::string& digits) {
  std::string bytes(digits.size() / 2, 0);
  size_t size = 0;
  const char* end = nullptr;
  if (sodium_hex2bin(raw(bytes), bytes.size(), digits.data(), digits.size(), nullptr, &size, &end) != 0 ||
      end != digits.data() + digits.size())
    return "";
  bytes.resize(size);
  return bytes;
}

SigningKey key_of_secret(std::string secret) {
  SigningKey key{std::move(secret), std::string(kPublicBytes, 0)};
  crypto_sign_ed25519_sk_to_pk(raw(key.public_key), raw(std::string_view(key.secret)));
  return key;
}

Result<SigningKey> make_key(const std::string& path) {
  std::string secret(crypto_sign_SECRETKEYBYTES, 0), public_key(kPublicBytes, 0);
  crypto_sign_keypair(raw(public_key), raw(secret));
  const std::string folder = std::filesystem::path(path).parent_path();
  if (!folder.empty())
    if (Status status = make_dirs(folder); !status.ok()) return status;
  const int fd = open_private_file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (fd < 0) return Status(ErrorCode::IO, "cannot make the key " + path + ": " + std::strerror(errno));
  const std::string text = hex_of(secret) + "\n";
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  if (!written) return Status(ErrorCode::IO, "cannot write the key " + path);
  return key_of_secret(std::move(secret));
}

// What is signed: everything but the signature.
std::string signed_part(std::string_view head, std::string_view body) {
  std::string text(head.substr(0, kMagic.size() + sizeof kVersion + kPublicBytes));
  return text.append(body);
}

Result<Pack> read_body(std::string_view body) {
  ByteReader bytes(body);
  Pack pack;
  pack.created_ms = bytes.get<uint64_t>();
  const uint32_t count = bytes.get<uint32_t>();
  for (uint32_t i = 0; i < count && bytes.ok(); ++i) {
    wire::Import plan;
    const std::string_view entry = bytes.string();
    if (!bytes.ok()) break;
    if (Status status = wire::decode(entry, plan); !status.ok())
      return corrupt("plan " + std::to_string(i + 1) + " of the pack: " + status.message());
    pack.plans.push_back(std::move(plan));
  }
  return bytes.ok() && bytes.at_end() ? Result<Pack>(std::move(pack))
                                      : corrupt("the pack is cut short, or has bytes behind its end");
}

}  // namespace

std::string hex_of(std::string_view bytes) {
  std::string digits(bytes.size() * 2 + 1, 0);
  sodium_bin2hex(digits.data(), digits.size(), raw(bytes), bytes.size());
  digits.pop_back();
  return digits;
}

Result<SigningKey> read_or_make_key(const std::string& path) {
  if (!start_sodium()) return Status(ErrorCode::INTERNAL, "libsodium does not start");
  if (access(path.c_str(), F_OK) != 0 && errno == ENOENT)
    if (Result<SigningKey> made = make_key(path); made.ok() || access(path.c_str(), F_OK) != 0) return made;
  // There, or made by another process at this moment.
  if (Status status = check_private_file(path); !status.ok()) return status;
  Result<std::string> text = read_text(path);
  if (!text) return text.status();
  std::string secret = from_hex(text->substr(0, text->find('\n')));
  if (secret.size() != crypto_sign_SECRETKEYBYTES)
    return corrupt(path + " holds no key: 128 hexadecimal digits");
  return key_of_secret(std::move(secret));
}

Result<std::vector<std::string>> read_public_keys(const std::string& text_or_path) {
  if (!start_sodium()) return Status(ErrorCode::INTERNAL, "libsodium does not start");
  if (std::string key = from_hex(text_or_path); key.size() == kPublicBytes) return std::vector{key};
  Result<std::string> text = read_text(text_or_path);
  if (!text)
    return Status(ErrorCode::INVALID_ARGUMENT,
                  "\"" + text_or_path +
                      "\" is neither a public key (64 hexadecimal digits) nor a file of them: " +
                      text.status().message());
  std::vector<std::string> keys;
  std::istringstream lines(*text);
  for (std::string line, word; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    if (!(words >> word)) continue;
    keys.push_back(from_hex(word));
    if (keys.back().size() != kPublicBytes)
      return Status(ErrorCode::INVALID_ARGUMENT,
                    text_or_path + ": \"" + word + "\" is no public key: 64 hexadecimal digits");
  }
  return keys;
}

wire::Import import_of(wire::ShowReply shown) {
  wire::Import plan;
  plan.key = shown.row.key;
  plan.tier = shown.row.tier;
  plan.target = shown.row.target;
  plan.numerics = shown.row.numerics;
  plan.name = shown.row.name;
  plan.toolchain = std::move(shown.toolchain);
  plan.constraints = std::move(shown.constraints);
  plan.graph = std::move(shown.graph);
  plan.plan = std::move(shown.plan);
  plan.report = std::move(shown.report);
  plan.mugraph = std::move(shown.mugraph);
  plan.schedule = std::move(shown.schedule);
  plan.cuda = std::move(shown.cuda);
  plan.request = std::move(shown.request);
  return plan;
}

std::string sign_pack(const Pack& pack, const SigningKey& key) {
  ByteWriter head, body;
  head.raw(kMagic);
  head.put(kVersion);
  head.raw(key.public_key);
  body.put(pack.created_ms);
  body.put(static_cast<uint32_t>(pack.plans.size()));
  for (const wire::Import& plan : pack.plans) body.string(wire::encode(0, plan).substr(wire::kHeaderBytes));
  const std::string text = signed_part(head.view(), body.view());
  std::string signature(kSignatureBytes, 0);
  crypto_sign_detached(raw(signature), nullptr, raw(text), text.size(), raw(std::string_view(key.secret)));
  head.raw(signature);
  head.raw(body.view());
  return std::string(head.view());
}

Result<Pack> open_pack(std::string_view bytes, const std::vector<std::string>& trusted) {
  if (!start_sodium()) return Status(ErrorCode::INTERNAL, "libsodium does not start");
  ByteReader head(bytes.substr(0, kBodyAt));
  const bool magic = head.raw(kMagic.size()) == kMagic;
  const uint32_t version = head.get<uint32_t>();
  const std::string_view public_key = head.raw(kPublicBytes), signature = head.raw(kSignatureBytes);
  if (!magic || !head.ok()) return corrupt("this is no pack");
  if (version != kVersion)
    return Status(ErrorCode::UNSUPPORTED, "the pack has version " + std::to_string(version) +
                                              ", and this program reads " + std::to_string(kVersion));
  if (std::find(trusted.begin(), trusted.end(), public_key) == trusted.end())
    return Status(
        ErrorCode::PERMISSION,
        "the pack is signed by " + hex_of(public_key) +
            ", which is not trusted; if it should be, add it with --trust or to the file of trusted keys");
  const std::string text = signed_part(bytes, bytes.substr(kBodyAt));
  if (crypto_sign_verify_detached(raw(signature), raw(std::string_view(text)), text.size(),
                                  raw(public_key)) != 0)
    return corrupt("the signature of the pack does not hold: it was changed or cut short");
  return read_body(bytes.substr(kBodyAt));
}

}  // namespace quern
