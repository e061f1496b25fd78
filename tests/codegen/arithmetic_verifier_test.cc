// The second verdict: programs that are right in a field and wrong in the arithmetic of their kernels.
#include "core/codegen/arithmetic_verifier.h"

#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/verify/verifier.h"
#include "tests/mugraph/files.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

void assert_verdict(const ArithmeticVerdict& verdict, Verdict wanted, const std::string& part = "") {
  if (verdict.verdict != wanted)
    fail_test("not " + std::string(verdict_name(wanted)) + "\n" + verdict.print());
  if (!part.empty()) assert_contains(verdict.print(), part);
}

// With the schedule that the muGraph itself is, and in plain f32.
void hand_written_mugraphs_are_right(void**) {
  for (const MuGraphFile& file : mugraph_files()) {
    ArithmeticVerifier verifier(file.graph);
    for (const ArithmeticVerdict& verdict :
         {verifier.judge(file.mugraph), verifier.judge(file.mugraph, default_schedule(file.mugraph))}) {
      if (verdict.verdict != Verdict::accepted) fail_test(file.name + "\n" + verdict.print());
      assert_int_equal(verdict.classes.size(), 12);
    }
  }
}

// What each file of tests/golden/wrong must be: rejected in plain f32, or with its operands rounded, or not
// accepted by the field. Some are refused by several.
enum class By { arithmetic, rounding, field };
struct WrongFile {
  const char* name;
  By by;
};
constexpr WrongFile kWrong[] = {
    {"axes-behind-rare-equality", By::field},
    {"bias-multiplied-out", By::rounding},
    {"bigmean-number-12", By::field},
    {"cast-bool-else", By::arithmetic},
    {"conj-6", By::field},
    {"eq-const-dropped", By::arithmetic},
    {"exp-half-mod-p", By::arithmetic},
    {"factor-behind-product-bf16", By::arithmetic},
    {"factor-in-front-of-product-f32", By::arithmetic},
    {"i32-mul-overflow-via-f32", By::arithmetic},
    {"intermediate-tensor-bf16", By::arithmetic},
    {"intermediate-tensor-i32", By::arithmetic},
    {"log-sum-exp-unsafe", By::arithmetic},
    {"masked-attn-mask-ignored-whole", By::arithmetic},
    {"masked-attn-mask-ignored", By::arithmetic},
    {"masked-attn-minus-1e9-for-inf", By::arithmetic},
    {"max-drops-last-of-1000", By::field},
    {"nan-dropped-mul0", By::field},
    {"overflowing-factor-in-sum", By::arithmetic},
    {"product-order-f32", By::arithmetic},
    {"softmax-no-max", By::arithmetic},
    {"softmax-shift-first-column", By::arithmetic},
    {"var-E2", By::arithmetic},
    {"where-bool-input-else-dropped", By::arithmetic},
    {"where-bool-input-else-wrong", By::arithmetic},
    {"where-eq-true-branch-dropped", By::arithmetic},
    {"where-f32-cond-else-wrong", By::arithmetic},
};

std::filesystem::path wrong_folder() { return test_root() / "tests/golden/wrong"; }
Graph graph_in(const std::filesystem::path& path) { return graph_of(read_test_file(path.string() + ".qg")); }
MuGraph mugraph_in(const std::filesystem::path& path) {
  return mugraph_of(read_test_file(path.string() + ".qmu"));
}

void wrong_mugraphs_are_not_accepted(void**) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(wrong_folder()))
    files += entry.path().extension() == ".qmu";
  assert_int_equal(files, std::size(kWrong));
  for (const WrongFile& file : kWrong) {
    const Graph graph = graph_in(wrong_folder() / file.name);
    const MuGraph mugraph = mugraph_in(wrong_folder() / file.name);
    if (file.by != By::field) {
      ArithmeticVerifier verifier(graph);
      const ArithmeticVerdict verdict = file.by == By::arithmetic
                                            ? verifier.judge(mugraph)
                                            : verifier.judge(mugraph, default_schedule(mugraph));
      if (verdict.verdict != Verdict::rejected) fail_test(std::string(file.name) + "\n" + verdict.print());
    } else {
      const Certificate certificate = verify(graph, mugraph);
      if (certificate.verdict == Verdict::accepted)
        fail_test(std::string(file.name) + "\n" + certificate.print());
    }
  }
}

