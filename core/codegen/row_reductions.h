// What reductions over a row need less work for than their operands say.
#pragma once

#include <optional>

#include "core/codegen/kernel.h"

namespace quern {

// A row as loops over it see it.
struct RowItems {
  const Graph& graph;
  const KernelTrace& trace;
  const std::vector<Item>& items;
  Index position;     // of an element in its row
  VariableSet along;  // what differs within a row

  // Of a reduction of what is chosen where the position in the row is an integer that the row has, and adds nothing
  // elsewhere (the sum of where(iota == label, x, 0)): that integer, an item. One element is all there is to it.
  std::optional<int> picked_position(ValueId reduction) const;
  // Of a sum of e^(x - max(x)) over the row, in f32: the maximum. Where terms are exact to |x - max(x)| / 2^24 only, as
  // exp_fast is, the sum is exact to less than 2^-21: large exponents belong to small terms.
  std::optional<ValueId> maximum_of_numerators(ValueId reduction) const;

 private:
  const Item& at(int item) const { return items[static_cast<size_t>(item)]; }
  bool is_compute(int item, OpCode code) const {
    return at(item).kind == Item::Kind::compute && graph.node(at(item).value).code == code;
  }
};

}  // namespace quern
