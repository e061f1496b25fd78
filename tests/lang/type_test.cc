// Type rules: shapes and dtypes of results.
#include "core/lang/type.h"

#include "tests/support/test.h"

using namespace quern;

static TensorType t(DType dtype, Ints shape) { return {dtype, std::move(shape)}; }
static TensorType number(bool integral) { return {integral ? DType::i32 : DType::f32, {}, true}; }

static std::string infer(OpCode code, std::vector<TensorType> operands, Attrs attrs = {}) {
  const auto type = infer_type(code, operands, attrs);
  return type ? print_type(*type) : type.status().message();
}

static void dtypes_promote(void**) {
  using enum DType;
  const struct {
    DType a, b, sum, quotient;
  } rows[] = {
      {f16, f16, f16, f16},         {f16, bf16, f32, f32},    {f16, f32, f32, f32},
      {bf16, bf16, bf16, bf16},     {i32, f16, f16, f16},     {i32, i32, i32, f32},
      {boolean, boolean, i32, f32}, {boolean, i32, i32, f32}, {boolean, bf16, bf16, bf16},
  };
  for (const auto& row : rows)
    for (bool swap : {false, true}) {
      const std::vector<TensorType> operands = {t(swap ? row.b : row.a, {2}), t(swap ? row.a : row.b, {2})};
      assert_text_equal(infer(OpCode::add, operands), std::string(dtype_name(row.sum)) + "[2]");
      assert_text_equal(infer(OpCode::div, operands), std::string(dtype_name(row.quotient)) + "[2]");
      assert_text_equal(infer(OpCode::lt, operands), "bool[2]");
    }
}

static void numbers_take_the_dtype_they_meet(void**) {
  assert_text_equal(infer(OpCode::add, {t(DType::f16, {2}), number(false)}), "f16[2]");
  assert_text_equal(infer(OpCode::add, {number(true), t(DType::bf16, {2})}), "bf16[2]");
  assert_text_equal(infer(OpCode::add, {t(DType::i32, {2}), number(true)}), "i32[2]");
  assert_text_equal(infer(OpCode::add, {t(DType::i32, {2}), number(false)}), "f32[2]");
  assert_text_equal(infer(OpCode::add, {t(DType::boolean, {2}), number(true)}), "i32[2]");
  assert_text_equal(infer(OpCode::add, {number(true), number(true)}), "i32[]");
  assert_text_equal(infer(OpCode::where, {t(DType::boolean, {2}), t(DType::f16, {1}), number(false)}),
                    "f16[2]");
  assert_text_equal(
      infer(OpCode::where, {t(DType::f32, {2}), t(DType::boolean, {1}), t(DType::boolean, {2})}), "bool[2]");
}

static void shapes_broadcast(void**) {
  assert_text_equal(infer(OpCode::add, {t(DType::f16, {4, 1, 3}), t(DType::f16, {5, 1})}), "f16[4, 5, 3]");
  assert_text_equal(infer(OpCode::add, {t(DType::f16, {}), t(DType::f16, {0})}), "f16[0]");
  assert_text_equal(infer(OpCode::add, {t(DType::f16, {1}), t(DType::f16, {0})}), "f16[0]");
  assert_contains(infer(OpCode::add, {t(DType::f16, {2}), t(DType::f16, {0})}), "do not broadcast");
}

static void matmul_follows_numpy(void**) {
  using enum DType;
  assert_text_equal(infer(OpCode::matmul, {t(f16, {2, 3}), t(f16, {3, 4})}), "f16[2, 4]");
  assert_text_equal(infer(OpCode::matmul, {t(f16, {7, 1, 2, 3}), t(f16, {5, 3, 4})}), "f16[7, 5, 2, 4]");
  assert_text_equal(infer(OpCode::matmul, {t(f16, {3}), t(f16, {3, 4})}), "f16[4]");
  assert_text_equal(infer(OpCode::matmul, {t(f16, {5, 2, 3}), t(f16, {3})}), "f16[5, 2]");
  assert_text_equal(infer(OpCode::matmul, {t(f16, {3}), t(f16, {3})}), "f16[]");
  assert_text_equal(infer(OpCode::matmul, {t(f16, {2, 0}), t(f16, {0, 4})}), "f16[2, 4]");
  assert_text_equal(infer(OpCode::matmul, {t(boolean, {2, 3}), t(boolean, {3, 4})}), "i32[2, 4]");
  assert_contains(infer(OpCode::matmul, {t(f16, {}), t(f16, {3, 4})}), "rank 1 or more");
}

static void attributes_become_normal(void**) {
  Attrs attrs;
  attrs.axis = Ints{-1, 0};
  const TensorType x[] = {t(DType::f16, {2, 3, 4})};
  assert_ok(infer_type(OpCode::reduce_sum, x, attrs));
  assert_text_equal(print_attrs(attrs), "axis=[0, 2], keepdims=false");
  Attrs all;
  assert_text_equal(print_type(*infer_type(OpCode::reduce_max, x, all)), "f16[]");
  Attrs cut;
  cut.start = Ints{-1, 1, 0};
  cut.stop = Ints{2, 99, -1};
  cut.step = Ints{1, 1, 2};
  assert_text_equal(print_type(*infer_type(OpCode::slice, x, cut)), "f16[1, 2, 2]");
  assert_text_equal(print_attrs(cut), "start=[1, 1, 0], stop=[2, 3, 3], step=[1, 1, 2]");
  Attrs free;
  free.shape = Ints{-1, 6};
  assert_text_equal(print_type(*infer_type(OpCode::reshape, x, free)), "f16[4, 6]");
  assert_text_equal(print_attrs(free), "shape=[4, 6]");
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(dtypes_promote),
                              cmocka_unit_test(numbers_take_the_dtype_they_meet),
                              cmocka_unit_test(shapes_broadcast), cmocka_unit_test(matmul_follows_numpy),
                              cmocka_unit_test(attributes_become_normal)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
