// The constants of the model of schedules, in one table.
#pragma once

#include "core/base/target.h"

namespace quern {

struct ModelConstants {
#define QUERN_CONSTANT(name, value) double name = value;
#define QUERN_FITTED QUERN_CONSTANT
#include "core/schedule/model_constants.def"
#undef QUERN_FITTED
#undef QUERN_CONSTANT
};

inline const ModelConstants& model_constants(const Target& target) {
  static constexpr ModelConstants kMeasured;
  return target.model ? *target.model : kMeasured;
}

}  // namespace quern
