// Index arithmetic with simplification: where an element lies, as a function of loop variables.
//
// An Index is a constant plus multiples of atoms. An atom is a variable, or the quotient or remainder of an
// Index by a constant. Every atom is >= 0, and so is what a quotient or remainder is taken of, hence
// truncating division of unsigned numbers is exact; an Index itself may be negative only where a guard keeps
// it from being used.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace quern {

using AtomId = int32_t;
using VariableSet = uint64_t;  // bit i: variable i of the space

struct Index {
  struct Term {
    AtomId atom;
    int64_t factor;
    auto operator<=>(const Term&) const = default;
  };
  int64_t constant = 0;
  std::vector<Term> terms;  // atoms ascending, factors not 0

  Index(int64_t value = 0) : constant(value) {}
  bool is_constant() const { return terms.empty(); }
  auto operator<=>(const Index&) const = default;
};
using Coords = std::vector<Index>;

struct Atom {
  enum class Kind : uint8_t { variable, quotient, remainder };
  Kind kind = Kind::variable;
  std::string name;      // variable only
  Index argument;        // of the quotient or remainder
  int64_t divisor = 1;   // likewise
  int64_t largest = 0;   // the atom is between 0 and this
  VariableSet uses = 0;  // the variables it depends on
};

// The variables and atoms of one kernel. Equal expressions are the same atoms.
class IndexSpace {
 public:
  // 0 <= variable < extent; an extent of 1 gives the constant 0. At most 64 variables.
  Index variable(std::string name, int64_t extent);

  Index add(const Index& a, const Index& b);
  Index scale(const Index& a, int64_t factor);
  Index divide(const Index& a, int64_t divisor);     // rounding down
  Index remainder(const Index& a, int64_t divisor);  // in [0, divisor)

  // Row-major position of `coords` in `shape`, and back.
  Index flatten(const std::vector<int64_t>& shape, const Coords& coords);
  Coords unflatten(const std::vector<int64_t>& shape, const Index& position);

  // Bounds, saturated to 62 bits.
  int64_t smallest(const Index& a) const { return bound(a, false); }
  int64_t largest(const Index& a) const { return bound(a, true); }
  VariableSet uses(const Index& a) const;
  // Whether a = base + variable, where base does not depend on the variable and is a multiple of `multiple`.
  bool splits(const Index& a, const Index& variable, int64_t multiple) const;
  bool is_multiple(const Index& a, int64_t multiple) const;

  // `index` of another space. `values` has what stands here for the variables of that space, and gathers what
  // stands for its quotients and remainders.
  Index import(const IndexSpace& from, const Index& index, std::map<AtomId, Index>& values);

  const Atom& atom(AtomId id) const { return atoms_[static_cast<size_t>(id)]; }
  size_t atom_count() const { return atoms_.size(); }

 private:
  Index sum(const Index& a, const Index& b, int64_t factor) const;
  Index recombine(Index a);
  bool recombine_one(Index& a);
  Index atom_index(Atom::Kind kind, const Index& argument, int64_t divisor);
  int64_t bound(const Index& a, bool upper) const;
  // Parts `a` (factors in [0, divisor)) into multiples of some g > 1 that divides `divisor`, and a rest in
  // [0, g).
  int64_t part(const Index& a, int64_t divisor, Index& high, Index& low) const;

  std::vector<Atom> atoms_;
  std::map<std::pair<Index, int64_t>, AtomId> quotients_, remainders_;
  int variables_ = 0;
};

}  // namespace quern
