#include "tests/support/hostile_graph.h"

#include "tests/support/graph_writer.h"

namespace quern {

namespace {

struct Value {
  std::string name;
  std::vector<int64_t> shape;
};

class Writer : GraphWriter {
 public:
  explicit Writer(uint64_t seed) : GraphWriter("hostile_" + std::to_string(seed), seed) {
    dtype_ = pick({"f16", "f16", "f16", "bf16", "bf16", "f32", "f32"});
    large_ = coin();
  }

  Graph run() {
    static constexpr void (Writer::*kRecipes[])() = {
        &Writer::attention,   &Writer::attention,   &Writer::attention,    &Writer::gate,
        &Writer::masked_rows, &Writer::masked_rows, &Writer::norm_product, &Writer::norm_product,
        &Writer::products,    &Writer::products,    &Writer::exponentials, &Writer::integers,
        &Writer::elementwise, &Writer::elementwise};
    (this->*kRecipes[random_() % std::size(kRecipes)])();
    return finish();
  }

 private:
  // ---- extents, numbers ----

  // Half of the graphs are large enough for tensor cores to pay.
  int64_t rows() {
    return large_ ? pick<int64_t>({33, 64, 65, 80}) : pick<int64_t>({1, 2, 5, 8, 16, 17, 24, 33});
  }
  int64_t columns() {
    return large_ ? pick<int64_t>({64, 72, 128, 136}) : pick<int64_t>({7, 16, 24, 33, 40, 64, 72, 100, 129});
  }
  int64_t depth() { return large_ ? pick<int64_t>({32, 40, 64}) : pick<int64_t>({8, 8, 16, 16, 24, 32}); }

  std::string lowest() const {
    return dtype_ == "f16"    ? "-65504.0"
           : dtype_ == "bf16" ? "-3.3895313892515355e38"
                              : "-3.4028234663852886e38";
  }
  // What stands for "not seen".
  std::string masking_number() { return pick<std::string>({"-inf", "-inf", "-1e30", lowest(), "-1e9"}); }
  std::string factor() {
    return pick<std::string>({"0.125", "0.3", "8.0", "-2.0", "64.0", "1000.0", "0.001", "1e-4"});
  }
  std::string activation(const std::string& x) {
    return op(pick({"silu", "gelu", "gelu_tanh", "relu", "tanh", "sigmoid", "erf", "abs"}), x);
  }
  static std::string along(size_t axis, bool keepdims = true) {
    return ", axis=" + std::to_string(axis) + (keepdims ? ", keepdims=true" : "");
  }
  std::string scaled(const std::string& x) {
    if (one_in(4)) return op2("div", x, pick<std::string>({"8.0", "0.25", "1000.0"}));
    return coin() ? op2("mul", x, factor()) : op2("mul", factor(), x);
  }
  // Now and then f32 from here on, as models do it around a softmax or a norm.
  std::string perhaps_f32(const std::string& x) {
    return dtype_ != "f32" && one_in(4) ? op("cast", x, ", dtype=f32") : x;
  }

  // ---- conditions and masks over the last two dimensions ----

