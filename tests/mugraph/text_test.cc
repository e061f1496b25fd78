// The text of muGraphs: golden files read back as themselves, and errors say where they are.
#include "core/mugraph/text.h"

#include "tests/mugraph/files.h"

using namespace quern;

namespace {

constexpr const char* kHead = "mugraph g\nin x: f16[4, 8]\nin w: f16[8, 6]\ntensor z: f16[4, 6]\n";

void golden_files_read_back_as_themselves(void**) {
  const std::vector<MuGraphFile> files = mugraph_files();
  assert_true(files.size() >= 20);
  for (const MuGraphFile& file : files) assert_text_equal(print_mugraph(file.mugraph), file.text);
}

void the_page_explains_what_is_in_the_golden_file(void**) {
  assert_contains(
      read_test_file(test_root() / "docs/mugraphs.md"),
      without_head_comment(read_test_file(test_root() / "tests/golden/mugraph/gqa_b1-cluster.qmu")));
}

void dot_names_kernels_and_tensors(void**) {
  const std::filesystem::path path = test_root() / "tests/golden/mugraph";
  Result<MuGraph> mugraph = parse_mugraph(read_test_file(path / "gatedmlp_small-library.qmu"));
  assert_ok(mugraph);
  assert_text_equal(print_dot(*mugraph), read_test_file(path / "gatedmlp_small-library.dot"));
}

void numbers_are_written_where_they_are_used(void**) {
  const std::string body =
      "kernel grid=[1] threads=32 {\n  x0 = load(x)\n  w0 = load(w)\n  c = number(0.5)\n  y = matmul(x0, "
      "w0)\n"
      "  a = mul(y, c)\n  b = add(a, c)\n  d = pow(2, b)\n  store(d, z)\n}\nout z\n";
  Result<MuGraph> mugraph = parse_mugraph(kHead + body);
  assert_ok(mugraph);
  assert_int_equal(mugraph->kernels[0].ops.size(), 9);
  const std::string text = print_mugraph(*mugraph);
  assert_contains(text, "c = number(0.5)\n");
  assert_contains(text, "d = pow(2, b) ");
  Result<MuGraph> again = parse_mugraph(text);
  assert_ok(again);
  assert_text_equal(print_mugraph(*again), text);
}

void unnamed_values_get_names(void**) {
  Result<MuGraph> mugraph =
      parse_mugraph(std::string(kHead) +
                    "kernel grid=[2] threads=32 {\n  x0 = load(x)\n  w0 = load(w, x=1)\n  y = matmul(x0, "
                    "w0)\n  store(y, z, x=1)\n}\nout z\n");
  assert_ok(mugraph);
  mugraph->kernels[0].ops[2].name.clear();
  assert_contains(print_mugraph(*mugraph), "v2 = matmul(x0, w0)");
}

void tiles_that_are_not_even_are_written(void**) {
  Result<MuGraph> mugraph = parse_mugraph(
      std::string(kHead) +
      "kernel grid=[2] tiles=[5, 0, 0, 0, 0] threads=32 {\n  x0 = load(x)\n  w0 = load(w, x=1)\n"
      "  y = matmul(x0, w0)\n  store(y, z, x=1)\n}\nout z\n");
  assert_ok(mugraph);
  const std::string text = print_mugraph(*mugraph);
  assert_contains(text, "kernel grid=[2] tiles=[5, 0, 0, 0, 0] threads=32 {");
  Result<MuGraph> again = parse_mugraph(text);
  assert_ok(again);
  assert_true(again->kernels[0].tiles == mugraph->kernels[0].tiles);
}

void errors_say_where_and_what(void**) {
  const std::pair<const char*, const char*> cases[] = {
      {"out y\n", "5:5: \"y\" is not the name of a tensor"},
      {"kernel grid=[1, 2, 3, 4] {\n}\nout z\n", "5:8: a grid has at most 3 extents"},
      {"kernel warp=3 {\n}\nout z\n",
       "5:8: expected \"grid\", \"cluster\", \"loop\", \"tiles\" or \"threads\""},
      {"kernel tiles=[64, 32] {\n}\nout z\n", "5:8: tiles are those of x, y, z, cluster and loop"},
      {"kernel tiles=[64, 0, 0, 0, -1] {\n}\nout z\n", "5:8: a tile has 0 to 2147483647 elements"},
      {"kernel loop=0 {\n}\nout z\n", "5:8: loop must be from 1"},
      {"kernel {\n  a = load(z, q=1)\n}\nout z\n", "6:15: expected x, y, z, cluster or loop"},
      {"kernel {\n  a = load(x, x=1, x=1)\n}\nout z\n", "6:20: this axis is given twice"},
      {"kernel {\n  a = lod(x)\n}\nout z\n", "there is no operator \"lod\""},
      {"kernel {\n  a = load(x)\n  a = load(w)\n}\nout z\n", "7:3: \"a\" is defined already"},
      {"kernel {\n  a = exp(b)\n}\nout z\n", "6:11: \"b\" is not the name of a value"},
      {"kernel {\n  a = load(x)\n  b = accumulate_concat(a)\n}\nout z\n", "needs one axis"},
      {"kernel {\n  a = extent(x[9])\n}\nout z\n", "expected one dimension"},
      {"q = matmul(x, w)\nout q\n", "5:1: \"q\" is no tensor"},
      {"z = matmul(x)\nout z\n", "takes 2 operands, not 1"},
      {"z = matmul(x, w)\n", "no output"},
      {"tensor x: f16[1]\nout x\n", "5:8: \"x\" is defined already"},
      {"kernel {\n  a = load(x)\n", "expected a new name, found the end of the text"},
      {"kernel {\n  a = load(x) }\nout z\n", "6:15: expected the end of the line"},
  };
  for (const auto& [body, message] : cases)
    assert_error(parse_mugraph(std::string(kHead) + body), ErrorCode::INVALID_GRAPH, message);
  assert_error(parse_mugraph("graph g\n"), ErrorCode::INVALID_GRAPH, "1:1: expected \"mugraph NAME\"");
}

// Every prefix of a text, and every text with one byte changed, is read or refused.
void damaged_texts_do_no_harm(void**) {
  const std::string text = read_test_file(test_root() / "tests/golden/mugraph/gqa_small-split.qmu");
  for (size_t length = 0; length < text.size(); ++length) (void)parse_mugraph(text.substr(0, length)).ok();
  size_t accepted = 0;
  for (size_t at = 0; at < text.size(); ++at)
    for (char c : {'0', '9', 'x', '(', '\n', '=', '\xff'}) {
      std::string damaged = text;
      damaged[at] = c;
      Result<MuGraph> mugraph = parse_mugraph(damaged);
      if (!mugraph) continue;
      ++accepted;
      assert_ok(parse_mugraph(print_mugraph(*mugraph)));
    }
  assert_true(accepted > 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(golden_files_read_back_as_themselves),
      cmocka_unit_test(the_page_explains_what_is_in_the_golden_file),
      cmocka_unit_test(dot_names_kernels_and_tensors),
      cmocka_unit_test(numbers_are_written_where_they_are_used),
      cmocka_unit_test(unnamed_values_get_names),
      cmocka_unit_test(tiles_that_are_not_even_are_written),
      cmocka_unit_test(errors_say_where_and_what),
      cmocka_unit_test(damaged_texts_do_no_harm),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
