#include "core/search/pieces.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/graph/builder.h"
#include "core/search/terms.h"

namespace quern {

namespace {

constexpr double kKernelBytes = 4e6;  // what a kernel costs beside its traffic, as bytes of traffic

bool is_leaf(const Node& node) { return op_info(node.code).kind == OpKind::leaf; }

// Operators that a search may need for one of the program: a softmax over a loop is its definition.
int operators(const Node& node) { return node.code == OpCode::softmax ? 5 : 1; }

double bytes(const Node& node) {
  return static_cast<double>(node.type.element_count()) * static_cast<double>(dtype_size(node.type.dtype));
}

class Cutter {
 public:
  Cutter(const Graph& graph, int bound) : graph_(graph), bound_(bound) {}

  std::vector<Piece> run() {
    find_needed();
    order_nodes();
    choose_segments();
    std::vector<Piece> pieces;
    for (const auto& [first, last] : segments_)
      for (std::vector<ValueId>& nodes : components(first, last))
        pieces.push_back(make_piece(std::move(nodes)));
    return pieces;
  }

 private:
  const Node& node(ValueId id) const { return graph_.node(id); }

  void find_needed() {
    needed_.assign(graph_.nodes.size(), false);
    users_.assign(graph_.nodes.size(), {});
    is_output_.assign(graph_.nodes.size(), false);
    for (ValueId id : graph_.outputs) needed_[id] = is_output_[id] = true;
    for (size_t id = graph_.nodes.size(); id-- > 0;)
      if (needed_[id])
        for (ValueId operand : graph_.nodes[id].operands) {
          needed_[operand] = true;
          users_[operand].push_back(static_cast<ValueId>(id));
        }
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      const bool inner = needed_[id] && !is_leaf(graph_.nodes[id]);
      outside_.push_back(inner ? outside_reason(graph_, static_cast<ValueId>(id)) : "");
    }
  }

  // What is outside the algebra as early as it can run, so that it parts as little as possible; the rest near
  // what it uses.
  void order_nodes() {
    std::vector<int> waits(graph_.nodes.size(), 0);
    std::vector<ValueId> ready;
    auto release = [&](ValueId id) {
      for (ValueId user : users_[id])
        if (--waits[user] == 0) ready.push_back(user);
    };
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      waits[id] = static_cast<int>(graph_.nodes[id].operands.size());
      if (waits[id] == 0 && needed_[id] && !is_leaf(graph_.nodes[id]))
        ready.push_back(static_cast<ValueId>(id));
    }
    for (size_t id = 0; id < graph_.nodes.size(); ++id)
      if (is_leaf(graph_.nodes[id])) release(static_cast<ValueId>(id));
    while (!ready.empty()) {
      // The last one that became ready follows what was just made.
      auto next =
          std::find_if(ready.rbegin(), ready.rend(), [&](ValueId id) { return !outside_[id].empty(); });
      if (next == ready.rend()) next = ready.rbegin();
      const ValueId id = *next;
      ready.erase(std::next(next).base());
      order_.push_back(id);
      release(id);
    }
  }

  // Dynamic programming over where segments of the order end.
  void choose_segments() {
    const size_t count = order_.size();
    std::vector<double> best(count + 1, 1e300);
    std::vector<size_t> from(count + 1, 0);
    best[0] = 0;
    for (size_t first = 0; first < count; ++first) {
      int size = 0;
      for (size_t last = first + 1; last <= count; ++last) {
        const ValueId id = order_[last - 1];
        size += operators(node(id));
        const bool single = last == first + 1;
        if (!single && (size > bound_ || !outside_[id].empty() || !outside_[order_[first]].empty())) break;
        if (!single && !has_terms(first, last)) break;
        const double cost = best[first] + kKernelBytes + traffic(first, last);
        if (cost < best[last]) {
          best[last] = cost;
          from[last] = first;
        }
      }
    }
    for (size_t last = count; last > 0; last = from[last])
      segments_.insert(segments_.begin(), {from[last], last});
  }

  std::vector<ValueId> segment(size_t first, size_t last) const {
    return {order_.begin() + static_cast<std::ptrdiff_t>(first),
            order_.begin() + static_cast<std::ptrdiff_t>(last)};
  }

  bool has_terms(size_t first, size_t last) const {
    return make_terms(make_piece(segment(first, last)).graph).ok();
  }

