// Evaluates single elements of a graph over any domain of evaluate.h: only what an element depends on is
// computed, and remembered. For a few elements of a program at its full shape.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <unordered_map>

#include "core/verify/evaluate.h"
#include "core/verify/stop.h"

namespace quern {

// How many values may still be computed, and until when. When it is spent, evaluators return zeros quickly,
// and what they returned since says nothing.
struct PullBudget {
  int64_t left = 0;
  Stop* stop = nullptr;
  bool spent() const { return left < 0; }
  // Whether so many values may be computed.
  bool spend(int64_t count) {
    if (stop && stop->before(count)) left = -1;
    return (left -= count) >= 0;
  }
};

namespace internal {

// Values by offset, in pages that are made where a value is remembered.
template <class Value>
class Memo {
 public:
  explicit Memo(int64_t count) : count_(count) {}

  const Value* find(int64_t at) const {
    const Page* page = nullptr;
    if (count_ > kListed) {
      const auto found = scattered_.find(at / kPage);
      page = found == scattered_.end() ? nullptr : found->second.get();
    } else if (!listed_.empty()) {
      page = listed_[static_cast<size_t>(at / kPage)].get();
    }
    return page && page->known >> (at % kPage) & 1 ? &page->values[at % kPage] : nullptr;
  }

  void put(int64_t at, const Value& value) {
    if (count_ <= kListed && listed_.empty())
      listed_.resize(static_cast<size_t>((count_ + kPage - 1) / kPage));
    std::unique_ptr<Page>& page =
        count_ > kListed ? scattered_[at / kPage] : listed_[static_cast<size_t>(at / kPage)];
    if (!page) page = std::make_unique<Page>();
    page->known |= uint32_t{1} << (at % kPage);
    page->values[at % kPage] = value;
  }
  // Of what was put.
  void forget(int64_t at) {
    Page& page = count_ > kListed ? *scattered_[at / kPage] : *listed_[static_cast<size_t>(at / kPage)];
    page.known &= ~(uint32_t{1} << (at % kPage));
  }

 private:
  static constexpr int64_t kPage = 32;
  static constexpr int64_t kListed = int64_t{1}
                                     << 24;  // values of a list of pages; larger ones are scattered
  struct Page {
    uint32_t known = 0;
    Value values[kPage];
  };
  int64_t count_;
  std::vector<std::unique_ptr<Page>> listed_;
  std::unordered_map<int64_t, std::unique_ptr<Page>> scattered_;
};

}  // namespace internal

template <class Domain>
class PullEvaluator {
 public:
  using Value = typename Domain::Value;
  // `count` elements of an input node, from an offset on in steps.
  using Source = std::function<void(ValueId, int64_t at, int64_t step, int64_t count, Value* to)>;

  // A decomposed graph.
  PullEvaluator(const Graph& graph, Domain& domain, PullBudget& budget, Source source)
      : graph_(graph),
        domain_(domain),
        budget_(budget),
        source_(std::move(source)),
        plans_(graph.nodes.size()) {
    find_read_once();
    for (const Node& node : graph.nodes) {
      memo_.emplace_back(node.type.element_count());
      dense_.push_back(dense_strides(node.type.shape));
    }
  }

  Value element(ValueId id, int64_t at) {
    const size_t i = static_cast<size_t>(id);
    if (graph_.nodes[i].code == OpCode::input) {
      Value value;
      source_(id, at, 0, 1, &value);
      return value;
    }
    if (!read_once_[i])
      if (const Value* known = memo_[i].find(at)) return *known;
    if (!budget_.spend(1)) return domain_.zero(DType::f32);
    const Node& node = graph_.nodes[i];
    Value value = compute(node, i, at);
    if (node.code != OpCode::constant) value = domain_.finish(value, node);
    if (!read_once_[i]) {
      memo_[i].put(at, value);
      if (is_marked_) behind_mark_.emplace_back(i, at);
    }
    return value;
  }

  // What is remembered from here on can be forgotten, as when the budget was spent meanwhile.
  void mark() {
    is_marked_ = true;
    behind_mark_.clear();
  }
  void forget_behind_mark() {
    for (const auto& [node, at] : behind_mark_) memo_[node].forget(at);
    for (Plan& plan : plans_) plan.held_at[0] = plan.held_at[1] = -1;
    behind_mark_.clear();
  }

