// Mutants of searched muGraphs: the verifier accepts none that is different. $QUERN_HOSTILE_FIRST and
// $QUERN_HOSTILE_COUNT choose other seeds.
#include "tests/hostile/wrong_mugraphs.h"

#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "tests/hostile/tally.h"

namespace {

using namespace quern;

void no_wrong_mutant_is_accepted(void**) {
  const uint64_t first = from_environment("QUERN_HOSTILE_FIRST", 1),
                 count = from_environment("QUERN_HOSTILE_COUNT", 24);
  const Tally tally = attack_verifier(first, count, 12);
  assert_nothing_found(tally);
  assert_true(tally.count("mutants") > 10 * count);
  assert_true(tally.count("different, rejected") > tally.count("mutants") / 3);
  assert_true(tally.count("equal, accepted") > 0);
}

Truth compare(const char* graph_text, const char* mugraph_text, uint64_t seed) {
  const auto graph = parse_graph(graph_text);
  const auto mugraph = parse_mugraph(mugraph_text);
  assert_ok(graph);
  assert_ok(mugraph);
  return compare_by_evaluation(*graph, *mugraph, seed);
}

// To leave out a cast to the dtype that is there changes nothing, whether its operand is an input or
// computed.
void a_cast_to_its_own_dtype_is_none(void**) {
  constexpr const char* kOfInput = "graph g\nin x: bf16[4]\ny = cast(x, dtype=bf16)\nz = add(y, y)\nout z\n";
  constexpr const char* kWithout = R"(mugraph g
in x: bf16[4]
tensor z: bf16[4]
kernel grid=[2] threads=128 {
  x0 = load(x, x=0)
  s = add(x0, x0)
  store(s, z, x=0)
}
out z
)";
  constexpr const char* kOfValue =
      "graph g\nin x: bf16[4]\ne = exp(x)\ny = cast(e, dtype=bf16)\nz = add(y, y)\nout z\n";
  constexpr const char* kReadsValue = R"(mugraph g
in x: bf16[4]
tensor e: bf16[4]
tensor y: bf16[4]
tensor z: bf16[4]
e = exp(x)
y = cast(e, dtype=bf16)
kernel grid=[2] threads=128 {
  e0 = load(e, x=0)
  s = add(e0, e0)
  store(s, z, x=0)
}
out z
)";
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    assert_true(compare(kOfInput, kWithout, seed) == Truth::equal);
    assert_true(compare(kOfValue, kReadsValue, seed) == Truth::equal);
  }
}

// A cast to another dtype rounds.
void a_cast_to_another_dtype_is_one(void**) {
  constexpr const char* kGraph =
      "graph g\nin x: f32[4]\ny = cast(x, dtype=bf16)\nf = cast(y, dtype=f32)\nz = sub(f, x)\nout z\n";
  constexpr const char* kWithout = R"(mugraph g
in x: f32[4]
tensor z: f32[4]
kernel grid=[2] threads=128 {
  x0 = load(x, x=0)
  s = sub(x0, x0)
  store(s, z, x=0)
}
out z
)";
  assert_true(compare(kGraph, kWithout, 1) == Truth::different);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_cast_to_its_own_dtype_is_none),
                              cmocka_unit_test(a_cast_to_another_dtype_is_one),
                              cmocka_unit_test(no_wrong_mutant_is_accepted)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
