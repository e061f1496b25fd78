// What the search finds, through the emitter and the emulator against the float reference: candidates of all
// example graphs on small instances, and of random graphs. $QUERN_SEARCHED_SEED chooses other ones,
// $QUERN_SEARCHED_COUNT how many of a graph, $QUERN_SEARCHED_GRAPHS how many random graphs.
#include <filesystem>
#include <random>
#include <set>

#include "core/codegen/arithmetic_verifier.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/shrink.h"
#include "core/mugraph/text.h"
#include "core/optimize/ranking.h"
#include "core/schedule/enumerate.h"
#include "core/search/search.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "tests/codegen/mugraph_cases.h"
#include "tests/mugraph/files.h"
#include "tests/support/random_graph.h"

namespace {

using namespace quern;

uint64_t from_environment(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : fallback;
}

const uint64_t kSeed = from_environment("QUERN_SEARCHED_SEED", 1);

std::vector<Candidate> candidates_of(const Graph& graph, const char* target,
                                     std::chrono::milliseconds limit) {
  SearchOptions options;
  options.limit = limit;
  auto result = search(graph, **find_target(target), options);
  assert_ok(result);
  return std::move(result->candidates);
}

// Some of the candidates, each by one of its schedules or by its own numbers with other warps and stages.
void sample(const Graph& graph, const std::vector<Candidate>& candidates, const char* target, size_t count,
            std::mt19937_64& random, std::vector<MuGraphCase>& cases) {
  std::vector<size_t> order(candidates.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  order.resize(std::min(order.size(), count));
  for (size_t number : order) {
    auto small = shrink(candidates[number].mugraph, graph);
    assert_ok(small);
    const std::vector<Schedule> all = enumerate_schedules(small->mugraph, **find_target(target));
    MuGraphCase test{"", small->graph, small->mugraph, default_schedule(small->mugraph), 1.0, target};
    if (random() % 2 == 0 && !all.empty()) {
      test.schedule = all[random() % all.size()];
    } else {
      static const std::array<int, 3> kWarps[] = {{1, 1, 1}, {1, 1, 4}, {2, 1, 1}, {1, 2, 1}, {1, 2, 2}};
      for (KernelSchedule& kernel : test.schedule.kernels) {
        kernel.warps = kWarps[random() % std::size(kWarps)];
        kernel.stages = static_cast<int>(random() % 2 * (2 + random() % 2));
        kernel.prefetch = random() % 2 == 0;
      }
    }
    // As programs are taken: what the verdict on their arithmetic refuses does not run.
    if (ArithmeticVerifier(test.graph).judge(test.mugraph, test.schedule).verdict == Verdict::rejected)
      continue;
    test.label =
        graph.name + " " + std::to_string(number) + " on " + target + ", " + print_schedule(test.schedule);
    cases.push_back(std::move(test));
  }
}

void examples_are_right(void**) {
  std::mt19937_64 random(kSeed);
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(test_root() / "examples"))
    if (file.path().extension() == ".qg") names.push_back(file.path().stem());
  std::sort(names.begin(), names.end());
  assert_int_equal(names.size(), 18);
  std::vector<MuGraphCase> cases;
  const size_t count = from_environment("QUERN_SEARCHED_COUNT", 3);
  for (size_t i = 0; i < names.size(); ++i) {
    const Graph graph = graph_named(names[i]);
    const char* target = i % 3 == kSeed % 3 ? "sm_80" : "sm_90a";
    sample(graph, candidates_of(graph, target, std::chrono::seconds(20)), target, count, random, cases);
  }
  assert_true(cases.size() >= 15 * std::min<size_t>(count, 3));  // nearly all are accepted
  all_are_right(cases);
}

void random_graphs_are_right(void**) {
  std::mt19937_64 random(kSeed);
  std::vector<MuGraphCase> cases;
  const uint64_t count = from_environment("QUERN_SEARCHED_GRAPHS", 40);
  for (uint64_t seed = kSeed * 1000; seed < kSeed * 1000 + count; ++seed) {
    const Graph graph = random_graph(seed, {.max_ops = 6, .empty_extents = false});
    const char* target = seed % 2 ? "sm_80" : "sm_90a";
    const size_t before = cases.size();
    sample(graph, candidates_of(graph, target, std::chrono::milliseconds(500)), target, 2, random, cases);
    for (size_t i = before; i < cases.size(); ++i)
      cases[i].label = "seed " + std::to_string(seed) + ": " + cases[i].label;
  }
  assert_true(cases.size() > count / 4);
  all_are_right(cases);
}

// As models write them: scores or norms in f32, cast back in front of a product; a gate packed with what it gates, or of one
// column; batches of sequences; patches that are merged; keys that are normed and rotated.
constexpr const char* kOfModels[] = {
    "in q: T[2, 48, 64]\nin k: T[2, 80, 64]\nin v: T[2, 80, 64]\nin m: T[1, 48, 80]\nkt = transpose(k, "
    "perm=[0, 2, 1])\n"
    "s = matmul(q, kt)\nc = mul(s, 0.125)\na = add(c, m)\nf = cast(a, dtype=f32)\np = softmax(f)\nh = "
    "cast(p, dtype=T)\n"
    "o = matmul(h, v)\nout o\n",
    "in q: T[2, 48, 64]\nin k: T[2, 80, 64]\nin v: T[2, 80, 64]\nin m: f32[1, 48, 80]\nkt = transpose(k, "
    "perm=[0, 2, 1])\n"
    "s = matmul(q, kt)\nf = cast(s, dtype=f32)\nc = mul(f, 0.125)\na = add(c, m)\np = softmax(a)\nh = "
    "cast(p, dtype=T)\n"
    "o = matmul(h, v)\nout o\n",
    "in x: T[24, 256]\nin g: T[256]\nin w: T[256, 96]\nf = cast(x, dtype=f32)\ns = square(f)\n"
    "m = mean(s, axis=1, keepdims=true)\ne = add(m, 1e-6)\nr = rsqrt(e)\ny = mul(f, r)\nh = cast(y, "
    "dtype=T)\nz = mul(g, h)\n"
    "o = matmul(z, w)\nout o\n",
    // Nothing less than all of what was rounded.
    "in x: f32[40, 64]\nin w: T[64, 48]\nh = cast(x, dtype=T)\nf = cast(h, dtype=f32)\nd = sub(x, f)\nl = "
    "cast(d, dtype=T)\n"
    "a = matmul(h, w)\nb = matmul(l, w)\nout a, b, d\n",
    "in x: T[24, 64]\nin w: T[96, 64]\nin b: T[96]\nt = transpose(w, perm=[1, 0])\nm = matmul(x, t)\nh = "
    "add(m, b)\n"
    "g = slice(h, start=[0, 0], stop=[24, 48])\nu = slice(h, start=[0, 48], stop=[24, 96])\ns = silu(g)\no = "
    "mul(s, u)\n"
    "out o\n",
    // Rows in several dimensions, of an input, of a norm and of heads that come back.
    "in x: T[3, 21, 64]\nin w: T[64, 48]\nin b: T[48]\nin r: T[3, 21, 48]\nm = matmul(x, w)\nh = add(m, "
    "b)\ng = "
    "gelu(h)\no = add(g, r)\nout o\n",
    "in a: T[2, 2, 13, 32]\nin g: T[64]\nin w: T[64, 96]\nt = transpose(a, perm=[0, 2, 1, 3])\nx = "
    "reshape(t, shape=[2, "
    "13, 64])\nn = rms_norm(x, g)\nm = matmul(n, w)\nh = reshape(m, shape=[2, 13, 3, 32])\no = transpose(h, "
    "perm=[0, 2, "
    "1, 3])\nout o\n",
    // A product with one column behind a norm that is rounded gates another, both with weights that lie transposed.
    "in x: T[24, 64]\nin g: T[64]\nin w: T[48, 64]\nin u: T[1, 64]\nf = cast(x, dtype=f32)\ns = square(f)\n"
    "m = mean(s, axis=1, keepdims=true)\ne = add(m, 1e-6)\nr = rsqrt(e)\ny = mul(f, r)\nh = cast(y, "
    "dtype=T)\n"
    "z = mul(g, h)\nwt = transpose(w)\np = matmul(z, wt)\nut = transpose(u)\na = matmul(z, ut)\nq = "
    "sigmoid(a)\n"
    "o = mul(q, p)\nout o\n",
    // Patches are merged: every second row and column.
    "in x: T[2, 8, 6, 16]\nin g: T[64]\nin b: T[64]\nin w: T[32, 64]\n"
    "p = slice(x, start=[0, 0, 0, 0], step=[1, 2, 2, 1])\nq = slice(x, start=[0, 1, 0, 0], step=[1, 2, 2, "
    "1])\n"
    "r = slice(x, start=[0, 0, 1, 0], step=[1, 2, 2, 1])\ns = slice(x, start=[0, 1, 1, 0], step=[1, 2, 2, "
    "1])\n"
    "c = concat(p, q, r, s, axis=3)\nn = layer_norm(c, g, b)\nwt = transpose(w)\no = matmul(n, wt)\nout o\n",
    // The halves of the keys are put together the other way round, one of them negated.
    "in q: T[2, 24, 32]\nin k: T[2, 24, 32]\nin v: T[2, 24, 32]\nin g: T[32]\nin cos: T[24, 32]\nin sin: "
    "T[24, 32]\n"
    "n = rms_norm(k, g)\na = slice(n, start=[0, 0, 0], stop=[2, 24, 16])\nb = slice(n, start=[0, 0, 16], "
    "stop=[2, 24, "
    "32])\nm = neg(b)\nr = concat(m, a, axis=2)\nx = mul(n, cos)\ny = mul(r, sin)\nk1 = add(x, y)\nt = "
    "transpose(k1, "
    "perm=[0, 2, 1])\ns = matmul(q, t)\nc = mul(s, 0.1767767)\ni = iota(shape=[24, 24], axis=0)\nj = "
    "iota(shape=[24, "
    "24], axis=1)\nl = le(j, i)\nd = where(l, c, -inf)\np = softmax(d)\no = matmul(p, v)\nout o\n",
};

void what_models_write_is_right(void**) {
  std::mt19937_64 random(kSeed);
  std::vector<MuGraphCase> cases;
  for (const char* target : {"sm_80", "sm_90a"})
    for (const char* text : kOfModels)
      for (const std::string dtype : {"bf16", "f16"}) {
        std::string typed = text;
        for (size_t at; (at = typed.find("T[")) != std::string::npos;) typed.replace(at, 1, dtype);
        for (size_t at; (at = typed.find("=T)")) != std::string::npos;) typed.replace(at + 1, 1, dtype);
        const auto graph = parse_graph("graph back\n" + typed);
        assert_ok(graph);
        const size_t before = cases.size();
        sample(*graph, candidates_of(*graph, target, std::chrono::seconds(4)), target, 3, random, cases);
        for (size_t i = before; i < cases.size(); ++i)
          for (const HostileClass& each : hostile_classes())
            cases[i].inputs.push_back(
                {each.name, [buffers = hostile_inputs(cases[i].graph, each, kSeed)](
                                const TensorDesc&, size_t input) { return buffers[input]; }});
      }
  assert_true(cases.size() >= 30);
  // Halves that are put together are read where they lie, and told apart by position.
  assert_true(std::any_of(cases.begin(), cases.end(), [](const MuGraphCase& test) {
    return print_mugraph(test.mugraph).find("load(r_parts") != std::string::npos;
  }));
  all_are_right(cases);
}

// Reductions in one go, in loops, over clusters and split, of which a GPU of two SMs has more in small
// graphs.
constexpr const char* kReductions[] = {
    "in x: f16[6, 1000]\ny = max(x, axis=1)\nout y\n",
    "in x: bf16[700, 9]\ny = min(x, axis=0)\nout y\n",
    "in x: f32[3, 2048]\na = abs(x)\nm = max(a, axis=1, keepdims=true)\ny = div(x, m)\nout y\n",
    "in x: f16[4, 33, 40]\ny = max(x, axis=[1, 2])\nz = min(x, axis=[1, 2])\nout y, z\n",
    "in x: f32[5, 1500]\ns = square(x)\nt = sum(s, axis=1)\ny = sqrt(t)\nout y\n",
    "in x: f16[8, 600]\np = softmax(x, axis=1)\nout p\n",
    "in x: bf16[8, 256]\nin w: bf16[256, 64]\np = softmax(x, axis=1)\ny = matmul(p, w)\nm = max(y, "
    "axis=1)\nout m\n",
};

// One NaN in the first input: in another lane, warp, tile or split each time.
std::vector<InputKind> with_one_nan(const Graph& graph, std::mt19937_64& random) {
  const int64_t count = graph.input_descs()[0].element_count();
  std::vector<int64_t> places = {0, 1, 31, 32, count / 2, count - 33, count - 1};
  for (int i = 0; i < 5; ++i) places.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(count)));
  std::vector<InputKind> out;
  for (int64_t at : places)
    out.push_back({"NaN at " + std::to_string(at), [at](const TensorDesc& desc, size_t input) {
                     std::string buffer = random_buffer(desc, 40 + input);
                     if (input == 0) store_element(buffer.data(), desc.dtype, at, std::nan(""));
                     return buffer;
                   }});
  return out;
}

