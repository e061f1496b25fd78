#include "core/mugraph/views.h"

#include <algorithm>
#include <map>

#include "core/mugraph/edit.h"
#include "core/mugraph/positions.h"

namespace quern {

namespace {

using Access = BlockOp::Access;

// The same cuts of another tensor: `dims` gives for each dimension of the one its number in the other, or -1.
Access renumbered(const Access& access, int32_t tensor, const std::vector<int>& dims) {
  Access out{tensor};
  auto to = [&](int dim) { return dim < 0 ? -1 : dims[static_cast<size_t>(dim)]; };
  for (size_t axis = 0; axis < access.map.size(); ++axis) out.map[axis] = to(access.map[axis]);
  out.loop_dim = to(access.loop_dim);
  return out;
}

// What operators over whole tensors make of iotas, numbers and integers.
class Positions {
 public:
  explicit Positions(const MuGraph& mugraph)
      : mugraph_(mugraph), makers_(mugraph.tensors.size()), made_(mugraph.tensors.size()) {
    for (const MuKernel& kernel : mugraph.kernels)
      if (!kernel.custom) makers_[static_cast<size_t>(kernel.result)] = &kernel;
    for (size_t t = 0; t < made_.size(); ++t)
      if (tensor(static_cast<int32_t>(t)).type.literal)
        made_[t] = made_by(OpCode::constant, {}, 0, {});
      else if (!makers_[t])
        read(t);
    for (const MuKernel& kernel : mugraph.kernels) find(kernel);
  }

  const MuTensor& tensor(int32_t id) const { return mugraph_.tensors[static_cast<size_t>(id)]; }
  // Null: it is read from memory.
  const MuKernel* maker(int32_t id) const { return makers_[static_cast<size_t>(id)]; }

  // Whether operators compute a tile of the tensor, in place of reading it.
  bool are_better(int32_t id) const {
    const auto& made = made_[static_cast<size_t>(id)];
    return made && made->is_computed_in_kernels();
  }

  // An operand of an elementwise operator without what only repeats its elements, which such operators do
  // themselves.
  int32_t repeated(int32_t id) const {
    const MuKernel* kernel = tensor(id).type.literal ? nullptr : maker(id);
    return kernel && kernel->code == OpCode::broadcast ? repeated(kernel->operands[0]) : id;
  }

 private:
  void find(const MuKernel& kernel) {
    if (kernel.custom) return;
    const auto t = static_cast<size_t>(kernel.result);
    std::vector<std::optional<MadeOfPositions>> operands;
    for (int32_t operand : kernel.operands) operands.push_back(made_[static_cast<size_t>(operand)]);
    made_[t] = made_by(kernel.code, kernel.attrs, tensor(kernel.result).type.rank(), operands);
    if (!made_[t]) read(t);
  }
  void read(size_t t) {
    const TensorType& type = mugraph_.tensors[t].type;
    made_[t] = made_of_integers(type.dtype, type.shape);
    makers_[t] = nullptr;
  }

  const MuGraph& mugraph_;
  std::vector<const MuKernel*> makers_;  // by tensor; null: a block graph, the caller, or an operator of other values
  std::vector<std::optional<MadeOfPositions>> made_;
};

class Rewriter {
 public:
  explicit Rewriter(MuGraph& mugraph) : mugraph_(mugraph), positions_(mugraph) {}

  void run() {
    std::vector<MuKernel> kernels;
    for (const MuKernel& kernel : mugraph_.kernels) {
      if (!kernel.custom) {
        kernels.push_back(kernel);
        continue;
      }
      MuKernel rewritten = rewrite(kernel);
      std::move(movements_.begin(), movements_.end(), std::back_inserter(kernels));
      movements_.clear();
      kernels.push_back(std::move(rewritten));
      std::move(behind_.begin(), behind_.end(), std::back_inserter(kernels));
      behind_.clear();
    }
    mugraph_.kernels = std::move(kernels);
    drop_unused_operators();
    drop_unused_tensors();
  }

