// A trace: what must be computed, in order, to have values of a graph at given coordinates.
//
// Movement operators only change coordinates and leave no items; a concat becomes guards (a load under a
// guard that is false must not happen) and a choice. Each (value, coordinates, guard) is traced once, so that
// a trace is linear in what it computes whatever the shape of the graph.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "core/codegen/index_expr.h"
#include "core/graph/graph.h"

namespace quern {

struct Item {
  enum class Kind : uint8_t {
    number,   // a constant
    load,     // the element at `index` of where `value` is stored
    held,     // a variable of the kernel: a finished reduction, an accumulator
    iota,     // `index` as a number
    compute,  // an elementwise operator
    convert,  // a cast
    guard,    // index < extent, and the guard `guard` if there is one
    choose,   // the first operand whose guard holds; guards and values alternate, the last value has no guard
  };
  Kind kind = Kind::number;
  ValueId value = -1;
  DType type = DType::f32;    // in registers: f32, i32, or bool; of a cast to a 16-bit float f32, rounded
  std::vector<int> operands;  // items
  int guard = -1;             // of a load: the item that must hold
  Index index;
  int64_t extent = 0;
  VariableSet uses = 0;  // the index variables that this and its operands depend on
};

// f32 for all floats; i32 and bool are themselves.
inline DType register_type(DType dtype) { return is_float(dtype) ? DType::f32 : dtype; }

// What to do about a value met at `coords`.
enum class Meeting : uint8_t { expand, load, hold, refuse };
using Meet = std::function<Meeting(ValueId, const Coords&)>;

class Trace {
 public:
  Trace(const Graph& graph, IndexSpace& space, Meet meet, int limit = 1 << 20)
      : graph_(graph), space_(space), meet_(std::move(meet)), limit_(limit) {}

  // The item that holds `value` at `coords`; call failed() afterwards. The value itself is expanded whatever
  // `meet` says; a reduction or matrix product cannot be.
  int root(ValueId value, const Coords& coords);
  // The same, but meets `value` like any other.
  int read(ValueId value, const Coords& coords) { return visit(value, coords, -1); }

  const std::vector<Item>& items() const { return items_; }
  const Item& item(int i) const { return items_[static_cast<size_t>(i)]; }
  // A value was refused, or there are more than `limit` items.
  bool failed() const { return failed_; }
  // Items and the quotients and remainders in their indices: about the number of statements. Chains of views,
  // which have no statements, count a little: they are followed by recursion.
  int cost() const;

 private:
  int visit(ValueId value, const Coords& coords, int guard);
  int expand(ValueId value, const Coords& coords, int guard);
  int compute(const Node& node, ValueId value, const Coords& coords, int guard);
  int concat(const Node& node, const Coords& coords, int guard);
  int append(Item item);
  VariableSet uses(const Coords& coords) const;

  const Graph& graph_;
  IndexSpace& space_;
  Meet meet_;
  int limit_;
  bool failed_ = false;
  int moves_ = 0;
  std::vector<Item> items_;
  std::unordered_map<std::string, int> known_;
};

// The coordinates in the operand of a movement operator with one operand (reshape, transpose, slice,
// broadcast).
Coords move_coords(const Graph& graph, IndexSpace& space, const Node& node, const Coords& coords);
inline bool is_view(OpCode code) {
  return code == OpCode::reshape || code == OpCode::transpose || code == OpCode::slice ||
         code == OpCode::broadcast;
}

}  // namespace quern
