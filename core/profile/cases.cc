#include "core/profile/cases.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "core/base/random.h"
#include "core/graph/decompose.h"
#include "core/verify/hostile.h"

namespace quern {

namespace {

// Values that one processor computes in a second, and that memory has room for.
constexpr double kValuesPerSecond = 2e7, kMostValues = 3e7;
constexpr int64_t kMostSampled = 1 << 16;

void run_on_threads(size_t count, unsigned threads, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < count;) body(i);
  };
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < std::min<size_t>(threads, count); ++i) others.emplace_back(work);
  work();
}

// Steps to evaluate all of a graph, and the elements that it has in memory.
std::pair<double, double> work_of(const Graph& graph) {
  double steps = 0, elements = 0;
  const Graph primitive = decompose(graph);
  for (const Node& node : primitive.nodes) {
    const double count = static_cast<double>(node.type.element_count());
    elements += count;
    const OpKind kind = op_info(node.code).kind;
    if (kind == OpKind::contraction)
      steps += count * static_cast<double>(primitive.node(node.operands[0]).type.shape.back());
    else if (kind == OpKind::reduction)
      steps += static_cast<double>(primitive.node(node.operands[0]).type.element_count());
    else
      steps += count;
  }
  return {steps, elements};
}

// The first and the last, and others at random; each once, in no order.
std::vector<int64_t> sample(int64_t count, uint64_t seed) {
  std::vector<int64_t> elements;
  if (count == 0) return elements;
  Random random(seed);
  elements = {count - 1, 0};
  for (int64_t i = 0; i < std::min(count, kMostSampled); ++i)
    elements.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(count))));
  std::vector<int64_t> unique;
  std::vector<int64_t> sorted = elements;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<bool> seen(sorted.size());
  for (const int64_t element : elements) {
    const size_t at =
        static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), element) - sorted.begin());
    if (!seen[at]) unique.push_back(element);
    seen[at] = true;
  }
  return unique;
}

}  // namespace

std::vector<Case> make_cases(const Graph& graph, unsigned threads) {
  std::vector<Case> cases(1 + hostile_classes().size());
  const size_t inputs = graph.inputs.size();
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].name = i ? hostile_classes()[i - 1].name : "random";
    cases[i].inputs.resize(inputs);
  }
  // Each hostile input by itself, as those of large tensors take a while; not more at once than there are classes, as each takes
  // several times its memory.
  const unsigned at_once = std::min(threads, static_cast<unsigned>(cases.size()));
  run_on_threads(1 + hostile_classes().size() * inputs, at_once, [&](size_t task) {
    if (task == 0) {
      cases[0].inputs = random_inputs(graph, 1);
      return;
    }
    const size_t cls = (task - 1) / inputs, input = (task - 1) % inputs;
    std::vector<bool> asked(inputs);
    asked[input] = true;
    cases[1 + cls].inputs[input] = std::move(hostile_inputs(graph, hostile_classes()[cls], 1, asked)[input]);
  });
  run_on_threads(cases.size(), threads,
                 [&](size_t i) { cases[i].special = has_special_numbers(graph, cases[i].inputs); });
  return cases;
}

CpuReference::CpuReference(const Graph& graph, const std::vector<Case>& cases, const Options& options)
    : graph_(graph), inputs_(graph.input_descs()), outputs_(graph.output_descs()) {
  const auto [steps, elements] = work_of(graph);
  const size_t kinds = options.tf32 ? 2 : 1;
  const double total = static_cast<double>(cases.size() * kinds) * steps;
  const double seconds = std::chrono::duration<double>(options.limit).count();
  const bool all = total / kValuesPerSecond / std::max(1u, options.threads) < seconds &&
                   elements * options.threads < kMostValues;
  // Each of a turn of the threads gets its share of the time.
  const size_t turns = (cases.size() * kinds + options.threads - 1) / std::max(1u, options.threads);
  const std::chrono::duration<double> share(seconds / static_cast<double>(turns));
  for (size_t kind = 0; kind < kinds; ++kind) values_[kind].resize(cases.size());
  run_on_threads(cases.size() * kinds, options.threads, [&](size_t i) {
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(share);
    values_[i % kinds][i / kinds] = compute(cases[i / kinds], i % kinds == 1, all, until);
  });
}

CpuReference::Values CpuReference::compute(const Case& on, bool tf32, bool all,
                                           std::chrono::steady_clock::time_point until) const {
  std::vector<RealTensor> inputs;
  for (const std::string& bytes : on.inputs)
    inputs.push_back(read_buffer(inputs_[inputs.size()], bytes.data()));
  Values values;
  if (all) {
    values.expected = expect_outputs(graph_, inputs, tf32);
    return values;
  }
  for (size_t i = 0; i < outputs_.size(); ++i)
    values.elements.push_back(sample(outputs_[i].element_count(), i + 1));
  values.expected = expect_elements(graph_, inputs, values.elements, tf32,
                                    [&] { return std::chrono::steady_clock::now() >= until; });
  return values;
}

Judged CpuReference::judge(size_t number, bool tf32, const std::vector<std::string>& outputs) const {
  const Values& values = values_[tf32 && !values_[1].empty()][number];
  Judged judged;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorDesc& desc = outputs_[o];
    const std::vector<int64_t>* elements = values.elements.empty() ? nullptr : &values.elements[o];
    RealTensor actual;
    if (elements)
      for (const int64_t element : *elements)
        actual.push_back(load_element(outputs[o].data(), desc.dtype, element));  // outputs are dense
    else
      actual = read_buffer(desc, outputs[o].data());
    const Comparison result = compare(desc, actual, values.expected[o], elements);
    judged.error = std::max(judged.error, result.error);
    judged.largest = std::max(judged.largest, result.worst);
    judged.compared += actual.size();
    if (!result.acceptable && judged.wrong.empty()) judged.wrong = desc.name + " " + result.what;
  }
  return judged;
}

}  // namespace quern
