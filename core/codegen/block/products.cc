#include "core/codegen/block/products.h"

#include "core/kernel/passes/tile_loop.h"

namespace quern {

void Products::loops(Builder& to, const MatmulPlan& plan, const LoadStep& load, const WriteFragment& write) {
  to.unrolled("z", plan.batch, [&](Builder& in_z, const Expr& z) {
    in_z.unrolled("k", plan.steps, [&](Builder& in_k, const Expr& k) {
      load(in_k, z, k);
      in_k.unrolled("m", plan.down, [&](Builder& in_m, const Expr& m) {
        in_m.unrolled("n", plan.across, [&](Builder& in_n, const Expr& n) { write(in_n, z, k, m, n); });
      });
    });
  });
}

void Products::add(BlockValue product, const Symbol& sums, Stage stage) {
  const MatmulPlan& plan = plans_.of(product);
  if (plan.wgmma) return wgmma(product, sums, stage);
  if (plan.fma) return fma(product, sums, stage);
  mma(product, sums, stage);
}

void Products::mma(BlockValue value, const Symbol& sums, Stage stage) {
  const MatmulPlan& plan = plans_.of(value);
  const Fragments a = operands_.fragments(value, 0), b = operands_.fragments(value, 1);
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
  loops(to, plan, load, [&](Builder& each, const Expr& z, const Expr& k, const Expr& m, const Expr& n) {
    each.emit(Instr::mma,
              {ir::address(sums, ((z * plan.down + m) * plan.across + n) * 4),
               words(a, plan.batch_a, z, k, m, plan.down, plan.low_rows ? 2 : 4),
               words(b, plan.batch_b, z, k, n, plan.across, 2)},
              {ir::scalar_of(plan.dtype), plan.low_rows});
  });
  text(stage) += std::move(body);
}

// It waits itself if its operand is made in the same iteration: the memory of that may be others' behind the
// next barrier.
void Products::wgmma(BlockValue value, const Symbol& sums, Stage stage) {
  const MatmulPlan& plan = plans_.of(value);
  Symbol words;
  if (!plan.shared[plan.m_side]) {
    const BlockValue from = program_.op(value).operands[static_cast<size_t>(plan.m_side)];
    words = operands_.packed(from, plan.operand(plan.m_side), plan.dtype,
                             summed_dim(plan.m_side, program_.op(from).type.rank()));
  }
  Body body;
  Builder to(body);
  to.emit(Instr::wgmma_fence);
  to.add(wgmma_group(value, sums, words, false));
  if (const int n_side = plan.n_side(); plan.cooperative[static_cast<size_t>(n_side)]) {
    operands_.make_cooperatively(value, n_side);
    to.add(ir::wait_for_products({sums}));
  }
  text(stage) += std::move(body);
}

Body Products::wgmma_group(BlockValue value, const Symbol& sums, const Symbol& words, bool previous) {
  const MatmulPlan& plan = plans_.of(value);
  const Scalar type = ir::scalar_of(plan.dtype);
  shapes_.insert({plan.dtype, plan.columns});
  Body body;
  Builder to(body);
  const LoadStep nothing = [](Builder&, const Expr&, const Expr&) {};
  loops(to, plan, nothing, [&](Builder& each, const Expr& z, const Expr& k, const Expr& m, const Expr& n) {
    auto operand = [&](int side) {
      const int batch = side == 0 ? plan.batch_a : plan.batch_b;
      const bool is_m = side == plan.m_side;
      const Expr index =
          ((batch == 1 ? Expr(0) : z) * (is_m ? plan.down : plan.across) + (is_m ? m : n)) * plan.steps + k;
      return plan.shared[side] ? operands_.panel_operand(value, side, index, previous)
                               : ir::address(words, index * 4);
    };
    std::vector<Expr> operands = {
        ir::address(sums, ((z * plan.down + m) * plan.across + n) * (plan.columns / 2)), operand(plan.m_side),
        operand(plan.n_side())};
    if (!facts_.is_summed(value)) operands.push_back(less(0, k));  // begins the sums
    each.emit(words ? Instr::wgmma : Instr::wgmma_shared, std::move(operands), {type, plan.columns});
  });
  to.emit(Instr::wgmma_commit);
  return body;
}

}  // namespace quern
