// For the emulator's own tests: small kernels written by hand.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "core/emulator/emulator.h"

namespace quern::emulated {

template <class T>
std::string to_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> from_bytes(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// A tensor of one dimension.
inline TensorDesc make_tensor(std::string name, DType dtype, int64_t length) {
  return {std::move(name), dtype, {length}, {1}};
}

// One launch of "kernel", whose parameters are the inputs, the outputs and, if there is one, the workspace.
inline Plan make_plan(std::vector<TensorDesc> inputs, std::vector<TensorDesc> outputs, Dim3 grid, Dim3 block,
                      uint32_t shared_bytes = 0, uint64_t workspace_bytes = 0) {
  Plan plan;
  plan.target = "sm_80";
  plan.workspace_bytes = workspace_bytes;
  Launch launch{"kernel", grid, block, {}, shared_bytes, {}};
  for (size_t i = 0; i < inputs.size(); ++i)
    launch.args.push_back({LaunchArg::Kind::input, static_cast<int64_t>(i)});
  for (size_t i = 0; i < outputs.size(); ++i)
    launch.args.push_back({LaunchArg::Kind::output, static_cast<int64_t>(i)});
  if (workspace_bytes) launch.args.push_back({LaunchArg::Kind::workspace, 0});
  plan.inputs = std::move(inputs);
  plan.outputs = std::move(outputs);
  plan.launches = {launch};
  return plan;
}

inline Result<std::vector<std::string>> run_plan(Program& program, const Plan& plan,
                                                 const std::vector<std::string>& inputs, uint64_t seed = 1) {
  std::vector<std::string_view> views(inputs.begin(), inputs.end());
  return run_plan(program, plan, std::span<const std::string_view>(views), {.seed = seed});
}

}  // namespace quern::emulated
