// The verifier: what it must accept, what it must reject, and what its certificate says.
#include "core/verify/verifier.h"

#include <set>

#include "core/mugraph/mirage.h"
#include "core/verify/evaluate_mugraph.h"
#include "core/verify/field.h"
#include "core/verify/pull_mugraph.h"
#include "tests/mugraph/files.h"
#include "tests/verify/published.h"

using namespace quern;

namespace {

void assert_verdict(const Certificate& certificate, Verdict verdict, std::string_view reason = "") {
  if (certificate.verdict != verdict) fail_test(certificate.print());
  assert_contains(certificate.reason, reason);
}

void accepts_every_hand_written_file(void**) {
  for (const MuGraphFile& file : mugraph_files()) {
    const Certificate certificate = verify(file.graph, file.mugraph);
    if (certificate.verdict != Verdict::accepted) fail_test(file.name + ":\n" + certificate.print());
    assert_true(certificate.seeds.size() >= 2);
    assert_true(certificate.error_bound <= 1e-9);
    assert_true(certificate.elements > 0);
    assert_true(!certificate.shrunk || certificate.samples >= 1);
  }
}

// DESIGN section 6: attention in which K is never contracted with Q. Every row of the scores is K's row i/2
// times a factor of the row; the softmax hides a part of the difference, and the verifier must not be fooled.
void rejects_the_wrong_attention(void**) {
  const Graph graph = graph_of(
      "graph qk\nin q: f16[1, 4, 2]\nin k: f16[1, 2, 8]\nin v: f16[1, 8, 3]\nnq = rms_norm(q, eps=0)\nnv = "
      "rms_norm(v, eps=0)\ns = matmul(nq, k)\np = softmax(s)\no = matmul(p, nv)\nout o\n");
  const MuGraph wrong = mugraph_of(
      "mugraph wrong\nin q: f16[1, 4, 2]\nin k: f16[1, 2, 8]\nin v: f16[1, 8, 3]\ntensor p: f16[1, 4, "
      "8]\ntensor n: "
      "f16[1, 8, 3]\ntensor o: f16[1, 4, 3]\nkernel grid=[1, 2] {\nq0 = load(q, x=0, y=1)\nk0 = load(k, x=0, "
      "y=1)\nv0 = "
      "load(v, x=0, y=1)\nnq = rms_norm(q0, axis=2, eps=0)\nt = sum(nq, axis=2, keepdims=true)\ns = mul(k0, "
      "t)\ne = "
      "exp(s)\nr = sum(e, axis=2, keepdims=true)\ny = div(e, r)\nnv = rms_norm(v0, axis=2, eps=0)\nstore(y, "
      "p, x=0, "
      "y=1)\nstore(nv, n, x=0, y=1)\n}\no = matmul(p, n)\nout o\n");
  assert_verdict(verify(graph, wrong), Verdict::rejected, "output 0 [0, 0, 0] differs");
}

// Not only in front of a trial: one trial of a large instance may take a second.
void stops_in_the_middle_of_a_trial(void**) {
  const Graph graph = graph_of("graph g\nin x: f32[256, 256]\ny = square(x)\nout y\n");
  const MuGraph mugraph = mugraph_of(
      "mugraph g\nin x: f32[256, 256]\ntensor y: f32[256, 256]\nkernel grid=[4] {\nx0 = load(x, x=0)\n"
      "e = square(x0)\nstore(e, y, x=0)\n}\nout y\n");
  int asked = 0;
  VerifyOptions options;
  options.whole_work = 1e6;
  options.stop = [&] { return ++asked == 100; };  // once is enough
  assert_verdict(verify(graph, mugraph, options), Verdict::undecided, "stopped before all trials");
  assert_int_equal(asked, 100);
  asked = -1'000'000;
  const Certificate whole = verify(graph, mugraph, options);
  assert_verdict(whole, Verdict::accepted);
  const int trials = static_cast<int>(whole.seeds.size()) + whole.ordered_trials;
  assert_true(asked + 1'000'000 > 50 * trials);
}

// It would take 32 TiB.
void what_nobody_reads_is_not_drawn(void**) {
  const Graph graph = graph_of("graph g\nin x: f32[8]\nin dead: f32[1048576, 1048576]\ny = exp(x)\nout y\n");
  const MuGraph mugraph = mugraph_of(
      "mugraph g\nin x: f32[8]\nin dead: f32[1048576, 1048576]\ntensor y: f32[8]\nkernel grid=[1] {\n"
      "x0 = load(x)\ne = exp(x0)\nstore(e, y)\n}\nout y\n");
  assert_verdict(verify(graph, mugraph), Verdict::accepted);
}

// A rescaling that is forgotten shows only when the maximum moves from one iteration to the next: in half of
// the trials here, where there is a single row.
void rejects_a_forgotten_rescaling_of_one_row(void**) {
  const Graph graph =
      graph_of("graph g\nin s: f32[1, 2]\nin v: f32[2, 1]\np = softmax(s)\no = matmul(p, v)\nout o\n");
  const std::string head =
      "mugraph g\nin s: f32[1, 2]\nin v: f32[2, 1]\ntensor o: f32[1, 1]\nkernel loop=2 {\na = load(s, "
      "loop=1)\nb = "
      "load(v, loop=0)\nt = max(a, axis=1, keepdims=true)\nm = accumulate_max(t)\nd = sub(a, m)\ne = "
      "exp(d)\nr = sum(e, "
      "axis=1, keepdims=true)\nl = accumulate_rescaled(r, m)\nw = matmul(e, b)\nn = ";
  const std::string tail = "\ny = div(n, l)\nstore(y, o)\n}\nout o\n";
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    VerifyOptions options;
    options.seed = seed;
    assert_verdict(verify(graph, mugraph_of(head + "accumulate_sum(w)" + tail), options), Verdict::rejected);
  }
  const Certificate right = verify(graph, mugraph_of(head + "accumulate_rescaled(w, m)" + tail));
  assert_verdict(right, Verdict::accepted);
  assert_true(right.ordered_trials >= 12 && right.unknown == 0);
}

