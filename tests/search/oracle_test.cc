// The look-up in the saturated e-graph against Z3: on the six workload families they must agree wherever both
// decide, and decide nearly everything. $QUERN_ORACLE_ADMITTED and $QUERN_ORACLE_REJECTED: questions a
// family, 0 for all admitted there are.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "core/mugraph/text.h"
#include "core/search/search.h"
#include "core/search/z3_oracle.h"
#include "core/search/z3_oracle_maker.h"
#include "tests/search/examples.h"
#include "tests/search/programs.h"
#include "tests/support/test.h"

using namespace quern;
using Clock = std::chrono::steady_clock;

static size_t setting(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoul(text, nullptr, 10) : otherwise;
}

static std::vector<ENode> admitted_ops(const EGraph& egraph, size_t count) {
  std::vector<ENode> ops;
  for (ClassId id : egraph.classes())
    for (const ENode& node : egraph.nodes(id)) ops.push_back(node);
  std::shuffle(ops.begin(), ops.end(), std::mt19937_64(1));
  if (count != 0 && ops.size() > count) ops.resize(count);
  return ops;
}

// Operators that are not in the e-graph: half of them any operator over any classes, half an admitted one
// with one operand, or its label, replaced.
static std::vector<ENode> rejected_ops(const EGraph& egraph, size_t count) {
  std::mt19937_64 random(2);
  const std::vector<ClassId> classes = egraph.classes();
  const std::vector<ENode> known = admitted_ops(egraph, 0);
  auto pick = [&](const auto& from) { return from[random() % from.size()]; };
  std::vector<ENode> ops;
  while (ops.size() < count) {
    ENode op = pick(known);
    if (op.children.empty()) continue;
    if (ops.size() % 2 == 0)
      for (ClassId& child : op.children) child = pick(classes);
    else if (op.code == OpCode::reduce_sum && random() % 2)
      op.index = static_cast<int32_t>(random() % 5);
    else
      op.children[random() % op.children.size()] = pick(classes);
    if (egraph.lookup(op) < 0) ops.push_back(std::move(op));
  }
  return ops;
}

struct Tally {
  size_t both_yes = 0, both_no = 0, undecided = 0, disagree = 0;
};

static void ask(Oracle& lookup, Oracle& z3, const std::vector<ENode>& ops, Tally& tally) {
  for (const ENode& op : ops) {
    const Ruling mine = lookup.admits(op), judge = z3.admits(op);
    if (mine == Ruling::undecided || judge == Ruling::undecided) {
      ++tally.undecided;
      continue;
    }
    if (mine != judge)
      ++tally.disagree;
    else
      ++(mine == Ruling::yes ? tally.both_yes : tally.both_no);
  }
}

static EGraph saturated_copy(const Program& program) {
  EGraph egraph = program.egraph;
  assert_true(saturate(egraph, all_axioms()).stop == StopReason::saturated);
  return egraph;
}

// What an operator of a block is as terms: of a contraction the sum and the product.
static std::vector<ENode> meaning(const EGraph& egraph, const BlockTerm& term) {
  auto contraction = [&](Label label, ClassId a, ClassId b) {
    const ENode product{OpCode::mul, 0, 0, {a, b}};
    return std::vector<ENode>{product, {OpCode::reduce_sum, label, 0, {egraph.lookup(product)}}};
  };
  switch (term.kind) {
    case BlockKind::reduction:
      return {{term.code, term.label, 0, term.operands}};
    case BlockKind::matmul:
      return contraction(term.label, term.operands[0], term.operands[1]);
    case BlockKind::concat_matmul: {
      std::vector<ENode> nodes = contraction(term.label, term.operands[0], term.operands[1]);
      const std::vector<ENode> second = contraction(term.label2, term.operands[2], term.operands[3]);
      nodes.insert(nodes.end(), second.begin(), second.end());
      nodes.push_back({OpCode::add, 0, 0, {egraph.lookup(nodes[1]), egraph.lookup(nodes[3])}});
      return nodes;
    }
    default:
      return {{term.code, term.index, term.number, term.operands}};
  }
}

// Every block operator that the search admits is a part of the target.
static void judge_block_operators(const Terms& terms, Z3Oracle& z3, Tally& tally) {
  const EGraph& egraph = terms.egraph;
  const Universe universe(terms);
  for (ClassId id : egraph.classes())
    for (const BlockTerm& term : universe.of(id))
      for (const ENode& op : meaning(egraph, term))
        ++(z3.proves(op) == Ruling::yes ? tally.both_yes : tally.undecided);
}

