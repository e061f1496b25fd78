#include "core/codegen/partition.h"

#include <algorithm>

#include "core/codegen/roots.h"
#include "core/codegen/tiles.h"

namespace quern {

namespace {

// Bounds of one kernel. A kernel that makes a single root is always allowed.
constexpr int kMaxKernelCost = 384;
constexpr int kMaxEpilogueCost = 48;  // of what follows a matrix product: it is repeated in every register
constexpr size_t kMaxMakes = 32;
constexpr int kMaxLevels = 8;
constexpr int kLookBack = 8;  // kernels that a root without a reason to be in one of them tries to join

class Partitioner {
 public:
  Partitioner(const Graph& graph, const Target& target)
      : graph_(graph), target_(target), reads_(graph.nodes.size()), kernel_of_(graph.nodes.size(), -1) {}

  Partition run() {
    result_.is_root = choose_roots(graph_);
    for (ValueId root : order_roots()) place(root);
    return std::move(result_);
  }

 private:
  const Node& node(ValueId id) const { return graph_.node(id); }
  OpKind kind(ValueId id) const { return op_info(node(id).code).kind; }
  std::vector<ValueId>& reads(ValueId id) { return reads_[static_cast<size_t>(id)]; }

  // By the length of the longest path of roots before them: kernels of one depth can be shared.
  std::vector<ValueId> order_roots() {
    std::vector<std::pair<int, ValueId>> order;
    std::vector<int> depths(graph_.nodes.size(), 0);
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.nodes.size()); ++id) {
      if (!result_.is_root[static_cast<size_t>(id)]) continue;
      reads(id) = find_reads(id);
      int& depth = depths[static_cast<size_t>(id)];
      for (ValueId read : reads(id)) depth = std::max(depth, depths[static_cast<size_t>(read)] + 1);
      order.emplace_back(depth, id);
    }
    std::sort(order.begin(), order.end());
    std::vector<ValueId> roots;
    for (const auto& [depth, id] : order) roots.push_back(id);
    return roots;
  }

  std::vector<ValueId> find_reads(ValueId id) const {
    IndexSpace space;
    if (kind(id) == OpKind::contraction) return product_reads(id);
    Trace trace(graph_, space, [&](ValueId value, const Coords&) {
      return result_.is_root[static_cast<size_t>(value)] ? Meeting::load : Meeting::expand;
    });
    const bool reduction = kind(id) == OpKind::reduction;
    const ValueId top = reduction ? node(id).operands[0] : id;
    const Ints& shape = node(top).type.shape;
    const Coords coords = space.unflatten(shape, space.variable("i", node(top).type.element_count()));
    reduction ? trace.read(top, coords) : trace.root(top, coords);
    return loads(trace);
  }

  static std::vector<ValueId> loads(const Trace& trace) {
    std::vector<ValueId> values;
    for (const Item& item : trace.items())
      if (item.kind == Item::Kind::load) values.push_back(item.value);
    return unique(std::move(values));
  }

  static std::vector<ValueId> unique(std::vector<ValueId> values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
  }

  std::vector<ValueId> product_reads(ValueId id) const {
    std::vector<ValueId> sources;
    for (ValueId operand : node(id).operands) {
      const auto view = view_matrix(graph_, result_.is_root, operand, node(id).type.shape);
      check(view.has_value(), "an operand of a matrix product is no matrix");
      sources.push_back(view->source);
    }
    return unique(std::move(sources));
  }

  void place(ValueId root) {
    int earliest = -1;
    for (ValueId read : reads(root)) earliest = std::max(earliest, kernel_of_[static_cast<size_t>(read)]);
    const int count = static_cast<int>(result_.kernels.size());
    int& home = kernel_of_[static_cast<size_t>(root)];
    if (earliest >= 0 && join(earliest, root, true)) {
      home = earliest;
      return;
    }
    for (int k = std::max(earliest + 1, count - kLookBack); k < count; ++k)
      if (join(k, root, false)) {
        home = k;
        return;
      }
    Kernel kernel;
    start(kernel, root);
    check(lower(kernel), "a value cannot be made by a kernel of its own");
    result_.kernels.push_back(std::move(kernel));
    home = count;
  }

  void start(Kernel& kernel, ValueId root) const {
    switch (kind(root)) {
      case OpKind::contraction:
        kernel.domain = node(root).type.shape;
        kernel.product = root;
        kernel.makes[root] = Role::product;
        return;
      case OpKind::reduction:
        kernel.domain = node(node(root).operands[0]).type.shape;
        kernel.axes = *node(root).attrs.axis;
        kernel.makes[root] = Role::reduction;
        return;
      default:
        kernel.domain = node(root).type.shape;
        kernel.makes[root] = Role::element;
    }
  }

  bool join(int at, ValueId root, bool depends) {
    const Kernel& old = result_.kernels[static_cast<size_t>(at)];
    if (old.makes.size() >= kMaxMakes) return false;
    Kernel kernel = old;
    if (!admit(kernel, root, depends) || !lower(kernel)) return false;
    if (kernel.cost > (kernel.is_matmul() ? kMaxEpilogueCost : kMaxKernelCost)) return false;
    for (const auto& [value, level] : kernel.levels)
      if (level >= kMaxLevels) return false;
    result_.kernels[static_cast<size_t>(at)] = std::move(kernel);
    return true;
  }

  // A row that does not stay on the chip is read again from cache for every level; with few rows it is better
  // read by a whole GPU.
  bool worth_fusing(const Kernel& kernel) const {
    return kernel.row_length() <= 16384 || kernel.rows() >= 128 ||
           keeps_row(target_, kernel.domain, kernel.axes);
  }

