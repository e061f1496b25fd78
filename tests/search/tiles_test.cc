// Which dimensions the tiles of a product have as rows and columns.
#include "core/search/tiles.h"

#include "tests/search/as_written.h"

namespace quern {

namespace {

// Scores of every head against all keys, then `tail`.
AsWritten scores(const std::string& tail, int heads) {
  const std::string n = std::to_string(heads);
  return AsWritten("graph g\nin q: bf16[96, " + n +
                   ", 64]\nin k: bf16[512, 64]\nkt = transpose(k, perm=[1, 0])\n"
                   "s = matmul(q, kt)\nr = relu(s)\n" +
                   tail);
}

// Of the product; what is no batch comes last.
std::pair<std::string, std::string> rows_and_columns(const AsWritten& program) {
  const Terms& terms = program.terms;
  const std::vector<TileDims> dims = tile_dims(program.dag, terms.inputs, terms.goal_dims, terms);
  for (size_t at = 0; at < dims.size(); ++at) {
    if (program.dag.ops[at].term.kind != BlockKind::matmul) continue;
    auto name = [&](size_t from_end) {
      return terms.labels[static_cast<size_t>(dims[at].result.end()[-static_cast<std::ptrdiff_t>(from_end)])]
          .name;
    };
    return {name(2), name(1)};
  }
  fail_test("no product");
  return {};
}

void few_last_rows_are_regrouped(void**) {
  const auto [row, column] = rows_and_columns(scores("out r\n", 16));
  assert_string_equal(row.c_str(), "q0");
  assert_string_equal(column.c_str(), "k0");
}

// Blocks have them whole or loop over them: as a batch, the others would be few rows of many products.
void rows_that_are_reduced_stay(void**) {
  for (const char* tail : {"t = sum(r, axis=1)\nout t\n", "t = max(r, axis=1)\nout t\n"}) {
    const auto [one, other] = rows_and_columns(scores(tail, 16));
    assert_true((one == "q1" && other == "k0") || (one == "k0" && other == "q1"));
  }
}

void rows_too_few_for_tensor_cores_do_not(void**) {
  const auto [one, other] = rows_and_columns(scores("t = sum(r, axis=1)\nout t\n", 8));
  assert_true(one != "q1" && other != "q1");
}

}  // namespace

}  // namespace quern

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(quern::few_last_rows_are_regrouped),
                              cmocka_unit_test(quern::rows_that_are_reduced_stay),
                              cmocka_unit_test(quern::rows_too_few_for_tensor_cores_do_not)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