  double traffic(size_t first, size_t last) const {
    const std::vector<ValueId> nodes = segment(first, last);
    double total = 0;
    for (ValueId id : inputs_of(nodes)) total += bytes(node(id));
    for (ValueId id : outputs_of(nodes)) total += bytes(node(id));
    return total;
  }

  // In the order of first use.
  std::vector<ValueId> inputs_of(const std::vector<ValueId>& nodes) const {
    const std::set<ValueId> inside(nodes.begin(), nodes.end());
    std::vector<ValueId> inputs;
    for (ValueId id : nodes)
      for (ValueId operand : node(id).operands)
        if (!inside.count(operand) && node(operand).code != OpCode::constant &&
            std::find(inputs.begin(), inputs.end(), operand) == inputs.end())
          inputs.push_back(operand);
    return inputs;
  }

  std::vector<ValueId> outputs_of(const std::vector<ValueId>& nodes) const {
    const std::set<ValueId> inside(nodes.begin(), nodes.end());
    std::vector<ValueId> outputs;
    for (ValueId id : nodes)
      if (is_output_[id] || std::any_of(users_[id].begin(), users_[id].end(),
                                        [&](ValueId user) { return !inside.count(user); }))
        outputs.push_back(id);
    return outputs;
  }

  // Nodes of a segment that do not depend on each other are different pieces.
  std::vector<std::vector<ValueId>> components(size_t first, size_t last) const {
    const std::vector<ValueId> nodes = segment(first, last);
    std::map<ValueId, ValueId> parent;
    for (ValueId id : nodes) parent[id] = id;
    auto find = [&](ValueId id) {
      while (parent[id] != id) id = parent[id];
      return id;
    };
    for (ValueId id : nodes)
      for (ValueId operand : node(id).operands)
        if (parent.count(operand)) parent[find(id)] = find(operand);
    std::map<ValueId, std::vector<ValueId>> groups;
    for (ValueId id : nodes) groups[find(id)].push_back(id);
    std::vector<std::vector<ValueId>> result;
    for (auto& [root, group] : groups) result.push_back(std::move(group));
    return result;
  }

  Piece make_piece(std::vector<ValueId> nodes) const {
    Piece piece{std::move(nodes), {}, {}, {}, ""};
    piece.inputs = inputs_of(piece.nodes);
    piece.outputs = outputs_of(piece.nodes);
    if (piece.nodes.size() == 1) piece.outside = outside_[piece.nodes[0]];
    GraphBuilder builder(graph_.name);
    std::map<ValueId, ValueId> became;
    for (ValueId id : piece.inputs) {
      const Node& value = node(id);
      became[id] =
          *builder.add_input(value.name, value.type.dtype, value.type.shape, value.strides, value.is_const);
    }
    for (ValueId id : piece.nodes) {
      std::vector<ValueId> operands;
      for (ValueId operand : node(id).operands) {
        if (!became.count(operand))
          became[operand] =
              *builder.add_constant(node(operand).number, node(operand).type.dtype == DType::i32);
        operands.push_back(became[operand]);
      }
      const Result<ValueId> added = builder.add_op(node(id).code, operands, node(id).attrs, node(id).name);
      check(added.ok(), "an operator of a valid graph is not valid in a piece of it");
      became[id] = *added;
    }
    for (ValueId id : piece.outputs) check(builder.add_output(became[id]).ok(), "a piece has no such output");
    Result<Graph> built = builder.finish();
    check(built.ok(), "a piece of a valid graph is not valid");
    piece.graph = std::move(*built);
    return piece;
  }

  const Graph& graph_;
  const int bound_;
  std::vector<bool> needed_, is_output_;
  std::vector<std::vector<ValueId>> users_;
  std::vector<std::string> outside_;  // by node
  std::vector<ValueId> order_;
  std::vector<std::pair<size_t, size_t>> segments_;  // half open, in order_
};

