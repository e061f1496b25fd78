#include "core/search/rewrites.h"

#include "core/search/broadcasts.h"
#include "core/search/concats.h"
#include "core/search/movements.h"
#include "core/search/position_shapes.h"
#include "core/search/shifts.h"
#include "core/search/sinks.h"

namespace quern {

Graph rewritten(const Graph& graph) {
  Graph out = graph;
  for (Graph (*rewrite)(const Graph&) : {without_shifts, without_sinks, without_broadcasts, reshape_positions,
                                         narrow_movements, operators_behind_concats})
    out = rewrite(out);
  return out;
}

}  // namespace quern
