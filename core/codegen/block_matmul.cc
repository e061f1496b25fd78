// Matrix products within a block: on tensor cores as fragments in registers, or element by element out of
// shared memory.
#include <algorithm>

#include "core/codegen/block_emitter.h"
#include "core/codegen/kernel_writer.h"

namespace quern {

namespace {

int log2_of(int power) { return bits_for(power); }

std::string times(const std::string& a, int factor) {
  return factor == 1 ? a : a + " * " + std::to_string(factor);
}

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
    const MatmulPlan plan = plan_matmul(value);
    plans_[value] = plan;
    if (!plan.tensor_cores) continue;
    demands_.emplace(value, plan.d);
    if (plan.wgmma) note_panels(value, plan);
    for (int side = 0; side < 2; ++side) {
      if (plan.shared[side]) continue;
      // Whatever is computed element by element from the same tiles is best done where they are.
      std::vector<BlockValue> open = {program_.op(value).operands[static_cast<size_t>(side)]};
      while (!open.empty()) {
        const BlockValue next = open.back();
        open.pop_back();
        demands_.emplace(next, side == 0 ? plan.a : plan.b);
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
  const std::optional<DType> dtype = narrow_dtype(program_, left, places_);
  if (!dtype || dtype != narrow_dtype(program_, right, places_)) return plan;
  plan.dtype = *dtype;
  plan.tensor_cores = true;
  if (MatmulPlan by_groups = plan; plan_wgmma(value, by_groups)) return by_groups;
  const int ra = static_cast<int>(a.size()), rb = static_cast<int>(b.size()), rd = static_cast<int>(d.size());
  const int64_t rows = a[a.size() - 2], inner = a.back(), columns = b.back();
  const int m_bits = std::max(4, bits_for(rows)), n_bits = std::max(3, bits_for(columns)),
            k_bits = std::max(4, bits_for(inner));
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
    } else if (by_k && k_left > 4) {
      plan.a.warps[p] = {ra - 1, --k_left};
      plan.b.warps[p] = {rb - 2, k_left};
      plan.partial_warps |= 1u << position;
    } else if (n_left > 3) {
      plan.b.warps[p] = {rb - 1, --n_left};
      plan.d.warps[p] = {rd - 1, n_left};
    }
  }

