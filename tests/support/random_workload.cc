#include "tests/support/random_workload.h"

#include "tests/support/graph_writer.h"

namespace quern {

namespace {

class Writer : GraphWriter {
 public:
  explicit Writer(uint64_t seed) : GraphWriter("workload_" + std::to_string(seed), seed) {
    dtype_ = pick({"f16", "f16", "bf16", "f32"});
  }

  Graph run() {
    static constexpr void (Writer::*kWorkloads[])() = {
        &Writer::attention, &Writer::attention, &Writer::norm_and_linear, &Writer::gated_mlp,
        &Writer::mlp,       &Writer::adapter,   &Writer::row_normal,      &Writer::gate,
        &Writer::product,   &Writer::packed};
    (this->*kWorkloads[random_() % std::size(kWorkloads)])();
    return finish();
  }

 private:
  int64_t rows() { return pick<int64_t>({1, 2, 7, 8, 16, 17, 33, 64}); }
  int64_t columns() { return pick<int64_t>({1, 7, 8, 16, 32, 40, 64, 100, 129}); }

  std::string activation(const std::string& x) {
    return op(pick({"silu", "gelu", "gelu_tanh", "relu", "tanh", "sigmoid"}), x);
  }
  std::string norm(const std::string& x, int64_t width) {
    std::string operands = x;
    if (coin()) operands += ", " + in({width});
    const bool layer = coin();
    if (operands != x && layer) operands += ", " + in({width});
    return op(layer ? "layer_norm" : "rms_norm", operands, ", eps=0.01");
  }
  // x times a weight, which may lie the other way round, with a bias or without.
  std::string linear(const std::string& x, int64_t from, int64_t to) {
    std::string y =
        one_in(4) ? op2("matmul", x, op("transpose", in({to, from}))) : op2("matmul", x, in({from, to}));
    return one_in(3) ? op2("add", y, in({to})) : y;
  }

  std::string masked(const std::string& scores, const Shape& shape) {
    const int64_t m = shape[shape.size() - 2], n = shape.back();
    switch (random_() % 6) {
      case 0:
        return op2("add", scores, in({m, n}));
      case 1:
        return op2("add", scores, in({1, n}));
      case 2: {
        const std::string row = op("iota", "shape=" + list({m, 1}), ", axis=0"),
                          column = op("iota", "shape=" + list({1, n}), ", axis=1");
        return op("where", op2("le", column, row) + ", " + scores + ", -inf");
      }
      case 3:
        return op2("mul", op("tanh", op2("div", scores, "8")), "8");
      default:
        return scores;
    }
  }

  void attention() {
    const int64_t m = rows(), n = columns(), d = pick<int64_t>({8, 16, 40, 64}),
                  dv = one_in(3) ? columns() : d;
    const Shape heads = one_in(3) ? Shape{batch(), batch()} : Shape{batch()};
    Shape own = heads;  // of keys and values: one for all heads, or one for each
    if (one_in(3)) own.back() = 1;
    auto with = [](Shape shape, int64_t a, int64_t b) {
      shape.push_back(a), shape.push_back(b);
      return shape;
    };
    std::string q = in(with(heads, m, d)), k;
    if (coin()) {
      k = in(with(own, d, n));
    } else {
      const std::string perm = heads.size() == 2 ? ", perm=[0, 1, 3, 2]" : ", perm=[0, 2, 1]";
      k = op("transpose", in(with(own, n, d)), perm);
    }
    if (one_in(4)) q = op("rms_norm", q);
    std::string scores = op2("matmul", q, k);
    if (coin()) scores = op2("mul", scores, "0.25");
    scores = masked(scores, with(heads, m, n));
    out(op2("matmul", op("softmax", scores), in(with(own, n, dv))));
  }

  void norm_and_linear() {
    const int64_t m = rows(), k = columns();
    const std::string x = in({m, k}), n = norm(x, k);
    std::string outputs = one_in(4) ? n : "";
    for (int i = pick({1, 1, 2, 3}); i > 0; --i)
      outputs += (outputs.empty() ? "" : ", ") + linear(n, k, columns());
    out(outputs);
  }