  // Gives `root` a role in the kernel, if the points it is made at are those of the kernel.
  bool admit(Kernel& kernel, ValueId root, bool depends) const {
    const int64_t count = node(root).type.element_count();
    switch (kind(root)) {
      case OpKind::contraction:
        return false;
      case OpKind::reduction:
        return admit_reduction(kernel, root, depends);
      default:
        break;
    }
    if (kernel.axes.empty() ? count != kernel.points() : !depends) return false;
    if (kernel.is_matmul() && !depends) return false;
    if (count == kernel.points() && worth_fusing(kernel))
      kernel.makes[root] = Role::element;
    else if (count == kernel.rows())
      kernel.makes[root] = Role::row;
    else
      return false;
    return true;
  }

  bool admit_reduction(Kernel& kernel, ValueId root, bool depends) const {
    Kernel own;
    start(own, root);
    if (kernel.is_matmul()) return false;
    kernel.makes[root] = Role::reduction;
    if (!kernel.axes.empty()) return kernel.domain == own.domain && kernel.axes == own.axes;
    // A kernel of points becomes one of rows.
    if (!depends || kernel.points() != own.points() || !worth_fusing(own)) return false;
    kernel.domain = own.domain;
    kernel.axes = own.axes;
    return true;
  }

  // Traces all that the kernel makes. False when a value is not at hand where it is needed.
  bool lower(Kernel& kernel) const {
    const KernelTrace traced(graph_, kernel, result_.is_root);
    const Trace& trace = traced.trace();
    if (trace.failed()) return false;
    kernel.levels.clear();
    std::vector<int> levels;  // of items: the first level of reductions that can use them
    for (const auto& [value, role] : kernel.makes) {
      if (role == Role::product) continue;
      const int item = traced.computed(value);
      while (static_cast<int>(levels.size()) <= item) levels.push_back(level_of(kernel, trace, levels));
      // What is made by rows is at hand before the points of the row are looked at: it reads none of them.
      if (role == Role::row && traced.uses_inner(item)) return false;
      if (role == Role::reduction) kernel.levels[value] = levels[static_cast<size_t>(item)];
    }
    kernel.cost = traced.cost();
    kernel.reads = loads(trace);
    if (kernel.is_matmul()) add_operands(kernel);
    return true;
  }

  // Of the item that follows those of `levels`.
  static int level_of(const Kernel& kernel, const Trace& trace, const std::vector<int>& levels) {
    const Item& item = trace.items()[levels.size()];
    int level =
        item.kind == Item::Kind::held && item.value != kernel.product ? kernel.levels.at(item.value) + 1 : 0;
    for (int operand : item.operands) level = std::max(level, levels[static_cast<size_t>(operand)]);
    return level;
  }

  void add_operands(Kernel& kernel) const {
    const Node& product = node(kernel.product);
    std::vector<ValueId> operands = product_reads(kernel.product);
    if (uses_tensor_cores(node(product.operands[0]).type.dtype, node(product.operands[1]).type.dtype)) {
      kernel.narrow_reads = std::move(operands);
    } else {
      kernel.reads.insert(kernel.reads.end(), operands.begin(), operands.end());
      kernel.reads = unique(std::move(kernel.reads));
    }
  }

  const Graph& graph_;
  const Target& target_;
  Partition result_;
  std::vector<std::vector<ValueId>> reads_;
  std::vector<int> kernel_of_;
};

}  // namespace

Partition partition(const Graph& graph, const Target& target) { return Partitioner(graph, target).run(); }

std::optional<MatrixView> view_matrix(const Graph& graph, const std::vector<bool>& is_root, ValueId operand,
                                      const Ints& product) {
  const Ints& shape = graph.node(operand).type.shape;
  const Ints batches(product.begin(), product.end() - 2);
  int64_t matrices = 1;
  for (int64_t extent : batches) matrices *= extent;
  MatrixView view;
  IndexSpace& space = view.space;
  view.batch = space.variable("batch", matrices);
  const Coords matrix = space.unflatten(batches, view.batch);
  const size_t rank = shape.size(), missing = product.size() - rank;
  Coords coords(rank);
  for (size_t i = 0; i + 2 < rank; ++i)
    if (shape[i] != 1) coords[i] = matrix[missing + i];
  const Index row = coords[rank - 2] = space.variable("row", shape[rank - 2]);
  const Index column = coords[rank - 1] = space.variable("column", shape[rank - 1]);
  Trace trace(
      graph, space,
      [&](ValueId value, const Coords&) {
        return is_root[static_cast<size_t>(value)] ? Meeting::load : Meeting::expand;
      },
      64);
  const int top = trace.read(operand, coords);
  if (trace.failed() || trace.items().size() != 1 || trace.item(top).kind != Item::Kind::load)
    return std::nullopt;
  view.source = trace.item(top).value;
  view.base = trace.item(top).index;
  auto take_stride = [&](const Index& variable) {
    int64_t stride = 0;
    if (!variable.is_constant())
      for (const Index::Term& term : view.base.terms)
        if (term.atom == variable.terms[0].atom) stride = term.factor;
    view.base = space.add(view.base, space.scale(variable, -stride));
    return stride;
  };
  view.row_stride = take_stride(row);
  view.column_stride = take_stride(column);
  if (space.uses(view.base) & (space.uses(row) | space.uses(column))) return std::nullopt;
  return view;
}

}  // namespace quern
