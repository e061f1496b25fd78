// Evaluates a muGraph block by block, tile by tile and iteration by iteration, over any domain of evaluate.h:
// what its kernels would compute, including maps that do not fit, edges that are ragged, and accumulators.
//
// Besides what evaluate.h asks for, a Domain has
//   Value rescale(Value sum, Value old_shift, Value new_shift)    sum * exp(old_shift - new_shift); sum if
//   the shifts are equal, 0 if there was no shift yet
//   Value frame(Value shift)                                      what the loop reads of a running maximum:
//   0 while it is -inf
//   Value store(Value value, DType from, DType to)                a value of `from` in a tensor of `to`; what
//   is a float in both is not rounded
// and, if operators are not all alike to it (KernelDomain),
//   void enter(size_t kernel)                                     what follows is computed in this kernel
//   std::vector<Stage> stages()                                   of its operators
//   std::optional<Tile> compute(size_t op, values)                an operator of it, from the block's tiles;
//   nothing leaves it to apply()
//   Value stored(Value, DType)                                    as a tensor of this dtype holds it
// and may have
//   void see(const BlockOp&, const Elements<Value>&)              every tile that is made
//   bool stopped_before(int64_t elements)                         as in evaluate.h; the result is CANCELLED then
#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "core/graph/decompose.h"
#include "core/mugraph/block_graph.h"
#include "core/mugraph/mugraph.h"
#include "core/verify/evaluate.h"

namespace quern {

namespace internal {

template <class Value>
struct Tile {
  TensorType type;
  Elements<Value> elements;
};

// One operator over tiles of these types, as a graph of its own, decomposed.
struct TileOperator {
  std::vector<TensorType> operands;
  TensorType type;
  Graph graph;
};

}  // namespace internal

// The operators of a muGraph for tiles that came so far: blocks, iterations and runs have tiles of few
// shapes.
using TileOperators = std::map<const BlockOp*, std::vector<internal::TileOperator>>;

namespace internal {

template <class Domain>
class MuEvaluator {
 public:
  using Value = typename Domain::Value;
  using Tensor = Elements<Value>;
  using BlockTile = Tile<Value>;
  static constexpr bool kKnowsKernels = requires(Domain domain) { domain.enter(size_t{0}); };

  MuEvaluator(const MuGraph& mugraph, Domain& domain, TileOperators& operators)
      : mugraph_(mugraph),
        domain_(domain),
        tensors_(mugraph.tensors.size()),
        written_(mugraph.tensors.size()),
        operators_(operators) {}

  Result<std::vector<Tensor>> run(const std::vector<Tensor>& inputs) {
    for (size_t i = 0; i < mugraph_.inputs.size(); ++i) tensors_[mugraph_.inputs[i]] = inputs[i];
    for (size_t t = 0; t < mugraph_.tensors.size(); ++t)
      if (const MuTensor& tensor = mugraph_.tensors[t]; tensor.type.literal)
        tensors_[t] = {domain_.number(tensor.number, tensor.type.dtype)};
    for (size_t k = 0; k < mugraph_.kernels.size(); ++k) {
      const MuKernel& kernel = mugraph_.kernels[k];
      if constexpr (kKnowsKernels) domain_.enter(k);
      if (stopped()) break;
      Status status = kernel.custom ? run_grid(kernel) : run_library_operator(kernel);
      if (!status.ok()) return status.with_context("kernel " + std::to_string(k));
    }
    if (stopped()) return cancelled();
    std::vector<Tensor> outputs;
    for (int32_t tensor : mugraph_.outputs) outputs.push_back(tensors_[tensor]);
    return outputs;
  }

 private:
  // What is under way then is incomplete: nothing may be made of it.
  bool stopped([[maybe_unused]] int64_t elements = 1) {
    if constexpr (requires { domain_.stopped_before(elements); })
      return domain_.stopped_before(elements);
    else
      return false;
  }
  static Status cancelled() { return Status(ErrorCode::CANCELLED, "the evaluation was stopped"); }

  static Status wrong(std::string message) { return Status(ErrorCode::INVALID_GRAPH, std::move(message)); }
  const TensorType& type_of(int32_t tensor) const { return mugraph_.tensors[tensor].type; }

