// The meaning of elementwise operators and reductions over any value type V, instantiated from the
// expressions of ops.def.
//
// V is constructible from double (numbers in expressions) and finds + - * / and the functions listed in
// ops.def by argument-dependent look-up. `V::kFloating` says whether rows of the dtype rule `floating` are
// defined over it.
#pragma once

#include "core/base/status.h"
#include "core/lang/op.h"

namespace quern {

namespace internal {
template <class V>
constexpr bool defined_over(ResultRule rule) {
  return V::kFloating || rule != ResultRule::floating;
}
}  // namespace internal

// `operands` points at as many values as the operator takes, already converted to the compute dtype.
template <class V>
V apply_meaning(OpCode code, const V* operands) {
  switch (code) {
#define QUERN_ELEMENTWISE(id, text, arity, result, laws, meaning, doc) \
  case OpCode::id:                                                     \
    if constexpr (internal::defined_over<V>(ResultRule::result)) {     \
      [[maybe_unused]] const V& x = operands[0];                       \
      [[maybe_unused]] const V& y = operands[arity > 1 ? 1 : 0];       \
      [[maybe_unused]] const V& z = operands[arity > 2 ? 2 : 0];       \
      return meaning;                                                  \
    }                                                                  \
    break;
#include "core/lang/ops.def"
    default:
      break;
  }
  fatal(__FILE__, __LINE__, "the operator has no meaning over this value type");
}

// What a reduction makes of two values.
template <class V>
V apply_combine(OpCode reduction, const V& x, const V& y) {
  switch (reduction) {
#define QUERN_REDUCTION(id, identity, laws, combine, doc) \
  case OpCode::reduce_##id:                               \
    return combine;
#include "core/lang/ops.def"
    default:
      fatal(__FILE__, __LINE__, "the operator is no reduction");
  }
}

}  // namespace quern
