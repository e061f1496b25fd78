// Sums over a row that need less than a loop of their own: sums of e^(x - max(x)) run along with the maximum, and what
// picks one element of a row goes there alone. In the emulator against the float reference, by warps, blocks and clusters,
// on infinities and NaN wherever they may stand, and labels that are no positions.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include "core/codegen/baseline.h"
#include "core/emulator/emulator.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "tests/codegen/emulated.h"
#include "tests/support/test.h"

namespace {

using namespace quern;
using namespace emulated;

struct Form {
  std::string name, graph;  // N: the length of a row; T: the dtype of x
  bool runs, picks;         // a sum along with the maximum; an element by a label
};

constexpr const char* kNormalizer =
    "in x: T[3, N]\nm = max(x, axis=[1], keepdims=true)\nd = sub(x, m)\ne = exp(d)\n"
    "s = sum(e, axis=[1], keepdims=true)\n";
constexpr const char* kLabel = "in y: i32[3, 1]\nj = iota(shape=[3, N], axis=1)\nq = eq(j, y)\n";

const Form kForms[] = {
    {"cross entropy",
     std::string(kNormalizer) + kLabel +
         "v = where(q, d, 0.0)\nt = sum(v, axis=[1], keepdims=true)\nl = log(s)\n"
         "o = sub(l, t)\nout o, m\n",
     true, true},
    {"softmax", std::string(kNormalizer) + "o = div(e, s)\nout o, s\n", true, false},
    {"entropy, whose other sum takes a loop",
     std::string(kNormalizer) + "w = mul(e, d)\nt = sum(w, axis=[1], keepdims=true)\no = div(t, s)\nout o\n",
     false, false},
    {"the largest and the picked in one level",
     std::string("in x: T[3, N]\nm = max(x, axis=[1])\n") + kLabel +
         "v = where(q, x, -inf)\nt = max(v, axis=[1])\no = sub(m, t)\nout o\n",
     false, true},
    {"a pick alone",
     std::string("in x: T[3, N]\n") + kLabel + "v = where(q, x, 0.0)\nt = sum(v, axis=[1])\nout t\n", false,
     false},
    {"something else where nothing is picked",
     std::string("in x: T[3, N]\nm = max(x, axis=[1])\n") + kLabel +
         "v = where(q, x, 1.0)\nt = sum(v, axis=[1])\no = sub(m, t)\nout o\n",
     false, false},
    {"a maximum that is picked",
     std::string("in x: T[3, N]\nn = max(x, axis=[1], keepdims=true)\n") + kLabel +
         "v = where(q, x, -inf)\nm = max(v, axis=[1], keepdims=true)\nd = sub(v, m)\ne = exp(d)\ns = sum(e, "
         "axis=[1], "
         "keepdims=true)\no = add(s, n)\nout o\n",
     false, true},
    {"a row that is the same everywhere",
     "in y: T[3, 1]\nx = broadcast(y, shape=[3, N])\nm = max(x, axis=[1], keepdims=true)\nd = sub(x, m)\ne = "
     "exp(d)\n"
     "s = sum(e, axis=[1])\nout s\n",
     false, false},
    {"a label, and a loop behind it",
     std::string(kNormalizer) + kLabel +
         "v = where(q, d, 0.0)\nt = sum(v, axis=[1], keepdims=true)\np = div(e, s)\n"
         "o = mul(p, t)\nout o\n",
     true, true},
    {"two normalizers",
     std::string(kNormalizer) +
         "in z: T[3, N]\nn = max(z, axis=[1], keepdims=true)\nc = sub(z, n)\nf = exp(c)\n"
         "u = sum(f, axis=[1], keepdims=true)\np = div(e, s)\nr = div(f, u)\no = sub(p, r)\nout o\n",
     true, false},
};

std::string replaced(std::string text, char from, const std::string& to) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    const bool alone = text[i] == from && (i == 0 || !letter(text[i - 1])) && !letter(text[i + 1]);
    out += alone ? to : std::string(1, text[i]);
  }
  return out;
}

