// Small programs, one a data path.
#include "core/base/target.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "tools/bench/faults/faults.h"

namespace quern {

namespace {

struct Text {
  const char* label;
  std::string graph;
  std::string mugraph;  // empty: the baseline
  std::string schedule;
};

const char kNormGraph[] =
    "graph norm\nin x: f16[16, 256]\nin w: f16[256, 128]\n"
    "y = rms_norm(x, axis=-1, eps=1e-5)\nz = matmul(y, w)\nout z\n";
const char kRaggedNormGraph[] =
    "graph norm\nin x: f16[20, 200]\nin w: f16[200, 72]\n"
    "y = rms_norm(x, axis=-1, eps=1e-5)\nz = matmul(y, w)\nout z\n";
const char kAttentionGraph[] =
    "graph attention\nin q: f16[2, 64, 32]\nin k: f16[2, 32, 160]\nin v: f16[2, 160, 32]\n"
    "s = matmul(q, k)\np = softmax(s, axis=-1)\no = matmul(p, v)\nout o\n";
const char kPartsGraph[] = "graph parts\nin x: f16[16, 512]\nin w: f16[512, 128]\nz = matmul(x, w)\nout z\n";
const char kRowsGraph[] =
    "graph rows\nin a: f16[6, 520]\nin b: f16[6, 520]\n"
    "s = softmax(a, axis=-1)\ny = mul(s, b)\nout y\n";

std::string norm(const std::string& rows, const std::string& inner, const std::string& columns,
                 const std::string& grid, const std::string& loop) {
  return "mugraph norm\nin x: f16[" + rows + ", " + inner + "]\nin w: f16[" + inner + ", " + columns +
         "]\ntensor z: f16[" + rows + ", " + columns + "]\nkernel grid=[" + grid + "] loop=" + loop +
         " threads=128 {\n"
         "  x0 = load(x, loop=1)\n  w0 = load(w, x=1, loop=0)\n  xw = matmul(x0, w0)\n  xx = square(x0)\n"
         "  row = sum(xx, axis=[1], keepdims=true)\n  a = accumulate_sum(xw)\n  q = accumulate_sum(row)\n"
         "  k = extent(x[1])\n  mean = div(q, k)\n  shifted = add(mean, 1e-05)\n  rms = sqrt(shifted)\n"
         "  y = div(a, rms)\n  store(y, z, x=1)\n}\nout z\n";
}

const char kAttention[] =
    "mugraph attention\nin q: f16[2, 64, 32]\nin k: f16[2, 32, 160]\nin v: f16[2, 160, 32]\ntensor o: f16[2, "
    "64, 32]\n"
    "kernel grid=[2, 1, 1] loop=5 threads=128 {\n"
    "  q0 = load(q, x=0)\n  k0 = load(k, x=0, loop=2)\n  v0 = load(v, x=0, loop=1)\n  s = matmul(q0, k0)\n"
    "  top = max(s, axis=[2], keepdims=true)\n  m = accumulate_max(top)\n  d = sub(s, m)\n  e = exp(d)\n"
    "  r = sum(e, axis=[2], keepdims=true)\n  l = accumulate_rescaled(r, m)\n  pv = matmul(e, v0)\n"
    "  a = accumulate_rescaled(pv, m)\n  y = div(a, l)\n  store(y, o, x=0)\n}\nout o\n";

const char kParts[] =
    "mugraph parts\nin x: f16[16, 512]\nin w: f16[512, 128]\ntensor z: f16[16, 128]\n"
    "kernel grid=[2] cluster=2 loop=4 threads=128 {\n"
    "  x0 = load(x, cluster=1, loop=1)\n  w0 = load(w, x=1, cluster=0, loop=0)\n  xw = matmul(x0, w0)\n"
    "  a = accumulate_sum(xw)\n  y = cluster_sum(a)\n  store(y, z, x=1)\n}\nout z\n";

const char kPairsGraph[] = "graph pairs\nin x: f16[64, 256]\nin w: f16[256, 128]\nz = matmul(x, w)\nout z\n";
const char kPairs[] =
    "mugraph pairs\nin x: f16[64, 256]\nin w: f16[256, 128]\ntensor z: f16[64, 128]\n"
    "kernel grid=[2] loop=8 threads=128 {\n"
    "  x0 = load(x, loop=1)\n  w0 = load(w, x=1, loop=0)\n  xw = matmul(x0, w0)\n"
    "  a = accumulate_sum(xw)\n  store(a, z, x=1)\n}\nout z\n";

const char kRows[] =
    "mugraph rows\nin a: f16[6, 520]\nin b: f16[6, 520]\ntensor y: f16[6, 520]\nkernel grid=[3] threads=128 "
    "{\n"
    "  a0 = load(a, x=0)\n  b0 = load(b, x=0)\n  m = max(a0, axis=[1], keepdims=true)\n  d = sub(a0, m)\n  e "
    "= exp(d)\n"
    "  l = sum(e, axis=[1], keepdims=true)\n  p = div(e, l)\n  r = mul(p, b0)\n  store(r, y, x=0)\n}\nout "
    "y\n";

template <class T>
T need(Result<T> result) {
  check(result.ok(), "a case of planted faults is valid");
  return std::move(*result);
}

FaultCase made(const Text& text) {
  const Target& target = *need(find_target("sm_90a"));
  FaultCase out{text.label, need(parse_graph(text.graph)), {}};
  if (text.mugraph.empty())
    out.emitted = need(emit_baseline(out.graph, target));
  else
    out.emitted = need(emit_mugraph(out.graph, need(parse_mugraph(text.mugraph)),
                                    need(parse_schedule(text.schedule)), target));
  return out;
}

}  // namespace

std::vector<FaultCase> fault_cases() {
  const std::string small = norm("16", "256", "128", "2", "4"), deep = norm("16", "256", "128", "2", "8"),
                    ragged = norm("20", "200", "72", "2", "4");
  const Text texts[] = {
      {"points", "graph points\nin x: f16[30, 130]\ny = silu(x)\nout y\n", "", ""},
      {"rows of a warp", "graph rows\nin x: f16[37, 200]\ny = softmax(x, axis=-1)\nout y\n", "", ""},
      {"rows of a block", "graph rows\nin x: f16[3, 2100]\ny = layer_norm(x, axis=-1, eps=1e-5)\nout y\n", "",
       ""},
      {"matrix product", "graph product\nin x: f16[70, 64]\nin w: f16[64, 104]\nz = matmul(x, w)\nout z\n",
       "", ""},
      {"registers", kNormGraph, small, "kernel warps=[1, 2, 2]\n"},
      {"softmax of rows", kRowsGraph, kRows, "kernel warps=[1, 4, 1]\n"},
      {"cp.async", kNormGraph, small, "kernel warps=[1, 1, 4] stages=3\n"},
      {"cp.async, ragged", kRaggedNormGraph, ragged, "kernel warps=[2, 2, 1] stages=2\n"},
      {"TMA", kNormGraph, small, "kernel warps=[1, 1, 4] stages=3 tma=1\n"},
      {"TMA, producer", kNormGraph, deep, "kernel warps=[1, 1, 4] stages=2 tma=1 producer=1\n"},
      {"TMA, producer, wgmma", kNormGraph, deep,
       "kernel warps=[1, 4, 1] stages=3 tma=1 wgmma=1 producer=1\n"},
      {"attention, wgmma", kAttentionGraph, kAttention, "kernel warps=[4, 1, 1] stages=2 tma=1 wgmma=1\n"},
      {"TMA, multicast", kPairsGraph, kPairs,
       "kernel warps=[4, 1, 1] stages=2 tma=1 wgmma=1 producer=1 multicast=[2, 1, 1]\n"},
      {"cluster", kPartsGraph, kParts, "kernel warps=[1, 1, 4] stages=2 tma=1\n"},
  };
  std::vector<FaultCase> out;
  for (const Text& text : texts) out.push_back(made(text));
  return out;
}

}  // namespace quern
