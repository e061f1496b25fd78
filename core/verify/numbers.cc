#include "core/verify/numbers.h"

#include <cmath>
#include <set>

#include "core/graph/decompose.h"
#include "core/lang/attrs.h"
#include "core/mugraph/block_graph.h"

namespace quern {

namespace {

// Those that are left when definitions are written out: counts of means and epsilons, too.
void collect(const Graph& graph, std::set<double>& numbers) {
  for (const Node& node : decompose(graph).nodes)
    if (node.code == OpCode::constant && !std::isnan(node.number)) numbers.insert(node.number);
}

std::set<double> numbers_of(const Graph& graph) {
  std::set<double> numbers;
  collect(graph, numbers);
  return numbers;
}

std::set<double> numbers_of(const MuGraph& mugraph) {
  std::set<double> numbers;
  for (const MuKernel& kernel : mugraph.kernels)
    collect(kernel.custom ? block_graph(mugraph, kernel) : operator_graph(mugraph, kernel), numbers);
  return numbers;
}

}  // namespace

std::vector<double> finite_numbers(const Graph& graph, const MuGraph& mugraph) {
  std::set<double> all = numbers_of(graph);
  all.merge(numbers_of(mugraph));
  std::vector<double> finite;
  for (double number : all)
    if (std::isfinite(number)) finite.push_back(number);
  return finite;
}

std::string foreign_number(const Graph& graph, const MuGraph& mugraph) {
  const std::set<double> wanted = numbers_of(graph), given = numbers_of(mugraph);
  auto foreign = [](const std::set<double>& numbers, const std::set<double>& others) {
    for (double number : numbers)
      if (number != 0 && std::fabs(number) != 1 && !others.count(number)) return number;
    return 0.0;
  };
  if (const double number = foreign(given, wanted); number != 0)
    return "the number " + print_number(number) + " is not in the graph";
  if (const double number = foreign(wanted, given); number != 0)
    return "the number " + print_number(number) + " is not in the muGraph";
  return "";
}

bool names_extent(const Graph& graph, const MuGraph& mugraph) {
  std::set<double> extents;
  auto note = [&](const TensorType& type) {
    for (int64_t extent : type.shape)
      if (extent > 1) extents.insert(static_cast<double>(extent));
  };
  for (const Node& node : graph.nodes) note(node.type);
  for (const MuTensor& tensor : mugraph.tensors) note(tensor.type);
  for (const MuKernel& kernel : mugraph.kernels) {
    if (kernel.trip_count > 1) extents.insert(static_cast<double>(kernel.trip_count));
    for (const BlockOp& op : kernel.ops) note(op.type);
  }
  auto stands_for_one = [&](double number) {
    number = std::fabs(number);
    if (!(number > 0) || number == 1) return false;
    for (double candidate : {number, 1 / number, number * number, 1 / (number * number)})
      if (const double whole = std::round(candidate);
          std::fabs(candidate - whole) < 1e-6 * whole && extents.count(whole))
        return true;
    return false;
  };
  for (const Node& node : graph.nodes)
    if (node.code == OpCode::constant && stands_for_one(node.number)) return true;
  for (const MuKernel& kernel : mugraph.kernels)
    for (const BlockOp& op : kernel.ops)
      if (op.is_compute(OpCode::constant) && op.extents().empty() && stands_for_one(op.number())) return true;
  return false;
}

}  // namespace quern