 private:
  MuKernel rewrite(const MuKernel& from) {
    MuKernel to = from;
    to.ops.clear();
    expanded_.clear();
    std::vector<BlockValue> became;
    for (size_t i = 0; i < from.ops.size(); ++i) {
      const BlockOp& op = from.ops[i];
      if (op.is_load()) {
        became.push_back(positions_.are_better(op.tensor()) ? expand(to, op.access()) : append(to, op));
        continue;
      }
      BlockOp copy = op;
      for (BlockValue& operand : copy.operands) operand = became[static_cast<size_t>(operand)];
      if (op.is_compute(OpCode::transpose) || op.is_compute(OpCode::reshape))
        if (const BlockOp& load = to.ops[static_cast<size_t>(copy.operands[0])]; load.is_load())
          copy = moved(load.access(), op, from.ops[static_cast<size_t>(op.operands[0])].type.shape,
                       is_for_products(from, i))
                     .value_or(std::move(copy));
      if (op.is_store()) store_as_it_lies(to, copy);
      became.push_back(append(to, std::move(copy)));
    }
    keep_stored(to.ops);
    return to;
  }

  // A transposed tile that nothing but products read is stored as it lies, and they find it transposed: either way they read it
  // as fast, where elements are narrow enough for tensor cores to take both orders.
  void store_as_it_lies(const MuKernel& kernel, BlockOp& store) {
    const BlockOp& last = kernel.ops[static_cast<size_t>(store.operands[0])];
    const int32_t tensor = store.tensor();
    if (!last.is_compute(OpCode::transpose) || !is_for_products(tensor)) return;
    const Ints& perm = *last.attrs().perm;
    MuTensor stored{unique_tensor_name(mugraph_, positions_.tensor(tensor).name + "_stored"),
                    positions_.tensor(tensor).type};
    for (size_t d = 0; d < perm.size(); ++d)
      stored.type.shape[static_cast<size_t>(perm[d])] = positions_.tensor(tensor).type.shape[d];
    const auto id = static_cast<int32_t>(mugraph_.tensors.size());
    mugraph_.tensors.push_back(std::move(stored));
    store =
        BlockOp(BlockOp::Store{renumbered(store.access(), id, std::vector<int>(perm.begin(), perm.end()))},
                {last.operands[0]});
    MuKernel view;
    view.code = OpCode::transpose;
    view.attrs.perm = perm;
    view.operands = {id};
    view.result = tensor;
    behind_.push_back(std::move(view));
  }

  // Whether narrow elements are stored once, and then read by products alone.
  bool is_for_products(int32_t tensor) const {
    if (dtype_size(positions_.tensor(tensor).type.dtype) > 2) return false;
    int stores = 0;
    for (const MuKernel& kernel : mugraph_.kernels) {
      if (std::find(kernel.operands.begin(), kernel.operands.end(), tensor) != kernel.operands.end())
        return false;
      for (size_t i = 0; i < kernel.ops.size(); ++i) {
        const BlockOp& op = kernel.ops[i];
        if (!op.has_access() || op.tensor() != tensor) continue;
        stores += op.is_store();
        if (op.is_load() && !is_for_products(kernel, i)) return false;
      }
    }
    return stores == 1 &&
           std::find(mugraph_.outputs.begin(), mugraph_.outputs.end(), tensor) == mugraph_.outputs.end();
  }

  // Whether nothing but products use the value.
  static bool is_for_products(const MuKernel& kernel, size_t value) {
    return std::all_of(kernel.ops.begin(), kernel.ops.end(), [&](const BlockOp& op) {
      const bool uses = std::find(op.operands.begin(), op.operands.end(), static_cast<BlockValue>(value)) !=
                        op.operands.end();
      return !uses || op.is_compute(OpKind::contraction);
    });
  }

  static BlockValue append(MuKernel& to, BlockOp op) {
    to.ops.push_back(std::move(op));
    return static_cast<BlockValue>(to.ops.size()) - 1;
  }

  static BlockValue compute(MuKernel& to, OpCode code, std::vector<BlockValue> operands, Attrs attrs) {
    return append(to, BlockOp(BlockOp::Compute{code, std::move(attrs)}, std::move(operands)));
  }