// A product with one column as a sum: what is rounded in front of it keeps precision as in front of products.
void accepts_sums_for_products_of_rounded_values(void**) {
  const Graph graph = graph_of(
      "graph g\nin x: f32[64, 2048]\nin g: bf16[2048]\nin w: bf16[2048, 1]\nh = cast(x, dtype=bf16)\nn = "
      "mul(g, h)\n"
      "y = matmul(n, w)\nout y\n");
  const std::string head =
      "mugraph g\nin x: f32[64, 2048]\nin g: bf16[2048]\nin w: bf16[2048, 1]\ntensor h: bf16[64, 2048]\n"
      "tensor n: bf16[64, 2048]\ntensor r: bf16[2048]\ntensor y: bf16[64, 1]\nh = cast(x, dtype=bf16)\n"
      "n = mul(g, h)\nr = reshape(w, shape=[2048])\nkernel grid=[64] {\na = load(n, x=0)\nb = load(r)\n";
  const std::string tail = "s = sum(p, axis=[1], keepdims=true)\nstore(s, y, x=0)\n}\nout y\n";
  assert_verdict(verify(graph, mugraph_of(head + "p = mul(a, b)\n" + tail)), Verdict::accepted);
  assert_verdict(verify(graph, mugraph_of(head + "p = add(a, b)\n" + tail)), Verdict::rejected, "differs");
}

void rejects_another_interface(void**) {
  const Graph graph = graph_of("graph g\nin x: f32[4]\ny = exp(x)\nout y\n");
  assert_verdict(verify(graph, mugraph_of("mugraph g\nin x: f32[5]\ntensor y: f32[5]\ny = exp(x)\nout y\n")),
                 Verdict::rejected, "input 0 has shape [5] instead of [4]");
  assert_verdict(
      verify(graph, mugraph_of("mugraph g\nin x: f32[4]\ntensor y: f32[4]\ny = exp(x)\nout y, y\n")),
      Verdict::rejected, "2 outputs instead of 1");
}

