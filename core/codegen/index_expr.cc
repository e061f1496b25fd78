#include "core/codegen/index_expr.h"

#include <algorithm>
#include <numeric>

#include "core/base/status.h"

namespace quern {

namespace {

constexpr int64_t kBound = int64_t{1} << 62;

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0); }

Index scaled_down(Index a, int64_t divisor) {
  a.constant /= divisor;
  for (Index::Term& term : a.terms) term.factor /= divisor;
  return a;
}

}  // namespace

Index IndexSpace::variable(std::string name, int64_t extent) {
  if (extent <= 1) return Index(0);
  check(variables_ < 64, "too many index variables in one kernel");
  Atom atom;
  atom.name = std::move(name);
  atom.largest = extent - 1;
  atom.uses = VariableSet{1} << variables_++;
  atoms_.push_back(std::move(atom));
  Index index;
  index.terms = {{static_cast<AtomId>(atoms_.size()) - 1, 1}};
  return index;
}

Index IndexSpace::sum(const Index& a, const Index& b, int64_t factor) const {
  Index out(a.constant + factor * b.constant);
  auto i = a.terms.begin();
  auto j = b.terms.begin();
  while (i != a.terms.end() || j != b.terms.end()) {
    Index::Term term;
    if (j == b.terms.end() || (i != a.terms.end() && i->atom < j->atom)) {
      term = *i++;
    } else {
      term = {j->atom, factor * j->factor};
      if (i != a.terms.end() && i->atom == j->atom) term.factor += (i++)->factor;
      ++j;
    }
    if (term.factor != 0) out.terms.push_back(term);
  }
  return out;
}

// x = divisor * (x / divisor) + x % divisor, where a sum holds both parts.
bool IndexSpace::recombine_one(Index& a) {
  for (const Index::Term term : a.terms) {
    if (atom(term.atom).kind != Atom::Kind::remainder) continue;
    const Index argument = atom(term.atom).argument;
    const int64_t divisor = atom(term.atom).divisor;
    const Index quotient = divide(argument, divisor);
    const bool all = std::all_of(quotient.terms.begin(), quotient.terms.end(), [&](const Index::Term& part) {
      const Index::Term wanted{part.atom, part.factor * divisor * term.factor};
      return std::binary_search(a.terms.begin(), a.terms.end(), wanted);
    });
    if (!all || quotient.is_constant()) continue;
    Index rest;
    rest.terms = {term};
    a = sum(sum(sum(a, rest, -1), quotient, -divisor * term.factor), argument, term.factor);
    return true;
  }
  return false;
}

Index IndexSpace::recombine(Index a) {
  while (recombine_one(a)) {
  }
  return a;
}

Index IndexSpace::add(const Index& a, const Index& b) { return recombine(sum(a, b, 1)); }
Index IndexSpace::scale(const Index& a, int64_t factor) { return sum(Index(0), a, factor); }

int64_t IndexSpace::part(const Index& a, int64_t divisor, Index& high, Index& low) const {
  std::vector<int64_t> candidates = {divisor};
  for (const Index::Term& term : a.terms) candidates.push_back(std::gcd(term.factor, divisor));
  std::sort(candidates.rbegin(), candidates.rend());
  for (int64_t g : candidates) {
    if (g == 1) break;
    high = Index(a.constant / g * g);
    low = Index(a.constant % g);
    for (const Index::Term& term : a.terms) (term.factor % g == 0 ? high : low).terms.push_back(term);
    if (largest(low) < g) return g;
  }
  return 1;
}

Index IndexSpace::divide(const Index& a, int64_t divisor) {
  check(divisor > 0, "an index is divided by what is not positive");
  if (divisor == 1) return a;
  Index whole(floor_divide(a.constant, divisor)), rest(a.constant - whole.constant * divisor);
  for (const Index::Term& term : a.terms) {
    const int64_t factor = floor_divide(term.factor, divisor);
    if (factor != 0) whole.terms.push_back({term.atom, factor});
    if (term.factor != factor * divisor) rest.terms.push_back({term.atom, term.factor - factor * divisor});
  }
  if (largest(rest) < divisor) return whole;
  Index high, low;
  if (const int64_t g = part(rest, divisor, high, low); g > 1)
    return add(whole, divide(scaled_down(high, g), divisor / g));
  return add(whole, atom_index(Atom::Kind::quotient, rest, divisor));
}

