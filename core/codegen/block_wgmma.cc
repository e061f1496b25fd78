// Matrix products by warpgroups: which products qualify, which of their operands tensor cores read from
// shared memory by themselves, and the instructions.
//
// One operand's side of the result is `tall`, the 64 rows of wgmma; the other is its up to 256 columns.
// Either operand of the product can be the tall one: a few rows times many columns is computed as many rows
// of the transposed result. The flat operand must lie in a staged tile; the tall one may, or comes from
// registers.
#include <algorithm>

#include "core/codegen/block_emitter.h"

namespace quern {

namespace {

constexpr int kTallBits = 6, kRowGroupBits = 3, kInnerBits = 4;  // of one instruction: 64 rows, of 8 each; k
constexpr int kPanelBits = 6;                                    // elements of a row of 128 bytes

int free_dim(int side, int rank) { return side == 0 ? rank - 2 : rank - 1; }
int summed_dim(int side, int rank) { return side == 0 ? rank - 1 : rank - 2; }

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
bool BlockEmitter::is_made_panel(BlockValue value, DType dtype) const {
  const BlockValue load = root_load(value);
  const Ints& shape = program_.shape(value);
  return load >= 0 && load != value && is_panel_operand(load, dtype) &&
         std::min(shape[shape.size() - 2], shape.back()) >= int64_t{1} << kInnerBits &&
         shape[static_cast<size_t>(inner_dim(program_.op(load).tensor, shape))] % 8 == 0;
}

bool BlockEmitter::plan_wgmma(BlockValue value, MatmulPlan& plan) const {
  if (!schedule_.wgmma || !target_.wgmma || dtype_size(plan.dtype) != 2) return false;
  const BlockOp& op = program_.op(value);
  const int tall = schedule_.warps[0] >= 4 ? 0 : 1, flat = 1 - tall;
  const Ints* const shapes[2] = {&program_.shape(op.operands[0]), &program_.shape(op.operands[1])};
  auto rank = [&](int side) { return static_cast<int>(shapes[side]->size()); };
  auto extent = [&](int side) { return *(shapes[side]->end() - (side == 0 ? 2 : 1)); };
  const int m_bits = bits_for(extent(tall)), n_bits = std::max(kRowGroupBits, bits_for(extent(flat))),
            k_bits = std::max(kInnerBits, bits_for(shapes[0]->back()));
  const BlockValue flat_value = op.operands[static_cast<size_t>(flat)];
  plan.made_by_all[flat] = is_made_panel(flat_value, plan.dtype);
  if (m_bits < kTallBits || !(plan.made_by_all[flat] || is_panel_operand(flat_value, plan.dtype)))
    return false;
  plan.shared[flat] = true;
  plan.shared[tall] = is_panel_operand(op.operands[static_cast<size_t>(tall)], plan.dtype);
  plan.tall = tall;

  Spread &high = tall == 0 ? plan.a : plan.b, &wide = tall == 0 ? plan.b : plan.a, &d = plan.d;
  const int m = free_dim(tall, op.type.rank()), n = free_dim(flat, op.type.rank());
  const int high_m = free_dim(tall, rank(tall)), high_k = summed_dim(tall, rank(tall)),
            wide_n = free_dim(flat, rank(flat)), wide_k = summed_dim(flat, rank(flat));
  // No instruction begins within a row of a panel.
  const BlockOp& flat_load = program_.op(root_load(flat_value));
  const bool turned = inner_dim(flat_load.tensor, flat_load.type.shape) == wide_n;
  const int n_least = turned ? std::min(n_bits, kPanelBits) : kRowGroupBits;
  int m_left = m_bits, n_left = n_bits, k_left = k_bits;
  const int tall_warps = bits_for(schedule_.warps[static_cast<size_t>(tall)]),
            wide_warps = tall == 0 ? bits_for(schedule_.warps[1]) : 0;
  for (std::vector<CoordBit>* warps : {&high.warps, &wide.warps, &d.warps})
    warps->assign(static_cast<size_t>(warp_bits_), {});
  for (int position = 0; position < warp_bits_; ++position) {
    const size_t p = static_cast<size_t>(position);
    const bool by_m = position < tall_warps, by_k = position >= tall_warps + wide_warps;
    if (position < 2) {  // within a warpgroup
      d.warps[p] = {m, 4 + position};
      if (!plan.shared[tall]) high.warps[p] = {high_m, 4 + position};
    } else if (by_m && m_left > kTallBits) {
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
  plan.down = 1 << (m_left - kTallBits);
  plan.across = 1 << (n_left - one);
  d.lanes = {CoordBit{n, 1}, {n, 2}, {m, 0}, {m, 1}, {m, 2}};
  d.registers = {{n, 0}, {m, 3}};
  put_bits(d.registers, n, kRowGroupBits, n_left);
  put_bits(d.registers, m, kTallBits, m_left);
  // Of operands in shared memory registers count instructions.
  if (!plan.shared[tall]) {
    high.lanes = {CoordBit{high_k, 1}, {high_k, 2}, {high_m, 0}, {high_m, 1}, {high_m, 2}};
    high.registers = {{high_k, 0}, {high_m, 3}, {high_k, 3}};
  }
  put_bits(high.registers, high_k, kInnerBits, k_left);
  put_bits(high.registers, high_m, kTallBits, m_left);
  put_bits(wide.registers, wide_k, kInnerBits, k_left);
  put_bits(wide.registers, wide_n, one, n_left);
  plan.wgmma = plan_batch(value, plan);
  return plan.wgmma;
}

// Room in staged tiles for whole instructions.
void BlockEmitter::note_panels(BlockValue value, const MatmulPlan& plan) {
  const BlockOp& op = program_.op(value);
  for (int side = 0; side < 2; ++side) {
    if (!plan.shared[side] || plan.made_by_all[side]) continue;
    const BlockValue operand = op.operands[static_cast<size_t>(side)];
    const int rank = program_.op(operand).type.rank();
    Ints& least = panels_[operand];
    least.resize(static_cast<size_t>(rank), 1);
    auto need = [&](int dim, int64_t extent) {
      least[static_cast<size_t>(dim)] = std::max(least[static_cast<size_t>(dim)], extent);
    };
    need(summed_dim(side, rank), int64_t{1} << kInnerBits);
    need(free_dim(side, rank), int64_t{1} << (side == plan.tall ? kTallBits : kRowGroupBits));
    need(inner_dim(program_.op(operand).tensor, program_.op(operand).type.shape), 16);  // rows of 32 bytes
  }
}

// Operand `side` of a product, of instruction `index`.
Expr BlockEmitter::panel_operand(BlockValue value, const MatmulPlan& plan, int side, const Expr& index,
                                 bool late) {
  const BlockValue operand = program_.op(value).operands[static_cast<size_t>(side)];
  const bool made = plan.made_by_all[static_cast<size_t>(side)];
  const StagedTile& tile = made ? made_tile(operand, plan).tile : stage_tile(operand);
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
  const Symbol& memory = late && made ? made_tile(operand, plan).late_memory : tile.memory;
  return ir::call(ir::Function::shared_operand, Scalar::byte,
                  {ir::address(memory, place_in(tile, side == 0 ? plan.a : plan.b, index, false))},
                  {bytes(tile.row_bits), turned, panel, step});
}

// Asks for the product; `sums` are there after wgmma_landing. It waits itself if its operand is made in the
// same iteration: the memory of that may be others' behind the next barrier.
void BlockEmitter::wgmma(BlockValue value, const Symbol& sums, Stage stage) {
  const MatmulPlan& plan = plans_.at(value);
  Symbol words;
  if (!plan.shared[plan.tall]) {
    const BlockValue from = program_.op(value).operands[static_cast<size_t>(plan.tall)];
    words = packed(from, plan.tall == 0 ? plan.a : plan.b, plan.dtype,
                   summed_dim(plan.tall, program_.op(from).type.rank()));
  }
  Body body;
  Builder to(body);
  to.emit(Instr::wgmma_fence);
  to.add(wgmma_group(value, sums, words, false));
  if (const int flat = 1 - plan.tall; plan.made_by_all[static_cast<size_t>(flat)]) {
    const BlockValue made = program_.op(value).operands[static_cast<size_t>(flat)];
    make_by_all(made, plan, summed_dim(flat, program_.op(made).type.rank()));
    to.add(wgmma_landing({sums}));
  }
  text(stage) += std::move(body);
}

// The instructions of a product, as one group. The tall operand is in `words` if it comes from registers;
// `late`: what all warps make is that of the iteration before.
Body BlockEmitter::wgmma_group(BlockValue value, const Symbol& sums, const Symbol& words, bool late) {
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
          const bool tall = side == plan.tall;
          const Expr index =
              ((batch == 1 ? Expr(0) : z) * (tall ? plan.down : plan.across) + (tall ? m : n)) * plan.steps +
              k;
          return plan.shared[side] ? panel_operand(value, plan, side, index, late)
                                   : ir::address(words, index * 4);
        };
        each.emit(words ? Instr::wgmma : Instr::wgmma_shared,
                  {ir::address(sums, ((z * plan.down + m) * plan.across + n) * (plan.columns / 2)),
                   operand(plan.tall), operand(1 - plan.tall)},
                  {type, plan.columns});
      });
  to.emit(Instr::wgmma_commit);
  return body;
}

// Until no more than `pending` of the latest groups are outstanding.
Body BlockEmitter::wgmma_landing(const std::vector<Symbol>& sums, int pending) {
  Body body;
  Builder to(body);
  if (!sums.empty()) to.emit(Instr::wgmma_wait, {}, {pending});
  for (const Symbol& each : sums) to.emit(Instr::wgmma_landed, {each});
  return body;
}

}  // namespace quern