void what_only_f64_knows_is_undecided(void**) {
  const std::string head = "in x: f32[4]\ntensor y: f32[4]\n";
  const Certificate certificate =
      verify(graph_of("graph g\nin x: f32[4]\ns = square(x)\ny = sqrt(s)\nout y\n"),
             mugraph_of("mugraph g\n" + head + "y = abs(x)\nout y\n"));
  assert_verdict(certificate, Verdict::undecided, "everything agrees in f64");
  assert_verdict(verify(graph_of("graph g\nin x: f32[4]\ns = square(x)\ny = sqrt(s)\nout y\n"),
                        mugraph_of("mugraph g\n" + head + "y = neg(x)\nout y\n")),
                 Verdict::rejected, "differs");
}

// A mean over 4096 with the number written out is right at the full shape, and at no other.
void numbers_that_stand_for_extents_are_undecided(void**) {
  const Graph graph = graph_of("graph g\nin x: f32[64, 4096]\nz = mean(x, axis=1, keepdims=true)\nout z\n");
  auto divided_by = [](const std::string& count) {
    return mugraph_of(
        "mugraph g\nin x: f32[64, 4096]\ntensor z: f32[64, 1]\nkernel grid=[8] loop=4 {\na = load(x, x=0, "
        "loop=1)\nb = "
        "sum(a, axis=1, keepdims=true)\nc = accumulate_sum(b)\nd = div(c, " +
        count + ")\nstore(d, z, x=0)\n}\nout z\n");
  };
  assert_verdict(verify(graph, divided_by("4096")), Verdict::undecided, "may stand for extents");
  assert_verdict(verify(graph, divided_by("1024")), Verdict::rejected, "at the full shape");
  assert_verdict(verify(graph, divided_by("4095.5")), Verdict::rejected, "on the small instance");
}

// Values between operators have extents of their own in both programs; small ones must be split alike.
void heads_split_by_library_operators(void**) {
  const std::string inputs = "in x: f16[64, 512]\nin w: f16[512, 1536]\n",
                    slices =
                        "q = slice(h, stop=[64, 512])\nk = slice(h, start=[0, 512], stop=[64, 1024])\n"
                        "v = slice(h, start=[0, 1024])\n",
                    heads = "a = reshape(q, shape=[64, 8, 64])\nb = reshape(k, shape=[64, 8, 64])\n",
                    both = "d = concat(k, q, axis=1)\n",
                    rest =
                        "e = reshape(d, shape=[64, 16, 64])\nf = softmax(e, axis=2)\n"
                        "g = reshape(f, shape=[64, 1024])\nr = reshape(t, shape=[64, 512])\n",
                    outputs = "out r, g, v\n";
  const Graph graph = graph_of("graph g\n" + inputs + "h = matmul(x, w)\n" + slices + heads +
                               "c = mul(a, b)\nt = softmax(c, axis=2)\n" + both + rest + outputs);
  const std::string tensors =
      "tensor h: f16[64, 1536]\ntensor q: f16[64, 512]\ntensor k: f16[64, 512]\ntensor v: f16[64, 512]\n"
      "tensor r: f16[64, 512]\ntensor d: f16[64, 1024]\ntensor e: f16[64, 16, 64]\ntensor f: f16[64, 16, "
      "64]\n"
      "tensor g: f16[64, 1024]\n";
  const std::string product =
      "kernel grid=[16, 4] loop=2 {\ni = load(x, y=0, loop=1)\nj = load(w, x=1, loop=0)\nm = matmul(i, j)\n"
      "n = accumulate_sum(m)\nstore(n, h, x=1, y=0)\n}\n";
  auto program = [&](const std::string& shape, int axis, const std::string& joined) {
    const std::string of_heads =
                          "tensor a: f16" + shape + "\ntensor b: f16" + shape + "\ntensor t: f16" + shape,
                      map = "x=0, y=" + std::to_string(3 - axis);
    return mugraph_of("mugraph g\n" + inputs + tensors + of_heads + "\n" + product + slices +
                      "a = reshape(q, shape=" + shape + ")\nb = reshape(k, shape=" + shape +
                      ")\nkernel grid=[8, 8] {\ni = load(a, " + map + ")\nj = load(b, " + map +
                      ")\nm = mul(i, j)\nn = softmax(m, axis=" + std::to_string(axis) + ")\nstore(n, t, " +
                      map + ")\n}\n" + joined + rest + outputs);
  };
  const Certificate right = verify(graph, program("[64, 8, 64]", 2, both));
  assert_verdict(right, Verdict::accepted);
  assert_true(right.shrunk);
  // Heads that lie the other way, and halves the wrong way round.
  assert_verdict(verify(graph, program("[64, 64, 8]", 1, both)), Verdict::rejected, "output 0");
  assert_verdict(verify(graph, program("[64, 8, 64]", 2, "d = concat(q, k, axis=1)\n")), Verdict::rejected,
                 "output 1");
}

