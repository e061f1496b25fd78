#include "core/verify/full_shape.h"

#include <algorithm>

#include "core/graph/decompose.h"
#include "core/verify/pull_mugraph.h"

namespace quern {

FullShape::FullShape(const Graph& graph, uint64_t seed, int64_t budget)
    : graph_(graph), primitive_(decompose(graph)), input_index_(primitive_.nodes.size()), budget_(budget) {
  for (size_t i = 0; i < primitive_.inputs.size(); ++i)
    input_index_[static_cast<size_t>(primitive_.inputs[i])] = i;
  draw(seed);
}

// New inputs; nothing is remembered.
void FullShape::draw(uint64_t seed) {
  seed_ = seed;
  spent_ = 0;
  domain_ = std::make_unique<FieldDomain>(seed);
  expected_ = std::make_unique<PullEvaluator<FieldDomain>>(
      primitive_, *domain_, left_,
      [this](ValueId node, int64_t at, int64_t step, int64_t count, FieldValue* to) {
        domain_->random(input_index_[static_cast<size_t>(node)], primitive_.node(node).type.dtype, at, step,
                        count, to);
      });
}

uint64_t FullShape::random_element(size_t output) const {
  const FieldValue value = domain_->random(graph_.inputs.size() + output, 0);
  return (uint64_t{value.p} << 31) + value.q;
}

void FullShape::sample(const MuGraph& mugraph, size_t output, std::vector<int64_t>& elements) const {
  const Ints& shape = graph_.node(graph_.outputs[output]).type.shape;
  const int64_t count = graph_.node(graph_.outputs[output]).type.element_count();
  if (count == 0) return;
  const int64_t random = static_cast<int64_t>(random_element(output) % static_cast<uint64_t>(count));
  elements = {0, count - 1, random};
  const Ints dense = dense_strides(shape);
  for (const MuKernel& kernel : mugraph.kernels)
    for (const BlockOp& op : kernel.ops) {
      if (!op.is_store() || op.tensor() != mugraph.outputs[output]) continue;
      // Before and behind the edges of the first and the last tile, in all dimensions at once.
      int64_t edges[4] = {0, 0, 0, 0};
      for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t tile = std::max<int64_t>(op.type.shape[d], 1), last = shape[d] - 1;
        const int64_t last_tile = last / tile * tile, whole = random / dense[d] % shape[d];
        const int64_t places[4] = {tile - 1, tile, last_tile - 1, last_tile};
        for (size_t i = 0; i < 4; ++i) edges[i] += (tile > last ? whole : places[i]) * dense[d];
      }
      elements.insert(elements.end(), std::begin(edges), std::end(edges));
    }
  std::vector<int64_t> unique;
  for (int64_t element : elements)
    if (std::find(unique.begin(), unique.end(), element) == unique.end()) unique.push_back(element);
  elements = std::move(unique);
}

FullShape::Comparison FullShape::compare(const MuGraph& mugraph, Stop& stop) {
  Comparison result;
  if (budget_ <= 0) {
    result.cut_short = "left out by request";
    result.every_output = false;
    return result;
  }
  // What is remembered stays below what two comparisons compute.
  if (domain_->divided_by_zero())
    draw(seed_ + 1);
  else if (spent_ > budget_)
    draw(seed_);
  left_ = {budget_, &stop};
  PullBudget left{budget_, &stop};
  PullMuGraph<FieldDomain> actual(mugraph, *domain_, left,
                                  [&](size_t input, int64_t at, int64_t step, int64_t count, FieldValue* to) {
                                    const Node& node = graph_.node(graph_.inputs[input]);
                                    domain_->random(input, node.type.dtype, at, step, count, to);
                                  });
  int64_t wanted = 0;
  bool stopped = false;
  too_large_.resize(graph_.outputs.size());
  for (size_t output = 0; output < graph_.outputs.size(); ++output) {
    std::vector<int64_t> elements;
    sample(mugraph, output, elements);
    const int64_t before_wanted = wanted;
    wanted += static_cast<int64_t>(elements.size());
    const int64_t before = result.compared;
    if (too_large_[output]) elements.clear();
    for (int64_t at : elements) {
      stopped |= stop.now();
      if (stopped) break;
      const int64_t before_element = left_.left;
      const bool has_most = at == elements[0] && before_element > budget_ / 2;
      expected_->mark();
      const FieldValue a = expected_->element(primitive_.outputs[output], at);
      // Zeros that were returned for lack of budget have been remembered.
      if (left_.spent())
        expected_->forget_behind_mark();
      else
        spent_ += before_element - left_.left;
      too_large_[output] = has_most && left_.spent() && !stop.now();
      const FieldValue b = left_.spent() ? a : actual.output(output, at);
      result.misfit = actual.failure();
      stopped = !result.misfit.ok() || left_.spent() || left.spent() || domain_->divided_by_zero();
      if (stopped) break;
      ++result.compared;
      if (a.agrees(b)) continue;
      result.differs = {output, at};
      stopped = true;
    }
    result.every_output &= wanted == before_wanted || result.compared > before;
  }
  if (result.compared < wanted)
    result.cut_short = domain_->divided_by_zero() ? "stopped by a division by zero"
                                                  : "of " + std::to_string(wanted) +
                                                        " that were wanted: the others would take too long";
  return result;
}

}  // namespace quern
