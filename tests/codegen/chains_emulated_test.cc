// Products between movements: random reshapes (most of them not along the product's dimensions), transposes
// and slices before and behind batched and broadcast products, and what is fused among them, through the
// emulator against the float reference. $QUERN_CHAINS_FIRST and $QUERN_CHAINS_COUNT choose other seeds.
#include <algorithm>
#include <cstdlib>
#include <random>

#include "core/codegen/baseline.h"
#include "core/graph/builder.h"
#include "core/graph/text.h"
#include "tests/codegen/emulated.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

class ChainGenerator {
 public:
  explicit ChainGenerator(uint64_t seed) : random_(seed), builder_("chain_" + std::to_string(seed)) {
    dtype_ = pick<DType>({DType::f16, DType::bf16, DType::f32, DType::f32, DType::i32});
  }

  Graph run() {
    ValueId x = product();
    const int steps = 1 + below(5);
    for (int i = 0; i < steps; ++i) x = step(x);
    if (below(3) == 0) x = chain(product_with(x), below(3));
    output(x);
    for (size_t i = 0; i < products_.size(); ++i)
      if (products_[i] != x && below(4) == 0) output(products_[i]);
    return std::move(*builder_.finish());
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<int>(list.size()))];
  }
  int64_t extent() { return pick<int64_t>({1, 2, 3, 3, 4, 5, 6, 8, 9, 12, 16}); }
  const TensorType& type(ValueId id) const { return builder_.graph().node(id).type; }
  const Ints& shape(ValueId id) const { return type(id).shape; }

  ValueId op(OpCode code, std::vector<ValueId> operands, Attrs attrs = {}) {
    const Result<ValueId> id = builder_.add_op(code, operands, std::move(attrs));
    check(id.ok(), id.ok() ? "" : id.status().message().c_str());
    return *id;
  }
  void output(ValueId id) { check(builder_.add_output(id).ok(), "an output was refused"); }

  // Half of the operands come through movements themselves.
  ValueId operand(const Ints& wanted) {
    if (below(2) == 0) return *builder_.add_input("x" + std::to_string(inputs_++), dtype_, wanted);
    const ValueId x = *builder_.add_input("x" + std::to_string(inputs_++), dtype_, random_factors(wanted));
    return reshape(chain(x, below(3)), wanted);
  }

  ValueId product() {
    Ints batch(static_cast<size_t>(below(3)));
    for (int64_t& size : batch) size = pick<int64_t>({1, 2, 3, 4, 6});
    const int64_t m = extent(), k = extent(), n = extent();
    Ints a = batch, b = batch;
    for (size_t i = 0; i < batch.size(); ++i) {  // one of the operands may be broadcast
      if (below(4) == 0) (below(2) == 0 ? a : b)[i] = 1;
    }
    if (below(6) == 0) b.clear();
    a.insert(a.end(), {m, k});
    b.insert(b.end(), {k, n});
    return keep(op(OpCode::matmul, {operand(a), operand(b)}));
  }

  ValueId keep(ValueId id) {
    products_.push_back(id);
    return id;
  }

  // A product of x, as it is or as a matrix of another shape, with something new.
  ValueId product_with(ValueId x) {
    while (shape(x).size() < 2) x = reshape(x, {1, type(x).element_count()});
    Ints other = {shape(x).back(), extent()};
    if (below(2) == 0) return keep(op(OpCode::matmul, {x, operand(other)}));
    const size_t rank = shape(x).size();
    other = {extent(), shape(x)[rank - 2]};
    return keep(op(OpCode::matmul, {operand(other), x}));
  }

  ValueId chain(ValueId x, int length) {
    for (int i = 0; i < length; ++i) x = movement(x);
    return x;
  }

  ValueId reshape(ValueId x, const Ints& wanted) {
    Attrs attrs;
    attrs.shape = wanted;
    if (type(x).element_count() != TensorType{dtype_, wanted}.element_count())
      return *builder_.add_input("x" + std::to_string(inputs_++), dtype_, wanted);  // slices lose elements
    return op(OpCode::reshape, {x}, std::move(attrs));
  }

  // The prime factors of the number of elements, in any order, grouped in any way.
  Ints random_factors(const Ints& of) {
    Ints factors, out;
    for (int64_t size : of)
      for (int64_t p = 2; size > 1; ++p)
        for (; size % p == 0; size /= p) factors.push_back(p);
    std::shuffle(factors.begin(), factors.end(), random_);
    for (int64_t factor : factors) {
      if (out.empty() || (out.size() < 5 && below(2) == 0)) out.push_back(1);
      out.back() *= factor;
    }
    if (below(6) == 0) out.insert(out.begin() + below(static_cast<int>(out.size()) + 1), 1);
    return out;
  }

  ValueId movement(ValueId x) {
    const size_t rank = shape(x).size();
    const int kind = below(7);
    if (kind < 3 || rank == 0) return reshape(x, random_factors(shape(x)));
    Attrs attrs;
    if (kind < 5) {
      Ints perm(rank);
      for (size_t i = 0; i < rank; ++i) perm[i] = static_cast<int64_t>(i);
      std::shuffle(perm.begin(), perm.end(), random_);
      attrs.perm = perm;
      return op(OpCode::transpose, {x}, std::move(attrs));
    }
    const int64_t axis = below(static_cast<int>(rank)), size = shape(x)[static_cast<size_t>(axis)];
    if (kind == 5) {
      attrs.axis = Ints{axis};
      return size > 8 ? x : op(OpCode::concat, {x, x}, std::move(attrs));
    }
    if (size < 2) return x;
    Ints start(rank, 0), stop = shape(x), step(rank, 1);
    start[static_cast<size_t>(axis)] = below(2);
    step[static_cast<size_t>(axis)] = 1 + below(2);
    attrs.start = start, attrs.stop = stop, attrs.step = step;
    return op(OpCode::slice, {x}, std::move(attrs));
  }

  ValueId step(ValueId x) {
    switch (below(8)) {
      case 0:
        return op(OpCode::neg, {x});
      case 1: {  // with something of its own or of a dimension's size
        const size_t from = static_cast<size_t>(below(static_cast<int>(shape(x).size()) + 1));
        return op(OpCode::add,
                  {x, operand(Ints(shape(x).begin() + static_cast<int64_t>(from), shape(x).end()))});
      }
      case 2: {
        if (shape(x).empty()) return x;
        Attrs attrs;
        attrs.axis = Ints{below(static_cast<int>(shape(x).size()))};
        attrs.keepdims = below(2) == 0;
        return op(below(2) == 0 ? OpCode::reduce_sum : OpCode::reduce_max, {x}, std::move(attrs));
      }
      case 3: {  // meets itself again at another place
        const ValueId moved = chain(x, 2);
        return type(moved).element_count() == type(x).element_count()
                   ? op(OpCode::max, {x, reshape(moved, shape(x))})
                   : moved;
      }
      default:
        return movement(x);
    }
  }

  std::mt19937_64 random_;
  GraphBuilder builder_;
  DType dtype_;
  int inputs_ = 0;
  std::vector<ValueId> products_;
};