void divisions_by_zero(void**) {
  const Graph graph = graph_of("graph g\nin x: f32[4]\ny = exp(x)\nout y\n");
  const MuGraph divides = mugraph_of(
      "mugraph g\nin x: f32[4]\ntensor y: f32[4]\nkernel grid=[2] {\na = load(x, x=0)\nz = sub(a, a)\nb = "
      "div(a, "
      "z)\nstore(b, y, x=0)\n}\nout y\n");
  const Certificate certificate = verify(graph, divides);
  assert_verdict(certificate, Verdict::rejected, "the muGraph divides by zero where the graph does not");
  assert_true(certificate.redrawn > 1);
  assert_verdict(verify(graph_of("graph g\nin x: f32[4]\nz = sub(x, x)\ny = div(x, z)\nout y\n"), divides),
                 Verdict::undecided, "the graph divides by zero");
}

void blocks_that_disagree_are_rejected(void**) {
  const Graph graph = graph_of("graph g\nin x: f32[8]\ny = sum(x, keepdims=true)\nout y\n");
  const std::string head =
      "mugraph g\nin x: f32[8]\ntensor y: f32[1]\nkernel cluster=2 {\na = load(x, cluster=0)\nb = ";
  const std::string tail = "store(b, y)\n}\nout y\n";
  assert_verdict(verify(graph, mugraph_of(head + "sum(a, axis=0, keepdims=true)\n" + tail)),
                 Verdict::rejected, "different values to the same place");
  assert_verdict(
      verify(graph, mugraph_of(head + "sum(a, axis=0, keepdims=true)\nc = cluster_sum(b)\nstore(c, "
                                      "y)\n}\nout y\n")),
      Verdict::accepted);
}

void too_complicated_is_undecided(void**) {
  std::string graph = "graph g\nin x: f32[4]\nv0 = square(x)\n", mugraph = "mugraph g\nin x: f32[4]\n";
  for (int i = 1; i < 40; ++i)
    graph += "v" + std::to_string(i) + " = square(v" + std::to_string(i - 1) + ")\n";
  for (int i = 0; i < 40; ++i) mugraph += "tensor v" + std::to_string(i) + ": f32[4]\n";
  mugraph += "v0 = square(x)\n";
  for (int i = 1; i < 40; ++i)
    mugraph += "v" + std::to_string(i) + " = square(v" + std::to_string(i - 1) + ")\n";
  assert_verdict(verify(graph_of(graph + "out v39\n"), mugraph_of(mugraph + "out v39\n")), Verdict::undecided,
                 "too complicated");
}

