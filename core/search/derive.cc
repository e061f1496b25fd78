#include "core/search/derive.h"

#include <algorithm>

#include "core/base/integers.h"
#include "core/mugraph/edit.h"
#include "core/search/tiles.h"

namespace quern {

namespace {

// The index of a workspace's dimension that has one partial result for each part of the looped index.
constexpr Label kPartLabel = kMaxLabels - 1;
constexpr int64_t kCombinedTile = 32;  // elements of a block of the second kernel along what it alone spreads

std::vector<Dims> stored_dims(const KernelDesign& design, const std::vector<Dims>& tensors) {
  std::vector<Dims> dims;
  for (int tensor : design.kernel.stores) dims.push_back(tensors[static_cast<size_t>(tensor)]);
  return dims;
}

class KernelWriter {
 public:
  KernelWriter(const Terms& terms, const KernelDesign& design, const std::vector<Dims>& tensors,
               const std::vector<int32_t>& ids, MuGraph& mugraph)
      : terms_(terms),
        dag_(design.kernel.dag),
        stores_(design.kernel.stores),
        roles_(design.roles),
        sizes_(design.sizes),
        tensors_(tensors),
        ids_(ids),
        mugraph_(mugraph),
        dims_(tile_dims(dag_, tensors, stored_dims(design, tensors), terms)),
        partial_(dag_.ops.size(), -1) {}

  void run() {
    const bool two = roles_.split == Split::second_kernel;
    begin(false);
    for (size_t at = 0; at < dag_.ops.size(); ++at)
      if (!two || roles_.form.stages[at] != Stage::after || roles_.form.accumulates[at]) emit(at);
    store_all(true);
    if (two) {
      store_partials();
      finish();
      begin(true);
      for (size_t at = 0; at < dag_.ops.size(); ++at)
        if (roles_.form.accumulates[at])
          combine_partials(at);
        else if (roles_.form.stages[at] != Stage::loop && needed_in_second(at))
          emit(at);
    }
    store_all(false);
    finish();
  }

 private:
  // The second kernel neither loops nor splits.
  void begin(bool second) {
    second_ = second;
    kernel_ = MuKernel();
    kernel_.custom = true;
    kernel_.threads = sizes_.threads;
    const bool apart = second && roles_.stores_in_loop;
    grid_ = apart ? roles_.combine : roles_.grid;
    for (size_t axis = 0; axis < grid_.size(); ++axis)
      kernel_.grid[axis] = apart ? divide_up(terms_.labels[grid_[axis]].extent, axis == 0 ? kCombinedTile : 1)
                                 : sizes_.grid[axis];
    running_.assign(dag_.ops.size(), -1);
    value_.assign(dag_.ops.size(), -1);
    if (second) return;
    kernel_.trip_count = sizes_.trip_count;
    if (roles_.split == Split::cluster) kernel_.grid[static_cast<int>(Axis::cluster)] = sizes_.ranks;
    if (roles_.split == Split::second_kernel) kernel_.grid[roles_.split_axis()] = sizes_.ranks;
  }

  void finish() { mugraph_.kernels.push_back(std::move(kernel_)); }

  // ---- tiles ----

  int64_t tile_extent(Label label) const {
    if (label == kNoLabel) return 1;
    if (label == kPartLabel) return second_ ? sizes_.ranks : 1;
    int64_t tile = terms_.labels[label].extent;
    for (size_t axis = 0; axis < grid_.size(); ++axis)
      if (grid_[axis] == label) tile = divide_up(tile, kernel_.grid[axis]);
    return label == roles_.loop && !second_ ? divide_up(divide_up(tile, sizes_.ranks), sizes_.trip_count)
                                            : tile;
  }

  // Where each axis cuts a tensor with these dimensions.
  AxisMap axis_map(const Dims& dims) const {
    AxisMap map = kReplicated;
    auto position = [&](Label label) {
      const auto at = std::find(dims.begin(), dims.end(), label);
      return at == dims.end() ? -1 : static_cast<int>(at - dims.begin());
    };
    for (size_t axis = 0; axis < grid_.size(); ++axis) map[axis] = position(grid_[axis]);
    if (second_ || roles_.loop < 0) return map;
    if (roles_.split == Split::cluster) map[static_cast<int>(Axis::cluster)] = position(roles_.loop);
    if (roles_.split == Split::second_kernel)
      map[roles_.split_axis()] = std::max(position(roles_.loop), position(kPartLabel));
    return map;
  }

