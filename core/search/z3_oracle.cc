#include "core/search/z3_oracle.h"

#include <z3++.h>

#include <bit>
#include <map>
#include <set>

namespace quern {

namespace {

using Exprs = std::vector<z3::expr>;

// A function symbol of the theory: an operator with its attributes.
struct Symbol {
  OpCode code;
  int32_t index;  // of sums and maxima the label
  double number;
  size_t arity;
  auto operator<=>(const Symbol&) const = default;

  std::string name() const {
    const char* text = op_info(code).text;
    return std::string(text                    ? text
                       : code == OpCode::input ? "input"
                                               : "constant") +
           "." + std::to_string(index) + "." + std::to_string(arity) + "." +
           std::to_string(std::bit_cast<uint64_t>(number));
  }
  bool binds(Label label) const {
    return (code == OpCode::reduce_sum || code == OpCode::reduce_max) && index == label;
  }
};

Symbol symbol_of(const ENode& node) { return {node.code, node.index, node.number, node.children.size()}; }

// What the symbols of the theory mean: nothing (Free) or what the e-graph says (Model).
class Structure {
 public:
  explicit Structure(z3::sort sort) : sort(sort) {}
  virtual ~Structure() = default;
  virtual z3::expr apply(const Symbol& symbol, const Exprs& operands) = 0;
  virtual z3::expr absent(Label label, const z3::expr& x) = 0;
  virtual z3::expr part(const z3::expr& x) = 0;
  const z3::sort sort;
};

class Free : public Structure {
 public:
  explicit Free(z3::context& z) : Structure(z.uninterpreted_sort("term")), z_(z) {}
  z3::expr apply(const Symbol& symbol, const Exprs& operands) override {
    return call(symbol.name(), operands, sort);
  }
  z3::expr absent(Label label, const z3::expr& x) override {
    return call("absent." + std::to_string(label), {x}, z_.bool_sort());
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

int width_of(size_t elements) { return std::bit_width(elements); }

// Elements are the classes in order, and after them one for every term that is not in the e-graph: it results
// from itself and from what no table has, varies along no label, and is no part of the target.
class Model : public Structure {
 public:
  using Row = std::pair<std::vector<size_t>, size_t>;  // operands, result

  Model(z3::context& z, const EGraph& egraph, std::span<const ClassId> goals)
      : Structure(z.bv_sort(width_of(egraph.classes().size()))), z_(z), egraph_(egraph) {
    for (ClassId id : egraph.classes()) {
      position_.emplace(id, classes_.size());
      classes_.push_back(id);
    }
    for (ClassId id : classes_)
      for (const ENode& node : egraph.nodes(id)) {
        std::vector<size_t> operands;
        for (ClassId child : node.children) operands.push_back(position(child));
        tables_[symbol_of(node)].emplace(std::move(operands), position(id));
      }
    std::vector<ClassId> todo(goals.begin(), goals.end());
    while (!todo.empty()) {
      const ClassId id = egraph.find(todo.back());
      todo.pop_back();
      if (!parts_.insert(position(id)).second) continue;
      for (const ENode& node : egraph.nodes(id))
        todo.insert(todo.end(), node.children.begin(), node.children.end());
    }
  }

  z3::expr element(size_t position) const {
    return z_.bv_val(static_cast<uint64_t>(position), sort.bv_size());
  }
  z3::expr element_of(ClassId id) const { return element(position(id)); }
  z3::expr is_element(const z3::expr& x) const { return z3::ule(x, element(classes_.size())); }

  z3::expr apply(const Symbol& symbol, const Exprs& operands) override {
    const std::map<std::vector<size_t>, size_t>& table = tables_[symbol];
    return choose(std::vector<Row>(table.begin(), table.end()), operands, 0);
  }
  z3::expr absent(Label label, const z3::expr& x) override {
    z3::expr varies = z_.bool_val(false);
    for (ClassId id : classes_)
      if (has_label(egraph_.labels(id), label)) varies = varies || x == element_of(id);
    return !varies;
  }
  z3::expr part(const z3::expr& x) override {
    z3::expr result = z_.bool_val(false);
    for (size_t position : parts_) result = result || x == element(position);
    return result;
  }

 private:
  size_t position(ClassId id) const { return position_.at(egraph_.find(id)); }

  // The row whose operands from `depth` on are these, as nested choices.
  z3::expr choose(const std::vector<Row>& rows, const Exprs& operands, size_t depth) const {
    if (depth == operands.size()) return element(rows.empty() ? classes_.size() : rows.front().second);
    z3::expr result = element(classes_.size());
    for (size_t i = 0; i < rows.size();) {
      const size_t key = rows[i].first[depth];
      std::vector<Row> same;
      for (; i < rows.size() && rows[i].first[depth] == key; ++i) same.push_back(rows[i]);
      result = z3::ite(operands[depth] == element(key), choose(same, operands, depth + 1), result);
    }
    return result;
  }

  z3::context& z_;
  const EGraph& egraph_;
  std::vector<ClassId> classes_;
  std::map<ClassId, size_t> position_;
  std::map<Symbol, std::map<std::vector<size_t>, size_t>> tables_;
  std::set<size_t> parts_;
};

// A sentence of the theory: it holds for all variables. Instantiated where a trigger matches.
struct Sentence {
  std::string name;
  Exprs variables;
  z3::expr body;
  Exprs triggers;
};

// Writes the theory in the words of a structure.
class Theory {
 public:
  Theory(const EGraph& program, const EGraph& saturated, std::span<const ClassId> goals,
         std::span<const Axiom> axioms)
      : program_(program), goals_(goals), axioms_(axioms) {
    LabelSet labels = 0;
    for (ClassId id : saturated.classes()) {
      labels |= saturated.labels(id);
      for (const ENode& node : saturated.nodes(id)) symbols_.insert(symbol_of(node));
    }
    for (Label label = 0; label < kMaxLabels; ++label)
      if (has_label(labels, label)) labels_.push_back(label);
  }

  std::vector<Sentence> write(Structure& in) {
    std::vector<Sentence> sentences;
    write_program(in, sentences);
    for (const Axiom& axiom : axioms_) write_axiom(in, axiom, sentences);
    for (const Symbol& symbol : symbols_) write_symbol(in, symbol, sentences);
    return sentences;
  }

 private:
  static z3::expr variable(const Structure& in, size_t i) {
    return in.sort.ctx().constant(("v" + std::to_string(i)).c_str(), in.sort);
  }

  z3::expr pattern(Structure& in, const Pattern& pattern, const Label* labels) {
    if (pattern.variable >= 0) return variable(in, static_cast<size_t>(pattern.variable));
    Exprs operands;
    for (const Pattern& child : pattern.children) operands.push_back(this->pattern(in, child, labels));
    const Symbol symbol{pattern.code, pattern.label < 0 ? 0 : labels[pattern.label], 0, operands.size()};
    symbols_.insert(symbol);
    return in.apply(symbol, operands);
  }

  static void collect(const Pattern& pattern, std::set<int>& variables, std::set<int>& labels) {
    if (pattern.variable >= 0) variables.insert(pattern.variable);
    if (pattern.label >= 0) labels.insert(pattern.label);
    for (const Pattern& child : pattern.children) collect(child, variables, labels);
  }

  // One sentence for each choice of different labels.
  void write_axiom(Structure& in, const Axiom& axiom, std::vector<Sentence>& sentences) {
    std::set<int> variables, used;
    collect(axiom.left, variables, used);
    const std::vector<Label> nothing = {-1};
    for (Label j : used.count(0) ? labels_ : nothing)
      for (Label k : used.count(1) ? labels_ : nothing) {
        if (j == k && j >= 0) continue;
        const Label labels[kPatternLabels] = {j, k};
        const z3::expr left = pattern(in, axiom.left, labels), right = pattern(in, axiom.right, labels);
        Sentence sentence{axiom.name, {}, left == right, {left}};
        if (axiom.both) sentence.triggers.push_back(right);
        for (int i : variables) sentence.variables.push_back(variable(in, static_cast<size_t>(i)));
        if (axiom.absent_label >= 0)
          sentence.body = z3::implies(
              in.absent(labels[axiom.absent_label], variable(in, static_cast<size_t>(axiom.absent_from))),
              sentence.body);
        sentences.push_back(std::move(sentence));
      }
  }

  // Parts of a part are parts; what is made of terms without a label has it not.
  void write_symbol(Structure& in, const Symbol& symbol, std::vector<Sentence>& sentences) {
    if (symbol.arity == 0) return;
    Exprs operands;
    for (size_t i = 0; i < symbol.arity; ++i) operands.push_back(variable(in, i));
    const z3::expr result = in.apply(symbol, operands);
    z3::expr parts = in.sort.ctx().bool_val(true);
    for (const z3::expr& operand : operands) parts = parts && in.part(operand);
    sentences.push_back(
        {"parts of " + symbol.name(), operands, z3::implies(in.part(result), parts), {result}});
    for (Label label : labels_) {
      z3::expr without = in.sort.ctx().bool_val(true);
      if (!symbol.binds(label))
        for (const z3::expr& operand : operands) without = without && in.absent(label, operand);
      sentences.push_back(
          {"labels of " + symbol.name(), operands, z3::implies(without, in.absent(label, result)), {result}});
    }
  }

  // Every class of the program is a name; its operators are equations between names.
  void write_program(Structure& in, std::vector<Sentence>& sentences) {
    auto named = [&](ClassId id) {
      const ClassId root = program_.find(id);
      if (const auto* model = dynamic_cast<const Model*>(&in)) return model->element_of(root);
      return in.sort.ctx().constant(("class." + std::to_string(root)).c_str(), in.sort);
    };
    for (ClassId id : program_.classes())
      for (const ENode& node : program_.nodes(id)) {
        Exprs operands;
        for (ClassId child : node.children) operands.push_back(named(child));
        sentences.push_back({"the program", {}, named(id) == in.apply(symbol_of(node), operands), {}});
        for (Label label : labels_)
          if (node.children.empty() && !has_label(program_.labels(id), label))
            sentences.push_back({"the program", {}, in.absent(label, named(id)), {}});
      }
    for (ClassId goal : goals_) sentences.push_back({"the goal", {}, in.part(named(goal)), {}});
  }

  const EGraph& program_;
  const std::span<const ClassId> goals_;
  const std::span<const Axiom> axioms_;
  std::vector<Label> labels_;
  std::set<Symbol> symbols_;
};

void set_limit(z3::solver& solver, std::chrono::milliseconds limit) {
  z3::params params(solver.ctx());
  params.set("timeout", static_cast<unsigned>(limit.count()));
  solver.set(params);
}

}  // namespace

class Z3Oracle::Judge {
 public:
  Judge(const EGraph& program, std::span<const ClassId> goals, const EGraph& saturated,
        std::span<const Axiom> axioms, const Z3Limits& limits)
      : saturated_(saturated), limits_(limits), free_(z_), prover_(z_, z3::solver::simple()) {
    Theory theory(program, saturated, goals, axioms);
    z3::params params(z_);
    params.set("auto_config", false);
    params.set("mbqi", false);
    prover_.set(params);
    set_limit(prover_, limits.question);
    find_terms();
    // The first writing may meet symbols that only the axioms have: they need their sentences, too.
    theory.write(free_);
    for (const Sentence& sentence : theory.write(free_)) assume(sentence);
    check_model(theory, goals);
  }