void the_seed_fixes_everything(void**) {
  const Graph graph = graph_named("rmsnorm_b1");
  const MuGraph mugraph =
      mugraph_of(read_test_file(test_root() / "tests/golden/mugraph/rmsnorm_b1-cluster.qmu"));
  VerifyOptions options;
  options.seed = 7;
  options.trials = 3;
  const std::string text = verify(graph, mugraph, options).print();
  assert_text_equal(text, verify(graph, mugraph, options).print());
  for (const char* line : {"verdict: accepted\n", "graph: rmsnorm_b1\n", "mugraph: rmsnorm_b1_cluster\n",
                           "mod p = 2q + 1 and q, exp(x) = w^x", "primes q: ", "seed: 7\n",
                           "inputs: x: f16[2, ", "shrunk: true\n", "seeds of trials: 7191089600892374487; ",
                           "ordered trials: 4\n", "error bound: ", "elements at the full shape: 7\n"})
    assert_contains(text, line);
  options.seed = 8;
  assert_true(text != verify(graph, mugraph, options).print());
  options.sample_budget = 0;
  assert_contains(verify(graph, mugraph, options).print(), "at the full shape: left out by request");
}

// The pairs of tests/golden/wrong: wrong in algebra, for some outcome of a condition, for integers that wrap,
// in a dtype, or where something is NaN. Some are wrong in arithmetic only: a variance as E[x^2] - E[x]^2, a
// bias that is multiplied out, and what overflows where the graph does not.
void wrong_mugraphs_are_not_accepted(void**) {
  const std::filesystem::path folder = test_root() / "tests/golden/wrong";
  const std::set<std::string> only_in_arithmetic = {"bias-multiplied-out",
                                                    "var-E2",
                                                    "factor-behind-product-bf16",
                                                    "product-order-f32",
                                                    "factor-in-front-of-product-f32",
                                                    "overflowing-factor-in-sum"};
  int wrong = 0, right = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".qmu") continue;
    std::filesystem::path of = entry.path();
    const Graph graph = graph_of(read_test_file(of.replace_extension(".qg")));
    const bool is_right = entry.path().parent_path() != folder || only_in_arithmetic.contains(of.stem());
    ++(is_right ? right : wrong);
    for (uint64_t seed = 1; seed < 4; ++seed) {
      VerifyOptions options;
      options.seed = seed;
      const Certificate certificate = verify(graph, mugraph_of(read_test_file(entry.path())), options);
      if ((certificate.verdict == Verdict::accepted) != is_right)
        fail_test(entry.path().string() + ":\n" + certificate.print());
    }
  }
  assert_true(wrong >= 20 && right >= 7);
}

// A branch that is hardly ever taken must have been seen before anything is accepted.
void rare_branches_are_undecided(void**) {
  std::string inputs, loads, graph, mugraph, last = "b";
  for (int i = 0; i < 30; ++i) {
    const std::string n = std::to_string(i);
    inputs += "in p" + n + ": bool[1, 1]\n";
    loads += "q" + n + " = load(p" + n + ")\n";
    graph += "h" + n + " = where(p" + n + ", " + last + ", a)\n";
    mugraph += "h" + n + " = where(q" + n + ", " + (last == "b" ? "d" : last) + ", c)\n";
    last = "h" + n;
  }
  inputs += "in a: f32[4, 4]\nin b: f32[4, 4]\n";
  const Graph wanted = graph_of("graph g\n" + inputs + graph + "out " + last + "\n");
  auto given = [&](const std::string& d) {
    return mugraph_of("mugraph g\n" + inputs + "tensor o: f32[4, 4]\nkernel grid=[2] {\n" + loads +
                      "c = load(a, x=0)\ne = load(b, x=0)\n" + d + mugraph + "store(" + last +
                      ", o, x=0)\n}\nout o\n");
  };
  assert_verdict(verify(wanted, given("d = mul(e, 2)\n")), Verdict::undecided, "no trial shows the ");
  assert_verdict(verify(wanted, given("d = mul(e, 1)\n")), Verdict::undecided, "in an output");
}

