// One kernel graph is one muGraph. Tensors are known by their guid. What an accumulator of Mirage does
// besides accumulating (a sum over the last dimension, a root mean square) becomes operators of its own.
#include "core/mugraph/mirage.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/graph/dims.h"
#include "core/mugraph/block_graph.h"

namespace quern {

namespace {

using Json = nlohmann::json;

Status invalid(std::string message) { return Status(ErrorCode::INVALID_GRAPH, std::move(message)); }

// Values of a JSON object, with an error instead of an exception for what is not there.
Result<const Json*> member(const Json& object, const char* name) {
  if (!object.is_object()) return invalid("expected an object");
  const auto at = object.find(name);
  if (at == object.end()) return invalid(std::string("\"") + name + "\" is missing");
  return &*at;
}

Result<int64_t> integer(const Json& object, const char* name) {
  auto value = member(object, name);
  if (!value) return value.status();
  if (!(*value)->is_number_integer()) return invalid(std::string("\"") + name + "\" is no integer");
  return (*value)->get<int64_t>();
}

Result<std::string> text(const Json& object, const char* name) {
  auto value = member(object, name);
  if (!value) return value.status();
  if (!(*value)->is_string()) return invalid(std::string("\"") + name + "\" is no text");
  return (*value)->get<std::string>();
}

Result<const Json*> list(const Json& object, const char* name) {
  auto value = member(object, name);
  if (!value) return value.status();
  if (!(*value)->is_array()) return invalid(std::string("\"") + name + "\" is no list");
  return *value;
}

// The x, y and z of an object.
Result<std::array<int64_t, 3>> coordinates(const Json& object, const char* name) {
  auto value = member(object, name);
  if (!value) return value.status();
  std::array<int64_t, 3> result;
  const char* axes[] = {"x", "y", "z"};
  for (size_t i = 0; i < 3; ++i) {
    auto at = integer(**value, axes[i]);
    if (!at) return at.status().with_context(name);
    result[i] = *at;
  }
  return result;
}

// Numbers of Mirage's type.h.
Result<DType> dtype(int64_t number) {
  switch (number) {
    case 940:
      return DType::bf16;
    case 941:
      return DType::f16;
    case 950:
      return DType::f32;
    default:
      return Status(ErrorCode::UNSUPPORTED, "there is no dtype for data_type " + std::to_string(number));
  }
}

Result<TensorType> tensor_type(const Json& tensor) {
  auto data_type = integer(tensor, "data_type");
  if (!data_type) return data_type.status();
  auto element = dtype(*data_type);
  if (!element) return element.status();
  auto rank = integer(tensor, "num_dims");
  if (!rank) return rank.status();
  auto dims = list(tensor, "dim");
  if (!dims) return dims.status();
  if (*rank < 0 || *rank > static_cast<int64_t>((*dims)->size()))
    return invalid("\"num_dims\" does not fit \"dim\"");
  TensorType type{*element, {}};
  for (int64_t d = 0; d < *rank; ++d) {
    const Json& extent = (**dims)[static_cast<size_t>(d)];
    if (!extent.is_number_integer()) return invalid("\"dim\" holds something that is no integer");
    type.shape.push_back(extent.get<int64_t>());
  }
  if (Status status = check_shape(type.shape); !status.ok()) return status;
  return type;
}

// Elementwise and matrix operators, by the middle of their name: "kn_exp_op", "tb_exp_op".
const OpCode* plain_operator(std::string_view name) {
  static const std::map<std::string_view, OpCode> codes = {
      {"matmul", OpCode::matmul},    {"exp", OpCode::exp},   {"square", OpCode::square},
      {"sqrt", OpCode::sqrt},        {"silu", OpCode::silu}, {"relu", OpCode::relu},
      {"gelu", OpCode::gelu},        {"add", OpCode::add},   {"mul", OpCode::mul},
      {"div", OpCode::div},          {"sub", OpCode::sub},   {"pow", OpCode::pow},
      {"rms_norm", OpCode::rms_norm}};
  const auto at = codes.find(name);
  return at == codes.end() ? nullptr : &at->second;
}

std::string_view middle(std::string_view op_type) {
  if (op_type.size() < 6 || !op_type.ends_with("_op")) return "";
  return op_type.substr(3, op_type.size() - 6);
}

Attrs attrs_of(OpCode code, int rank) {
  Attrs attrs;
  if (code != OpCode::rms_norm) return attrs;
  attrs.axis = Ints{rank - 1};
  attrs.eps = 0;
  return attrs;
}

Status unknown(const std::string& op_type) {
  return Status(ErrorCode::UNSUPPORTED, "the operator \"" + op_type + "\" is not known");
}

// A constant that counts elements.
struct Count {
  BlockValue count;  // the constant
  BlockValue of;     // the value over whose last dimension, and all iterations, is counted
};

// Reads one block graph into a kernel.
class BlockReader {
 public:
  BlockReader(const std::map<int64_t, int32_t>& tensors, int64_t reduction_dimx, MuKernel& kernel)
      : tensors_(tensors), reduction_dimx_(reduction_dimx), kernel_(kernel) {}
  const std::vector<Count>& counts() const { return counts_; }