void their_controls_are_accepted(void**) {
  for (const auto& entry : std::filesystem::directory_iterator(wrong_folder() / "right")) {
    if (entry.path().extension() != ".qmu") continue;
    const std::filesystem::path path = entry.path().parent_path() / entry.path().stem();
    const Graph graph = graph_in(path);
    const MuGraph mugraph = mugraph_in(path);
    ArithmeticVerifier verifier(graph);
    assert_verdict(verifier.judge(mugraph), Verdict::accepted);
    assert_verdict(verifier.judge(mugraph, default_schedule(mugraph)), Verdict::accepted);
    const Certificate certificate = verify(graph, mugraph);
    if (certificate.verdict != Verdict::accepted) fail_test(path.string() + "\n" + certificate.print());
  }
}

// A window of 256 of 1024 positions is 2 of 8 wide: the tiles outside of it are wholly masked.
constexpr const char* kWindow = R"(graph window
in q: f16[2, 1024, 64]
in k: f16[2, 64, 1024]
in v: f16[2, 1024, 64]
i = iota(shape=[1024, 1], axis=0)
j = iota(shape=[1, 1024], axis=1)
d = sub(i, j)
near = lt(d, 256)
past = le(j, i)
s = matmul(q, k)
a = where(near, s, -inf)
b = where(past, a, -inf)
p = softmax(b)
o = matmul(p, v)
out o
)";
std::string window_mugraph(const std::string& last) {
  return R"(mugraph window
in q: f16[2, 1024, 64]
in k: f16[2, 64, 1024]
in v: f16[2, 1024, 64]
tensor i: i32[1024, 1]
tensor j: i32[1, 1024]
tensor o: f16[2, 1024, 64]
i = iota(shape=[1024, 1], axis=0)
j = iota(shape=[1, 1024], axis=1)
kernel grid=[2, 1, 16] loop=16 threads=128 {
  q0 = load(q, x=0, z=1)
  k0 = load(k, x=0, loop=2)
  v0 = load(v, x=0, loop=1)
  i0 = load(i, z=0)
  j0 = load(j, loop=1)
  d = sub(i0, j0)
  near = lt(d, )" +
         last +
         R"()
  past = le(j0, i0)
  s = matmul(q0, k0)
  a = where(near, s, -inf)
  b = where(past, a, -inf)
  top = max(b, axis=[2], keepdims=true)
  m = accumulate_max(top)
  c = sub(b, m)
  e = exp(c)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  pv = matmul(e, v0)
  n = accumulate_rescaled(pv, m)
  y = div(n, l)
  store(y, o, x=0, z=1)
}
out o
)";
}

// Programs that differ in a number that positions are compared with, on an instance that is small.
void assert_positions_tell(const char* text, const MuGraph& right, const std::vector<MuGraph>& wrongs) {
  const Graph graph = graph_of(text);
  ArithmeticVerifier verifier(graph);
  const ArithmeticVerdict verdict = verifier.judge(right, default_schedule(right));
  assert_verdict(verdict, Verdict::accepted, "arithmetic instance: shrunk");
  assert_true(verdict.elements < 1000);
  for (const MuGraph& wrong : wrongs)
    assert_verdict(verifier.judge(wrong, default_schedule(wrong)), Verdict::rejected, "output 0");
}

void positions_keep_their_meaning_on_small_instances(void**) {
  assert_positions_tell(kWindow, mugraph_of(window_mugraph("256")), {mugraph_of(window_mugraph("512"))});
}

