// Attention whose queries share keys that the graph repeats, from the search to the emulator: nothing is repeated
// in memory, and the kernel that computes the output stores it where it belongs.
#include "core/codegen/arithmetic_verifier.h"
#include "core/graph/text.h"
#include "core/optimize/program_model.h"
#include "core/schedule/enumerate.h"
#include "core/search/search.h"
#include "core/verify/verifier.h"
#include "tests/codegen/mugraph_cases.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

// What [B, 2, S, 16] is reshaped to in front of the broadcast to [B, 2, 3, S, 16] or [B, 3, 2, S, 16].
std::string attention(const std::string& batch, const std::string& narrow, const std::string& wide) {
  std::string text = "graph g\nin q: f16[B, 6, 20, 16]\nin k: f16[B, 2, 40, 16]\nin v: f16[B, 2, 40, 16]\n";
  for (const char* name : {"k", "v"}) {
    const std::string n(name);
    text += n + "n = reshape(" + n + ", shape=" + narrow + ")\n" + n + "b = broadcast(" + n +
            "n, shape=" + wide + ")\n" + n + "r = reshape(" + n + "b, shape=[B, 6, 40, 16])\n";
  }
  text +=
      "t = transpose(kr, perm=[0, 1, 3, 2])\ns = matmul(q, t)\nc = mul(s, 0.25)\np = softmax(c)\n"
      "o = matmul(p, vr)\nu = transpose(o, perm=[0, 2, 1, 3])\nf = reshape(u, shape=[B, 20, 96])\nout f\n";
  while (text.find("B") != std::string::npos) text.replace(text.find("B"), 1, batch);
  return text;
}

void repeated_keys_are_read_where_they_are(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* name : {"sm_80", "sm_90a"})
    // With several sequences products would have more dimensions than a grid has axes: there keys are views.
    for (const auto& [batch, narrow, wide] : {std::array{"1", "[B, 2, 1, 40, 16]", "[B, 2, 3, 40, 16]"},
                                              {"1", "[B, 1, 2, 40, 16]", "[B, 3, 2, 40, 16]"},
                                              {"3", "[B, 2, 1, 40, 16]", "[B, 2, 3, 40, 16]"}}) {
      const auto graph = parse_graph(attention(batch, narrow, wide));
      assert_ok(graph);
      Target target = **find_target(name);
      target.sms = *batch == '1' ? 2 : 64;  // with so many blocks each has one head
      SearchOptions options;
      options.limit = std::chrono::seconds(20);
      options.time_of = SubgraphModel(target);
      const auto found = search(*graph, target, options);
      assert_ok(found);
      size_t tried = 0, single = 0;
      for (const Candidate& candidate : found->candidates) {
        const Certificate certificate = verify(*graph, candidate.mugraph);
        if (certificate.verdict != Verdict::accepted) fail_test(certificate.print());
        for (const MuKernel& kernel : candidate.mugraph.kernels)
          if (!kernel.custom && *batch == '1') assert_true(kernel.code != OpCode::broadcast);
        const std::vector<Schedule> schedules = enumerate_schedules(candidate.mugraph, target);
        if (schedules.empty() || tried == 6) continue;
        ++tried;
        if (ArithmeticVerifier(*graph).judge(candidate.mugraph, schedules[0]).verdict == Verdict::rejected)
          continue;
        cases.push_back({name + (" " + print_schedule(schedules[0])), *graph, candidate.mugraph, schedules[0],
                         1.0, name});
        const auto program = emit(cases.back());
        assert_ok(program);
        single += program->plan.launches.size() == 1;
      }
      assert_true(single > 0);
    }
  assert_true(cases.size() >= 12);
  all_are_right(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(repeated_keys_are_read_where_they_are)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
