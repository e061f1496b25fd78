#include "tests/support/mutants.h"

#include <algorithm>
#include <functional>
#include <map>

namespace quern {

namespace {

using Kind = BlockOp::Kind;

std::vector<OpCode> reductions() {
  std::vector<OpCode> codes;
  for (const OpInfo& op : all_ops())
    if (op.kind == OpKind::reduction) codes.push_back(op.code);
  return codes;
}

// Operators of the same arity that one may take for another.
const std::multimap<OpCode, OpCode>& confusions() {
  static const std::multimap<OpCode, OpCode> pairs = [] {
    std::multimap<OpCode, OpCode> pairs = {{OpCode::add, OpCode::sub},
                                           {OpCode::add, OpCode::mul},
                                           {OpCode::sub, OpCode::add},
                                           {OpCode::mul, OpCode::div},
                                           {OpCode::mul, OpCode::add},
                                           {OpCode::div, OpCode::mul},
                                           {OpCode::exp, OpCode::square},
                                           {OpCode::exp, OpCode::sigmoid},
                                           {OpCode::sqrt, OpCode::rsqrt},
                                           {OpCode::sqrt, OpCode::square},
                                           {OpCode::square, OpCode::abs},
                                           {OpCode::square, OpCode::neg},
                                           {OpCode::silu, OpCode::sigmoid},
                                           {OpCode::silu, OpCode::relu},
                                           {OpCode::reduce_sum, OpCode::reduce_mean},
                                           {OpCode::lt, OpCode::le},
                                           {OpCode::lt, OpCode::eq},
                                           {OpCode::le, OpCode::lt},
                                           {OpCode::le, OpCode::eq},
                                           {OpCode::eq, OpCode::le},
                                           {OpCode::max, OpCode::min},
                                           {OpCode::max, OpCode::add},
                                           {OpCode::min, OpCode::max},
                                           {OpCode::relu, OpCode::abs},
                                           {OpCode::abs, OpCode::relu}};
    for (OpCode reduction : reductions())
      for (OpCode other : reductions())
        if (other != reduction) pairs.emplace(reduction, other);
    return pairs;
  }();
  return pairs;
}

void set_combine(BlockOp& op, Combine combine) {
  if (op.is_accumulate())
    op.become(BlockOp::Accumulate{combine});
  else
    op.become(BlockOp::ReduceCluster{combine});
}

class Mutator {
 public:
  explicit Mutator(const MuGraph& mugraph) : mugraph_(mugraph) {}

  std::vector<Mutant> run() {
    for (size_t k = 0; k < mugraph_.kernels.size(); ++k) {
      if (!mugraph_.kernels[k].custom) {
        change_library(k);
        continue;
      }
      change_ranges(k);
      for (size_t i = 0; i < mugraph_.kernels[k].ops.size(); ++i) change_op(k, i);
    }
    for (size_t i = 1; i < mugraph_.outputs.size(); ++i)
      add("outputs permuted", [&](MuGraph& m) { std::swap(m.outputs[i - 1], m.outputs[i]); });
    return std::move(mutants_);
  }

 private:
  void add(const std::string& change, const std::function<void(MuGraph&)>& apply) {
    Mutant mutant{change, mugraph_};
    apply(mutant.mugraph);
    if (validate(mutant.mugraph).ok()) mutants_.push_back(std::move(mutant));
  }
  void add(size_t k, size_t i, const std::string& change,
           const std::function<void(MuKernel&, BlockOp&)>& apply) {
    add("kernel " + std::to_string(k) + ", operator " + std::to_string(i) + ": " + change,
        [&](MuGraph& m) { apply(m.kernels[k], m.kernels[k].ops[i]); });
  }

  void change_library(size_t k) {
    const std::string where = "kernel " + std::to_string(k) + ": ";
    if (mugraph_.kernels[k].operands.size() > 1)
      add(where + "operands swapped",
          [&](MuGraph& m) { std::swap(m.kernels[k].operands[0], m.kernels[k].operands[1]); });
    for (size_t o = 0; o < mugraph_.kernels[k].operands.size(); ++o)
      for (int32_t tensor = 0; tensor < static_cast<int32_t>(mugraph_.tensors.size()); ++tensor)
        if (tensor != mugraph_.kernels[k].operands[o])
          add(where + "another operand", [&](MuGraph& m) { m.kernels[k].operands[o] = tensor; });
    const auto [first, last] = confusions().equal_range(mugraph_.kernels[k].code);
    for (auto at = first; at != last; ++at)
      add(where + "another operator", [&](MuGraph& m) { m.kernels[k].code = at->second; });
  }

