#include "core/emulator/emulator.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "core/base/grid.h"
#include "core/base/target.h"
#include "core/emulator/block.h"
#include "core/emulator/buffer.h"

namespace quern::emulated {

namespace {

constexpr size_t kTensorAlignment = 16, kWorkspaceAlignment = 256, kSharedAlignment = 1024;
constexpr uint32_t kStaticSharedLimit = 48 * 1024;

Status invalid(std::string text) { return Status(ErrorCode::INVALID_ARGUMENT, std::move(text)); }

size_t span_bytes(const TensorDesc& tensor) { return tensor.span() * dtype_size(tensor.dtype); }

// One run: the buffers of the plan and what is known about their bytes.
class Run {
 public:
  Run(Program& program, const Plan& plan, const EmulatorOptions& options)
      : program_(program), plan_(plan), memory_(clock_), random_(options.seed) {}

  Status make_buffers(std::span<const std::string_view> inputs);
  Status launch(const Launch& launch);
  Status bind_tensor_maps();
  Result<std::vector<std::string>> take_outputs();

 private:
  Status check_launch(const Launch& launch) const;
  Result<uintptr_t> address_of(const LaunchArg& arg) const;
  Result<std::vector<unsigned long long>> make_arguments(const Launch& launch) const;
  Status check_output(size_t index) const;

