// Products without tensor cores: every thread has a tile of sums in registers, and reads vectors of both operands out of
// shared memory, a group of steps along the inner dimension at a time. Tiles that the ring brings are read where they
// lie; what is computed, or of another type than the sums, is left in shared memory first.
#include <algorithm>

#include "core/codegen/block_emitter.h"

namespace quern {

namespace {

// Multiplications of a thread between two jumps: they stay in the instruction cache.
constexpr int kMostUnrolled = 2048;
constexpr int kVectorBits = 2;  // elements of four bytes in 16
// Elements between rows of a tile that threads made: eight of them lie in different banks.
constexpr int64_t kBankPadding = 4;

int free_dim(int side, int rank) { return rank == 1 ? -1 : rank - (side == 0 ? 2 : 1); }
// Of a result's dimension of a batch; negative where the operand has none.
int batch_dim(int dim, int rank, int batch_dims) { return dim + std::max(0, rank - 2) - batch_dims; }
int64_t extent_of(const Ints& shape, int dim) { return dim < 0 ? 1 : shape[static_cast<size_t>(dim)]; }

void put_bits(std::vector<CoordBit>& to, int dim, int first, int last) {
  for (int bit = first; bit < last; ++bit) to.push_back({dim, bit});
}

// Leading registers that are neighbours along dimension `inner`.
int leading_vector(const Spread& spread, int inner) {
  size_t bits = 0;
  while (bits < kVectorBits && bits < spread.registers.size() &&
         spread.registers[bits] == CoordBit{inner, static_cast<int>(bits)})
    ++bits;
  return static_cast<int>(bits);
}

}  // namespace

// Which dimension of an operand has its neighbours side by side in shared memory. What threads copy into the ring, element
// by element if need be, are rows or columns: registers of four of these are in banks in turn, as the sums are, while of
// four steps those of one step are in the same bank, and wait for each other.
int BlockEmitter::shared_inner(BlockValue operand, int side, bool staged) const {
  const int rank = program_.op(operand).type.rank(), free = free_dim(side, rank);
  if (staged && is_turned(operand, side)) return free;
  const int inner = staged ? inner_dim(program_.op(operand).tensor, program_.shape(operand)) : rank - 1;
  return inner < 0 ? rank - 1 : inner;
}

bool BlockEmitter::is_turned(BlockValue operand, int side) const {
  const int rank = program_.op(operand).type.rank();
  return !(schedule_.tma && target_.tma) && rank > 1 &&
         program_.users[static_cast<size_t>(operand)].size() == 1 &&
         inner_dim(program_.op(operand).tensor, program_.shape(operand)) == summed_dim(side, rank);
}

BlockEmitter::MatmulPlan BlockEmitter::plan_fma(BlockValue value) const {
  MatmulPlan plan;
  const BlockOp& op = program_.op(value);
  const Ints& shape = op.type.shape;
  plan.dtype = register_type(op.type.dtype);
  std::array<FmaOperand, 2> forms;
  std::array<int, 2> ranks, free, own_free;
  for (size_t side = 0; side < 2; ++side) {
    const BlockValue operand = op.operands[side];
    const BlockOp& from = program_.op(operand);
    ranks[side] = from.type.rank();
    free[side] = free_dim(static_cast<int>(side), ranks[side]);
    plan.shared[side] = from.kind == BlockOp::Kind::load && is_staged(operand) &&
                        places_[static_cast<size_t>(from.tensor)].dtype == plan.dtype;
    const int inner = shared_inner(operand, static_cast<int>(side), plan.shared[side]);
    forms[side].by_inner = inner == summed_dim(static_cast<int>(side), ranks[side]);
    if (forms[side].by_inner || inner == free[side]) forms[side].vector = kVectorBits;
  }
  const int rank = op.type.rank();
  own_free[1] = ranks[1] == 1 ? -1 : rank - 1;
  own_free[0] = ranks[0] == 1 ? -1 : rank - (ranks[1] == 1 ? 1 : 2);
  const Ints &a = program_.shape(op.operands[0]), &b = program_.shape(op.operands[1]);
  const FmaTile tile =
      fma_tile(extent_of(a, free[0]), extent_of(b, free[1]), a.back(), forms[0], forms[1], schedule_.warps);
  plan.fma = tile;
  plan.d.warps.resize(static_cast<size_t>(warp_bits_));
  for (int side : {1, 0}) {
    const size_t s = static_cast<size_t>(side);
    Spread& spread = side == 0 ? plan.a : plan.b;
    const int m = own_free[s], own = free[s], k = summed_dim(side, ranks[s]);
    const int vector = side == 0 ? tile.m_vector : tile.n_vector,
              lanes = side == 0 ? tile.m_lanes : tile.n_lanes,
              registers = side == 0 ? tile.m_registers : tile.n_registers,
              warps = side == 0 ? tile.m_warps : tile.n_warps;
    // From the lowest bit of rows or columns on: vectors, lanes, other registers, warps.
    std::vector<CoordBit> sums;
    put_bits(sums, own, 0, vector);
    put_bits(sums, own, vector + lanes, registers + lanes);
    for (const CoordBit& bit : sums) plan.d.registers.push_back({m, bit.bit});
    if (forms[s].by_inner) put_bits(spread.registers, k, 0, tile.group);
    spread.registers.insert(spread.registers.end(), sums.begin(), sums.end());
    put_bits(spread.registers, k, forms[s].by_inner ? tile.group : 0, tile.group + tile.groups);
    const int first_lane = side == 0 ? tile.n_lanes : 0, first_warp = side == 0 ? 0 : tile.m_warps;
    for (int i = 0; i < lanes; ++i) {
      const size_t lane = static_cast<size_t>(first_lane + i);
      spread.lanes[lane] = {own, vector + i};
      plan.d.lanes[lane] = {m, vector + i};
    }
    spread.warps.resize(static_cast<size_t>(warp_bits_));
    for (int i = 0; i < warps; ++i) {
      const size_t warp = static_cast<size_t>(first_warp + i);
      spread.warps[warp] = {own, registers + lanes + i};
      plan.d.warps[warp] = {m, registers + lanes + i};
    }
    for (int i = 0; i < tile.k_warps; ++i)
      spread.warps[static_cast<size_t>(tile.m_warps + tile.n_warps + i)] = {k, tile.group + tile.groups + i};
  }
  plan.partial_warps = ((1u << tile.k_warps) - 1) << (tile.m_warps + tile.n_warps);
  // The matrices of a batch; an operand may be the same for some.
  const int batch_dims = rank - (ranks[0] > 1) - (ranks[1] > 1);
  for (int dim = batch_dims - 1; dim >= 0; --dim)
    for (int bit = 0; bit < bits_for(shape[static_cast<size_t>(dim)]); ++bit) {
      plan.d.registers.push_back({dim, bit});
      plan.batch *= 2;
      for (int side : {0, 1}) {
        const int at = batch_dim(dim, ranks[static_cast<size_t>(side)], batch_dims);
        if (at >= 0 && program_.shape(op.operands[static_cast<size_t>(side)])[static_cast<size_t>(at)] != 1)
          (side == 0 ? plan.a : plan.b).registers.push_back({at, bit});
      }
    }
  return plan;
}

// How the ring has what only this product reads.
void BlockEmitter::note_fma_operands(BlockValue value, const MatmulPlan& plan) {
  for (int side : {0, 1}) {
    const BlockValue operand = program_.op(value).operands[static_cast<size_t>(side)];
    if (!plan.shared[static_cast<size_t>(side)] || !program_.only_for(operand, value)) continue;
    demands_.emplace(operand, side == 0 ? plan.a : plan.b);
    if (is_turned(operand, side)) turned_[operand] = free_dim(side, program_.op(operand).type.rank());
  }
}

// Where an operand is read: a tile of the ring, or one that threads write, once or in each iteration.
const BlockEmitter::StagedTile& BlockEmitter::fma_operand(BlockValue operand, bool staged, DType dtype) {
  if (staged) return stage_tile(operand);
  const Stage place = place_of(operand);
  const auto [at, fresh_one] = fma_tiles_.try_emplace({operand, place});
  StagedTile& tile = at->second;
  if (!fresh_one) {
    // Of a section before this one, where another product has it as well.
    for (SharedBuffer& buffer : shared_)
      if (buffer.symbol == tile.memory && place != now_) buffer.use = SharedBuffer::Use::loop_carried;
    return tile;
  }
  Spread spread = natural(operand);
  tile.value = operand;
  tile.inner = program_.op(operand).type.rank() - 1;
  const Ints& shape = program_.shape(operand);
  int64_t size = 1;
  tile.pitch.resize(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    tile.padded.insert(tile.padded.begin(),
                       int64_t{1} << std::max(bits_for(shape[d]), spread.bits(static_cast<int>(d))));
    tile.pitch[d] = size;
    size *= tile.padded.front();
    if (d + 1 == shape.size() && size >= kBankPadding) size += kBankPadding;
  }
  const Scalar type = ir::scalar_of(dtype);
  tile.memory = shared_buffer(type, size * 4,
                              place == now_ ? SharedBuffer::Use::exchange : SharedBuffer::Use::loop_carried);
  for (int bit = kVectorBits; bit-- > 0;)
    if (const auto found =
            std::find(spread.registers.begin(), spread.registers.end(), CoordBit{tile.inner, bit});
        found != spread.registers.end())
      std::rotate(spread.registers.begin(), found, found + 1);
  const int vector = leading_vector(spread, tile.inner), per = 1 << vector;
  const Spread chunks = chunks_of(spread, vector);
  Body body;
  Builder(body).when(leaders(spread), [&](Builder& some) {
    some.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
      auto number = [&](const Expr& r) {
        return ir::select(inside(operand, spread, r), ir::converted(element(operand, spread, r), dtype),
                          ir::zero(type));
      };
      const Expr to = offset(chunks, tile.pitch, c);
      if (vector == 0) return each.assign(ir::element(tile.memory, to), number(c));
      each.store(Instr::store_shared, ir::address(tile.memory, to), type, per,
                 [&](Builder& one, const Expr& j) { return number(one.named("r", c * per + j)); });
    });
  });
  text(place) += std::move(body);
  return tile;
}