  void change_ranges(size_t k) {
    const MuKernel& kernel = mugraph_.kernels[k];
    const std::string where = "kernel " + std::to_string(k) + ": ";
    for (int64_t by : {-1, 1}) {
      if (kernel.trip_count > 1) add(where + "iterations off by one", [&](MuGraph& m) { m.kernels[k].trip_count += by; });
      for (size_t axis = 0; axis < kernel.grid.size(); ++axis)
        if (kernel.grid[axis] > 1)
          add(where + "grid off by one", [&](MuGraph& m) { m.kernels[k].grid[axis] += by; });
    }
    if (kernel.trip_count > 1) add(where + "one iteration", [&](MuGraph& m) { m.kernels[k].trip_count = 1; });
  }

  void change_op(size_t k, size_t i) {
    const BlockOp& op = mugraph_.kernels[k].ops[i];
    change_operands(k, i);
    switch (op.kind()) {
      case Kind::load:
        change_map(k, i);
        break;
      case Kind::store:
        change_map(k, i);
        for (size_t j = 0; j < i; ++j)
          if (mugraph_.kernels[k].ops[j].is_store())
            add(k, i, "stores swapped", [&](MuKernel& kernel, BlockOp& store) {
              std::swap(store.access().tensor, kernel.ops[j].access().tensor);
            });
        break;
      case Kind::compute:
        change_compute(k, i);
        break;
      case Kind::accumulate:
      case Kind::reduce_cluster:
        change_combination(k, i);
        break;
      case Kind::rescale_factor:
        break;
    }
  }

  void change_operands(size_t k, size_t i) {
    const BlockOp& op = mugraph_.kernels[k].ops[i];
    if (op.operands.size() > 1)
      add(k, i, "operands swapped", [](MuKernel&, BlockOp& m) { std::swap(m.operands[0], m.operands[1]); });
    for (size_t o = 0; o < op.operands.size(); ++o) {
      const BlockOp& now = mugraph_.kernels[k].ops[static_cast<size_t>(op.operands[o])];
      for (size_t j = 0; j < i; ++j)
        if (static_cast<BlockValue>(j) != op.operands[o] &&
            mugraph_.kernels[k].ops[j].type.shape == now.type.shape)
          add(k, i, "another operand",
              [&](MuKernel&, BlockOp& m) { m.operands[o] = static_cast<BlockValue>(j); });
      const Ints& shape = now.type.shape;
      if (shape.size() >= 2 && shape[shape.size() - 1] == shape[shape.size() - 2] && shape.back() > 1)
        transpose_operand(k, i, o);
    }
  }

  // The operand, its last two dimensions exchanged.
  void transpose_operand(size_t k, size_t i, size_t o) {
    add(k, i, "transposed tile", [&](MuKernel& kernel, BlockOp& op) {
      Ints perm;
      const int rank = kernel.ops[static_cast<size_t>(op.operands[o])].type.rank();
      for (int d = 0; d < rank; ++d) perm.push_back(d);
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      BlockOp transpose(BlockOp::Compute{OpCode::transpose}, {op.operands[o]});
      transpose.compute().attrs.perm = perm;
      const BlockValue at = static_cast<BlockValue>(i);
      for (size_t j = i; j < kernel.ops.size(); ++j)
        for (BlockValue& operand : kernel.ops[j].operands) operand += operand >= at;
      op.operands[o] = at;
      kernel.ops.insert(kernel.ops.begin() + at, std::move(transpose));
    });
  }

  void change_map(size_t k, size_t i) {
    const BlockOp& op = mugraph_.kernels[k].ops[i];
    const int rank = mugraph_.tensors[static_cast<size_t>(op.tensor())].type.rank();
    for (int dim = -1; dim < rank; ++dim) {
      for (size_t axis = 0; axis < op.map().size(); ++axis)
        if (mugraph_.kernels[k].grid[axis] > 1 && op.map()[axis] != dim)
          add(k, i, "another map", [&](MuKernel&, BlockOp& m) { m.access().map[axis] = dim; });
      if ((op.is_load() || op.loop_dim() >= 0) && mugraph_.kernels[k].trip_count > 1 && op.loop_dim() != dim)
        add(k, i, "the loop cuts another dimension",
            [&](MuKernel&, BlockOp& m) { m.access().loop_dim = dim; });
    }
    for (size_t a = 0; a < op.map().size(); ++a)
      for (size_t b = a + 1; b < op.map().size(); ++b)
        if (op.map()[a] != op.map()[b])
          add(k, i, "axes exchanged",
              [&](MuKernel&, BlockOp& m) { std::swap(m.access().map[a], m.access().map[b]); });
    if (op.is_load())
      for (int32_t tensor = 0; tensor < static_cast<int32_t>(mugraph_.tensors.size()); ++tensor)
        if (tensor != op.tensor())
          add(k, i, "another tensor", [&](MuKernel&, BlockOp& m) { m.access().tensor = tensor; });
  }