  std::string index(const Shape& shape, size_t axis) {
    Shape own(2, 1);
    own[axis] = shape[shape.size() - 2 + axis];
    return op("iota", "shape=" + list(own), ", axis=" + std::to_string(axis));
  }
  // Broadcasts to the last two dimensions: by key, by row or by element.
  Shape mask_shape(const Shape& shape) {
    const int64_t m = shape[shape.size() - 2], n = shape.back();
    return pick<Shape>({{n}, {m, 1}, {m, n}, {m, n}});
  }
  std::string causal(const Shape& shape) {
    const std::string row = index(shape, 0), column = index(shape, 1);
    const int64_t past = shape.back() - shape[shape.size() - 2];
    return op2("le", column, past > 0 && coin() ? op2("add", row, std::to_string(past)) : row);
  }
  std::string condition(const Shape& shape) {
    const int64_t m = shape[shape.size() - 2], n = shape.back();
    switch (random_() % 10) {
      case 0:
      case 1:
        return causal(shape);
      case 2: {  // sliding window: the product of two truth values is an i32
        const std::string seen = causal(shape), row = index(shape, 0), column = index(shape, 1);
        const std::string near = op2("lt", op2("sub", row, column), pick<std::string>({"3", "16", "40"}));
        return coin() ? op2("mul", seen, near) : op("where", seen + ", " + near + ", 0");
      }
      case 3:  // padding, or any mask by a bool input
      case 4:
        return in(mask_shape(shape), "bool");
      case 5: {  // blocks of a packed batch
        const std::string row = in({m, 1}, "i32"), column = in({n}, "i32");
        return op2("eq", row, column);
      }
      case 6: {  // as many keys as a cache holds: for all, for each row, or for each sequence of the batch
        Shape each(shape.size(), 1);
        each[0] = shape[0];
        const std::string length = in(pick<Shape>({{1}, {m, 1}, each}), "i32"), column = index(shape, 1);
        const std::string seen = coin() ? op2("lt", column, coin() ? length : op2("mul", op("abs", length), "9"))
                                        : op2("le", length, column);
        return one_in(3) ? op2("mul", causal(shape), seen) : seen;
      }
      case 7: {
        const std::string bias = in(mask_shape(shape));
        return op2(pick({"lt", "le", "eq"}), bias, pick<std::string>({"0.0", "0.5", "-0.25"}));
      }
      case 8:
        return in(mask_shape(shape), "i32");
      default:
        return in(mask_shape(shape));  // a float that is not 0
    }
  }
  std::string masked(const std::string& scores, const Shape& shape) {
    switch (random_() % 7) {
      case 0:
        return op2("add", scores, in(mask_shape(shape)));
      case 1: {
        const std::string bias = in(mask_shape(shape)), seen = condition(shape);
        return op2("add", scores, op("where", seen + ", " + bias + ", " + masking_number()));
      }
      case 2:
        return op("where", condition(shape) + ", " + masking_number() + ", " + scores);
      case 3: {
        const std::string once = op("where", condition(shape) + ", " + scores + ", " + masking_number());
        return op("where", condition(shape) + ", " + once + ", " + masking_number());
      }
      default:
        return op("where", condition(shape) + ", " + scores + ", " + masking_number());
    }
  }

  // ---- parts of programs ----

  std::string norm(const std::string& x, int64_t width) {
    std::string operands = perhaps_f32(x);
    const bool in_f32 = operands != x;
    const bool layer = one_in(3);
    if (!one_in(3)) {
      operands += ", " + in({width});
      if (coin()) operands += ", " + in({width});
    }
    const std::string y = op(layer ? "layer_norm" : "rms_norm", operands,
                             ", eps=" + pick<std::string>({"1e-5", "1e-6", "0.01"}));
    if (!in_f32 || one_in(3)) return y;
    const std::string back = op("cast", y, ", dtype=" + dtype_);  // in front of its weight, or of a product
    return coin() ? op2("mul", back, in({width})) : back;
  }
  std::string linear(const std::string& x, int64_t from, int64_t to) {
    std::string w = one_in(4) ? op("transpose", in({to, from})) : in({from, to});
    if (one_in(6)) w = scaled(w);
    const std::string y = op2("matmul", x, w);
    return one_in(3) ? op2("add", y, in({to})) : y;
  }
  // Along the last dimension; the row's maximum or a fixed number may be the shift, or nothing.
  std::string normalised(const std::string& x, size_t last) {
    if (!one_in(3)) return op("softmax", x);
    const std::string most = op("max", x, along(last)), e = op("exp", op2("sub", x, most));
    return op2("div", e, op("sum", e, along(last)));
  }
  std::string log_sum_exp(const std::string& x, size_t last) {
    if (one_in(4)) return op("log", op("sum", op("exp", x), along(last)));
    const std::string most = op("max", x, along(last)), e = op("exp", op2("sub", x, most));
    return op2("add", op("log", op("sum", e, along(last))), most);
  }

  // ---- recipes ----

  void attention() {
    const int64_t m = rows(), n = columns(), d = depth(), dv = depth();
    const int64_t h = large_ || m * n > 1500 ? 1 : batch();
    const Shape heads = one_in(3) ? Shape{1, h} : Shape{h};
    auto with = [&](int64_t a, int64_t b) {
      Shape shape = heads;
      shape.push_back(a), shape.push_back(b);
      return shape;
    };
    std::string q = in(with(m, d)), k;
    if (one_in(4)) q = norm(q, d);
    if (one_in(4)) q = scaled(q);
    if (coin()) {
      k = in(with(d, n));
    } else {
      k = in(with(n, d));
      if (one_in(4)) k = norm(k, d);
      k = op("transpose", k, heads.size() == 2 ? ", perm=[0, 1, 3, 2]" : ", perm=[0, 2, 1]");
    }
    const Shape scores = with(m, n);
    std::string s = op2("matmul", q, k);
    if (coin()) s = scaled(s);
    if (one_in(5)) s = op2("mul", op("tanh", op2("div", s, "30.0")), "30.0");
    const std::string narrow = s;
    s = perhaps_f32(s);
    const bool in_f32 = s != narrow;
    if (!one_in(6)) s = masked(s, scores);
    std::string p = normalised(s, scores.size() - 1);
    if (one_in(6)) p = op("where", condition(scores) + ", " + p + ", 0.0");
    const std::string v = in(with(n, dv));
    if (in_f32 ? !one_in(3) : one_in(6)) p = op("cast", p, ", dtype=" + dtype_);
    std::string o = op2("matmul", p, v);
    if (one_in(5)) o = op2("mul", o, activation(in(with(m, dv))));
    out(one_in(5) ? o + ", " + log_sum_exp(s, scores.size() - 1) : o);
  }