  Answer admits(const ENode& op) {
    if (not_a_model_.empty()) {
      Exprs operands;
      for (ClassId child : op.children) operands.push_back(model_->element_of(child));
      if (model_->part(model_->apply(symbol_of(op), operands)).simplify().is_false()) return Answer::no;
    }
    return proves(op);
  }

  Answer proves(const ENode& op) {
    Exprs operands;
    for (ClassId child : op.children) operands.push_back(terms_.at(saturated_.find(child)));
    prover_.push();
    prover_.add(!free_.part(free_.apply(symbol_of(op), operands)));
    const z3::check_result result = prover_.check();
    prover_.pop();
    return result == z3::unsat ? Answer::yes : Answer::undecided;
  }

  const std::string& not_a_model() const { return not_a_model_; }

 private:
  // A term of least depth for every class.
  void find_terms() {
    const std::vector<ClassId> classes = saturated_.classes();
    for (size_t before = 1, known = 0; before != known; known = terms_.size()) {
      before = terms_.size();
      std::map<ClassId, z3::expr> found;
      for (ClassId id : classes)
        for (const ENode& node : saturated_.nodes(id)) {
          if (terms_.count(id)) break;
          Exprs operands;
          for (ClassId child : node.children)
            if (const auto at = terms_.find(saturated_.find(child)); at != terms_.end())
              operands.push_back(at->second);
          if (operands.size() == node.children.size())
            found.try_emplace(id, free_.apply(symbol_of(node), operands));
        }
      terms_.insert(found.begin(), found.end());
    }
  }

