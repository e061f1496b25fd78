// Operands of tensor cores: from shared memory into the registers in which mma takes them, and tiles that
// all warps of a block make together because several of them need the same.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

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

std::string unrolled(const std::string& variable, int count, const std::string& body) {
  return "#pragma unroll\nfor (int " + variable + " = 0; " + variable + " < " + std::to_string(count) +
         "; ++" + variable + ") " + body;
}

}  // namespace

// Fills `words` words from `to` on by ldmatrix, those behind the first `skipped` times as many of the spread;
// nothing if rows of the tile are not rows of the matrices. A row of a matrix is eight 16-bit elements or
// four f32; of these only the first kind can be turned, others are read one by one.
std::string BlockEmitter::read_matrices(const StagedTile& tile, DType dtype, const Spread& spread,
                                        const std::string& to, int words, const std::string& skipped) {
  if (spread.registers.empty() || !beyond_tile(tile, spread).empty()) return "";
  const bool pairs = dtype_size(dtype) == 2;
  const CoordBit pair = spread.registers[0];
  auto is = [&](const CoordBit& bit, int number) { return bit == CoordBit{tile.inner, number}; };
  const bool plain = pairs ? is(pair, 0) && is(spread.lanes[0], 1) && is(spread.lanes[1], 2)
                           : is(spread.lanes[0], 0) && is(spread.lanes[1], 1);
  const bool turned = is(spread.lanes[2], 0) && is(spread.lanes[3], 1) && is(spread.lanes[4], 2) &&
                      pair.dim != tile.inner && spread.lanes[0].dim != tile.inner &&
                      spread.lanes[1].dim != tile.inner;
  auto behind = [&](int each) {
    return skipped.empty() ? "r" : "(" + skipped + " * " + std::to_string(each) + " + r)";
  };
  if (!plain && !pairs)
    return unrolled(
        "r", words,
        to + "[r] = __float_as_uint(" + tile.name + "[" + place_in(tile, spread, behind(words)) + "]);\n");
  if (!plain && !turned) return "";
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
  const std::string count = std::to_string(1 << matrices);
  const int reads = words >> matrices;
  return unrolled("r", reads,
                  (plain ? "ldmatrix_at<" : "ldmatrix_trans_at<") + count + ">(&" + to + "[r * " + count +
                      "], " + tile.name + " + " + place_in(tile, rows, behind(reads)) + ");\n");
}

// Whether warps need the same tile of what is computed, element by element, from a staged one: then it is
// made once, by all, and left in shared memory in words. `bits` are those of its coordinates in `fragments`,
// which a warp would make for itself.
bool BlockEmitter::is_made_by_all(BlockValue value, DType dtype, const Spread& fragments) const {
  const BlockValue load = root_load(value);
  if (load < 0 || load == value || !is_staged(load)) return false;
  const Ints& shape = program_.shape(value);
  const int rank = static_cast<int>(shape.size()), inner = inner_dim(program_.op(load).tensor, shape);
  if (inner < rank - 2 || shape[static_cast<size_t>(inner)] % 8 != 0) return false;
  int bits = -kLaneBits - (dtype_size(dtype) == 2 ? 1 : 0);
  for (int64_t extent : shape) bits += bits_for(extent);
  for (const CoordBit& bit : fragments.warps) bits -= bit.dim >= 0;
  return bits >= bits_for(kLeastSharedWords) && std::any_of(fragments.warps.begin(), fragments.warps.end(),
                                                            [](const CoordBit& bit) { return bit.dim < 0; });
}

// The spread in which all warps make it.
Spread BlockEmitter::shared_making(BlockValue value, DType dtype) const {
  return blocked(value, dtype, inner_dim(program_.op(root_load(value)).tensor, program_.shape(value)));
}

// In which spread an operand of a product is computed.
Spread BlockEmitter::operand_spread(BlockValue product, size_t side) const {
  const MatmulPlan& plan = plans_.at(product);
  if (plan.made_by_all[side]) return shared_making(program_.op(product).operands[side], plan.dtype);
  return side == 0 ? plan.a : plan.b;
}