static void lookup_and_z3_agree(void**) {
  const size_t admitted = setting("QUERN_ORACLE_ADMITTED", 300);
  const size_t rejected = setting("QUERN_ORACLE_REJECTED", 500);
  std::printf(
      "family    nodes classes | admitted: yes undecided | rejected: no undecided | block operators: yes "
      "undecided | s model, questions\n");
  for (const Program& program : workloads()) {
    Result<Terms> terms = make_terms(example(program.name + "_b8"));
    assert_ok(terms);
    const EGraph before = terms->egraph;
    const std::vector<ClassId> goals = terms->goals;
    assert_true(saturate(terms->egraph, all_axioms()).stop == StopReason::saturated);
    const EGraph& egraph = terms->egraph;
    LookupOracle lookup(egraph, true);
    const auto start = Clock::now();
    Z3Oracle z3(before, goals, egraph, all_axioms());
    const auto built = Clock::now();
    assert_text_equal(z3.not_a_model(), "");
    Tally yes, no, blocks;
    ask(lookup, z3, admitted_ops(egraph, admitted), yes);
    ask(lookup, z3, rejected_ops(egraph, rejected), no);
    judge_block_operators(*terms, z3, blocks);
    std::printf("%-9s %5zu %7zu | %13zu %9zu | %12zu %9zu | %20zu %9zu | %.2f %.2f\n",
                program.name.c_str(), egraph.node_count(), egraph.classes().size(), yes.both_yes,
                yes.undecided, no.both_no, no.undecided, blocks.both_yes, blocks.undecided,
                std::chrono::duration<double>(built - start).count(),
                std::chrono::duration<double>(Clock::now() - built).count());
    assert_int_equal(yes.disagree + no.disagree, 0);
    assert_int_equal(yes.both_no + no.both_yes, 0);
    // What is decided must be nearly everything, or agreement says little.
    assert_true(yes.undecided * 20 <= yes.both_yes);
    assert_true(no.undecided * 20 <= no.both_no);
    assert_true(blocks.undecided * 20 <= blocks.both_yes);
  }
}

// A look-up that is wrong in either way is caught.
static void wrong_look_ups_are_seen(void**) {
  const Program program = workloads()[3];  // lora
  const EGraph right = saturated_copy(program);

  // One that forgets: without the linearity of sums the e-graph is no model, and Z3 proves what it lacks.
  std::vector<Axiom> fewer;
  for (const Axiom& axiom : all_axioms())
    if (std::string_view(axiom.name) != "sum-mul") fewer.push_back(axiom);
  EGraph poor = program.egraph;
  const SaturationReport report = saturate(poor, fewer);
  assert_true(report.stop == StopReason::saturated);
  Z3Oracle strict(program.egraph, program.goals, poor, all_axioms());
  assert_contains(strict.not_a_model(), "sum-mul does not hold");
  LookupOracle forgetful(poor, true);
  Tally tally;
  ask(forgetful, strict, rejected_ops(poor, 200), tally);
  assert_int_equal(tally.both_no, 0);
  assert_true(tally.disagree > 0);

  // One that believes too much: after a union that no axiom justifies, it admits what Z3 does not prove.
  EGraph wild = right;
  const ClassId x = wild.lookup({OpCode::input, 0, 0, {}}), weight = wild.lookup({OpCode::input, 1, 0, {}});
  wild.merge(x, weight, {});
  wild.rebuild();
  saturate(wild, all_axioms());
  Z3Oracle sober(program.egraph, program.goals, wild, all_axioms());
  size_t unproved = 0;
  for (const ENode& op : admitted_ops(wild, 0)) unproved += sober.proves(op) != Ruling::yes;
  assert_true(unproved > 0);
  Z3Oracle judge(program.egraph, program.goals, right, all_axioms());
  for (const ENode& op : admitted_ops(right, 0)) assert_true(judge.proves(op) == Ruling::yes);
}

// What Z3 refuses by a model it never proves.
static void proofs_and_models_exclude_each_other(void**) {
  for (const Program& program : workloads()) {
    if (program.name != "lora" && program.name != "rmsnorm") continue;
    const EGraph egraph = saturated_copy(program);
    Z3Limits limits;
    limits.question = std::chrono::milliseconds(100);
    Z3Oracle z3(program.egraph, program.goals, egraph, all_axioms(), limits);
    for (const ENode& op : rejected_ops(egraph, 20)) {
      assert_true(z3.admits(op) == Ruling::no);
      assert_true(z3.proves(op) == Ruling::undecided);
    }
  }
}

// A search that asks Z3 finds what one that looks up finds.
static void searches_find_the_same(void**) {
  for (const char* name : {"lora_b8", "ntrans_b1"}) {
    const Graph graph = example(name);
    std::vector<std::string> found[2];
    for (bool asks : {false, true}) {
      SearchOptions options;
      if (asks) {
        Result<OracleMaker> maker = z3_oracle_maker();
        assert_ok(maker);
        options.oracle = std::move(*maker);
      }
      Result<SearchResult> result = search(graph, **find_target("sm_90a"), options);
      assert_ok(result);
      for (const Candidate& candidate : result->candidates)
        found[asks].push_back(print_mugraph(candidate.mugraph));
      const PieceReport& piece = result->report.pieces[0];
      assert_true(piece.prefixes.has_value() == asks);
      if (!asks) continue;
      assert_int_equal(piece.prefixes->yes, piece.nodes);
      assert_int_equal(piece.prefixes->undecided + piece.prefixes->beyond, 0);
      assert_true(piece.prefixes->no > piece.prefixes->yes);
      assert_contains(print_report(*result), " are not, 0 undecided");
    }
    assert_true(!found[0].empty() && found[0] == found[1]);
  }
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(lookup_and_z3_agree), cmocka_unit_test(wrong_look_ups_are_seen),
      cmocka_unit_test(searches_find_the_same), cmocka_unit_test(proofs_and_models_exclude_each_other)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