Index IndexSpace::remainder(const Index& a, int64_t divisor) {
  check(divisor > 0, "an index is divided by what is not positive");
  Index rest(a.constant - floor_divide(a.constant, divisor) * divisor);
  for (const Index::Term& term : a.terms) {
    const int64_t factor = term.factor - floor_divide(term.factor, divisor) * divisor;
    if (factor != 0) rest.terms.push_back({term.atom, factor});
  }
  if (largest(rest) < divisor) return rest;
  Index high, low;
  if (const int64_t g = part(rest, divisor, high, low); g > 1)
    return add(scale(remainder(scaled_down(high, g), divisor / g), g), low);
  return atom_index(Atom::Kind::remainder, rest, divisor);
}

// Nested divisions by constants are brought into one form: remainders outside, quotients of quotients merged.
Index IndexSpace::atom_index(Atom::Kind kind, const Index& argument, int64_t divisor) {
  if (argument.constant == 0 && argument.terms.size() == 1 && argument.terms[0].factor == 1) {
    const Atom inner = atom(argument.terms[0].atom);
    const bool nested = inner.kind == Atom::Kind::remainder && inner.divisor % divisor == 0;
    if (kind == Atom::Kind::quotient && inner.kind == Atom::Kind::quotient &&
        inner.divisor < kBound / divisor)
      return divide(inner.argument, inner.divisor * divisor);
    if (kind == Atom::Kind::quotient && nested)
      return remainder(divide(inner.argument, divisor), inner.divisor / divisor);
    if (kind == Atom::Kind::remainder && nested) return remainder(inner.argument, divisor);
  }
  auto& known = kind == Atom::Kind::quotient ? quotients_ : remainders_;
  const auto [at, fresh] = known.try_emplace({argument, divisor}, static_cast<AtomId>(atoms_.size()));
  if (fresh) {
    Atom atom;
    atom.kind = kind;
    atom.argument = argument;
    atom.divisor = divisor;
    atom.largest = kind == Atom::Kind::quotient ? largest(argument) / divisor : divisor - 1;
    atom.uses = uses(argument);
    atoms_.push_back(std::move(atom));
  }
  Index index;
  index.terms = {{at->second, 1}};
  return index;
}

Index IndexSpace::flatten(const std::vector<int64_t>& shape, const Coords& coords) {
  Index position;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    position = add(position, scale(coords[i], stride));
    stride *= shape[i];
  }
  return position;
}

Coords IndexSpace::unflatten(const std::vector<int64_t>& shape, const Index& position) {
  Coords coords(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] > 1) coords[i] = remainder(divide(position, stride), shape[i]);
    stride *= shape[i];
  }
  return coords;
}

Index IndexSpace::import(const IndexSpace& from, const Index& index, std::map<AtomId, Index>& values) {
  Index out(index.constant);
  for (const Index::Term& term : index.terms) {
    auto at = values.find(term.atom);
    if (at == values.end()) {
      const Atom& atom = from.atom(term.atom);
      check(atom.kind != Atom::Kind::variable, "an index variable has no value in another space");
      const Index argument = import(from, atom.argument, values);
      const bool quotient = atom.kind == Atom::Kind::quotient;
      at = values
               .emplace(term.atom,
                        quotient ? divide(argument, atom.divisor) : remainder(argument, atom.divisor))
               .first;
    }
    out = add(out, scale(at->second, term.factor));
  }
  return out;
}

int64_t IndexSpace::bound(const Index& a, bool upper) const {
  __int128 value = a.constant;
  for (const Index::Term& term : a.terms)
    if ((term.factor > 0) == upper) value += static_cast<__int128>(term.factor) * atom(term.atom).largest;
  return static_cast<int64_t>(std::clamp<__int128>(value, -kBound, kBound));
}

VariableSet IndexSpace::uses(const Index& a) const {
  VariableSet set = 0;
  for (const Index::Term& term : a.terms) set |= atom(term.atom).uses;
  return set;
}

bool IndexSpace::is_multiple(const Index& a, int64_t multiple) const {
  return a.constant % multiple == 0 &&
         std::all_of(a.terms.begin(), a.terms.end(),
                     [&](const Index::Term& term) { return term.factor % multiple == 0; });
}

bool IndexSpace::splits(const Index& a, const Index& variable, int64_t multiple) const {
  const Index base = sum(a, variable, -1);
  return !(uses(base) & uses(variable)) && is_multiple(base, multiple);
}

}  // namespace quern
