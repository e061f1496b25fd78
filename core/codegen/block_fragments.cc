// Operands of tensor cores: from shared memory into the registers in which mma takes them, and tiles that
// all warps of a block make together because several of them need the same.
#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/codegen/block_emitter.h"

namespace quern {

namespace {

constexpr int kLeastSharedWords = 32;  // of a thread: making fewer again costs no more than a barrier

std::string text_of(const Spread& spread) {
  std::string out;
  auto put = [&](const CoordBit& bit) {
    out += std::to_string(bit.dim) + "." + std::to_string(bit.bit) + " ";
  };
  for (const CoordBit& bit : spread.registers) put(bit);
  out += "/ ";
  for (const CoordBit& bit : spread.lanes) put(bit);
  out += "/ ";
  for (const CoordBit& bit : spread.warps) put(bit);
  return out;
}

}  // namespace

// Fills `words` words of `to` by ldmatrix, those behind the first `skipped` times as many of the spread; false
// if rows of the tile are not rows of the matrices. A row of a matrix is eight 16-bit elements or four f32; of
// these only the first kind can be transposed, others are read one by one.
bool BlockEmitter::read_matrices(Builder& out, const StagedTile& tile, DType dtype, const Spread& spread,
                                 const Symbol& to, int words, const Expr& skipped) {
  if (spread.registers.empty() || !beyond_tile(tile, spread).empty()) return false;
  const bool pairs = is_packed_in_pairs(dtype);
  const CoordBit pair = spread.registers[0];
  auto is = [&](const CoordBit& bit, int number) { return bit == CoordBit{tile.inner, number}; };
  const bool plain = pairs ? is(pair, 0) && is(spread.lanes[0], 1) && is(spread.lanes[1], 2)
                           : is(spread.lanes[0], 0) && is(spread.lanes[1], 1);
  const bool turned = is(spread.lanes[2], 0) && is(spread.lanes[3], 1) && is(spread.lanes[4], 2) &&
                      pair.dim != tile.inner && spread.lanes[0].dim != tile.inner &&
                      spread.lanes[1].dim != tile.inner;
  if (!plain && !pairs) {
    out.unrolled("r", words, [&](Builder& each, const Expr& r) {
      const Expr number = ir::element(tile.memory, place_in(tile, spread, skipped * words + r));
      each.assign(ir::element(to, r), ir::call(ir::Function::float_bits, Scalar::u32, {number}));
    });
    return true;
  }
  if (!plain && !turned) return false;
  // Lanes give the addresses of rows of matrices: their low three bits count rows, the others matrices.
  const int matrices = std::min(2, bits_for(words));
  const auto words_at = spread.registers.begin() + (pairs ? 1 : 0);
  Spread rows;
  for (size_t i = 0; i < 3; ++i)
    rows.lanes[i] = plain ? spread.lanes[i + 2] : (i == 0 ? pair : spread.lanes[i - 1]);
  for (size_t i = 0; i < static_cast<size_t>(matrices); ++i)
    rows.lanes[i + 3] = *(words_at + static_cast<long>(i));
  rows.warps = spread.warps;
  rows.registers.assign(words_at + matrices, spread.registers.end());
  const int count = 1 << matrices, reads = words >> matrices;
  out.unrolled("r", reads, [&](Builder& each, const Expr& r) {
    each.emit(
        plain ? Instr::ldmatrix : Instr::ldmatrix_trans,
        {ir::address(to, r * count), ir::address(tile.memory, place_in(tile, rows, skipped * reads + r))},
        {count});
  });
  return true;
}

// Whether warps need the same tile of what is computed, element by element, from a staged one: then it is
// made once, by all, and left in shared memory in words. `bits` are those of its coordinates in `fragments`,
// which a warp would make for itself.
bool BlockEmitter::is_cooperative(BlockValue value, DType dtype, const Spread& fragments) const {
  const BlockValue load = root_load(value);
  if (load < 0 || load == value || !is_staged(load)) return false;
  const Ints& shape = program_.shape(value);
  const int rank = static_cast<int>(shape.size()), inner = inner_dim(program_.op(load).tensor, shape);
  if (inner < rank - 2 || shape[static_cast<size_t>(inner)] % 8 != 0) return false;
  int bits = -kLaneBits - (is_packed_in_pairs(dtype) ? 1 : 0);
  for (int64_t extent : shape) bits += bits_for(extent);
  for (const CoordBit& bit : fragments.warps) bits -= bit.dim >= 0;
  return bits >= bits_for(kLeastSharedWords) && std::any_of(fragments.warps.begin(), fragments.warps.end(),
                                                            [](const CoordBit& bit) { return bit.dim < 0; });
}

// The spread in which all warps make it.
Spread BlockEmitter::cooperative_spread(BlockValue value, DType dtype) const {
  return blocked(value, dtype, inner_dim(program_.op(root_load(value)).tensor, program_.shape(value)));
}

// In which spread an operand of a product is computed.
Spread BlockEmitter::operand_spread(BlockValue product, size_t side) const {
  const MatmulPlan& plan = plans_.at(product);
  if (plan.cooperative[side]) return cooperative_spread(program_.op(product).operands[side], plan.dtype);
  return side == 0 ? plan.a : plan.b;
}

// Where it lies: for warpgroups in panels, else in rows. Of a product that is software-pipelined there are
// three, since some warps make the one of their iteration while others have not waited for the one two
// iterations before.
BlockEmitter::CooperativeTile& BlockEmitter::cooperative_tile(BlockValue product, int side) {
  const BlockValue value = program_.op(product).operands[static_cast<size_t>(side)];
  const MatmulPlan& plan = plans_.at(product);
  const auto [at, fresh_one] = cooperative_tiles_.try_emplace(
      {value, plan.dtype, plan.wgmma, summed_dim(side, program_.op(value).type.rank())});
  CooperativeTile& made = at->second;
  if (!fresh_one) return made;
  const Spread spread = cooperative_spread(value, plan.dtype);
  StagedTile& tile = made.tile;
  tile.value = root_load(value);
  tile.inner = spread.registers[0].dim;
  for (int d = 0; d < program_.op(value).type.rank(); ++d)
    tile.padded.push_back(int64_t{1} << spread.bits(d));
  const Scalar type = ir::scalar_of(plan.dtype);
  if (plan.wgmma) {
    put_in_panels(tile, bits_of(tile, dims_by_stride(tile)));
    const bool pipelined = pipelined_.value >= 0 && pipelined_n_operand() == value;
    made.copies = pipelined ? 3 : 1;
    made.buffer = shared_buffer(type, tile.bytes * made.copies,
                                pipelined ? SharedBuffer::Use::loop_carried : SharedBuffer::Use::exchange,
                                stage_alignment());
  } else {
    tile.pitch.assign(tile.padded.size(), 1);
    const int64_t element = static_cast<int64_t>(dtype_size(plan.dtype));
    // Eight rows lie in different banks.
    int64_t size = tile.padded[static_cast<size_t>(tile.inner)] + 16 / element;
    for (int d = static_cast<int>(tile.pitch.size()) - 1; d >= 0; --d) {
      if (d == tile.inner) continue;
      tile.pitch[static_cast<size_t>(d)] = size;
      size *= tile.padded[static_cast<size_t>(d)];
    }
    made.buffer = shared_buffer(type, size * element);
  }
  tile.memory = made.buffer;
  if (made.copies > 1) {
    const std::string name = fresh("made_" + base_name(value));
    tile.memory = ir::make_pointer(name, made.buffer, type);
    made.previous_memory = ir::make_pointer("previous_" + name, made.buffer, type);
  }
  return made;
}

const BlockEmitter::CooperativeTile& BlockEmitter::make_cooperatively(BlockValue product, int side) {
  CooperativeTile& made = cooperative_tile(product, side);
  if (made.is_made) return made;
  made.is_made = true;
  const BlockValue value = program_.op(product).operands[static_cast<size_t>(side)];
  const MatmulPlan& plan = plans_.at(product);
  const int summed = summed_dim(side, program_.op(value).type.rank());
  const StagedTile& tile = made.tile;
  const Spread spread = cooperative_spread(value, plan.dtype);
  int vector = 0;
  while (static_cast<size_t>(vector) < spread.registers.size() && vector < 3 &&
         spread.registers[static_cast<size_t>(vector)] == CoordBit{tile.inner, vector})
    ++vector;
  Spread chunks = spread;
  chunks.registers.erase(chunks.registers.begin(), chunks.registers.begin() + vector);
  const int per_word = static_cast<int>(4 / dtype_size(plan.dtype)),
            words = static_cast<int>((dtype_size(plan.dtype) << vector) / 4);
  Body body;
  Builder to(body);
  to.when(leaders(spread), [&](Builder& some) {
    some.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
      each.store(Instr::store_shared, ir::address(tile.memory, place_in(tile, chunks, c)), Scalar::u32, words,
                 [&](Builder&, const Expr& j) {
                   return word_of(value, spread, plan.dtype, summed, c * (1 << vector) + j * per_word);
                 });
    });
  });
  if (plan.wgmma) to.emit(Instr::fence_async);
  text(now_) += std::move(body);
  return made;
}

