// Every dimension of every value becomes a variable of a system of extents: dimensions of tiles by the
// operators, tiles and tensors by the maps, tensors and the graph by inputs and outputs. Then both programs
// are built again over the values that are found.
#include "core/mugraph/shrink.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/graph/builder.h"
#include "core/mugraph/block_graph.h"
#include "core/mugraph/graph_extents.h"

namespace quern {

namespace {

using Var = Extents::Var;

class Shrinker {
 public:
  Shrinker(const MuGraph& mugraph, const Graph& graph, bool short_iotas, int64_t terms)
      : mugraph_(mugraph),
        graph_(graph),
        short_iotas_(short_iotas),
        target_(graph_, Dimensions(graph_), Extents::Role::whole, extents_) {
    for (const MuTensor& tensor : mugraph.tensors) {
      tensors_.emplace_back();
      for (int64_t extent : tensor.type.shape)
        tensors_.back().push_back(extents_.add(extent, Extents::Role::whole));
    }
    for (size_t i = 0; i < mugraph.inputs.size(); ++i) connect(target_, graph.inputs[i], mugraph.inputs[i]);
    for (size_t i = 0; i < mugraph.outputs.size(); ++i)
      connect(target_, graph.outputs[i], mugraph.outputs[i]);
    kernel_graphs_.reserve(mugraph.kernels.size());
    kernels_.reserve(mugraph.kernels.size());
    for (const MuKernel& kernel : mugraph.kernels) kernel.custom ? add_block(kernel) : add_operator(kernel);
    extents_.align();
    if (count_alike()) extents_.align();
    std::set<Var> counted = counted_by_mugraph();
    target_.collect_counted(counted);
    // Otherwise the extent is in the values.
    if (!short_iotas)
      for (Var var : counted) extents_.keep(var);
    target_.collect_cuts(counted, cuts_);
    for (const GraphExtents& kernel : kernels_) kernel.collect_cuts(counted, cuts_);
    add_pieces();
    if (terms > 0) target_.prefer_sums(terms);
    extents_.solve();
  }

  Result<Instance> run() const {
    Instance instance;
    Status status = build_mugraph(instance.mugraph);
    if (status.ok()) status = build_graph(instance.graph);
    if (status.ok() && short_iotas_) make_inputs_of_iotas(instance);
    if (status.ok()) return instance;
    return Status(ErrorCode::UNSUPPORTED, "no small instance: " + status.message());
  }

 private:
  // ---- the system ----

  // What the iotas of the muGraph count.
  std::set<Var> counted_by_mugraph() const {
    std::set<Var> counted;
    for (const GraphExtents& kernel : kernels_) kernel.collect_counted(counted);
    return counted;
  }

  // Dimensions of the muGraph that iotas count, and that nothing connects with the graph's, are counted there as well. Whether
  // any became one of the graph's: the one of its extent, and of several rather one that the muGraph does not count yet.
  bool count_alike() {
    std::set<Var> of_graph;
    target_.collect_counted(of_graph);
    const std::set<Var> of_mugraph = counted_by_mugraph();
    bool changed = false;
    for (Var var : of_mugraph) {
      if (of_graph.count(var)) continue;
      std::optional<Var> best;
      for (Var own : of_graph)
        if (extents_.original(own) == extents_.original(var) &&
            (!best || (of_mugraph.count(*best) && !of_mugraph.count(own))))
          best = own;
      if (best) extents_.equal(var, *best);
      changed |= best.has_value();
    }
    return changed;
  }

  void connect(const GraphExtents& values, ValueId value, int32_t tensor) {
    for (size_t d = 0; d < tensors_[static_cast<size_t>(tensor)].size(); ++d)
      extents_.equal(values.var(value, d), tensors_[static_cast<size_t>(tensor)][d]);
  }

  void add_operator(const MuKernel& kernel) {
    kernel_graphs_.push_back(operator_graph(mugraph_, kernel));
    axes_.emplace_back();
    uneven_.emplace_back();
    const Graph& graph = kernel_graphs_.back();
    kernels_.emplace_back(graph, Dimensions(graph), Extents::Role::whole, extents_);
    for (size_t i = 0; i < kernel.operands.size(); ++i)
      connect(kernels_.back(), static_cast<ValueId>(i), kernel.operands[i]);
    connect(kernels_.back(), static_cast<ValueId>(kernel.operands.size()), kernel.result);
  }

