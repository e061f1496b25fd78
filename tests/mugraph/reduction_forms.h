// Every form in which a muGraph reduces, for every reduction of ops.def: y = R(x) over rows.
#pragma once

#include <string>
#include <vector>

#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "tests/support/test.h"

namespace quern {

struct ReductionForm {
  std::string name;
  std::string graph, mugraph;  // `@` stands where the name of the reduction does, `T` for the dtype
};

// x has 6 rows of 40 elements: tiles of 40, of 14 and 12 (ragged), and of 7 and 6. Second kernels read f32,
// or i32 if T is that.
inline const std::vector<ReductionForm>& reduction_forms() {
  const std::string rows = "graph g\nin x: T[6, 40]\ny = @(x, axis=1)\nout y\n";
  const std::string columns = "graph g\nin x: T[40, 6]\ny = @(x, axis=0)\nout y\n";
  const std::string head = "mugraph g\nin x: T[6, 40]\ntensor y: T[6]\n";
  static const std::vector<ReductionForm> forms = {
      {"a tile", rows,
       head + "kernel grid=[2] {\na = load(x, x=0)\nr = @(a, axis=1)\nstore(r, y, x=0)\n}\nout y\n"},
      {"a loop over parts of rows", rows,
       head + "kernel grid=[2] loop=3 {\na = load(x, x=0, loop=1)\nr = @(a, axis=1)\n"
              "s = accumulate_@(r)\nstore(s, y, x=0)\n}\nout y\n"},
      {"a loop over rows", columns,
       "mugraph g\nin x: T[40, 6]\ntensor y: T[6]\nkernel grid=[2] loop=8 {\na = load(x, x=1, loop=0)\n"
       "s = accumulate_@(a)\nr = @(s, axis=0)\nstore(r, y, x=0)\n}\nout y\n"},
      {"a cluster", rows,
       head + "kernel grid=[2] cluster=2 loop=2 {\na = load(x, x=0, cluster=1, loop=1)\nr = @(a, axis=1)\n"
              "s = accumulate_@(r)\nc = cluster_@(s)\nstore(c, y, x=0)\n}\nout y\n"},
      {"a second kernel", rows,
       "mugraph g\nin x: T[6, 40]\ntensor p: W[2, 6]\ntensor y: T[6]\nkernel grid=[2, 2] loop=3 {\n"
       "a = load(x, x=0, y=1, loop=1)\nr = @(a, axis=1)\ns = accumulate_@(r)\nt = reshape(s, shape=[1, 3])\n"
       "store(t, p, x=1, y=0)\n}\nkernel grid=[2] {\na = load(p, x=1)\nr = @(a, axis=0)\nstore(r, y, "
       "x=0)\n}\n"
       "out y\n"},
  };
  return forms;
}

inline std::vector<const OpInfo*> all_reductions() {
  std::vector<const OpInfo*> rows;
  for (const OpInfo& op : all_ops())
    if (op.kind == OpKind::reduction) rows.push_back(&op);
  return rows;
}

// With the name of the reduction at every place but `place`, where there is another (-1: nowhere).
inline std::string filled(const std::string& text, const std::string& reduction, DType dtype, int place = -1,
                          const std::string& other = "") {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool type = (text[i] == 'T' || text[i] == 'W') && i > 0 && text[i - 1] == ' ';
    if (text[i] == '@')
      out += place-- == 0 ? other : reduction;
    else if (type)
      out += dtype_name(text[i] == 'W' && is_float(dtype) ? DType::f32 : dtype);
    else
      out += text[i];
  }
  return out;
}

inline Graph graph_of(const ReductionForm& form, const std::string& reduction, DType dtype) {
  auto graph = parse_graph(filled(form.graph, reduction, dtype));
  assert_ok(graph);
  return std::move(*graph);
}

inline MuGraph mugraph_of(const ReductionForm& form, const std::string& reduction, DType dtype,
                          int place = -1, const std::string& other = "") {
  auto mugraph = parse_mugraph(filled(form.mugraph, reduction, dtype, place, other));
  assert_ok(mugraph);
  return std::move(*mugraph);
}

}  // namespace quern
