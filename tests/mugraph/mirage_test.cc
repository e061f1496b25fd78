// The reader of Mirage's files, on files written for it.
#include "core/mugraph/mirage.h"

#include "core/mugraph/text.h"
#include "tests/support/test.h"

using namespace quern;

namespace {

std::string golden(const char* name) { return read_test_file(test_root() / "tests/golden/mugraph" / name); }

MuGraph only(const std::string& json) {
  Result<std::vector<MuGraph>> mugraphs = read_mirage(json);
  assert_ok(mugraphs);
  assert_int_equal(mugraphs->size(), 1);
  return mugraphs->front();
}

void a_root_mean_square_becomes_operators(void**) {
  const std::string text = print_mugraph(only(golden("rmsnorm_small.json")));
  for (const char* part :
       {"kernel grid=[1] loop=3 threads=128 {\n", "v0 = load(t0, loop=1) ", "v1 = load(t1, loop=0) ",
        "v4 = square(v0) ", "v5 = sum(v4, axis=[1], keepdims=true) ", "v6 = accumulate_sum(v5) ",
        "v7 = extent(t0[1])\n", "v8 = div(v6, v7) ", "v9 = sqrt(v8) ", "store(v9, t3) ", "t4 = div(t2, t3)\n",
        "out t4\n"})
    assert_contains(text, part);
}

void a_fold_becomes_a_reshape_and_a_sum(void**) {
  const std::string text = print_mugraph(only(golden("fold.json")));
  for (const char* part : {"kernel grid=[2] loop=2 threads=128 {\n", "v0 = load(t0, x=0, loop=1) ",
                           "v1 = reshape(v0, shape=[2, 2, 3]) ", "v2 = sum(v1, axis=[1], keepdims=false) ",
                           "v3 = accumulate_sum(v2) ", "store(v3, t1, x=0) ", "out t1, t2\n"})
    assert_contains(text, part);
}

void errors_say_where(void**) {
  const std::string good = golden("rmsnorm_small.json");
  auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = good;
    const size_t at = text.find(what);
    assert_true(at != std::string::npos);
    return text.replace(at, what.size(), instead);
  };
  assert_error(read_mirage("[[{]"), ErrorCode::INVALID_GRAPH, "no JSON");
  assert_error(read_mirage("{}"), ErrorCode::INVALID_GRAPH, "expected a list of kernel graphs");
  assert_error(read_mirage("[3]"), ErrorCode::INVALID_GRAPH, "graph 0: expected a list of operators");
  assert_error(read_mirage("[[3]]"), ErrorCode::INVALID_GRAPH, "graph 0: operator 0: expected an object");
  assert_error(read_mirage(with("kn_div_op", "kn_fft_op")), ErrorCode::UNSUPPORTED,
               "graph 0: operator 3: the operator \"kn_fft_op\" is not known");
  assert_error(read_mirage(with("tb_matmul_op", "tb_fft_op")), ErrorCode::UNSUPPORTED,
               "graph 0: operator 2: block operator 2: the operator \"tb_fft_op\"");
  assert_error(read_mirage(with("\"data_type\": 941", "\"data_type\": 7")), ErrorCode::UNSUPPORTED,
               "data_type 7");
  assert_error(read_mirage(with("[2, 12, 0, 0]", "[2, \"a\", 0, 0]")), ErrorCode::INVALID_GRAPH,
               "no integer");
  assert_error(read_mirage(with("\"num_dims\": 2", "\"num_dims\": 5")), ErrorCode::INVALID_GRAPH, "num_dims");
  assert_error(read_mirage(with("\"forloop_range\": 3", "\"forloop_range\": 0")), ErrorCode::INVALID_GRAPH,
               "forloop_range");
  assert_error(read_mirage(with("\"forloop_dim\": 1", "\"forloop_dim\": 0")), ErrorCode::INVALID_GRAPH,
               "operator");
  assert_error(read_mirage(with("{\"guid\": 13}", "{\"guid\": 99}")), ErrorCode::INVALID_GRAPH,
               "value 99 is not known");
  assert_error(read_mirage(with("\"x\": 1,", "\"w\": 1,")), ErrorCode::INVALID_GRAPH,
               "grid_dim: \"x\" is missing");
  std::string fold = golden("fold.json");
  fold.replace(fold.find("\"reduction_dimx\": 3"), 19, "\"reduction_dimx\": 5");
  assert_error(read_mirage(fold), ErrorCode::INVALID_GRAPH, "does not fold to \"reduction_dimx\" 5");
}

void damaged_files_do_no_harm(void**) {
  const std::string text = golden("fold.json");
  for (size_t length = 0; length < text.size(); length += 3)
    assert_false(read_mirage(text.substr(0, length)).ok());
  for (size_t at = 0; at < text.size(); ++at)
    for (char c : {'0', '9', '-', '"', '['}) {
      std::string damaged = text;
      damaged[at] = c;
      Result<std::vector<MuGraph>> mugraphs = read_mirage(damaged);
      if (!mugraphs) continue;
      for (const MuGraph& mugraph : *mugraphs) assert_ok(parse_mugraph(print_mugraph(mugraph)));
    }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_root_mean_square_becomes_operators),
      cmocka_unit_test(a_fold_becomes_a_reshape_and_a_sum),
      cmocka_unit_test(errors_say_where),
      cmocka_unit_test(damaged_files_do_no_harm),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