// What tensor cores take in a word: elements `index` and `index` + 1 of a value in 16 bits, or one in tf32;
// zeros behind the edges of a dimension that a product sums over.
Expr BlockEmitter::word_of(BlockValue value, const Spread& spread, DType dtype, int summed_dim,
                           const Expr& index) {
  auto one = [&](const Expr& at) {
    const Expr number = ir::converted(element(value, spread, at), DType::f32);
    const bool is_load = program_.op(value).kind == BlockOp::Kind::load;
    return is_load ? number
                   : ir::select(inside(value, spread, at, true, {summed_dim}), number, ir::zero(Scalar::f32));
  };
  if (!is_packed_in_pairs(dtype)) return ir::call(ir::Function::to_tf32, Scalar::u32, {one(index)});
  const Expr first = one(index), second = one(index + 1);
  return ir::call(ir::Function::pack, Scalar::u32, {first, second}, {ir::scalar_of(dtype)});
}

// The value in words for tensor cores, in exactly this order of registers.
Symbol BlockEmitter::packed(BlockValue value, const Spread& spread, DType dtype, int summed_dim) {
  const Stage place = place_of(value);
  const std::string key = std::to_string(value) + " " + dtype_name(dtype) + " " +
                          std::to_string(static_cast<int>(place)) + " " + std::to_string(summed_dim) + " " +
                          text_of(spread);
  if (const auto at = packed_.find(key); at != packed_.end()) return at->second;
  const bool pairs = is_packed_in_pairs(dtype);
  const int words = spread.count() / (pairs ? 2 : 1);
  const Symbol registers =
      fresh_registers(base_name(value) + (pairs ? "_pairs" : "_tf32"), Scalar::u32, words);
  const bool loads_it = program_.op(value).kind == BlockOp::Kind::load &&
                        places_[static_cast<size_t>(program_.op(value).tensor)].dtype == dtype;
  Body body;
  Builder to(body);
  to.declare(registers);
  bool done = false;
  if (loads_it && is_staged(value) && !find(value, spread)) {
    done = read_matrices(to, stage_tile(value), dtype, spread, registers, words, 0);
    if (done && !pairs) to.emit(Instr::round_to_tf32, {registers});
  }
  if (!done) {
    if (loads_it && !find(value, spread)) materialize(value, spread);
    const Array* array = loads_it ? find(value, spread) : nullptr;
    to.unrolled("w", words, [&](Builder& each, const Expr& w) {
      each.assign(ir::element(registers, w),
                  array && array->words ? rearranged_word(*array, spread, w)
                                        : word_of(value, spread, dtype, summed_dim, w * (pairs ? 2 : 1)));
    });
  }
  text(place) += std::move(body);
  packed_[key] = registers;
  return registers;
}