// Friendly numbers; those of every hostile class; masked from the front, from behind and wholly; one infinity or NaN.
std::vector<std::vector<std::string>> inputs_of(const Graph& graph) {
  const std::vector<TensorDesc> descs = graph.input_descs();
  std::vector<std::string> friendly;
  for (size_t i = 0; i < descs.size(); ++i) friendly.push_back(random_buffer(descs[i], 5 + i));
  std::vector<std::vector<std::string>> all = {friendly};
  for (const HostileClass& each : hostile_classes()) all.push_back(hostile_inputs(graph, each, 3));
  const int64_t length = descs[0].shape[1];
  const double infinity = std::numeric_limits<double>::infinity();
  auto with = [&](int64_t first, int64_t last, double value) {
    all.push_back(friendly);
    for (int64_t row : {0, 2})
      for (int64_t at = first; at < last; ++at)
        store_element(all.back()[0].data(), descs[0].dtype, row * length + at, value);
  };
  with(0, length - 1, -infinity);
  with(1, length, -infinity);
  with(0, length, -infinity);
  with(length / 2, length / 2 + 1, infinity);
  with(length - 1, length, std::nan(""));
  all.push_back(friendly);  // each larger than what came before it
  for (int64_t at = 0; at < 3 * length; ++at)
    store_element(all.back()[0].data(), descs[0].dtype, at,
                  40 * static_cast<double>(at % length) / static_cast<double>(length) - 20);
  const auto labels = std::find_if(descs.begin(), descs.end(),
                                   [](const TensorDesc& desc) { return desc.dtype == DType::i32; });
  if (labels == descs.end()) return all;
  const auto input = static_cast<size_t>(labels - descs.begin());
  const size_t count = all.size();
  for (const std::array<double, 3>& some :
       {std::array<double, 3>{0, static_cast<double>(length - 1), static_cast<double>(length / 2)},
        {-1, static_cast<double>(length), -2147483648.0},
        {7, 2147483647, -100}}) {
    all.push_back(friendly);
    for (int64_t row = 0; row < 3; ++row)
      store_element(all.back()[input].data(), DType::i32, row, some[static_cast<size_t>(row)]);
  }
  for (size_t i = 0; i < count; ++i)
    for (int64_t row = 0; row < 3; ++row)
      store_element(all[i][input].data(), DType::i32, row, static_cast<double>((7 + row * 13) % length));
  return all;
}

void all_are_right(void**) {
  const Target& target = **find_target("sm_90a");
  struct Case {
    std::string label;
    Graph graph;
    Emitted emitted;
  };
  std::vector<Case> cases;
  for (const Form& form : kForms)
    // A warp; a block, of whole and of ragged steps; a cluster, whose last block has less.
    for (const auto& [length, dtype] :
         {std::pair(48, "f32"), {1024, "bf16"}, {1100, "f32"}, {20004, "f32"}}) {
      Graph graph =
          test_graph("graph g\n" + replaced(replaced(form.graph, 'N', std::to_string(length)), 'T', dtype));
      auto emitted = emit_baseline(graph, target);
      assert_ok(emitted);
      const std::string& text = emitted->kernels;
      const std::string label = form.name + ", " + dtype + " of " + std::to_string(length);
      const bool runs = text.find("now") != std::string::npos,
                 picks = text.find("place0") != std::string::npos;
      if (runs != form.runs || picks != form.picks) print_error("%s:\n%s\n", label.c_str(), text.c_str());
      assert_int_equal(runs, form.runs);
      assert_int_equal(picks, form.picks);
      cases.push_back({label, std::move(graph), std::move(*emitted)});
    }
  std::vector<ProgramSource> sources;
  for (const Case& each : cases) {
    ProgramSource source{each.emitted.kernels, {}};
    for (const Launch& launch : each.emitted.plan.launches) source.kernels.push_back(launch.kernel);
    sources.push_back(std::move(source));
  }
  auto programs = compile_programs(sources);
  assert_ok(programs);
  int failures = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto all = inputs_of(cases[i].graph);
    for (size_t set = 0; set < all.size(); ++set) {
      const std::vector<std::string>& inputs = all[set];
      const std::vector<std::string_view> views(inputs.begin(), inputs.end());
      const auto outputs = run_plan((*programs)[i], cases[i].emitted.plan, views, {.seed = 7});
      const std::string wrong =
          outputs ? judge({cases[i].label, cases[i].graph}, cases[i].emitted.plan, inputs, *outputs)
                  : outputs.status().message();
      if (wrong.empty()) continue;
      print_error("%s, inputs %zu: %s\n", cases[i].label.c_str(), set, wrong.c_str());
      ++failures;
    }
  }
  assert_int_equal(failures, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(all_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
