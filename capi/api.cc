#include "capi/api.h"

#include "core/base/dtype.h"

// The header must say what the tables say.
#define QUERN_ERROR(name, value, meaning) \
  static_assert(QUERN_##name == value && QUERN_##name == static_cast<quern_status>(quern::ErrorCode::name));
#include "core/base/errors.def"
#undef QUERN_ERROR
static_assert(QUERN_F16 == static_cast<int>(quern::DType::f16) &&
              QUERN_BF16 == static_cast<int>(quern::DType::bf16) &&
              QUERN_F32 == static_cast<int>(quern::DType::f32) &&
              QUERN_I32 == static_cast<int>(quern::DType::i32) &&
              QUERN_BOOL == static_cast<int>(quern::DType::boolean));
static_assert(QUERN_BASELINE == static_cast<int>(quern::Tier::baseline) &&
              QUERN_MODELLED == static_cast<int>(quern::Tier::modelled) &&
              QUERN_MEASURED == static_cast<int>(quern::Tier::measured));
static_assert(QUERN_ARG_INPUT == static_cast<int>(quern::LaunchArg::Kind::input) &&
              QUERN_ARG_OUTPUT == static_cast<int>(quern::LaunchArg::Kind::output) &&
              QUERN_ARG_WORKSPACE == static_cast<int>(quern::LaunchArg::Kind::workspace) &&
              QUERN_ARG_INTEGER == static_cast<int>(quern::LaunchArg::Kind::integer) &&
              QUERN_ARG_TENSOR_MAP == static_cast<int>(quern::LaunchArg::Kind::tensor_map));
static_assert(QUERN_MAX_RANK == quern::kMaxRank);
static_assert(sizeof(quern_error) == 2048 && sizeof(quern_attr) == 48 && sizeof(quern_launch_arg) == 16,
              "these never change");
static_assert(QUERN_VERSION == QUERN_PACKAGE_VERSION_NUMBER,
              "quern.h and meson.build disagree about the version");

namespace quern::api {

quern_status report(const Status& status, quern_error* error) {
  const quern_status code = static_cast<quern_status>(status.code());
  if (error && code != QUERN_OK && code != QUERN_PENDING) {
    const std::string_view text =
        status.message().empty() ? std::string_view(error_meaning(status.code())) : status.message();
    const size_t size = std::min(text.size(), sizeof error->message - 1);
    error->status = code;
    std::memcpy(error->message, text.data(), size);
    error->message[size] = 0;
  }
  return code;
}

Status require(const void* pointer, const char* name) {
  return pointer ? Status() : invalid_argument(std::string(name) + " must not be NULL");
}

Status check_struct_size(size_t size, size_t smallest, const char* name) {
  // Far above what any version will have: a size like that is an uninitialised field.
  constexpr size_t kLargest = 4096;
  if (size >= smallest && size <= kLargest) return {};
  return invalid_argument("struct_size of the " + std::string(name) + " is " + std::to_string(size) +
                          "; zero the struct and set it to its sizeof");
}

quern_tensor public_tensor(const TensorDesc& desc) {
  quern_tensor tensor{};
  tensor.name = desc.name.c_str();
  tensor.dtype = static_cast<quern_dtype>(desc.dtype);
  tensor.rank = static_cast<int32_t>(desc.shape.size());
  tensor.shape = desc.shape.data();
  tensor.strides = desc.strides.data();
  tensor.bytes = static_cast<uint64_t>(desc.span()) * dtype_size(desc.dtype);
  return tensor;
}

}  // namespace quern::api

uint32_t quern_version(void) { return QUERN_VERSION; }

const char* quern_status_name(quern_status status) {
  return quern::error_name(static_cast<quern::ErrorCode>(status));
}

const char* quern_status_meaning(quern_status status) {
  return quern::error_meaning(static_cast<quern::ErrorCode>(status));
}
