#include "tests/codegen/sized_cases.h"

#include "tests/mugraph/texts.h"

namespace quern {

MuGraphCase sized_case(const std::string& label, const std::string& graph, const std::string& mugraph,
                       const Sizes& sizes, const KernelSchedule& way) {
  const std::vector<std::pair<std::string, std::string>> words = {
      {"TYPE", sizes.dtype},      {"ROWS", sizes.rows}, {"INNER", sizes.inner},
      {"COLUMNS", sizes.columns}, {"GRID", sizes.grid}, {"TURNS", sizes.trip_count}};
  std::string graph_text = graph, mugraph_text = mugraph;
  for (const auto& [word, by] : words) {
    graph_text = with(graph_text, word, by);
    mugraph_text = with(mugraph_text, word, by);
  }
  const MuGraph parsed = mugraph_of(mugraph_text);
  Schedule schedule = default_schedule(parsed);
  for (KernelSchedule& kernel : schedule.kernels) kernel = way;
  std::string name = label;
  for (const auto& [word, by] : words) name += " " + by;
  return {name + ": " + print_schedule(schedule),   graph_of(graph_text), parsed, schedule, 0.5,
          way.tma || way.wgmma ? "sm_90a" : "sm_80"};
}

const char kProductGraph[] = R"(graph product
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
z = matmul(x, w)
out z
)";
const char kParts[] = R"(mugraph product
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID] cluster=2 loop=TURNS threads=128 {
  x0 = load(x, cluster=1, loop=1)
  w0 = load(w, x=1, cluster=0, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  y = cluster_sum(a)
  store(y, z, x=1)
}
out z
)";

const char kBiasedProductGraph[] = R"(graph biased
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in b: TYPE[COLUMNS]
y = matmul(x, w)
s = add(y, b)
z = silu(s)
out z
)";
const char kBiasedProduct[] = R"(mugraph biased
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
in b: TYPE[COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID, 2] loop=TURNS threads=128 {
  x0 = load(x, y=0, loop=1)
  w0 = load(w, x=1, loop=0)
  b0 = load(b, x=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  s = add(a, b0)
  o = silu(s)
  store(o, z, x=1, y=0)
}
out z
)";

Texts two_results() {
  return {with(kBiasedProductGraph, "out z", "out s, z"),
          with(with(with(kBiasedProduct, "tensor z:", "tensor s: TYPE[ROWS, COLUMNS]\ntensor z:"),
                    "  store(o, z,", "  store(s, s, x=1, y=0)\n  store(o, z,"),
               "out z", "out s, z")};
}

const char kNormGraph[] = R"(graph norm
in  x: TYPE[ROWS, INNER]
in  w: TYPE[INNER, COLUMNS]
y = rms_norm(x, axis=-1, eps=1e-5)
z = matmul(y, w)
out z
)";
const char kNorm[] = R"(mugraph norm
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[GRID] loop=TURNS threads=128 {
  x0 = load(x, loop=1)
  w0 = load(w, x=1, loop=0)
  xw = matmul(x0, w0)
  xx = square(x0)
  row = sum(xx, axis=[1], keepdims=true)
  a = accumulate_sum(xw)
  q = accumulate_sum(row)
  k = extent(x[1])
  mean = div(q, k)
  shifted = add(mean, 1e-05)
  rms = sqrt(shifted)
  y = div(a, rms)
  store(y, z, x=1)
}
out z
)";

const char kAttentionGraph[] = R"(graph attention
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, INNER, COLUMNS]
in v: TYPE[2, COLUMNS, INNER]
s = matmul(q, k)
p = softmax(s, axis=-1)
o = matmul(p, v)
out o
)";
const char kAttention[] = R"(mugraph attention
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, INNER, COLUMNS]
in v: TYPE[2, COLUMNS, INNER]
tensor o: TYPE[2, ROWS, INNER]
kernel grid=[2, 1, GRID] loop=TURNS threads=128 {
  q0 = load(q, x=0, z=1)
  k0 = load(k, x=0, loop=2)
  v0 = load(v, x=0, loop=1)
  s = matmul(q0, k0)
  top = max(s, axis=[2], keepdims=true)
  m = accumulate_max(top)
  d = sub(s, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  pv = matmul(e, v0)
  n = accumulate_rescaled(pv, m)
  y = div(n, l)
  store(y, o, x=0, z=1)
}
out o
)";

}  // namespace quern