  void add_block(const MuKernel& kernel) {
    kernel_graphs_.push_back(block_graph(mugraph_, kernel));
    const Graph& graph = kernel_graphs_.back();
    kernels_.emplace_back(graph, block_dimensions(kernel, graph), Extents::Role::tile, extents_);
    axes_.emplace_back();
    uneven_.emplace_back();
    for (int64_t extent : kernel.grid) axes_.back().push_back(extents_.add(extent, Extents::Role::axis));
    axes_.back().push_back(extents_.add(kernel.trip_count, Extents::Role::axis));
    for (size_t i = 0; i < kernel.ops.size(); ++i) {
      const BlockOp& op = kernel.ops[i];
      if (op.has_access()) add_access(kernel, op.access(), static_cast<ValueId>(i));
      if (op.is_accumulate(Combine::concat)) {
        const Var joined = kernels_.back().var(static_cast<ValueId>(i), static_cast<size_t>(op.concat_dim()));
        const Var tile = kernels_.back().var(op.operands[0], static_cast<size_t>(op.concat_dim()));
        extents_.follows("iterations", {tile, axes_.back().back()}, joined);
        extents_.product({joined}, {tile, axes_.back().back()});
      }
    }
  }

  // The last kernel's operator `id` loads or stores. Axes cut one after the other what the ones before have left.
  void add_access(const MuKernel& kernel, const BlockOp::Access& access, ValueId id) {
    const std::vector<Var>& whole = tensors_[static_cast<size_t>(access.tensor)];
    for (size_t d = 0; d < whole.size(); ++d) {
      std::vector<size_t> cutting;
      for (size_t axis = 0; axis <= kGridAxes; ++axis)
        if ((axis < kGridAxes ? access.map[axis] : access.loop_dim) == static_cast<int>(d))
          cutting.push_back(axis);
      const Var tile = kernels_.back().var(id, d);
      Var left = whole[d];
      for (const size_t axis : cutting) {
        const Var part = axis == cutting.back()
                             ? tile
                             : extents_.add(kernel.part(static_cast<int>(axis), extents_.original(left)),
                                            Extents::Role::whole);
        if (!extents_.cut(left, axes_.back()[axis], part)) note_uneven(axis, part);
        left = part;
      }
      if (cutting.empty()) extents_.equal(tile, whole[d]);
    }
  }

  // Tiles of an axis that are not as even as they could be are one number of the kernel.
  void note_uneven(size_t axis, Var tile) {
    std::optional<Var>& known = uneven_.back()[axis];
    if (known) extents_.equal(*known, tile);
    known = tile;
  }

  // The pieces between the positions at which slices cut are variables, too.
  void add_pieces() {
    for (auto& [whole, cuts] : cuts_) {
      cuts.insert(0);
      cuts.insert(extents_.original(whole));
      std::vector<Var> pieces;
      for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at)
        pieces.push_back(extents_.add(*std::next(at) - *at, Extents::Role::whole));
      extents_.sum(whole, pieces);
      pieces_[whole] = std::move(pieces);
    }
    relate_parts(target_, graph_);
    for (size_t k = 0; k < kernels_.size(); ++k) relate_parts(kernels_[k], kernel_graphs_[k]);
  }