uint64_t from_environment(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : fallback;
}

void products_between_movements_are_right(void**) {
  const uint64_t first = from_environment("QUERN_CHAINS_FIRST", 1),
                 count = from_environment("QUERN_CHAINS_COUNT", 300);
  std::vector<EmulatedCase> cases;
  for (uint64_t seed = first; seed < first + count; ++seed)
    cases.push_back({"seed " + std::to_string(seed), ChainGenerator(seed).run(), seed});
  const std::vector<std::string> failures = find_failures(cases);
  for (const std::string& failure : failures) print_error("%s\n", failure.c_str());
  assert_int_equal(failures.size(), 0);
}

// Emitting is cheap, so that many more are emitted than run.
void every_chain_is_emitted(void**) {
  const Target& target = **find_target("sm_90a");
  for (uint64_t seed = 10001; seed <= 13000; ++seed)
    assert_ok(emit_baseline(ChainGenerator(seed).run(), target));
}

// Reshapes that do not align with what is before them, where one thread makes several neighbouring elements.
void vectors_of_unaligned_rows_are_right(void**) {
  const std::vector<EmulatedCase> cases = {
      {"a reported graph",
       test_graph("graph g\nin x: f32[4, 3, 3]\nv = matmul(x, x)\nr = reshape(v, shape=[3, 3, 4])\nout r")},
      {"heads", test_graph("graph g\nin a: f16[2, 12, 77, 16]\nin b: f16[2, 12, 16, 64]\nv = matmul(a, b)\n"
                           "r = reshape(v, shape=[2, 77, 768])\nout r")},
      {"vectors",
       test_graph("graph g\nin x: f32[64, 27, 48]\nn = exp(x)\na = reshape(n, shape=[48, 27, 64])\n"
                  "b = neg(a)\nout n, b")},
      {"vectors of a reduction",
       test_graph(
           "graph g\nin x: f32[48, 27, 64, 2]\ns = sum(x, axis=[3])\na = reshape(s, shape=[64, 27, 48])\n"
           "b = neg(a)\nout s, b")}};
  const std::vector<std::string> failures = find_failures(cases);
  for (const std::string& failure : failures) print_error("%s\n", failure.c_str());
  assert_int_equal(failures.size(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(vectors_of_unaligned_rows_are_right),
                              cmocka_unit_test(every_chain_is_emitted),
                              cmocka_unit_test(products_between_movements_are_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
