// Which values of muGraphs are values of their graphs, and in which dtype operands enter tensor cores for
// that.
#include "core/verify/rounded_values.h"

#include "core/mugraph/narrow.h"
#include "tests/mugraph/texts.h"

namespace {

using namespace quern;

class Values {
 public:
  Values(const std::string& graph_text, const std::string& mugraph_text) {
    mugraph_ = mugraph_of(mugraph_text);
    note_rounded_values(graph_of(graph_text), mugraph_);
  }
  std::string rounds_to(const std::string& name) const { return text(op(name).rounds_to); }
  std::string narrow(const std::string& name) const { return text(narrow_dtype(ops(), value(name))); }
  std::string product(const std::string& name, bool tf32 = false) const {
    return text(tensor_core_dtype(ops(), value(name), tf32));
  }

 private:
  static std::string text(std::optional<DType> dtype) {
    return dtype ? std::string(dtype_name(*dtype)) : "none";
  }
  const std::vector<BlockOp>& ops() const { return mugraph_.kernels[0].ops; }
  BlockValue value(const std::string& name) const {
    for (size_t i = 0; i < ops().size(); ++i)
      if (ops()[i].name == name) return static_cast<BlockValue>(i);
    print_error("no operator %s\n", name.c_str());
    assert_true(false);
    return -1;
  }
  const BlockOp& op(const std::string& name) const { return ops()[static_cast<size_t>(value(name))]; }

  MuGraph mugraph_;
};

const char kNormGraph[] = R"(graph norm
in x: f16[16, 1024]
in g: f16[1024]
in w: f16[1024, 512]
y = rms_norm(x, g)
z = matmul(y, w)
out z
)";

// Neither the weighted input nor the weighted matrix is in the graph; their products are, when they are
// divided.
void moved_weights_are_invented(void**) {
  const Values values(kNormGraph, R"(mugraph norm
in x: f16[16, 1024]
in g: f16[1024]
in w: f16[1024, 512]
tensor z: f16[16, 512]
kernel grid=[8] loop=4 threads=128 {
  x0 = load(x, loop=1)
  g0 = load(g, loop=0)
  w0 = load(w, x=1, loop=0)
  xg = mul(x0, g0)
  p = matmul(xg, w0)
  plain = matmul(x0, w0)
  s = square(x0)
  r = sum(s, axis=[1], keepdims=true)
  a = accumulate_sum(p)
  unused = accumulate_sum(plain)
  q = accumulate_sum(r)
  k = extent(x[1])
  mean = div(q, k)
  shifted = add(mean, 1e-05)
  rms = sqrt(shifted)
  y = div(a, rms)
  store(y, z, x=1)
}
out z
)");
  assert_text_equal(values.rounds_to("x0"), "f16");
  assert_text_equal(values.rounds_to("xg"), "none");
  assert_text_equal(values.rounds_to("a"), "none");
  assert_text_equal(values.rounds_to("y"), "f16");
  assert_text_equal(values.product("p"), "f32");
  assert_text_equal(values.product("plain"), "f16");
}

// The normed input is, however it is written.
void normed_inputs_are_values_of_the_graph(void**) {
  const Values values(kNormGraph, R"(mugraph norm
in x: f16[16, 1024]
in g: f16[1024]
in w: f16[1024, 512]
tensor z: f16[16, 512]
kernel grid=[8] loop=1 threads=128 {
  x0 = load(x)
  g0 = load(g)
  w0 = load(w, x=1)
  s = square(x0)
  r = sum(s, axis=[1], keepdims=true)
  k = extent(x[1])
  mean = div(r, k)
  shifted = add(mean, 1e-05)
  rms = sqrt(shifted)
  quotient = div(g0, rms)
  y = mul(quotient, x0)
  p = matmul(y, w0)
  store(p, z, x=1)
}
out z
)");
  assert_text_equal(values.rounds_to("quotient"), "none");
  assert_text_equal(values.rounds_to("y"), "f16");
  assert_text_equal(values.product("p"), "f16");
}