  // One operator over tiles (or whole tensors).
  static Result<TileOperator> make_operator(OpCode code, const Attrs& attrs,
                                            const std::vector<const BlockTile*>& operands,
                                            const std::string& name, bool keeps_precision) {
    TileOperator made;
    Graph graph;
    Node node;
    node.name = name;
    node.code = code;
    node.attrs = attrs;
    node.keeps_precision = keeps_precision;
    for (const BlockTile* operand : operands) {
      Node input;  // a number is a tensor of rank 0 here
      input.type = operand->type;
      made.operands.push_back(operand->type);
      node.operands.push_back(static_cast<ValueId>(graph.nodes.size()));
      graph.inputs.push_back(node.operands.back());
      graph.nodes.push_back(std::move(input));
    }
    auto type = infer_type(code, graph.operand_types(node), node.attrs);
    if (!type) return type.status();
    made.type = node.type = *type;
    graph.outputs = {static_cast<ValueId>(graph.nodes.size())};
    graph.nodes.push_back(std::move(node));
    made.graph = decompose(graph);
    return made;
  }
  BlockTile apply(const TileOperator& made, const std::vector<const BlockTile*>& operands) {
    std::vector<Tensor> inputs;
    for (const BlockTile* operand : operands) inputs.push_back(operand->elements);
    return BlockTile{made.type, std::move(evaluate(made.graph, domain_, inputs)[0])};
  }
  Result<BlockTile> apply(OpCode code, const Attrs& attrs, const std::vector<const BlockTile*>& operands,
                          const std::string& name = "", bool keeps_precision = false) {
    const Result<TileOperator> made = make_operator(code, attrs, operands, name, keeps_precision);
    if (!made) return made.status();
    return apply(*made, operands);
  }

  Result<BlockTile> apply(const MuKernel& kernel, const BlockOp& op,
                          const std::vector<const BlockTile*>& operands) {
    std::vector<TileOperator>& known = operators_[&op];
    for (const TileOperator& each : known)
      if (std::equal(each.operands.begin(), each.operands.end(), operands.begin(), operands.end(),
                     [](const TensorType& type, const BlockTile* operand) { return type == operand->type; }))
        return apply(each, operands);
    const Ints no_shape;
    auto made = make_operator(
        op.code(), attrs_for_tile(kernel, op, operands.empty() ? no_shape : operands[0]->type.shape),
        operands, op.name, op.keeps_precision);
    if (!made) return made.status();
    known.push_back(std::move(*made));
    return apply(known.back(), operands);
  }

  Status run_library_operator(const MuKernel& kernel) {
    std::vector<BlockTile> tiles;
    for (int32_t operand : kernel.operands) tiles.push_back({type_of(operand), tensors_[operand]});
    std::vector<const BlockTile*> operands;
    for (const BlockTile& tile : tiles) operands.push_back(&tile);
    auto result = apply(kernel.code, kernel.attrs, operands, mugraph_.tensors[kernel.result].name,
                        kernel.keeps_precision);
    if (!result) return result.status();
    if (stopped()) return cancelled();
    tensors_[kernel.result] = stored(*result, kernel.result);
    return {};
  }

  // The elements of a tile as they are in a tensor.
  Tensor stored(const BlockTile& tile, int32_t tensor) {
    Tensor elements = tile.elements;
    const DType to = type_of(tensor).dtype;
    for (Value& element : elements)
      if constexpr (kKnowsKernels)
        element = domain_.stored(element, to);
      else
        element = domain_.store(element, tile.type.dtype, to);
    return elements;
  }

  std::vector<Stage> stages_of(const MuKernel& kernel) {
    if constexpr (kKnowsKernels)
      return domain_.stages();
    else
      return block_stages(kernel);
  }

  struct Block {
    std::array<int64_t, kGridAxes> at;
    std::vector<std::optional<BlockTile>> values;
    std::vector<Tensor> old_shift;  // of `max` accumulators: before this iteration
  };

