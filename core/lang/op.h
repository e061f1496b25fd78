// Operators and their table, made from ops.def.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/dtype.h"

namespace quern {

enum class OpCode : uint8_t {
  input,     // a tensor the caller passes
  constant,  // a number written in the program
#define QUERN_ELEMENTWISE(id, ...) id,
#define QUERN_REDUCTION(id, ...) reduce_##id,
#define QUERN_OPERATOR(id, ...) id,
#include "core/lang/ops.def"
};

enum class OpKind : uint8_t {
  leaf,
  elementwise,
  contraction,
  reduction,
  composite,
  movement,
  conversion,
  generator
};

// Dtype rule of an elementwise operator; see ops.def.
enum class ResultRule : uint8_t { same, floating, truth, select };

// Laws, a set.
enum Law : uint32_t { kNoLaw = 0, kCommutative = 1, kAssociative = 2, kLinear = 4, kOrdered = 8 };

// Attributes, a set: one bit per row of attrs.def.
using AttrSet = uint32_t;

struct OpInfo {
  OpCode code;
  const char* text;  // name in .qg files
  int min_arity, max_arity;
  OpKind kind;
  ResultRule result;  // elementwise only
  uint32_t laws;
  AttrSet attrs, required_attrs;
  const char*
      meaning;      // the expression of ops.def, for documentation; empty unless elementwise or a reduction
  double identity;  // of a reduction
  const char* doc;
};

// The row of an operator; `input` and `constant` have rows with no text name.
const OpInfo& op_info(OpCode code);
// All rows of ops.def, in its order, without `input` and `constant`.
std::span<const OpInfo> all_ops();
// The operator of this name that takes `arity` operands; nullptr if there is none.
const OpInfo* find_op(std::string_view text, int arity);
// Whether any operator has this name.
bool is_op_name(std::string_view text);
inline bool is_elementwise(OpCode code) { return op_info(code).kind == OpKind::elementwise; }
inline bool is_reduction(OpCode code) { return op_info(code).kind == OpKind::reduction; }
// What a reduction gives over nothing, as a number that `dtype` has.
double reduction_identity(OpCode code, DType dtype);

}  // namespace quern
