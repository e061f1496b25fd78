// prove_program: each kernel once, and a kernel that is changed for the worse is found.
#include "core/optimize/prove_program.h"

#include "core/graph/text.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

Emitted emitted() {
  // Two products of the same shapes, and two kernels of their own.
  const auto graph = parse_graph(
      "graph g\nin x: f16[40, 64]\nin w: f16[64, 48]\nin v: f16[64, 48]\n"
      "a = matmul(x, w)\nb = matmul(x, v)\ns = softmax(a, axis=-1)\nout s\nout b\n");
  assert_ok(graph);
  auto program = emit_baseline(*graph, **find_target("sm_90a"));
  assert_ok(program);
  return std::move(*program);
}

void every_kernel_is_proved_once(void**) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  const Emitted program = emitted();
  assert_int_equal(program.code.size(), program.plan.launches.size());
  const std::vector<KernelProof> proofs = prove_program(program, solver.get());
  int launches = 0;
  std::string fact = "proof: ";
  for (const KernelProof& each : proofs) {
    launches += each.launches;
    assert_text_equal(each.proof.summary(), "proved");
    fact += (&each == &proofs[0] ? "" : ", ") + each.kernel + " proved";
  }
  assert_int_equal(launches, program.plan.launches.size());
  assert_null(find_disproof(proofs));
  assert_text_equal(proof_fact(proofs), fact + "\n");
}

// The second time there is no solver that could prove anything.
void what_is_known_is_not_proved_again(void**) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  Emitted program = emitted();
  KnownProofs known;
  const std::vector<KernelProof> first = prove_program(program, solver.get(), ProveOptions{}.limit, &known);
  assert_int_equal(known.size(), first.size());
  for (LaunchedKernel& code : program.code) code.kernel.name += "_of_another_program";
  const std::vector<KernelProof> second = prove_program(program, nullptr, ProveOptions{}.limit, &known);
  assert_int_equal(second.size(), first.size());
  for (size_t i = 0; i < second.size(); ++i) {
    assert_true(second[i].proof.proved());
    assert_text_equal(second[i].kernel, first[i].kernel + "_of_another_program");
    assert_int_equal(second[i].launches, first[i].launches);
  }
  // Another launch, or less shared memory, is another question.
  LaunchedKernel& last = program.code.back();
  assert_true(last.kernel.shared_bytes > 0);
  const ir::LaunchFacts facts = last.facts;
  last.facts.grid.x -= 1;
  assert_non_null(find_disproof(prove_program(program, solver.get(), ProveOptions{}.limit, &known)));
  last.facts = facts;
  last.kernel.shared_bytes /= 2;
  assert_non_null(find_disproof(prove_program(program, solver.get(), ProveOptions{}.limit, &known)));
  assert_int_equal(known.size(), first.size() + 2);
}

// With another solver, or more time, it may be.
void what_was_not_decided_is_asked_again(void**) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  const Emitted program = emitted();
  KnownProofs known;
  size_t undecided = 0;
  for (const KernelProof& each : prove_program(program, nullptr, ProveOptions{}.limit, &known))
    undecided += !each.proof.proved();
  assert_true(undecided > 0);
  for (const KernelProof& each : prove_program(program, solver.get(), ProveOptions{}.limit, &known))
    assert_true(each.proof.proved());
}

void a_wrong_launch_is_disproved(void**) {
  const std::unique_ptr<Solver> solver = make_z3_solver();
  if (!solver) skip_test("built without Z3");
  Emitted program = emitted();
  program.code.back().facts.grid.x -= 1;
  const std::vector<KernelProof> proofs = prove_program(program, solver.get());
  const KernelProof* wrong = find_disproof(proofs);
  assert_non_null(wrong);
  assert_text_equal(wrong->kernel, program.plan.launches.back().kernel);
  assert_contains(proof_fact(proofs), wrong->kernel + " disproved: writers: ");
}

// Without Z3 intervals decide what they can, and nothing is called wrong.
void intervals_alone_disprove_nothing(void**) {
  for (const KernelProof& each : prove_program(emitted(), nullptr)) assert_null(each.proof.disproof());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_kernel_is_proved_once), cmocka_unit_test(what_is_known_is_not_proved_again),
      cmocka_unit_test(what_was_not_decided_is_asked_again), cmocka_unit_test(a_wrong_launch_is_disproved),
      cmocka_unit_test(intervals_alone_disprove_nothing)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
