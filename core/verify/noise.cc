#include "core/verify/noise.h"

namespace quern {

Noisy NoisyDomain::apply(OpCode code, DType compute, const Noisy* operands) {
  const int arity = op_info(code).min_arity;
  if (!is_float(compute))
    return noise::apply_to_integers([&](const Int* values) { return apply_meaning<Int>(code, values); },
                                    operands, arity);
  return noise::apply_to_floats([&](const auto* values) { return apply_meaning(code, values); }, operands,
                                arity, op_info(code).result == ResultRule::floating);
}

Noisy NoisyDomain::finish(Noisy value, const Node& node) {
  value.reached = 0;
  if (!rounds(node)) return value;
  return sourced(noise::finish(value, node.type.dtype, sources_ + 1));
}

}  // namespace quern
