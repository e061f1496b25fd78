#include "core/codegen/block/operands.h"

#include <algorithm>

#include "core/base/dtype_info.h"

namespace quern {

namespace {

constexpr int kRowGroupBits = 3;  // of wgmma: 8 rows

std::string text_of(const RegisterLayout& layout) {
  std::string out;
  auto put = [&](const CoordBit& bit) {
    out += std::to_string(bit.dim) + "." + std::to_string(bit.bit) + " ";
  };
  for (const CoordBit& bit : layout.registers) put(bit);
  out += "/ ";
  for (const CoordBit& bit : layout.lanes) put(bit);
  out += "/ ";
  for (const CoordBit& bit : layout.warps) put(bit);
  return out;
}

}  // namespace

CooperativeTile& Operands::cooperative_tile(BlockValue product, int side) {
  const BlockValue value = program_.op(product).operands[static_cast<size_t>(side)];
  const MatmulPlan& plan = plans_.of(product);
  const auto [at, fresh_one] = cooperative_tiles_.try_emplace(
      {value, plan.dtype, plan.wgmma, plan.tf32x3, summed_dim(side, program_.op(value).type.rank())});
  if (fresh_one) place_cooperative_tile(at->second, value, plan, plan.is_in_stage(side));
  return at->second;
}

// For warpgroups in panels, else in rows. Of a product that is software-pipelined there are three, since some
// warps make the one of their iteration while others have not waited for the one two iterations before.
void Operands::place_cooperative_tile(CooperativeTile& made, BlockValue value, const MatmulPlan& plan,
                                      bool in_stage) {
  const RegisterLayout layout = plans_.cooperative_layout(value, plan.dtype);
  SharedTile& tile = made.tile;
  tile.value = facts_.root_load(value);
  tile.inner = layout.registers[0].dim;
  for (int d = 0; d < program_.op(value).type.rank(); ++d)
    tile.padded.push_back(int64_t{1} << layout.bits(d));
  const Scalar type = ir::scalar_of(plan.dtype);
  if (plan.wgmma) {
    shared_.put_in_panels(tile, SharedTiles::bits_of(tile, shared_.dims_by_stride(tile)));
    if (in_stage) return staged_.place_transformed(tile, value, type);
    const bool pipelined = plans_.pipelined().value >= 0 && plans_.pipelined_n_operand() == value;
    made.copies = pipelined ? 3 : 1;
    const auto use = pipelined                ? SharedBuffer::Use::loop_carried
                     : place_of(value) != now() ? SharedBuffer::Use::kept
                                                : SharedBuffer::Use::exchange;
    made.buffer = shared_buffer(type, tile.bytes * made.copies, use, shared_.alignment());
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
  if (made.copies == 1) return;
  const std::string name = fresh("made_" + base_name(value));
  tile.memory = ir::make_pointer(name, made.buffer, type);
  made.previous_memory = ir::make_pointer("previous_" + name, made.buffer, type);
}

const CooperativeTile& Operands::make_cooperatively(BlockValue product, int side) {
  CooperativeTile& made = cooperative_tile(product, side);
  if (made.is_made) return made;
  made.is_made = true;
  const BlockValue value = program_.op(product).operands[static_cast<size_t>(side)];
  const MatmulPlan& plan = plans_.of(product);
  const int summed = summed_dim(side, program_.op(value).type.rank());
  const SharedTile& tile = made.tile;
  const RegisterLayout layout = plans_.cooperative_layout(value, plan.dtype);
  const int vector = leading_bits(layout, tile.inner, 3);
  const RegisterLayout chunks = chunks_of(layout, vector);
  const int per_word = static_cast<int>(4 / dtype_size(plan.dtype)),
            words = static_cast<int>((dtype_size(plan.dtype) << vector) / 4);
  const Stage place = place_of(value);
  const bool kept = place != now();
  Body body;
  Builder to(body);
  if (kept && is_load_of(value, plan.dtype) && staged_.bring_once(tile)) {
    to.emit(Instr::mbarrier_wait,
            {staged_.arrived_once(), schedule_.persistent > 0 ? Expr(body_.turn) & 1 : Expr(0)});
    text(place) += std::move(body);
    return made;
  }
  const BlockValue transform = plans_.transforms(value);
  for_transform(transform, [&] {
    // By ldmatrix lanes read what others of the warp write, as the operand takes the place of what it is made of.
    if (transform >= 0) to.emit(Instr::warp_barrier);
    to.when(leaders(layout), [&](Builder& some) {
      some.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
        each.store(Instr::store_shared, ir::address(tile.memory, shared_.place_in(tile, chunks, c)),
                   Scalar::u32, words, [&](Builder&, const Expr& j) {
                     return word_of(value, layout, plan, summed, c * (1 << vector) + j * per_word);
                   });
      });
    });
    if (plan.wgmma) to.emit(Instr::fence_async);
    if (kept && schedule_.producer) to.emit(Instr::named_barrier, {}, {schedule_.workers()});
    text(place) += std::move(body);
  });
  return made;
}

