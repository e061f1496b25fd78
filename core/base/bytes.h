// Little-endian encoding to and from byte strings, for everything that is stored or sent.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace quern {

static_assert(std::endian::native == std::endian::little,
              "formats are little-endian and written as they lie");

class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void raw(std::string_view bytes) { out_.append(bytes); }
  // A u32 length, then the bytes.
  void string(std::string_view bytes) {
    put(static_cast<uint32_t>(bytes.size()));
    raw(bytes);
  }
  void reserve(size_t bytes) { out_.reserve(bytes); }
  size_t size() const { return out_.size(); }
  const std::string& view() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what ByteWriter wrote. A read past the end returns zeros and turns ok() false for good, so that a
// decoder checks once at its end. Never allocates more than the input holds.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T get() {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    T value{};
    std::string_view bytes = raw(sizeof value);
    if (ok_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view raw(size_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return {};
    }
    std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  std::string_view string() { return raw(get<uint32_t>()); }

  bool ok() const { return ok_; }
  void fail() { ok_ = false; }
  bool at_end() const { return rest_.empty(); }
  size_t remaining() const { return rest_.size(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace quern
