// Every reduction of ops.def in every form that muGraphs have: accepted, and rejected with another one at any
// single place.
#include "core/verify/verifier.h"
#include "tests/mugraph/reduction_forms.h"

using namespace quern;

namespace {

void every_reduction_is_accepted(void**) {
  for (const ReductionForm& form : reduction_forms())
    for (const OpInfo* op : all_reductions()) {
      const Certificate certificate =
          verify(graph_of(form, op->text, DType::f16), mugraph_of(form, op->text, DType::f16));
      if (certificate.verdict != Verdict::accepted)
        fail_test(std::string(op->text) + " by " + form.name + ":\n" + certificate.print());
    }
}

void another_reduction_is_rejected(void**) {
  int mutants = 0;
  for (const ReductionForm& form : reduction_forms()) {
    const int places = static_cast<int>(std::count(form.mugraph.begin(), form.mugraph.end(), '@'));
    for (const OpInfo* op : all_reductions()) {
      const Graph graph = graph_of(form, op->text, DType::f16);
      for (const OpInfo* other : all_reductions())
        for (int place = 0; other != op && place < places; ++place, ++mutants) {
          const Certificate certificate =
              verify(graph, mugraph_of(form, op->text, DType::f16, place, other->text));
          if (certificate.verdict != Verdict::rejected)
            fail_test(std::string(other->text) + " for " + op->text + " at place " + std::to_string(place) +
                      " of " + form.name + ":\n" + certificate.print());
        }
    }
  }
  assert_true(mutants >= 66);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_reduction_is_accepted),
                              cmocka_unit_test(another_reduction_is_rejected)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