  // Slices and the operands of concatenations have pieces of the whole.
  void relate_parts(const GraphExtents& values, const Graph& graph) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const auto id = static_cast<ValueId>(i);
      const Node& node = graph.node(id);
      if (node.code == OpCode::slice)
        for (size_t d = 0; d < node.type.shape.size(); ++d)
          if (!is_whole(graph, node, d) && (*node.attrs.step)[d] == 1)
            relate_part(values.var(node.operands[0], d), (*node.attrs.start)[d], (*node.attrs.stop)[d],
                        values.var(id, d));
      if (node.code != OpCode::concat || !cuts_.count(extents_.root(values.axis(id)))) continue;
      const size_t axis = static_cast<size_t>(node.attrs.axis->front());
      int64_t start = 0;
      for (ValueId operand : node.operands) {
        const int64_t stop = start + graph.node(operand).type.shape[axis];
        relate_part(values.axis(id), start, stop, values.var(operand, axis));
        start = stop;
      }
    }
  }

  // Nothing, where no cut is known at its ends.
  void relate_part(Var whole, int64_t start, int64_t stop, Var part) {
    const std::set<int64_t>& cuts = cuts_.at(extents_.root(whole));
    if (!cuts.count(start) || !cuts.count(stop)) return;
    std::vector<Var> kept;
    size_t piece = 0;
    for (int64_t at : cuts) {
      if (at >= start && at < stop) kept.push_back(pieces_.at(extents_.root(whole))[piece]);
      ++piece;
    }
    extents_.sum(part, std::move(kept));
  }

  // Where position `at`, at which a dimension is cut, comes to lie.
  int64_t moved(Var whole, int64_t at) const {
    int64_t position = 0;
    size_t piece = 0;
    for (int64_t cut : cuts_.at(extents_.root(whole))) {
      if (cut >= at) break;
      position += extents_.value(pieces_.at(extents_.root(whole))[piece++]);
    }
    return position;
  }

  // ---- the small programs ----

  Attrs new_attrs(const Graph& graph, const GraphExtents& values, ValueId id) const {
    const Node& node = graph.node(id);
    Attrs attrs = node.attrs;
    if (attrs.shape) attrs.shape = values.shape(id);
    if (node.code != OpCode::slice) return attrs;
    for (size_t d = 0; d < node.type.shape.size(); ++d) {
      const Var whole = values.var(node.operands[0], d);
      if (is_whole(graph, node, d) || keeps_one_a_step(graph, node, d)) {
        (*attrs.stop)[d] = extents_.value(whole);
      } else {
        (*attrs.start)[d] = moved(whole, (*attrs.start)[d]);
        (*attrs.stop)[d] = moved(whole, (*attrs.stop)[d]);
      }
    }
    return attrs;
  }

  Status build_mugraph(MuGraph& mugraph) const {
    mugraph = mugraph_;
    for (size_t t = 0; t < tensors_.size(); ++t)
      for (size_t d = 0; d < tensors_[t].size(); ++d)
        mugraph.tensors[t].type.shape[d] = extents_.value(tensors_[t][d]);
    for (size_t k = 0; k < kernels_.size(); ++k) {
      MuKernel& kernel = mugraph.kernels[k];
      const GraphExtents& values = kernels_[k];
      if (!kernel.custom) {
        kernel.attrs = new_attrs(kernel_graphs_[k], values, static_cast<ValueId>(kernel.operands.size()));
        continue;
      }
      for (size_t axis = 0; axis < kGridAxes; ++axis) kernel.grid[axis] = extents_.value(axes_[k][axis]);
      kernel.trip_count = extents_.value(axes_[k].back());
      for (size_t axis = 0; axis <= kGridAxes; ++axis)
        kernel.tiles[axis] = uneven_[k][axis] ? extents_.value(*uneven_[k][axis]) : 0;
      for (size_t i = 0; i < kernel.ops.size(); ++i)
        if (kernel.ops[i].is_compute())
          kernel.ops[i].compute().attrs = new_attrs(kernel_graphs_[k], values, static_cast<ValueId>(i));
    }
    if (Status status = validate(mugraph); !status.ok()) return status;
    for (size_t k = 0; k < kernels_.size(); ++k)
      for (size_t i = 0; i < mugraph.kernels[k].ops.size(); ++i)
        if (mugraph.kernels[k].ops[i].type.shape != kernels_[k].shape(static_cast<ValueId>(i)))
          return Status(
              ErrorCode::UNSUPPORTED,
              "the tiles of kernel " + std::to_string(k) + ", operator " + std::to_string(i) +
                  " do not follow from the tensors: " + print_ints(mugraph.kernels[k].ops[i].type.shape) +
                  " instead of " + print_ints(kernels_[k].shape(static_cast<ValueId>(i))));
    return {};
  }

  Status build_graph(Graph& graph) const {
    GraphBuilder builder(graph_.name);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const ValueId id = static_cast<ValueId>(i);
      const Node& old = graph_.node(id);
      Result<ValueId> added =
          old.code == OpCode::constant ? builder.add_constant(old.number, old.type.dtype == DType::i32)
          : old.code == OpCode::input
              ? builder.add_input(old.name, old.type.dtype, target_.shape(id), {}, old.is_const)
              : builder.add_op(old.code, old.operands, new_attrs(graph_, target_, id), old.name);
      if (!added) return added.status().with_context("\"" + old.name + "\"");
      if (builder.graph().node(id).type.shape != target_.shape(id))
        return Status(ErrorCode::UNSUPPORTED,
                      "the shape of \"" + old.name + "\" does not follow from its operands");
    }
    for (ValueId output : graph_.outputs)
      if (Status status = builder.add_output(output); !status.ok()) return status;
    auto built = builder.finish();
    if (built) graph = std::move(*built);
    return built ? Status() : built.status();
  }

  // ---- iotas ----

  ShortIotas::Cuts cuts_of(Var axis) const {
    const auto known = cuts_.find(extents_.root(axis));
    if (known == cuts_.end()) return {{0, extents_.original(axis)}, {0, extents_.value(axis)}};
    ShortIotas::Cuts cuts;
    for (int64_t at : known->second) {
      cuts.before.push_back(at);
      cuts.now.push_back(moved(axis, at));
    }
    return cuts;
  }

  void make_inputs_of_iotas(Instance& instance) const {
    Graph& graph = instance.graph;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      Node& node = graph.nodes[i];
      if (node.code != OpCode::iota || *node.attrs.shape == *graph_.nodes[i].attrs.shape) continue;
      instance.graph_iotas.add(node.attrs, cuts_of(target_.axis(static_cast<ValueId>(i))));
      node.code = OpCode::input;
      node.attrs = {};
      node.strides = dense_strides(node.type.shape);
      graph.inputs.push_back(static_cast<ValueId>(i));
    }
    for (size_t k = 0; k < kernels_.size(); ++k) make_inputs_of_iotas(k, instance);
  }

  void make_inputs_of_iotas(size_t k, Instance& instance) const {
    MuGraph& mugraph = instance.mugraph;
    auto input_of = [&](const Attrs& iota, ValueId id, const TensorType& type) {
      instance.mugraph_iotas.add(iota, cuts_of(kernels_[k].axis(id)));
      const auto tensor = static_cast<int32_t>(mugraph.tensors.size());
      mugraph.tensors.push_back({"iota" + std::to_string(tensor), type});
      mugraph.inputs.push_back(tensor);
      return tensor;
    };
    MuKernel& kernel = mugraph.kernels[k];
    const MuKernel& before = mugraph_.kernels[k];
    if (!kernel.custom && kernel.code == OpCode::iota && *kernel.attrs.shape != *before.attrs.shape) {
      const TensorType type = mugraph.tensors[static_cast<size_t>(kernel.result)].type;
      kernel.operands = {input_of(kernel.attrs, 0, type)};
      kernel.code = OpCode::reshape;
      kernel.attrs = {};
      kernel.attrs.shape = type.shape;
    }
    for (size_t i = 0; i < kernel.ops.size(); ++i) {
      BlockOp& op = kernel.ops[i];
      if (op.is_compute(OpCode::iota) && *op.attrs().shape != *before.ops[i].attrs().shape)
        op.become(BlockOp::Load{{input_of(op.attrs(), static_cast<ValueId>(i), op.type)}});
    }
  }

  const MuGraph& mugraph_;
  const Graph& graph_;
  const bool short_iotas_;
  Extents extents_;
  GraphExtents target_;
  std::vector<std::vector<Var>> tensors_;  // by tensor and dimension
  std::vector<Graph> kernel_graphs_;
  std::vector<GraphExtents> kernels_;
  std::vector<std::vector<Var>> axes_;  // by kernel: x, y, z, cluster, loop
  // And the tiles of these that are not even.
  std::vector<std::array<std::optional<Var>, kGridAxes + 1>> uneven_;
  std::map<Var, std::set<int64_t>> cuts_;
  std::map<Var, std::vector<Var>> pieces_;
};

