#include "tools/trial.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/codegen/baseline.h"
#include "core/emulator/emulator.h"
#include "core/jit/device.h"
#include "core/jit/launcher.h"
#include "core/verify/hostile.h"
#include "core/verify/sampled_runs.h"

namespace quern {

namespace {

constexpr uint8_t kPoison = 0xff;  // NaN for floats: an element that no kernel writes shows

uint64_t bytes_of(const TensorDesc& desc) {
  return static_cast<uint64_t>(desc.span()) * dtype_size(desc.dtype);
}

// Device memory for every tensor, uploaded or poisoned.
struct DeviceBuffers {
  std::vector<DeviceMemory> memory;
  std::vector<uint64_t> addresses;

  Status add(const Device& device, uint64_t bytes, const std::string* contents) {
    Result<DeviceMemory> buffer = device.allocate(bytes);
    if (!buffer) return buffer.status();
    Status status =
        contents ? buffer->upload(contents->data(), contents->size()) : buffer->fill(kPoison, nullptr);
    addresses.push_back(buffer->address());
    memory.push_back(std::move(*buffer));
    return status;
  }
};

Result<std::vector<std::string>> run_on_gpu(const Plan& plan, const std::vector<std::string>& inputs) {
  Result<std::shared_ptr<const Driver>> driver = Driver::open();
  if (!driver) return driver.status();
  Result<std::unique_ptr<Device>> device = Device::open(*driver);
  if (!device) return device.status();
  DeviceBuffers in, out, workspace;
  for (const std::string& input : inputs)
    if (Status status = in.add(**device, input.size(), &input); !status.ok()) return status;
  for (const TensorDesc& desc : plan.outputs)
    if (Status status = out.add(**device, bytes_of(desc), nullptr); !status.ok()) return status;
  if (Status status = workspace.add(**device, plan.workspace_bytes, nullptr); !status.ok()) return status;

  Launcher launcher(*driver, std::make_shared<const Plan>(plan));
  if (Status status = launcher.launch({in.addresses, out.addresses, workspace.addresses[0]}, nullptr);
      !status.ok())
    return status;
  std::vector<std::string> outputs;
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    std::string bytes(bytes_of(plan.outputs[i]), '\0');
    // The copy waits for the default stream, and reports what went wrong on it.
    if (Status status = out.memory[i].download(bytes.data(), bytes.size()); !status.ok()) return status;
    outputs.push_back(std::move(bytes));
  }
  return outputs;
}

}  // namespace

Result<std::vector<std::string>> input_classes(const std::string& asked) {
  std::vector<std::string> names = {kRandomInputs};
  for (const HostileClass& cls : hostile_classes()) names.push_back(cls.name);
  if (asked == "all") return names;
  if (std::find(names.begin(), names.end(), asked) != names.end()) return std::vector<std::string>{asked};
  std::string known;
  for (const std::string& name : names) known += name + ", ";
  return Status(ErrorCode::INVALID_ARGUMENT,
                "no inputs are called \"" + asked + "\": there are " + known + "all");
}

std::vector<std::string> make_inputs(const Graph& graph, const std::string& input_class, uint64_t seed) {
  if (const HostileClass* cls = find_hostile_class(input_class)) return hostile_inputs(graph, *cls, seed);
  return random_inputs(graph, seed * 1000);
}

Result<Runner> emulator_runner(const Graph& graph, const Target& target, uint64_t seed) {
  Result<Emitted> emitted = emit_baseline(graph, target);
  if (!emitted) return emitted.status();
  Result<emulated::Program> compiled =
      emulated::compile_program(emulated::make_source(emitted->kernels, emitted->plan));
  if (!compiled) return compiled.status();
  auto program = std::make_shared<emulated::Program>(std::move(*compiled));
  return Runner([program, plan = std::move(emitted->plan), seed](const std::vector<std::string>& inputs) {
    const std::vector<std::string_view> views(inputs.begin(), inputs.end());
    return emulated::run_plan(*program, plan, views, {seed});
  });
}

Runner gpu_runner(Plan plan) {
  return
      [plan = std::move(plan)](const std::vector<std::string>& inputs) { return run_on_gpu(plan, inputs); };
}

std::vector<OutputCheck> check_outputs(const Graph& graph, const std::vector<std::string>& inputs,
                                       const std::vector<std::string>& outputs, bool tf32) {
  const std::vector<TensorDesc> input_descs = graph.input_descs(), output_descs = graph.output_descs();
  std::vector<RealTensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back(read_buffer(input_descs[i], inputs[i].data()));
  ExpectedOutputs expected(graph, std::move(values), tf32);
  std::vector<OutputCheck> checks;
  for (size_t i = 0; i < outputs.size(); ++i)
    checks.push_back({output_descs[i],
                      expected.compare(i, output_descs[i], read_buffer(output_descs[i], outputs[i].data()))});
  return checks;
}

}  // namespace quern
