// Products without tensor cores: every thread has a tile of sums in registers, and reads vectors of both
// operands out of shared memory, a group of steps along the inner dimension at a time. Tiles that the ring
// brings are read where they lie; what is computed, or of another type than the sums, is left in shared
// memory first.
#include <algorithm>

#include "core/codegen/block/products.h"

namespace quern {

namespace {

// Multiplications of a thread between two jumps: they stay in the instruction cache.
constexpr int kMostUnrolled = 2048;
constexpr int kVectorBits = 2;  // elements of four bytes in 16
// Elements between rows of a tile that threads made: eight of them lie in different banks.
constexpr int64_t kBankPadding = 4;

}  // namespace

// What is loaded at once of an operand: registers of a group of steps, or of a step, in vectors.
struct Products::FmaOperand {
  const SharedTile* tile = nullptr;
  RegisterLayout chunks, batch;
  Symbol registers;
  Expr base = 0;  // the place of what comes first
  bool by_inner = false;
  int bits = 0, vector = 0;
};

// Where an operand is read: a tile of the ring, or one that threads write, once or in each iteration.
const SharedTile& Products::fma_tile(BlockValue operand, bool staged, DType dtype) {
  if (staged) return staged_.tile(operand);
  const Stage place = place_of(operand);
  const auto [at, fresh_one] = fma_tiles_.try_emplace({operand, place});
  SharedTile& tile = at->second;
  if (!fresh_one) {
    // Of a section before this one, where another product has it as well.
    for (SharedBuffer& buffer : body_.shared)
      if (buffer.symbol == tile.memory && place != now()) buffer.use = SharedBuffer::Use::loop_carried;
    return tile;
  }
  const RegisterLayout layout = values_.natural(operand);
  tile.value = operand;
  tile.inner = program_.op(operand).type.rank() - 1;
  const Ints& shape = program_.shape(operand);
  int64_t size = 1;
  tile.pitch.resize(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    tile.padded.insert(tile.padded.begin(),
                       int64_t{1} << std::max(bits_for(shape[d]), layout.bits(static_cast<int>(d))));
    tile.pitch[d] = size;
    size *= tile.padded.front();
    if (d + 1 == shape.size() && size >= kBankPadding) size += kBankPadding;
  }
  tile.memory = shared_buffer(ir::scalar_of(dtype), size * 4,
                              place == now() ? SharedBuffer::Use::exchange : SharedBuffer::Use::loop_carried);
  Body fill = fill_fma_tile(tile, layout, dtype);
  text(place) += std::move(fill);
  return tile;
}

Body Products::fill_fma_tile(const SharedTile& tile, RegisterLayout layout, DType dtype) {
  const BlockValue operand = tile.value;
  put_first(layout, tile.inner, 0, kVectorBits);
  const int vector = leading_bits(layout, tile.inner, kVectorBits), per = 1 << vector;
  const RegisterLayout chunks = chunks_of(layout, vector);
  const Scalar type = ir::scalar_of(dtype);
  Body body;
  Builder(body).when(leaders(layout), [&](Builder& some) {
    some.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
      auto number = [&](const Expr& r) {
        return ir::select(bounds_.inside(operand, layout, r),
                          ir::converted(values_.element(operand, layout, r), dtype), ir::zero(type));
      };
      const Expr to = bounds_.offset(chunks, tile.pitch, c);
      if (vector == 0) return each.assign(ir::element(tile.memory, to), number(c));
      each.store(Instr::store_shared, ir::address(tile.memory, to), type, per,
                 [&](Builder& one, const Expr& j) { return number(one.named("r", c * per + j)); });
    });
  });
  return body;
}

Products::FmaOperand Products::fma_operand(BlockValue product, int side) {
  const MatmulPlan& plan = plans_.of(product);
  const FmaTile& tile = *plan.fma;
  const size_t s = static_cast<size_t>(side);
  const BlockValue from = program_.op(product).operands[s];
  FmaOperand operand;
  operand.tile = &fma_tile(from, plan.shared[s], plan.dtype);
  operand.by_inner = side == 0 ? tile.a_by_inner : tile.b_by_inner;
  operand.bits = (side == 0 ? tile.m_registers : tile.n_registers) + (operand.by_inner ? tile.group : 0);
  operand.vector = std::min(leading_bits(plan.operand(side), operand.tile->inner, kVectorBits), operand.bits);
  operand.chunks = chunks_of(plan.operand(side), operand.vector);
  operand.base = shared_.thread_place(*operand.tile, operand.chunks);
  operand.registers =
      fresh_registers(base_name(from) + "_step", ir::scalar_of(plan.dtype), int64_t{1} << operand.bits);
  const int rank = program_.op(from).type.rank(), batch_dims = fma_batch_dims(program_, product);
  for (size_t i = static_cast<size_t>(tile.m_registers + tile.n_registers); i < plan.d.registers.size();
       ++i) {
    const CoordBit& bit = plan.d.registers[i];
    operand.batch.registers.push_back({fma_batch_dim(bit.dim, rank, batch_dims), bit.bit});
  }
  return operand;
}

