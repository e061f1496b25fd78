#include "core/search/z3_theory.h"

#include <bit>

namespace quern {

namespace {

class Free : public Structure {
 public:
  explicit Free(z3::context& z) : Structure(z.uninterpreted_sort("term")), z_(z) {}
  z3::expr apply(const Symbol& symbol, const Exprs& operands) override {
    return call(symbol.name(), operands, sort);
  }
  z3::expr named(ClassId id) override { return call("class." + std::to_string(id), {}, sort); }
  z3::expr absent(Label label, const z3::expr& x) override {
    return call("absent." + std::to_string(label), {x}, z_.bool_sort());
  }
  z3::expr varies(Label label, const z3::expr& x) override {
    return call("varies." + std::to_string(label), {x}, z_.bool_sort());
  }
  z3::expr part(const z3::expr& x) override { return call("part", {x}, z_.bool_sort()); }

 private:
  z3::expr call(const std::string& name, const Exprs& operands, const z3::sort& range) {
    z3::sort_vector domain(z_);
    z3::expr_vector arguments(z_);
    for (const z3::expr& operand : operands) {
      domain.push_back(sort);
      arguments.push_back(operand);
    }
    return z_.function(name.c_str(), domain, range)(arguments);
  }

  z3::context& z_;
};

void collect(const Pattern& pattern, std::set<int>& variables, std::set<int>& labels) {
  if (pattern.variable >= 0) variables.insert(pattern.variable);
  if (pattern.label >= 0) labels.insert(pattern.label);
  for (const Pattern& child : pattern.children) collect(child, variables, labels);
}

Symbol symbol_of(const Pattern& pattern, const Label* labels) {
  return {pattern.code, pattern.label < 0 ? 0 : labels[pattern.label], 0, pattern.children.size()};
}

void collect(const Pattern& pattern, const Label* labels, std::set<Symbol>& symbols) {
  if (pattern.variable >= 0) return;
  symbols.insert(symbol_of(pattern, labels));
  for (const Pattern& child : pattern.children) collect(child, labels, symbols);
}

z3::expr variable(const Structure& in, size_t i) {
  return in.sort.ctx().constant(("v" + std::to_string(i)).c_str(), in.sort);
}

}  // namespace

std::string Symbol::name() const {
  const char* text = op_info(code).text;
  if (!text) text = code == OpCode::input ? "input" : "constant";
  return text + ("." + std::to_string(index)) + "." + std::to_string(arity) + "." +
         std::to_string(std::bit_cast<uint64_t>(number));
}

Symbol symbol_of(const ENode& node) { return {node.code, node.index, node.number, node.children.size()}; }

std::unique_ptr<Structure> free_structure(z3::context& z) { return std::make_unique<Free>(z); }

Theory::Theory(const EGraph& program, const EGraph& saturated, std::span<const ClassId> goals,
               std::span<const Axiom> axioms)
    : program_(program), goals_(goals), axioms_(axioms) {
  LabelSet labels = 0;
  for (ClassId id : saturated.classes()) {
    labels |= saturated.labels(id);
    for (const ENode& node : saturated.nodes(id)) symbols_.insert(quern::symbol_of(node));
  }
  for (Label label = 0; label < kMaxLabels; ++label)
    if (has_label(labels, label)) labels_.push_back(label);
  // Symbols that only the axioms have need their sentences, too.
  for (const Axiom& axiom : axioms_)
    for_each_choice(axiom, [&](const Label* choice) {
      collect(axiom.left, choice, symbols_);
      collect(axiom.right, choice, symbols_);
    });
}

std::vector<Sentence> Theory::write(Structure& in) const {
  std::vector<Sentence> sentences;
  write_program(in, sentences);
  for (const Axiom& axiom : axioms_) write_axiom(in, axiom, sentences);
  for (const Symbol& symbol : symbols_) write_symbol(in, symbol, sentences);
  return sentences;
}

// Calls f for each choice of different labels for those of the axiom.
template <class F>
void Theory::for_each_choice(const Axiom& axiom, F f) const {
  std::set<int> variables, used;
  collect(axiom.left, variables, used);
  const std::vector<Label> nothing = {-1};
  for (Label j : used.count(0) ? labels_ : nothing)
    for (Label k : used.count(1) ? labels_ : nothing) {
      if (j == k && j >= 0) continue;
      const Label labels[kPatternLabels] = {j, k};
      f(labels);
    }
}

z3::expr Theory::term(Structure& in, const Pattern& pattern, const Label* labels) const {
  if (pattern.variable >= 0) return variable(in, static_cast<size_t>(pattern.variable));
  Exprs operands;
  for (const Pattern& child : pattern.children) operands.push_back(term(in, child, labels));
  return in.apply(symbol_of(pattern, labels), operands);
}

z3::expr Theory::condition(Structure& in, const Axiom& axiom, const Label* labels, size_t variables) const {
  auto x = [&](int i) { return variable(in, static_cast<size_t>(i)); };
  if (axiom.absent_label >= 0) return in.absent(labels[axiom.absent_label], x(axiom.absent_from));
  if (axiom.narrower[0] < 0) return in.sort.ctx().bool_val(true);
  z3::expr narrower = in.sort.ctx().bool_val(false);
  for (Label label : labels_) {
    z3::expr somewhere = in.sort.ctx().bool_val(false);
    for (size_t i = 0; i < variables; ++i) somewhere = somewhere || in.varies(label, variable(in, i));
    narrower =
        narrower ||
        (somewhere && (in.absent(label, x(axiom.narrower[0])) || in.absent(label, x(axiom.narrower[1]))));
  }
  return narrower;
}

void Theory::write_axiom(Structure& in, const Axiom& axiom, std::vector<Sentence>& sentences) const {
  std::set<int> variables, used;
  collect(axiom.left, variables, used);
  for_each_choice(axiom, [&](const Label* labels) {
    const z3::expr left = term(in, axiom.left, labels), right = term(in, axiom.right, labels);
    const z3::expr when = condition(in, axiom, labels, variables.size());
    Sentence sentence{
        axiom.name, {}, when.is_true() ? left == right : z3::implies(when, left == right), {left}};
    if (axiom.both) sentence.triggers.push_back(right);
    for (size_t i = 0; i < variables.size(); ++i) sentence.variables.push_back(variable(in, i));
    sentences.push_back(std::move(sentence));
  });
}

// Parts of a part are parts; what is made of terms without a label has it not, what is made of one with it
// has it.
void Theory::write_symbol(Structure& in, const Symbol& symbol, std::vector<Sentence>& sentences) const {
  if (symbol.arity == 0) return;
  Exprs operands;
  for (size_t i = 0; i < symbol.arity; ++i) operands.push_back(variable(in, i));
  const z3::expr result = in.apply(symbol, operands);
  const z3::expr yes = in.sort.ctx().bool_val(true);
  z3::expr parts = yes;
  for (const z3::expr& operand : operands) parts = parts && in.part(operand);
  z3::expr labels = yes;
  for (Label label : labels_) {
    z3::expr without = yes, with = !yes;
    if (!symbol.binds(label))
      for (const z3::expr& operand : operands) {
        without = without && in.absent(label, operand);
        with = with || in.varies(label, operand);
      }
    labels = labels && z3::implies(without, in.absent(label, result)) &&
             z3::implies(with, in.varies(label, result));
  }
  sentences.push_back({"parts of " + symbol.name(), operands, z3::implies(in.part(result), parts), {result}});
  sentences.push_back({"labels of " + symbol.name(), operands, labels, {result}});
}

// Every class of the program is a name; its operators are equations between names.
void Theory::write_program(Structure& in, std::vector<Sentence>& sentences) const {
  auto named = [&](ClassId id) { return in.named(program_.find(id)); };
  auto fact = [&](const char* name, z3::expr body) { sentences.push_back({name, {}, std::move(body), {}}); };
  for (ClassId id : program_.classes())
    for (const ENode& node : program_.nodes(id)) {
      Exprs operands;
      for (ClassId child : node.children) operands.push_back(named(child));
      fact("the program", named(id) == in.apply(quern::symbol_of(node), operands));
      if (!node.children.empty()) continue;
      for (Label label : labels_)
        fact("the program", has_label(program_.labels(id), label) ? in.varies(label, named(id))
                                                                  : in.absent(label, named(id)));
    }
  for (ClassId goal : goals_) fact("the goal", in.part(named(goal)));
}

}  // namespace quern