  Status read(const Json& op) {
    auto type = text(op, "op_type");
    if (!type) return type.status();
    if (*type == "tb_input_op") return load(op);
    if (*type == "tb_output_op") return store(op);
    auto operands = values(op);
    if (!operands) return operands.status();
    if (operands->empty()) return invalid("\"input_tensors\" is empty");
    const BlockValue x = operands->front();
    if (*type == "tb_forloop_accum_nored_op") return result(op, accumulate(x));
    if (*type == "tb_forloop_accum_red_ld_sum_op") return result(op, accumulate(sum(x, -1, true)));
    if (shape(x).empty()) return invalid("the operand has rank 0");
    if (*type == "tb_forloop_accum_red_ld_rms_op") return result(op, root_mean_square(x));
    if (*type == "tb_forloop_accum_redtox_ld_sum_op") return fold(op, x);
    if (*type == "tb_reduction_0_op" || *type == "tb_reduction_1_op" || *type == "tb_reduction_2_op")
      return result(op, sum(x, (*type)[13] - '0', true));
    const OpCode* code = type->starts_with("tb_") ? plain_operator(middle(*type)) : nullptr;
    if (!code) return unknown(*type);
    return result(op,
                  compute(*code, std::move(*operands), attrs_of(*code, static_cast<int>(shape(x).size()))));
  }

 private:
  const Ints& shape(BlockValue value) const { return shapes_[static_cast<size_t>(value)]; }

  // A new value whose shape is known from the file, or is not needed until the kernel is validated.
  BlockValue append(BlockOp op, Ints shape) {
    kernel_.ops.push_back(std::move(op));
    shapes_.push_back(std::move(shape));
    return static_cast<BlockValue>(kernel_.ops.size()) - 1;
  }

  BlockValue compute(OpCode code, std::vector<BlockValue> operands, Attrs attrs = {}) {
    return append(BlockOp(BlockOp::Compute{code, std::move(attrs)}, std::move(operands)), {});
  }

  // `dim` from the last when negative.
  BlockValue sum(BlockValue x, int64_t dim, bool keepdims) {
    Attrs attrs;
    attrs.axis = Ints{dim};
    attrs.keepdims = keepdims;
    return compute(OpCode::reduce_sum, {x}, attrs);
  }

  BlockValue accumulate(BlockValue x) { return append(BlockOp(BlockOp::Accumulate{Combine::sum}, {x}), {}); }

  BlockValue root_mean_square(BlockValue x) {
    const BlockValue squares = accumulate(sum(compute(OpCode::square, {x}), -1, true));
    const auto count = static_cast<double>(shape(x).back() * kernel_.trip_count);
    counts_.push_back({append(BlockOp::constant(count), {}), x});
    return compute(OpCode::sqrt, {compute(OpCode::div, {squares, counts_.back().count})});
  }

  // result[e] = sum over j of x[j * reduction_dimx + e] in the last dimension.
  Status fold(const Json& op, BlockValue x) {
    const int64_t last = shape(x).back();
    if (reduction_dimx_ < 1 || last % reduction_dimx_ != 0)
      return invalid("a last dimension of " + std::to_string(last) + " does not fold to \"reduction_dimx\" " +
                     std::to_string(reduction_dimx_));
    Attrs attrs;
    attrs.shape = shape(x);
    attrs.shape->back() = last / reduction_dimx_;
    attrs.shape->push_back(reduction_dimx_);
    return result(op, accumulate(sum(compute(OpCode::reshape, {x}, attrs), -2, false)));
  }

  Status place(const Json& op, const char* map_name, BlockOp::Access& access) {
    auto tensor = member(op, "dtensor");
    if (!tensor) return tensor.status();
    auto guid = integer(**tensor, "guid");
    if (!guid) return guid.status();
    const auto at = tensors_.find(*guid);
    if (at == tensors_.end()) return invalid("tensor " + std::to_string(*guid) + " is not known");
    access.tensor = at->second;
    auto map = coordinates(op, map_name);
    if (!map) return map.status();
    for (size_t axis = 0; axis < 3; ++axis) {
      if ((*map)[axis] < -1 || (*map)[axis] > kMaxRank)
        return invalid(std::string(map_name) + " names no dimension");
      access.map[axis] = static_cast<int>((*map)[axis]);
    }
    return {};
  }

