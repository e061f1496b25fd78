#include "core/base/plan.h"

#include <limits>

#include "core/base/bytes.h"

namespace quern {

namespace {

// Raise this when the layout of an encoded plan changes, and kKeyEpoch (cache/key.h) with it: old bytes are
// refused, so no key may lead to them.
constexpr uint32_t kPlanVersion = 2;
constexpr uint32_t kMaxItems =
    1 << 16;  // tensors, launches, arguments: far above what a graph of 4096 ops needs

void put_dims(ByteWriter& out, const std::vector<int64_t>& dims) {
  out.put(static_cast<uint32_t>(dims.size()));
  for (int64_t dim : dims) out.put(dim);
}

std::vector<int64_t> get_dims(ByteReader& in) {
  const uint32_t rank = in.get<uint32_t>();
  if (rank > kMaxRank) in.fail();
  std::vector<int64_t> dims;
  for (uint32_t i = 0; i < rank && in.ok(); ++i) dims.push_back(in.get<int64_t>());
  return dims;
}

void put_tensor(ByteWriter& out, const TensorDesc& tensor) {
  out.string(tensor.name);
  out.put(tensor.dtype);
  put_dims(out, tensor.shape);
  put_dims(out, tensor.strides);
}

TensorDesc get_tensor(ByteReader& in) {
  TensorDesc tensor;
  tensor.name = in.string();
  tensor.dtype = in.get<DType>();
  tensor.shape = get_dims(in);
  tensor.strides = get_dims(in);
  if (!is_valid(tensor.dtype) || tensor.shape.size() != tensor.strides.size()) in.fail();
  return tensor;
}

void put_dim3(ByteWriter& out, const Dim3& dim) {
  out.put(dim.x);
  out.put(dim.y);
  out.put(dim.z);
}

Dim3 get_dim3(ByteReader& in) {
  Dim3 dim;
  dim.x = in.get<uint32_t>();
  dim.y = in.get<uint32_t>();
  dim.z = in.get<uint32_t>();
  return dim;
}

void put_launch(ByteWriter& out, const Launch& launch) {
  out.string(launch.kernel);
  put_dim3(out, launch.grid);
  put_dim3(out, launch.block);
  put_dim3(out, launch.cluster);
  out.put(launch.shared_bytes);
  out.put(static_cast<uint32_t>(launch.args.size()));
  for (const LaunchArg& arg : launch.args) {
    out.put(arg.kind);
    out.put(arg.value);
  }
  out.put(static_cast<uint8_t>(launch.overlaps));
}

LaunchArg get_argument(ByteReader& in) {
  LaunchArg arg;
  arg.kind = in.get<LaunchArg::Kind>();
  arg.value = in.get<int64_t>();
  if (arg.kind < LaunchArg::Kind::input || arg.kind > LaunchArg::Kind::tensor_map) in.fail();
  return arg;
}

Launch get_launch(ByteReader& in) {
  Launch launch;
  launch.kernel = in.string();
  launch.grid = get_dim3(in);
  launch.block = get_dim3(in);
  launch.cluster = get_dim3(in);
  launch.shared_bytes = in.get<uint32_t>();
  const uint32_t count = in.get<uint32_t>();
  if (count > kMaxItems) in.fail();
  for (uint32_t i = 0; i < count && in.ok(); ++i) launch.args.push_back(get_argument(in));
  const uint8_t overlaps = in.get<uint8_t>();
  if (overlaps > 1) in.fail();
  launch.overlaps = overlaps == 1;
  return launch;
}

void put_tensor_map(ByteWriter& out, const TensorMap& map) {
  out.put(map.buffer.kind);
  out.put(map.buffer.value);
  out.put(map.dtype);
  put_dims(out, map.shape);
  put_dims(out, map.strides);
  put_dims(out, map.box);
  out.put(map.swizzle);
}

TensorMap get_tensor_map(ByteReader& in) {
  TensorMap map;
  map.buffer = get_argument(in);
  map.dtype = in.get<DType>();
  map.shape = get_dims(in);
  map.strides = get_dims(in);
  map.box = get_dims(in);
  map.swizzle = in.get<uint32_t>();
  if (!is_valid(map.dtype) || !check_tensor_map(map).ok()) in.fail();
  return map;
}

template <class T, class Get>
std::vector<T> get_list(ByteReader& in, Get get) {
  const uint32_t count = in.get<uint32_t>();
  if (count > kMaxItems) in.fail();
  std::vector<T> items;
  for (uint32_t i = 0; i < count && in.ok(); ++i) items.push_back(get(in));
  return items;
}

uint64_t span_bytes(const TensorDesc& tensor) {
  return static_cast<uint64_t>(tensor.span()) * dtype_size(tensor.dtype);
}

// Bytes from where an argument points to the end of its buffer; 0 if there is no such buffer.
uint64_t bytes_behind(const Plan& plan, const LaunchArg& arg) {
  const uint64_t value = static_cast<uint64_t>(arg.value);
  if (arg.kind == LaunchArg::Kind::input && value < plan.inputs.size()) return span_bytes(plan.inputs[value]);
  if (arg.kind == LaunchArg::Kind::output && value < plan.outputs.size())
    return span_bytes(plan.outputs[value]);
  if (arg.kind == LaunchArg::Kind::workspace && value < plan.workspace_bytes)
    return plan.workspace_bytes - value;
  return 0;
}

// Every argument must name a buffer that exists: what is launched from a decoded plan never points elsewhere.
bool arguments_hold(const Plan& plan) {
  for (const Launch& launch : plan.launches)
    for (const LaunchArg& arg : launch.args) {
      const uint64_t value = static_cast<uint64_t>(arg.value);
      if (arg.kind == LaunchArg::Kind::input && value >= plan.inputs.size()) return false;
      if (arg.kind == LaunchArg::Kind::output && value >= plan.outputs.size()) return false;
      if (arg.kind == LaunchArg::Kind::workspace && value >= plan.workspace_bytes) return false;
      if (arg.kind == LaunchArg::Kind::tensor_map && value >= plan.tensor_maps.size()) return false;
    }
  for (const TensorMap& map : plan.tensor_maps)
    if (span_bytes({"", map.dtype, map.shape, map.strides}) > bytes_behind(plan, map.buffer) ||
        (map.buffer.kind == LaunchArg::Kind::workspace && map.buffer.value % kTensorMapAlignment != 0))
      return false;
  return true;
}

}  // namespace

std::string waiting_fact(size_t launch) {
  return launch == 0 ? "first launch" : "launch " + std::to_string(launch);
}

const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::baseline:
      return "baseline";
    case Tier::modelled:
      return "modelled";
    case Tier::measured:
      return "measured";
  }
  return "?";
}

