// Certificates of plans: what is stored fits them, and whatever is changed is found.
#include "core/optimize/certify.h"

#include <algorithm>

#include "core/base/facts.h"
#include "core/base/hash.h"
#include "core/codegen/baseline.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/canon.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/optimize.h"
#include "core/optimize/parts.h"
#include "core/schedule/z3_optimizer.h"
#include "tests/support/fake_compiler.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

struct Stored {
  Plan plan;
  PlanSource source;
};

Graph canonical_example() {
  const auto graph = parse_graph(read_test_file(test_root() / "examples/lora_b1.qg"));
  assert_ok(graph);
  auto again = parse_graph(canonical_text(*graph));
  assert_ok(again);
  return std::move(*again);
}

// Searched once, for all tests.
const Stored& searched() {
  static const Stored stored = [] {
    const Graph graph = canonical_example();
    FakeCompiler compiler;
    OptimizeOptions options;
    const auto optimizer = make_z3_optimizer(kChoiceLimit);
    options.optimizer = optimizer.get();
    auto result = optimize(graph, **find_target("sm_90a"), compiler, options);
    assert_ok(result);
    assert_true(result->found());
    return Stored{result->plan, {print_graph(graph), result->mugraph, result->schedule, result->cuda}};
  }();
  return stored;
}

std::vector<std::string> faults(const Stored& stored, Depth depth = Depth::program) {
  return certificate_faults(stored.plan, stored.source, depth);
}

void assert_fault(const Stored& stored, std::string_view part, Depth depth = Depth::program) {
  std::string all;
  for (const std::string& fault : faults(stored, depth)) all += fault + "\n";
  if (all.find(part) == std::string::npos) print_error("certificate:\n%s\n", stored.plan.certificate.c_str());
  assert_contains(all, part);
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) fail_test("\"" + std::string(from) + "\" is not in:\n" + text);
  text.replace(at, from.size(), to);
}

// Gives the certificate the hash that fits a changed text.
void rehash(Stored& stored, const char* name, const std::string& bytes) {
  const auto facts = parse_facts(stored.plan.certificate);
  assert_ok(facts);
  replace(stored.plan.certificate, *find_fact(*facts, name), to_hex(hash128(bytes)));
}

void what_is_stored_fits(void**) {
  for (Depth depth : {Depth::hashes, Depth::program}) {
    const auto found = faults(searched(), depth);
    for (const std::string& fault : found) print_error("%s\n", fault.c_str());
    assert_int_equal(found.size(), 0);
  }
  const auto certificate = parse_certificate(searched().plan.certificate);
  assert_ok(certificate);
  assert_contains(searched().plan.certificate, "\nproof: q0_");
  assert_int_equal(certificate->verdict, Verdict::accepted);
}

// Measuring may find that the first launch had better wait.
void a_first_launch_waits_only_if_the_certificate_says_so(void**) {
  Stored changed = searched();
  assert_true(changed.plan.launches[0].overlaps);
  changed.plan.launches[0].overlaps = false;
  assert_fault(changed, "other buffers or launches");
  changed.plan.certificate += print_fact(waiting_fact(0), "waits");
  assert_int_equal(faults(changed).size(), 0);
  changed.plan.launches[0].overlaps = true;
  assert_fault(changed, "other buffers or launches");
  changed.plan.launches[0].overlaps = false;
  changed.plan.certificate += print_fact(waiting_fact(1), "waits");  // there may be no such launch
  if (changed.plan.launches.size() > 1) changed.plan.launches[1].overlaps = false;
  assert_int_equal(faults(changed).size(), 0);
}

void every_changed_text_is_found(void**) {
  for (Depth depth : {Depth::hashes, Depth::program}) {
    Stored changed = searched();
    replace(changed.source.mugraph, "mugraph ", "mugraph other_");
    assert_fault(changed, "mugraph hash is ", depth);
    changed = searched();
    changed.source.schedule += " ";
    assert_fault(changed, "schedule hash is ", depth);
    changed = searched();
    changed.source.cuda += "\n";
    assert_fault(changed, "cuda hash is ", depth);
    changed = searched();
    changed.source.graph += "\n";
    assert_fault(changed, "graph hash is ", depth);
    changed = searched();
    changed.plan.cubin += "x";
    assert_fault(changed, "cubin hash is ", depth);
    changed = searched();
    changed.source.mugraph.clear();
    assert_fault(changed, "is not stored", depth);
    changed = searched();
    changed.plan.certificate = "verdict accepted\n";
    assert_fault(changed, "line 1", depth);
    changed = searched();
    changed.plan.certificate.clear();
    assert_fault(changed, "does not say \"cuda hash\"", depth);
  }
}

