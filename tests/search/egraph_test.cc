// The e-graph: congruence, labels, hash consing, limits of saturation, justifications.
#include "core/search/egraph.h"

#include <random>

#include "core/search/saturate.h"
#include "tests/search/programs.h"
#include "tests/support/test.h"

using namespace quern;

// The least congruence that holds the merges, by trying all pairs until nothing changes.
static std::vector<size_t> closure(const std::vector<ENode>& terms,
                                   const std::vector<std::pair<size_t, size_t>>& merges) {
  std::vector<size_t> of(terms.size());
  for (size_t i = 0; i < of.size(); ++i) of[i] = i;
  auto join = [&](size_t a, size_t b) {
    const size_t from = of[a], into = of[b];
    for (size_t& name : of)
      if (name == from) name = into;
    return from != into;
  };
  for (const auto& [a, b] : merges) join(a, b);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t a = 0; a < terms.size(); ++a)
      for (size_t b = 0; b < a; ++b) {
        bool same = terms[a].code == terms[b].code && terms[a].index == terms[b].index &&
                    terms[a].children.size() == terms[b].children.size();
        for (size_t i = 0; same && i < terms[a].children.size(); ++i)
          same =
              of[static_cast<size_t>(terms[a].children[i])] == of[static_cast<size_t>(terms[b].children[i])];
        if (same) changed |= join(a, b);
      }
  }
  return of;
}

static void merges_are_closed_under_congruence(void**) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<ENode> terms;  // children are positions
    std::vector<ClassId> ids;
    EGraph egraph;
    for (int i = 0; i < 40; ++i) {
      ENode term{OpCode::input, i, 0, {}};
      if (i >= 6) {
        const OpCode codes[] = {OpCode::add, OpCode::mul, OpCode::exp};
        term.code = codes[random() % 3];
        term.index = 0;
        for (int c = 0; c < (term.code == OpCode::exp ? 1 : 2); ++c)
          term.children.push_back(static_cast<ClassId>(random() % terms.size()));
      }
      terms.push_back(term);
      for (ClassId& child : term.children) child = ids[static_cast<size_t>(child)];
      ids.push_back(egraph.add(term));
    }
    std::vector<std::pair<size_t, size_t>> merges;
    for (int i = 0; i < 5; ++i) {
      merges.emplace_back(random() % terms.size(), random() % terms.size());
      egraph.merge(ids[merges.back().first], ids[merges.back().second], {});
      if (random() % 2) egraph.rebuild();
    }
    egraph.rebuild();
    const std::vector<size_t> expected = closure(terms, merges);
    for (size_t a = 0; a < terms.size(); ++a) {
      for (size_t b = 0; b < a; ++b)
        assert_true((egraph.find(ids[a]) == egraph.find(ids[b])) == (expected[a] == expected[b]));
      ENode term = terms[a];
      for (ClassId& child : term.children) child = ids[static_cast<size_t>(child)];
      assert_int_equal(egraph.lookup(term), egraph.find(ids[a]));
    }
    // No operator is listed twice, and every one is found where it is listed.
    size_t listed = 0;
    for (ClassId id : egraph.classes())
      for (const ENode& node : egraph.nodes(id)) {
        ++listed;
        assert_int_equal(egraph.lookup(node), id);
      }
    assert_int_equal(listed, egraph.node_count());
  }
}

static void equal_terms_are_stored_once(void**) {
  TermWriter w;
  const ClassId x = w.input({0, 1}), y = w.input({1, 2});
  const ClassId product = w.matmul(1, x, y);
  const size_t nodes = w.egraph.node_count();
  assert_int_equal(w.matmul(1, x, y), product);
  assert_int_equal(w.egraph.node_count(), nodes);
  assert_int_equal(w.egraph.lookup({OpCode::mul, 0, 0, {y, x}}), -1);
  assert_int_equal(w.egraph.lookup({OpCode::reduce_max, 1, 0, {x}}), -1);
  assert_int_equal(w.egraph.node_count(), nodes);
  assert_true(w.number(1) != w.number(2));
  assert_true(w.sum(0, x) != w.sum(1, x));
}

