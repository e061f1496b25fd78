#include "core/verify/trial_inputs.h"

#include <cmath>

#include "core/verify/needed.h"

namespace quern {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() { return state_ = mix(state_); }
  uint64_t below(uint64_t n) { return next() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  // A multiple of 2^-16 in [-limit, limit).
  double wide(int64_t limit) {
    return (static_cast<double>(below(static_cast<uint64_t>(limit) << 17)) - std::ldexp(limit, 16)) * 0x1p-16;
  }
  template <class T>
  T of(const std::vector<T>& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t state_;
};

const std::vector<double> kTies = {-1, -0.5, 0, 0, 0, 0.5, 1, 2};
// Nearly half of them 0: as conditions they hide one branch about as often as the other.
const std::vector<double> kExtremes = {
    INT32_MIN, INT32_MIN + 1, INT32_MAX, -1, 1, 65536, (1 << 24) + 1, 0, 0, 0, 0, 0};
const std::vector<double> kNextTo = {0, 0, 0, 0, 0, 0, 0.125, -0.125, 1, -1};
constexpr double kSmall = 4;  // literals up to this size are among the ties

class Input {
 public:
  // `in_turn`: of a trial of literals, that this input has them; others seldom do, so that what the large
  // ones among them make of it does not hide everything.
  Input(const TensorType& type, size_t index, TrialKind kind, uint64_t trial,
        const std::vector<double>& literals, bool in_turn)
      : type_(type), kind_(kind), random_(mix(trial ^ mix(index + 1))), literals_(literals) {
    if (kind == TrialKind::literals && !in_turn && !random_.one_in(8)) kind_ = TrialKind::ties;
    for (double literal : literals)
      if (std::fabs(literal) <= kSmall) small_.push_back(literal);
    // The direction is one of the trial, that along a dimension one of the input.
    const double direction = mix(trial) & 1 ? 1 : -1;
    if (kind == TrialKind::by_input) base_ = direction * 0.5 * static_cast<double>(index);
    for (size_t d = 0; d < type.shape.size(); ++d)
      slope_.push_back(kind == TrialKind::by_position ? (random_.one_in(2) ? 0.25 : -0.25) : 0);
    ones_ = random_.of<uint64_t>({4, 4, 1, 7});
    holds_lowest_ = random_.one_in(2);
  }

  std::vector<double> run() {
    std::vector<double> values;
    const int64_t columns = type_.shape.empty() ? 1 : type_.shape.back();
    Ints position(type_.shape.size(), 0);
    for (int64_t e = 0; e < type_.element_count(); ++e) {
      if (e % columns == 0) begin_row(static_cast<uint64_t>(columns));
      column_ = static_cast<uint64_t>(e % columns);
      values.push_back(type_.dtype == DType::boolean ? truth()
                       : is_float(type_.dtype)       ? number(position)
                                                     : integer(position));
      for (size_t d = position.size(); d-- > 0 && ++position[d] == type_.shape[d];) position[d] = 0;
    }
    return values;
  }

 private:
  void begin_row(uint64_t columns) {
    row_ = random_.below(8);
    for (uint64_t& column : seen_) column = random_.below(columns);
  }
  // Of rows 2: two elements at most are not masked.
  bool is_seen() const { return column_ == seen_[0] || column_ == seen_[1]; }
  double truth() { return row_ == 0 ? 0 : row_ == 1 ? 1 : row_ == 2 ? is_seen() : random_.below(8) < ones_; }

  double along(const Ints& position) const {
    double sum = base_;
    for (size_t d = 0; d < position.size(); ++d) sum += slope_[d] * static_cast<double>(position[d]);
    return sum;
  }

  double number(const Ints& position) {
    switch (kind_) {
      case TrialKind::ties:
        return small_.empty() || !random_.one_in(3) ? random_.of(kTies) : random_.of(small_);
      case TrialKind::by_input:
      case TrialKind::by_position:
        return along(position) + (1 + random_.wide(1)) * 0.0625;
      case TrialKind::literals:
        return literals_.empty() || random_.one_in(8) ? random_.of(kTies)
                                                      : random_.of(literals_) + random_.of(kNextTo);
      case TrialKind::masked:
        return holds_lowest_ && (row_ == 0 || (row_ == 2 ? !is_seen() : random_.one_in(4))) ? -kInfinity
                                                                                            : random_.wide(2);
      default:
        return random_.wide(2);
    }
  }

  double integer(const Ints& position) {
    switch (kind_) {
      case TrialKind::ties:
        return static_cast<double>(random_.below(5)) - 2;
      case TrialKind::by_input:
      case TrialKind::by_position:
        return std::floor(8 * along(position));
      case TrialKind::literals:
        return literals_.empty() || random_.one_in(4)
                   ? static_cast<double>(random_.below(5)) - 2
                   : round_to(DType::i32, random_.of(literals_) + std::round(random_.of(kNextTo)));
      case TrialKind::masked:
      case TrialKind::special:
        return random_.of(kExtremes);
      default:
        return static_cast<int32_t>(random_.next());
    }
  }

  const TensorType& type_;
  TrialKind kind_;
  Random random_;
  const std::vector<double>& literals_;
  std::vector<double> small_;  // of them
  double base_ = 0;
  std::vector<double> slope_;
  uint64_t ones_ = 4;  // of eight truth values
  bool holds_lowest_ = false;
  uint64_t row_ = 0, column_ = 0, seen_[2] = {0, 0};
};

// An element of one input of a floating dtype, of another input in the next trial, becomes NaN or infinite.
void spoil(const Graph& graph, uint64_t trial, uint64_t seed, std::vector<std::vector<double>>& inputs) {
  Random random(mix(~seed));
  std::vector<size_t> able;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (is_float(graph.node(graph.inputs[i]).type.dtype) && !inputs[i].empty()) able.push_back(i);
  if (able.empty()) return;
  std::vector<double>& input = inputs[able[trial % able.size()]];
  input[random.below(input.size())] = random.of<double>({kNaN, kInfinity, -kInfinity, kInfinity, -kInfinity});
}

}  // namespace

// How many trials of its kind come before the n-th trial.
static uint64_t turn_of(int n) {
  uint64_t count = 0;
  for (int i = 0; i < n; ++i) count += trial_kind(i) == trial_kind(n);
  return count;
}

const char* trial_kind_name(TrialKind kind) {
  constexpr const char* kNames[] = {"wide",     "ties",   "by input", "by position",
                                    "literals", "masked", "special"};
  return kNames[static_cast<size_t>(kind)];
}

TrialKind trial_kind(int n) {
  using enum TrialKind;
  constexpr TrialKind kOrder[kAllKinds] = {wide,    ties,        special,  masked,  by_input, literals,
                                           special, by_position, literals, special, ties,     literals};
  return kOrder[n % kAllKinds];
}

std::vector<bool> read_inputs(const Graph& graph, const MuGraph& mugraph, size_t iotas) {
  const std::vector<bool> values = needed_values(graph, graph.outputs);
  std::vector<bool> tensors(mugraph.tensors.size());
  for (int32_t tensor : mugraph.outputs) tensors[tensor] = true;
  for (const MuKernel& kernel : mugraph.kernels) {
    for (int32_t tensor : kernel.operands) tensors[tensor] = true;
    for (const BlockOp& op : kernel.ops)
      if (op.is_load()) tensors[op.tensor()] = true;
  }
  std::vector<bool> read;
  for (size_t i = 0; i < graph.inputs.size() - iotas; ++i)
    read.push_back(values[graph.inputs[i]] || tensors[mugraph.inputs[i]]);
  return read;
}

std::vector<Elements<OrderedValue>> trial_inputs(const Graph& graph, const std::vector<bool>& read, int n,
                                                 uint64_t seed, const std::vector<double>& literals,
                                                 const OrderedDomain& domain) {
  const TrialKind kind = trial_kind(n);
  std::vector<std::vector<double>> numbers(graph.inputs.size());
  const uint64_t turn = turn_of(n);
  std::vector<size_t> able;
  for (size_t i = 0; i < read.size(); ++i)
    if (read[i]) able.push_back(i);
  for (size_t i : able)
    numbers[i] =
        Input(graph.node(graph.inputs[i]).type, i, kind, seed, literals, able[turn % able.size()] == i).run();
  if (kind == TrialKind::special) spoil(graph, turn, seed, numbers);
  std::vector<Elements<OrderedValue>> inputs;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    inputs.emplace_back();
    inputs.back().reserve(numbers[i].size());
    for (double number : numbers[i])
      inputs.back().push_back(domain.input(number, graph.node(graph.inputs[i]).type.dtype));
  }
  return inputs;
}

}  // namespace quern
