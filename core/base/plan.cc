#include "core/base/plan.h"

#include "core/base/bytes.h"

namespace quern {

namespace {

// Raise this when the layout of an encoded plan changes; old bytes are then refused, and the cache treats
// them as a miss.
constexpr uint32_t kPlanVersion = 1;
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
  for (uint32_t i = 0; i < count && in.ok(); ++i) {
    LaunchArg arg;
    arg.kind = in.get<LaunchArg::Kind>();
    arg.value = in.get<int64_t>();
    if (arg.kind < LaunchArg::Kind::input || arg.kind > LaunchArg::Kind::integer) in.fail();
    launch.args.push_back(arg);
  }
  return launch;
}

template <class T, class Get>
std::vector<T> get_list(ByteReader& in, Get get) {
  const uint32_t count = in.get<uint32_t>();
  if (count > kMaxItems) in.fail();
  std::vector<T> items;
  for (uint32_t i = 0; i < count && in.ok(); ++i) items.push_back(get(in));
  return items;
}

// Every argument must name a buffer that exists: what is launched from a decoded plan never points elsewhere.
bool arguments_hold(const Plan& plan) {
  for (const Launch& launch : plan.launches)
    for (const LaunchArg& arg : launch.args) {
      const uint64_t value = static_cast<uint64_t>(arg.value);
      if (arg.kind == LaunchArg::Kind::input && value >= plan.inputs.size()) return false;
      if (arg.kind == LaunchArg::Kind::output && value >= plan.outputs.size()) return false;
      if (arg.kind == LaunchArg::Kind::workspace && value >= plan.workspace_bytes) return false;
    }
  return true;
}

}  // namespace

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
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    last += (shape[i] - 1) * strides[i];
  }
  return last + 1;
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
  plan.workspace_bytes = in.get<uint64_t>();
  plan.certificate = in.string();
  plan.cubin = in.string();
  if (!in.ok() || !in.at_end())
    return Status(ErrorCode::CORRUPT, "the plan is cut short or does not end where it should");
  if (plan.tier < Tier::baseline || plan.tier > Tier::measured || !arguments_hold(plan))
    return Status(ErrorCode::CORRUPT,
                  "the plan names a tier, an input, an output or a workspace offset that does not exist");
  return plan;
}

}  // namespace quern
