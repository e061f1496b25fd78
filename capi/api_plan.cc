// The C functions about plans: what is in them, and launching them.
#include "capi/api.h"
#include "capi/plan_handle.h"
#include "core/base/few.h"

using namespace quern;
using namespace quern::api;

namespace {

Status check_index(const quern_plan* plan, size_t index, size_t count, const char* what) {
  if (index < count) return {};
  return Status(ErrorCode::NOT_FOUND, std::string(what) + " " + std::to_string(index) + " of a plan with " +
                                          std::to_string(count) + ": " + plan->key_text());
}

quern_status describe_tensor(const quern_plan* plan, const std::vector<TensorDesc> Plan::*tensors,
                             const char* what, size_t index, quern_tensor* tensor, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(plan, "plan"); !status.ok()) return status;
    const std::vector<TensorDesc>& list = plan->plan().*tensors;
    if (Status status = check_index(plan, index, list.size(), what); !status.ok()) return status;
    return write_struct(public_tensor(list[index]), tensor, "tensor");
  });
}

void copy_dim(const Dim3& dim, uint32_t (&out)[3]) {
  out[0] = dim.x;
  out[1] = dim.y;
  out[2] = dim.z;
}

quern_plan_info info_of(const quern_plan& handle) {
  const Plan& plan = handle.plan();
  const wire::PlanReply& reply = handle.reply();
  quern_plan_info info{};
  info.key = handle.key_text().c_str();
  info.target = plan.target.c_str();
  info.tier = static_cast<quern_tier>(reply.tier);
  info.origin = static_cast<quern_origin>(reply.origin);
  info.generation = reply.generation;
  info.cubin = plan.cubin.data();
  info.cubin_size = plan.cubin.size();
  info.workspace_bytes = plan.workspace_bytes;
  info.input_count = plan.inputs.size();
  info.output_count = plan.outputs.size();
  info.launch_count = plan.launches.size();
  info.certificate = plan.certificate.c_str();
  info.warning = reply.warning.c_str();
  info.daemon_ns = reply.total_ns;
  info.queue_ns = reply.queue_ns;
  info.emit_ns = reply.emit_ns;
  info.compile_ns = reply.compile_ns;
  return info;
}

using Addresses = Few<uint64_t, 16>;

Status read_addresses(void* const* buffers, size_t count, const char* name, Addresses& addresses) {
  if (count > 0)
    if (Status status = require(buffers, name); !status.ok()) return status;
  for (size_t i = 0; i < count; ++i) addresses[i] = reinterpret_cast<uintptr_t>(buffers[i]);
  return Status();
}

}  // namespace

quern_plan* quern_plan_retain(quern_plan* plan) {
  if (plan) plan->retain();
  return plan;
}

void quern_plan_release(quern_plan* plan) {
  if (plan) plan->release();
}

quern_status quern_plan_describe(const quern_plan* plan, quern_plan_info* info, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(plan, "plan"); !status.ok()) return status;
    return write_struct(info_of(*plan), info, "info");
  });
}

quern_status quern_plan_input(const quern_plan* plan, size_t index, quern_tensor* tensor,
                              quern_error* error) {
  return describe_tensor(plan, &Plan::inputs, "input", index, tensor, error);
}

quern_status quern_plan_output(const quern_plan* plan, size_t index, quern_tensor* tensor,
                               quern_error* error) {
  return describe_tensor(plan, &Plan::outputs, "output", index, tensor, error);
}

quern_status quern_plan_launch(const quern_plan* plan, size_t index, quern_launch_info* info,
                               quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(plan, "plan"); !status.ok()) return status;
    const std::vector<Launch>& launches = plan->plan().launches;
    if (Status status = check_index(plan, index, launches.size(), "launch"); !status.ok()) return status;
    quern_launch_info filled{};
    filled.kernel = launches[index].kernel.c_str();
    copy_dim(launches[index].grid, filled.grid);
    copy_dim(launches[index].block, filled.block);
    copy_dim(launches[index].cluster, filled.cluster);
    filled.shared_bytes = launches[index].shared_bytes;
    filled.args = plan->args(index).data();
    filled.arg_count = plan->args(index).size();
    filled.overlaps = launches[index].overlaps ? 1 : 0;
    return write_struct(filled, info, "info");
  });
}

quern_status quern_plan_tensor_map(const quern_plan* plan, size_t index, quern_tensor_map* map,
                                   quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(plan, "plan"); !status.ok()) return status;
    const std::vector<TensorMap>& maps = plan->plan().tensor_maps;
    if (Status status = check_index(plan, index, maps.size(), "tensor map"); !status.ok()) return status;
    const TensorMap& own = maps[index];
    quern_tensor_map filled{};
    filled.buffer = {static_cast<int32_t>(own.buffer.kind), 0, own.buffer.value};
    filled.dtype = static_cast<int32_t>(own.dtype);
    filled.rank = static_cast<int32_t>(own.shape.size());
    filled.shape = own.shape.data();
    filled.strides = own.strides.data();
    filled.box = own.box.data();
    filled.swizzle = own.swizzle;
    return write_struct(filled, map, "map");
  });
}

quern_status quern_plan_prepare(quern_plan* plan, void* stream, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(plan, "plan"); !status.ok()) return status;
    Result<Launcher*> launcher = plan->launcher();
    return launcher ? (*launcher)->load(stream) : launcher.status();
  });
}

quern_status quern_launch(quern_plan* plan, void* stream, void* const* inputs, void* const* outputs,
                          void* workspace, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(plan, "plan"); !status.ok()) return status;
    const size_t input_count = plan->plan().inputs.size(), output_count = plan->plan().outputs.size();
    Addresses in(input_count), out(output_count);
    if (Status status = read_addresses(inputs, input_count, "inputs", in); !status.ok()) return status;
    if (Status status = read_addresses(outputs, output_count, "outputs", out); !status.ok()) return status;
    Result<Launcher*> launcher = plan->launcher();
    if (!launcher) return launcher.status();
    return (*launcher)->launch(
        {{in.data(), input_count}, {out.data(), output_count}, reinterpret_cast<uintptr_t>(workspace)},
        stream);
  });
}
