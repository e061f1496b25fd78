#include "core/mugraph/dependence.h"

#include <algorithm>

namespace quern {

namespace {

void add(std::vector<int32_t>& tensors, int32_t tensor) {
  if (tensor >= 0 && std::find(tensors.begin(), tensors.end(), tensor) == tensors.end())
    tensors.push_back(tensor);
}

bool meet(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int32_t tensor) { return std::find(b.begin(), b.end(), tensor) != b.end(); });
}

}  // namespace

std::vector<int32_t> memory_of(const MuGraph& mugraph, int32_t tensor) {
  const MuTensor& own = mugraph.tensors[static_cast<size_t>(tensor)];
  std::vector<int32_t> sources;
  if (own.numbered >= 0) return sources;
  for (const TensorView& piece : own.pieced.pieces) add(sources, piece.source);
  if (sources.empty()) sources.push_back(own.view.source < 0 ? tensor : own.view.source);
  return sources;
}

bool is_view(const MuGraph& mugraph, const MuKernel& kernel) {
  if (kernel.custom) return false;
  const MuTensor& result = mugraph.tensors[static_cast<size_t>(kernel.result)];
  return result.numbered >= 0 || result.view.source >= 0 || result.pieced.axis >= 0;
}

KernelAccesses accesses_of(const MuGraph& mugraph, const MuKernel& kernel) {
  KernelAccesses out;
  if (!kernel.custom) {
    for (int32_t operand : kernel.operands)
      if (!mugraph.tensors[static_cast<size_t>(operand)].type.literal) add(out.reads, operand);
    add(out.writes, kernel.result);
  }
  for (const BlockOp& op : kernel.ops) {
    if (op.is_load())
      for (int32_t tensor : memory_of(mugraph, op.tensor())) add(out.reads, tensor);
    if (op.is_store()) add(out.writes, op.tensor());
  }
  return out;
}

bool independent(const KernelAccesses& a, const KernelAccesses& b) {
  return !meet(a.writes, b.writes) && !meet(a.writes, b.reads) && !meet(a.reads, b.writes);
}

}  // namespace quern
