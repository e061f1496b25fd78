#include "tools/plan_output.h"

#include "core/lang/attrs.h"

namespace quern {

namespace {

std::string dim_text(const Dim3& dim) {
  std::string text = std::to_string(dim.x);
  if (dim.y != 1 || dim.z != 1) text += "x" + std::to_string(dim.y);
  if (dim.z != 1) text += "x" + std::to_string(dim.z);
  return text;
}

Json dim_json(const Dim3& dim) { return {dim.x, dim.y, dim.z}; }

// Names as a reader of the graph knows them.
std::string argument_text(const Plan& plan, const LaunchArg& arg) {
  switch (arg.kind) {
    case LaunchArg::Kind::input:
      return plan.inputs[static_cast<size_t>(arg.value)].name;
    case LaunchArg::Kind::output:
      return plan.outputs[static_cast<size_t>(arg.value)].name;
    case LaunchArg::Kind::workspace:
      return "workspace+" + std::to_string(arg.value);
    case LaunchArg::Kind::integer:
      return std::to_string(arg.value);
    case LaunchArg::Kind::tensor_map:
      return "map of " + argument_text(plan, plan.tensor_maps[static_cast<size_t>(arg.value)].buffer);
  }
  return "?";
}

const char* argument_kind(LaunchArg::Kind kind) {
  switch (kind) {
    case LaunchArg::Kind::input:
      return "input";
    case LaunchArg::Kind::output:
      return "output";
    case LaunchArg::Kind::workspace:
      return "workspace";
    case LaunchArg::Kind::integer:
      return "integer";
    case LaunchArg::Kind::tensor_map:
      return "tensor_map";
  }
  return "?";
}

Json tensor_json(const TensorDesc& tensor) {
  return {{"name", tensor.name},
          {"dtype", dtype_name(tensor.dtype)},
          {"shape", tensor.shape},
          {"strides", tensor.strides},
          {"bytes", static_cast<uint64_t>(tensor.span()) * dtype_size(tensor.dtype)}};
}

void name_each(std::vector<TensorDesc>& tensors, const std::vector<std::string>& names) {
  if (names.size() != tensors.size()) return;
  for (size_t i = 0; i < names.size(); ++i) tensors[i].name = names[i];
}

}  // namespace

void name_buffers(Plan& plan, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs) {
  name_each(plan.inputs, inputs);
  name_each(plan.outputs, outputs);
}

std::string launches_text(const Plan& plan) {
  Table table({"KERNEL", ">GRID", ">BLOCK", ">CLUSTER", ">SHARED", "ARGUMENTS"});
  for (const Launch& launch : plan.launches) {
    std::string arguments;
    for (const LaunchArg& arg : launch.args)
      arguments += (arguments.empty() ? "" : ", ") + argument_text(plan, arg);
    table.add({launch.kernel, dim_text(launch.grid), dim_text(launch.block), dim_text(launch.cluster),
               human_bytes(launch.shared_bytes), arguments});
  }
  return table.text();
}

std::string tensors_text(const Plan& plan) {
  Table table({"BUFFER", "NAME", "DTYPE", "SHAPE", ">SIZE"});
  auto add = [&](const std::string& role, size_t index, const TensorDesc& tensor) {
    std::string shape = print_ints(tensor.shape);
    if (tensor.strides != dense_strides(tensor.shape)) shape += " strides" + print_ints(tensor.strides);
    table.add({role + " " + std::to_string(index), tensor.name, dtype_name(tensor.dtype), shape,
               human_bytes(static_cast<uint64_t>(tensor.span()) * dtype_size(tensor.dtype))});
  };
  for (size_t i = 0; i < plan.inputs.size(); ++i) add("input", i, plan.inputs[i]);
  for (size_t i = 0; i < plan.outputs.size(); ++i) add("output", i, plan.outputs[i]);
  return table.text();
}

Json launches_json(const Plan& plan) {
  Json launches = Json::array();
  for (const Launch& launch : plan.launches) {
    Json args = Json::array();
    for (const LaunchArg& arg : launch.args)
      args.push_back({{"kind", argument_kind(arg.kind)}, {"value", arg.value}});
    launches.push_back({{"kernel", launch.kernel},
                        {"grid", dim_json(launch.grid)},
                        {"block", dim_json(launch.block)},
                        {"cluster", dim_json(launch.cluster)},
                        {"shared_bytes", launch.shared_bytes},
                        {"overlaps", launch.overlaps},
                        {"args", args}});
  }
  return launches;
}

Json plan_json(const Plan& plan) {
  Json inputs = Json::array(), outputs = Json::array(), maps = Json::array();
  for (const TensorMap& map : plan.tensor_maps)
    maps.push_back({{"buffer", {{"kind", argument_kind(map.buffer.kind)}, {"value", map.buffer.value}}},
                    {"dtype", dtype_name(map.dtype)},
                    {"shape", map.shape},
                    {"strides", map.strides},
                    {"box", map.box},
                    {"swizzle", map.swizzle}});
  for (const TensorDesc& tensor : plan.inputs) inputs.push_back(tensor_json(tensor));
  for (const TensorDesc& tensor : plan.outputs) outputs.push_back(tensor_json(tensor));
  return {{"tier", tier_name(plan.tier)},
          {"target", plan.target},
          {"inputs", inputs},
          {"outputs", outputs},
          {"launches", launches_json(plan)},
          {"tensor_maps", maps},
          {"workspace_bytes", plan.workspace_bytes},
          {"cubin_bytes", plan.cubin.size()},
          {"certificate", plan.certificate}};
}

}  // namespace quern