// Integers of a field are hardly ever equal: masks are zero everywhere, as are others in f32 then. Neither says in which dtype a
// product is; what is negated is as narrow as before.
void zeros_say_nothing_of_their_dtype(void**) {
  const Values values(R"(graph looked_up
in c: i32[64, 32]
in x: f16[16, 64]
l = eq(c, 3)
m = cast(l, dtype=f16)
z = matmul(x, m)
n = neg(x)
y = matmul(n, m)
g = cast(l, dtype=f32)
s = sum(g, axis=0)
out z
out y
out s
)",
                      R"(mugraph looked_up
in c: i32[64, 32]
in x: f16[16, 64]
tensor z: f16[16, 32]
tensor y: f16[16, 32]
tensor s: f32[32]
kernel grid=[2] threads=128 {
  c0 = load(c, x=1)
  x0 = load(x)
  l = eq(c0, 3)
  m = cast(l, dtype=f16)
  p = matmul(x0, m)
  store(p, z, x=1)
  n = neg(x0)
  q = matmul(n, m)
  store(q, y, x=1)
  g = cast(l, dtype=f32)
  s0 = sum(g, axis=[0])
  store(s0, s, x=0)
}
out z
out y
out s
)");
  assert_text_equal(values.product("p"), "f16");
  assert_text_equal(values.product("q"), "f16");
}

const char kAttentionGraph[] = R"(graph attention
in q: TYPE[2, 64, 32]
in k: TYPE[2, 32, 64]
in v: TYPE[2, 64, 32]
s = matmul(q, k)
t = mul(s, 0.125)
p = softmax(t)
o = matmul(p, v)
out o
)";
const char kAttention[] = R"(mugraph attention
in q: TYPE[2, 64, 32]
in k: TYPE[2, 32, 64]
in v: TYPE[2, 64, 32]
tensor o: TYPE[2, 64, 32]
kernel grid=[2] loop=4 threads=128 {
  q0 = load(q, x=0)
  k0 = load(k, x=0, loop=2)
  v0 = load(v, x=0, loop=1)
  s = matmul(q0, k0)
  t = mul(s, 0.125)
  top = max(OF, axis=[2], keepdims=true)
  m = accumulate_max(top)
  d = sub(t, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  pv = matmul(e, v0)
  n = accumulate_rescaled(pv, m)
  y = div(n, l)
  store(y, o, x=0)
}
out o
)";

void numerators_of_a_softmax_are_narrow(void**) {
  for (const std::string type : {"f16", "bf16", "f32"}) {
    const Values values(with(kAttentionGraph, "TYPE", type), with(with(kAttention, "TYPE", type), "OF", "t"));
    const std::string narrow = type == "f32" ? "none" : type;
    assert_text_equal(values.rounds_to("t"), narrow);
    assert_text_equal(values.rounds_to("e"), "none");
    assert_text_equal(values.narrow("e"), narrow);
    assert_text_equal(values.rounds_to("y"), narrow);
    assert_text_equal(values.product("s"), narrow);
    assert_text_equal(values.product("pv"), narrow);
    assert_text_equal(values.product("pv", true), type == "f32" ? "f32" : narrow);
  }
}

// Over scores in f32, too, if their softmax is rounded in front of its product.
void numerators_are_as_narrow_as_the_softmax(void**) {
  const std::string graph = with(
      with(kAttentionGraph, "TYPE", "bf16"), "t = mul(s, 0.125)\np = softmax(t)\n",
               "f = cast(s, dtype=f32)\nt = mul(f, 0.125)\nr = softmax(t)\np = cast(r, dtype=bf16)\n");
  const Values values(graph, with(with(kAttention, "TYPE", "bf16"), "OF", "t"));
  assert_text_equal(values.rounds_to("t"), "none");
  assert_text_equal(values.narrow("t"), "none");
  assert_text_equal(values.narrow("e"), "bf16");
  assert_text_equal(values.product("pv"), "bf16");
}