// Where hashes were made to fit, too.
void what_is_made_again_differs(void**) {
  Stored changed = searched();
  changed.source.cuda += "// faster\n";
  rehash(changed, "cuda hash", changed.source.cuda);
  assert_fault(changed, "cuda hash is ");
  assert_int_equal(faults(changed, Depth::hashes).size(), 0);

  changed = searched();
  const size_t at = changed.source.mugraph.find("= add(");
  if (at == std::string::npos) fail_test("nothing is added in " + changed.source.mugraph);
  changed.source.mugraph.replace(at, 6, "= sub(");
  rehash(changed, "mugraph hash", changed.source.mugraph);
  assert_fault(changed, "verdict is rejected, and accepted in the certificate");
  assert_fault(changed, "cuda hash is ");

  changed = searched();
  replace(changed.plan.certificate, "\nseed: ", "\nseed: 12\nno seed: ");
  assert_fault(changed, "seeds of trials is ");
  changed = searched();
  replace(changed.plan.certificate, "verdict: accepted", "verdict: undecided");
  assert_fault(changed, "verdict is accepted, and undecided in the certificate");
  changed = searched();
  replace(changed.plan.certificate, "\nlaunches: ", "\nlaunches: 4");
  assert_fault(changed, "launches is ");
  changed = searched();
  changed.plan.launches.front().grid.x += 1;
  assert_fault(changed, "other buffers or launches");
}

void what_another_version_made_is_judged_by_its_hashes(void**) {
  Stored changed = searched();
  const auto facts = parse_facts(changed.plan.certificate);
  assert_ok(facts);
  replace(changed.plan.certificate, "quern: " + *find_fact(*facts, "quern"), "quern: 0.0.1");
  replace(changed.plan.certificate, "\nlaunches: ", "\nlaunches: 4");
  assert_int_equal(faults(changed).size(), 0);
  changed.source.cuda += "\n";
  assert_fault(changed, "cuda hash is ");
}

void baselines_have_certificates_too(void**) {
  const Graph graph = canonical_example();
  auto emitted = emit_baseline(graph, **find_target("sm_80"));
  assert_ok(emitted);
  Stored stored{emitted->plan, {print_graph(graph), "", "", ""}};
  stored.plan.cubin = "cubin";
  stored.plan.certificate +=
      source_facts({stored.source.graph, "", "", emitted->source}, stored.plan.cubin, "nvrtc");
  for (Depth depth : {Depth::hashes, Depth::program}) assert_int_equal(faults(stored, depth).size(), 0);
  Stored changed = stored;
  replace(changed.plan.certificate, "cuda hash: ", "cuda hash: 0");
  assert_fault(changed, "cuda hash is ");
  changed = stored;
  changed.source.graph += "\n";
  assert_fault(changed, "graph hash is ", Depth::hashes);
}

// The keys of the mask are as many as they are, so that the whole is too large to be decided.
constexpr const char* kUndecided = R"(graph causal
in q: f16[1, 1024, 16]
in k: f16[1, 16, 1024]
in v: f16[1, 1024, 16]
in w: f16[16, 64]
i = iota(shape=[1024, 1], axis=0)
j = iota(shape=[1, 1024], axis=1)
s = matmul(q, k)
c = le(j, i)
m = where(c, s, -inf)
p = softmax(m)
o = matmul(p, v)
y = matmul(o, w)
out y
)";

void what_is_undecided_is_verified_in_parts(void**) {
  const auto written = parse_graph(kUndecided);
  assert_ok(written);
  const auto graph = parse_graph(canonical_text(*written));
  assert_ok(graph);
  FakeCompiler compiler;
  const auto result = optimize(*graph, **find_target("sm_90a"), compiler, {});
  assert_ok(result);
  assert_true(!result->programs.empty());
  const auto program = std::find_if(result->programs.begin(), result->programs.end(),
                                    [](const Program& each) { return !each.plan.empty(); });
  assert_true(program != result->programs.end());
  const auto plan = decode_plan(program->plan);
  assert_ok(plan);
  const auto target = find_target("sm_90a");
  const auto emitted =
      emit_mugraph(*graph, *parse_mugraph(program->mugraph), *parse_schedule(program->schedule), **target);
  assert_ok(emitted);
  Stored stored{*plan, {print_graph(*graph), program->mugraph, program->schedule, emitted->source}};
  assert_contains(stored.plan.certificate, "\nverdict: undecided\n");
  assert_contains(stored.plan.certificate, "\npart 0: accepted; error bound ");
  const auto found = faults(stored);
  for (const std::string& fault : found) print_error("%s\n", fault.c_str());
  assert_int_equal(found.size(), 0);
  replace(stored.plan.certificate, "part 0: accepted", "part 0: undecided");
  assert_fault(stored, "part 0 is accepted; ");
}