double elements(const Graph& graph, const Node& node) {
  double count = static_cast<double>(node.type.element_count());
  if (node.code == OpCode::matmul)
    return count * static_cast<double>(graph.node(node.operands[0]).type.shape.back());
  for (ValueId operand : node.operands)
    count = std::max(count, static_cast<double>(graph.node(operand).type.element_count()));
  return count;
}

}  // namespace

Result<Instance> shrink(const MuGraph& mugraph, const Graph& graph, bool short_iotas, int64_t terms) {
  auto shapes_agree = [&](const std::vector<ValueId>& values, const std::vector<int32_t>& tensors) {
    return std::equal(
        values.begin(), values.end(), tensors.begin(), tensors.end(), [&](ValueId value, int32_t tensor) {
          return graph.node(value).type.shape == mugraph.tensors[static_cast<size_t>(tensor)].type.shape;
        });
  };
  if (!shapes_agree(graph.inputs, mugraph.inputs) || !shapes_agree(graph.outputs, mugraph.outputs))
    return Status(ErrorCode::UNSUPPORTED,
                  "no small instance: inputs or outputs of graph and muGraph have different shapes");
  return Shrinker(mugraph, graph, short_iotas, terms).run();
}

double work(const MuGraph& mugraph) {
  double total = 0;
  for (const MuKernel& kernel : mugraph.kernels) {
    const Graph graph = kernel.custom ? block_graph(mugraph, kernel) : operator_graph(mugraph, kernel);
    const std::vector<Stage> stages = kernel.custom ? block_stages(kernel) : std::vector<Stage>();
    double blocks = 1;
    for (int64_t extent : kernel.grid) blocks *= static_cast<double>(extent);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const bool every_turn = kernel.custom && (stages[i] == Stage::loop || kernel.ops[i].is_accumulate());
      total += elements(graph, graph.nodes[i]) * blocks *
               (every_turn ? static_cast<double>(kernel.trip_count) : 1);
    }
  }
  return total;
}

}  // namespace quern
