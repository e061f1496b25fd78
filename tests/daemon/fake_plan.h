// A plan made without a compiler, that tells which graph and target it was made of: what fake workers answer.
#pragma once

#include <string>

#include "core/base/hash.h"
#include "core/base/plan.h"
#include "core/graph/text.h"

namespace quern {

inline std::string fake_plan(const std::string& graph, const std::string& target, size_t cubin_bytes = 20000,
                             Tier tier = Tier::baseline) {
  Plan plan;
  plan.tier = tier;
  plan.target = target;
  if (auto parsed = parse_graph(graph); parsed.ok()) {
    plan.inputs = parsed->input_descs();
    plan.outputs = parsed->output_descs();
  }
  plan.certificate = "graph: " + to_hex(hash128(graph)) + "\n";
  while (plan.cubin.size() < cubin_bytes)
    plan.cubin += to_hex(hash128(graph + target + std::to_string(plan.cubin.size())));
  return encode_plan(plan);
}

// A small graph; another number, another key.
inline std::string test_graph(int number) {
  return "graph test\nin x: f32[" + std::to_string(number + 1) + "]\ny = relu(x)\nout y\n";
}

}  // namespace quern