  Status run_grid(const MuKernel& kernel) {
    for (const BlockOp& op : kernel.ops)
      if (op.is_store()) {
        const size_t count = static_cast<size_t>(type_of(op.tensor()).element_count());
        tensors_[op.tensor()].assign(count, domain_.zero(DType::f32));
        written_[op.tensor()].assign(count, false);
      }
    for (int64_t z = 0; z < kernel.grid[2]; ++z)
      for (int64_t y = 0; y < kernel.grid[1]; ++y)
        for (int64_t x = 0; x < kernel.grid[0]; ++x)
          if (Status status = run_cluster(kernel, x, y, z); !status.ok()) return status;
    for (const BlockOp& op : kernel.ops)
      if (op.is_store())
        for (bool element : written_[op.tensor()])
          if (!element)
            return wrong("\"" + mugraph_.tensors[op.tensor()].name + "\" has elements that no block writes");
    return {};
  }

  Status run_cluster(const MuKernel& kernel, int64_t x, int64_t y, int64_t z) {
    const std::vector<Stage> stages = stages_of(kernel);
    std::vector<Block> blocks;
    for (int64_t rank = 0; rank < kernel.grid[3]; ++rank)
      blocks.push_back({{x, y, z, rank},
                        std::vector<std::optional<BlockTile>>(kernel.ops.size()),
                        std::vector<Tensor>(kernel.ops.size())});
    Status status;
    auto run_stage = [&](Block& block, Stage stage, int64_t iteration) {
      for (size_t i = 0; i < kernel.ops.size() && status.ok(); ++i) {
        const BlockOp& op = kernel.ops[i];
        if (stopped(1 + op.type.element_count())) status = cancelled();
        if (!status.ok()) return;
        const bool accumulator = op.is_accumulate();
        if (accumulator ? stage != Stage::loop : stages[i] != stage) continue;
        const bool stores = op.is_store();
        if (op.is_reduce_cluster() || (stores && stage != Stage::loop)) continue;
        status = stores ? store(kernel, block, op, iteration) : step(kernel, block, i, stage, iteration);
        if (!status.ok()) status = status.with_context("operator " + std::to_string(i));
        if (!accumulator && !stores) show(op, block.values[i]);
      }
    };
    for (Block& block : blocks) {
      run_stage(block, Stage::before, 0);
      for (int64_t iteration = 0; iteration < kernel.trip_count && status.ok(); ++iteration) run_stage(block, Stage::loop, iteration);
      for (size_t i = 0; i < kernel.ops.size(); ++i)
        if (kernel.ops[i].is_accumulate()) show(kernel.ops[i], block.values[i]);
    }
    // After the loop the blocks of a cluster go in step, because each may need the others' values.
    for (size_t i = 0; i < kernel.ops.size() && status.ok(); ++i) {
      if (stopped()) return cancelled();
      const BlockOp& op = kernel.ops[i];
      const bool late = op.is_reduce_cluster() || op.is_store();
      if (stages[i] == Stage::loop || (!late && (stages[i] != Stage::after || op.is_accumulate()))) continue;
      if (op.is_reduce_cluster())
        status = reduce_cluster(kernel, blocks, i);
      else if (op.is_store())
        status = store(kernel, blocks, op);
      else
        for (Block& block : blocks)
          if (status.ok()) status = step(kernel, block, i, Stage::after, 0);
      if (!status.ok()) status = status.with_context("operator " + std::to_string(i));
      if (!op.is_store())
        for (Block& block : blocks) show(op, block.values[i]);
    }
    return status;
  }

  // A domain may look at the tiles of operators: of accumulators those after the last iteration.
  void show(const BlockOp& op, const std::optional<BlockTile>& tile) {
    if constexpr (requires { domain_.see(op, tile->elements); })
      if (tile) domain_.see(op, tile->elements);
  }

  Status step(const MuKernel& kernel, Block& block, size_t i, Stage stage, int64_t iteration) {
    const BlockOp& op = kernel.ops[i];
    if (op.is_accumulate()) return accumulate(kernel, block, i, iteration);
    if (op.is_load()) {
      block.values[i] = load(kernel, op, block.at, iteration);
      return {};
    }
    if (op.is_compute(OpCode::constant)) {
      block.values[i] = BlockTile{op.type, {domain_.number(constant_value(mugraph_, op), op.type.dtype)}};
      return {};
    }
    if constexpr (kKnowsKernels)
      if (std::optional<BlockTile> tile = domain_.compute(i, block.values)) {
        block.values[i] = std::move(*tile);
        return {};
      }
    std::vector<const BlockTile*> operands;
    std::vector<BlockTile> framed;
    framed.reserve(op.operands.size());
    for (BlockValue operand : op.operands) {
      operands.push_back(&*block.values[operand]);
      if constexpr (!kKnowsKernels)
        if (stage == Stage::loop && is_running_maximum(kernel.ops[operand])) {
          framed.push_back(*operands.back());
          for (Value& shift : framed.back().elements) shift = domain_.frame(shift);
          operands.back() = &framed.back();
        }
    }
    auto result = apply(kernel, op, operands);
    if (!result) return result.status();
    block.values[i] = std::move(*result);
    return {};
  }

