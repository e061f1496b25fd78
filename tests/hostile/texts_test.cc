// Mutants of valid texts through parsers, verifier and emitters. $QUERN_HOSTILE_FIRST and
// $QUERN_HOSTILE_TEXTS choose other seeds.
#include "tests/hostile/texts.h"

#include "core/schedule/schedule.h"
#include "tests/hostile/tally.h"
#include "tests/mugraph/files.h"

namespace {

using namespace quern;

// Of hand-written muGraphs, which have clusters and splits, and of searched ones.
void texts_are_refused_or_right(void**) {
  std::vector<Texts> corpus;
  for (const MuGraphFile& file : mugraph_files())
    if (file.name.find("_b") == std::string::npos)
      corpus.push_back(
          {print_graph(file.graph), file.text, print_schedule(default_schedule(file.mugraph)), "sm_90a"});
  for (uint64_t seed = 1; seed <= 8; ++seed)
    for (Texts& texts : searched_texts(seed)) corpus.push_back(std::move(texts));
  const uint64_t first = from_environment("QUERN_HOSTILE_FIRST", 1),
                 count = from_environment("QUERN_HOSTILE_TEXTS", 4000);
  const Tally tally = attack_texts(corpus, first, count);
  assert_nothing_found(tally);
  assert_int_equal(tally.count("texts"), count);
  for (const char* most : {"graphs accepted", "muGraphs accepted", "schedules accepted"})
    assert_true(tally.count(most) > count / 4 && tally.count(most) < count);
  assert_true(tally.count("programs emitted") > count / 40);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(texts_are_refused_or_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