  void change_compute(size_t k, size_t i) {
    const BlockOp& op = mugraph_.kernels[k].ops[i];
    const auto [first, last] = confusions().equal_range(op.code());
    for (auto at = first; at != last; ++at)
      add(k, i, std::string("taken for ") + op_info(at->second).text,
          [&](MuKernel&, BlockOp& m) { m.compute().code = at->second; });
    if (op.attrs().axis && op.attrs().axis->size() == 1)
      for (int64_t axis = 0; axis < 4; ++axis)
        if (axis != op.attrs().axis->front())
          add(k, i, "another axis", [&](MuKernel&, BlockOp& m) { m.compute().attrs.axis = Ints{axis}; });
    if (op.attrs().eps)
      for (double eps : {0.0, 1e-6, 1e-3})
        if (eps != *op.attrs().eps)
          add(k, i, "another epsilon", [&](MuKernel&, BlockOp& m) { m.compute().attrs.eps = eps; });
    if (op.code() == OpCode::where) change_condition(k, i);
    if (op.code() == OpCode::slice) change_slice(k, i);
    if (op.code() == OpCode::iota) add_one(k, i, "the index off by one");
    if (op.code() != OpCode::constant) return;
    if (op.extents().empty()) {
      for (double number : {0.0, op.number() / 10, op.number() + 1, -op.number()})
        if (number != op.number())
          add(k, i, "another number", [&](MuKernel&, BlockOp& m) { m.compute().number = number; });
    } else {
      for (size_t t = 0; t < mugraph_.tensors.size(); ++t)
        for (int d = 0; d < mugraph_.tensors[t].type.rank(); ++d)
          if (const TensorDim dim{static_cast<int32_t>(t), d}; dim != op.extents()[0])
            add(k, i, "another extent", [&](MuKernel&, BlockOp& m) { m.compute().extents[0] = dim; });
    }
  }

  void change_condition(size_t k, size_t i) {
    add(k, i, "branches swapped", [](MuKernel&, BlockOp& m) { std::swap(m.operands[1], m.operands[2]); });
    for (size_t branch : {size_t{1}, size_t{2}})
      add(k, i, branch == 1 ? "false branch dropped" : "true branch dropped",
          [&](MuKernel&, BlockOp& m) { m.operands[3 - branch] = m.operands[branch]; });
  }

  void change_slice(size_t k, size_t i) {
    const BlockOp& op = mugraph_.kernels[k].ops[i];
    const Ints& whole = mugraph_.kernels[k].ops[static_cast<size_t>(op.operands[0])].type.shape;
    for (size_t d = 0; d < whole.size(); ++d)
      for (int64_t by : {-1, 1})
        if ((*op.attrs().start)[d] + by >= 0 && (*op.attrs().stop)[d] + by <= whole[d])
          add(k, i, "slice off by one", [&](MuKernel&, BlockOp& m) {
            (*m.compute().attrs.start)[d] += by;
            (*m.compute().attrs.stop)[d] += by;
          });
  }

  // What reads operator i reads it plus one.
  void add_one(size_t k, size_t i, const std::string& change) {
    add(k, i, change, [&](MuKernel& kernel, BlockOp&) {
      const BlockValue self = static_cast<BlockValue>(i);
      const BlockOp one = BlockOp::constant(1);
      const BlockOp sum(BlockOp::Compute{OpCode::add}, {self, self + 1});
      for (size_t j = i + 1; j < kernel.ops.size(); ++j)
        for (BlockValue& operand : kernel.ops[j].operands)
          operand += operand >= self ? 2 : 0;
      kernel.ops.insert(kernel.ops.begin() + self + 1, {one, sum});
    });
  }

  void change_combination(size_t k, size_t i) {
    const BlockOp& op = mugraph_.kernels[k].ops[i];
    if (op.combine() != Combine::rescaled_sum && op.combine() != Combine::concat)
      for (OpCode other : reductions())
        if (combine_of(other) != op.combine())
          add(k, i, combine_text(combine_of(other)) + " for " + combine_text(op.combine()),
              [other](MuKernel&, BlockOp& m) { set_combine(m, combine_of(other)); });
    if (op.combine() == Combine::rescaled_sum)
      add(k, i, "rescaling forgotten", [](MuKernel&, BlockOp& m) {
        set_combine(m, Combine::sum);
        m.operands.pop_back();
      });
    for (size_t j = 0; j < i && op.combine() == Combine::sum; ++j)
      add(k, i, "rescaled without need", [&](MuKernel&, BlockOp& m) {
        set_combine(m, Combine::rescaled_sum);
        m.operands.push_back(static_cast<BlockValue>(j));
      });
    add(k, i, "dropped", [&](MuKernel& kernel, BlockOp& m) {
      for (BlockOp& user : kernel.ops)
        for (BlockValue& operand : user.operands)
          if (operand == static_cast<BlockValue>(i)) operand = m.operands[0];
    });
  }

  const MuGraph& mugraph_;
  std::vector<Mutant> mutants_;
};

}  // namespace

std::vector<Mutant> mutants(const MuGraph& mugraph) { return Mutator(mugraph).run(); }

}  // namespace quern