Expr Operands::word_of(BlockValue value, const RegisterLayout& layout, const MatmulPlan& plan, int summed_dim,
                       const Expr& index) {
  auto one = [&](const Expr& at) {
    const Expr number = ir::converted(values_.element(value, layout, at), DType::f32);
    const bool is_load = program_.op(value).is_load();
    return is_load ? number
                   : ir::select(bounds_.inside(value, layout, at, true, {summed_dim}), number,
                                ir::zero(Scalar::f32));
  };
  if (!is_packed_in_pairs(plan.dtype))
    return ir::call(plan.tf32x3 ? ir::Function::float_bits : ir::Function::to_tf32, Scalar::u32,
                    {one(index)});
  const Expr first = one(index), second = one(index + 1);
  return ir::call(ir::Function::pack, Scalar::u32, {first, second}, {ir::scalar_of(plan.dtype)});
}

Symbol Operands::packed(BlockValue value, const RegisterLayout& layout, const MatmulPlan& plan,
                        int summed_dim) {
  const Stage place = place_of(value);
  const std::string key = std::to_string(value) + " " + dtype_name(plan.dtype) + (plan.tf32x3 ? "x3 " : " ") +
                          std::to_string(static_cast<int>(place)) + " " + std::to_string(summed_dim) + " " +
                          text_of(layout);
  if (const auto at = packed_.find(key); at != packed_.end()) return at->second;
  const bool pairs = is_packed_in_pairs(plan.dtype);
  const int words = layout.count() / (pairs ? 2 : 1);
  const Symbol registers = fresh_registers(base_name(value) + (pairs         ? "_pairs"
                                                               : plan.tf32x3 ? "_words"
                                                                             : "_tf32"),
                                           Scalar::u32, words);
  Body body;
  Builder to(body);
  to.declare(registers);
  if (!fill_by_matrices(to, value, layout, plan, registers)) {
    const bool loads_it = is_load_of(value, plan.dtype);
    if (loads_it && !values_.find(value, layout)) values_.materialize(value, layout);
    const RegisterTile* const tile = loads_it ? values_.find(value, layout) : nullptr;
    to.unrolled("w", words, [&](Builder& each, const Expr& w) {
      each.assign(ir::element(registers, w),
                  tile && tile->words ? rearranged_word(*tile, layout, w)
                                      : word_of(value, layout, plan, summed_dim, w * (pairs ? 2 : 1)));
    });
  }
  text(place) += std::move(body);
  packed_[key] = registers;
  return registers;
}

bool Operands::is_load_of(BlockValue value, DType dtype) const {
  return program_.op(value).is_load() && facts_.place(value).dtype == dtype;
}

// Straight from the stage, if it lies there as tensor cores take it and is not in registers already.
bool Operands::fill_by_matrices(Builder& to, BlockValue value, const RegisterLayout& layout,
                                const MatmulPlan& plan, const Symbol& registers) {
  if (!is_load_of(value, plan.dtype) || !facts_.is_staged(value) || values_.find(value, layout)) return false;
  const int words = static_cast<int>(registers->count);
  if (!shared_.read_matrices(to, staged_.tile(value), plan.dtype, layout, registers, words, 0)) return false;
  if (plan.rounds_to_tf32()) to.emit(Instr::round_to_tf32, {registers});
  return true;
}