void dtypes_are_part_of_the_interface(void**) {
  const Graph graph = graph_of("graph g\nin x: f32[4]\ny = exp(x)\nout y\n");
  assert_verdict(verify(graph, mugraph_of("mugraph g\nin x: f16[4]\ntensor y: f32[4]\ny = exp(x)\nout y\n")),
                 Verdict::rejected, "input 0 has dtype f16 instead of f32");
  assert_verdict(verify(graph, mugraph_of("mugraph g\nin x: f32[4]\ntensor y: f16[4]\ny = exp(x)\nout y\n")),
                 Verdict::rejected, "output 0 has dtype f16 instead of f32");
}

// Between kernels f16 holds what the graph has in f16, and nothing else.
void rounded_tensors_hold_values_of_the_graph(void**) {
  auto graph = [](const std::string& dtype) {
    return graph_of("graph g\nin x: " + dtype + "[4, 4]\na = exp(x)\nb = sum(a, axis=1)\nout b\n");
  };
  auto mugraph = [](const std::string& dtype, const std::string& first, const std::string& second) {
    return mugraph_of("mugraph g\nin x: " + dtype + "[4, 4]\ntensor t: f16[4, 4]\ntensor b: " + dtype +
                      "[4]\nkernel grid=[2] {\nl = load(x, x=0)\n" + first +
                      "store(m, t, x=0)\n}\nkernel grid=[2] {\nm = load(t, x=0)\n" + second +
                      "store(s, b, x=0)\n}\nout b\n");
  };
  const std::string sum = "s = sum(m, axis=1, keepdims=false)\n",
                    later = "e = square(m)\ns = sum(e, axis=1, keepdims=false)\n";
  assert_verdict(verify(graph("f16"), mugraph("f16", "m = exp(l)\n", sum)), Verdict::accepted);
  assert_verdict(verify(graph("f16"), mugraph("f16", "h = mul(l, 0.5)\nm = exp(h)\n", later)),
                 Verdict::rejected, "holds values that the graph does not have in f16");
  assert_verdict(verify(graph("f32"), mugraph("f32", "m = exp(l)\n", sum)), Verdict::rejected,
                 "holds values that the graph does not have in f16");
}