// Word `w` of a spread, out of an array of words in another order.
Expr BlockEmitter::rearranged_word(const Array& array, const Spread& spread, const Expr& w) const {
  if (array.spread.registers[0] == spread.registers[0]) {
    Spread from = array.spread, half = spread;  // without the bit within a word
    from.registers.erase(from.registers.begin());
    half.registers.erase(half.registers.begin());
    return ir::element(array.registers, register_index(w, from, half));
  }
  return ir::call(ir::Function::join_halves, Scalar::u32,
                  {array.registers, register_index(w * 2, array.spread, spread),
                   register_index(w * 2 + 1, array.spread, spread)});
}

// The staged tile that is an operand of one product as it lies; null if the operand is none.
const BlockEmitter::StagedTile* BlockEmitter::matrices_of(BlockValue value, DType dtype) {
  const BlockOp& op = program_.op(value);
  if (op.kind != BlockOp::Kind::load || !is_staged(value) ||
      places_[static_cast<size_t>(op.tensor)].dtype != dtype ||
      program_.users[static_cast<size_t>(value)].size() != 1)
    return nullptr;
  return &stage_tile(value);
}

// An operand of a product. What lies in shared memory as matrices comes step by step, unless other products
// want the same.
BlockEmitter::Fragments BlockEmitter::fragments(BlockValue value, int side) {
  const BlockOp& op = program_.op(value);
  const MatmulPlan& plan = plans_.at(value);
  const BlockValue operand = op.operands[static_cast<size_t>(side)];
  const Spread& spread = side == 0 ? plan.a : plan.b;
  const bool by_all = plan.cooperative[static_cast<size_t>(side)];
  const StagedTile* tile = nullptr;
  Fragments out;
  if (by_all) {
    tile = &make_cooperatively(value, side).tile;
  } else {
    tile = matrices_of(operand, plan.dtype);
  }
  const int batch = side == 0 ? plan.batch_a : plan.batch_b;
  if (tile && (batch == plan.batch || by_all)) {
    // Registers of one step first, then those that tell steps and matrices of a batch apart.
    Spread by_step = spread;
    auto& registers = by_step.registers;
    const auto steps_at = registers.begin() + plan.pair_bits() + (side == 0 && !plan.low_rows ? 2 : 1);
    const auto batch_at = registers.end() - bits_for(batch);
    std::rotate(steps_at, steps_at + bits_for(plan.steps), batch_at);
    const int words = (spread.count() >> plan.pair_bits()) / plan.steps / batch;
    const Symbol step = fresh_registers(base_name(operand) + "_step", Scalar::u32, words);
    auto load = [=, this, dtype = plan.dtype, steps = plan.steps, rounds = plan.pair_bits() == 0 && !by_all](
                    Builder& to, const Expr& z, const Expr& k) {
      to.declare(step);
      const bool read = read_matrices(to, *tile, dtype, by_step, step, words, batch == 1 ? k : z * steps + k);
      if (read && rounds) to.emit(Instr::round_to_tf32, {step});
      return read;
    };
    Body attempt;
    Builder tried(attempt);
    if ((words >= 4 || by_all) && load(tried, 0, 0)) {
      out.registers = step;
      out.load = load;
      return out;
    }
  }
  if (by_all) fail(operand, "does not lie in shared memory as tensor cores take it");
  out.registers = packed(operand, spread, plan.dtype, summed_dim(side, program_.op(operand).type.rank()));
  return out;
}

}  // namespace quern