  BlockValue append(BlockOp op) {
    kernel_.ops.push_back(std::move(op));
    return static_cast<BlockValue>(kernel_.ops.size()) - 1;
  }

  BlockValue compute(OpCode code, std::vector<BlockValue> operands, Attrs attrs = {}) {
    return append(BlockOp(BlockOp::Compute{code, std::move(attrs)}, std::move(operands)));
  }

  BlockValue load(int32_t tensor, const Dims& dims) {
    return append(BlockOp(BlockOp::Load{{tensor, axis_map(dims), loop_dim(dims)}}));
  }

  int loop_dim(const Dims& dims) const {
    const auto at = std::find(dims.begin(), dims.end(), roles_.loop);
    return roles_.loop < 0 || second_ || at == dims.end() ? -1 : static_cast<int>(at - dims.begin());
  }

  void store_value(BlockValue value, int32_t tensor, const Dims& dims) {
    append(BlockOp(BlockOp::Store{{tensor, axis_map(dims), loop_dim(dims)}}, {value}));
  }

  // A value with dimensions `have` as one with dimensions `want`, which have the same labels.
  BlockValue view(BlockValue value, const Dims& have, const Dims& want, const Fit& fit) {
    if (fits(have, want, fit)) return value;
    Dims order, wanted_order;
    for (Label label : want)
      if (label >= 0) wanted_order.push_back(label);
    for (Label label : have)
      if (label >= 0) order.push_back(label);
    Dims now = have;
    if (order != wanted_order) {
      // Dimensions of one element lie where they are wanted, the others in front.
      now = want.size() <= have.size() ? want : wanted_order;
      now.insert(now.begin(), have.size() - now.size(), kNoLabel);
      Attrs attrs;
      attrs.perm = Ints();
      auto unit = have.begin();  // from which on units are not placed
      for (Label label : now) {
        const auto at = label < 0 ? std::find_if(unit, have.end(), [](Label own) { return own < 0; })
                                  : std::find(have.begin(), have.end(), label);
        attrs.perm->push_back(at - have.begin());
        if (label < 0) unit = at + 1;
      }
      value = compute(OpCode::transpose, {value}, attrs);
    }
    if (fits(now, want, fit)) return value;
    Attrs attrs;
    attrs.shape = Ints();
    for (Label label : want) attrs.shape->push_back(tile_extent(label));
    return compute(OpCode::reshape, {value}, attrs);
  }

  // ---- operators ----

  // An operator in the loop reads the running value of an accumulator.
  BlockValue operand(size_t user, int at) const {
    const bool running = roles_.form.stages[user] == Stage::loop && roles_.form.accumulates[at];
    return running ? running_[at] : value_[at];
  }

  // Operand number i, as its operator wants it.
  BlockValue wanted(size_t at, size_t i, const Fit& fit) {
    const TileDims& dims = dims_[at];
    const int source = dag_.ops[at].operands[dims.order.empty() ? i : dims.order[i]];
    return view(operand(at, source), dims_[source].result, dims.operands[i], fit);
  }

  static Attrs axis_attrs(Ints axis, std::optional<bool> keepdims = std::nullopt) {
    Attrs attrs;
    attrs.axis = std::move(axis);
    attrs.keepdims = keepdims;
    return attrs;
  }

  void emit(size_t at) {
    const DagOp& op = dag_.ops[at];
    const TileDims& dims = dims_[at];
    switch (op.term.kind) {
      case BlockKind::leaf:
        value_[at] = load(ids_[op.term.index], dims.result);
        return;
      case BlockKind::constant:
        value_[at] = constant(op.term);
        return;
      case BlockKind::elementwise: {
        std::vector<BlockValue> operands;
        for (size_t i = 0; i < op.operands.size(); ++i)

          operands.push_back(
              wanted(at, i, static_cast<int>(i) == dims.exact ? kExactly : Fit{0, dims.result.size()}));
        value_[at] = op.term.code == OpCode::cast ? rounded(operands[0], static_cast<DType>(op.term.index),
                                                            loads_integers(op.operands[0]))
                                                  : compute(op.term.code, std::move(operands));
        return;
      }
      case BlockKind::composite:
        value_[at] = composite(at);
        return;
      case BlockKind::reduction: {
        const Dims& from = dims.operands[0];
        const int64_t axis = std::find(from.begin(), from.end(), op.term.label) - from.begin();
        value_[at] = compute(op.term.code, {wanted(at, 0, kExactly)}, axis_attrs({axis}, true));
        break;
      }
      case BlockKind::matmul: {
        const Fit fit{2, dims.result.size()};
        const BlockValue left = wanted(at, 0, fit);
        value_[at] = compute(OpCode::matmul, {left, wanted(at, 1, fit)});
        break;
      }
      case BlockKind::concat_matmul:
        value_[at] = concat_matmul(at);
        break;
    }
    if (roles_.form.accumulates[at]) accumulate(at);
  }

