// How far from what an operand points to an instruction reaches.
#pragma once

#include "core/kernel/ir.h"
#include "core/kernel/launch_facts.h"

namespace quern::ir {

// Bytes that one thread touches from the place on to which operand number `operand` points, in memory or
// registers; 0 if the instruction does not say (TMA: the tensor map does; wgmma: the shape of the
// instruction and the layout of its operand) or the operand is the whole array.
int64_t bytes_touched(const Instruction& instruction, size_t operand);
// The letter of instructions.def for operand number `operand`; 0 if there are fewer.
char role_of(const Instruction& instruction, size_t operand);
// Whether the letter is one of operands that are numbers.
bool is_number_role(char role);
// The operand with that letter; null if there is none.
const Expr* operand_of(const Instruction& instruction, char role);
// How many operands its row has: at least, at most.
std::pair<size_t, size_t> operand_count(Instr code);

// What a pointer operand names: the symbol itself or the address of an element; null if it is no pointer.
const ExprNode* pointer_of(const Expr& operand);

// The tensor map by which an instruction copies; null if it has none, or if the launch does not say.
const TensorMap* map_of(const Kernel& kernel, const LaunchFacts& facts, const Instruction& instruction);

}  // namespace quern::ir
