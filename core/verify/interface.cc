#include "core/verify/interface.h"

#include <string>
#include <vector>

#include "core/lang/attrs.h"

namespace quern {

Status check_interface(const Graph& graph, const MuGraph& mugraph) {
  auto wrong = [](std::string message) { return Status(ErrorCode::INVALID_GRAPH, std::move(message)); };
  auto compare = [&](const char* what, const std::vector<ValueId>& values,
                     const std::vector<int32_t>& tensors) {
    if (values.size() != tensors.size())
      return wrong(std::to_string(tensors.size()) + " " + what + "s instead of " +
                   std::to_string(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const TensorType& wanted = graph.node(values[i]).type;
      const TensorType& given = mugraph.tensors[static_cast<size_t>(tensors[i])].type;
      const std::string name = std::string(what) + " " + std::to_string(i) + " has ";
      if (wanted.shape != given.shape)
        return wrong(name + "shape " + print_ints(given.shape) + " instead of " + print_ints(wanted.shape));
      if (wanted.dtype != given.dtype)
        return wrong(name + "dtype " + dtype_name(given.dtype) + " instead of " + dtype_name(wanted.dtype));
    }
    return Status();
  };
  Status status = compare("input", graph.inputs, mugraph.inputs);
  return status.ok() ? compare("output", graph.outputs, mugraph.outputs) : status;
}

}  // namespace quern