  BlockValue constant(const BlockTerm& term) {
    BlockOp::Compute constant{.number = term.number};
    if (term.index > 0) {
      constant.number = 1;
      for (Label label = 0; label < static_cast<Label>(terms_.labels.size()); ++label) {
        if (!has_label(terms_.counts[term.index - 1], label)) continue;
        const LabelInfo& info = terms_.labels[label];
        constant.extents.push_back({mugraph_.inputs[info.input], info.dim});
        constant.number *= static_cast<double>(terms_.labels[label].extent);
      }
    }
    return append(BlockOp(std::move(constant)));
  }

  bool loads_integers(int at) const {
    const BlockTerm& term = dag_.ops[static_cast<size_t>(at)].term;
    return term.kind == BlockKind::leaf &&
           !is_float(mugraph_.tensors[static_cast<size_t>(ids_[term.index])].type.dtype);
  }

  // A tile that is made of loads in that dtype has it, but is not rounded to it: it is one of f32 first. Integers are rounded once,
  // and become floats again.
  BlockValue rounded(BlockValue value, DType to, bool of_integers) {
    std::vector<DType> dtypes;
    if (!of_integers || to == DType::f32) dtypes.push_back(DType::f32);
    if (to != DType::f32) dtypes.push_back(to);
    if (!is_float(to)) dtypes.push_back(DType::f32);
    for (DType dtype : dtypes) {
      Attrs attrs;
      attrs.dtype = dtype;
      value = compute(OpCode::cast, {value}, std::move(attrs));
    }
    return value;
  }

  BlockValue composite(size_t at) {
    const CompositeInfo& info = terms_.composites[dag_.ops[at].term.index];
    const Dims& from = dims_[at].operands[0];
    Attrs attrs = axis_attrs({});
    for (size_t d = 0; d < from.size(); ++d)
      if (std::find(info.axes.begin(), info.axes.end(), from[d]) != info.axes.end())
        attrs.axis->push_back(static_cast<int64_t>(d));
    if (op_info(info.code).attrs & attr_bit(AttrId::eps)) attrs.eps = info.eps;
    std::vector<BlockValue> operands;
    for (size_t i = 0; i < dag_.ops[at].operands.size(); ++i) operands.push_back(wanted(at, i, kExactly));
    return compute(info.code, std::move(operands), std::move(attrs));
  }

  BlockValue concat_matmul(size_t at) {
    std::vector<BlockValue> operands;
    for (size_t i = 0; i < 4; ++i) operands.push_back(wanted(at, i, kExactly));
    const auto rank = static_cast<int64_t>(dims_[at].operands[0].size());
    const auto right_rank = static_cast<int64_t>(dims_[at].operands[1].size());
    const BlockValue left = compute(OpCode::concat, {operands[0], operands[2]}, axis_attrs({rank - 1}));
    const BlockValue right =
        compute(OpCode::concat, {operands[1], operands[3]}, axis_attrs({right_rank - 2}));
    return compute(OpCode::matmul, {left, right});
  }

  // ---- accumulators ----

  // The dimensions of a value in an order in which a shift of it broadcasts to it: where the shift has an
  // extent of 1, and before it, stand the labels that only the value has.
  static Dims aligned(const Dims& value, const Dims& shift) {
    bool fitting = value.size() >= shift.size();
    for (size_t d = 0; fitting && d < shift.size(); ++d) {
      const Label label = shift[shift.size() - 1 - d];
      fitting = label < 0 || label == value[value.size() - 1 - d];
    }
    if (fitting) return value;
    Dims rest, want = shift;
    for (Label label : value)
      if (label >= 0 && std::find(shift.begin(), shift.end(), label) == shift.end()) rest.push_back(label);
    for (size_t d = want.size(); d-- > 0 && !rest.empty();)
      if (want[d] < 0) {
        want[d] = rest.back();
        rest.pop_back();
      }
    want.insert(want.begin(), rest.begin(), rest.end());
    return want;
  }

