// Evaluates single elements of what a muGraph writes: of each block and iteration only what these elements
// depend on. Agrees with evaluate_mugraph wherever that succeeds.
#pragma once

#include <map>
#include <memory>

#include "core/base/integers.h"
#include "core/graph/decompose.h"
#include "core/mugraph/block_graph.h"
#include "core/verify/pull.h"

namespace quern {

template <class Domain>
class PullMuGraph {
 public:
  using Value = typename Domain::Value;
  // `count` elements of an input, from an offset on in steps.
  using Input = std::function<void(size_t input, int64_t at, int64_t step, int64_t count, Value* to)>;

  // A valid muGraph.
  PullMuGraph(const MuGraph& mugraph, Domain& domain, PullBudget& budget, Input input)
      : mugraph_(mugraph),
        domain_(domain),
        budget_(budget),
        input_(std::move(input)),
        writer_(mugraph.tensors.size(), {-1, -1}),
        library_(mugraph.kernels.size()),
        contexts_(mugraph.kernels.size()) {
    for (size_t i = 0; i < mugraph.inputs.size(); ++i)
      writer_[static_cast<size_t>(mugraph.inputs[i])] = {-1, static_cast<int>(i)};
    for (size_t k = 0; k < mugraph.kernels.size(); ++k) {
      const MuKernel& kernel = mugraph.kernels[k];
      stages_.push_back(kernel.custom ? block_stages(kernel) : std::vector<Stage>());
      if (!kernel.custom) writer_[static_cast<size_t>(kernel.result)] = {static_cast<int>(k), -1};
      for (size_t i = 0; i < kernel.ops.size(); ++i)
        if (kernel.ops[i].is_store())
          writer_[static_cast<size_t>(kernel.ops[i].tensor())] = {static_cast<int>(k), static_cast<int>(i)};
    }
  }

  // Zero, and failure() not OK, when tiles do not fit together.
  Value output(size_t index, int64_t at) { return tensor(mugraph_.outputs[index], at); }
  const Status& failure() const { return failure_; }

 private:
  static constexpr int64_t kOutside = -1;  // the iteration of what is before or after the loop
  using Place = std::array<int64_t, kGridAxes>;

  // Where a tile lies in its tensor.
  struct Tile {
    int64_t first = 0;
    Ints shape, strides;  // of the tile
    Ints whole;           // strides of the tensor
  };
  // The block graph over tiles of certain shapes, in the loop or outside.
  struct Form {
    Graph graph;                 // decomposed
    std::vector<ValueId> nodes;  // by block operator
    std::vector<int> ops;        // by node of the graph; -1 inside a definition
    std::vector<Ints> shapes;    // by block operator
  };
  // The tiles that one block sees in one iteration.
  struct Context {
    const Form* form = nullptr;
    std::vector<Tile> loads;  // by block operator
    std::unique_ptr<PullEvaluator<Domain>> values;
    std::map<std::pair<size_t, int64_t>, Value> folded;  // accumulators, by operator and offset
  };

  Value fail(Status status) {
    if (failure_.ok()) failure_ = std::move(status);
    budget_.left = -1;
    return domain_.zero(DType::f32);
  }

  // ---- tensors ----

  Value tensor(int32_t id, int64_t at) {
    const auto [k, store] = writer_[static_cast<size_t>(id)];
    if (k < 0) {
      Value value;
      input_(static_cast<size_t>(store), at, 0, 1, &value);
      return value;
    }
    const MuKernel& kernel = mugraph_.kernels[static_cast<size_t>(k)];
    if (!kernel.custom) {
      PullEvaluator<Domain>& values = library(static_cast<size_t>(k));
      const Graph& graph = library_[static_cast<size_t>(k)]->graph;
      return domain_.store(values.element(graph.outputs[0], at), graph.node(graph.outputs[0]).type.dtype,
                           mugraph_.tensors[static_cast<size_t>(id)].type.dtype);
    }
    return stored(static_cast<size_t>(k), kernel.ops[static_cast<size_t>(store)], at);
  }

