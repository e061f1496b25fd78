#include "core/codegen/mugraph_places.h"

#include "core/codegen/storage.h"
#include "core/mugraph/dependence.h"
#include "core/mugraph/tensor_view.h"

namespace quern {

Result<MuGraphPlaces> place_tensors(const MuGraph& mugraph, const Plan& plan,
                                    const std::vector<TensorLife>& lives, const std::vector<int>& launches) {
  MuGraphPlaces out;
  const size_t count = mugraph.tensors.size();
  if (mugraph.inputs.size() != plan.inputs.size() || mugraph.outputs.size() != plan.outputs.size())
    return Status(ErrorCode::INVALID_ARGUMENT, "the muGraph has other inputs or outputs than the graph");
  for (size_t t = 0; t < count; ++t) {
    TensorPlace place;
    place.name = "t" + std::to_string(t);
    place.dtype = mugraph.tensors[t].type.dtype;
    place.shape = mugraph.tensors[t].type.shape;
    place.strides = dense_strides(place.shape);
    out.tensors.push_back(std::move(place));
  }
  std::vector<bool> given(count, false);
  for (size_t i = 0; i < mugraph.inputs.size(); ++i) {
    const size_t t = static_cast<size_t>(mugraph.inputs[i]);
    if (given[t] || out.tensors[t].shape != plan.inputs[i].shape ||
        out.tensors[t].dtype != plan.inputs[i].dtype)
      return Status(ErrorCode::INVALID_ARGUMENT, "an input of the muGraph is not that of the graph");
    if (mugraph.tensors[t].dense && plan.inputs[i].strides != out.tensors[t].strides)
      return Status(ErrorCode::INVALID_ARGUMENT,
                    "input " + mugraph.tensors[t].name + " is not dense, as the muGraph wants it");
    given[t] = true;
    out.tensors[t].arg = {LaunchArg::Kind::input, static_cast<int64_t>(i)};
    out.tensors[t].strides = plan.inputs[i].strides;
  }
  for (size_t i = 0; i < mugraph.outputs.size(); ++i) {
    const size_t t = static_cast<size_t>(mugraph.outputs[i]);
    const LaunchArg arg{LaunchArg::Kind::output, static_cast<int64_t>(i)};
    if (out.tensors[t].shape != plan.outputs[i].shape || out.tensors[t].dtype != plan.outputs[i].dtype)
      return Status(ErrorCode::INVALID_ARGUMENT, "an output of the muGraph is not that of the graph");
    if (given[t]) {
      out.copies.emplace_back(t, arg);
      continue;
    }
    given[t] = true;
    out.tensors[t].arg = arg;
  }
  const std::vector<int32_t> stored = stored_as_outputs(mugraph);
  for (size_t t = 0; t < count; ++t)
    if (stored[t] >= 0) {
      given[t] = true;
      out.tensors[t].arg = out.tensors[static_cast<size_t>(stored[t])].arg;
    }
  std::vector<MemoryBuffer> planned;
  std::vector<size_t> owners;
  for (size_t t = 0; t < count; ++t)
    if (!given[t] && !lives[t].inner) {
      const TensorType& type = mugraph.tensors[t].type;
      auto launch = [&](int step) { return step < 0 ? step : launches[static_cast<size_t>(step)]; };
      planned.push_back({type.element_count() * int64_t(dtype_size(type.dtype)), launch(lives[t].first),
                         launch(lives[t].last), kWorkspaceAlignment});
      owners.push_back(t);
    }
  const MemoryPlan memory = plan_memory(planned);
  out.workspace = memory.peak;
  for (size_t i = 0; i < owners.size(); ++i)
    out.tensors[owners[i]].arg = {LaunchArg::Kind::workspace, memory.offsets[i]};
  auto lies = [&](int32_t tensor) -> const TensorPlace& { return out.tensors[static_cast<size_t>(tensor)]; };
  for (size_t t = 0; t < count; ++t) out.read.push_back(read_place(mugraph, static_cast<int32_t>(t), lies));
  for (size_t t = 0; t < count; ++t) out.read[t].memory = memory_of(mugraph, static_cast<int32_t>(t));
  return out;
}

}  // namespace quern
