// A tensor program in static single assignment form: nodes in an order in which operands come before their
// users.
#pragma once

#include <string>
#include <vector>

#include "core/lang/type.h"

namespace quern {

using ValueId = int32_t;  // the index of the node that makes the value

inline constexpr size_t kMaxOps = 4096;             // nodes that are neither inputs nor constants
inline constexpr size_t kMaxTensors = 4096;         // inputs, and outputs
inline constexpr size_t kMaxGraphText = 16u << 20;  // bytes

struct Node {
  OpCode code = OpCode::input;
  std::vector<ValueId> operands;
  Attrs attrs;
  TensorType type;
  std::string name;       // as written; empty for constants
  double number = 0;      // constant only
  Ints strides;           // input only: elements, one a dimension
  bool is_const = false;  // input only: contents do not change from launch to launch
  // Cast only, of decomposed graphs (decompose.h) and parts of muGraphs (kept_casts.h): to a narrower float, and only
  // multiplied. Its value may have more precision than its dtype.
  bool keeps_precision = false;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;   // in declaration order: the order of the caller's buffers
  std::vector<ValueId> outputs;  // in order; a value may be an output more than once, and may be an input

  const Node& node(ValueId id) const { return nodes[static_cast<size_t>(id)]; }
  std::vector<TensorType> operand_types(const Node& node) const;
  // What the caller passes and gets; outputs are dense and row-major.
  std::vector<TensorDesc> input_descs() const;
  std::vector<TensorDesc> output_descs() const;
};

}  // namespace quern