  const BlockValue load_a = root_load(left), load_b = root_load(right);
  auto straight = [&](BlockValue load, int dim) {
    return load >= 0 && !is_staged(load) && inner_dim(program_.op(load).tensor, program_.shape(load)) == dim;
  };
  // The inner dimension. Rows of a staged tile are read in their own order, which keeps them in different
  // banks.
  const bool staged = (load_a >= 0 && is_staged(load_a)) || (load_b >= 0 && is_staged(load_b));
  std::vector<int> k_lanes = {1, 2}, k_registers;
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
      k_lanes = {1, 2};
      k_registers.clear();
    }
  } else if (!staged && (straight(load_a, ra - 1) || straight(load_b, rb - 2))) {
    const int vector = std::min(3, k_left - 2);
    k_lanes = {vector, vector + 1};
  }
  std::vector<int> taken = k_lanes;
  taken.insert(taken.end(), k_registers.begin(), k_registers.end());
  for (int bit : others(k_left, taken)) k_registers.push_back(bit);
  // Columns.
  const int vector = straight(load_b, rb - 1) ? std::min(3, n_left - 3) : 0;
  const std::vector<int> n_low = {vector, vector + 1, vector + 2}, n_tiles = others(n_left, n_low);

  Spread &fa = plan.a, &fb = plan.b, &fd = plan.d;
  fa.lanes = {CoordBit{ra - 1, k_lanes[0]}, {ra - 1, k_lanes[1]}, {ra - 2, 0}, {ra - 2, 1}, {ra - 2, 2}};
  fb.lanes = {CoordBit{rb - 2, k_lanes[0]},
              {rb - 2, k_lanes[1]},
              {rb - 1, n_low[0]},
              {rb - 1, n_low[1]},
              {rb - 1, n_low[2]}};
  fd.lanes = {CoordBit{rd - 1, n_low[1]}, {rd - 1, n_low[2]}, {rd - 2, 0}, {rd - 2, 1}, {rd - 2, 2}};
  fa.registers = {{ra - 1, k_registers[0]}};
  if (!plan.low_rows) fa.registers.push_back({ra - 2, 3});
  fb.registers = {{rb - 2, k_registers[0]}};
  fd.registers = {{rd - 1, n_low[0]}, {rd - 2, 3}};
  for (size_t i = 1; i < k_registers.size(); ++i) {
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
  plan.steps = 1 << (k_registers.size() - 2);
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

// The value in words of two 16-bit elements, in exactly this order of registers.
std::string BlockEmitter::packed(BlockValue value, const Spread& spread, DType dtype, int inner_dim) {
  const Stage place = place_of(value);
  const std::string key = std::to_string(value) + " " + std::to_string(static_cast<int>(place)) + " " +
                          std::to_string(inner_dim) + " " + text_of(spread);
  if (const auto at = packed_.find(key); at != packed_.end()) return at->second;
  const std::string name = fresh(base_name(value) + "_pairs"), type = cuda_type(dtype);
  const int words = spread.count() / 2;
  std::string body;
  const bool is_load = program_.op(value).kind == BlockOp::Kind::load;
  const bool loads_it = is_load && places_[static_cast<size_t>(program_.op(value).tensor)].dtype == dtype;
  std::string lines;
  Spread half = spread;  // without the bit within a word
  half.registers.erase(half.registers.begin());
  if (loads_it && is_staged(value)) {
    const StagedTile& tile = stage_tile(value);
    const CoordBit pair = spread.registers[0];
    auto is = [&](const CoordBit& bit, int number) { return bit == CoordBit{tile.inner, number}; };
    const bool plain = is(pair, 0) && is(spread.lanes[0], 1) && is(spread.lanes[1], 2);
    const bool turned = is(spread.lanes[2], 0) && is(spread.lanes[3], 1) && is(spread.lanes[4], 2) &&
                        pair.dim != tile.inner && spread.lanes[0].dim != tile.inner &&
                        spread.lanes[1].dim != tile.inner;
    if ((plain || turned) && beyond_tile(tile, spread).empty()) {
      // Lanes give the addresses of rows of matrices: their low three bits count rows, the others matrices.
      const int matrices = std::min(2, bits_for(words));
      Spread rows;
      for (int i = 0; i < 3; ++i)
        rows.lanes[static_cast<size_t>(i)] = plain
                                                 ? spread.lanes[static_cast<size_t>(i) + 2]
                                                 : (i == 0 ? pair : spread.lanes[static_cast<size_t>(i) - 1]);
      for (int i = 0; i < matrices; ++i)
        rows.lanes[static_cast<size_t>(i) + 3] = half.registers[static_cast<size_t>(i)];
      rows.warps = spread.warps;
      rows.registers.assign(half.registers.begin() + matrices, half.registers.end());
      const std::string count = std::to_string(1 << matrices);
      lines = "unsigned " + name + "[" + std::to_string(words) + "];\n#pragma unroll\nfor (int r = 0; r < " +
              std::to_string(rows.count()) + "; ++r) " + (plain ? "ldmatrix_at<" : "ldmatrix_trans_at<") +
              count + ">(&" + name + "[r * " + count + "], " + tile.name + " + " + place_in(tile, rows, "r") +
              ");\n";
    }
  }
  if (lines.empty()) {
    if (loads_it && !find(value, spread)) materialize(value, spread);
    const Array* array = loads_it ? find(value, spread) : nullptr;
    if (array && array->words && array->spread.registers[0] == spread.registers[0]) {
      Spread from = array->spread;
      from.registers.erase(from.registers.begin());
      body = array->name + "[" + register_index("w", from, half) + "]";
    } else if (array && array->words) {
      body = "join_halves(" + array->name + ", " + register_index("(w * 2)", array->spread, spread) + ", " +
             register_index("(w * 2 + 1)", array->spread, spread) + ")";
    } else {
      auto one = [&](const std::string& index) {
        const CudaText text = element(value, spread, index);
        std::string number = text.is_number() ? text.as(DType::f32)
                                              : convert_text(text.as(text.type()), text.type(), DType::f32);
        const std::string within = is_load ? "" : inside(value, spread, index, true, {inner_dim});
        return within.empty() ? number : "(" + within + " ? " + number + " : 0.0f)";
      };
      const std::string low = one("(w * 2)"), high = one("(w * 2 + 1)");
      body = "pack<" + type + ">(" + low + ", " + high + ")";
    }
    lines = "unsigned " + name + "[" + std::to_string(words) + "];\n#pragma unroll\nfor (int w = 0; w < " +
            std::to_string(words) + "; ++w) " + name + "[w] = " + body + ";\n";
  }
  text(place) += lines;
  packed_[key] = name;
  return name;
}

std::string BlockEmitter::matmul_loops(const MatmulPlan& plan) {
  struct Level {
    const char* name;
    int count;
  };
  std::string lines;
  for (const Level& level : {Level{"z", plan.batch}, {"k", plan.steps}, {"m", plan.down}, {"n", plan.across}})
    lines += "#pragma unroll\nfor (int " + std::string(level.name) + " = 0; " + level.name + " < " +
             std::to_string(level.count) + "; ++" + level.name + ")\n";
  return lines;
}

void BlockEmitter::matmul(BlockValue value, const std::string& sums, Stage stage) {
  const BlockOp& op = program_.op(value);
  const MatmulPlan& plan = plans_.at(value);
  if (plan.wgmma) return wgmma(value, sums, stage);
  const int ra = program_.op(op.operands[0]).type.rank(), rb = program_.op(op.operands[1]).type.rank();
  const std::string a = packed(op.operands[0], plan.a, plan.dtype, ra - 1),
                    b = packed(op.operands[1], plan.b, plan.dtype, rb - 2);
  std::string lines = matmul_loops(plan);
  auto index = [](const std::string& outer, int outer_count, const std::string& middle, int count,
                  const std::string& within, int last) {
    const std::string first =
        outer_count == 1 ? middle : "(" + outer + " * " + std::to_string(count) + " + " + middle + ")";
    return last == 1 ? times(first, 1) : "(" + first + " * " + std::to_string(last) + " + " + within + ")";
  };
  const std::string d_at = index(plan.batch == 1 ? "0" : "z", plan.batch, "m", plan.down, "n", plan.across),
                    a_at = index("z", plan.batch_a, "m", plan.down, "k", plan.steps),
                    b_at = index("z", plan.batch_b, "n", plan.across, "k", plan.steps);
  lines += "  mma_fragment<" + cuda_type(plan.dtype) + ", " + (plan.low_rows ? "true" : "false") + ">(&" +
           sums + "[" + d_at + " * 4], &" + a + "[" + a_at + " * " + (plan.low_rows ? "2" : "4") + "], &" +
           b + "[" + b_at + " * 2]);\n";
  text(stage) += lines;
}

void BlockEmitter::matmul_without_tensor_cores(BlockValue value) {
  const BlockOp& op = program_.op(value);
  const BlockValue left = op.operands[0], right = op.operands[1];
  const Ints &a = program_.shape(left), &b = program_.shape(right), &d = op.type.shape;
  const int copy_a = shared_copy(left), copy_b = shared_copy(right);
  const std::string from_a = shared_[static_cast<size_t>(copy_a)].name,
                    from_b = shared_[static_cast<size_t>(copy_b)].name;
  Array array;
  array.name = fresh(base_name(value));
  array.spread = blocked(value, DType::f32, op.type.rank() - 1);
  array.dtype = register_type(op.type.dtype);
  array.scope = now_;
  auto strides = [&](const Ints& own, size_t inner_from_end) {
    Ints all = dense_strides(own), out(d.size(), 0);
    for (size_t i = 0; i < own.size(); ++i)
      if (i + inner_from_end != own.size() && own[i] != 1) out[i + d.size() - own.size()] = all[i];
    return out;
  };
  const std::string at_a = offset(array.spread, strides(a, 1), "r"),
                    at_b = offset(array.spread, strides(b, 2), "r");
  const std::string within = inside(value, array.spread, "r", false), type = cuda_type(array.dtype);
  auto convert = [&](BlockValue from, const std::string& text_of_element) {
    return convert_text(text_of_element, register_type(program_.op(from).type.dtype), array.dtype);
  };
  const std::string count = std::to_string(array.spread.count());
  std::string body = array.name + "[r] = multiply_add(" +
                     convert(left, from_a + "[" + add_text(at_a, "k") + "]") + ", " +
                     convert(right, from_b + "[" + add_text(at_b, "k * " + std::to_string(b.back())) + "]") +
                     ", " + array.name + "[r]);";
  if (!within.empty()) body = "if (" + within + ") " + body;
  const std::string lines = type + " " + array.name + "[" + count +
                            "] = {};\n#pragma unroll 1\nfor (int k = 0; k < " + std::to_string(a.back()) +
                            "; ++k) {\n#pragma unroll\n  for (int r = 0; r < " + count + "; ++r) " + body +
                            "\n}\n";
  text(now_).add({lines, {}, {copy_a, copy_b}});
  arrays_[static_cast<size_t>(value)].push_back(std::move(array));
}

}  // namespace quern
