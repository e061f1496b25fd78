#include "core/search/axiom.h"

#include "core/base/status.h"

namespace quern {

namespace {

int variable_of(char name) { return static_cast<int>(std::string_view("xyzw").find(name)); }

// Recursive descent over "name(argument, ...)", "x", and "sum(k, x)".
class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : rest_(text) {}

  Pattern run() {
    Pattern pattern = term();
    check(rest_.empty(), "a pattern has something after its end");
    return pattern;
  }

 private:
  std::string_view word() {
    size_t length = 0;
    while (length < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[length])) || rest_[length] == '_'))
      ++length;
    const std::string_view found = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return found;
  }

  bool accept(std::string_view mark) {
    if (!rest_.starts_with(mark)) return false;
    rest_.remove_prefix(mark.size());
    return true;
  }

  Pattern term() {
    const std::string_view name = word();
    Pattern pattern;
    if (!accept("(")) {
      pattern.variable = name.size() == 1 ? variable_of(name[0]) : -1;
      check(pattern.variable >= 0 && pattern.variable < kPatternVariables,
            "a pattern has an unknown variable");
      return pattern;
    }
    // max(k, x) is a reduction, max(x, y) is not.
    const bool binds = rest_.starts_with("j, ") || rest_.starts_with("k, ");
    if (binds) {
      pattern.label = word() == "j" ? 0 : 1;
      accept(", ");
    }
    do {
      pattern.children.push_back(term());
    } while (accept(", "));
    check(accept(")"), "a pattern lacks a parenthesis");
    const OpInfo* op = find_op(name, static_cast<int>(pattern.children.size()));
    check(op != nullptr && is_reduction(op->code) == binds, "a pattern has an unknown operator");
    pattern.code = op->code;
    return pattern;
  }

  std::string_view rest_;
};

// "k not in y", or "y or z narrower".
void parse_condition(Axiom& axiom, std::string_view text) {
  if (text.empty()) return;
  if (text.ends_with(" narrower")) {
    axiom.narrower[0] = variable_of(text[0]);
    axiom.narrower[1] = variable_of(text[5]);
    return;
  }
  check(text.size() == 10 && text.substr(1, 8) == " not in ", "an axiom has an unknown condition");
  axiom.absent_label = text[0] == 'j' ? 0 : 1;
  axiom.absent_from = variable_of(text[9]);
}

std::vector<Axiom> make_axioms() {
  std::vector<Axiom> axioms;
  auto row = [&](const char* name, const char* left, const char* right, const char* condition, bool both) {
    axioms.push_back({name, parse_pattern(left), parse_pattern(right), -1, -1, both, {-1, -1}});
    parse_condition(axioms.back(), condition);
  };
#define QUERN_AXIOM(name, left, right, condition, both) row(name, left, right, condition, both);
#include "core/search/axioms.def"
#undef QUERN_AXIOM
  return axioms;
}

// Extends one substitution in all ways in which the pattern matches the class.
void extend(const EGraph& egraph, const Pattern& pattern, ClassId id, const Substitution& so_far,
            std::vector<Substitution>& found) {
  if (pattern.variable >= 0) {
    const ClassId bound = so_far.variables[pattern.variable];
    if (bound >= 0 && egraph.find(bound) != egraph.find(id)) return;
    found.push_back(so_far);
    found.back().variables[pattern.variable] = egraph.find(id);
    return;
  }
  for (const ENode& node : egraph.nodes(id)) {
    if (node.code != pattern.code || node.children.size() != pattern.children.size()) continue;
    Substitution start = so_far;
    if (pattern.label >= 0) {
      Label& label = start.labels[pattern.label];
      if (label >= 0 && label != node.index) continue;
      label = node.index;
    }
    std::vector<Substitution> partial = {start};
    for (size_t i = 0; i < pattern.children.size() && !partial.empty(); ++i) {
      std::vector<Substitution> next;
      for (const Substitution& substitution : partial)
        extend(egraph, pattern.children[i], node.children[i], substitution, next);
      partial = std::move(next);
    }
    found.insert(found.end(), partial.begin(), partial.end());
  }
}

template <class Make>
ClassId build(const EGraph& egraph, const Pattern& pattern, const Substitution& substitution, Make make) {
  if (pattern.variable >= 0) return egraph.find(substitution.variables[pattern.variable]);
  ENode node;
  node.code = pattern.code;
  if (pattern.label >= 0) node.index = substitution.labels[pattern.label];
  for (const Pattern& child : pattern.children) {
    node.children.push_back(build(egraph, child, substitution, make));
    if (node.children.back() < 0) return -1;
  }
  return make(std::move(node));
}

}  // namespace

Pattern parse_pattern(std::string_view text) { return PatternParser(text).run(); }

std::span<const Axiom> all_axioms() {
  static const std::vector<Axiom> axioms = make_axioms();
  return axioms;
}

void match(const EGraph& egraph, const Pattern& pattern, ClassId id, std::vector<Substitution>& found) {
  extend(egraph, pattern, id, {}, found);
}

bool condition_holds(const EGraph& egraph, const Axiom& axiom, const Substitution& substitution) {
  auto labels = [&](int variable) { return egraph.labels(substitution.variables[variable]); };
  if (axiom.narrower[0] >= 0) {
    LabelSet all = 0;
    for (int variable = 0; variable < kPatternVariables; ++variable)
      if (substitution.variables[variable] >= 0) all |= labels(variable);
    return labels(axiom.narrower[0]) != all || labels(axiom.narrower[1]) != all;
  }
  return axiom.absent_label < 0 ||
         !has_label(labels(axiom.absent_from), substitution.labels[axiom.absent_label]);
}

ClassId instantiate(EGraph& egraph, const Pattern& pattern, const Substitution& substitution) {
  return build(egraph, pattern, substitution, [&](ENode node) { return egraph.add(std::move(node)); });
}

ClassId find_instance(const EGraph& egraph, const Pattern& pattern, const Substitution& substitution) {
  return build(egraph, pattern, substitution, [&](ENode node) { return egraph.lookup(std::move(node)); });
}

}  // namespace quern
