// The generator: against a count of all DAGs made in another way, threads, limits, states.
#include "core/search/generator.h"

#include <map>
#include <mutex>
#include <set>

#include "tests/search/examples.h"

namespace quern {

namespace {

struct Run {
  std::set<std::string> dags;
  GeneratorReport report;
};

Run run(const Terms& terms, const Universe& universe, const GeneratorOptions& options,
        GeneratorState& state) {
  Run run;
  std::mutex mutex;
  const Result<GeneratorReport> report =
      generate(terms, universe, options, state, [&](size_t, const Dag& dag) {
        std::lock_guard lock(mutex);
        assert_true(run.dags.insert(print_dag(dag, terms)).second);  // each once
      });
  assert_ok(report);
  run.report = *report;
  return run;
}

GeneratorOptions bounded(int bound, int threads = 1) {
  GeneratorOptions options;
  options.bound = bound;
  options.threads = threads;
  return options;
}

// All choices of an operator for every class of the universe that are within the bound, counted by brute
// force: every class gets an operator or none; a choice counts when it is what the goals need, no more and no
// less.
class BruteForce {
 public:
  BruteForce(const Terms& terms, const Universe& universe, int bound)
      : terms_(terms), universe_(universe), bound_(bound), classes_(terms.egraph.classes()) {}
  size_t count() {
    choose(0, 0);
    return found_;
  }

 private:
  void choose(size_t at, int size) {
    if (size > bound_) return;
    if (at == classes_.size()) {
      found_ += is_complete();
      return;
    }
    choose(at + 1, size);
    for (const BlockTerm& term : universe_.of(classes_[at])) {
      chosen_[classes_[at]] = &term;
      choose(at + 1, size + term.size());
      chosen_.erase(classes_[at]);
    }
  }
  bool is_complete() {
    std::set<ClassId> used, open;
    for (ClassId goal : terms_.goals)
      if (!visit(goal, used, open)) return false;
    return used.size() == chosen_.size();
  }
  bool visit(ClassId id, std::set<ClassId>& used, std::set<ClassId>& open) {
    if (open.count(id) || !chosen_.count(id)) return false;
    if (used.count(id)) return true;
    open.insert(id);
    for (ClassId operand : chosen_[id]->operands)
      if (!visit(operand, used, open)) return false;
    open.erase(id);
    used.insert(id);
    return true;
  }