  void accumulate(size_t at) {
    const Combine combine = combine_of(dag_, roles_.form, at);
    const bool rescaled = combine == Combine::rescaled_sum;
    BlockOp op(BlockOp::Accumulate{combine}, {value_[at]});
    if (rescaled) {
      const int shift = roles_.form.shift[at];
      const Dims want = aligned(dims_[at].result, dims_[shift].result);
      op.operands = {view(value_[at], dims_[at].result, want, kExactly), running_[shift]};
      dims_[at].result = want;
    }
    running_[at] = value_[at] = append(op);
    if (roles_.split == Split::cluster) {
      op.become(BlockOp::ReduceCluster{combine});
      op.operands[0] = running_[at];
      value_[at] = append(std::move(op));
    }
    if (rescaled && roles_.split != Split::second_kernel && is_shown(static_cast<int>(at)))
      undefine_without_terms(at);
  }

  bool computes(int at, OpCode code) const {
    const BlockTerm& term = dag_.ops[at].term;
    return term.kind == BlockKind::elementwise && term.code == code;
  }
  bool is_quotient(int at) const { return computes(at, OpCode::div) || computes(at, OpCode::reciprocal); }

  // Whether something sees what a rescaled sum, or a multiple of one, is where all scores are -inf: quotients
  // of two such sums are 0 / 0 anyway.
  bool is_shown(int at) const {
    if (std::find(dag_.outputs.begin(), dag_.outputs.end(), at) != dag_.outputs.end()) return true;
    for (int user = at + 1; user < static_cast<int>(dag_.ops.size()); ++user) {
      const std::vector<int>& operands = dag_.ops[user].operands;
      if (std::find(operands.begin(), operands.end(), at) == operands.end() || is_quotient(user)) continue;
      if (!computes(user, OpCode::mul)) return true;
      const bool divides = is_quotient(operands[0]) || is_quotient(operands[1]);
      if (!divides && is_shown(user)) return true;
    }
    return false;
  }

  // A sum over e^(x - m) where m is -inf for good: every term is NaN. m - m is 0 for every other m, but for
  // those that make NaN of the terms, too. (Partial sums that a second kernel adds up are multiplied by e^(m
  // - m).)
  void undefine_without_terms(size_t at) {
    const BlockValue largest = value_[roles_.form.shift[at]];
    value_[at] = compute(OpCode::add, {value_[at], compute(OpCode::sub, {largest, largest})});
  }

  Dims partial_dims(size_t at) const {
    Dims dims = {kPartLabel};
    dims.insert(dims.end(), dims_[at].result.begin(), dims_[at].result.end());
    return dims;
  }

  void store_partials() {
    for (size_t at = 0; at < dag_.ops.size(); ++at) {
      if (!roles_.form.accumulates[at]) continue;
      const Dims dims = partial_dims(at);
      MuTensor tensor{unique_tensor_name(mugraph_, "part"), {DType::f32, {sizes_.ranks}, false}};
      for (Label label : dims_[at].result)
        tensor.type.shape.push_back(label < 0 ? 1 : terms_.labels[label].extent);
      partial_[at] = static_cast<int32_t>(mugraph_.tensors.size());
      mugraph_.tensors.push_back(std::move(tensor));
      Dims of_block = dims;
      of_block[0] = kNoLabel;
      store_value(view(value_[at], dims_[at].result, of_block, kExactly), partial_[at], dims);
    }
  }

  // The accumulator's value from those of all parts.
  void combine_partials(size_t at) {
    const Dims dims = partial_dims(at);
    BlockValue part = load(partial_[at], dims);
    const Combine how = combine_of(dag_, roles_.form, at);
    running_[at] = part;
    if (how == Combine::rescaled_sum) {
      const int shift = roles_.form.shift[at];
      const BlockValue difference = compute(OpCode::sub, {running_[shift], value_[shift]});
      const BlockValue factor = compute(OpCode::exp, {difference});
      Dims want;
      for (Label label : dims)
        want.push_back(label == kPartLabel || (label >= 0 && has_label(dag_.ops[shift].labels, label))
                           ? label
                           : kNoLabel);
      part = compute(OpCode::mul, {part, view(factor, partial_dims(shift), want, kExactly)});
    }
    value_[at] = compute(reduction_of(how), {part}, axis_attrs({0}, false));
  }