int64_t TensorDesc::element_count() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

int64_t TensorDesc::span() const {
  // As many bytes of any dtype can be counted. What comes out of a record may have any strides.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 16;
  int64_t last = 0;
  bool more = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    int64_t step = 0;
    more |= __builtin_mul_overflow(shape[i] - 1, strides[i], &step) ||
            __builtin_add_overflow(last, step, &last) || last >= kMost;
  }
  return more ? kMost : last + 1;
}

int64_t TensorMap::box_bytes() const {
  int64_t bytes = static_cast<int64_t>(dtype_size(dtype));
  for (int64_t extent : box) bytes *= extent;
  return bytes;
}

Status check_tensor_map(const TensorMap& map) {
  auto wrong = [](const char* what) {
    return Status(ErrorCode::INVALID_ARGUMENT, std::string("a tensor map ") + what);
  };
  const size_t rank = map.shape.size();
  const int64_t size = static_cast<int64_t>(dtype_size(map.dtype));
  if (rank == 0 || rank > kMostTensorMapDims || map.strides.size() != rank || map.box.size() != rank)
    return wrong("has 1 to 5 dimensions, with a stride and an extent of the box each");
  if (map.strides.back() != 1) return wrong("has stride 1 in its last dimension");
  for (size_t d = 0; d < rank; ++d) {
    if (map.shape[d] < 1 || map.shape[d] > int64_t{1} << 32) return wrong("has extents from 1 to 2^32");
    if (map.box[d] < 1 || map.box[d] > 256) return wrong("has a box of 1 to 256 elements a dimension");
    if (d + 1 < rank && (map.strides[d] < 1 || map.strides[d] >= (int64_t{1} << 40) / size ||
                         map.strides[d] * size % kTensorMapAlignment != 0))
      return wrong("has strides that are multiples of 16 bytes, below 2^40");
  }
  const int64_t row = map.box.back() * size;
  if (row % 16 != 0) return wrong("has a box whose rows are multiples of 16 bytes");
  if (map.swizzle != 0 && map.swizzle != 32 && map.swizzle != 64 && map.swizzle != 128)
    return wrong("has a swizzle of 0, 32, 64 or 128 bytes");
  if (map.swizzle != 0 && row > map.swizzle)
    return wrong("has a box whose rows are no longer than its swizzle");
  return {};
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i] > 0 ? shape[i] : 1;
  }
  return strides;
}

std::string encode_plan(const Plan& plan) {
  ByteWriter out;
  out.put(kPlanVersion);
  out.put(plan.tier);
  out.string(plan.target);
  out.put(static_cast<uint32_t>(plan.inputs.size()));
  for (const TensorDesc& tensor : plan.inputs) put_tensor(out, tensor);
  out.put(static_cast<uint32_t>(plan.outputs.size()));
  for (const TensorDesc& tensor : plan.outputs) put_tensor(out, tensor);
  out.put(static_cast<uint32_t>(plan.launches.size()));
  for (const Launch& launch : plan.launches) put_launch(out, launch);
  out.put(static_cast<uint32_t>(plan.tensor_maps.size()));
  for (const TensorMap& map : plan.tensor_maps) put_tensor_map(out, map);
  out.put(plan.workspace_bytes);
  out.string(plan.certificate);
  out.string(plan.cubin);
  return out.take();
}

Result<Plan> decode_plan(std::string_view bytes) {
  ByteReader in(bytes);
  const uint32_t version = in.get<uint32_t>();
  if (version != kPlanVersion)
    return Status(ErrorCode::CORRUPT, "plan format " + std::to_string(version) + " is not format " +
                                          std::to_string(kPlanVersion) + ", which this version reads");
  Plan plan;
  plan.tier = in.get<Tier>();
  plan.target = in.string();
  plan.inputs = get_list<TensorDesc>(in, get_tensor);
  plan.outputs = get_list<TensorDesc>(in, get_tensor);
  plan.launches = get_list<Launch>(in, get_launch);
  plan.tensor_maps = get_list<TensorMap>(in, get_tensor_map);
  plan.workspace_bytes = in.get<uint64_t>();
  plan.certificate = in.string();
  plan.cubin = in.string();
  if (!in.ok() || !in.at_end())
    return Status(ErrorCode::CORRUPT, "the plan is cut short or does not end where it should");
  if (plan.tier < Tier::baseline || plan.tier > Tier::measured || !arguments_hold(plan))
    return Status(
        ErrorCode::CORRUPT,
        "the plan names a tier, an input, an output, a workspace offset or a tensor map that does not "
        "exist");
  return plan;
}

}  // namespace quern