  static bool is_running_maximum(const BlockOp& op) { return op.is_accumulate(Combine::max); }

  // The part of every dimension that a block sees or writes.
  std::vector<Interval> intervals(const MuKernel& kernel, const BlockOp& op,
                                  const std::array<int64_t, kGridAxes>& at, int64_t iteration) const {
    std::vector<Interval> result;
    const Ints& shape = type_of(op.tensor()).shape;
    const Coordinates coordinates = coordinates_of(at, iteration);
    for (int d = 0; d < static_cast<int>(shape.size()); ++d)
      result.push_back(tile_interval(kernel, op, d, shape[d], coordinates));
    return result;
  }

  // NaN is the same as NaN.
  static bool same(const Tensor& a, const Tensor& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Value& x, const Value& y) { return x == y || (!(x == x) && !(y == y)); });
  }

  // Shape of a tile, and where its first element lies in the tensor.
  static std::pair<Ints, int64_t> tile_place(const std::vector<Interval>& place, const Ints& strides) {
    Ints shape;
    int64_t start = 0;
    for (size_t d = 0; d < place.size(); ++d) {
      shape.push_back(place[d].size());
      start += place[d].first * strides[d];
    }
    return {shape, start};
  }

  BlockTile load(const MuKernel& kernel, const BlockOp& op, const std::array<int64_t, kGridAxes>& at,
                 int64_t iteration) {
    const Ints strides = dense_strides(type_of(op.tensor()).shape);
    const auto [shape, start] = tile_place(intervals(kernel, op, at, iteration), strides);
    BlockTile tile{{type_of(op.tensor()).dtype, shape}, {}};
    tile.elements.reserve(static_cast<size_t>(tile.type.element_count()));
    for_each_offset(shape, strides, start,
                    [&](int64_t offset) { tile.elements.push_back(tensors_[op.tensor()][offset]); });
    return tile;
  }

  Status store(const MuKernel& kernel, std::vector<Block>& blocks, const BlockOp& op) {
    const bool once =
        kernel.grid[3] > 1 && op.map()[3] < 0;  // all blocks of the cluster have the same tile; one stores it
    for (Block& block : blocks) {
      const BlockTile& tile = *block.values[op.operands[0]];
      if (once && block.at[3] > 0) {
        if (!same(tile.elements, blocks[0].values[op.operands[0]]->elements))
          return wrong("the blocks of a cluster store different values to the same place");
        continue;
      }
      if (Status status = store(kernel, block, op, 0); !status.ok()) return status;
    }
    return {};
  }

  Status store(const MuKernel& kernel, const Block& block, const BlockOp& op, int64_t iteration) {
    const BlockTile& tile = *block.values[op.operands[0]];
    const Ints strides = dense_strides(type_of(op.tensor()).shape);
    const auto [shape, start] = tile_place(intervals(kernel, op, block.at, iteration), strides);
    if (shape != tile.type.shape)
      return wrong("a tile of shape " + print_ints(tile.type.shape) + " is stored to a place of shape " +
                   print_ints(shape));
    const Tensor elements = stored(tile, op.tensor());
    size_t next = 0;
    bool twice = false;
    for_each_offset(shape, strides, start, [&](int64_t offset) {
      twice |= written_[op.tensor()][offset];
      written_[op.tensor()][offset] = true;
      tensors_[op.tensor()][offset] = elements[next++];
    });
    if (twice) return wrong("two blocks store to the same place");
    return {};
  }

  // Offsets into an operand that broadcasts to `shape`.
  static std::vector<int64_t> offsets_in(const Ints& operand, const Ints& shape) {
    std::vector<int64_t> offsets;
    for_each_offset(shape, broadcast_strides(operand, shape), 0, [&](int64_t at) { offsets.push_back(at); });
    return offsets;
  }