 private:
  // How a node reads its operands, worked out once: strides in each operand of the result's coordinates.
  struct Plan {
    bool made = false;
    std::vector<Ints> strides;
    std::vector<bool> same;       // operands that are read at the result's own offset
    std::vector<DType> from, to;  // conversion of each operand
    DType compute = DType::f32;
    Ints reduced, steps;  // reductions and contractions: extents, and strides in operand 0
    int64_t step = 0;     // contractions: of operand 1
    int64_t start = 0;    // slices
    // Contractions: the runs of both operands that were read last, and from where. Elements of one row or
    // column are often asked for one after the other.
    std::vector<Value> held[2];
    int64_t held_at[2] = {-1, -1};
  };

  const Node& operand(const Node& node, size_t i) const { return graph_.node(node.operands[i]); }

  // Elements that only one operator reads, and each of them once, need not be remembered.
  void find_read_once() {
    std::vector<int> reads(graph_.nodes.size());
    for (const Node& node : graph_.nodes)
      for (ValueId operand : node.operands) {
        const OpInfo& info = op_info(node.code);
        const bool each_once = info.kind == OpKind::reduction ||
                               (info.kind == OpKind::elementwise &&
                                graph_.node(operand).type.element_count() == node.type.element_count());
        reads[static_cast<size_t>(operand)] += each_once ? 1 : 2;
      }
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      read_once_.push_back(reads[i] == 1 && op_info(graph_.nodes[i].code).kind == OpKind::elementwise);
  }

  // Operand i from `at` on in steps, as the operator reads it.
  void read_run(const Node& node, const Plan& plan, size_t i, int64_t at, int64_t step,
                std::vector<Value>& to) {
    run(node.operands[i], at, step, to);
    for (Value& value : to) value = domain_.convert(value, plan.from[i], plan.to[i]);
  }

  // Elements from `at` on in steps. What is not remembered is computed together.
  void run(ValueId id, int64_t at, int64_t step, std::vector<Value>& to) {
    const size_t self = static_cast<size_t>(id);
    const Node& node = graph_.nodes[self];
    const int64_t count = static_cast<int64_t>(to.size());
    if (node.code == OpCode::input) return source_(id, at, step, count, to.data());
    const Plan& plan = plan_of(node, self);
    if (!read_once_[self] || std::find(plan.same.begin(), plan.same.end(), false) != plan.same.end()) {
      for (int64_t i = 0; i < count; ++i) to[static_cast<size_t>(i)] = element(id, at + i * step);
      return;
    }
    std::vector<Value> operands[3];
    if (!budget_.spend(count)) return;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      operands[i].resize(to.size(), domain_.zero(plan.compute));
      read_run(node, plan, i, at, step, operands[i]);
    }
    for (size_t e = 0; e < to.size(); ++e) {
      Value values[3] = {domain_.zero(plan.compute), domain_.zero(plan.compute), domain_.zero(plan.compute)};
      for (size_t i = 0; i < node.operands.size(); ++i) values[i] = operands[i][e];
      to[e] = domain_.finish(domain_.apply(node.code, plan.compute, values), node);
    }
  }

  Value read(const Node& node, const Plan& plan, size_t i, int64_t at) {
    return domain_.convert(element(node.operands[i], at), plan.from[i], plan.to[i]);
  }

  // Of operand i, whose elements several of the result may read.
  Value shared(const Node& node, size_t i, const Value& value) {
    if constexpr (requires { domain_.shared(value); })
      if (operand(node, i).type.element_count() < node.type.element_count()) return domain_.shared(value);
    return value;
  }

  // The coordinates at `at` in node `id`, weighted.
  int64_t mapped(size_t id, int64_t at, const Ints& strides) const {
    int64_t offset = 0;
    const Ints& dense = dense_[id];
    for (size_t d = 0; d < strides.size(); ++d) {
      offset += at / dense[d] * strides[d];
      at %= dense[d];
    }
    return offset;
  }
  int64_t place(const Plan& plan, size_t id, size_t i, int64_t at) const {
    return plan.same[i] ? at : mapped(id, at, plan.strides[i]);
  }

  // ---- plans ----