  // What scores are used for besides attention: a gate of experts, losses, pooling.
  void gate() {
    const int64_t m = rows(), k = depth(), n = columns();
    std::string x = in({m, k});
    if (one_in(3)) x = norm(x, k);
    std::string s = linear(x, k, n);
    if (one_in(3)) s = scaled(s);
    s = masked(perhaps_f32(s), {m, n});
    reduce_masked({s, {m, n}});
  }

  void masked_rows() {
    const Shape shape = one_in(3) ? Shape{batch(), rows(), columns()} : Shape{rows(), columns()};
    std::string x = in(shape);
    if (one_in(3)) x = scaled(x);
    reduce_masked({masked(perhaps_f32(x), shape), shape});
  }

  void reduce_masked(const Value& x) {
    const size_t last = x.shape.size() - 1, axis = one_in(3) ? last - 1 : last;
    switch (random_() % 8) {
      case 0:
      case 1:
        return out(normalised(x.name, last));
      case 2:
        return out(log_sum_exp(x.name, last));
      case 3: {
        const std::string rest = op2("sub", x.name, log_sum_exp(x.name, last));
        return out(rest);
      }
      case 4:
        return out(op("max", x.name, along(axis, coin())) + ", " + op("sum", x.name, along(axis)));
      case 5:
        return out(op(pick({"sum", "mean", "max", "min"}), x.name, along(axis, coin())));
      case 6: {
        const std::string p = op("softmax", x.name, ", axis=" + std::to_string(axis));
        return out(p + ", " + op("max", p, along(last)));
      }
      default: {
        const std::string p = normalised(x.name, last);
        return out(linear(p, x.shape.back(), depth()));
      }
    }
  }

  void norm_product() {
    const int64_t m = rows(), k = pick<int64_t>({16, 40, 64, 100}), n = columns();
    const std::string x = in({m, k});
    std::string h = norm(one_in(4) ? scaled(x) : x, k);
    if (one_in(4)) h = scaled(h);
    if (one_in(4)) h = op2("mul", h, in({k}));
    std::string y = linear(h, k, n);
    if (one_in(3)) y = scaled(y);
    if (one_in(3)) y = op2("mul", activation(y), linear(h, k, n));
    if (one_in(4)) y = op2("add", linear(y, n, k), x);
    out(one_in(4) ? y + ", " + h : y);
  }

  void products() {
    const int64_t m = rows(), k = pick<int64_t>({8, 24, 33, 64, 129}), n = depth();
    std::string a = in({m, k});
    if (coin()) a = scaled(a);
    if (one_in(3)) a = op2("mul", a, in(coin() ? Shape{k} : Shape{m, 1}));
    std::string b = in({k, n});
    if (one_in(4)) b = op2("mul", b, in(coin() ? Shape{n} : Shape{k, 1}));
    std::string y = op2("matmul", a, b);
    if (coin()) y = scaled(y);
    switch (random_() % 6) {
      case 0:
        y = linear(y, n, columns());
        break;
      case 1:
        y = op2("add", y, linear(linear(in({m, k}), k, 8), 8, n));
        break;
      case 2: {  // of a batch, then its heads merged
        const int64_t h = batch();
        const std::string left = in({h, m, 24}), right = in({h, 24, n}), z = op2("matmul", left, right);
        const std::string merged =
            op("reshape", op("transpose", z, ", perm=[1, 0, 2]"), ", shape=" + list({m, h * n}));
        return out(y + ", " + (coin() ? merged : linear(merged, h * n, 16)));
      }
      case 3: {  // reshaped across its dimensions
        const std::string z = op2("matmul", in({2, m, 12}), in({2, 12, 6}));
        return out(op("reshape", coin() ? z : scaled(z), ", shape=" + list({2, 3, 2 * m})));
      }
      case 4:
        y = op("where", condition({m, n}) + ", " + y + ", " + pick<std::string>({"0.0", "-inf", "1.0"}));
        break;
      default:
        break;
    }
    out(one_in(3) ? activation(y) : y);
  }

