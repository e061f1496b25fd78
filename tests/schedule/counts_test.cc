// The model of schedules and the lowering decide alike: what the model counts of programs is what their
// kernels do.
#include "core/graph/text.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"
#include "tools/bench/model/agreement.h"

namespace {

using namespace quern;

constexpr size_t kPrograms = 12;

// Of programs of a search; `shape` is of those that schedules make much of, or of those that no power of two
// divides.
void agrees(const std::string& text) {
  const auto graph = parse_graph(text);
  assert_ok(graph);
  const Agreement found = compare_counts(*graph, **find_target("sm_90a"), kPrograms);
  for (const Disagreement& each : found.disagreements) print_error("%s\n", print(each).c_str());
  assert_int_equal(found.disagreements.size(), 0);
  assert_true(found.kernels >= kPrograms / 2);
}

constexpr const char* kProduct = R"(graph product
in x: DTYPE[ROWS, INNER]
in w: DTYPE[INNER, COLUMNS]
o = matmul(x, w)
out o
)";

void products_agree(void**) {
  struct Row {
    const char *dtype, *rows, *inner, *columns;
  };
  for (const Row& row : {Row{"bf16", "1024", "1024", "1024"}, Row{"f16", "16", "4096", "1000"},
                         Row{"bf16", "1000", "1000", "777"}, Row{"f16", "197", "777", "1000"},
                         Row{"f32", "777", "512", "1000"}, Row{"bf16", "1500", "768", "3000"},
                         Row{"bf16", "2", "4096", "6144"}})
    agrees(with(with(with(with(kProduct, "DTYPE", row.dtype), "ROWS", row.rows), "INNER", row.inner),
                "COLUMNS", row.columns));
}

// Both operands as they do not lie.
void products_of_transposed_tensors_agree(void**) {
  for (const char* extent : {"777", "1000", "1024"})
    agrees(with(R"(graph turned
in x: bf16[EXTENT, EXTENT]
in w: bf16[512, EXTENT]
xt = transpose(x, perm=[1, 0])
wt = transpose(w, perm=[1, 0])
o = matmul(xt, wt)
out o
)",
                "EXTENT", extent));
}

void attention_agrees(void**) {
  const std::string text = R"(graph attention
in q: f16[8, 256, DIM]
in k: f16[8, KEYS, DIM]
in v: f16[8, KEYS, DIM]
kt = transpose(k, perm=[0, 2, 1])
s = matmul(q, kt)
t = mul(s, 0.125)
p = softmax(t, axis=-1)
o = matmul(p, v)
out o
)";
  agrees(with(with(text, "KEYS", "777"), "DIM", "64"));
  agrees(with(with(text, "KEYS", "1000"), "DIM", "80"));
}

void norms_in_front_of_products_agree(void**) {
  for (const char* extent : {"4096", "1000"})
    agrees(with(R"(graph normed
in x: f16[16, EXTENT]
in w: f16[EXTENT, 1024]
in b: f16[1024]
y = rms_norm(x, axis=-1, eps=1e-5)
h = matmul(y, w)
a = add(h, b)
o = silu(a)
out o
)",
                "EXTENT", extent));
}

void concatenated_products_agree(void**) {
  agrees(R"(graph lora
in x: f16[16, 256]
in w: f16[256, 4096]
in a: f16[256, 16]
in b: f16[16, 4096]
xw = matmul(x, w)
xa = matmul(x, a)
xab = matmul(xa, b)
o = add(xw, xab)
out o
)");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(products_agree), cmocka_unit_test(products_of_transposed_tensors_agree),
      cmocka_unit_test(attention_agrees), cmocka_unit_test(norms_in_front_of_products_agree),
      cmocka_unit_test(concatenated_products_agree)};
  return cmocka_run_group_tests_name("schedule-counts", tests, nullptr, nullptr);
}