  Status load(const Json& op) {
    BlockOp::Access access;
    if (Status status = place(op, "input_map", access); !status.ok()) return status;
    auto loop_dim = integer(op, "forloop_dim");
    if (!loop_dim) return loop_dim.status();
    if (*loop_dim < -1 || *loop_dim > kMaxRank) return invalid("\"forloop_dim\" names no dimension");
    access.loop_dim = static_cast<int>(*loop_dim);
    return result(op, append(BlockOp(BlockOp::Load{access}), {}));
  }

  Status store(const Json& op) {
    BlockOp::Access access;
    if (Status status = place(op, "output_map", access); !status.ok()) return status;
    auto operands = values(op);
    if (!operands) return operands.status();
    append(BlockOp(BlockOp::Store{access}, std::move(*operands)), {});
    return {};
  }

  Result<std::vector<BlockValue>> values(const Json& op) const {
    auto inputs = list(op, "input_tensors");
    if (!inputs) return inputs.status();
    std::vector<BlockValue> result;
    for (const Json& input : **inputs) {
      auto guid = integer(input, "guid");
      if (!guid) return guid.status();
      const auto at = values_.find(*guid);
      if (at == values_.end()) return invalid("value " + std::to_string(*guid) + " is not known");
      result.push_back(at->second);
    }
    return result;
  }

  // `value` is the operator's output in the file.
  Status result(const Json& op, BlockValue value) {
    auto outputs = list(op, "output_tensors");
    if (!outputs) return outputs.status();
    if ((*outputs)->size() != 1) return invalid("expected one output");
    auto type = tensor_type((**outputs)[0]);
    if (!type) return type.status();
    auto guid = integer((**outputs)[0], "guid");
    if (!guid) return guid.status();
    shapes_[static_cast<size_t>(value)] = type->shape;
    values_[*guid] = value;
    return {};
  }

  const std::map<int64_t, int32_t>& tensors_;
  const int64_t reduction_dimx_;
  MuKernel& kernel_;
  std::map<int64_t, BlockValue> values_;  // by guid
  std::vector<Ints> shapes_;              // of values that are outputs in the file
  std::vector<Count> counts_;
};

// Says what counts stand for: the extent of a tensor, where the dimension is all of one. Needs the types that
// validate() fills in.
void name_counts(const MuGraph& mugraph, MuKernel& kernel, const std::vector<Count>& counts) {
  if (counts.empty()) return;
  const Dimensions dims = block_dimensions(kernel, block_graph(mugraph, kernel));
  for (const Count& count : counts) {
    BlockOp& constant = kernel.ops[static_cast<size_t>(count.count)];
    const int rank = kernel.ops[static_cast<size_t>(count.of)].type.rank();
    const DimClass wanted = dims.of(count.of, static_cast<size_t>(rank) - 1);
    for (size_t i = 0; i < kernel.ops.size(); ++i) {
      const BlockOp& load = kernel.ops[i];
      if (!load.is_load()) continue;
      const Ints& whole = mugraph.tensors[static_cast<size_t>(load.tensor())].type.shape;
      for (size_t d = 0; d < whole.size(); ++d)
        if (dims.of(static_cast<ValueId>(i), d) == wanted &&
            static_cast<double>(whole[d]) == constant.number() && constant.extents().empty())
          constant.compute().extents = {{load.tensor(), static_cast<int>(d)}};
    }
  }
}

class Reader {
 public:
  explicit Reader(std::string name) { mugraph_.name = std::move(name); }

  Result<MuGraph> run(const Json& operators) {
    if (!operators.is_array()) return invalid("expected a list of operators");
    for (size_t i = 0; i < operators.size(); ++i)
      if (Status status = read(operators[i]); !status.ok())
        return status.with_context("operator " + std::to_string(i));
    keep_between();
    if (Status status = validate(mugraph_); !status.ok()) return status;
    for (const auto& [kernel, counts] : counts_) name_counts(mugraph_, mugraph_.kernels[kernel], counts);
    return std::move(mugraph_);
  }

 private:
  // What lies between kernels is not rounded here.
  void keep_between() {
    for (size_t t = 0; t < mugraph_.tensors.size(); ++t) {
      const int32_t id = static_cast<int32_t>(t);
      const auto has = [id](const std::vector<int32_t>& list) {
        return std::find(list.begin(), list.end(), id) != list.end();
      };
      if (!has(mugraph_.inputs) && !has(mugraph_.outputs)) mugraph_.tensors[t].type.dtype = DType::f32;
    }
  }