const char kCastNorm[] = R"(graph norm
in x: f16[16, 64]
in g: f16[64]
in w: f16[64, 32]
GRAPH
out z
)";
const char kCastNormMoved[] = R"(mugraph norm
in x: f16[16, 64]
in g: f16[64]
in w: f16[64, 32]
tensor z: TYPE[16, 32]
kernel grid=[2] threads=128 {
  x0 = load(x, x=0)
  g0 = load(g)
  w0 = load(w)
  xg = mul(x0, g0)
  p = matmul(xg, w0)
  plain = matmul(x0, w0)
  s = square(x0)
  r = sum(s, axis=[1], keepdims=true)
  rms = rsqrt(r)
  n = mul(p, rms)
  m = mul(plain, rms)
  y = add(n, m)
  store(y, z, x=0)
}
out z
)";

// The unfused program multiplies f32 numbers, so operands are not rounded to tf32, but for what has 16 bits.
void products_in_f32_round_nothing(void**) {
  const std::string norm = "s = square(f)\nr = sum(s, axis=1, keepdims=true)\nq = rsqrt(r)\nn = mul(f, q)\n";
  auto product = [&](const std::string& name, const std::string& type, const std::string& from) {
    return Values(with(kCastNorm, "GRAPH", "f = cast(x, dtype=f32)\n" + norm + from),
                  with(kCastNormMoved, "TYPE", type))
        .product(name);
  };
  const std::string sum = "a = mul(n, g)\nb = matmul(a, w)\nc = matmul(n, w)\nz = add(b, c)";
  assert_text_equal(product("p", "f32", sum), "none");
  assert_text_equal(product("plain", "f32", sum), "f16");
  const std::string rounded =
      "h = cast(n, dtype=f16)\na = mul(h, g)\nb = matmul(a, w)\nc = matmul(h, w)\nz = add(b, c)";
  assert_text_equal(product("p", "f16", rounded), "f32");
}

// A value that the graph rounds in front of products only, and the muGraph rounds for one of them and not for another.
void what_is_rounded_for_products_is_known(void**) {
  const Values values(
      "graph g\nin x: f32[16, 64]\nin g: bf16[64]\nin w: bf16[64, 32]\nh = cast(x, dtype=bf16)\nn = mul(h, "
      "g)\n"
      "y = matmul(n, w)\nq = square(y)\nz = matmul(n, w)\no = add(q, z)\nout o\n",
      "mugraph g\nin x: f32[16, 64]\nin g: bf16[64]\nin w: bf16[64, 32]\ntensor o: bf16[16, 32]\n"
      "kernel grid=[4] {\nx0 = load(x, x=0)\ng0 = load(g)\nw0 = load(w)\nh = cast(x0, dtype=bf16)\nn = "
      "mul(h, g0)\n"
      "y = matmul(n, w0)\nq = square(y)\nm = mul(x0, g0)\nz = matmul(m, w0)\no0 = add(q, z)\n"
      "store(o0, o, x=0)\n}\nout o\n");
  assert_text_equal(values.product("y"), "bf16");
  assert_text_equal(values.product("z"), "bf16");
}

void numerators_of_f32_quotients_are_not_rounded(void**) {
  for (const std::string rounded : {"f32", "f16"}) {
    std::string graph = with(kAttentionGraph, "TYPE", "f16");
    graph = with(graph, "softmax(t)", "softmax(f)\nh = cast(p, dtype=" + rounded + ")");
    graph = with(graph, "p = softmax", "f = cast(t, dtype=f32)\np = softmax");
    graph = with(graph, "matmul(p, v)", "matmul(h, v)");
    std::string mugraph = with(with(kAttention, "TYPE", "f16"), "OF", "t");
    mugraph = with(mugraph, "tensor o: f16", "tensor o: " + rounded);
    assert_text_equal(Values(graph, mugraph).product("pv"), rounded == "f16" ? "f16" : "none");
    assert_text_equal(Values(graph, mugraph).product("s"), "f16");
  }
}

