// What single things cost a block: the constants of block_work.cc.
#pragma once

#include "core/base/wgmma.h"
#include "core/lang/op.h"

namespace quern {

constexpr int64_t kPanelColumns = 64;  // of 16 bits, in a row of a panel
constexpr double kWavefront = 128;     // bytes of shared memory, of one access of a warp
constexpr double kSharedLatency = 30, kShuffleLatency = 25;  // cycles
constexpr double kSplitWord = 4;  // instructions to make two numbers in tf32 of one in f32
constexpr double kLoadedWord = 1.5;
constexpr double kCopy = 2;  // instructions to leave an element in shared memory
// Cycles in which a sub-partition issues a product of register tiles. The register file has two banks, of
// which products wait for one where ptxas finds no other registers: 1.14 cycles in its code, 1.3 where
// vectors of an operand run along the inner dimension. Here they are less by what the model's shadows and its
// lower clock add: code with 1.47 took 430 us for a product of 2048 on an H200, where 1.47 here would be 529.
constexpr double kFmaCycles = 0.93, kFmaCyclesByInner = 1.06;
constexpr int kFmaVector = 2;  // bits: elements of an operand that a thread reads at once
constexpr double kFmaLoadBytes =
    256;  // that such a read of a warp takes of the bandwidth: several lanes read the same
constexpr double kStagedUnit = 128, kPanelUnit = 1024;  // bytes: staged tiles take whole ones

// Instructions for one element: of all kinds, and of the special function unit.
struct ElementCost {
  double issue = 1, special = 0;
};
struct ElementCostRow {
  OpCode code;
  ElementCost cost;
};
constexpr ElementCostRow kElementCosts[] = {
    {OpCode::exp, {3, 1}},        {OpCode::sqrt, {9, 1}},     {OpCode::rsqrt, {9, 1}},
    {OpCode::reciprocal, {9, 1}}, {OpCode::div, {9, 1}},      {OpCode::log, {9, 1}},
    {OpCode::sigmoid, {12, 2}},   {OpCode::silu, {12, 2}},    {OpCode::tanh, {24, 2}},
    {OpCode::erf, {24, 2}},       {OpCode::gelu, {24, 2}},    {OpCode::gelu_tanh, {24, 2}},
    {OpCode::pow, {24, 2}},       {OpCode::rms_norm, {8, 0}}, {OpCode::layer_norm, {8, 0}},
    {OpCode::softmax, {8, 1}},
};
inline ElementCost element_cost(OpCode code) {
  for (const ElementCostRow& row : kElementCosts)
    if (row.code == code) return row.cost;
  return {};
}

}  // namespace quern
