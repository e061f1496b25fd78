// What single things cost a block: the constants of block_work.cc.
#pragma once

#include "core/lang/op.h"

namespace quern {

// Fitted with the model's other constants (model.cc). Cycles that are not hidden:
constexpr double kBarrierCycles = 190;
constexpr double kHandoverCycles = 99;  // of a stage from the producer, and back
constexpr double kSharedLatency = 2.7;
constexpr double kWgmmaCycles = 68;  // from asking for a product to having it, besides its work
// Loads of a thread that are under way at a time where a tile is taken piece by piece.
constexpr double kTripLoads = 16;
// Of a sum over a cluster, waiting for each other.
constexpr double kClusterCycles = 2200;
constexpr double kFixedRegisters = 32;                  // addresses, counters, predicates
constexpr double kProducerRegisters = 12;               // more of the same, for stages that go round
constexpr int64_t kTall = 64;                           // rows of wgmma
constexpr double kStagedUnit = 128, kPanelUnit = 1024;  // bytes: staged tiles take whole ones

// Instructions for one element: of all kinds, and of the special function unit.
struct ElementCost {
  double issue = 1, special = 0;
};
inline ElementCost element_cost(OpCode code) {
  switch (code) {
    case OpCode::exp:
      return {3, 1};
    case OpCode::sqrt:
    case OpCode::rsqrt:
    case OpCode::reciprocal:
    case OpCode::div:
    case OpCode::log:
      return {9, 1};
    case OpCode::sigmoid:
    case OpCode::silu:
      return {12, 2};
    case OpCode::tanh:
    case OpCode::erf:
    case OpCode::gelu:
    case OpCode::gelu_tanh:
    case OpCode::pow:
      return {24, 2};
    case OpCode::rms_norm:
    case OpCode::layer_norm:
      return {8, 0};
    case OpCode::softmax:
      return {8, 1};
    default:
      return {1, 0};
  }
}

}  // namespace quern
