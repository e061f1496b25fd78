#include "core/lang/op.h"

#include <algorithm>
#include <cmath>

#include "core/lang/attrs.h"

namespace quern {

namespace {

constexpr uint32_t none = kNoLaw, commutative = kCommutative, associative = kAssociative, linear = kLinear,
                   ordered = kOrdered;
#define QUERN_ATTR(name, kind, doc) constexpr AttrSet name = attr_bit(AttrId::name);
namespace attr {
#include "core/lang/attrs.def"
}
#undef QUERN_ATTR

constexpr OpInfo make_elementwise(OpCode code, const char* text, int arity, ResultRule result, uint32_t laws,
                                  const char* meaning, const char* doc) {
  return {code, text, arity, arity, OpKind::elementwise, result, laws, 0, 0, meaning, 0, doc};
}

constexpr OpInfo make_reduction(OpCode code, const char* text, double identity, uint32_t laws,
                                const char* combine, const char* doc) {
  return {code, text,    1,        1,  OpKind::reduction, ResultRule::same, laws, attr::axis | attr::keepdims,
          0,    combine, identity, doc};
}

constexpr OpInfo make_operator(OpCode code, const char* text, int min_arity, int max_arity, OpKind kind,
                               AttrSet attrs, AttrSet required, const char* doc) {
  return {code, text, min_arity, max_arity, kind, ResultRule::same, kNoLaw, attrs, required, "", 0, doc};
}

constexpr OpInfo make_leaf(OpCode code) { return make_operator(code, "", 0, 0, OpKind::leaf, 0, 0, ""); }

// In the order of OpCode.
const OpInfo* table() {
  using namespace attr;
  static const OpInfo rows[] = {
      make_leaf(OpCode::input),
      make_leaf(OpCode::constant),
#define QUERN_ELEMENTWISE(id, text, arity, result, laws, meaning, doc) \
  make_elementwise(OpCode::id, text, arity, ResultRule::result, laws, #meaning, doc),
#define QUERN_REDUCTION(id, identity, laws, combine, doc) \
  make_reduction(OpCode::reduce_##id, #id, identity, laws, #combine, doc),
#define QUERN_OPERATOR(id, text, min_arity, max_arity, kind, attributes, required, doc) \
  make_operator(OpCode::id, text, min_arity, max_arity, OpKind::kind, attributes, required, doc),
#include "core/lang/ops.def"
  };
  return rows;
}

constexpr int kRows = 0
#define QUERN_ELEMENTWISE(...) +1
#define QUERN_REDUCTION(...) +1
#define QUERN_OPERATOR(...) +1
#include "core/lang/ops.def"
    ;

}  // namespace

const OpInfo& op_info(OpCode code) { return table()[static_cast<size_t>(code)]; }

std::span<const OpInfo> all_ops() { return {table() + 2, kRows}; }

const OpInfo* find_op(std::string_view text, int arity) {
  for (const OpInfo& op : all_ops())
    if (text == op.text && arity >= op.min_arity && arity <= op.max_arity) return &op;
  return nullptr;
}

double reduction_identity(OpCode code, DType dtype) {
  const double identity = op_info(code).identity;
  return is_float(dtype) ? identity : std::clamp<double>(identity, INT32_MIN, INT32_MAX);
}

bool is_op_name(std::string_view text) {
  for (const OpInfo& op : all_ops())
    if (text == op.text) return true;
  return false;
}

}  // namespace quern
