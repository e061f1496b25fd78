#include "core/codegen/row_shape.h"

#include <algorithm>

#include "core/base/integers.h"
#include "core/codegen/tiles.h"
#include "core/kernel/ir.h"

namespace quern {

namespace {

constexpr int kWarp = RowShape::kWarp;
constexpr int kRowThreads = 256;       // of a block whose rows have teams, at least
constexpr int kMostRowThreads = 1024;  // and at most, for few or long rows
constexpr int kPointThreads = 128;     // of a block where every thread has a row
constexpr int kClusterSteps = 1024;   // of a block, vectors of a row, that are worth a barrier of the cluster
constexpr int kMostSteps = 8;         // of a thread, before a block gets more threads
constexpr int kWaitingThreads = 512;  // of an SM whose blocks stream rows, at least
constexpr int kKeepingThreads = 1024;  // of an SM whose blocks keep rows, at least

int choose_team(const Kernel& kernel) {
  if (!reduces_neighbours(kernel.domain, kernel.axes) || kernel.row_length() < 32) return 1;
  return kernel.row_length() < 1024 ? kWarp : kRowThreads;
}

}  // namespace

RowShape RowShape::of(const Kernel& kernel) {
  RowShape shape;
  shape.team = choose_team(kernel);
  shape.threads = shape.team > 1 ? kRowThreads : kPointThreads;
  return shape;
}

int choose_vector(const Kernel& kernel, int team, size_t largest_element, bool shorter) {
  constexpr int64_t kMinThreads = 16384;
  const int64_t extent = team > 1 ? kernel.row_length() : kernel.rows();
  const int64_t wanted = team > 1 ? team : kMinThreads;
  int vector = static_cast<int>(16 / largest_element);
  if (kernel.cost > 64) vector = std::min(vector, 2);
  if (kernel.cost > 160) vector = 1;
  while (vector > 1 && ((!shorter && extent % vector != 0) || extent / vector < wanted)) vector /= 2;
  return vector;
}

RowShape share_rows(const BaselineProgram& program, const Kernel& kernel, RowShape shape, int64_t repeated,
                    bool streams) {
  const Target& target = program.target;
  const int64_t rows = kernel.rows();
  if (shape.team == kWarp) {
    while (shape.threads > 2 * kWarp && divide_up(rows, shape.threads / kWarp) < target.sms)
      shape.threads /= 2;
    // All warps of a block copy, in whichever block they are.
    while (repeated > 0 && rows % (shape.threads / kWarp) != 0) shape.threads /= 2;
    shape.keeps = repeated > 0 && row_cluster(target, repeated * (shape.threads / kWarp)) == 1;
    return shape;
  }
  const bool words = std::all_of(kernel.levels.begin(), kernel.levels.end(), [&](const auto& each) {
    return ir::bytes_of(ir::scalar_of(register_type(program.graph.node(each.first).type.dtype))) == 4;
  });
  const int most = words ? most_row_blocks(target) : 1;
  shape.cluster = repeated > 0 ? row_cluster(target, repeated) : 1;
  shape.keeps = repeated > 0 && shape.cluster > 0 && shape.cluster <= most;
  if (!shape.keeps) shape.cluster = 1;
  const int64_t steps = shape.steps(kernel.row_length());
  while (shape.cluster < most && rows * shape.cluster * 2 <= target.sms &&
         steps / (shape.cluster * 2) >= kClusterSteps)
    shape.cluster *= 2;
  auto steps_of_thread = [&] { return steps / shape.cluster / shape.threads; };
  auto too_few = [&] {
    // What streams needs threads that wait for memory, in whichever block they are.
    const bool enough = streams && rows * shape.threads >= kWaitingThreads * target.sms;
    if (!shape.keeps) return !enough && steps_of_thread() > kMostSteps;
    return target.shared_bytes_per_sm / divide_up(repeated, shape.cluster) * shape.threads < kKeepingThreads;
  };
  while (shape.threads < kMostRowThreads &&
         (too_few() || (rows * shape.cluster < target.sms && steps_of_thread() > 1)))
    shape.threads *= 2;
  shape.team = shape.threads;
  return shape;
}

}  // namespace quern
