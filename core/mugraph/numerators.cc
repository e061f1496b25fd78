#include "core/mugraph/numerators.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/dtype_info.h"
#include "core/mugraph/narrow.h"

namespace quern {

namespace {

constexpr double kUnknown = 128, kMost = 127;  // log2 of magnitudes: of any float, and what surely is finite

// Of what a dtype holds.
double largest_of(DType dtype) { return std::ceil(std::log2(dtype_info(dtype).largest)); }

double count_of(const BlockOp& op) {
  return static_cast<double>(std::max<int64_t>(op.type.element_count(), 1));
}

// The largest magnitudes of values, as powers of two; what is finite in the unfused program is bounded by it.
class Magnitudes {
 public:
  explicit Magnitudes(const MuGraph& mugraph)
      : mugraph_(mugraph), tensors_(mugraph.tensors.size(), kUnknown) {
    for (size_t t = 0; t < tensors_.size(); ++t) tensors_[t] = largest_of(mugraph.tensors[t].type.dtype);
    for (const MuKernel& kernel : mugraph.kernels) {
      std::vector<double>& values = values_.emplace_back();
      for (const BlockOp& op : kernel.ops) {
        values.push_back(op.rounds_to && has_finite_products(*op.rounds_to) ? largest_of(*op.rounds_to)
                                                                            : of(kernel, op, values));
        if (op.is_store())
          tensors_[static_cast<size_t>(op.tensor())] =
              std::min(values[static_cast<size_t>(op.operands[0])],
                       largest_of(mugraph.tensors[static_cast<size_t>(op.tensor())].type.dtype));
      }
    }
  }

  double of(size_t kernel, size_t op) const { return values_[kernel][op]; }

 private:
  double of(const MuKernel& kernel, const BlockOp& op, const std::vector<double>& values) const {
    if (op.is_load()) return tensors_[static_cast<size_t>(op.tensor())];
    auto operand = [&](size_t i) { return values[static_cast<size_t>(op.operands[i])]; };
    double most = 0;
    for (size_t i = 0; i < op.operands.size(); ++i) most = std::max(most, operand(i));
    const double terms =
        op.operands.empty() ? 1 : count_of(kernel.ops[static_cast<size_t>(op.operands[0])]) / count_of(op);
    if (op.has_combine()) {
      const bool sums = op.combine() == Combine::sum || op.combine() == Combine::rescaled_sum;
      const int64_t count = op.is_accumulate() ? kernel.trip_count : kernel.grid[3];
      return operand(0) + (sums ? std::log2(static_cast<double>(count)) : 0);
    }
    if (op.is_store()) return most;
    switch (op.code()) {
      case OpCode::constant:
        if (!op.extents().empty()) return kUnknown;
        return op.number() == 0 ? 0 : std::log2(std::fabs(op.number()));
      case OpCode::exp:
        return is_numerator(kernel.ops, op) ? 0 : kUnknown;
      case OpCode::add:
      case OpCode::sub:
        return most + 1;
      case OpCode::mul:
        return operand(0) + operand(1);
      case OpCode::matmul:
        return operand(0) + operand(1) +
               std::log2(static_cast<double>(
                   std::max<int64_t>(kernel.ops[static_cast<size_t>(op.operands[0])].type.shape.back(), 1)));
      case OpCode::reduce_sum:
        return operand(0) + std::log2(terms);
      case OpCode::neg:
      case OpCode::abs:
      case OpCode::relu:
      case OpCode::max:
      case OpCode::min:
      case OpCode::where:
      case OpCode::cast:
      case OpCode::reduce_max:
      case OpCode::reduce_min:
        return most;
      default:
        return op.is_compute(OpKind::movement) ? most : kUnknown;
    }
  }

  const MuGraph& mugraph_;
  std::vector<double> tensors_;
  std::vector<std::vector<double>> values_;  // by kernel and operator
};

// What becomes of values when the exponentials of one maximum are scaled by a factor: its power in each.
class Powers {
 public:
  // `shift` is what the exponentials of kernel `kernel` subtract.
  Powers(const MuGraph& mugraph, size_t kernel, BlockValue shift)
      : mugraph_(mugraph), kernel_(kernel), shift_(shift), tensors_(mugraph.tensors.size()) {}

  // Whether no output changes, and no value is other than multiplied by the factor.
  bool cancel() {
    for (size_t k = 0; k < mugraph_.kernels.size() && scales_; ++k) {
      const MuKernel& kernel = mugraph_.kernels[k];
      for (int32_t operand : kernel.operands) want(tensors_[static_cast<size_t>(operand)], 0);
      std::vector<int>& values = values_.emplace_back();
      for (size_t i = 0; i < kernel.ops.size(); ++i) values.push_back(of(k, i));
    }
    for (int32_t output : mugraph_.outputs) want(tensors_[static_cast<size_t>(output)], 0);
    return scales_;
  }
  bool is_scaled(size_t kernel, size_t op) const { return values_[kernel][op] != 0; }
  bool is_exponential(size_t kernel, size_t op) const {
    const std::vector<BlockOp>& ops = mugraph_.kernels[kernel].ops;
    return kernel == kernel_ && is_numerator(ops, ops[op]) &&
           ops[static_cast<size_t>(ops[op].operands[0])].operands[1] == shift_;
  }

