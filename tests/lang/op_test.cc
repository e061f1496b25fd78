// The table of operators: rows are found by name and arity, and say what the code relies on.
#include "core/lang/op.h"

#include <set>
#include <string>

#include "core/lang/attrs.h"
#include "tests/support/test.h"

using namespace quern;

static void every_row_is_found_by_its_name(void**) {
  std::set<std::pair<std::string, int>> seen;
  for (const OpInfo& op : all_ops()) {
    assert_ptr_equal(&op_info(op.code), &op);
    for (int arity = op.min_arity; arity <= op.max_arity; ++arity) {
      assert_ptr_equal(find_op(op.text, arity), &op);
      assert_true(seen.emplace(op.text, arity).second);
    }
    assert_true(std::string(op.doc).size() > 3);
    assert_true((op.required_attrs & ~op.attrs) == 0);
    assert_int_equal(op.kind == OpKind::elementwise || op.kind == OpKind::reduction, op.meaning[0] != 0);
  }
  assert_null(find_op("add", 1));
  assert_null(find_op("", 0));
  assert_false(is_op_name("input"));
}

static void the_language_is_whole(void**) {
  for (const char* name :
       {"matmul",     "neg",     "abs",       "exp",       "log",    "sqrt",      "rsqrt",    "square",
        "reciprocal", "relu",    "gelu",      "gelu_tanh", "silu",   "sigmoid",   "tanh",     "erf",
        "add",        "sub",     "mul",       "div",       "max",    "min",       "pow",      "lt",
        "le",         "eq",      "where",     "iota",      "sum",    "mean",      "rms_norm", "layer_norm",
        "softmax",    "reshape", "transpose", "slice",     "concat", "broadcast", "cast"})
    if (!is_op_name(name)) fail_test(name);
}

static void attributes_are_found_by_name(void**) {
  Attrs attrs;
  for_each_attr(attrs, [](const AttrInfo& info, auto&) { assert_ptr_equal(find_attr(info.name), &info); });
  assert_null(find_attr("axes"));
  attrs.axis = Ints{0, 2};
  attrs.eps = 1e-5;
  attrs.keepdims = true;
  assert_text_equal(print_attrs(attrs), "axis=[0, 2], eps=1e-05, keepdims=true");
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_row_is_found_by_its_name),
                              cmocka_unit_test(the_language_is_whole),
                              cmocka_unit_test(attributes_are_found_by_name)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
