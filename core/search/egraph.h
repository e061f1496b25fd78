// An e-graph over indexed terms: hash consing, union-find, rebuilding (Nelson and Oppen 1980; Willsey et al.,
// egg, POPL'21).
//
// A term is an expression over tensors whose dimensions have names, the labels. It has a set of free labels:
// those of the dimensions it varies along. Elementwise operators join the labels of their operands, so
// broadcasting needs no operator; reductions bind one label. `matmul(x, w)` is sum over k of x * w.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/lang/op.h"

namespace quern {

using ClassId = int32_t;
using Label = int32_t;
using LabelSet = uint64_t;  // one bit a label; a program has at most 64
inline constexpr int kMaxLabels = 64;
inline bool has_label(LabelSet set, Label label) { return set >> label & 1; }
inline LabelSet label_bit(Label label) { return LabelSet{1} << label; }

// One operator over classes.
//   input     `index` says which leaf (an input, or a value that the search does not look into)
//   constant  `number`
//   reductions  bind label `index`
//   others    elementwise, conversions and composites; `index` distinguishes operators that differ in
//   attributes
struct ENode {
  OpCode code = OpCode::constant;
  int32_t index = 0;
  double number = 0;
  std::vector<ClassId> children;
  bool operator==(const ENode&) const = default;
};

// Why two classes are one: which axiom said so, and of what it was an instance.
struct Justification {
  int32_t axiom = -1;  // row of the axiom table; -1: by congruence
  bool reversed = false;
  std::vector<ClassId> variables;  // what x, y, z, ... stood for
  std::vector<Label> labels;       // what j, k, ... stood for
  ClassId left = -1, right = -1;   // as they were numbered before
};

class EGraph {
 public:
  // The class of this operator; a new one if there is none. `free` are its free labels.
  ClassId add(ENode node);
  // Leaves need to be told their labels.
  ClassId add_leaf(int32_t index, LabelSet labels);
  // The class of this operator, -1 if it is not in the e-graph. Children need not be canonical.
  ClassId lookup(ENode node) const;

  // Makes two classes one. Their free labels become those that both have: a term that can be written without
  // a label does not vary along it. Returns whether they were different. Call rebuild() before the next
  // lookup.
  bool merge(ClassId a, ClassId b, Justification why);
  // Restores congruence: equal operators over equal classes are in one class.
  void rebuild();

  ClassId find(ClassId id) const;
  LabelSet labels(ClassId id) const { return classes_[find(id)].labels; }
  const std::vector<ENode>& nodes(ClassId id) const { return classes_[find(id)].nodes; }
  // Canonical ids of all classes, ascending.
  std::vector<ClassId> classes() const;
  size_t node_count() const { return table_.size(); }
  const std::vector<Justification>& justifications() const { return justifications_; }

 private:
  struct Class {
    std::vector<ENode> nodes;
    std::vector<std::pair<ENode, ClassId>>
        parents;  // operators that have this class as an operand, and their classes
    LabelSet labels = 0;
  };
  struct NodeHash {
    size_t operator()(const ENode& node) const;
  };

  void canonicalize(ENode& node) const;
  LabelSet free_labels(const ENode& node) const;
  void repair(ClassId id);

  mutable std::vector<ClassId> parent_;  // union-find
  std::vector<Class> classes_;
  std::unordered_map<ENode, ClassId, NodeHash> table_;
  std::vector<ClassId> dirty_;
  std::vector<Justification> justifications_;
};

}  // namespace quern