// Of scores below 0 the eighths are larger than the largest.
void exponentials_above_one_are_not(void**) {
  const Values values(with(kAttentionGraph, "TYPE", "f16"), with(with(kAttention, "TYPE", "f16"), "OF", "s"));
  assert_text_equal(values.narrow("e"), "none");
  assert_text_equal(values.product("pv"), "f32");
}

void numbers_must_be_representable(void**) {
  for (const std::string number : {"-inf", "0.5", "0.1"}) {
    const Values values(R"(graph masked
in c: bool[16, 32]
in x: f16[16, 32]
in w: f16[32, 16]
y = matmul(x, w)
out y
)",
                        with(R"(mugraph masked
in c: bool[16, 32]
in x: f16[16, 32]
in w: f16[32, 16]
tensor y: f16[16, 16]
kernel grid=[1] loop=1 threads=32 {
  c0 = load(c)
  x0 = load(x)
  w0 = load(w)
  a = where(c0, x0, NUMBER)
  p = matmul(a, w0)
  store(p, y)
}
out y
)",
                             "NUMBER", number));
    assert_text_equal(values.narrow("a"), number == "0.1" ? "none" : "f16");
  }
}

// ---- numerators (core/mugraph/numerators.h) ----

// `tail` makes the output of n and l; `last` is its expression in the graph, of the product o.
std::vector<int> downs(const std::string& dtype, const std::string& shape, const std::string& last,
                       const std::string& tail) {
  auto with_dtype = [&](const std::string& text) { return with(text, "TYPE", dtype); };
  const Graph graph =
      graph_of(with_dtype("graph a\nin s: TYPE[16, 64]\nin v: TYPE[64, 8]\nm = max(s, axis=1, "
                          "keepdims=true)\nd = sub(s, m)\ne = exp(d)\nl = sum(e, axis=1, "
                          "keepdims=true)\n" +
                          last + "\nout z\n"));
  MuGraph mugraph = mugraph_of(with_dtype(
      "mugraph a\nin s: TYPE[16, 64]\nin v: TYPE[64, 8]\ntensor z: TYPE" + shape +
      "\nkernel grid=[2] loop=4 {\ns0 = load(s, x=0, loop=1)\nv0 = load(v, loop=0)\nt = max(s0, axis=[1], "
      "keepdims=true)\nm = accumulate_max(t)\nd = sub(s0, m)\ne = exp(d)\nr = sum(e, axis=[1], "
      "keepdims=true)\nl = accumulate_rescaled(r, m)\np = matmul(e, v0)\nn = accumulate_rescaled(p, m)\n" +
      tail + "\nstore(y, z, x=0)\n}\nout z\n"));
  note_rounded_values(graph, mugraph);
  std::vector<int> found;
  for (const MuKernel& kernel : mugraph.kernels)
    for (const BlockOp& op : kernel.ops)
      if (op.is_compute(OpCode::exp)) found.push_back(op.down);
  return found;
}

void numerators_are_scaled_where_sums_overflow(void**) {
  const std::string normed = "p = div(e, l)\nz = matmul(p, v)", product = "z = matmul(e, v)";
  for (const std::string dtype : {"bf16", "f32"}) {
    // Of 64 keys, and one more for rounding.
    assert_true(downs(dtype, "[16, 8]", normed, "y = div(n, l)") == std::vector<int>{7});
    assert_true(downs(dtype, "[16, 8]", normed, "c = reciprocal(l)\nw = mul(n, c)\ny = relu(w)") ==
                std::vector<int>{7});
    // An output would be seen scaled.
    assert_true(downs(dtype, "[16, 8]", product, "y = neg(n)") == std::vector<int>{0});
    assert_true(downs(dtype, "[16, 8]", product, "g = log(l)\nh = div(n, l)\ny = add(g, h)") ==
                std::vector<int>{0});
    assert_true(downs(dtype, "[16, 8]", product, "h = div(n, l)\ny = add(n, h)") == std::vector<int>{0});
  }
  // 64 times the largest f16 is no large f32.
  assert_true(downs("f16", "[16, 8]", normed, "y = div(n, l)") == std::vector<int>{0});
}