// Where it lies: for warpgroups in panels, else in rows. Of a product that is made a turn late there are
// three, since some warps make the one of their turn while others have not waited for the one two turns
// before.
BlockEmitter::MadeTile& BlockEmitter::made_tile(BlockValue value, const MatmulPlan& plan) {
  const auto [at, fresh_one] = made_.try_emplace(value);
  MadeTile& made = at->second;
  if (!fresh_one) return made;
  const Spread spread = shared_making(value, plan.dtype);
  StagedTile& tile = made.tile;
  tile.value = root_load(value);
  tile.inner = spread.registers[0].dim;
  for (int d = 0; d < program_.op(value).type.rank(); ++d)
    tile.padded.push_back(int64_t{1} << spread.bits(d));
  const std::string type = cuda_type(plan.dtype);
  if (plan.wgmma) {
    put_in_panels(tile, bits_of(tile, dims_by_stride(tile)));
    made.copies = late_.value >= 0 && late_flat() == value ? 3 : 1;
    made.buffer = shared_buffer(type, tile.bytes * made.copies, stage_alignment());
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
  tile.name = made.copies > 1 ? fresh_constant("made_" + base_name(value))
                              : shared_[static_cast<size_t>(made.buffer)].name;
  return made;
}

const BlockEmitter::MadeTile& BlockEmitter::make_by_all(BlockValue value, const MatmulPlan& plan,
                                                        int summed_dim) {
  MadeTile& made = made_tile(value, plan);
  if (made.is_made) return made;
  made.is_made = true;
  const StagedTile& tile = made.tile;
  const Spread spread = shared_making(value, plan.dtype);
  int vector = 0;
  while (static_cast<size_t>(vector) < spread.registers.size() && vector < 3 &&
         spread.registers[static_cast<size_t>(vector)] == CoordBit{tile.inner, vector})
    ++vector;
  Spread chunks = spread;
  chunks.registers.erase(chunks.registers.begin(), chunks.registers.begin() + vector);
  const std::string per_word = std::to_string(4 / dtype_size(plan.dtype)),
                    words = std::to_string((dtype_size(plan.dtype) << vector) / 4);
  const std::string word = word_of(value, spread, plan.dtype, summed_dim,
                                   "(c * " + std::to_string(1 << vector) + " + j * " + per_word + ")");
  std::string put =
      unrolled("c", chunks.count(),
               "{\n  Vector<unsigned, " + words + "> v;\n#pragma unroll\n  for (int j = 0; j < " + words +
                   "; ++j) v[j] = " + word + ";\n  store_vector<unsigned, " + words + ">(" + tile.name +
                   " + " + place_in(tile, chunks, "c") + ", v);\n}\n");
  if (const std::string condition = leaders(spread); !condition.empty())
    put = "if (" + condition + ") {\n" + indent(put, 2) + "}\n";
  if (plan.wgmma) put += "fence_proxy_async();\n";
  text(now_).add({put, {made.buffer}, {}});
  if (made.copies > 1) joined_.insert(made.buffer);
  return made;
}

// What tensor cores take in a word: elements `index` and `index` + 1 of a value in 16 bits, or one in tf32;
// zeros behind the edges of a dimension that a product sums over.
std::string BlockEmitter::word_of(BlockValue value, const Spread& spread, DType dtype, int summed_dim,
                                  const std::string& index) {
  auto one = [&](const std::string& at) {
    const CudaText text = element(value, spread, at);
    std::string number =
        text.is_number() ? text.as(DType::f32) : convert_text(text.as(text.type()), text.type(), DType::f32);
    const bool is_load = program_.op(value).kind == BlockOp::Kind::load;
    const std::string within = is_load ? "" : inside(value, spread, at, true, {summed_dim});
    return within.empty() ? number : "(" + within + " ? " + number + " : 0.0f)";
  };
  const std::string first = one(index);
  if (dtype_size(dtype) != 2) return "to_tf32(" + first + ")";
  const std::string second = one(index + " + 1");
  return "pack<" + cuda_type(dtype) + ">(" + first + ", " + second + ")";
}

// The value in words for tensor cores, in exactly this order of registers.
std::string BlockEmitter::packed(BlockValue value, const Spread& spread, DType dtype, int summed_dim) {
  const Stage place = place_of(value);
  const std::string key = std::to_string(value) + " " + std::to_string(static_cast<int>(place)) + " " +
                          std::to_string(summed_dim) + " " + text_of(spread);
  if (const auto at = packed_.find(key); at != packed_.end()) return at->second;
  const bool pairs = dtype_size(dtype) == 2;
  const std::string name = fresh(base_name(value) + (pairs ? "_pairs" : "_tf32"));
  const int words = spread.count() / (pairs ? 2 : 1);
  const bool loads_it = program_.op(value).kind == BlockOp::Kind::load &&
                        places_[static_cast<size_t>(program_.op(value).tensor)].dtype == dtype;
  std::string lines;
  if (loads_it && is_staged(value) && !find(value, spread)) {
    lines = read_matrices(stage_tile(value), dtype, spread, name, words, "");
    if (!lines.empty() && !pairs) lines += "round_to_tf32(" + name + ");\n";
  }
  if (lines.empty()) {
    if (loads_it && !find(value, spread)) materialize(value, spread);
    const Array* array = loads_it ? find(value, spread) : nullptr;
    std::string body;
    if (array && array->words && array->spread.registers[0] == spread.registers[0]) {
      Spread from = array->spread, half = spread;  // without the bit within a word
      from.registers.erase(from.registers.begin());
      half.registers.erase(half.registers.begin());
      body = array->name + "[" + register_index("w", from, half) + "]";
    } else if (array && array->words) {
      body = "join_halves(" + array->name + ", " + register_index("(w * 2)", array->spread, spread) + ", " +
             register_index("(w * 2 + 1)", array->spread, spread) + ")";
    } else {
      body = word_of(value, spread, dtype, summed_dim, pairs ? "(w * 2)" : "w");
    }
    lines = unrolled("w", words, name + "[w] = " + body + ";\n");
  }
  text(place) += "unsigned " + name + "[" + std::to_string(words) + "];\n" + lines;
  packed_[key] = name;
  return name;
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
  const int summed_dim = program_.op(operand).type.rank() - (side == 0 ? 1 : 2);
  const bool by_all = plan.made_by_all[static_cast<size_t>(side)];
  const StagedTile* tile = nullptr;
  Fragments out;
  if (by_all) {
    const MadeTile& made = make_by_all(operand, plan, summed_dim);
    tile = &made.tile;
    out.reads = {made.buffer};
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
    const std::string step = batch == 1 ? "k" : "(z * " + std::to_string(plan.steps) + " + k)";
    const std::string name = fresh(base_name(operand) + "_step");
    if (words >= 4 || by_all) out.load = read_matrices(*tile, plan.dtype, by_step, name, words, step);
    if (!out.load.empty()) {
      out.name = name;
      out.load = "unsigned " + name + "[" + std::to_string(words) + "];\n" + out.load;
      if (plan.pair_bits() == 0 && !by_all) out.load += "round_to_tf32(" + name + ");\n";
      return out;
    }
  }
  if (by_all) fail(operand, "does not lie in shared memory as tensor cores take it");
  out.name = packed(operand, spread, plan.dtype, summed_dim);
  return out;
}

}  // namespace quern