// A block graph of one block that applies one operator to whole tensors: for operators with constants, which
// are no tensors.
MuKernel one_block(const Graph& graph, const Node& node, const std::vector<int32_t>& tensor_of,
                   int32_t result) {
  MuKernel kernel;
  kernel.custom = true;
  BlockOp apply;
  apply.kind = BlockOp::Kind::compute;
  apply.code = node.code;
  apply.attrs = node.attrs;
  for (ValueId operand : node.operands) {
    BlockOp op;
    if (graph.node(operand).code == OpCode::constant) {
      op.kind = BlockOp::Kind::compute;
      op.number = graph.node(operand).number;
    } else {
      op.tensor = tensor_of[operand];
    }
    apply.operands.push_back(static_cast<BlockValue>(kernel.ops.size()));
    kernel.ops.push_back(std::move(op));
  }
  kernel.ops.push_back(std::move(apply));
  BlockOp store;
  store.kind = BlockOp::Kind::store;
  store.operands = {static_cast<BlockValue>(kernel.ops.size()) - 1};
  store.tensor = result;
  kernel.ops.push_back(std::move(store));
  return kernel;
}

}  // namespace

std::vector<Piece> cut_into_pieces(const Graph& graph, int bound) { return Cutter(graph, bound).run(); }

MuGraph as_library_kernels(const Piece& piece) {
  const Graph& graph = piece.graph;
  MuGraph mugraph;
  mugraph.name = graph.name;
  std::vector<int32_t> tensor_of(graph.nodes.size(), -1);
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.code == OpCode::constant) continue;
    tensor_of[id] = static_cast<int32_t>(mugraph.tensors.size());
    mugraph.tensors.push_back({node.name, node.type});
    if (node.code == OpCode::input) {
      mugraph.inputs.push_back(tensor_of[id]);
      continue;
    }
    MuKernel kernel;
    kernel.code = node.code;
    kernel.attrs = node.attrs;
    kernel.result = tensor_of[id];
    for (ValueId operand : node.operands) kernel.operands.push_back(tensor_of[operand]);
    const bool constants = std::count(kernel.operands.begin(), kernel.operands.end(), -1) > 0;
    mugraph.kernels.push_back(constants ? one_block(graph, node, tensor_of, tensor_of[id])
                                        : std::move(kernel));
  }
  for (ValueId output : graph.outputs) mugraph.outputs.push_back(tensor_of[output]);
  return mugraph;
}

Result<MuGraph> assemble(const Graph& graph, const std::vector<Piece>& pieces,
                         const std::vector<const MuGraph*>& parts) {
  MuGraph whole;
  whole.name = graph.name;
  std::map<ValueId, int32_t> tensor_of;
  std::set<std::string> names;
  auto add_tensor = [&](MuTensor tensor) {
    const std::string name = tensor.name;
    for (int number = 2; !names.insert(tensor.name).second; ++number)
      tensor.name = name + "_" + std::to_string(number);
    whole.tensors.push_back(std::move(tensor));
    return static_cast<int32_t>(whole.tensors.size()) - 1;
  };
  auto tensor_for = [&](ValueId id) {
    const auto [at, is_new] = tensor_of.try_emplace(id, 0);
    if (is_new) at->second = add_tensor({graph.node(id).name, graph.node(id).type});
    return at->second;
  };
  for (ValueId input : graph.inputs) whole.inputs.push_back(tensor_for(input));
  for (const Piece& piece : pieces)
    for (ValueId output : piece.outputs) tensor_for(output);
  for (size_t p = 0; p < pieces.size(); ++p) {
    const MuGraph& part = *parts[p];
    std::vector<int32_t> became(part.tensors.size(), -1);
    for (size_t i = 0; i < part.inputs.size(); ++i) became[part.inputs[i]] = tensor_for(pieces[p].inputs[i]);
    for (size_t i = 0; i < part.outputs.size(); ++i)
      became[part.outputs[i]] = tensor_for(pieces[p].outputs[i]);
    for (size_t t = 0; t < part.tensors.size(); ++t)
      if (became[t] < 0) became[t] = add_tensor(part.tensors[t]);
    for (MuKernel kernel : part.kernels) {
      for (int32_t& operand : kernel.operands) operand = became[operand];
      if (!kernel.custom) kernel.result = became[kernel.result];
      for (BlockOp& op : kernel.ops) {
        if (op.tensor >= 0) op.tensor = became[op.tensor];
        for (TensorDim& dim : op.extents) dim.tensor = became[dim.tensor];
      }
      whole.kernels.push_back(std::move(kernel));
    }
  }
  for (ValueId output : graph.outputs) {
    if (graph.node(output).code == OpCode::constant)
      return Status(ErrorCode::UNSUPPORTED, "an output is a constant");
    whole.outputs.push_back(tensor_for(output));
  }
  if (Status status = validate(whole); !status.ok()) return status;
  return whole;
}

}  // namespace quern