  // Operators of a block graph that compute a tile of what positions decide.
  BlockValue expand(MuKernel& to, const Access& access) {
    const auto [at, fresh] = expanded_.try_emplace(access, -1);
    if (!fresh) return at->second;
    const MuTensor& tensor = positions_.tensor(access.tensor);
    if (tensor.type.literal) return at->second = append(to, BlockOp::constant(tensor.number));
    const MuKernel* made = positions_.maker(access.tensor);
    if (!made || made->code == OpCode::iota) return at->second = append(to, BlockOp(BlockOp::Load{access}));
    const MuKernel& maker = *made;
    std::vector<BlockValue> operands;
    for (int32_t operand : maker.operands) {
      const int32_t source = maker.code == OpCode::transpose ? operand : positions_.repeated(operand);
      operands.push_back(expand(to, renumbered(access, source, dims_in(maker, source))));
    }
    BlockValue value = compute(to, maker.code, std::move(operands), maker.attrs);
    // Kernels compute in f32 what operators over whole tensors round.
    if (dtype_size(tensor.type.dtype) == 2 && maker.code != OpCode::cast) {
      Attrs attrs;
      attrs.dtype = tensor.type.dtype;
      value = compute(to, OpCode::cast, {value}, std::move(attrs));
    }
    return expanded_[access] = value;
  }

  // For each dimension of what an operator makes its number in an operand.
  std::vector<int> dims_in(const MuKernel& maker, int32_t operand) const {
    const Ints &whole = positions_.tensor(maker.result).type.shape,
               &own = positions_.tensor(operand).type.shape;
    std::vector<int> dims;
    for (size_t d = 0; d < whole.size(); ++d) {
      if (maker.code == OpCode::transpose) {
        dims.push_back(static_cast<int>((*maker.attrs.perm)[d]));
        continue;
      }
      const auto at = static_cast<int64_t>(d + own.size()) - static_cast<int64_t>(whole.size());
      dims.push_back(at >= 0 && own[static_cast<size_t>(at)] == whole[d] ? static_cast<int>(at) : -1);
    }
    return dims;
  }

  // A load of what the transpose or reshape makes of the load's tensor, in place of what it makes of the tile,
  // if that is all that the reshape does: to drop dimensions of which the tensor has one index, or to add some for
  // a product, whose operands come as they lie.
  std::optional<BlockOp> moved(const Access& load, const BlockOp& op, const Ints& tile, bool for_products) {
    const bool transposes = op.is_compute(OpCode::transpose);
    // What is computed from positions has no memory to be read in another shape.
    if (!transposes && positions_.tensor(load.tensor).numbered >= 0) return std::nullopt;
    const Ints& wanted = op.type.shape;
    std::optional<Ints> kept;
    if (transposes)
      kept = *op.attrs().perm;
    else if (wanted.size() < tile.size())
      kept = kept_dims(positions_.tensor(load.tensor).type.shape, tile, wanted);
    else if (for_products)
      kept = dims_with_more(tile, wanted);
    if (!kept) return std::nullopt;
    std::vector<int> dims(tile.size(), -1);
    for (size_t d = 0; d < kept->size(); ++d)
      if ((*kept)[d] >= 0) dims[static_cast<size_t>((*kept)[d])] = static_cast<int>(d);
    return BlockOp(BlockOp::Load{renumbered(load, moved_tensor(load.tensor, *kept, transposes), dims)});
  }

  // The dimensions of a tile that are left when it becomes one of `wanted` extents.
  std::optional<Ints> kept_dims(const Ints& whole, const Ints& tile, const Ints& wanted) const {
    if (tile.size() != whole.size()) return std::nullopt;
    Ints kept, extents;
    for (size_t d = 0; d < tile.size(); ++d) {
      if (whole[d] == 1 && tile.size() - d + kept.size() > wanted.size()) continue;
      kept.push_back(static_cast<int64_t>(d));
      extents.push_back(tile[d]);
    }
    return extents == wanted ? std::optional(kept) : std::nullopt;
  }

  // For each of these extents the tile's dimension that has it, or -1: all of them in their order, and others of extent 1.
  static std::optional<Ints> dims_with_more(const Ints& tile, const Ints& wanted) {
    Ints dims(wanted.size(), -1);
    size_t left = tile.size();
    for (size_t w = wanted.size(); w-- > 0;)
      if (left > 0 && wanted[w] == tile[left - 1])
        dims[w] = static_cast<int64_t>(--left);
      else if (wanted[w] != 1)
        return std::nullopt;
    return left == 0 ? std::optional(dims) : std::nullopt;
  }