// Of each graph the best-ranked programs, and of the others those with another structure.
void a_nan_reaches_every_reduction(void**) {
  std::mt19937_64 random(kSeed);
  std::vector<MuGraphCase> cases;
  std::set<std::string> forms;
  for (const char* name : {"sm_80", "sm_90a"})
    for (const char* text : kReductions) {
      auto graph = parse_graph(std::string("graph g\n") + text);
      assert_ok(graph);
      Target target = **find_target(name);
      target.sms = 2;
      SearchOptions options;
      options.limit = std::chrono::seconds(5);
      auto found = search(*graph, target, options);
      assert_ok(found);
      std::set<std::string> structures;
      size_t best = 2;
      for (const Implementation& each : rank_implementations(*graph, found->candidates, target, {}, 16)) {
        const Candidate& candidate = found->candidates[each.candidate];
        if (best == 0 && structures.contains(candidate.structure)) continue;
        if (!emit_mugraph(*graph, candidate.mugraph, each.schedule, **find_target(name))) continue;
        structures.insert(candidate.structure);
        best -= best > 0;
        const std::string mugraph = print_mugraph(candidate.mugraph);
        for (const char* form :
             {"accumulate_max", "accumulate_min", "accumulate_sum", "cluster_max", "loop="})
          if (mugraph.find(form) != std::string::npos) forms.insert(form);
        cases.push_back({"reduction on " + std::string(name) + "\n" + mugraph + print_schedule(each.schedule),
                         *graph, candidate.mugraph, each.schedule, 1.0, name, with_one_nan(*graph, random)});
      }
    }
  assert_true(cases.size() >= 3 * std::size(kReductions));
  for (const char* form : {"accumulate_max", "accumulate_min", "accumulate_sum"})
    assert_true(forms.contains(form));
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(examples_are_right), cmocka_unit_test(random_graphs_are_right),
                              cmocka_unit_test(what_models_write_is_right),
                              cmocka_unit_test(a_nan_reaches_every_reduction)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