  Program& program_;
  const Plan& plan_;
  Clock clock_;
  Memory memory_;
  FiberStacks stacks_;
  std::mt19937_64 random_;
  std::vector<GuardedBuffer> inputs_, outputs_, workspace_;
  std::vector<BoundTensorMap> tensor_maps_;
};

Status Run::make_buffers(std::span<const std::string_view> inputs) {
  if (inputs.size() != plan_.inputs.size())
    return invalid("the plan has " + std::to_string(plan_.inputs.size()) + " inputs, but " +
                   std::to_string(inputs.size()) + " were given");
  auto add = [&](std::vector<GuardedBuffer>& buffers, Region::Kind kind, std::string name, size_t size,
                 size_t alignment) {
    buffers.emplace_back(size, alignment);
    memory_.add(kind, std::move(name), reinterpret_cast<uintptr_t>(buffers.back().data()), size);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "input " + std::to_string(i) + " `" + plan_.inputs[i].name + "`";
    if (inputs[i].size() != span_bytes(plan_.inputs[i]))
      return invalid(name + " has " + std::to_string(span_bytes(plan_.inputs[i])) + " bytes, but " +
                     std::to_string(inputs[i].size()) + " were given");
    add(inputs_, Region::Kind::input, name, inputs[i].size(), kTensorAlignment);
    std::copy(inputs[i].begin(), inputs[i].end(), inputs_.back().data());
  }
  for (size_t i = 0; i < plan_.outputs.size(); ++i)
    add(outputs_, Region::Kind::output, "output " + std::to_string(i) + " `" + plan_.outputs[i].name + "`",
        span_bytes(plan_.outputs[i]), kTensorAlignment);
  add(workspace_, Region::Kind::workspace, "the workspace", plan_.workspace_bytes, kWorkspaceAlignment);
  for (const ProgramSection& section : program_.library->constants())
    memory_.add(Region::Kind::constants, section.name, section.begin, section.size);
  return Status();
}

Status Run::check_launch(const Launch& launch) const {
  const Dim3 &grid = launch.grid, &block = launch.block, &cluster = launch.cluster;
  if (grid.count() == 0 || !fits_launch(grid.x, grid.y, grid.z)) return invalid("the grid is not possible");
  if (block.count() == 0 || block.count() > kMaxThreads || block.z > 64)
    return invalid("the block is not possible");
  auto target = find_target(plan_.target);
  if (!target.ok()) return target.status();
  if (cluster.count() == 0 || cluster.count() > static_cast<uint64_t>((*target)->max_cluster) ||
      grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    return invalid("the cluster is not possible");
  size_t static_bytes = 0;
  for (const ProgramSection& array : program_.library->shared_arrays(program_.index, launch.kernel))
    static_bytes += array.size;
  if (static_bytes > 0 && cluster.count() > 1)
    return Status(ErrorCode::UNSUPPORTED, "the emulator runs no clusters with static shared memory");
  if (static_bytes > kStaticSharedLimit) return invalid("more than 48 KiB of static shared memory");
  if (static_bytes + launch.shared_bytes > (*target)->shared_bytes_per_block)
    return invalid("more shared memory than " + plan_.target + " has: " + std::to_string(static_bytes) +
                   " static and " + std::to_string(launch.shared_bytes) + " dynamic bytes");
  return Status();
}

Result<uintptr_t> Run::address_of(const LaunchArg& arg) const {
  const auto value = static_cast<uint64_t>(arg.value);
  if (arg.kind == LaunchArg::Kind::workspace) {
    if (value > plan_.workspace_bytes) return invalid("is beyond the workspace");
    return reinterpret_cast<uintptr_t>(workspace_[0].data()) + value;
  }
  const auto& buffers = arg.kind == LaunchArg::Kind::input ? inputs_ : outputs_;
  if (value >= buffers.size()) return invalid("names no tensor");
  return reinterpret_cast<uintptr_t>(buffers[value].data());
}

// As cuTensorMapEncodeTiled refuses them.
Status Run::bind_tensor_maps() {
  for (const TensorMap& map : plan_.tensor_maps) {
    if (Status status = check_tensor_map(map); !status.ok()) return status;
    const Result<uintptr_t> base = address_of(map.buffer);
    if (!base) return invalid("a tensor map " + base.status().message());
    if (*base % kTensorMapAlignment != 0) return invalid("a tensor map begins at no multiple of 16 bytes");
    tensor_maps_.push_back({&map, *base});
  }
  return Status();
}

Result<std::vector<unsigned long long>> Run::make_arguments(const Launch& launch) const {
  std::vector<unsigned long long> words;
  for (const LaunchArg& arg : launch.args) {
    const auto value = static_cast<uint64_t>(arg.value);
    if (arg.kind == LaunchArg::Kind::integer) {
      words.push_back(value);
    } else if (arg.kind == LaunchArg::Kind::tensor_map) {
      if (value >= tensor_maps_.size()) return invalid("an argument names no tensor map");
      words.push_back(reinterpret_cast<uintptr_t>(&tensor_maps_[value]));
    } else {
      const Result<uintptr_t> address = address_of(arg);
      if (!address)
        return invalid("argument " + std::to_string(words.size()) + " " + address.status().message());
      words.push_back(*address);
    }
  }
  return words;
}

Status Run::launch(const Launch& launch) {
  const Kernel* kernel = program_.library->find_kernel(program_.index, launch.kernel);
  if (!kernel) return invalid("the program has no such kernel");
  if (Status status = check_launch(launch); !status.ok()) return status;
  auto arguments = make_arguments(launch);
  if (!arguments.ok()) return arguments.status();
  if (static_cast<int>(arguments->size()) != kernel->argument_count)
    return invalid("the kernel has " + std::to_string(kernel->argument_count) + " parameters, the launch " +
                   std::to_string(arguments->size()) + " arguments");

  memory_.remove_shared();
  for (const ProgramSection& array : program_.library->shared_arrays(program_.index, launch.kernel))
    memory_.add(Region::Kind::shared_array, "shared array `" + array.name + "`", array.begin, array.size);
  // The blocks of a cluster lie apart, so that running over the end of one is no access to another.
  const size_t ranks = launch.cluster.count();
  const size_t pitch = (launch.shared_bytes + 2 * kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  GuardedBuffer dynamic(pitch * (ranks - 1) + launch.shared_bytes, kSharedAlignment);
  for (size_t rank = 0; rank < ranks; ++rank)
    memory_.add(
        Region::Kind::dynamic_shared,
        "dynamic shared memory" + (ranks > 1 ? " of block " + std::to_string(rank) + " of the cluster" : ""),
        reinterpret_cast<uintptr_t>(dynamic.data()) + pitch * rank, launch.shared_bytes);

  clock_.begin_launch(launch.grid, launch.block, launch.cluster, launch.overlaps);
  std::vector<uint64_t> order(launch.grid.count() / ranks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  Block block(program_, *kernel, launch, memory_, clock_, stacks_, dynamic.data(), pitch, random_);
  for (uint64_t number : order) {
    if (Status status = block.run(number, *arguments); !status.ok()) return status;
  }
  return Status();
}

// Every element must have been written; a bool must be 0 or 1.
Status Run::check_output(size_t index) const {
  const TensorDesc& tensor = plan_.outputs[index];
  const size_t size = dtype_size(tensor.dtype);
  std::vector<int64_t> place(tensor.shape.size(), 0);
  for (int64_t element = 0; element < tensor.element_count(); ++element) {
    int64_t offset = 0;
    std::string coordinates;
    for (size_t d = 0; d < place.size(); ++d) offset += place[d] * tensor.strides[d];
    const char* data = outputs_[index].data() + offset * size;
    const bool unwritten = memory_.find_unwritten(reinterpret_cast<uintptr_t>(data), size) != size;
    if (unwritten || (tensor.dtype == DType::boolean && static_cast<unsigned char>(*data) > 1)) {
      for (int64_t coordinate : place)
        coordinates += (coordinates.empty() ? "" : ", ") + std::to_string(coordinate);
      return Status(ErrorCode::INTERNAL,
                    "output " + std::to_string(index) + " `" + tensor.name + "` [" + coordinates +
                        "]: " + (unwritten ? "never written" : "a bool that is neither 0 nor 1"));
    }
    for (size_t d = place.size(); d-- > 0 && ++place[d] == tensor.shape[d];) place[d] = 0;
  }
  return Status();
}

Result<std::vector<std::string>> Run::take_outputs() {
  std::vector<std::string> bytes;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (Status status = check_output(i); !status.ok()) return status;
    bytes.emplace_back(outputs_[i].data(), outputs_[i].size());
  }
  return bytes;
}

}  // namespace

ProgramSource make_source(std::string text, const Plan& plan) {
  std::set<std::string> kernels;
  for (const Launch& launch : plan.launches) kernels.insert(launch.kernel);
  return {std::move(text), {kernels.begin(), kernels.end()}};
}

Result<std::vector<std::string>> run_plan(Program& program, const Plan& plan,
                                          std::span<const std::string_view> inputs,
                                          const EmulatorOptions& options) {
  Run run(program, plan, options);
  if (Status status = run.make_buffers(inputs); !status.ok()) return status;
  if (Status status = run.bind_tensor_maps(); !status.ok()) return status;
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    if (Status status = run.launch(plan.launches[i]); !status.ok())
      return status.with_context("launch " + std::to_string(i) + " (" + plan.launches[i].kernel + ")");
  }
  return run.take_outputs();
}

}  // namespace quern::emulated
