#include "core/search/z3_oracle.h"

#include "core/search/z3_model.h"

namespace quern {

namespace {

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
      : saturated_(saturated), limits_(limits), free_(free_structure(z_)), prover_(z_, z3::solver::simple()) {
    const Theory theory(program, saturated, goals, axioms);
    z3::params params(z_);
    params.set("auto_config", false);
    params.set("mbqi", false);
    prover_.set(params);
    set_limit(prover_, limits.question);
    find_terms();
    for (const Sentence& sentence : theory.write(*free_)) assume(sentence);
    check_model(theory, goals);
  }

  Ruling admits(const ENode& op) {
    return not_a_model_.empty() && !model_->is_part(op) ? Ruling::no : proves(op);
  }

  Ruling proves(const ENode& op) {
    Exprs operands;
    for (ClassId child : op.children) operands.push_back(terms_.at(saturated_.find(child)));
    prover_.push();
    prover_.add(!free_->part(free_->apply(symbol_of(op), operands)));
    const z3::check_result result = prover_.check();
    prover_.pop();
    return result == z3::unsat ? Ruling::yes : Ruling::undecided;
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
            found.try_emplace(id, free_->apply(symbol_of(node), operands));
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

  void check_model(const Theory& theory, std::span<const ClassId> goals) {
    if (saturated_.classes().size() > limits_.model_classes) {
      not_a_model_ = "the e-graph has too many classes";
      return;
    }
    model_ = std::make_unique<Model>(z_, saturated_, goals);
    for (const Sentence& sentence : theory.write(*model_)) {
      const z3::check_result result = find_counterexample(sentence);
      if (result == z3::unsat) continue;
      not_a_model_ = sentence.name + (result == z3::sat ? " does not hold in the e-graph"
                                                        : ": not decided within the time limit");
      return;
    }
  }

  // One element after the other for the first variable: then the tables become small.
  z3::check_result find_counterexample(const Sentence& sentence) {
    const z3::expr broken = (!sentence.body).simplify();
    if (broken.is_false()) return z3::unsat;
    z3::solver solver(z_, "QF_BV");
    set_limit(solver, limits_.sentence);
    for (const z3::expr& variable : sentence.variables) solver.add(model_->is_element(variable));
    if (sentence.variables.empty()) return solver.add(broken), solver.check();
    z3::expr_vector first(z_), element(z_);
    first.push_back(sentence.variables[0]);
    for (size_t i = 0; i < model_->size(); ++i) {
      element.resize(0);
      element.push_back(model_->element(i));
      const z3::expr one = z3::expr(broken).substitute(first, element).simplify();
      if (one.is_false()) continue;
      solver.push();
      solver.add(one);
      const z3::check_result result = solver.check();
      if (result != z3::unsat) return result;
      solver.pop();
    }
    return z3::unsat;
  }

  const EGraph saturated_;
  const Z3Limits limits_;
  z3::context z_;
  const std::unique_ptr<Structure> free_;
  z3::solver prover_;
  std::map<ClassId, z3::expr> terms_;
  std::unique_ptr<Model> model_;
  std::string not_a_model_;
};

Z3Oracle::Z3Oracle(const EGraph& program, std::span<const ClassId> goals, const EGraph& saturated,
                   std::span<const Axiom> axioms, const Z3Limits& limits)
    : judge_(std::make_unique<Judge>(program, goals, saturated, axioms, limits)) {}
Z3Oracle::~Z3Oracle() = default;
Ruling Z3Oracle::admits(const ENode& op) { return judge_->admits(op); }
Ruling Z3Oracle::proves(const ENode& op) { return judge_->proves(op); }
const std::string& Z3Oracle::not_a_model() const { return judge_->not_a_model(); }

}  // namespace quern
