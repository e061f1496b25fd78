// That a search ends well whatever it is given: odd graphs, large ones, little time, little memory.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "core/mugraph/text.h"
#include "core/search/search.h"
#include "core/verify/verifier.h"
#include "tests/search/examples.h"
#include "tests/support/random_graph.h"

namespace quern {

namespace {

using namespace std::chrono_literals;

const Target& target(const char* name = "sm_90a") { return **find_target(name); }

// Programs may differ for inputs that are not finite (x * (y + z) is an infinity where x * y + x * z is NaN):
// these are refused, each piece by the search, what is put together by who takes programs.
bool by_specials(const std::string& reason) {
  return reason.find("(masked inputs)") != std::string::npos ||
         reason.find("(special inputs)") != std::string::npos;
}

// Nothing went wrong, nothing wrong was found, and where nothing was found the report says why.
SearchResult searched(const Graph& graph, const SearchOptions& options, const char* on = "sm_90a") {
  Result<SearchResult> result = search(graph, target(on), options);
  assert_ok(result);
  const std::string report = print_report(*result);
  for (const PieceReport& piece : result->report.pieces) {
    for (const std::string& failure : piece.failures)
      if (!by_specials(failure)) fail_test(failure);
    if (piece.verified == 0 && piece.outside.empty() && !piece.apart)
      assert_contains(report, ": it is left to the baseline");
  }
  for (Candidate& candidate : result->candidates) {
    assert_ok(validate(candidate.mugraph));
    const Certificate whole = verify(graph, candidate.mugraph, {.sample_budget = 0});
    if (whole.verdict == Verdict::rejected && !by_specials(whole.reason))
      fail_test("wrong: " + whole.reason + "\n" + print_mugraph(candidate.mugraph));
  }
  // Machines are busy at times; the limit must be close.
  const double limit = std::chrono::duration<double>(options.limit).count();
  if (result->report.seconds > limit + 1)
    fail_test(graph.name + " took " + std::to_string(result->report.seconds) + " s");
  return std::move(*result);
}

std::string chain(int length) {
  std::string text = "graph chain\nin v0: f32[64, 64]\n";
  const char* operators[] = {"tanh", "sigmoid", "square", "neg"};
  for (int i = 0; i < length; ++i)
    text += "v" + std::to_string(i + 1) + " = " + operators[i % 4] + "(v" + std::to_string(i) + ")\n";
  return text + "out v" + std::to_string(length) + "\n";
}

void odd_graphs(void**) {
  const std::pair<const char*, std::string> graphs[] = {
      {"no operator", "graph g\nin x: f32[4]\nout x\n"},
      {"an input twice", "graph g\nin x: f32[4]\nout x, x\n"},
      {"one element", "graph g\nin x: f16[1]\ny = exp(x)\nout y\n"},
      {"one element of rank 8", "graph g\nin x: f16[1, 1, 1, 1, 1, 1, 1, 1]\ny = softmax(x)\nout y\n"},
      {"rank 0", "graph g\nin x: f32[]\nin y: f32[]\nz = mul(x, y)\nout z\n"},
      {"a sum to rank 0", "graph g\nin x: f32[37, 41]\ns = sum(x, axis=[0, 1])\nr = sqrt(s)\nout r\n"},
      {"a sum over no axis", "graph g\nin x: f32[300, 300]\ns = sum(x, axis=[])\nr = tanh(s)\nout r\n"},
      {"no elements", "graph g\nin x: f32[0, 8]\nw = exp(x)\nout w\n"},
      {"a sum over no elements", "graph g\nin x: f32[4, 0]\nin w: f32[0, 8]\nz = matmul(x, w)\nout z\n"},
      {"primes",
       "graph g\nin x: bf16[31, 1031]\nin w: bf16[1031, 257]\ny = softmax(x)\nz = matmul(y, w)\nout z\n"},
      {"many batches",
       "graph g\nin x: f16[8192, 16, 16]\nin w: f16[8192, 16, 16]\nz = matmul(x, w)\nout z\n"},
      {"a long row", "graph g\nin x: f32[1, 4194304]\ny = rms_norm(x)\nout y\n"},
      {"a long column", "graph g\nin x: f32[4194304, 1]\ny = exp(x)\nz = sum(y, axis=0)\nout z\n"},
      {"a deep chain", chain(120)},
      {"an unused input", "graph g\nin x: f32[64]\nin unused: i32[3]\ny = relu(x)\nout y\n"},
      {"one input for both", "graph g\nin x: f16[256, 256]\nz = matmul(x, x)\nout z\n"},
      {"one operand thrice",
       "graph g\nin x: f16[64, 64]\na = add(x, x)\nb = mul(a, x)\nc = sub(b, x)\nout c\n"},
      {"an output twice", "graph g\nin x: f16[64, 64]\ny = exp(x)\nout y, y\n"},
      {"an output inside", "graph g\nin x: f16[64, 64]\ny = exp(x)\nz = sum(y, axis=1)\nout y, z\n"},
      {"mixed types",
       "graph g\nin a: bf16[64, 128]\nin b: f32[64, 128]\nin c: f16[128, 64]\nd = add(a, b)\ne = matmul(d, "
       "c)\n"
       "f = cast(e, dtype=bf16)\ng = softmax(f)\nout g, e\n"},
      {"integers", "graph g\nin x: i32[64]\ny = add(x, 1)\nz = max(y, axis=0)\nout z\n"},
      {"truths", "graph g\nin x: f32[64]\nin y: f32[64]\nm = lt(x, y)\nz = where(m, x, y)\nout z, m\n"},
      {"max pooling",
       "graph g\nin x: f16[4, 64, 64]\nr = reshape(x, shape=[4, 32, 2, 32, 2])\nm = max(r, axis=[2, 4])\nn = "
       "rms_norm(m)\nout n\n"},
      {"a causal mask",
       "graph g\nin s: f16[8, 128, 128]\ni = iota(shape=[128, 1], axis=0)\nj = iota(shape=[1, 128], axis=1)\n"
       "m = le(j, i)\nt = where(m, s, -1e9)\np = softmax(t)\nout p\n"},
      {"strides that overlap", "graph g\nin x: f16[64, 64] strides[1, 1]\ny = softmax(x)\nout y\n"},
      {"a square of the diagonal",
       "graph g\nin x: f16[64, 64]\nt = transpose(x, perm=[1, 0])\nz = mul(x, t)\nout z\n"},
      {"a constant alone", "graph g\nin x: f32[4]\ny = mul(x, 0)\nz = add(y, 1e30)\nout z\n"}};
  SearchOptions options;
  options.limit = 1s;
  options.results = 3;
  for (const auto& [what, text] : graphs) {
    Result<Graph> graph = parse_graph(text);
    if (!graph) fail_test(std::string(what) + ": " + graph.status().message());
    searched(*graph, options);
  }
}

void large_random_graphs(void**) {
  RandomGraphOptions large;
  large.max_elements = 4'000'000;
  large.extents = {1, 2, 3, 7, 13, 31, 64, 97, 128, 251, 512, 1031, 4096};
  SearchOptions options;
  options.limit = 150ms;
  options.results = 2;
  for (uint64_t seed = 0; seed < 180; ++seed) {
    large.max_ops = seed % 3 == 0 ? 30 : 8;
    searched(random_graph(1000 + seed, large), options, seed % 2 ? "sm_90a" : "sm_80");
  }
}

void a_cancelled_search_keeps_what_it_has(void**) {
  std::atomic<bool> cancel{false};
  SearchOptions options;
  options.cancel = &cancel;
  std::thread other([&] {
    std::this_thread::sleep_for(500ms);
    cancel = true;
  });
  const SearchResult result = searched(example("qknorm_b16"), options);
  other.join();
  // Quick machines are done by then.
  assert_true(result.report.cancelled || result.candidates.size() == options.results);
  assert_true(result.report.seconds < 10);
}

// 0: as it should; 2: and it had not enough memory.
int search_within(int64_t more_bytes) {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  const auto limit = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + more_bytes);
  const struct rlimit space = {limit, limit};
  SearchOptions options;
  options.threads = 1;
  options.results = 4;
  const Graph graph = example("qknorm_b8");
  setrlimit(RLIMIT_AS, &space);
  const Result<SearchResult> result = search(graph, target(), options);
  if (!result) return 1;
  for (const PieceReport& piece : result->report.pieces)
    if (!piece.failures.empty()) return 1;
  if (result->candidates.empty() && !result->report.out_of_memory) return 1;
  return result->report.out_of_memory ? 2 : 0;
}

void without_memory_it_ends_with_what_it_has(void**) {
  int short_of_memory = 0;
  for (int64_t mib : {1, 2, 4, 8, 16, 32, 512}) {
    const pid_t child = fork();
    if (child == 0) _exit(search_within(mib << 20));
    int state = 0;
    assert_int_equal(waitpid(child, &state, 0), child);
    if (!WIFEXITED(state) || WEXITSTATUS(state) == 1)
      fail_test("with " + std::to_string(mib) + " MiB it ended with state " + std::to_string(state));
    short_of_memory += WEXITSTATUS(state) == 2;
    if (mib == 512) assert_int_equal(WEXITSTATUS(state), 0);
  }
  assert_true(short_of_memory >= 2);
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      // First: later there is memory that was freed.
      cmocka_unit_test(without_memory_it_ends_with_what_it_has),
      cmocka_unit_test(odd_graphs),
      cmocka_unit_test(large_random_graphs),
      cmocka_unit_test(a_cancelled_search_keeps_what_it_has),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
