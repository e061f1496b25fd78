#include "core/mugraph/edit.h"

#include <algorithm>

namespace quern {

std::string unique_tensor_name(const MuGraph& mugraph, const std::string& name) {
  auto taken = [&](const std::string& candidate) {
    return std::any_of(mugraph.tensors.begin(), mugraph.tensors.end(),
                       [&](const MuTensor& tensor) { return tensor.name == candidate; });
  };
  if (!taken(name)) return name;
  int number = 2;
  while (taken(name + "_" + std::to_string(number))) ++number;
  return name + "_" + std::to_string(number);
}

std::vector<BlockValue> keep_stored(std::vector<BlockOp>& ops) {
  std::vector<bool> wanted(ops.size(), false);
  for (size_t i = ops.size(); i-- > 0;) {
    wanted[i] = wanted[i] || ops[i].is_store();
    if (!wanted[i]) continue;
    for (BlockValue operand : ops[i].operands) wanted[static_cast<size_t>(operand)] = true;
  }
  std::vector<BlockValue> numbers(ops.size(), -1);
  std::vector<BlockOp> kept;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!wanted[i]) continue;
    numbers[i] = static_cast<BlockValue>(kept.size());
    kept.push_back(std::move(ops[i]));
    for (BlockValue& operand : kept.back().operands) operand = numbers[static_cast<size_t>(operand)];
  }
  ops = std::move(kept);
  return numbers;
}

MuGraph kernel_alone(const MuGraph& mugraph, const MuKernel& kernel) {
  MuGraph out{mugraph.name, mugraph.tensors, {}, {}, {kernel}, mugraph.noted, true};
  std::vector<bool> written(mugraph.tensors.size());
  for (const BlockOp& op : kernel.ops)
    if (op.is_store()) written[static_cast<size_t>(op.tensor())] = true;
  for (size_t t = 0; t < written.size(); ++t)
    if (!mugraph.tensors[t].type.literal)
      (written[t] ? out.outputs : out.inputs).push_back(static_cast<int32_t>(t));
  return out;
}

}  // namespace quern
