// How errors travel: as values, with a message that says what was wrong, where, and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace quern {

enum class ErrorCode : uint32_t {
#define QUERN_ERROR(name, value, meaning) name = value,
#include "core/base/errors.def"
#undef QUERN_ERROR
};

// "INVALID_GRAPH"; "UNKNOWN" for a number that is not in errors.def.
const char* error_name(ErrorCode code);
// The meaning column of errors.def.
const char* error_meaning(ErrorCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == ErrorCode::OK; }
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The same error with `context` and ": " before its message.
  Status with_context(std::string_view context) const;

 private:
  ErrorCode code_ = ErrorCode::OK;
  std::string message_;
};

// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) {}

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }

  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Ends the program with a message: for broken invariants only, never for what a user can cause.
[[noreturn]] void fatal(const char* file, int line, std::string_view message);
inline void check(bool condition, std::string_view message, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!condition) [[unlikely]]
    fatal(file, line, message);
}

}  // namespace quern
