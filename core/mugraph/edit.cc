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
  MuGraph out{"", {}, {}, {}, {kernel}, mugraph.noted, true};
  std::vector<int32_t> numbers(mugraph.tensors.size(), -1);
  auto renumber = [&](int32_t& tensor) {
    int32_t& number = numbers[static_cast<size_t>(tensor)];
    if (number < 0) {
      number = static_cast<int32_t>(out.tensors.size());
      out.tensors.push_back(mugraph.tensors[static_cast<size_t>(tensor)]);
      out.tensors.back().name.clear();
    }
    tensor = number;
  };
  std::vector<int32_t> written;
  for (BlockOp& op : out.kernels[0].ops) {
    op.name.clear();
    for_each_tensor(op, renumber);
    if (op.is_store()) written.push_back(op.tensor());
  }
  // Those in memory that views of these show.
  for (size_t t = 0; t < out.tensors.size(); ++t) {
    MuTensor own = out.tensors[t];
    if (own.view.source >= 0) renumber(own.view.source);
    for (TensorView& piece : own.pieced.pieces)
      if (piece.source >= 0) renumber(piece.source);
    out.tensors[t] = std::move(own);
  }
  for (size_t t = 0; t < out.tensors.size(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const bool is_written = std::find(written.begin(), written.end(), tensor) != written.end();
    if (!out.tensors[t].type.literal) (is_written ? out.outputs : out.inputs).push_back(tensor);
  }
  return out;
}

}  // namespace quern
