// Small extents for a system of dimensions: variables that were given extents, and what must hold between
// them (a tile is a part of a dimension, a reshape joins two, a concat adds them up). Finds small values for
// which all of it still holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace quern {

class Extents {
 public:
  using Var = int;
  // Axes along which work is spread are made smallest first, then tiles.
  enum class Role : uint8_t { axis, tile, whole };

  // A variable whose extent is `extent` now. One of 0 or 1 keeps it; others stay at least 2.
  Var add(int64_t extent, Role role);
  // One that keeps its extent, whatever is connected with it.
  Var constant(int64_t extent);
  // The two are one. Their extents must be equal.
  void equal(Var a, Var b);
  // The products are equal.
  void product(std::vector<Var> left, std::vector<Var> right);
  // A reshape: the products are equal, and elements keep their order.
  void reshape(std::vector<Var> left, std::vector<Var> right);
  // `result` follows from `from` by a rule of this name: twice the same has one result.
  void follows(std::string rule, std::vector<Var> from, Var result);
  // Makes one what must be one because of reshape() and follows(): two programs may split or cut the same
  // dimension, and do it alike only if they get the same extents for the parts.
  void align();
  // The total is the sum of the parts.
  void sum(Var total, std::vector<Var> parts);
  // `tile` is what an axis leaves of `whole`. When it does not divide it now, it will not divide it then. Where parts are
  // not as even as they could be now, only the last one is sure to be shorter then. Whether they are.
  bool cut(Var whole, Var axis, Var tile);
  // Keeps its extent, and so does everything that is connected with it.
  void keep(Var var);
  // Gets about this extent, or its own if that is smaller, in place of the smallest.
  void prefer(Var var, int64_t extent);

  // What is connected gets small values; unconnected parts get different ones as far as that is cheap. What
  // has no small solution keeps its extents.
  void solve();
  int64_t value(Var var) const { return variables_[static_cast<size_t>(root(var))].bounds.least; }
  int64_t original(Var var) const { return variables_[static_cast<size_t>(root(var))].original; }
  Var root(Var var) const;

 private:
  struct Bounds {
    int64_t least, most;
  };
  struct Variable {
    Var parent;
    int64_t original;
    Bounds bounds;  // one value once it is known
    Role role;
    bool kept;
    int64_t preferred = 0;
  };
  struct Constraint {
    enum class Kind : uint8_t { product, sum, ragged, uneven } kind;
    // product: left = right; sum: left[0] = sum of right; ragged, uneven: left[0] cut by right[0] into tiles of right[1], as
    // even as they can be, or all of them whole but the last
    std::vector<Var> left, right;
    bool ordered = false;  // a reshape
    bool leaves_rest() const { return kind == Kind::ragged || kind == Kind::uneven; }
  };
  struct Rule {
    std::string name;
    std::vector<Var> from;
    Var result;
  };

  std::vector<Var> roots(const std::vector<Var>& vars) const;
  bool align_results();
  bool align_reshapes();
  bool align_factors(const std::vector<Var>& a, const std::vector<Var>& b);

  const Bounds& bounds(Var var) const { return variables_[static_cast<size_t>(var)].bounds; }
  bool known(Var var) const { return bounds(var).least == bounds(var).most; }
  bool narrow(Var var, Bounds to, bool& changed);
  bool set(Var var, int64_t value);
  void undo(size_t mark);
  bool propagate();
  bool propagate_one(const Constraint& constraint, bool& changed);
  bool propagate_sides(const Constraint& constraint, bool& changed);
  bool propagate_cut(const Constraint& constraint, bool& changed);
  Bounds total(std::span<const Var> side, bool product, size_t without = SIZE_MAX) const;
  bool leaves_rest(Var axis) const;
  std::vector<int64_t> candidates(Var var, int first) const;
  Var choose(const std::vector<Var>& members) const;
  bool search(const std::vector<Var>& members, int first);
  std::vector<std::vector<Var>> components();

  std::vector<Variable> variables_;
  std::vector<Constraint> constraints_;
  std::vector<Rule> rules_;
  std::vector<const Constraint*> active_;  // of the component that is being solved
  std::vector<std::pair<Var, Bounds>>
      trail_;  // variables in the order in which they were narrowed, and from what
  int budget_ = 0;                         // choices left for this component
};

}  // namespace quern