// What a graph need not round in front of a product, kernels may, also one kernel ahead; what it rounds, they must.
void casts_in_front_of_products(void**) {
  const std::string inputs = "in x: f32[8, 8]\nin w: bf16[8, 8]\n";
  const Graph graph =
      graph_of("graph g\n" + inputs + "s = mul(x, 3)\nc = cast(s, dtype=bf16)\ny = matmul(c, w)\nout y\n");
  auto mugraph = [&](const std::string& body) {
    return mugraph_of("mugraph g\n" + inputs + "tensor c: bf16[8, 8]\ntensor y: bf16[8, 8]\n" + body +
                      "out y\n");
  };
  auto casting = [](const std::string& number) {
    return "kernel grid=[2] {\na = load(x, x=0)\nb = mul(a, " + number +
           ")\nd = cast(b, dtype=bf16)\nstore(d, c, x=0)\n}\n";
  };
  const std::string product =
      "kernel grid=[2] {\na = load(c, x=0)\nb = load(w)\nd = matmul(a, b)\nstore(d, y, x=0)\n}\n";
  assert_verdict(verify(graph, mugraph(casting("3") + product)), Verdict::accepted);
  assert_verdict(verify(graph, mugraph(casting("3") + "y = matmul(c, w)\n")), Verdict::accepted);
  assert_verdict(verify(graph, mugraph(casting("4") + product)), Verdict::rejected, "differs");
  // The other operand's cast may be left out, so that bf16 is multiplied by f32.
  assert_verdict(
      verify(graph_of("graph g\nin x: f32[8, 8]\nin v: f32[8, 8]\ns = mul(x, 3)\nc = cast(s, dtype=bf16)\n"
                      "w = cast(v, dtype=bf16)\ny = matmul(c, w)\nout y\n"),
             mugraph_of("mugraph g\nin x: f32[8, 8]\nin w: f32[8, 8]\ntensor c: bf16[8, 8]\n"
                        "tensor y: bf16[8, 8]\n" +
                        casting("3") + product + "out y\n")),
      Verdict::accepted);
  // What the graph goes on with in f32 it has rounded, though no cast in the muGraph says so.
  assert_verdict(
      verify(graph_of("graph g\nin x: f32[8, 8]\nin v: f32[8, 8]\nin w: bf16[8, 8]\ns = mul(x, 3)\n"
                      "c = cast(s, dtype=bf16)\nf = cast(c, dtype=f32)\nm = mul(f, v)\n"
                      "h = cast(m, dtype=bf16)\ny = matmul(h, w)\nout y\n"),
             mugraph_of("mugraph g\nin x: f32[8, 8]\nin v: f32[8, 8]\nin w: bf16[8, 8]\n"
                        "tensor c: bf16[8, 8]\ntensor y: bf16[8, 8]\n" +
                        casting("3") +
                        "kernel grid=[2] {\na = load(c, x=0)\nb = load(v, x=0)\nm = mul(a, b)\n"
                        "e = load(w)\nd = matmul(m, e)\nstore(d, y, x=0)\n}\nout y\n")),
      Verdict::accepted);
  const std::string rest = "graph g\n" + inputs +
                           "h = cast(x, dtype=bf16)\nf = cast(h, dtype=f32)\ns = sub(x, f)\n"
                           "c = cast(s, dtype=bf16)\ny = matmul(c, w)\nout y\n";
  assert_verdict(verify(graph_of(rest), mugraph("kernel grid=[2] {\na = load(x, x=0)\nb = sub(a, a)\n"
                                                "d = cast(b, dtype=bf16)\nstore(d, c, x=0)\n}\n" +
                                                product)),
                 Verdict::rejected, "differs");
  assert_verdict(
      verify(graph_of(rest), mugraph("kernel grid=[2] {\na = load(x, x=0)\nh = cast(a, dtype=bf16)\n"
                                     "f = cast(h, dtype=f32)\nb = sub(a, f)\nd = cast(b, dtype=bf16)\n"
                                     "store(d, c, x=0)\n}\n" +
                                     product)),
      Verdict::accepted);
}

// A number beside integers is an integer, and sums of integers wrap.
void integers_stay_integers(void**) {
  const std::string inputs = "in x: i32[8]\n";
  const Graph graph = graph_of("graph g\n" + inputs + "y = add(x, 1)\nz = mul(y, 65536)\nout z\n");
  auto mugraph = [&](const std::string& body) {
    return mugraph_of("mugraph g\n" + inputs + "tensor z: i32[8]\nkernel grid=[2] {\na = load(x, x=0)\n" +
                      body + "store(d, z, x=0)\n}\nout z\n");
  };
  assert_verdict(verify(graph, mugraph("b = mul(a, 65536)\nd = add(b, 65536)\n")), Verdict::accepted);
  assert_verdict(verify(graph, mugraph("b = cast(a, dtype=f32)\nc = mul(b, 65536)\ne = add(c, 65536)\nd = "
                                       "cast(e, dtype=i32)\n")),
                 Verdict::rejected, "differs");
}