  void exponentials() {
    const int64_t m = rows(), n = columns();
    const std::string x = perhaps_f32(in({m, n}));
    const std::string y = in(pick<Shape>({{m, 1}, {n}, {m, n}, {1}}));
    const std::string d = op2("sub", x, one_in(3) ? scaled(y) : y), e = op("exp", d);
    switch (random_() % 6) {
      case 0:
        return out(op("sum", e, along(1)) + ", " + op("sum", op("exp", x), along(1)));
      case 1:
        return out(op2("mul", op("sum", e, along(1)), op("exp", y)));
      case 2:
        return out(op2("matmul", e, in({n, depth()})));
      case 3: {
        const std::string u = op("exp", x), v = op("exp", op("neg", op("abs", y)));
        return out(op("sum", op2("mul", u, v), along(1)) + ", " + op2("mul", e, v));
      }
      case 4:
        return out(op("log", op2("add", op("exp", op("neg", op("abs", d))), "1.0")) + ", " +
                   op("sum", op("sigmoid", d), along(1)));
      default: {
        const std::string most = op("max", d, along(1)), f = op("exp", op2("sub", d, most));
        return out(op2("mul", op("sum", f, along(1)), op("exp", most)) + ", " + most);
      }
    }
  }

  void integers() {
    const int64_t m = rows(), n = columns();
    std::string x = in({m, n}, "i32");
    for (int i = pick({1, 2, 3}); i > 0; --i) {
      if (one_in(4)) {
        x = op(pick({"neg", "abs", "square", "relu"}), x);
        continue;
      }
      const std::string y = one_in(3) ? pick<std::string>({"3", "65537", "-1", "2147483647"})
                                      : in(pick<Shape>({{m, n}, {n}, {m, 1}}), one_in(6) ? "bool" : "i32");
      x = op2(pick({"add", "sub", "mul", "max", "min"}), x, y);
    }
    const std::string total = op(pick({"sum", "max", "min"}), x, along(coin() ? 0 : 1));
    switch (random_() % 4) {
      case 0:
        return out(total + ", " + op2("mul", op("cast", x, ", dtype=" + dtype_), in({n})));
      case 1:
        return out(op("where", x + ", " + total + ", " + in({m, n}, "i32")));
      case 2:
        return out(op("where", op2(pick({"lt", "le", "eq"}), x, total) + ", " + in({m, n}) + ", " + in({n})));
      default:
        return out(total + ", " + op("cast", in({m, n}), ", dtype=i32"));
    }
  }

  // A chain over rows and columns with conditions in it, reduced at the end.
  void elementwise() {
    const int64_t m = rows(), n = columns();
    const Shape shape = {m, n};
    std::vector<std::string> values = {in(shape), in(pick<Shape>({{n}, {m, 1}, {m, n}}))};
    auto any = [&] { return values[random_() % values.size()]; };
    for (int i = pick({2, 3, 4, 6}); i > 0; --i) {
      const std::string x = any(), y = any();
      switch (random_() % 8) {
        case 0:
          values.push_back(op("where", condition(shape) + ", " + x + ", " + y));
          break;
        case 1:
          values.push_back(activation(x));
          break;
        case 2:
          values.push_back(scaled(x));
          break;
        case 3:  // away from where roots and quotients are steep
          values.push_back(op(pick({"sqrt", "rsqrt", "log", "reciprocal"}), op2("add", op("abs", x), "0.5")));
          break;
        case 4:
          values.push_back(op("cast", x, ", dtype=" + pick<std::string>({"f16", "bf16", "f32"})));
          break;
        default:
          values.push_back(op2(pick({"add", "sub", "mul", "max", "min"}), x, y));
          break;
      }
    }
    // The last may be of the shape of one row or column only.
    const std::string whole = op2("add", values.back(), values[0]);
    const std::string axis = along(coin() ? 0 : 1, coin());
    switch (random_() % 3) {
      case 0:
        return out(whole);
      case 1:
        return out(op(pick({"sum", "max", "mean", "min"}), whole, axis));
      default:
        return out(op("sum", op2("mul", whole, in(shape)), axis) + ", " + op("max", whole, axis));
    }
  }

  bool large_;
};

}  // namespace

Graph hostile_graph(uint64_t seed) { return Writer(seed).run(); }

}  // namespace quern
