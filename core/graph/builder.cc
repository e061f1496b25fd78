#include "core/graph/builder.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/base/dtype_info.h"

namespace quern {

namespace {

Status invalid(std::string message) { return Status(ErrorCode::INVALID_GRAPH, std::move(message)); }

Status check_strides(const Ints& shape, const Ints& strides) {
  if (strides.size() != shape.size())
    return invalid("strides " + print_ints(strides) + " do not match shape " + print_ints(shape));
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
  for (size_t i = 0; i < shape.size(); ++i) {
    if (strides[i] < 0 || strides[i] > kMaxElements)
      return invalid("stride " + std::to_string(strides[i]) + " is not between 0 and 2^40");
    if (shape[i] == 0) return {};  // nothing is addressed
    if (shape[i] > 1 && strides[i] > 0) dims.emplace_back(strides[i], shape[i]);
  }
  int64_t span = 1;
  std::sort(dims.begin(), dims.end());
  for (auto [stride, extent] : dims) {
    if (extent - 1 > kMaxElements / stride)
      return invalid("strides " + print_ints(strides) + " span more than 2^40 elements");
    span += (extent - 1) * stride;
    if (span > kMaxElements)
      return invalid("strides " + print_ints(strides) + " span more than 2^40 elements");
  }
  return {};
}

}  // namespace

bool is_valid_name(std::string_view name) {
  if (name.empty() || name.size() > 255) return false;
  if (std::isdigit(static_cast<unsigned char>(name[0])) || name[0] == '.') return false;
  for (unsigned char c : name)
    if (!(c < 128 && (std::isalnum(c) || c == '_' || c == '.'))) return false;
  for (std::string_view word : {"inf", "nan", "true", "false"})
    if (name == word) return false;
  return true;
}

GraphBuilder::GraphBuilder(std::string name) { graph_.name = std::move(name); }

GraphBuilder::GraphBuilder(Graph graph) : graph_(std::move(graph)) {
  for (const Node& node : graph_.nodes) {
    if (!node.name.empty()) names_.insert(node.name);
    ops_ += op_info(node.code).kind != OpKind::leaf;
  }
}

ValueId GraphBuilder::append(Node node) {
  graph_.nodes.push_back(std::move(node));
  return static_cast<ValueId>(graph_.nodes.size()) - 1;
}

Status GraphBuilder::claim_name(const std::string& name) {
  if (!is_valid_name(name)) return invalid("\"" + name.substr(0, 40) + "\" cannot be a name");
  if (!names_.insert(name).second) return invalid("the name \"" + name + "\" is taken");
  return {};
}

std::string GraphBuilder::not_a_value(ValueId id) const {
  if (id == -1) return "is -1, which a call that failed hands out";
  return "is " + std::to_string(id) + ", but the graph has " + std::to_string(graph_.nodes.size()) +
         " values";
}

Result<ValueId> GraphBuilder::add_input(std::string name, DType dtype, Ints shape, Ints strides,
                                        bool is_const) {
  if (graph_.inputs.size() == kMaxTensors)
    return Status(ErrorCode::LIMIT, "more than " + std::to_string(kMaxTensors) + " inputs");
  if (!is_valid(dtype)) return invalid("there is no such dtype");
  if (Status status = check_shape(shape); !status.ok()) return status;
  if (strides.empty()) strides = dense_strides(shape);
  if (Status status = check_strides(shape, strides); !status.ok()) return status;
  if (Status status = claim_name(name); !status.ok()) return status;
  Node node;
  node.name = std::move(name);
  node.type = {dtype, std::move(shape)};
  node.strides = std::move(strides);
  node.is_const = is_const;
  const ValueId id = append(std::move(node));
  graph_.inputs.push_back(id);
  return id;
}

Result<ValueId> GraphBuilder::add_constant(double number, bool integral) {
  if (integral && !(number >= INT32_MIN && number <= INT32_MAX && number == std::trunc(number)))
    return invalid(print_number(number) + " is not a 32-bit integer; write it with a decimal point");
  Node node;
  node.code = OpCode::constant;
  node.type = {integral ? DType::i32 : DType::f32, {}, true};
  node.number = number;
  return append(std::move(node));
}

Result<ValueId> GraphBuilder::add_op(OpCode code, std::span<const ValueId> operands, Attrs attrs,
                                     std::string name) {
  if (op_info(code).kind == OpKind::leaf) return invalid("inputs and constants are not operators");
  if (ops_ == kMaxOps) return Status(ErrorCode::LIMIT, "more than " + std::to_string(kMaxOps) + " operators");
  Node node;
  node.code = code;
  node.operands.assign(operands.begin(), operands.end());
  for (size_t i = 0; i < operands.size(); ++i)
    if (!exists(operands[i])) return invalid("operand " + std::to_string(i) + " " + not_a_value(operands[i]));
  node.attrs = std::move(attrs);
  const std::vector<TensorType> types = graph_.operand_types(node);
  auto type = infer_type(code, types, node.attrs);
  if (!type) return type.status();
  node.type = std::move(*type);
  round_numbers(node, types);
  for (size_t i = graph_.nodes.size(); name.empty(); ++i)
    if (std::string free = "v" + std::to_string(i); !names_.count(free)) name = free;
  if (Status status = claim_name(name); !status.ok()) return status;
  node.name = std::move(name);
  ++ops_;
  return append(std::move(node));
}

// Numbers have the dtype of what they are combined with, and are rounded to it.
void GraphBuilder::round_numbers(Node& node, std::span<const TensorType> types) {
  const OpInfo& info = op_info(node.code);
  if (info.kind != OpKind::elementwise) return;
  const DType dtype = promote(info.result == ResultRule::select ? types.subspan(1) : types);
  if (!is_narrow(dtype)) return;
  for (ValueId& operand : node.operands) {
    const Node& old = graph_.node(operand);
    if (old.code != OpCode::constant || round_to(dtype, old.number) == old.number || std::isnan(old.number)) continue;
    Node rounded = old;
    rounded.number = round_to(dtype, old.number);
    rounded.type.dtype = DType::f32;  // 100001, say, is no integer there
    operand = append(std::move(rounded));
  }
}

Status GraphBuilder::add_output(ValueId value) {
  if (!exists(value)) return invalid("the output " + not_a_value(value));
  if (graph_.node(value).code == OpCode::constant) return invalid("an output must be a tensor, not a number");
  if (graph_.outputs.size() == kMaxTensors)
    return Status(ErrorCode::LIMIT, "more than " + std::to_string(kMaxTensors) + " outputs");
  graph_.outputs.push_back(value);
  return {};
}

Result<Graph> GraphBuilder::finish() {
  if (graph_.outputs.empty()) return invalid("the graph has no output");
  ops_ = 0;
  names_.clear();
  return std::exchange(graph_, Graph{});
}

}  // namespace quern
