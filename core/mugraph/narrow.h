// In which dtype values of block graphs may enter tensor cores. Operands of 16 bits hold what the unfused
// program holds in 16 bits, too: what the muGraph invents (a weight that is multiplied to an input in front
// of a norm, a factor that is moved in front of a product) may overflow there, or lose what it has.
#pragma once

#include <optional>

#include "core/mugraph/mugraph.h"

namespace quern {

// Sets `rounds_to` and `of_narrow` of loads from the dtypes of tensors.
void note_narrow_loads(MuGraph& mugraph);

// Hands `in_f32` on from the values of the graph and from outputs to what they are made of, as far as that is
// no value of the graph.
void note_in_f32(MuGraph& mugraph);

// The 16-bit dtype in which a value may enter tensor cores: of a value of the graph (rounds_to), of a cast;
// of what selects or moves elements of such values; and of the numerators of a softmax over such values, or
// that is rounded to it, e^(s - m) with m a maximum of s, which are between 0 and 1. `exactly`: only what no
// f32 value of the graph is, too, and no numerators.
std::optional<DType> narrow_dtype(const std::vector<BlockOp>& ops, BlockValue value, bool exactly = false);

// e^(s - m), m a maximum of s and perhaps of others.
bool is_numerator(const std::vector<BlockOp>& ops, const BlockOp& op);

// What tensor cores take the operands of a product as: f16 or bf16, to which both are rounded; f32: tf32, to
// which both are rounded (to nearest, ties away from zero), where `tf32` permits it or all that both are made
// of has 16 bits. Where the unfused program computes the product in f32, its operands are not rounded.
// Nothing: no tensor cores, operands as they are and one fma for each step. Sums are f32 in all cases.
std::optional<DType> tensor_core_dtype(const std::vector<BlockOp>& ops, BlockValue product, bool tf32);

}  // namespace quern