  void tensor_run(int32_t id, int64_t at, int64_t step, int64_t count, Value* to) {
    const auto [k, input] = writer_[static_cast<size_t>(id)];
    if (k < 0) return input_(static_cast<size_t>(input), at, step, count, to);
    for (int64_t i = 0; i < count; ++i) to[i] = tensor(id, at + i * step);
  }

  struct Library {
    Graph graph;
    std::unique_ptr<PullEvaluator<Domain>> values;
  };

  PullEvaluator<Domain>& library(size_t k) {
    std::unique_ptr<Library>& made = library_[k];
    if (made) return *made->values;
    made = std::make_unique<Library>();
    const MuKernel& kernel = mugraph_.kernels[k];
    made->graph = decompose(operator_graph(mugraph_, kernel));
    made->values = std::make_unique<PullEvaluator<Domain>>(
        made->graph, domain_, budget_,
        [this, &kernel](ValueId node, int64_t at, int64_t step, int64_t count, Value* to) {
          tensor_run(kernel.operands[static_cast<size_t>(node)], at, step, count, to);
        });
    return *made->values;
  }

  // The element that some block has stored at `at`.
  Value stored(size_t k, const BlockOp& store, int64_t at) {
    const MuKernel& kernel = mugraph_.kernels[k];
    const Ints& shape = mugraph_.tensors[static_cast<size_t>(store.tensor())].type.shape;
    const Ints dense = dense_strides(shape);
    Place place = {0, 0, 0, 0};
    int64_t iteration = kOutside;
    Ints inside;  // the tile
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t position = at / dense[d], tile = shape[d];
      at %= dense[d];
      for (int axis = 0; axis <= kGridAxes; ++axis) {
        if (!cuts(store, axis, static_cast<int>(d))) continue;
        tile = kernel.part(axis, tile);
        (axis < kGridAxes ? place[static_cast<size_t>(axis)] : iteration) = position / tile;
        position %= tile;
      }
      inside.push_back(position);
    }
    const Context& context = this->context(k, place, iteration);
    const Ints& tile = context.form->shapes[static_cast<size_t>(store.operands[0])];
    const Ints strides = dense_strides(tile);
    int64_t offset = 0;
    for (size_t d = 0; d < tile.size(); ++d) {
      if (inside[d] >= tile[d])
        return fail(Status(ErrorCode::INVALID_GRAPH, "a tile is shorter than its place"));
      offset += inside[d] * strides[d];
    }
    return domain_.store(value(k, place, iteration, store.operands[0], offset),
                         context.form->graph.node(context.form->nodes[store.operands[0]]).type.dtype,
                         mugraph_.tensors[static_cast<size_t>(store.tensor())].type.dtype);
  }

  // ---- values of a block ----

  Ints load_shape(const MuKernel& kernel, const BlockOp& op, const Place& place, int64_t iteration,
                  Tile& tile) const {
    const Ints& whole = mugraph_.tensors[static_cast<size_t>(op.tensor())].type.shape;
    tile.whole = dense_strides(whole);
    Ints shape;
    const Coordinates at = coordinates_of(place, std::max<int64_t>(iteration, 0));
    for (size_t d = 0; d < whole.size(); ++d) {
      const Interval interval = tile_interval(kernel, op, static_cast<int>(d), whole[d], at);
      shape.push_back(interval.size());
      tile.first += interval.first * tile.whole[d];
    }
    tile.strides = dense_strides(shape);
    tile.shape = shape;
    return shape;
  }

  Context& context(size_t k, const Place& place, int64_t iteration) {
    // Most questions are about the context of the one before.
    if (last_.context && last_.kernel == k && last_.iteration == iteration && last_.place == place)
      return *last_.context;
    std::unique_ptr<Context>& known = contexts_[k][{place, iteration}];
    if (!known) make_context(k, place, iteration, known);
    last_ = {k, place, iteration, known.get()};
    return *known;
  }

