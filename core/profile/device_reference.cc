#include "core/profile/device_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/profile/buffer_sets.h"

namespace quern {

namespace {

std::vector<uint64_t> addresses(const std::vector<DeviceMemory>& of) {
  std::vector<uint64_t> out;
  for (const DeviceMemory& memory : of) out.push_back(memory.address());
  return out;
}

Result<std::vector<DeviceMemory>> allocate_all(const Device& device, const std::vector<TensorDesc>& descs) {
  std::vector<DeviceMemory> out;
  for (const TensorDesc& desc : descs) {
    auto memory = device.allocate(std::max<size_t>(buffer_bytes(desc), 16));
    if (!memory) return memory.status();
    out.push_back(std::move(*memory));
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<DeviceReference>> DeviceReference::make(const Device& device,
                                                               const ReferenceProgram& program,
                                                               std::vector<TensorDesc> outputs,
                                                               const Options& options) {
  std::unique_ptr<DeviceReference> out(new DeviceReference);
  out->device_ = &device;
  out->outputs_ = std::move(outputs);
  out->evaluate_plan_ = std::make_shared<const Plan>(program.evaluate);
  out->compare_plan_ = std::make_shared<const Plan>(program.compare);
  out->evaluate_ = std::make_unique<Launcher>(device.driver(), out->evaluate_plan_);
  out->compare_ = std::make_unique<Launcher>(device.driver(), out->compare_plan_);
  out->kinds_ = options.tf32 ? 2 : 1;
  uint64_t one = 0;
  for (const TensorDesc& desc : program.evaluate.outputs) one += std::max<uint64_t>(buffer_bytes(desc), 16);
  const uint64_t workspace = std::max<uint64_t>(program.evaluate.workspace_bytes, 256);
  if (workspace + one > options.most_bytes)
    return Status(ErrorCode::OUT_OF_MEMORY, "the reference needs " + std::to_string(workspace + one) +
                                                " bytes, more than the " +
                                                std::to_string(options.most_bytes) + " that it may use");
  const size_t all = options.cases * out->kinds_;
  const size_t count = workspace + one * all <= options.most_bytes ? all : 1;
  for (size_t i = 0; i < count; ++i) {
    auto slot = allocate_all(device, program.evaluate.outputs);
    if (!slot) return slot.status();
    out->slots_.push_back(std::move(*slot));
  }
  auto parts = allocate_all(device, program.compare.outputs);
  if (!parts) return parts.status();
  out->parts_ = std::move(*parts);
  auto flags = device.allocate(16);
  if (!flags) return flags.status();
  out->flags_ = std::move(*flags);
  out->bytes_ = one * count + (count == 1 ? workspace : 0);
  return out;
}

Status DeviceReference::compute(size_t number, bool tf32, bool special, std::vector<uint64_t> inputs,
                                const Stream& stream) {
  if (!workspace_.address()) {
    auto memory = device_->allocate(std::max<size_t>(evaluate_plan_->workspace_bytes, 256));
    if (!memory) return memory.status();
    workspace_ = std::move(*memory);
  }
  const int32_t flags[] = {special, tf32};
  if (Status status = flags_.upload(flags, sizeof flags); !status.ok()) return status;
  inputs.push_back(flags_.address());
  const std::vector<uint64_t> outputs = addresses(slot(number, tf32));
  Status status = evaluate_->launch({inputs, outputs, workspace_.address()}, stream.handle());
  if (status.ok()) status = stream.synchronize();
  // When the last is there, the memory is for others.
  if (keeps() && number * kinds_ + (tf32 ? kinds_ - 1 : 0) + 1 == slots_.size()) workspace_ = {};
  return status;
}

Result<Judged> DeviceReference::judge(size_t number, bool tf32, const std::vector<uint64_t>& outputs,
                                      const Stream& stream) {
  const Slot& own = slot(number, tf32);
  std::vector<uint64_t> inputs = addresses(own);
  inputs.insert(inputs.end(), outputs.begin(), outputs.end());
  Status status = compare_->launch({inputs, addresses(parts_), 0}, stream.handle());
  if (status.ok()) status = stream.synchronize();
  if (!status.ok()) return status;
  Judged judged;
  for (size_t o = 0; o < outputs_.size(); ++o) {
    std::vector<ComparedPart> parts(buffer_bytes(compare_plan_->outputs[o]) / sizeof(ComparedPart));
    status = parts_[o].download(parts.data(), parts.size() * sizeof(ComparedPart));
    if (!status.ok()) return status;
    double error = 0, norm = 0;
    int64_t first = -1;
    for (const ComparedPart& part : parts) {
      if (part.first >= 0 && (first < 0 || part.first < first)) first = part.first;
      error += part.error;
      norm += part.norm;
      judged.largest = std::max(judged.largest, part.largest);
    }
    judged.error = std::max(judged.error, std::sqrt(error) / (norm > 0 ? std::sqrt(norm) : 1));
    judged.compared += static_cast<uint64_t>(outputs_[o].element_count());
    if (first < 0 || !judged.wrong.empty()) continue;
    // In the words that compare() has for it.
    const Result<WantedElement> element = wanted(own, o, first);
    if (!element) return element.status();
    char actual[4] = {};
    const size_t size = dtype_size(outputs_[o].dtype);
    status =
        copy_from_gpu(*device_->driver(), actual, outputs[o] + static_cast<uint64_t>(first) * size, size);
    if (!status.ok()) return status;
    const std::vector<int64_t> at{first};
    const Comparison told =
        compare(outputs_[o], {load_element(actual, outputs_[o].dtype, 0)},
                {{element->exact}, {element->bound}, {static_cast<Demand>(element->demand)}}, &at);
    judged.wrong =
        outputs_[o].name + " " + (told.acceptable ? "has a bool that is neither 0 nor 1" : told.what);
  }
  return judged;
}

Result<WantedElement> DeviceReference::wanted(const Slot& slot, size_t output, int64_t element) const {
  WantedElement out;
  const Status status =
      copy_from_gpu(*device_->driver(), &out,
                    slot[output].address() + static_cast<uint64_t>(element) * sizeof out, sizeof out);
  if (!status.ok()) return status;
  return out;
}

}  // namespace quern