  Status read(const Json& op) {
    auto type = text(op, "op_type");
    if (!type) return type.status();
    if (*type == "kn_input_op") return define(op, mugraph_.inputs);
    auto operands = known_tensors(op);
    if (!operands) return operands.status();
    if (*type == "kn_output_op") {
      mugraph_.outputs.insert(mugraph_.outputs.end(), operands->begin(), operands->end());
      return {};
    }
    if (*type == "kn_customized_op") return customized(op);
    const OpCode* code = type->starts_with("kn_") ? plain_operator(middle(*type)) : nullptr;
    if (!code || operands->empty()) return unknown(*type);
    MuKernel kernel;
    kernel.code = *code;
    kernel.attrs = attrs_of(*code, mugraph_.tensors[static_cast<size_t>(operands->front())].type.rank());
    kernel.operands = std::move(*operands);
    std::vector<int32_t> results;
    if (Status status = define(op, results); !status.ok()) return status;
    if (results.size() != 1) return invalid("expected one output");
    kernel.result = results[0];
    mugraph_.kernels.push_back(std::move(kernel));
    return {};
  }

  // The outputs of an operator as new tensors.
  Status define(const Json& op, std::vector<int32_t>& ids) {
    auto outputs = list(op, "output_tensors");
    if (!outputs) return outputs.status();
    for (const Json& output : **outputs) {
      auto type = tensor_type(output);
      if (!type) return type.status();
      auto guid = integer(output, "guid");
      if (!guid) return guid.status();
      const int32_t id = static_cast<int32_t>(mugraph_.tensors.size());
      if (!tensors_.emplace(*guid, id).second)
        return invalid("tensor " + std::to_string(*guid) + " is made twice");
      mugraph_.tensors.push_back({"t" + std::to_string(id), std::move(*type)});
      ids.push_back(id);
    }
    return {};
  }

  Result<std::vector<int32_t>> known_tensors(const Json& op) const {
    auto inputs = list(op, "input_tensors");
    if (!inputs) return inputs.status();
    std::vector<int32_t> ids;
    for (const Json& input : **inputs) {
      auto guid = integer(input, "guid");
      if (!guid) return guid.status();
      const auto at = tensors_.find(*guid);
      if (at == tensors_.end()) return invalid("tensor " + std::to_string(*guid) + " is not known");
      ids.push_back(at->second);
    }
    return ids;
  }

  Status customized(const Json& op) {
    std::vector<int32_t> results;
    if (Status status = define(op, results); !status.ok()) return status;
    auto graph = member(op, "bgraph");
    if (!graph) return graph.status();
    auto grid = coordinates(**graph, "grid_dim");
    if (!grid) return grid.status();
    auto block = coordinates(**graph, "block_dim");
    if (!block) return block.status();
    auto trip_count = integer(**graph, "forloop_range");
    if (!trip_count) return trip_count.status();
    auto reduction_dimx = integer(**graph, "reduction_dimx");
    if (!reduction_dimx) return reduction_dimx.status();
    auto operators = list(**graph, "operators");
    if (!operators) return operators.status();
    MuKernel kernel;
    kernel.custom = true;
    kernel.trip_count = *trip_count;
    for (size_t i = 0; i < 3; ++i) kernel.grid[i] = (*grid)[i];
    for (int64_t extent : *block)
      if (extent < 1 || extent > 1024) return invalid("\"block_dim\" is not between 1 and 1024");
    kernel.threads = static_cast<int>((*block)[0] * (*block)[1] * (*block)[2]);
    if (*trip_count < 1 || *trip_count > INT32_MAX) return invalid("\"forloop_range\" is not between 1 and 2^31 - 1");
    BlockReader reader(tensors_, *reduction_dimx, kernel);
    for (size_t i = 0; i < (*operators)->size(); ++i)
      if (Status status = reader.read((**operators)[i]); !status.ok())
        return status.with_context("block operator " + std::to_string(i));
    if (!reader.counts().empty()) counts_[mugraph_.kernels.size()] = reader.counts();
    mugraph_.kernels.push_back(std::move(kernel));
    return {};
  }

  MuGraph mugraph_;
  std::map<int64_t, int32_t> tensors_;           // by guid
  std::map<size_t, std::vector<Count>> counts_;  // by kernel
};

}  // namespace

Result<std::vector<MuGraph>> read_mirage(std::string_view json) {
  const Json graphs = Json::parse(json.begin(), json.end(), nullptr, false);
  if (graphs.is_discarded()) return invalid("this is no JSON text");
  if (!graphs.is_array()) return invalid("expected a list of kernel graphs");
  std::vector<MuGraph> mugraphs;
  for (size_t i = 0; i < graphs.size(); ++i) {
    auto mugraph = Reader("mirage" + std::to_string(i)).run(graphs[i]);
    if (!mugraph) return mugraph.status().with_context("graph " + std::to_string(i));
    mugraphs.push_back(std::move(*mugraph));
  }
  return mugraphs;
}

}  // namespace quern
