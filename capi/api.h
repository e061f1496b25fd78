// What the C functions share: turning a Status into a quern_error, checking what callers hand in, and filling
// structs that grow with versions.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "capi/quern.h"
#include "core/base/plan.h"
#include "core/base/status.h"

namespace quern::api {

// Writes a failure (not PENDING, which is none) into `error`, if there is one, and returns its code.
quern_status report(const Status& status, quern_error* error);

// Runs the body of a C function: a callable that returns Status. No exception leaves the library.
template <class Body>
quern_status guarded(quern_error* error, Body body) {
  try {
    return report(body(), error);
  } catch (const std::bad_alloc&) {
    return report(Status(ErrorCode::OUT_OF_MEMORY, ""), error);
  } catch (const std::exception& problem) {
    return report(Status(ErrorCode::INTERNAL, ""), error);
  }
}

inline Status invalid_argument(std::string message) {
  return Status(ErrorCode::INVALID_ARGUMENT, std::move(message));
}
// INVALID_ARGUMENT "NAME must not be NULL".
Status require(const void* pointer, const char* name);

// Where the caller's struct_size says that its struct ends, not before the fields that every version has.
Status check_struct_size(size_t size, size_t smallest, const char* name);

// The options as this version knows them. A newer caller may hand in more fields, as long as they are 0.
template <class Options>
Status read_options(const Options* given, Options& options) {
  options = Options{};
  if (!given) return {};
  if (Status status = check_struct_size(given->struct_size, sizeof(size_t), "options"); !status.ok())
    return status;
  std::memcpy(&options, given, std::min(given->struct_size, sizeof options));
  const char* bytes = reinterpret_cast<const char*>(given);
  if (std::any_of(bytes + std::min(given->struct_size, sizeof options), bytes + given->struct_size,
                  [](char c) { return c != 0; }))
    return invalid_argument("the options use a field that libquern of this version does not have");
  return {};
}

// Copies as much of `filled` as the caller's struct has room for.
template <class Struct>
Status write_struct(Struct filled, Struct* result, const char* name) {
  if (Status status = require(result, name); !status.ok()) return status;
  if (Status status = check_struct_size(result->struct_size, sizeof(size_t) + 1, name); !status.ok())
    return status;
  filled.struct_size = result->struct_size;
  std::memcpy(result, &filled, std::min(result->struct_size, sizeof filled));
  return {};
}

// The pointers go to `desc`.
quern_tensor public_tensor(const TensorDesc& desc);

}  // namespace quern::api