  const Terms& terms_;
  const Universe& universe_;
  const int bound_;
  const std::vector<ClassId> classes_;
  std::map<ClassId, const BlockTerm*> chosen_;
  size_t found_ = 0;
};

void it_finds_every_dag_once(void**) {
  for (const char* text :
       {"graph g\nin x: f32[4, 8]\nin w: f32[8, 3]\nin r: f32[4]\ny = matmul(x, w)\nout y\n",
        "graph g\nin x: f32[4]\nin y: f32[4]\na = mul(x, y)\nb = div(a, y)\nout b\n",
        "graph g\nin x: f32[4, 8]\na = square(x)\nb = sum(a, axis=1)\nc = sqrt(b)\nout c, b\n"}) {
    const Terms terms = saturated_terms(graph_of(text));
    const Universe universe(terms);
    for (int bound = 1; bound <= 4; ++bound) {
      GeneratorState state;
      const Run found = run(terms, universe, bounded(bound), state);
      assert_int_equal(found.dags.size(), BruteForce(terms, universe, bound).count());
      assert_int_equal(found.report.stop, GeneratorStop::exhausted);
    }
  }
}

void threads_and_bounds(void**) {
  const Terms terms = saturated_terms(example("gatedmlp_b8"));
  const Universe universe(terms);
  GeneratorState one, two, less;
  const Run alone = run(terms, universe, bounded(11), one);
  const Run together = run(terms, universe, bounded(11, 3), two);
  assert_true(alone.dags == together.dags);
  assert_int_equal(alone.report.seen, together.report.seen);
  const Run bounded_run = run(terms, universe, bounded(6), less);
  assert_true(bounded_run.dags.size() < alone.dags.size() && bounded_run.dags.size() > 0);
  for (const std::string& dag : bounded_run.dags) assert_true(alone.dags.count(dag) == 1);
}

void an_interrupted_search_goes_on(void**) {
  const Terms terms = saturated_terms(example("rmsnorm_b8"));
  const Universe universe(terms);
  GeneratorState whole_state, state;
  const Run whole = run(terms, universe, bounded(10), whole_state);
  GeneratorOptions options = bounded(10, 2);
  options.max_dags = 10;
  std::set<std::string> found;
  for (int round = 0;; ++round) {
    assert_true(round < 1000);
    const Run part = run(terms, universe, options, state);
    for (const std::string& dag : part.dags) assert_true(found.insert(dag).second);  // none again
    if (part.report.stop == GeneratorStop::exhausted) break;
    assert_int_equal(part.report.stop, GeneratorStop::dag_limit);
    const std::string text = state.text();
    Result<GeneratorState> read = GeneratorState::parse(text);
    assert_ok(read);
    assert_true(*read == state);
    state = std::move(*read);
  }
  assert_true(found == whole.dags);
}

void cancelled_and_timed_out(void**) {
  const Terms terms = saturated_terms(example("qknorm_b8"));
  const Universe universe(terms);
  std::atomic<bool> cancel{true};
  GeneratorOptions options = bounded(11);
  options.cancel = &cancel;
  GeneratorState state;
  assert_int_equal(run(terms, universe, options, state).report.stop, GeneratorStop::cancelled);
  options.cancel = nullptr;
  options.deadline = std::chrono::steady_clock::now();
  assert_int_equal(run(terms, universe, options, state).report.stop, GeneratorStop::time_limit);
  // Nothing was lost.
  GeneratorState fresh;
  const Run after = run(terms, universe, bounded(11), state),
            whole = run(terms, universe, bounded(11), fresh);
  assert_true(after.dags.size() >= 1 && after.dags.size() <= whole.dags.size());
}

void dags_can_be_made_again(void**) {
  const Terms terms = saturated_terms(example("lora_b8"));
  const Universe universe(terms);
  GeneratorState state;
  size_t count = 0;
  const auto report = generate(terms, universe, bounded(8), state, [&](size_t, const Dag& dag) {
    const std::optional<Dag> again = replay(terms, universe, 8, dag.choices);
    assert_true(again.has_value());
    assert_text_equal(print_dag(*again, terms), print_dag(dag, terms));
    ++count;
  });
  assert_ok(report);
  assert_int_equal(count, report->dags);
  assert_false(replay(terms, universe, 8, {99}).has_value());
}

void states_of_other_searches_are_refused(void**) {
  for (const char* text :
       {"", "generator 2\nbound 5\n", "generator 1\nbound x\n", "generator 1\nbound 5\npart\n",
        "generator 1\nbound 5\npart 1 y\n", "generator 1\nbound 5\nmore 1 2\n", "generator 1"})
    assert_error(GeneratorState::parse(text), ErrorCode::INVALID_ARGUMENT);
  const Terms terms = saturated_terms(example("lora_b8"));
  const Universe universe(terms);
  Result<GeneratorState> state = GeneratorState::parse("generator 1\nbound 5\npart 1 9999\n");
  assert_ok(state);
  const auto sink = [](size_t, const Dag&) {};
  assert_error(generate(terms, universe, bounded(5), *state, sink), ErrorCode::INVALID_ARGUMENT,
               "another graph");
  assert_error(generate(terms, universe, bounded(6), *state, sink), ErrorCode::INVALID_ARGUMENT, "bound 5");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(it_finds_every_dag_once),       cmocka_unit_test(threads_and_bounds),
      cmocka_unit_test(an_interrupted_search_goes_on), cmocka_unit_test(cancelled_and_timed_out),
      cmocka_unit_test(dags_can_be_made_again),        cmocka_unit_test(states_of_other_searches_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