  void make_context(size_t k, const Place& place, int64_t iteration, std::unique_ptr<Context>& made) {
    made = std::make_unique<Context>();
    Context& context = *made;
    const MuKernel& kernel = mugraph_.kernels[k];
    context.loads.resize(kernel.ops.size());
    std::vector<Ints> given(kernel.ops.size());  // shapes that follow from the place
    for (size_t i = 0; i < kernel.ops.size(); ++i) {
      const BlockOp& op = kernel.ops[i];
      if (op.is_load())
        given[i] = load_shape(kernel, op, place, iteration, context.loads[i]);
      else if (op.is_accumulate(Combine::concat) && iteration < 0)
        given[i] = {concat_extent(k, place, op)};
    }
    const auto [known, is_new] = forms_.try_emplace({k, iteration < 0, std::move(given)});
    if (is_new) known->second = make_form(k, iteration, std::get<2>(known->first));
    const Form* form = context.form = known->second.get();
    context.values = std::make_unique<PullEvaluator<Domain>>(
        form->graph, domain_, budget_,
        [this, k, place, iteration, &context](ValueId node, int64_t at, int64_t step, int64_t count, Value* to) {
          const size_t i = static_cast<size_t>(context.form->ops[static_cast<size_t>(node)]);
          const BlockOp& op = mugraph_.kernels[k].ops[i];
          if (op.is_load()) return loaded(context.loads[i], op.tensor(), at, step, count, to);
          for (int64_t e = 0; e < count; ++e) to[e] = source(k, place, iteration, i, at + e * step);
        });
  }

