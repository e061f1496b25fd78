#include "cache/key.h"

#include <cstdio>
#include <cstring>

#include "core/base/bytes.h"

namespace quern {

namespace {

// Printable ASCII as it is, the rest and the backslash as \xNN, so that equal lines mean equal bytes.
void append_escaped(std::string& out, char c) {
  if (c >= 0x20 && c < 0x7f && c != '\\') {
    out += c;
    return;
  }
  char text[5];
  std::snprintf(text, sizeof text, "\\x%02x", static_cast<unsigned char>(c));
  out += text;
}

void append_indented(std::string& out, std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    out += "  ";
    for (char c : bytes.substr(0, end)) append_escaped(out, c);
    out += '\n';
    if (end == std::string_view::npos) break;
    bytes.remove_prefix(end + 1);
  }
}

}  // namespace

// In one step: this is done for each request that comes.
KeyMaterial& KeyMaterial::add(std::string_view tag, std::span<const std::string_view> pieces) {
  size_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  check(bytes <= UINT32_MAX, "a key part has a 32-bit length");
  const size_t before = bytes_.size();
  bytes_.resize(before + 2 * sizeof(uint32_t) + tag.size() + bytes);
  char* out = bytes_.data() + before;
  const auto put_size = [&](size_t size) {
    const auto number = static_cast<uint32_t>(size);
    std::memcpy(out, &number, sizeof number);
    out += sizeof number;
  };
  put_size(tag.size());
  out += tag.copy(out, tag.size());
  put_size(bytes);
  for (const std::string_view piece : pieces) out += piece.copy(out, piece.size());
  return *this;
}

KeyMaterial plan_key(std::string_view canonical_graph, std::string_view target, uint32_t policy,
                     std::string_view toolchain, std::string_view constraints) {
  char flags[11];
  std::snprintf(flags, sizeof flags, "0x%08x", policy);
  KeyMaterial material;
  material.add("target", target)
      .add("policy", flags)
      .add("toolchain", toolchain)
      .add("graph", canonical_graph);
  if (!constraints.empty()) material.add("constraints", constraints);
  return material;
}

KeyMaterial request_key(std::string_view request, std::string_view toolchain, std::string_view constraints) {
  KeyMaterial material = request_key_head(toolchain, request.size() + constraints.size());
  add_request(material, {&request, 1}, constraints);
  return material;
}

KeyMaterial request_key_head(std::string_view toolchain, size_t more) {
  KeyMaterial material(toolchain.size() + more);
  material.add("toolchain", toolchain);
  return material;
}

void add_request(KeyMaterial& head, std::span<const std::string_view> pieces, std::string_view constraints) {
  head.add("request", pieces);
  if (!constraints.empty()) head.add("constraints", constraints);
}

Result<std::vector<KeyPart>> parse_key_material(std::string_view material) {
  ByteReader in(material);
  std::vector<KeyPart> parts;
  while (in.ok() && !in.at_end()) {
    KeyPart part;
    part.tag = in.string();
    part.bytes = in.string();
    parts.push_back(part);
  }
  if (!in.ok()) return Status(ErrorCode::CORRUPT, "the key material is cut short");
  if (parts.empty() || parts[0].tag != "epoch")
    return Status(ErrorCode::CORRUPT, "the key material does not start with its epoch");
  return parts;
}

std::string_view key_part(const std::vector<KeyPart>& parts, std::string_view tag) {
  for (const KeyPart& part : parts)
    if (part.tag == tag) return part.bytes;
  return "";
}

Result<std::string> print_key_material(std::string_view material) {
  auto parts = parse_key_material(material);
  if (!parts) return parts.status();
  std::string out;
  for (const KeyPart& part : *parts) {
    for (char c : part.tag) append_escaped(out, c);
    out += ", " + std::to_string(part.bytes.size()) + " bytes:\n";
    append_indented(out, part.bytes);
  }
  return out;
}

}  // namespace quern