  Plan& plan_of(const Node& node, size_t id) {
    Plan& plan = plans_[id];
    if (plan.made) return plan;
    plan.made = true;
    plan.compute = compute_class(node.type.dtype);
    const OpInfo& info = op_info(node.code);
    if (info.kind == OpKind::elementwise) plan.compute = compute_dtype(node.code, graph_.operand_types(node));
    for (size_t i = 0; i < node.operands.size(); ++i) {
      plan.from.push_back(compute_class(operand(node, i).type.dtype));
      plan.to.push_back(info.result == ResultRule::select && i == 0 ? DType::boolean
                                                                    : compute_class(plan.compute));
      plan.strides.push_back(operand_strides(node, i, plan));
      // Strides of extents of 1 differ without a difference.
      plan.same.push_back(
          operand(node, i).type.shape == node.type.shape &&
          (info.kind == OpKind::elementwise || (plan.strides.back() == dense_[id] && plan.start == 0)));
    }
    return plan;
  }

  Ints operand_strides(const Node& node, size_t i, Plan& plan) const {
    const Ints& shape = operand(node, i).type.shape;
    const Ints dense = dense_strides(shape);
    switch (op_info(node.code).kind) {
      case OpKind::contraction:
        return matmul_strides(node, i, plan);
      case OpKind::reduction:
        return reduction_strides(node, dense, plan);
      case OpKind::conversion:
        return dense;
      case OpKind::elementwise:
        return internal::broadcast_strides(shape, node.type.shape);
      default:
        break;
    }
    Ints strides = dense;
    if (node.code == OpCode::broadcast) return internal::broadcast_strides(shape, node.type.shape);
    if (node.code == OpCode::transpose)
      for (size_t d = 0; d < dense.size(); ++d)
        strides[d] = dense[static_cast<size_t>((*node.attrs.perm)[d])];
    if (node.code == OpCode::concat) strides[static_cast<size_t>(node.attrs.axis->front())] = 0;
    if (node.code == OpCode::slice)
      for (size_t d = 0; d < dense.size(); ++d) {
        plan.start += (*node.attrs.start)[d] * dense[d];
        strides[d] = dense[d] * (*node.attrs.step)[d];
      }
    return strides;
  }

  // Batch dimensions broadcast; each operand has one free dimension of the result and the inner one.
  Ints matmul_strides(const Node& node, size_t i, Plan& plan) const {
    const Ints& shape = operand(node, i).type.shape;
    const Ints dense = dense_strides(shape);
    const bool row = operand(node, 0).type.shape.size() == 1,
               column = operand(node, 1).type.shape.size() == 1;
    const size_t batch = node.type.shape.size() - !row - !column;
    Ints strides(node.type.shape.size(), 0);
    if (i == 0) {
      plan.reduced = {shape.back()};
      plan.steps = {1};
    } else {
      plan.step = column ? 1 : shape.back();
    }
    if (shape.size() == 1) return strides;
    const size_t own = shape.size() - 2;
    for (size_t d = 0; d < own; ++d)
      if (shape[d] != 1) strides[batch - own + d] = dense[d];
    strides[batch + (i == 0 || row ? 0 : 1)] = i == 0 ? dense[own] : dense[own + 1];
    return strides;
  }

  Ints reduction_strides(const Node& node, const Ints& dense, Plan& plan) const {
    const Ints& shape = operand(node, 0).type.shape;
    Ints kept;
    for (size_t d = 0, next = 0; d < shape.size(); ++d) {
      if (next == node.attrs.axis->size() || (*node.attrs.axis)[next] != static_cast<int64_t>(d)) {
        kept.push_back(dense[d]);
        continue;
      }
      ++next;
      plan.reduced.push_back(shape[d]);
      plan.steps.push_back(dense[d]);
      if (*node.attrs.keepdims) kept.push_back(0);
    }
    if (plan.reduced.empty()) {  // over no axis: of one element
      plan.reduced = {1};
      plan.steps = {1};
    }
    return kept;
  }

  // ---- values ----

