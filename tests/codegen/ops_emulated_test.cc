// Every operator with every dtype, on shapes that tiles and vectors divide, that they do not, of size 1 and
// of size 0: in the emulator against the float reference.
#include <functional>

#include "core/graph/builder.h"
#include "tests/codegen/emulated.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

// Extents of the cases, in an order that operators use as rows, columns, and depth.
struct Sizes {
  const char* name;
  int64_t rows, columns, depth;
};
const Sizes kSizes[] = {{"divisible", 32, 64, 64}, {"ragged", 13, 37, 19},     {"one", 1, 1, 1},
                        {"empty rows", 0, 8, 4},   {"empty columns", 3, 0, 4}, {"empty depth", 3, 5, 0}};

// Builds one graph with one operator; what is invalid aborts, since every case is meant to be valid.
class CaseBuilder {
 public:
  CaseBuilder(const Sizes& sizes, DType dtype) : sizes_(sizes), dtype_(dtype) {}

  ValueId input(Ints shape) { return input(std::move(shape), dtype_); }
  ValueId input(Ints shape, DType dtype) {
    return *builder_.add_input("x" + std::to_string(inputs_++), dtype, std::move(shape));
  }
  ValueId number(double value) { return *builder_.add_constant(value, true); }
  ValueId op(OpCode code, std::vector<ValueId> operands, Attrs attrs = {}) {
    auto id = builder_.add_op(code, operands, attrs);
    assert_ok(id);
    return *id;
  }
  Graph finish(ValueId output) {
    assert_ok(builder_.add_output(output));
    return std::move(*builder_.finish());
  }
  int64_t rows() const { return sizes_.rows; }
  int64_t columns() const { return sizes_.columns; }
  int64_t depth() const { return sizes_.depth; }

 private:
  const Sizes sizes_;
  const DType dtype_;
  GraphBuilder builder_;
  int inputs_ = 0;
};

Attrs with_axes(Ints axes) {
  Attrs attrs;
  attrs.axis = std::move(axes);
  return attrs;
}

// The variants of one operator: each gives the value to output.
using Variant = std::function<ValueId(CaseBuilder&)>;

// Below -1 more and more digits of 1 + erf cancel in f32, whoever computes gelu so; integers are kept above
// that.
ValueId operand(CaseBuilder& b, OpCode code, Ints shape) {
  const ValueId x = b.input(std::move(shape));
  return code == OpCode::gelu ? b.op(OpCode::max, {x, b.number(-1)}) : x;
}

std::vector<Variant> elementwise_variants(OpCode code, int arity) {
  auto same = [=](CaseBuilder& b) {
    std::vector<ValueId> operands;
    for (int i = 0; i < arity; ++i) operands.push_back(operand(b, code, {b.rows(), b.columns()}));
    return b.op(code, operands);
  };
  auto broadcast = [=](CaseBuilder& b) {
    const Ints shapes[] = {{2, b.rows(), 1}, {b.columns()}, {1, b.rows(), b.columns()}};
    std::vector<ValueId> operands;
    for (int i = 0; i < arity; ++i) operands.push_back(operand(b, code, shapes[i]));
    return b.op(code, operands);
  };
  return {same, broadcast};
}

std::vector<Variant> matmul_variants() {
  return {[](CaseBuilder& b) {
            return b.op(OpCode::matmul, {b.input({b.rows(), b.depth()}), b.input({b.depth(), b.columns()})});
          },
          [](CaseBuilder& b) {  // batches that broadcast, both operands transposed
            const ValueId x = b.input({2, 1, b.depth(), b.rows()}), y = b.input({3, b.columns(), b.depth()});
            Attrs swap4, swap3;
            swap4.perm = Ints{0, 1, 3, 2};
            swap3.perm = Ints{0, 2, 1};
            return b.op(OpCode::matmul,
                        {b.op(OpCode::transpose, {x}, swap4), b.op(OpCode::transpose, {y}, swap3)});
          },
          [](CaseBuilder& b) {
            return b.op(OpCode::matmul, {b.input({b.depth()}), b.input({b.depth(), b.columns()})});
          },
          [](CaseBuilder& b) {
            return b.op(OpCode::matmul, {b.input({b.rows(), b.depth()}), b.input({b.depth()})});
          }};
}

std::vector<Variant> axis_variants(OpCode code) {
  std::vector<Variant> variants;
  for (const Ints& axes : {Ints{2}, Ints{0}, Ints{1}, Ints{0, 2}, Ints{0, 1, 2}})
    variants.push_back([=](CaseBuilder& b) {
      return b.op(code, {b.input({b.rows(), b.depth(), b.columns()})}, with_axes(axes));
    });
  return variants;
}

