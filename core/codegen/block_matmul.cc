// Matrix products within a block on tensor cores, as fragments in registers.
#include <algorithm>

#include "core/codegen/arithmetic.h"
#include "core/codegen/block_emitter.h"

namespace quern {

namespace {

int log2_of(int power) { return bits_for(power); }

// Takes bits first .. last - 1 that are not in `taken`.
std::vector<int> others(int count, const std::vector<int>& taken) {
  std::vector<int> out;
  for (int bit = 0; bit < count; ++bit)
    if (std::find(taken.begin(), taken.end(), bit) == taken.end()) out.push_back(bit);
  return out;
}

}  // namespace

void BlockEmitter::plan_matmuls() {
  for (BlockValue value = 0; value < static_cast<BlockValue>(program_.ops.size()); ++value) {
    if (!program_.is_compute(value, OpKind::contraction)) continue;
    MatmulPlan plan = plan_matmul(value);
    if (!plan.tensor_cores) plan = plan_fma(value);
    plans_[value] = plan;
    demands_.emplace(value, plan.d);
    if (plan.fma) {
      note_fma_operands(value, plan);
      continue;
    }
    if (plan.wgmma) note_panels(value, plan);
    for (int side = 0; side < 2; ++side) {
      if (plan.shared[side] && !plan.cooperative[side]) continue;
      // Whatever is computed element by element from the same tiles is best done where they are.
      const BlockValue operand = program_.op(value).operands[static_cast<size_t>(side)];
      const Spread spread = operand_spread(value, static_cast<size_t>(side));
      std::vector<BlockValue> open = {operand};
      while (!open.empty()) {
        const BlockValue next = open.back();
        open.pop_back();
        demands_.emplace(next, spread);
        if (!program_.is_compute(next, OpKind::elementwise)) continue;
        for (BlockValue operand : program_.op(next).operands)
          if (program_.shape(operand) == program_.shape(next)) open.push_back(operand);
      }
    }
  }
}

// mma counts rows, columns and the inner dimension in its own order; which bits of the tile's coordinates
// these are is free. Columns and inner dimension are counted so that what a lane holds of an operand that
// comes straight from global memory are neighbours there.
BlockEmitter::MatmulPlan BlockEmitter::plan_matmul(BlockValue value) const {
  MatmulPlan plan;
  const BlockOp& op = program_.op(value);
  const BlockValue left = op.operands[0], right = op.operands[1];
  const Ints &a = program_.shape(left), &b = program_.shape(right), &d = op.type.shape;
  const std::optional<DType> dtype = tensor_core_dtype(program_, value, schedule_.tf32);
  if (!dtype) return plan;
  plan.dtype = *dtype;
  plan.tensor_cores = true;
  if (MatmulPlan by_groups = plan; plan_wgmma(value, by_groups)) return by_groups;
  const int ra = static_cast<int>(a.size()), rb = static_cast<int>(b.size()), rd = static_cast<int>(d.size());
  const int64_t rows = a[a.size() - 2], inner = a.back(), columns = b.back();
  const int m_bits = std::max(4, bits_for(rows)), n_bits = std::max(3, bits_for(columns)),
            k_least = 3 + plan.pair_bits(), k_bits = std::max(k_least, bits_for(inner));
  plan.low_rows = rows <= 8;

  plan.a.warps.resize(static_cast<size_t>(warp_bits_));
  plan.b.warps = plan.d.warps = plan.a.warps;
  int m_left = m_bits, n_left = n_bits, k_left = k_bits;
  for (int position = 0; position < warp_bits_; ++position) {
    const size_t p = static_cast<size_t>(position);
    const int m_warps = log2_of(schedule_.warps[0]), n_warps = log2_of(schedule_.warps[1]);
    const bool by_m = position < m_warps, by_k = position >= m_warps + n_warps;
    if (by_m && m_left > 4) {
      plan.a.warps[p] = {ra - 2, --m_left};
      plan.d.warps[p] = {rd - 2, m_left};
    } else if (by_k && k_left > k_least) {
      plan.a.warps[p] = {ra - 1, --k_left};
      plan.b.warps[p] = {rb - 2, k_left};
      plan.partial_warps |= 1u << position;
    } else if (n_left > 3) {
      plan.b.warps[p] = {rb - 1, --n_left};
      plan.d.warps[p] = {rd - 1, n_left};
    }
  }

  plan.cooperative = {is_cooperative(left, plan.dtype, plan.a), is_cooperative(right, plan.dtype, plan.b)};

  const BlockValue load_a = root_load(left), load_b = root_load(right);
  auto direct = [&](BlockValue load, int dim) {
    return load >= 0 && !is_staged(load) && inner_dim(program_.op(load).tensor, program_.shape(load)) == dim;
  };
  const int vector_bits = bits_for(16 / static_cast<int64_t>(dtype_size(plan.dtype)));
  // The inner dimension. Rows of a staged tile are read in their own order, which keeps them in different
  // banks.
  const bool staged = (load_a >= 0 && is_staged(load_a)) || (load_b >= 0 && is_staged(load_b));
  const std::vector<int> usual_lanes = {plan.pair_bits(), plan.pair_bits() + 1};
  std::vector<int> k_lanes = usual_lanes, k_registers;
  BlockValue source = left;  // an earlier product whose result is the left operand as it lies
  while (!plans_.contains(source) && program_.is_compute(source, OpKind::elementwise)) {
    BlockValue next = -1;
    for (BlockValue operand : program_.op(source).operands)
      if (program_.shape(operand) == a) next = operand;
    if (next < 0) break;
    source = next;
  }
  if (const auto at = plans_.find(source); at != plans_.end() && at->second.tensor_cores) {
    const Spread& earlier = at->second.d;
    k_lanes = {earlier.lanes[0].bit, earlier.lanes[1].bit};
    k_registers = {earlier.registers[0].bit};
    if (std::max({k_lanes[0], k_lanes[1], k_registers[0]}) >= k_left) {
      k_lanes = usual_lanes;
      k_registers.clear();
    }
  } else if (!staged && (direct(load_a, ra - 1) || direct(load_b, rb - 2))) {
    const int vector = std::min(vector_bits, k_left - 2);
    k_lanes = {vector, vector + 1};
  }
  std::vector<int> taken = k_lanes;
  taken.insert(taken.end(), k_registers.begin(), k_registers.end());
  for (int bit : others(k_left, taken)) k_registers.push_back(bit);
  // Columns.
  const int vector = direct(load_b, rb - 1) ? std::min(vector_bits, n_left - 3) : 0;
  const std::vector<int> n_low = {vector, vector + 1, vector + 2}, n_tiles = others(n_left, n_low);

  Spread &fa = plan.a, &fb = plan.b, &fd = plan.d;
  fa.lanes = {CoordBit{ra - 1, k_lanes[0]}, {ra - 1, k_lanes[1]}, {ra - 2, 0}, {ra - 2, 1}, {ra - 2, 2}};
  fb.lanes = {CoordBit{rb - 2, k_lanes[0]},
              {rb - 2, k_lanes[1]},
              {rb - 1, n_low[0]},
              {rb - 1, n_low[1]},
              {rb - 1, n_low[2]}};
  fd.lanes = {CoordBit{rd - 1, n_low[1]}, {rd - 1, n_low[2]}, {rd - 2, 0}, {rd - 2, 1}, {rd - 2, 2}};
  // The pair that shares a word, the rows from 8 on, then the rest of the inner dimension.
  const size_t pairs = static_cast<size_t>(plan.pair_bits());
  for (size_t i = 0; i < pairs; ++i) {
    fa.registers.push_back({ra - 1, k_registers[i]});
    fb.registers.push_back({rb - 2, k_registers[i]});
  }
  if (!plan.low_rows) fa.registers.push_back({ra - 2, 3});
  fd.registers = {{rd - 1, n_low[0]}, {rd - 2, 3}};
  for (size_t i = pairs; i < k_registers.size(); ++i) {
    fa.registers.push_back({ra - 1, k_registers[i]});
    fb.registers.push_back({rb - 2, k_registers[i]});
  }
  for (int bit : n_tiles) {
    fb.registers.push_back({rb - 1, bit});
    fd.registers.push_back({rd - 1, bit});
  }
  for (int bit = 4; bit < m_left; ++bit) {
    fa.registers.push_back({ra - 2, bit});
    fd.registers.push_back({rd - 2, bit});
  }
  plan.steps = 1 << (k_registers.size() - 1 - pairs);
  plan.across = 1 << n_tiles.size();
  plan.down = 1 << (m_left - 4);
  plan.tensor_cores = plan_batch(value, plan);
  return plan;
}

// Appends the bits that tell the matrices of a batch apart.
bool BlockEmitter::plan_batch(BlockValue value, MatmulPlan& plan) const {
  const BlockOp& op = program_.op(value);
  const Ints &a = program_.shape(op.operands[0]), &b = program_.shape(op.operands[1]), &d = op.type.shape;
  const int ra = static_cast<int>(a.size()), rb = static_cast<int>(b.size()), rd = static_cast<int>(d.size());
  for (int dim = rd - 3; dim >= 0; --dim) {
    const int64_t extent = d[static_cast<size_t>(dim)];
    const int da = dim - (rd - ra), db = dim - (rd - rb);
    const bool in_a = da >= 0 && a[static_cast<size_t>(da)] == extent,
               in_b = db >= 0 && b[static_cast<size_t>(db)] == extent;
    for (int bit = 0; bit < bits_for(extent); ++bit) {
      plan.d.registers.push_back({dim, bit});
      plan.batch *= 2;
      if (in_a) plan.a.registers.push_back({da, bit});
      if (in_b) plan.b.registers.push_back({db, bit});
      plan.batch_a *= in_a ? 2 : 1;
      plan.batch_b *= in_b ? 2 : 1;
    }
  }
  // A batch that is the same for some dimensions and different for others would need its own count.
  return (plan.batch_a == 1 || plan.batch_a == plan.batch) &&
         (plan.batch_b == 1 || plan.batch_b == plan.batch);
}

void BlockEmitter::matmul_loops(Builder& to, const MatmulPlan& plan, const LoadStep& load,
                                const WriteFragment& write) {
  to.unrolled("z", plan.batch, [&](Builder& in_z, const Expr& z) {
    in_z.unrolled("k", plan.steps, [&](Builder& in_k, const Expr& k) {
      load(in_k, z, k);
      in_k.unrolled("m", plan.down, [&](Builder& in_m, const Expr& m) {
        in_m.unrolled("n", plan.across, [&](Builder& in_n, const Expr& n) { write(in_n, z, k, m, n); });
      });
    });
  });
}

// Adds the product to `sums`.
void BlockEmitter::matmul(BlockValue value, const Symbol& sums, Stage stage) {
  const MatmulPlan& plan = plans_.at(value);
  if (plan.wgmma) return wgmma(value, sums, stage);
  if (plan.fma) return fma(value, sums, stage);
  const Fragments a = fragments(value, 0), b = fragments(value, 1);
  // The words of tile `tile` of an operand.
  auto words = [&](const Fragments& from, int batch, const Expr& z, const Expr& k, const Expr& tile,
                   int tiles, int count) {
    if (from.load) return ir::address(from.registers, tile * count);
    const Expr at = batch == 1 ? tile : z * tiles + tile;
    return ir::address(from.registers, (at * plan.steps + k) * count);
  };
  Body body;
  Builder to(body);
  const LoadStep load = [&](Builder& step, const Expr& z, const Expr& k) {
    for (const Fragments* operand : {&a, &b})
      if (operand->load) operand->load(step, z, k);
  };
  matmul_loops(to, plan, load,
               [&](Builder& each, const Expr& z, const Expr& k, const Expr& m, const Expr& n) {
                 each.emit(Instr::mma,
                           {ir::address(sums, ((z * plan.down + m) * plan.across + n) * 4),
                            words(a, plan.batch_a, z, k, m, plan.down, plan.low_rows ? 2 : 4),
                            words(b, plan.batch_b, z, k, n, plan.across, 2)},
                           {ir::scalar_of(plan.dtype), plan.low_rows});
               });
  text(stage) += std::move(body);
}

}  // namespace quern