  Value compute(const Node& node, size_t id, int64_t at) {
    Plan& plan = plan_of(node, id);
    switch (op_info(node.code).kind) {
      case OpKind::elementwise:
        return elementwise(node, plan, id, at);
      case OpKind::contraction:
        return matmul(node, plan, id, at);
      case OpKind::reduction:
        return reduce(node, plan, id, at);
      case OpKind::conversion: {
        const Value value = element(node.operands[0], at);
        return node.keeps_precision ? value
                                    : domain_.cast(value, operand(node, 0).type.dtype, node.type.dtype);
      }
      default:
        break;
    }
    switch (node.code) {
      case OpCode::constant:
        return domain_.number(node.number, node.type.dtype);
      case OpCode::reshape:
        return element(node.operands[0], at);
      case OpCode::iota: {
        Ints along(node.type.shape.size(), 0);
        along[static_cast<size_t>(node.attrs.axis->front())] = 1;
        return domain_.number(static_cast<double>(mapped(id, at, along)), node.type.dtype);
      }
      case OpCode::concat:
        return concat(node, plan, id, at);
      case OpCode::broadcast:
      case OpCode::transpose:
      case OpCode::slice:
        return shared(node, 0, element(node.operands[0], plan.start + mapped(id, at, plan.strides[0])));
      default:
        fatal(__FILE__, __LINE__, "the evaluator takes decomposed graphs");
    }
  }

  Value elementwise(const Node& node, const Plan& plan, size_t id, int64_t at) {
    Value operands[3] = {domain_.zero(plan.compute), domain_.zero(plan.compute), domain_.zero(plan.compute)};
    for (size_t i = 0; i < node.operands.size(); ++i)
      operands[i] = shared(node, i, read(node, plan, i, place(plan, id, i, at)));
    return domain_.apply(node.code, plan.compute, operands);
  }

  Value matmul(const Node& node, Plan& plan, size_t id, int64_t at) {
    const DType compute = plan.compute;
    Value sum = domain_.zero(compute);
    if (!budget_.spend(plan.reduced[0])) return sum;
    hold(node, plan, 0, mapped(id, at, plan.strides[0]), 1);
    hold(node, plan, 1, mapped(id, at, plan.strides[1]), plan.step);
    const std::vector<Value>&a = plan.held[0], &b = plan.held[1];
    begin_sums(plan.reduced[0], true);
    for (size_t k = 0; k < a.size(); ++k)
      sum = domain_.add(sum, domain_.multiply(a[k], b[k], node.type.dtype), compute);
    return sum;
  }

  void hold(const Node& node, Plan& plan, size_t i, int64_t at, int64_t step) {
    if (plan.held_at[i] == at) return;
    plan.held[i].resize(static_cast<size_t>(plan.reduced[0]), domain_.zero(plan.compute));
    read_run(node, plan, i, at, step, plan.held[i]);
    plan.held_at[i] = at;
  }

  Value reduce(const Node& node, const Plan& plan, size_t id, int64_t at) {
    const DType compute = plan.compute;
    Value result = domain_.identity(node.code, compute);
    int64_t terms = 1;
    for (const int64_t extent : plan.reduced) terms *= extent;
    // The last of the reduced dimensions as runs.
    const Ints outer(plan.reduced.begin(), plan.reduced.end() - 1);
    std::vector<Value> values(static_cast<size_t>(plan.reduced.back()));
    for_each_offset(outer, plan.steps, mapped(id, at, plan.strides[0]), [&](int64_t from) {
      if (!budget_.spend(plan.reduced.back())) return;
      read_run(node, plan, 0, from, plan.steps.back(), values);
      begin_sums(terms, false);
      for (const Value& next : values) result = domain_.combine(node.code, result, next, compute);
    });
    return result;
  }

  // Once the operands are there: they may be sums themselves.
  void begin_sums(int64_t terms, bool of_products) {
    if constexpr (requires { domain_.begin_sums(terms, of_products); })
      domain_.begin_sums(terms, of_products);
  }

  Value concat(const Node& node, const Plan& plan, size_t id, int64_t at) {
    const size_t axis = static_cast<size_t>(node.attrs.axis->front());
    Ints along(node.type.shape.size(), 0);
    along[axis] = 1;
    int64_t position = mapped(id, at, along);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Ints& shape = operand(node, i).type.shape;
      if (position < shape[axis])
        return read(node, plan, i, mapped(id, at, plan.strides[i]) + position * dense_strides(shape)[axis]);
      position -= shape[axis];
    }
    fatal(__FILE__, __LINE__, "a position lies outside of a concat");
  }

  const Graph& graph_;
  Domain& domain_;
  PullBudget& budget_;
  Source source_;
  std::vector<internal::Memo<Value>> memo_;
  std::vector<Ints> dense_;
  std::vector<bool> read_once_;
  bool is_marked_ = false;
  std::vector<std::pair<size_t, int64_t>> behind_mark_;  // nodes and elements
  std::vector<Plan> plans_;
};

}  // namespace quern