Expr Operands::rearranged_word(const RegisterTile& tile, const RegisterLayout& layout, const Expr& w) {
  if (tile.layout.registers[0] == layout.registers[0]) {
    RegisterLayout from = tile.layout, half = layout;  // without the bit within a word
    from.registers.erase(from.registers.begin());
    half.registers.erase(half.registers.begin());
    return ir::element(tile.registers, register_index(w, from, half));
  }
  return ir::call(ir::Function::join_halves, Scalar::u32,
                  {tile.registers, register_index(w * 2, tile.layout, layout),
                   register_index(w * 2 + 1, tile.layout, layout)});
}

const SharedTile* Operands::matrices_of(BlockValue value, DType dtype) {
  if (!is_load_of(value, dtype) || !facts_.is_staged(value) ||
      program_.users[static_cast<size_t>(value)].size() != 1)
    return nullptr;
  return &staged_.tile(value);
}

Fragments Operands::fragments(BlockValue product, int side) {
  const MatmulPlan& plan = plans_.of(product);
  const BlockValue operand = program_.op(product).operands[static_cast<size_t>(side)];
  const bool by_all = plan.cooperative[static_cast<size_t>(side)];
  const SharedTile* const tile =
      by_all ? &make_cooperatively(product, side).tile : matrices_of(operand, plan.dtype);
  const int batch = side == 0 ? plan.batch_a : plan.batch_b;
  if (tile && (batch == plan.batch || by_all))
    if (auto out = by_steps(product, side, *tile)) return *out;
  if (by_all) fail(operand, "does not lie in shared memory as tensor cores take it");
  const int summed = summed_dim(side, program_.op(operand).type.rank());
  return {packed(operand, plan.operand(side), plan, summed), {}};
}

// Nothing if it does not lie there as matrices, or if a step has too few.
std::optional<Fragments> Operands::by_steps(BlockValue product, int side, const SharedTile& tile) {
  const MatmulPlan& plan = plans_.of(product);
  const BlockValue operand = program_.op(product).operands[static_cast<size_t>(side)];
  const bool by_all = plan.cooperative[static_cast<size_t>(side)];
  const int batch = side == 0 ? plan.batch_a : plan.batch_b;
  // Registers of one step first, then those that tell steps and matrices of a batch apart.
  RegisterLayout by_step = plan.operand(side);
  const int words = (by_step.count() >> plan.pair_bits()) / plan.steps / batch;
  auto& registers = by_step.registers;
  const auto steps_at = registers.begin() + plan.pair_bits() + (side == 0 && !plan.low_rows ? 2 : 1);
  const auto batch_at = registers.end() - bits_for(batch);
  std::rotate(steps_at, steps_at + bits_for(plan.steps), batch_at);
  const Symbol step = fresh_registers(base_name(operand) + "_step", Scalar::u32, words);
  auto load = [=, this, &tile, dtype = plan.dtype, steps = plan.steps,
               rounds = plan.rounds_to_tf32() && !by_all](Builder& to, const Expr& z, const Expr& k) {
    to.declare(step);
    const bool read =
        shared_.read_matrices(to, tile, dtype, by_step, step, words, batch == 1 ? k : z * steps + k);
    if (read && rounds) to.emit(Instr::round_to_tf32, {step});
    return read;
  };
  Body attempt;
  Builder tried(attempt);
  if ((words >= 4 || by_all) && load(tried, 0, 0)) return Fragments{step, load};
  return std::nullopt;
}

Expr Operands::panel_operand(BlockValue value, int side, const Expr& index, bool previous) {
  const MatmulPlan& plan = plans_.of(value);
  const BlockValue operand = program_.op(value).operands[static_cast<size_t>(side)];
  const bool made = plan.cooperative[static_cast<size_t>(side)];
  const SharedTile& tile = made ? cooperative_tile(value, side).tile : staged_.panel(operand);
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
                  {ir::address(memory, shared_.place_in(tile, plan.operand(side), index, false))},
                  {bytes(tile.row_bits), turned, panel, step});
}

}  // namespace quern