 private:
  int want(int power, int wanted) {
    scales_ = scales_ && power == wanted;
    return wanted;
  }

  int of(size_t k, size_t i) {
    const std::vector<BlockOp>& ops = mugraph_.kernels[k].ops;
    const BlockOp& op = ops[i];
    std::vector<int> powers;
    for (BlockValue operand : op.operands) powers.push_back(values_[k][static_cast<size_t>(operand)]);
    if (op.is_load()) return tensors_[static_cast<size_t>(op.tensor())];
    if (!op.is_compute()) {
      if (powers.size() > 1) want(powers[1], 0);
      if (op.is_store()) {
        if (mugraph_.tensors[static_cast<size_t>(op.tensor())].type.dtype != DType::f32) want(powers[0], 0);
        tensors_[static_cast<size_t>(op.tensor())] = powers[0];
      }
      return powers[0];
    }
    if (op.code() == OpCode::matmul && powers[0] + powers[1] != 0)
      if (const auto dtype = tensor_core_dtype(ops, static_cast<BlockValue>(i), true))
        scales_ &= !has_finite_products(*dtype);
    return of_computed(ops, op, powers, is_exponential(k, i));
  }

  int of_computed(const std::vector<BlockOp>& ops, const BlockOp& op, std::vector<int>& powers,
                  bool exponential) {
    auto is_zero = [&](size_t i) {  // by whatever it is multiplied
      const BlockOp& number = ops[static_cast<size_t>(op.operands[i])];
      return number.is_compute(OpCode::constant) && number.number() == 0 && number.extents().empty();
    };
    switch (op.code()) {
      case OpCode::mul:
      case OpCode::matmul:
        return limited(powers[0] + powers[1]);
      case OpCode::div:
        return limited(powers[0] - powers[1]);
      case OpCode::reciprocal:
        return -powers[0];
      case OpCode::where:
        want(powers[0], 0);
        if (is_zero(1)) return powers[2];
        return is_zero(2) ? powers[1] : want(powers[2], powers[1]);
      case OpCode::add:
        for (size_t i : {size_t{0}, size_t{1}})
          if (is_zero_or_nan(ops[static_cast<size_t>(op.operands[i])])) return powers[1 - i];
        [[fallthrough]];
      case OpCode::sub:
      case OpCode::max:
      case OpCode::min:
      case OpCode::concat:
        for (int power : powers) want(power, powers[0]);
        return powers[0];
      case OpCode::neg:
      case OpCode::abs:
      case OpCode::reduce_sum:
      case OpCode::reduce_max:
      case OpCode::reduce_min:
        return powers[0];
      default:
        if (op.is_compute(OpKind::movement) && powers.size() == 1) return powers[0];
        for (int power : powers) want(power, 0);
        return exponential ? 1 : 0;
    }
  }
  // x - x, which any factor leaves what it is.
  static bool is_zero_or_nan(const BlockOp& op) {
    return op.is_compute(OpCode::sub) && op.operands[0] == op.operands[1];
  }
  int limited(int power) { return std::abs(power) <= 1 ? power : want(power, 0); }

  const MuGraph& mugraph_;
  const size_t kernel_;
  const BlockValue shift_;
  bool scales_ = true;
  std::vector<int> tensors_;
  std::vector<std::vector<int>> values_;
};

// Of all that is summed with one maximum, at most; rounding may add some.
int power_above(const MuKernel& kernel, const BlockOp& exponential, BlockValue shift) {
  const double terms = count_of(exponential) / count_of(kernel.ops[static_cast<size_t>(shift)]) *
                       static_cast<double>(kernel.trip_count) * static_cast<double>(kernel.grid[3]);
  return static_cast<int>(std::ceil(std::log2(std::max(terms, 1.0)))) + 1;
}

}  // namespace

void scale_numerators(MuGraph& mugraph) {
  for (MuKernel& kernel : mugraph.kernels)
    for (BlockOp& op : kernel.ops) op.down = 0;
  const Magnitudes magnitudes(mugraph);
  for (size_t k = 0; k < mugraph.kernels.size(); ++k) {
    std::vector<BlockOp>& ops = mugraph.kernels[k].ops;
    std::set<BlockValue> shifts;
    for (const BlockOp& op : ops)
      if (is_numerator(ops, op)) shifts.insert(ops[static_cast<size_t>(op.operands[0])].operands[1]);
    for (BlockValue shift : shifts) {
      Powers powers(mugraph, k, shift);
      if (!powers.cancel()) continue;
      bool overflows = false;
      for (size_t other = k; other < mugraph.kernels.size(); ++other)
        for (size_t i = 0; i < mugraph.kernels[other].ops.size(); ++i)
          overflows |= powers.is_scaled(other, i) && magnitudes.of(other, i) > kMost;
      if (!overflows) continue;
      std::vector<BlockOp*> exponentials;  // which share one power
      for (size_t i = 0; i < ops.size(); ++i)
        if (powers.is_exponential(k, i)) exponentials.push_back(&ops[i]);
      int down = 0;
      for (const BlockOp* op : exponentials)
        down = std::max(down, power_above(mugraph.kernels[k], *op, shift));
      for (BlockOp* op : exponentials) op->down = down;
    }
  }
}

}  // namespace quern
