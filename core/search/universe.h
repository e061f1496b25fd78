// The block operators a search may use: every operator that computes a class of the saturated e-graph from
// other classes of it. This is the pruning of Mirage (OSDI'25, section 4.3) as a look-up: what is not here
// cannot be part of the target.
#pragma once

#include <vector>

#include "core/search/oracle.h"
#include "core/search/terms.h"

namespace quern {

enum class BlockKind : uint8_t {
  leaf,
  constant,
  elementwise,
  reduction,  // `code` over `label`
  matmul,     // sum over `label` of the product of two operands
  // sum over `label` of a product, plus sum over `label2` of another, as one contraction of concatenated
  // operands: operands a1, b1, a2, b2
  concat_matmul,
  composite,
};

struct BlockTerm {
  BlockKind kind = BlockKind::leaf;
  OpCode code = OpCode::constant;
  int32_t index = 0;  // leaf: input; constant: as in ENode; composite: position in Terms::composites
  double number = 0;
  Label label = -1, label2 = -1;  // leaf: `label` of the input is `label2` here, if any (whole.h)
  std::vector<ClassId> operands;
  bool operator==(const BlockTerm&) const = default;
  auto operator<=>(const BlockTerm&) const = default;

  // How many operators a block has for it. Constants and loads are not counted.
  int size() const;
};

class Universe {
 public:
  // `terms` is saturated; it must outlive the universe. With `prefixes`, only operators that an oracle has
  // admitted.
  explicit Universe(const Terms& terms, const Prefixes* prefixes = nullptr);

  // Admitted operators that compute a class, in canonical order; a term's position is part of no contract but
  // is the same for equal terms.
  const std::vector<BlockTerm>& of(ClassId id) const;
  size_t admitted() const { return admitted_; }
  // The least number of operators that compute a class, counted as a tree of the deepest path: no muGraph
  // needs fewer. kUnreachable when none is admitted.
  int depth(ClassId id) const;
  static constexpr int kUnreachable = 1 << 20;

 private:
  void add_terms(const Terms& terms, const Prefixes* prefixes, ClassId id);
  void add_matmuls(const Terms& terms, const Prefixes* prefixes, ClassId id, const ENode& sum);
  void add_concats(const Terms& terms, ClassId id);
  void find_depths(const std::vector<ClassId>& classes);

  std::vector<std::vector<BlockTerm>> of_;  // by class
  std::vector<int> depth_;
  size_t admitted_ = 0;
};

}  // namespace quern
