// Certificates as text: they round trip, and the seed that they name makes them again, byte for byte.
#include "core/verify/certificate.h"

#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/verify/verifier.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

std::string golden(const char* file) { return read_test_file(test_root() / "tests/golden/mugraph" / file); }

struct Pair {
  Graph graph;
  MuGraph mugraph;
};

Pair read_pair(const char* graph, const char* mugraph) {
  auto parsed = parse_graph(golden(graph));
  assert_ok(parsed);
  auto mu = parse_mugraph(golden(mugraph));
  assert_ok(mu);
  return {std::move(*parsed), std::move(*mu)};
}

void assert_round_trips(const Certificate& certificate) {
  const auto parsed = parse_certificate(certificate.print());
  assert_ok(parsed);
  assert_true(*parsed == certificate);
  assert_text_equal(parsed->print(), certificate.print());
}

void certificates_round_trip(void**) {
  assert_round_trips({});
  const Pair small = read_pair("gqa_small.qg", "gqa_small-split.qmu");
  const Certificate accepted = verify(small.graph, small.mugraph);
  assert_int_equal(accepted.verdict, Verdict::accepted);
  assert_round_trips(accepted);
  const auto parsed = parse_certificate("compiler: nvrtc\n" + accepted.print() + "launches: 2\n");
  assert_ok(parsed);
  assert_true(*parsed == accepted);

  MuGraph wrong = small.mugraph;
  wrong.outputs.clear();
  const Certificate rejected = verify(small.graph, wrong);
  assert_int_equal(rejected.verdict, Verdict::rejected);
  assert_round_trips(rejected);
}

void refuses_what_is_no_certificate(void**) {
  assert_error(parse_certificate("graph: g\n"), ErrorCode::CORRUPT, "no verdict");
  assert_error(parse_certificate("verdict: perhaps\n"), ErrorCode::CORRUPT, "perhaps");
  assert_error(parse_certificate("verdict: accepted\nseed: -1\n"), ErrorCode::CORRUPT, "seed");
  assert_error(parse_certificate("verdict: accepted\nshrunk: maybe\n"), ErrorCode::CORRUPT, "shrunk");
  assert_error(parse_certificate("verdict: accepted\nseeds of trials: 1; 2x\n"), ErrorCode::CORRUPT, "seeds");
}

void a_seed_makes_the_same_certificate_again(void**) {
  for (const auto& [graph, mugraph] :
       {std::pair{"gqa_small.qg", "gqa_small-split.qmu"}, std::pair{"gqa_small.qg", "gqa_small-online.qmu"},
        std::pair{"../../../examples/gqa_b1.qg", "gqa_b1-cluster.qmu"}}) {
    const Pair pair = read_pair(graph, mugraph);
    const Certificate drawn = verify(pair.graph, pair.mugraph);
    assert_true(drawn.seed > 0);
    VerifyOptions options;
    options.seed = drawn.seed;
    assert_text_equal(verify(pair.graph, pair.mugraph, options).print(), drawn.print());
    options.seed = drawn.seed + 1;
    assert_true(verify(pair.graph, pair.mugraph, options).print() != drawn.print());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(certificates_round_trip),
                              cmocka_unit_test(refuses_what_is_no_certificate),
                              cmocka_unit_test(a_seed_makes_the_same_certificate_again)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
