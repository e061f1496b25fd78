// Matrix products by warpgroups: which products qualify, which of their operands tensor cores read from
// shared memory by themselves, and the instructions.
//
// One operand's side of the result is M, the 64 rows of wgmma; the other is its up to 256 columns.
// Either operand of the product can be M: a few rows times many columns is computed as many rows
// of the transposed result. The N operand must lie in a staged tile; M may, or comes from
// registers.
#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/codegen/block_emitter.h"
#include "core/kernel/passes/tile_loop.h"

namespace quern {

namespace {

// Of one instruction: 64 rows, of 8 each; k.
constexpr int kWgmmaRowBits = 6, kRowGroupBits = 3, kInnerBits = 4;
constexpr int kPanelBits = 6;  // elements of a row of 128 bytes

int free_dim(int side, int rank) { return side == 0 ? rank - 2 : rank - 1; }

void put_bits(std::vector<CoordBit>& to, int dim, int first, int last) {
  for (int bit = first; bit < last; ++bit) to.push_back({dim, bit});
}

}  // namespace

// Whether tensor cores can read the value from its staged tile: rows of its matrices are rows of panels.
bool BlockEmitter::is_panel_operand(BlockValue value, DType dtype) const {
  const BlockOp& op = program_.op(value);
  const int rank = op.type.rank();
  if (op.kind != BlockOp::Kind::load || !is_staged(value)) return false;
  const TensorPlace& place = places_[static_cast<size_t>(op.tensor)];
  const int inner = inner_dim(op.tensor, op.type.shape);
  if (place.dtype != dtype || inner < rank - 2) return false;
  const int64_t row = place.strides[static_cast<size_t>(inner == rank - 1 ? rank - 2 : rank - 1)];
  for (int d = 0; d < rank - 2; ++d)
    if (op.type.shape[static_cast<size_t>(d)] > 1 && place.strides[static_cast<size_t>(d)] <= row)
      return false;
  return true;
}

// Whether the value is made, element by element, from a tile that they could read, and all warps can make it
// for them: without room around it, which would have to be filled.
bool BlockEmitter::is_cooperative_panel(BlockValue value, DType dtype) const {
  const BlockValue load = root_load(value);
  const Ints& shape = program_.shape(value);
  return load >= 0 && load != value && is_panel_operand(load, dtype) &&
         std::min(shape[shape.size() - 2], shape.back()) >= int64_t{1} << kInnerBits &&
         shape[static_cast<size_t>(inner_dim(program_.op(load).tensor, shape))] % 8 == 0;
}

bool BlockEmitter::plan_wgmma(BlockValue value, MatmulPlan& plan) const {
  if (!schedule_.wgmma || !target_.wgmma || !dtype_info(plan.dtype).wgmma) return false;
  const BlockOp& op = program_.op(value);
  const int m_side = schedule_.warps[0] >= 4 ? 0 : 1, n_side = 1 - m_side;
  const Ints* const shapes[2] = {&program_.shape(op.operands[0]), &program_.shape(op.operands[1])};
  auto rank = [&](int side) { return static_cast<int>(shapes[side]->size()); };
  auto extent = [&](int side) { return *(shapes[side]->end() - (side == 0 ? 2 : 1)); };
  const int m_bits = bits_for(extent(m_side)), n_bits = std::max(kRowGroupBits, bits_for(extent(n_side))),
            k_bits = std::max(kInnerBits, bits_for(shapes[0]->back()));
  const BlockValue n_operand = op.operands[static_cast<size_t>(n_side)];
  plan.cooperative[n_side] = is_cooperative_panel(n_operand, plan.dtype);
  if (m_bits < kWgmmaRowBits || !(plan.cooperative[n_side] || is_panel_operand(n_operand, plan.dtype)))
    return false;
  plan.shared[n_side] = true;
  plan.shared[m_side] = is_panel_operand(op.operands[static_cast<size_t>(m_side)], plan.dtype);
  plan.m_side = m_side;

  Spread &high = m_side == 0 ? plan.a : plan.b, &wide = m_side == 0 ? plan.b : plan.a, &d = plan.d;
  const int m = free_dim(m_side, op.type.rank()), n = free_dim(n_side, op.type.rank());
  const int high_m = free_dim(m_side, rank(m_side)), high_k = summed_dim(m_side, rank(m_side)),
            wide_n = free_dim(n_side, rank(n_side)), wide_k = summed_dim(n_side, rank(n_side));
  // No instruction begins within a row of a panel.
  const BlockOp& n_load = program_.op(root_load(n_operand));
  const bool turned = inner_dim(n_load.tensor, n_load.type.shape) == wide_n;
  const int n_least = turned ? std::min(n_bits, kPanelBits) : kRowGroupBits;
  int m_left = m_bits, n_left = n_bits, k_left = k_bits;
  const int m_warps = bits_for(schedule_.warps[static_cast<size_t>(m_side)]),
            wide_warps = m_side == 0 ? bits_for(schedule_.warps[1]) : 0;
  for (std::vector<CoordBit>* warps : {&high.warps, &wide.warps, &d.warps})
    warps->assign(static_cast<size_t>(warp_bits_), {});
  for (int position = 0; position < warp_bits_; ++position) {
    const size_t p = static_cast<size_t>(position);
    const bool by_m = position < m_warps, by_k = position >= m_warps + wide_warps;
    if (position < 2) {  // within a warpgroup
      d.warps[p] = {m, 4 + position};
      if (!plan.shared[m_side]) high.warps[p] = {high_m, 4 + position};
    } else if (by_m && m_left > kWgmmaRowBits) {
      d.warps[p] = {m, --m_left};
      high.warps[p] = {high_m, m_left};
    } else if (by_k && k_left > kInnerBits) {
      high.warps[p] = {high_k, --k_left};
      wide.warps[p] = {wide_k, k_left};
      plan.partial_warps |= 1u << position;
    } else if (n_left > n_least) {
      d.warps[p] = {n, --n_left};
      wide.warps[p] = {wide_n, n_left};
    }
  }

  const int one = std::min(n_left, bits_for(kMostWgmmaColumns));
  plan.columns = 1 << one;
  plan.steps = 1 << (k_left - kInnerBits);
  plan.down = 1 << (m_left - kWgmmaRowBits);
  plan.across = 1 << (n_left - one);
  d.lanes = {CoordBit{n, 1}, {n, 2}, {m, 0}, {m, 1}, {m, 2}};
  d.registers = {{n, 0}, {m, 3}};
  put_bits(d.registers, n, kRowGroupBits, n_left);
  put_bits(d.registers, m, kWgmmaRowBits, m_left);
  // Of operands in shared memory registers count instructions.
  if (!plan.shared[m_side]) {
    high.lanes = {CoordBit{high_k, 1}, {high_k, 2}, {high_m, 0}, {high_m, 1}, {high_m, 2}};
    high.registers = {{high_k, 0}, {high_m, 3}, {high_k, 3}};
  }
  put_bits(high.registers, high_k, kInnerBits, k_left);
  put_bits(high.registers, high_m, kWgmmaRowBits, m_left);
  put_bits(wide.registers, wide_k, kInnerBits, k_left);
  put_bits(wide.registers, wide_n, one, n_left);
  plan.wgmma = plan_batch(value, plan);
  return plan.wgmma;
}

// Room in staged tiles for whole instructions.
void BlockEmitter::note_panels(BlockValue value, const MatmulPlan& plan) {
  const BlockOp& op = program_.op(value);
  for (int side = 0; side < 2; ++side) {
    if (!plan.shared[side] || plan.cooperative[side]) continue;
    const BlockValue operand = op.operands[static_cast<size_t>(side)];
    const int rank = program_.op(operand).type.rank();
    Ints& least = panels_[operand];
    least.resize(static_cast<size_t>(rank), 1);
    auto need = [&](int dim, int64_t extent) {
      least[static_cast<size_t>(dim)] = std::max(least[static_cast<size_t>(dim)], extent);
    };
    need(summed_dim(side, rank), int64_t{1} << kInnerBits);
    need(free_dim(side, rank), int64_t{1} << (side == plan.m_side ? kWgmmaRowBits : kRowGroupBits));
    need(inner_dim(program_.op(operand).tensor, program_.op(operand).type.shape), 16);  // rows of 32 bytes
  }
}

// Operand `side` of a product, of instruction `index`.
Expr BlockEmitter::panel_operand(BlockValue value, const MatmulPlan& plan, int side, const Expr& index,
                                 bool previous) {
  const BlockValue operand = program_.op(value).operands[static_cast<size_t>(side)];
  const bool made = plan.cooperative[static_cast<size_t>(side)];
  const StagedTile& tile = made ? cooperative_tile(value, side).tile : stage_tile(operand);
  if (tile.bit_places.empty()) {
    fail(operand, "is made as mma.sync takes it, and wgmma wants it too");
    return 0;
  }
  const int rank = program_.op(operand).type.rank(), free = free_dim(side, rank);
  const bool turned = tile.inner == free;
  const auto &rows = tile.bit_places[static_cast<size_t>(turned ? summed_dim(side, rank) : free)],
             &inner = tile.bit_places[static_cast<size_t>(tile.inner)];
  auto bytes = [](int place) { return int64_t{2} << place; };
  const size_t row = static_cast<size_t>(tile.row_bits);
  const int64_t panel = turned && inner.size() > row ? bytes(inner[row]) : 0,
                step = rows.size() > kRowGroupBits ? bytes(rows[kRowGroupBits]) : 0;
  const Symbol& memory = previous && made ? cooperative_tile(value, side).previous_memory : tile.memory;
  return ir::call(ir::Function::shared_operand, Scalar::byte,
                  {ir::address(memory, place_in(tile, side == 0 ? plan.a : plan.b, index, false))},
                  {bytes(tile.row_bits), turned, panel, step});
}

// Asks for the product; `sums` are there after wgmma_landing. It waits itself if its operand is made in the
// same iteration: the memory of that may be others' behind the next barrier.
void BlockEmitter::wgmma(BlockValue value, const Symbol& sums, Stage stage) {
  const MatmulPlan& plan = plans_.at(value);
  Symbol words;
  if (!plan.shared[plan.m_side]) {
    const BlockValue from = program_.op(value).operands[static_cast<size_t>(plan.m_side)];
    words = packed(from, plan.m_side == 0 ? plan.a : plan.b, plan.dtype,
                   summed_dim(plan.m_side, program_.op(from).type.rank()));
  }
  Body body;
  Builder to(body);
  to.emit(Instr::wgmma_fence);
  to.add(wgmma_group(value, sums, words, false));
  if (const int n_side = 1 - plan.m_side; plan.cooperative[static_cast<size_t>(n_side)]) {
    make_cooperatively(value, n_side);
    to.add(ir::wait_for_products({sums}));
  }
  text(stage) += std::move(body);
}

// The instructions of a product, as one group. The M operand is in `words` if it comes from registers;
// `previous`: the cooperatively produced tile is that of the iteration before.
Body BlockEmitter::wgmma_group(BlockValue value, const Symbol& sums, const Symbol& words, bool previous) {
  const MatmulPlan& plan = plans_.at(value);
  const Scalar type = ir::scalar_of(plan.dtype);
  shapes_.insert({plan.dtype, plan.columns});
  Body body;
  Builder to(body);
  const LoadStep nothing = [](Builder&, const Expr&, const Expr&) {};
  matmul_loops(
      to, plan, nothing, [&](Builder& each, const Expr& z, const Expr& k, const Expr& m, const Expr& n) {
        auto operand = [&](int side) {
          const int batch = side == 0 ? plan.batch_a : plan.batch_b;
          const bool is_m = side == plan.m_side;
          const Expr index =
              ((batch == 1 ? Expr(0) : z) * (is_m ? plan.down : plan.across) + (is_m ? m : n)) * plan.steps +
              k;
          return plan.shared[side] ? panel_operand(value, plan, side, index, previous)
                                   : ir::address(words, index * 4);
        };
        std::vector<Expr> operands = {
            ir::address(sums, ((z * plan.down + m) * plan.across + n) * (plan.columns / 2)),
            operand(plan.m_side), operand(1 - plan.m_side)};
        if (!is_summed(value)) operands.push_back(less(0, k));  // begins the sums
        each.emit(words ? Instr::wgmma : Instr::wgmma_shared, std::move(operands), {type, plan.columns});
      });
  to.emit(Instr::wgmma_commit);
  return body;
}

}  // namespace quern