std::vector<Variant> norm_variants(OpCode code) {
  std::vector<Variant> variants = axis_variants(code);
  variants.push_back([=](CaseBuilder& b) {
    return b.op(code, {b.input({b.rows(), b.columns()}), b.input({b.columns()}), b.input({b.columns()})});
  });
  return variants;
}

ValueId reshape(CaseBuilder& b, ValueId x, Ints shape) {
  Attrs attrs;
  attrs.shape = std::move(shape);
  return b.op(OpCode::reshape, {x}, attrs);
}

ValueId slice(CaseBuilder& b, ValueId x, Ints start, Ints stop, Ints step) {
  Attrs attrs;
  attrs.start = std::move(start);
  attrs.stop = std::move(stop);
  attrs.step = std::move(step);
  return b.op(OpCode::slice, {x}, attrs);
}

std::vector<Variant> movement_variants(OpCode code) {
  switch (code) {
    case OpCode::reshape:
      return {[](CaseBuilder& b) {
        return reshape(b, b.input({b.rows(), b.columns(), 2}), {b.columns(), 2, b.rows()});
      }};
    case OpCode::transpose:
      return {[](CaseBuilder& b) {
        Attrs attrs;
        attrs.perm = Ints{2, 0, 1};
        return b.op(OpCode::transpose, {b.input({b.rows(), b.depth(), b.columns()})}, attrs);
      }};
    case OpCode::slice:
      return {[](CaseBuilder& b) {
        return slice(b, b.input({b.rows(), b.columns()}), {0, 1}, {b.rows(), b.columns()}, {2, 3});
      }};
    case OpCode::concat:
      return {[](CaseBuilder& b) {
                return b.op(
                    OpCode::concat,
                    {b.input({b.rows(), 2}), b.input({b.rows(), b.columns()}), b.input({b.rows(), 3})},
                    with_axes({1}));
              },
              [](CaseBuilder& b) {
                return b.op(OpCode::concat, {b.input({b.rows(), 5}), b.input({b.depth(), 5})});
              }};
    default:
      return {[](CaseBuilder& b) {
        Attrs attrs;
        attrs.shape = Ints{3, b.rows(), b.columns()};
        return b.op(OpCode::broadcast, {b.input({b.rows(), 1})}, attrs);
      }};
  }
}

std::vector<Variant> cast_variants() {
  std::vector<Variant> variants;
  for (DType to : kAllDTypes)
    variants.push_back([=](CaseBuilder& b) {
      Attrs attrs;
      attrs.dtype = to;
      return b.op(OpCode::cast, {b.input({b.rows(), b.columns()})}, attrs);
    });
  return variants;
}

std::vector<Variant> iota_variants(DType dtype) {
  return {[=](CaseBuilder& b) {
    Attrs attrs = with_axes({1});
    attrs.shape = Ints{b.rows(), b.columns(), 2};
    attrs.dtype = dtype;
    return b.op(OpCode::iota, {}, attrs);
  }};
}

std::vector<Variant> variants_of(const OpInfo& op, DType dtype) {
  switch (op.kind) {
    case OpKind::elementwise:
      return elementwise_variants(op.code, op.min_arity);
    case OpKind::contraction:
      return matmul_variants();
    case OpKind::reduction:
      return axis_variants(op.code);
    case OpKind::composite:
      return op.max_arity > 1 ? norm_variants(op.code) : axis_variants(op.code);
    case OpKind::movement:
      return movement_variants(op.code);
    case OpKind::conversion:
      return cast_variants();
    default:
      return iota_variants(dtype);
  }
}

void every_operator_is_right(void**) {
  std::vector<EmulatedCase> cases;
  for (const OpInfo& op : all_ops())
    for (DType dtype : kAllDTypes)
      for (const Sizes& sizes : kSizes) {
        int number = 0;
        for (const Variant& variant : variants_of(op, dtype)) {
          CaseBuilder builder(sizes, dtype);
          const std::string label = std::string(op.text) + " " + dtype_name(dtype) + " " + sizes.name + " " +
                                    std::to_string(number++);
          const ValueId output = variant(builder);
          cases.push_back({label, builder.finish(output), cases.size() + 1, 1.5});
        }
      }
  print_message("%zu cases\n", cases.size());
  const std::vector<std::string> failures = find_failures(cases);
  for (const std::string& failure : failures) print_error("%s\n", failure.c_str());
  assert_int_equal(failures.size(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(every_operator_is_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