  // `given`: the shape of every load, and the extent along which every concatenation outside of the loop
  // grows.
  std::unique_ptr<Form> make_form(size_t k, int64_t iteration, const std::vector<Ints>& given) {
    const MuKernel& kernel = mugraph_.kernels[k];
    Graph graph = block_graph(mugraph_, kernel);
    for (size_t i = 0; i < kernel.ops.size(); ++i) {
      const BlockOp& op = kernel.ops[i];
      Node& node = graph.nodes[i];
      if (op.is_load()) {
        node.type.shape = given[i];
      } else if (op.is_compute()) {
        if (op.code() == OpCode::constant) continue;
        if (!op.operands.empty())
          node.attrs =
              attrs_for_tile(kernel, op, graph.nodes[static_cast<size_t>(op.operands[0])].type.shape);
        compute_node(graph, node, iteration, stages_[k][i]);
      } else {
        node.type.shape = graph.nodes[static_cast<size_t>(op.operands[0])].type.shape;
        if (!given[i].empty()) node.type.shape[static_cast<size_t>(op.concat_dim())] = given[i][0];
      }
    }
    auto form = std::make_unique<Form>();
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      graph.outputs.push_back(static_cast<ValueId>(i));
      form->shapes.push_back(graph.nodes[i].type.shape);
    }
    form->graph = decompose(graph);
    form->nodes = form->graph.outputs;
    form->ops.assign(form->graph.nodes.size(), -1);
    for (size_t i = 0; i < form->nodes.size(); ++i)
      form->ops[static_cast<size_t>(form->nodes[i])] = static_cast<int>(i);
    return form;
  }

  // An operator over the tiles of this context; what lives outside of the loop is an input of an iteration.
  void compute_node(const Graph& graph, Node& node, int64_t iteration, Stage stage) {
    bool inside = iteration < 0 || stage == Stage::loop;
    if (inside || stage == Stage::before) {
      auto type = infer_type(node.code, graph.operand_types(node), node.attrs);
      if (type) {
        node.type = std::move(*type);
      } else {
        fail(type.status());
        inside = false;
      }
    }
    if (inside) return;
    node.code = OpCode::input;
    node.operands.clear();
  }

  int64_t concat_extent(size_t k, const Place& place, const BlockOp& op) {
    int64_t extent = 0;
    for (int64_t iteration = 0; iteration < mugraph_.kernels[k].trip_count; ++iteration)
      extent += context(k, place, iteration)
                    .form->shapes[static_cast<size_t>(op.operands[0])][static_cast<size_t>(op.concat_dim())];
    return extent;
  }

  // An operator's value where it lives: in this iteration, or outside of the loop.
  Value value(size_t k, const Place& place, int64_t iteration, BlockValue id, int64_t at) {
    const size_t i = static_cast<size_t>(id);
    if (budget_.spent()) return domain_.zero(DType::f32);
    if (stages_[k][i] != Stage::loop) iteration = kOutside;
    Context& context = this->context(k, place, iteration);
    return context.values->element(context.form->nodes[i], at);
  }

  // What is no operator over the tiles of this context.
  Value source(size_t k, const Place& place, int64_t iteration, size_t i, int64_t at) {
    const MuKernel& kernel = mugraph_.kernels[k];
    const BlockOp& op = kernel.ops[i];
    if (budget_.spent()) return domain_.zero(DType::f32);
    if (op.is_accumulate(Combine::max)) {
      if (iteration < 0) return running_max(k, place, i, kernel.trip_count - 1, at);
      return domain_.frame(running_max(k, place, i, iteration, at));
    }
    if (iteration >= 0) return value(k, place, kOutside, static_cast<BlockValue>(i), at);
    auto& folded = context(k, place, iteration).folded;
    if (const auto known = folded.find({i, at}); known != folded.end()) return known->second;
    budget_.spend(1);
    const Value result = op.is_reduce_cluster() ? reduced(k, place, op, at) : accumulated(k, place, op, at);
    folded.emplace(std::pair{i, at}, result);
    return result;
  }

  void loaded(const Tile& tile, int32_t from, int64_t at, int64_t step, int64_t count, Value* to) {
    int64_t offset = tile.first, rest = at;
    size_t along = tile.shape.size();  // the dimension along which the steps go
    for (size_t d = 0; d < tile.whole.size(); ++d) {
      const int64_t position = rest / tile.strides[d];
      offset += position * tile.whole[d];
      rest %= tile.strides[d];
      if (step > 0 && step % tile.strides[d] == 0 &&
          position + (count - 1) * (step / tile.strides[d]) < tile.shape[d])
        along = std::min(along, d);
    }
    if (count == 1) return tensor_run(from, offset, 0, 1, to);
    if (along < tile.shape.size())
      return tensor_run(from, offset, step / tile.strides[along] * tile.whole[along], count, to);
    for (int64_t i = 0; i < count; ++i) loaded(tile, from, at + i * step, 0, 1, to + i);
  }

  // The maximum of iterations 0 to `iteration`.
  Value running_max(size_t k, const Place& place, size_t i, int64_t iteration, int64_t at) {
    const BlockOp& op = mugraph_.kernels[k].ops[i];
    Context& context = this->context(k, place, iteration);
    if (const auto known = context.folded.find({i, at}); known != context.folded.end()) return known->second;
    budget_.spend(1);
    Value result = value(k, place, iteration, op.operands[0], at);
    if (iteration > 0 && !budget_.spent())
      result = domain_.combine(OpCode::reduce_max, running_max(k, place, i, iteration - 1, at), result,
                               compute_class(op.type.dtype));
    context.folded.emplace(std::pair{i, at}, result);
    return result;
  }

  // Where an element of a tile reads a tile that broadcasts to it.
  int64_t broadcast_offset(const Ints& from, const Ints& shape, int64_t at) const {
    const Ints dense = dense_strides(shape), strides = internal::broadcast_strides(from, shape);
    int64_t offset = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      offset += at / dense[d] * strides[d];
      at %= dense[d];
    }
    return offset;
  }

  Value accumulated(size_t k, const Place& place, const BlockOp& op, int64_t at) {
    const MuKernel& kernel = mugraph_.kernels[k];
    const DType compute = compute_class(op.type.dtype);
    if (op.combine() == Combine::concat) return concatenated(k, place, op, at);
    const bool rescaled = op.combine() == Combine::rescaled_sum;
    const size_t shift = rescaled ? static_cast<size_t>(op.operands[1]) : 0;
    Value total = domain_.zero(compute);
    for (int64_t iteration = 0; iteration < kernel.trip_count && !budget_.spent(); ++iteration) {
      const Value next = value(k, place, iteration, op.operands[0], at);
      if (iteration > 0 && rescaled) {
        const std::vector<Ints>& shapes = context(k, place, iteration).form->shapes;
        const int64_t from = broadcast_offset(shapes[shift], shapes[static_cast<size_t>(op.operands[0])], at);
        total = domain_.rescale(total, running_max(k, place, shift, iteration - 1, from),
                                running_max(k, place, shift, iteration, from));
      }
      total = iteration == 0 ? next : domain_.combine(reduction_of(op.combine()), total, next, compute);
    }
    return total;
  }

  Value concatenated(size_t k, const Place& place, const BlockOp& op, int64_t at) {
    const MuKernel& kernel = mugraph_.kernels[k];
    const size_t axis = static_cast<size_t>(op.concat_dim());
    const size_t self = static_cast<size_t>(&op - kernel.ops.data());
    const Ints whole = dense_strides(context(k, place, kOutside).form->shapes[self]);
    Ints position;
    for (int64_t stride : whole) {
      position.push_back(at / stride);
      at %= stride;
    }
    for (int64_t iteration = 0; iteration < kernel.trip_count; ++iteration) {
      const Ints& shape = context(k, place, iteration).form->shapes[static_cast<size_t>(op.operands[0])];
      if (position[axis] >= shape[axis]) {
        position[axis] -= shape[axis];
        continue;
      }
      const Ints strides = dense_strides(shape);
      int64_t offset = 0;
      for (size_t d = 0; d < shape.size(); ++d) offset += position[d] * strides[d];
      return value(k, place, iteration, op.operands[0], offset);
    }
    return fail(Status(ErrorCode::INVALID_GRAPH, "a position lies outside of the iterations"));
  }

  Value reduced(size_t k, const Place& place, const BlockOp& op, int64_t at) {
    const MuKernel& kernel = mugraph_.kernels[k];
    const DType compute = compute_class(op.type.dtype);
    auto member = [&](int64_t rank) { return Place{place[0], place[1], place[2], rank}; };
    Value shift = domain_.identity(OpCode::reduce_max, compute);
    int64_t from = 0;
    if (op.combine() == Combine::rescaled_sum) {
      const std::vector<Ints>& shapes = context(k, place, kOutside).form->shapes;
      from = broadcast_offset(shapes[static_cast<size_t>(op.operands[1])],
                              shapes[static_cast<size_t>(op.operands[0])], at);
      for (int64_t rank = 0; rank < kernel.grid[3] && !budget_.spent(); ++rank) {
        const Value local = value(k, member(rank), kOutside, op.operands[1], from);
        shift = rank == 0 ? local : domain_.combine(OpCode::reduce_max, shift, local, compute);
      }
    }
    Value total = domain_.zero(compute);
    for (int64_t rank = 0; rank < kernel.grid[3] && !budget_.spent(); ++rank) {
      Value next = value(k, member(rank), kOutside, op.operands[0], at);
      if (op.combine() == Combine::rescaled_sum)
        next = domain_.rescale(next, value(k, member(rank), kOutside, op.operands[1], from), shift);
      total = rank == 0 ? next : domain_.combine(reduction_of(op.combine()), total, next, compute);
    }
    return total;
  }

  const MuGraph& mugraph_;
  Domain& domain_;
  PullBudget& budget_;
  Input input_;
  Status failure_;
  std::vector<std::pair<int, int>> writer_;  // by tensor: kernel and its store; -1 and the input
  std::vector<std::vector<Stage>> stages_;   // by kernel
  std::vector<std::unique_ptr<Library>> library_;
  // By kernel, whether outside of the loop, and what make_form is given.
  std::map<std::tuple<size_t, bool, std::vector<Ints>>, std::unique_ptr<Form>> forms_;
  std::vector<std::map<std::pair<Place, int64_t>, std::unique_ptr<Context>>> contexts_;  // by kernel
  struct {
    size_t kernel = 0;
    Place place{};
    int64_t iteration = 0;
    Context* context = nullptr;
  } last_;
};

}  // namespace quern