  void assume(const Sentence& sentence) {
    if (sentence.variables.empty()) return prover_.add(sentence.body);
    std::vector<Z3_app> bound;
    for (const z3::expr& variable : sentence.variables) bound.push_back(Z3_to_app(z_, variable));
    std::vector<Z3_pattern> patterns;
    for (const z3::expr& trigger : sentence.triggers) {
      const Z3_ast terms[] = {trigger};
      patterns.push_back(Z3_mk_pattern(z_, 1, terms));
      Z3_inc_ref(z_, Z3_pattern_to_ast(z_, patterns.back()));
    }
    prover_.add(z3::expr(
        z_, Z3_mk_forall_const(z_, 0, static_cast<unsigned>(bound.size()), bound.data(),
                               static_cast<unsigned>(patterns.size()), patterns.data(), sentence.body)));
    for (Z3_pattern pattern : patterns) Z3_dec_ref(z_, Z3_pattern_to_ast(z_, pattern));
  }

  void check_model(Theory& theory, std::span<const ClassId> goals) {
    if (saturated_.classes().size() > limits_.model_classes) {
      not_a_model_ = "the e-graph has too many classes";
      return;
    }
    model_ = std::make_unique<Model>(z_, saturated_, goals);
    for (const Sentence& sentence : theory.write(*model_)) {
      const z3::expr broken = (!sentence.body).simplify();
      if (broken.is_false()) continue;
      z3::solver solver(z_, "QF_BV");
      set_limit(solver, limits_.sentence);
      for (const z3::expr& variable : sentence.variables) solver.add(model_->is_element(variable));
      solver.add(broken);
      const z3::check_result result = solver.check();
      if (result == z3::unsat) continue;
      not_a_model_ = sentence.name + (result == z3::sat ? " does not hold in the e-graph"
                                                        : ": not decided within the time limit");
      return;
    }
  }

  const EGraph saturated_;
  const Z3Limits limits_;
  z3::context z_;
  Free free_;
  z3::solver prover_;
  std::map<ClassId, z3::expr> terms_;
  std::unique_ptr<Model> model_;
  std::string not_a_model_;
};

Z3Oracle::Z3Oracle(const EGraph& program, std::span<const ClassId> goals, const EGraph& saturated,
                   std::span<const Axiom> axioms, const Z3Limits& limits)
    : judge_(std::make_unique<Judge>(program, goals, saturated, axioms, limits)) {}
Z3Oracle::~Z3Oracle() = default;
Answer Z3Oracle::admits(const ENode& op) { return judge_->admits(op); }
Answer Z3Oracle::proves(const ENode& op) { return judge_->proves(op); }
const std::string& Z3Oracle::not_a_model() const { return judge_->not_a_model(); }

}  // namespace quern