static void labels_are_those_a_term_varies_along(void**) {
  TermWriter w;
  const ClassId x = w.input({0, 1}), y = w.input({1, 2});
  const ClassId product = w.op(OpCode::mul, {x, y});
  assert_int_equal(w.egraph.labels(product), 0b111);
  assert_int_equal(w.egraph.labels(w.sum(1, product)), 0b101);
  assert_int_equal(w.egraph.labels(w.max(2, product)), 0b011);
  assert_int_equal(w.egraph.labels(w.number(3)), 0);
  // Equal terms vary along what both do.
  assert_true(w.egraph.merge(x, y, {}));
  w.egraph.rebuild();
  assert_int_equal(w.egraph.labels(x), 0b010);
  assert_false(w.egraph.merge(y, x, {}));
}

static void saturation_says_why_it_stopped(void**) {
  const Program program = workloads()[1];  // qknorm
  auto stop = [&](SaturationLimits limits) {
    EGraph egraph = program.egraph;
    const SaturationReport report = saturate(egraph, all_axioms(), limits);
    assert_int_equal(check_justifications(egraph, all_axioms()).size(), 0);
    if (report.stop == StopReason::iteration_limit)
      assert_int_equal(report.iterations.size(), limits.iterations);
    // The limit is looked at after every union, which adds a few operators at most.
    assert_true(egraph.node_count() < limits.nodes + 4);
    return report.stop;
  };
  const std::chrono::milliseconds long_time{600000};
  assert_true(stop({20000, 30, long_time}) == StopReason::saturated);
  assert_true(stop({100, 30, long_time}) == StopReason::node_limit);
  assert_true(stop({20000, 2, long_time}) == StopReason::iteration_limit);
  assert_true(stop({20000, 30, std::chrono::milliseconds(0)}) == StopReason::time_limit);
}

static void every_union_is_justified(void**) {
  for (const Program& program : workloads()) {
    EGraph egraph = program.egraph;
    SaturationLimits limits;
    limits.nodes = 2000;
    const SaturationReport report = saturate(egraph, all_axioms(), limits);
    assert_text_equal(check_justifications(egraph, all_axioms()), "");
    size_t by_axiom = 0, merges = 0;
    for (size_t count : report.merges_by_axiom) by_axiom += count;
    for (const auto& iteration : report.iterations) merges += iteration.merges;
    assert_int_equal(by_axiom, merges);
    assert_true(by_axiom > 0);

    // A union that claims an axiom which does not say so.
    Justification lie;
    for (const Justification& why : egraph.justifications())
      if (why.axiom >= 0) lie = why;
    const std::vector<ClassId> classes = egraph.classes();
    egraph.merge(classes[0], classes[1], lie);
    egraph.rebuild();
    assert_contains(check_justifications(egraph, all_axioms()), "does not hold");
  }
}

static void saturation_is_deterministic(void**) {
  for (const Program& program : workloads()) {
    EGraph a = program.egraph, b = program.egraph;
    const SaturationLimits limits{1500, 30, std::chrono::milliseconds(600000)};
    saturate(a, all_axioms(), limits);
    saturate(b, all_axioms(), limits);
    assert_true(a.classes() == b.classes());
    for (ClassId id : a.classes()) assert_true(a.nodes(id) == b.nodes(id) && a.labels(id) == b.labels(id));
  }
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(merges_are_closed_under_congruence),
                              cmocka_unit_test(equal_terms_are_stored_once),
                              cmocka_unit_test(labels_are_those_a_term_varies_along),
                              cmocka_unit_test(saturation_says_why_it_stopped),
                              cmocka_unit_test(every_union_is_justified),
                              cmocka_unit_test(saturation_is_deterministic)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