  // The tensor with these of its dimensions, in this order; -1: with one of extent 1.
  int32_t moved_tensor(int32_t source, const Ints& dims, bool transposes) {
    const auto [at, fresh] =
        moved_.try_emplace({source, dims}, static_cast<int32_t>(mugraph_.tensors.size()));
    if (!fresh) return at->second;
    const bool adds = std::find(dims.begin(), dims.end(), -1) != dims.end();
    const char* suffix = transposes ? "_transposed" : adds ? "_unsqueezed" : "_squeezed";
    MuTensor tensor{unique_tensor_name(mugraph_, positions_.tensor(source).name + suffix),
                    positions_.tensor(source).type};
    tensor.numbered = positions_.tensor(source).numbered;  // or by another dimension: validate() says which
    tensor.type.shape.clear();
    for (int64_t dim : dims)
      tensor.type.shape.push_back(dim < 0 ? 1
                                          : positions_.tensor(source).type.shape[static_cast<size_t>(dim)]);
    MuKernel kernel;
    kernel.code = transposes ? OpCode::transpose : OpCode::reshape;
    (transposes ? kernel.attrs.perm : kernel.attrs.shape) = transposes ? dims : tensor.type.shape;
    kernel.operands = {source};
    kernel.result = at->second;
    mugraph_.tensors.push_back(std::move(tensor));
    movements_.push_back(std::move(kernel));
    return at->second;
  }

  template <class Visit>
  static void visit_tensors(MuKernel& kernel, Visit visit) {
    for (int32_t& operand : kernel.operands) visit(operand);
    if (!kernel.custom) visit(kernel.result);
    for (BlockOp& op : kernel.ops) for_each_tensor(op, visit);
  }

  void drop_unused_operators() {
    std::vector<bool> used(mugraph_.tensors.size());
    for (int32_t output : mugraph_.outputs) used[static_cast<size_t>(output)] = true;
    std::vector<MuKernel> kept;
    for (size_t k = mugraph_.kernels.size(); k-- > 0;) {
      MuKernel& kernel = mugraph_.kernels[k];
      if (!kernel.custom && !used[static_cast<size_t>(kernel.result)]) continue;
      visit_tensors(kernel, [&](int32_t tensor) { used[static_cast<size_t>(tensor)] = true; });
      kept.push_back(std::move(kernel));
    }
    std::reverse(kept.begin(), kept.end());
    mugraph_.kernels = std::move(kept);
  }

  void drop_unused_tensors() {
    std::vector<bool> used(mugraph_.tensors.size());
    for (const auto* given : {&mugraph_.inputs, &mugraph_.outputs})
      for (int32_t tensor : *given) used[static_cast<size_t>(tensor)] = true;
    for (MuKernel& kernel : mugraph_.kernels)
      visit_tensors(kernel, [&](int32_t tensor) { used[static_cast<size_t>(tensor)] = true; });
    std::vector<int32_t> became(mugraph_.tensors.size(), -1);
    std::vector<MuTensor> kept;
    for (size_t t = 0; t < used.size(); ++t) {
      if (!used[t]) continue;
      became[t] = static_cast<int32_t>(kept.size());
      kept.push_back(std::move(mugraph_.tensors[t]));
    }
    mugraph_.tensors = std::move(kept);
    auto renumber = [&](int32_t& tensor) { tensor = became[static_cast<size_t>(tensor)]; };
    for (auto* given : {&mugraph_.inputs, &mugraph_.outputs})
      for (int32_t& tensor : *given) renumber(tensor);
    for (MuKernel& kernel : mugraph_.kernels) visit_tensors(kernel, renumber);
  }

  MuGraph& mugraph_;
  const Positions positions_;
  std::map<Access, BlockValue> expanded_;              // of the kernel that is rewritten
  std::map<std::pair<int32_t, Ints>, int32_t> moved_;  // tensors, by source and the dimensions that they have
  std::vector<MuKernel> movements_, behind_;  // that the kernel needs in front of it, or others of it
};

}  // namespace

void use_views(MuGraph& mugraph) {
  MuGraph rewritten = mugraph;
  Rewriter(rewritten).run();
  if (validate(rewritten).ok()) mugraph = std::move(rewritten);
}

}  // namespace quern
