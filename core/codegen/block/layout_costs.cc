// What the layouts of a block's tensors cost: loads and stores, reductions, and conversions between layouts.
#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/codegen/block/conversions.h"
#include "core/codegen/block/global_memory.h"
#include "core/codegen/block/layout_question.h"
#include "core/codegen/block/matrix_rows.h"
#include "core/codegen/block/reductions.h"

namespace quern {

namespace {

constexpr int64_t kNever = 1 << 28;  // cycles of what cannot be done
// Issue cycles of a warp: of an access to global memory and of every sector of 32 bytes that it touches; of
// an access to a tile in shared memory; of an elementwise operator.
constexpr int64_t kAccess = 4, kSector = 1, kSharedAccess = 4, kCompute = 1;
constexpr int64_t kShuffle = 4;                    // and the sum
constexpr int64_t kBarrier = 30, kOfMatrices = 8;  // registers that a stmatrix stores, and a thread then

}  // namespace

void LayoutQuestion::count_own(const Variable& variable) {
  const BlockOp& op = program_.op(variable.value);
  std::vector<int64_t> costs;
  for (const RegisterLayout& layout : variable.candidates) {
    if (is_source(variable.value) || op.is_store())
      costs.push_back(memory_cycles(variable.value, layout));
    else
      costs.push_back(layout.count() * kCompute * times(program_.stage(variable.value)));
    for (BlockValue user : program_.users[static_cast<size_t>(variable.value)])
      if (program_.is_compute(user, OpKind::reduction)) costs.back() += reduce_cycles(user, layout);
  }
  problem_.tensors.push_back(std::move(costs));
}

int64_t LayoutQuestion::reduce_cycles(BlockValue value, const RegisterLayout& from) const {
  const RegisterTile tile = reduced_tile(program_, value, from);
  const int rounds = __builtin_popcount(tile.partial_lanes);
  return (from.count() * kCompute + int64_t{tile.layout.count()} * rounds * kShuffle) *
         times(program_.stage(value));
}

int64_t LayoutQuestion::memory_cycles(BlockValue value, const RegisterLayout& layout) const {
  const BlockOp& op = program_.op(value);
  if (op.is_reduce_cluster()) return layout.count() * facts_.cluster_blocks() * kSharedAccess;
  if (op.is_store() && is_stored_by_stmatrix(facts_, value, layout))
    return 2 * kBarrier +
           layout.count() / kOfMatrices * (2 * kSharedAccess + kAccess + kOfMatrices * 2 * kSector);
  const AccessForm form = access_form(facts_, value, layout);
  const int vector = form.vector;
  const int64_t accesses = (int64_t{layout.count()} >> vector) * times(program_.stage(value));
  if (op.is_load() && facts_.is_staged(value)) return accesses * kSharedAccess;
  const int64_t exchange =
      form.by_rows ? 2 * kSharedAccess : (int64_t{form.exchanged} << form.exchanged) / 2 * kShuffle;
  const int64_t size = static_cast<int64_t>(dtype_size(facts_.place(op).dtype));
  // Lanes that ask for the same are one.
  const auto lanes = std::count_if(form.moved.lanes.begin(), form.moved.lanes.end(),
                                   [](const CoordBit& lane) { return lane.dim >= 0; });
  const int64_t bytes = size << (vector + lanes);
  const int64_t run = std::min(kSectorBytes, run_bytes(facts_, value, form.moved, vector));
  return accesses * (kAccess + exchange + std::max<int64_t>(1, bytes / run) * kSector);
}

void LayoutQuestion::count_ask(const Ask& ask) {
  const Held& from = held(ask.value);
  const bool source = is_source(ask.value);
  const int variable = source ? variables_[static_cast<size_t>(ask.value)] : from.variable;
  std::vector<RegisterTile> tiles;
  if (!source)
    tiles = from.tiles;
  else
    for (const RegisterLayout& layout : tensors_[static_cast<size_t>(variable)].candidates)
      tiles.emplace_back().layout = layout;
  std::vector<std::vector<int64_t>> costs, conversions;
  for (const RegisterTile& tile : tiles) {
    costs.emplace_back();
    conversions.emplace_back();
    for (const RegisterLayout& want : ask.wants) {
      std::optional<int64_t> moved = 0;
      if (!source)
        moved = move_cycles(facts_, ask.value, tile, want).value_or(kNever) * ask.times;
      else if (!serves(tile.layout, want, program_.shape(ask.value)))
        moved = moved_load_cycles(facts_, ask.value, tile.layout, want);
      costs.back().push_back(moved ? *moved : memory_cycles(ask.value, want));
      conversions.back().push_back(moved.value_or(0));
    }
  }
  count_edge(conversions_, variable, ask.variable, conversions);
  count_edge(problem_, variable, ask.variable, costs);
}

void LayoutQuestion::count_edge(LayoutProblem& problem, int from, int to,
                                const std::vector<std::vector<int64_t>>& costs) {
  if (from >= 0 && to >= 0 && from != to) return problem.edges.push_back({from, to, costs});
  if (problem.tensors.empty()) return;
  std::vector<int64_t>& own = problem.tensors[static_cast<size_t>(std::max({from, to, 0}))];
  for (size_t i = 0; i < own.size(); ++i) own[i] += costs[from >= 0 ? i : 0][to >= 0 ? i : 0];
}

}  // namespace quern