  // At a ragged edge a shift may be shorter than what it belongs to.
  static bool broadcasts(const Ints& from, const Ints& to) {
    const size_t more = to.size() - std::min(from.size(), to.size());
    for (size_t d = 0; d < from.size(); ++d)
      if (more + d >= to.size() || (from[d] != 1 && from[d] != to[more + d])) return false;
    return true;
  }

  Status rescale(BlockTile& sum, const Tensor& old_shift, const BlockTile& new_shift) {
    if (!broadcasts(new_shift.type.shape, sum.type.shape))
      return wrong("a shift of shape " + print_ints(new_shift.type.shape) + " does not fit a tile of shape " +
                   print_ints(sum.type.shape));
    const std::vector<int64_t> at = offsets_in(new_shift.type.shape, sum.type.shape);
    for (size_t e = 0; e < sum.elements.size(); ++e)
      sum.elements[e] = domain_.rescale(sum.elements[e], old_shift[at[e]], new_shift.elements[at[e]]);
    return {};
  }

  Status combine(BlockTile& into, const BlockTile& value, Combine how) {
    if (into.type.shape != value.type.shape)
      return wrong("an accumulator meets tiles of shapes " + print_ints(into.type.shape) + " and " +
                   print_ints(value.type.shape));
    const DType compute = compute_class(into.type.dtype);
    for (size_t e = 0; e < into.elements.size(); ++e)
      into.elements[e] = domain_.combine(reduction_of(how), into.elements[e], value.elements[e], compute);
    return {};
  }

  Status accumulate(const MuKernel& kernel, Block& block, size_t i, int64_t iteration) {
    const BlockOp& op = kernel.ops[i];
    const BlockTile value = *block.values[op.operands[0]];
    std::optional<BlockTile>& into = block.values[i];
    if (is_running_maximum(op))
      block.old_shift[i] =
          into ? into->elements
               : Tensor(value.elements.size(), domain_.identity(OpCode::reduce_max, DType::f32));
    if (!into) {
      into = value;
      return {};
    }
    if (op.combine() == Combine::concat) {
      Attrs attrs;
      attrs.axis = Ints{op.concat_dim()};
      auto joined = apply(OpCode::concat, attrs, {&*into, &value});
      if (!joined) return joined.status();
      into = std::move(*joined);
      return {};
    }
    if (op.combine() == Combine::rescaled_sum && iteration > 0) {
      const BlockValue shift = op.operands[1];
      if (Status status = rescale(*into, block.old_shift[shift], *block.values[shift]); !status.ok())
        return status;
    }
    return combine(*into, value, op.combine());
  }

  Status reduce_cluster(const MuKernel& kernel, std::vector<Block>& blocks, size_t i) {
    const BlockOp& op = kernel.ops[i];
    std::optional<BlockTile> total, shift;
    if (op.combine() == Combine::rescaled_sum)
      for (Block& block : blocks) {
        const BlockTile& local = *block.values[op.operands[1]];
        if (!shift)
          shift = local;
        else if (Status status = combine(*shift, local, Combine::max); !status.ok())
          return status;
      }
    for (Block& block : blocks) {
      BlockTile value = *block.values[op.operands[0]];
      if (shift)
        if (Status status = rescale(value, block.values[op.operands[1]]->elements, *shift); !status.ok())
          return status;
      if (!total)
        total = std::move(value);
      else if (Status status = combine(*total, value, op.combine()); !status.ok())
        return status;
    }
    for (Block& block : blocks) block.values[i] = total;
    return {};
  }

  const MuGraph& mugraph_;
  Domain& domain_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<bool>> written_;
  TileOperators& operators_;
};

}  // namespace internal

// The outputs of a muGraph that validate() has passed. INVALID_GRAPH when tiles do not fit together, when
// blocks disagree about what they store, or when an element is stored twice or never. `operators` are handed
// from one run of the muGraph to the next.
template <class Domain>
Result<std::vector<Elements<typename Domain::Value>>> evaluate_mugraph(
    const MuGraph& mugraph, Domain& domain, const std::vector<Elements<typename Domain::Value>>& inputs,
    TileOperators* operators = nullptr) {
  TileOperators own;
  return internal::MuEvaluator<Domain>(mugraph, domain, operators ? *operators : own).run(inputs);
}

}  // namespace quern