  // Whether the second kernel uses a value from before the loop: something after the loop does.
  bool needed_in_second(size_t at) const {
    if (roles_.form.stages[at] == Stage::after) return true;
    for (int output : dag_.outputs)
      if (output == static_cast<int>(at) && roles_.form.stages[at] != Stage::loop) return true;
    for (size_t user = at + 1; user < dag_.ops.size(); ++user) {
      if (roles_.form.accumulates[user] || roles_.form.stages[user] == Stage::loop) continue;
      const auto& operands = dag_.ops[user].operands;
      if (std::find(operands.begin(), operands.end(), static_cast<int>(at)) != operands.end() &&
          needed_in_second(user))
        return true;
    }
    return false;
  }

  // What the loop stores in every iteration, or the other results.
  void store_all(bool looped) {
    for (size_t i = 0; i < stores_.size(); ++i)
      if ((roles_.form.stages[static_cast<size_t>(dag_.outputs[i])] == Stage::loop) == looped)
        store(dag_.outputs[i], stores_[i]);
  }

  void store(int at, int tensor) {
    const Dims& dims = tensors_[tensor];
    store_value(view(value_[at], dims_[at].result, dims, kExactly), ids_[tensor], dims);
  }

  const Terms& terms_;
  const Dag& dag_;
  const std::vector<int>& stores_;
  const Roles& roles_;
  const Sizes& sizes_;
  const std::vector<Dims>& tensors_;
  const std::vector<int32_t>& ids_;  // of tensors, in the muGraph
  MuGraph& mugraph_;
  std::vector<TileDims> dims_;
  std::vector<int32_t> partial_;  // tensors of partial accumulators
  MuKernel kernel_;
  bool second_ = false;
  std::vector<Label> grid_;          // of this kernel
  std::vector<BlockValue> running_;  // of accumulators: what operators in the loop see
  std::vector<BlockValue> value_;
};

}  // namespace

Result<MuGraph> derive(const Graph& graph, const Terms& terms, const Design& design) {
  MuGraph mugraph;
  mugraph.name = graph.name;
  std::vector<int32_t> ids;
  auto add_tensor = [&](std::string name, const TensorType& type) {
    name = unique_tensor_name(mugraph, name);
    ids.push_back(static_cast<int32_t>(mugraph.tensors.size()));
    mugraph.tensors.push_back({std::move(name), type});
    return ids.back();
  };
  for (ValueId input : graph.inputs)
    mugraph.inputs.push_back(add_tensor(graph.node(input).name, graph.node(input).type));
  for (ValueId output : graph.outputs)
    mugraph.outputs.push_back(add_tensor(graph.node(output).name, graph.node(output).type));
  for (size_t i = ids.size(); i < design.tensors.size(); ++i) {
    TensorType type{design.handed_on, {}, false};
    for (Label label : design.tensors[i]) type.shape.push_back(label < 0 ? 1 : terms.labels[label].extent);
    add_tensor("between", type);
  }
  for (const KernelDesign& kernel : design.kernels)
    KernelWriter(terms, kernel, design.tensors, ids, mugraph).run();
  if (Status status = validate(mugraph); !status.ok()) return status;
  return mugraph;
}

std::string print_roles(const KernelDesign& design, const Terms& terms) {
  std::string text = "grid";
  for (Label label : design.roles.grid) text += " " + terms.labels[label].name;
  if (design.roles.loop < 0) return text + "; no loop";
  text += "; loop " + terms.labels[design.roles.loop].name;
  if (design.roles.split != Split::none) text += std::string(" split by ") + split_name(design.roles.split);
  if (design.roles.stores_in_loop) text += ", which stores";
  text += "; accumulators";
  const std::vector<DagOp>& ops = design.kernel.dag.ops;
  for (size_t at = 0; at < ops.size(); ++at) {
    if (!design.roles.form.accumulates[at]) continue;
    text += " " + combine_text(combine_of(design.kernel.dag, design.roles.form, at));
  }
  return text;
}

}  // namespace quern