void Products::load_fma(Builder& to, const FmaOperand& operand, Scalar type, const Expr& z,
                        const Expr& step) {
  const int count = operand.bits - operand.vector;
  to.declare(operand.registers);
  to.unrolled("r", int64_t{1} << count, [&](Builder& each, const Expr& r) {
    const Expr at = r + step * (int64_t{1} << count) + register_index(z, operand.chunks, operand.batch);
    each.emit(Instr::load_shared_or_zero,
              {ir::address(operand.registers, r * (int64_t{1} << operand.vector)),
               ir::address(operand.tile->memory,
                           SharedTiles::place_from(operand.base, *operand.tile, operand.chunks, at)),
               ir::truth(true)},
              {type, int64_t{1} << operand.vector});
  });
}

// A group of steps along the inner dimension, of matrix z.
void Products::fma_group(Builder& to, const MatmulPlan& plan, const std::vector<FmaOperand>& operands,
                         const Symbol& sums, const Expr& z, const Expr& g) {
  const FmaTile& tile = *plan.fma;
  const Scalar type = ir::scalar_of(plan.dtype);
  const int64_t down = int64_t{1} << tile.m_registers, across = int64_t{1} << tile.n_registers,
                steps = int64_t{1} << tile.group;
  auto one = [&](const FmaOperand& operand, const Expr& sum, const Expr& k) {
    return ir::element(operand.registers, operand.by_inner ? sum * steps + k : sum);
  };
  for (const FmaOperand& operand : operands)
    if (operand.by_inner) load_fma(to, operand, type, z, g);
  to.unrolled("k", steps, [&](Builder& step, const Expr& k) {
    for (const FmaOperand& operand : operands)
      if (!operand.by_inner) load_fma(step, operand, type, z, g * steps + k);
    // To and fro: the last column of a row is the first one of the next, and has been read.
    step.unrolled("m", down, [&](Builder& row, const Expr& m) {
      row.unrolled("i", across, [&](Builder& each, const Expr& i) {
        const Expr n = each.named("n", i ^ (m & 1) * (across - 1));
        const Expr sum = ir::element(sums, (z * down + m) * across + n);
        each.assign(sum, ir::call(ir::Function::multiply_add, type,
                                  {one(operands[0], m, k), one(operands[1], n, k), sum}));
      });
    });
  });
}

void Products::fma(BlockValue product, const Symbol& sums, Stage stage) {
  const MatmulPlan& plan = plans_.of(product);
  const FmaTile& tile = *plan.fma;
  std::vector<FmaOperand> operands;
  for (int side : {0, 1}) operands.push_back(fma_operand(product, side));
  const int64_t steps = int64_t{1} << tile.group, groups = int64_t{1} << tile.groups,
                sums_count = int64_t{1} << (tile.m_registers + tile.n_registers);
  int64_t unrolled = groups;
  while (unrolled > 1 && unrolled * steps * sums_count * plan.batch > kMostUnrolled) unrolled /= 2;
  Body body;
  Builder to(body);
  auto some = [&](Builder& out) {
    out.unrolled("z", plan.batch, [&](Builder& matrix, const Expr& z) {
      matrix.unrolled("g", unrolled,
                      [&](Builder& each, const Expr& g) { fma_group(each, plan, operands, sums, z, g); });
    });
  };
  if (unrolled == groups) {
    some(to);
  } else {
    const Symbol part = ir::make_variable("part", Scalar::i32);
    to.rolled(part, 0, groups / unrolled, [&](Builder& each) {
      for (FmaOperand& operand : operands) {
        const Expr first = Expr(part) * unrolled * (operand.by_inner ? 1 : steps),
                   at = first * (int64_t{1} << (operand.bits - operand.vector));
        operand.base = each.let(ir::make_variable(fresh("at"), Scalar::i32),
                                SharedTiles::place_from(operand.base, *operand.tile, operand.chunks, at));
      }
      some(each);
    });
  }
  text(stage) += std::move(body);
}

void Products::free_of_vectors(const Symbol& sums) {
  Body body;
  Builder(body).unrolled("r", sums->count, [&](Builder& each, const Expr& r) {
    const Expr sum = ir::element(sums, r);
    each.assign(sum, ir::call(ir::Function::fresh_register, Scalar::f32, {sum}));
  });
  text(Stage::after) += std::move(body);
}

}  // namespace quern