// Single elements are what whole evaluation gives, on every hand-written file that is small.
void pulled_elements_agree_with_whole_evaluation(void**) {
  for (const MuGraphFile& file : mugraph_files()) {
    if (file.name.find("_b") != std::string::npos) continue;
    FieldDomain domain(3);
    std::vector<Elements<FieldValue>> inputs;
    for (ValueId id : file.graph.inputs) {
      inputs.emplace_back();
      for (int64_t e = 0; e < file.graph.node(id).type.element_count(); ++e)
        inputs.back().push_back(
            domain.random(inputs.size() - 1, static_cast<uint64_t>(e), file.graph.node(id).type.dtype));
    }
    const Graph primitive = decompose(file.graph);
    const auto expected = evaluate(primitive, domain, inputs);
    const auto whole = evaluate_mugraph(file.mugraph, domain, inputs);
    assert_ok(whole);
    PullBudget budget{10'000'000};
    auto take = [&](size_t input, int64_t at, int64_t step, int64_t count, FieldValue* to) {
      for (int64_t i = 0; i < count; ++i) to[i] = inputs[input][static_cast<size_t>(at + i * step)];
    };
    PullEvaluator<FieldDomain> graph_elements(
        primitive, domain, budget, [&](ValueId id, int64_t at, int64_t step, int64_t count, FieldValue* to) {
          for (size_t i = 0; i < primitive.inputs.size(); ++i)
            if (primitive.inputs[i] == id) take(i, at, step, count, to);
        });
    // Zeros that are returned when the budget is spent are forgotten.
    for (int64_t few : {3, 30, 300}) {
      budget = {few};
      graph_elements.mark();
      graph_elements.element(primitive.outputs[0], 0);
      if (budget.spent()) graph_elements.forget_behind_mark();
    }
    budget = {10'000'000};
    PullMuGraph<FieldDomain> elements(file.mugraph, domain, budget, take);
    for (size_t output = 0; output < expected.size(); ++output)
      for (size_t e = expected[output].size(); e-- > 0;) {
        assert_true(graph_elements.element(primitive.outputs[output], static_cast<int64_t>(e)) ==
                    expected[output][e]);
        if (!(elements.output(output, static_cast<int64_t>(e)) == (*whole)[output][e]))
          fail_test(file.name + ": element " + std::to_string(e) + " " + elements.failure().message());
      }
    assert_ok(elements.failure());
    assert_false(budget.spent());
  }
}

void judges_the_published_mugraphs(void**) {
  const std::filesystem::path folder = published_folder();
  if (!std::filesystem::exists(folder)) skip_test("there is no " + folder.string());
  for (const Published& sample : kPublished) {
    Result<std::vector<MuGraph>> mugraphs = read_mirage(read_test_file(folder / sample.file));
    assert_ok(mugraphs);
    assert_int_equal(mugraphs->size(), sample.count);
    const Graph graph = graph_of(sample.graph);
    for (const MuGraph& mugraph : *mugraphs) {
      const Certificate certificate = verify(graph, mugraph);
      if (certificate.verdict != sample.verdict)
        fail_test(std::string(sample.file) + "\n" + certificate.print());
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(accepts_every_hand_written_file),
      cmocka_unit_test(rejects_the_wrong_attention),
      cmocka_unit_test(stops_in_the_middle_of_a_trial),
      cmocka_unit_test(what_nobody_reads_is_not_drawn),
      cmocka_unit_test(rejects_a_forgotten_rescaling_of_one_row),
      cmocka_unit_test(accepts_sums_for_products_of_rounded_values),
      cmocka_unit_test(rejects_another_interface),
      cmocka_unit_test(what_only_f64_knows_is_undecided),
      cmocka_unit_test(numbers_that_stand_for_extents_are_undecided),
      cmocka_unit_test(heads_split_by_library_operators),
      cmocka_unit_test(divisions_by_zero),
      cmocka_unit_test(blocks_that_disagree_are_rejected),
      cmocka_unit_test(too_complicated_is_undecided),
      cmocka_unit_test(the_seed_fixes_everything),
      cmocka_unit_test(wrong_mugraphs_are_not_accepted),
      cmocka_unit_test(rare_branches_are_undecided),
      cmocka_unit_test(dtypes_are_part_of_the_interface),
      cmocka_unit_test(rounded_tensors_hold_values_of_the_graph),
      cmocka_unit_test(casts_in_front_of_products),
      cmocka_unit_test(integers_stay_integers),
      cmocka_unit_test(pulled_elements_agree_with_whole_evaluation),
      cmocka_unit_test(judges_the_published_mugraphs),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
