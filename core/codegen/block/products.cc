#include "core/codegen/block/products.h"

#include "core/kernel/passes/tile_loop.h"

namespace quern {

void Products::loops(Builder& to, const MatmulPlan& plan, const LoadStep& load, const WriteFragment& write) {
  to.unrolled("z", plan.batch, [&](Builder& in_z, const Expr& z) {
    in_z.unrolled("k", plan.wgmma ? plan.filled_steps : plan.steps, [&](Builder& in_k, const Expr& k) {
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
  Body body;
  Builder to(body);
  const LoadStep load = [&](Builder& step, const Expr& z, const Expr& k) {
    for (const Fragments* operand : {&a, &b})
      if (operand->load) operand->load(step, z, k);
  };
  if (plan.tf32x3)
    mma_tf32x3(to, plan, {a, b}, load, sums);
  else
    loops(to, plan, load, [&](Builder& each, const Expr& z, const Expr& k, const Expr& m, const Expr& n) {
      each.emit(Instr::mma,
                {ir::address(sums, ((z * plan.down + m) * plan.across + n) * 4),
                 ir::address(a.registers, word_index(plan, 0, a, z, k, m)),
                 ir::address(b.registers, word_index(plan, 1, b, z, k, n))},
                {ir::scalar_of(plan.dtype), plan.low_rows});
    });
  text(stage) += std::move(body);
}

// Of the first word of fragment `tile` of an operand at step k of matrix z.
Expr Products::word_index(const MatmulPlan& plan, int side, const Fragments& from, const Expr& z,
                          const Expr& k, const Expr& tile) {
  const int count = plan.words_of_fragment(side);
  if (from.load) return tile * count;
  const bool one = (side == 0 ? plan.batch_a : plan.batch_b) == 1;
  const Expr at = one ? tile : z * (side == 0 ? plan.down : plan.across) + tile;
  return (at * plan.steps + k) * count;
}

// Each operand is high + low, both in tf32, and the product low * high + high * low + high * high. Tensor
// cores cut sums off where f32 rounds them, so that theirs are of a few steps only, which are added in f32.
void Products::mma_tf32x3(Builder& to, const MatmulPlan& plan, const std::array<Fragments, 2>& operands,
                          const LoadStep& load, const Symbol& sums) {
  constexpr int kStepsOfPart = 4;
  const int steps = std::min(plan.steps, kStepsOfPart), fragments = plan.down * plan.across;
  const Symbol part = fresh_registers("part", Scalar::f32, fragments * 4);
  struct Halves {
    Symbol high, low;
    int count;  // of fragments
  };
  std::array<Halves, 2> halves;
  for (int side : {0, 1}) {
    Halves& own = halves[static_cast<size_t>(side)];
    own.count = side == 0 ? plan.down : plan.across;
    const int words = own.count * plan.words_of_fragment(side);
    own.high = fresh_registers(side == 0 ? "a_high" : "b_high", Scalar::u32, words);
    own.low = fresh_registers(side == 0 ? "a_low" : "b_low", Scalar::u32, words);
  }
  auto split = [&](Builder& step, int side, const Expr& z, const Expr& k) {
    const Halves& own = halves[static_cast<size_t>(side)];
    const Fragments& from = operands[static_cast<size_t>(side)];
    const int words = plan.words_of_fragment(side);
    step.declare(own.high);
    step.declare(own.low);
    step.unrolled("t", own.count, [&](Builder& tile, const Expr& t) {
      tile.unrolled("w", words, [&](Builder& each, const Expr& w) {
        const Expr number = ir::element(from.registers, word_index(plan, side, from, z, k, t) + w);
        each.assign(ir::element(own.high, t * words + w),
                    ir::call(ir::Function::tf32_high, Scalar::u32, {number}));
        each.assign(ir::element(own.low, t * words + w),
                    ir::call(ir::Function::tf32_low, Scalar::u32, {number}));
      });
    });
  };
  auto multiply = [&](Builder& step, const Symbol& left, const Symbol& right) {
    step.unrolled("m", plan.down, [&](Builder& in_m, const Expr& m) {
      in_m.unrolled("n", plan.across, [&](Builder& in_n, const Expr& n) {
        in_n.emit(
            Instr::mma,
            {ir::address(part, (m * plan.across + n) * 4), ir::address(left, m * plan.words_of_fragment(0)),
             ir::address(right, n * plan.words_of_fragment(1))},
            {ir::scalar_of(plan.dtype), plan.low_rows});
      });
    });
  };
  to.unrolled("z", plan.batch, [&](Builder& in_z, const Expr& z) {
    in_z.unrolled("p", plan.steps / steps, [&](Builder& in_p, const Expr& p) {
      in_p.declare(part, true);
      in_p.unrolled("s", steps, [&](Builder& step, const Expr& s) {
        const Expr k = p * steps + s;
        load(step, z, k);
        for (int side : {0, 1}) split(step, side, z, k);
        multiply(step, halves[0].low, halves[1].high);
        multiply(step, halves[0].high, halves[1].low);
        multiply(step, halves[0].high, halves[1].high);
      });
      in_p.unrolled("i", fragments * 4, [&](Builder& each, const Expr& i) {
        const Expr sum = ir::element(sums, z * (fragments * 4) + i);
        each.assign(sum, sum + ir::element(part, i));
      });
    });
  });
}

// It waits itself if its operand is made in the same iteration: the memory of that may be others' behind the
// next barrier.
void Products::wgmma(BlockValue value, const Symbol& sums, Stage stage) {
  const MatmulPlan& plan = plans_.of(value);
  Symbol words;
  if (!plan.shared[plan.m_side]) {
    const BlockValue from = program_.op(value).operands[static_cast<size_t>(plan.m_side)];
    words = operands_.packed(from, plan.operand(plan.m_side), plan,
                             summed_dim(plan.m_side, program_.op(from).type.rank()));
  }
  if (plan.keeps_m) operands_.make_cooperatively(value, plan.m_side);
  Body body;
  Builder to(body);
  to.emit(Instr::wgmma_fence);
  to.add(wgmma_group(value, sums, words, false));
  if (const int n_side = plan.n_side(); plan.cooperative[static_cast<size_t>(n_side)]) {
    operands_.make_cooperatively(value, n_side);
    if (!plan.is_in_stage(n_side)) to.add(ir::wait_for_products({sums}));
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
