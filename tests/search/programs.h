// The six workload families as terms, written by hand: what the e-graph's and the oracle's tests start from.
#pragma once

#include <string>
#include <vector>

#include "core/search/egraph.h"

namespace quern {

// An e-graph under construction.
class TermWriter {
 public:
  ClassId input(std::vector<Label> labels) {
    LabelSet set = 0;
    for (Label label : labels) set |= label_bit(label);
    return egraph.add_leaf(inputs_++, set);
  }
  ClassId number(double value) { return egraph.add({OpCode::constant, 0, value, {}}); }
  ClassId op(OpCode code, std::vector<ClassId> operands) {
    return egraph.add({code, 0, 0, std::move(operands)});
  }
  ClassId sum(Label label, ClassId x) { return egraph.add({OpCode::reduce_sum, label, 0, {x}}); }
  ClassId max(Label label, ClassId x) { return egraph.add({OpCode::reduce_max, label, 0, {x}}); }
  ClassId matmul(Label label, ClassId a, ClassId b) { return sum(label, op(OpCode::mul, {a, b})); }
  ClassId rms_norm(Label label, double count, ClassId x) {
    const ClassId mean = op(OpCode::div, {sum(label, op(OpCode::square, {x})), number(count)});
    return op(OpCode::mul, {x, op(OpCode::rsqrt, {op(OpCode::add, {mean, number(1e-5)})})});
  }
  ClassId softmax(Label label, ClassId x) {
    const ClassId e = op(OpCode::exp, {op(OpCode::sub, {x, max(label, x)})});
    return op(OpCode::div, {e, sum(label, e)});
  }

  EGraph egraph;

 private:
  int32_t inputs_ = 0;
};

struct Program {
  std::string name;
  EGraph egraph;
  std::vector<ClassId> goals;
};

inline std::vector<Program> workloads() {
  std::vector<Program> programs;
  auto add = [&](const char* name, auto write) {
    TermWriter w;
    const ClassId goal = write(w);
    programs.push_back({name, std::move(w.egraph), {goal}});
  };
  enum : Label { batch, row, depth, column, inner };
  auto attention = [](TermWriter& w, bool norms) {
    ClassId q = w.input({batch, row, depth}), k = w.input({batch, depth, column}),
            v = w.input({batch, column, inner});
    if (norms) q = w.rms_norm(depth, 64, q), v = w.rms_norm(inner, 64, v);
    return w.matmul(column, w.softmax(column, w.matmul(depth, q, k)), v);
  };
  add("gqa", [&](TermWriter& w) { return attention(w, false); });
  add("qknorm", [&](TermWriter& w) { return attention(w, true); });
  add("rmsnorm", [](TermWriter& w) {
    const ClassId x = w.input({row, depth}), weight = w.input({depth, column});
    return w.matmul(depth, w.rms_norm(depth, 4096, x), weight);
  });
  add("lora", [](TermWriter& w) {
    const ClassId x = w.input({row, depth}), weight = w.input({depth, column}), a = w.input({depth, inner}),
                  b = w.input({inner, column});
    return w.op(OpCode::add, {w.matmul(depth, x, weight), w.matmul(inner, w.matmul(depth, x, a), b)});
  });
  add("gatedmlp", [](TermWriter& w) {
    const ClassId x = w.input({row, depth}), gate = w.input({depth, column}), up = w.input({depth, column});
    return w.op(OpCode::mul, {w.op(OpCode::silu, {w.matmul(depth, x, gate)}), w.matmul(depth, x, up)});
  });
  add("ntrans", [](TermWriter& w) {
    const ClassId h = w.input({row, depth}), x = w.input({row, depth}), alpha = w.input({row, depth});
    const ClassId step = w.op(OpCode::mul, {alpha, w.op(OpCode::add, {w.rms_norm(depth, 4096, h), x})});
    return w.rms_norm(depth, 4096, w.op(OpCode::add, {x, step}));
  });
  return programs;
}

}  // namespace quern