// A mean divides by an extent that a tensor of another part has, too.
void extents_are_those_of_the_part(void**) {
  const auto graph = parse_graph(R"(graph g
in x: f32[24, 512]
in w: f32[512, 64]
q = square(x)
m = mean(q, axis=[1], keepdims=true)
d = sub(x, m)
y = matmul(d, w)
out y
)");
  const auto mugraph = parse_mugraph(R"(mugraph g
in x: f32[24, 512]
in w: f32[512, 64]
tensor m: f32[24, 1]
tensor y: f32[24, 64]
kernel grid=[12] threads=128 {
  x0 = load(x, x=0)
  q0 = square(x0)
  s0 = sum(q0, axis=[1], keepdims=true)
  e0 = extent(w[0])
  m0 = div(s0, e0)
  store(m0, m, x=0)
}
kernel grid=[12] threads=128 {
  x0 = load(x, x=0)
  m0 = load(m, x=0)
  d0 = sub(x0, m0)
  w0 = load(w)
  y0 = matmul(d0, w0)
  store(y0, y, x=0)
}
out y
)");
  assert_ok(graph);
  assert_ok(mugraph);
  const auto verdicts = verify_parts(*graph, *mugraph, 1);
  assert_ok(verdicts);
  assert_int_equal(verdicts->size(), 2);
  for (const Certificate& part : *verdicts) assert_int_equal(part.verdict, Verdict::accepted);
}

// The muGraph has the positions of one operator of the graph, a part of it makes what the graph makes of another's.
void positions_are_no_inputs_of_parts(void**) {
  const Graph graph = *parse_graph(R"(graph g
in x: f32[16, 8]
i = iota(shape=[16], axis=0)
f = cast(i, dtype=f32)
r = reshape(f, shape=[16, 1])
j = iota(shape=[16, 1], axis=0)
h = cast(j, dtype=f32)
a = exp(x)
b = mul(a, r)
c = mul(b, h)
out c
)");
  const std::string text = R"(mugraph g
in x: f32[16, 8]
tensor j: i32[16, 1]
tensor h: f32[16, 1]
tensor a: f32[16, 8]
tensor b: f32[16, 8]
tensor c: f32[16, 8]
j = iota(shape=[16, 1], axis=0)
h = cast(j, dtype=f32)
a = exp(x)
b = mul(a, h)
c = mul(b, h)
out c
)";
  const auto verdict_of_b = [&](const std::string& mugraph_text) {
    const auto mugraph = parse_mugraph(mugraph_text);
    assert_ok(mugraph);
    const auto verdicts = verify_parts(graph, *mugraph, 1);
    assert_ok(verdicts);
    assert_int_equal(verdicts->size(), 5);  // by kernels
    return (*verdicts)[3].verdict;
  };
  assert_int_equal(verdict_of_b(text), Verdict::accepted);
  std::string wrong = text;
  replace(wrong, "b = mul(a, h)", "b = sub(a, h)");
  assert_int_equal(verdict_of_b(wrong), Verdict::rejected);
}

void a_wrong_part_is_found(void**) {
  const Graph graph = *parse_graph(R"(graph g
in x: f16[8, 8]
a = exp(x)
b = mul(a, x)
c = sub(b, a)
out c
)");
  const std::string right = R"(mugraph g
in x: f16[8, 8]
tensor a: f16[8, 8]
tensor t: f16[8, 8]
tensor c: f16[8, 8]
a = exp(x)
t = mul(a, x)
c = sub(t, a)
out c
)";
  const auto verdicts = [&](const std::string& text) {
    const auto mugraph = parse_mugraph(text);
    assert_ok(mugraph);
    return verify_parts(graph, *mugraph, 1);
  };
  const auto accepted = verdicts(right);
  assert_ok(accepted);
  assert_int_equal(accepted->size(), 2);  // "t" is no name of the graph's
  for (const Certificate& part : *accepted) assert_int_equal(part.verdict, Verdict::accepted);
  std::string wrong = right;
  replace(wrong, "sub(t, a)", "sub(a, t)");
  const auto rejected = verdicts(wrong);
  assert_ok(rejected);
  assert_int_equal((*rejected)[0].verdict, Verdict::accepted);
  assert_int_equal((*rejected)[1].verdict, Verdict::rejected);
  wrong = right;
  replace(wrong, "a = exp(x)", "a = square(x)");
  assert_int_equal((*verdicts(wrong))[0].verdict, Verdict::rejected);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(what_is_stored_fits),
                              cmocka_unit_test(a_first_launch_waits_only_if_the_certificate_says_so),
                              cmocka_unit_test(every_changed_text_is_found),
                              cmocka_unit_test(what_is_made_again_differs),
                              cmocka_unit_test(what_another_version_made_is_judged_by_its_hashes),
                              cmocka_unit_test(baselines_have_certificates_too),
                              cmocka_unit_test(what_is_undecided_is_verified_in_parts),
                              cmocka_unit_test(extents_are_those_of_the_part),
                              cmocka_unit_test(positions_are_no_inputs_of_parts),
                              cmocka_unit_test(a_wrong_part_is_found)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