// Adds the product to `sums`.
void BlockEmitter::fma(BlockValue value, const Symbol& sums, Stage stage) {
  const BlockOp& op = program_.op(value);
  const MatmulPlan& plan = plans_.at(value);
  const FmaTile& tile = *plan.fma;
  const Scalar type = ir::scalar_of(plan.dtype);
  // What is loaded at once of an operand: registers of a group, or of a step, in vectors.
  struct Operand {
    const StagedTile* tile;
    Spread chunks, batch;
    Symbol registers;
    Expr base;  // the place of what comes first
    bool by_inner;
    int bits, vector;
  };
  std::vector<Operand> operands;
  int batch_dims = op.type.rank();
  for (BlockValue from : op.operands) batch_dims -= program_.op(from).type.rank() > 1;
  for (size_t side : {size_t{0}, size_t{1}}) {
    const BlockValue from = op.operands[side];
    const Spread& spread = side == 0 ? plan.a : plan.b;
    Operand operand{&fma_operand(from, plan.shared[side], plan.dtype), {}, {}, {}, 0, false, 0, 0};
    operand.by_inner = side == 0 ? tile.a_by_inner : tile.b_by_inner;
    operand.bits = (side == 0 ? tile.m_registers : tile.n_registers) + (operand.by_inner ? tile.group : 0);
    operand.vector = std::min(leading_vector(spread, operand.tile->inner), operand.bits);
    operand.chunks = chunks_of(spread, operand.vector);
    operand.base = thread_place(*operand.tile, operand.chunks);
    operand.registers = fresh_registers(base_name(from) + "_step", type, int64_t{1} << operand.bits);
    const int rank = program_.op(from).type.rank();
    for (size_t i = static_cast<size_t>(tile.m_registers + tile.n_registers); i < plan.d.registers.size();
         ++i) {
      const CoordBit& bit = plan.d.registers[i];
      operand.batch.registers.push_back({batch_dim(bit.dim, rank, batch_dims), bit.bit});
    }
    operands.push_back(std::move(operand));
  }
  auto load = [&](Builder& to, const Operand& operand, const Expr& z, const Expr& step) {
    const int count = operand.bits - operand.vector;
    to.declare(operand.registers);
    to.unrolled("r", int64_t{1} << count, [&](Builder& each, const Expr& r) {
      const Expr at = r + step * (int64_t{1} << count) + register_index(z, operand.chunks, operand.batch);
      each.emit(
          Instr::load_shared_or_zero,
          {ir::address(operand.registers, r * (int64_t{1} << operand.vector)),
           ir::address(operand.tile->memory, place_from(operand.base, *operand.tile, operand.chunks, at)),
           ir::truth(true)},
          {type, int64_t{1} << operand.vector});
    });
  };
  const int64_t down = int64_t{1} << tile.m_registers, across = int64_t{1} << tile.n_registers,
                steps = int64_t{1} << tile.group;
  auto one = [&](const Operand& operand, const Expr& sum, const Expr& k) {
    return ir::element(operand.registers, operand.by_inner ? sum * steps + k : sum);
  };
  auto group = [&](Builder& to, const Expr& z, const Expr& g) {
    for (const Operand& operand : operands)
      if (operand.by_inner) load(to, operand, z, g);
    to.unrolled("k", steps, [&](Builder& step, const Expr& k) {
      for (const Operand& operand : operands)
        if (!operand.by_inner) load(step, operand, z, g * steps + k);
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
  };
  const int64_t groups = int64_t{1} << tile.groups;
  int64_t unrolled = groups;
  while (unrolled > 1 && unrolled * steps * down * across * plan.batch > kMostUnrolled) unrolled /= 2;
  Body body;
  Builder to(body);
  auto some = [&](Builder& out) {
    out.unrolled("z", plan.batch, [&](Builder& matrix, const Expr& z) {
      matrix.unrolled("g", unrolled, [&](Builder& each, const Expr& g) { group(each, z, g); });
    });
  };
  if (unrolled == groups) {
    some(to);
  } else {
    const Symbol part = ir::make_variable("part", Scalar::i32);
    to.rolled(part, 0, groups / unrolled, [&](Builder& each) {
      for (Operand& operand : operands) {
        const Expr first = Expr(part) * unrolled * (operand.by_inner ? 1 : steps),
                   at = first * (int64_t{1} << (operand.bits - operand.vector));
        operand.base = each.let(ir::make_variable(fresh("at"), Scalar::i32),
                                place_from(operand.base, *operand.tile, operand.chunks, at));
      }
      some(each);
    });
  }
  text(stage) += std::move(body);
}

// What comes behind the loop takes the sums in vectors; the loop need not have them so.
void BlockEmitter::free_of_vectors(const Symbol& sums) {
  Body body;
  Builder(body).unrolled("r", sums->count, [&](Builder& each, const Expr& r) {
    const Expr sum = ir::element(sums, r);
    each.assign(sum, ir::call(ir::Function::fresh_register, Scalar::f32, {sum}));
  });
  text(Stage::after) += std::move(body);
}

}  // namespace quern