// A part of each row is negated and comes first; both programs put it together in their own ways, and parts become shorter alike.
constexpr const char* kTurned = R"(graph turned
in x: f32[64, 256]
p = slice(x, start=[0, 0], stop=[64, 64])
q = slice(x, start=[0, 64], stop=[64, 256])
n = neg(q)
o = concat(n, p, axis=1)
out o
)";
std::string turned_mugraph(const std::string& first) {
  return R"(mugraph turned
in x: f32[64, 256]
tensor p: f32[64, 64]
tensor q: f32[64, 192]
tensor c: f32[64, 256]
tensor i: i32[1, 256]
tensor o: f32[64, 256]
p = slice(x, start=[0, 0], stop=[64, 64])
q = slice(x, start=[0, 64], stop=[64, 256])
c = concat(q, p, axis=1)
i = iota(shape=[1, 256], axis=1)
kernel grid=[8, 4] threads=128 {
  c0 = load(c, x=0, y=1)
  i0 = load(i, y=1)
  is_first = lt(i0, )" +
         first +
         R"()
  n = neg(c0)
  o0 = where(is_first, n, c0)
  store(o0, o, x=0, y=1)
}
out o
)";
}

void positions_stay_on_their_side_of_a_cut(void**) {
  assert_positions_tell(kTurned, mugraph_of(turned_mugraph("192")),
                        {mugraph_of(turned_mugraph("64")), mugraph_of(turned_mugraph("193")),
                         mugraph_of(turned_mugraph("255"))});
}

// What nobody reads is not drawn, and no draw begins when the time is up.
void a_verdict_ends_in_time(void**) {
  const Graph graph = graph_of("graph g\nin x: f32[8]\nin dead: f32[1048576, 1048576]\ny = exp(x)\nout y\n");
  const MuGraph mugraph = mugraph_of(
      "mugraph g\nin x: f32[8]\nin dead: f32[1048576, 1048576]\ntensor y: f32[8]\nkernel grid=[1] {\n"
      "x0 = load(x)\ne = exp(x0)\nstore(e, y)\n}\nout y\n");
  int asked = 0;
  ArithmeticOptions options;
  options.stop = [&] { return ++asked == 3; };
  ArithmeticVerifier verifier(graph, options);
  assert_verdict(verifier.judge(mugraph), Verdict::undecided, "stopped");
  assert_int_equal(asked, 3);
  assert_verdict(verifier.judge(mugraph), Verdict::accepted);
}

// Ten steps over a graph's neighbours are at 0.64 of a bound that formulas give, and at 0.52 of that of sampled runs.
void what_is_near_is_asked_of_sampled_runs(void**) {
  const std::filesystem::path path = test_root() / "tests/golden/near/appnp";
  const Graph graph = graph_in(path);
  assert_verdict(ArithmeticVerifier(graph).judge(mugraph_in(path)), Verdict::accepted);
}

// Which seed and class showed it is said, and they show it again.
void what_showed_it_is_said(void**) {
  const Graph graph = graph_in(wrong_folder() / "softmax-no-max");
  const MuGraph mugraph = mugraph_in(wrong_folder() / "softmax-no-max");
  ArithmeticOptions options;
  options.seed = 5;
  const ArithmeticVerdict verdict = ArithmeticVerifier(graph, options).judge(mugraph);
  assert_verdict(verdict, Verdict::rejected, "class ");
  assert_contains(verdict.print(), "arithmetic seed: 5\n");
  assert_text_equal(verdict.print(), ArithmeticVerifier(graph, options).judge(mugraph).print());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(hand_written_mugraphs_are_right),
      cmocka_unit_test(wrong_mugraphs_are_not_accepted),
      cmocka_unit_test(their_controls_are_accepted),
      cmocka_unit_test(positions_keep_their_meaning_on_small_instances),
      cmocka_unit_test(positions_stay_on_their_side_of_a_cut),
      cmocka_unit_test(a_verdict_ends_in_time),
      cmocka_unit_test(what_is_near_is_asked_of_sampled_runs),
      cmocka_unit_test(what_showed_it_is_said),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