  void gated_mlp() {
    const int64_t m = rows(), k = columns(), n = columns();
    const std::string x = in({m, k}), h = one_in(3) ? norm(x, k) : x;
    std::string y = op2("mul", activation(linear(h, k, n)), linear(h, k, n));
    if (one_in(3)) {
      y = linear(y, n, k);
      if (coin()) y = op2("add", x, y);
    }
    out(y);
  }

  void mlp() {
    const int64_t m = rows(), k = columns(), n = columns();
    const std::string x = in({m, k});
    std::string y = linear(activation(linear(one_in(3) ? norm(x, k) : x, k, n)), n, k);
    if (coin()) y = op2("add", x, y);
    if (coin()) {
      out(y);
    } else {
      out(y + ", " + norm(y, k));
    }
  }

  void adapter() {
    const int64_t m = rows(), k = columns(), n = columns(), r = pick<int64_t>({1, 4, 8, 16});
    const std::string x = in({m, k}), y = op2("matmul", x, in({k, n}));
    std::string z = op2("matmul", op2("matmul", x, in({k, r})), in({r, n}));
    if (coin()) z = op2("mul", z, "2");
    out(op2("add", y, z));
  }

  void row_normal() {
    const Shape shape = coin() ? Shape{rows(), columns()} : Shape{batch(), rows(), columns()};
    const std::string x = in(shape), axis = ", axis=" + std::to_string(random_() % shape.size());
    switch (random_() % 5) {
      case 0:
        return out(op("softmax", x, axis));
      case 1: {
        const std::string most = op("max", x, axis + ", keepdims=true");
        const std::string rest = op2("sub", x, most);
        const std::string sum = op("log", op("sum", op("exp", rest), axis + ", keepdims=true"));
        return out(coin() ? op2("sub", rest, sum) : op2("add", sum, most));
      }
      case 2:
        return out(op("layer_norm", x, axis + ", eps=0.01"));
      case 3:
        return out(op(pick({"sum", "mean", "max"}), op("square", x), ", axis=[0, 1]"));
      default:
        return out(op2("mul", op("rms_norm", x, axis + ", eps=0.01"), x));
    }
  }

  void gate() {
    const int64_t m = rows(), k = columns();
    const std::string p = op("softmax", linear(in({m, k}), k, columns()));
    out(coin() ? p : p + ", " + op("max", p, ", axis=1, keepdims=true"));
  }

  void product() {
    const int64_t m = rows(), n = columns(), k = pick<int64_t>({1, 3, 8, 33, 100, 257});
    Shape left = {m, k}, right = {k, n};
    for (int rank = pick({0, 0, 1, 2}); rank > 0; --rank) {
      const int64_t extent = batch();
      left.insert(left.begin(), extent);
      right.insert(right.begin(), one_in(4) ? 1 : extent);
    }
    if (one_in(8)) right = {k};
    std::string a = in(left), b = in(right);
    if (one_in(5) && left.size() == 2) a = op("transpose", in({k, m}));
    std::string c = op2("matmul", a, b);
    if (coin()) c = activation(c);
    if (one_in(4) && right.size() > 1) c = op("softmax", c);
    out(c);
  }

  // Parts of one product, and rotary embedding: beside what a search takes, operators that it leaves alone.
  void packed() {
    const int64_t m = rows(), k = columns(), n = pick<int64_t>({4, 16, 24});
    const std::string y = op2("matmul", in({m, k}), in({k, 3 * n}));
    std::string part[3];
    for (int i = 0; i < 3; ++i)
      part[i] = op("slice", y, ", start=" + list({0, i * n}) + ", stop=" + list({m, (i + 1) * n}));
    if (coin()) return out(part[0] + ", " + part[1] + ", " + op2("mul", part[2], part[0]));
    const std::string c = in({m, n}), s = in({m, n});
    const std::string turned = op2("sub", op2("mul", part[0], c), op2("mul", part[1], s)),
                      other = op2("add", op2("mul", part[0], s), op2("mul", part[1], c));
    out(op("concat", turned + ", " + other, ", axis=1") + ", " +
        op2("matmul", part[2], op("transpose", turned)));
  }
};

}  // namespace

Graph random_workload(uint64_t seed) { return Writer(seed).run(); }

}  // namespace quern