// Splits of the keys add up once more, behind their own maximum, which has one dimension less.
void sums_of_splits_are_scaled_again(void**) {
  MuGraph mugraph = mugraph_of(R"(mugraph g
in s: bf16[16, 64]
in v: bf16[64, 8]
tensor m: f32[8, 16, 1]
tensor l: f32[8, 16, 1]
tensor n: f32[8, 16, 8]
tensor o: bf16[16, 8]
kernel grid=[8] threads=128 {
  s0 = load(s, x=1)
  v0 = load(v, x=0)
  m0 = max(s0, axis=[1], keepdims=true)
  d = sub(s0, m0)
  e = exp(d)
  l0 = sum(e, axis=[1], keepdims=true)
  n0 = matmul(e, v0)
  m1 = reshape(m0, shape=[1, 16, 1])
  store(m1, m, x=0)
  l1 = reshape(l0, shape=[1, 16, 1])
  store(l1, l, x=0)
  n1 = reshape(n0, shape=[1, 16, 8])
  store(n1, n, x=0)
}
kernel grid=[1] threads=128 {
  m0 = load(m)
  l0 = load(l)
  n0 = load(n)
  top = max(m0, axis=[0], keepdims=false)
  d = sub(m0, top)
  e = exp(d)
  le = mul(l0, e)
  ls = sum(le, axis=[0], keepdims=false)
  ne = mul(n0, e)
  ns = sum(ne, axis=[0], keepdims=false)
  y = div(ns, ls)
  store(y, o)
}
out o
)");
  note_rounded_values(
      graph_of("graph g\nin s: bf16[16, 64]\nin v: bf16[64, 8]\np = softmax(s)\no = matmul(p, v)\nout o\n"),
      mugraph);
  std::vector<int> downs;
  for (const MuKernel& kernel : mugraph.kernels)
    for (const BlockOp& op : kernel.ops)
      if (op.is_compute(OpCode::exp)) downs.push_back(op.down);
  assert_true((downs == std::vector<int>{4, 4}));  // 8 keys of a split, and 8 splits
}

// They would be evaluated on inputs that are too small for them.
void programs_of_other_inputs_are_left_alone(void**) {
  const std::string text = "mugraph g\nin x: bf16[17, 8]\ntensor y: bf16[17, 8]\nkernel grid=[5] {\nv0 = load(x, x=0)\n"
                           "v1 = relu(v0)\nstore(v1, y, x=0)\n}\nout y\n";
  for (const std::string shape : {"[17, 8]", "[16, 8]", "[17, 1]"}) {
    MuGraph mugraph = mugraph_of(text);
    note_rounded_values(graph_of("graph g\nin x: bf16" + shape + "\ny = relu(x)\nout y\n"), mugraph);
    assert_int_equal(mugraph.noted, shape == "[17, 8]");
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(programs_of_other_inputs_are_left_alone),
                              cmocka_unit_test(moved_weights_are_invented),
                              cmocka_unit_test(normed_inputs_are_values_of_the_graph),
                              cmocka_unit_test(zeros_say_nothing_of_their_dtype),
                              cmocka_unit_test(numerators_of_a_softmax_are_narrow),
                              cmocka_unit_test(numerators_are_as_narrow_as_the_softmax),
                              cmocka_unit_test(exponentials_above_one_are_not),
                              cmocka_unit_test(numbers_must_be_representable),
                              cmocka_unit_test(products_in_f32_round_nothing),
                              cmocka_unit_test(what_is_rounded_for_products_is_known),
                              cmocka_unit_test(numerators_of_f32_quotients_are_not_rounded),
                              cmocka_unit_test(numerators_are_scaled_where_sums_overflow),
                              cmocka_unit_test(sums_of_splits_are_scaled_again)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
