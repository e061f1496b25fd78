#include "core/schedule/reduction.h"

#include "core/base/status.h"

namespace quern {

std::vector<ReductionStep> reduction_steps(const Layout& layout, std::string_view dim) {
  std::vector<std::string_view> inputs, outputs;
  for (std::string_view name : {kRegister, kLane, kWarp})
    if (layout.has_input(name)) inputs.push_back(name);
  check(inputs.size() == layout.inputs().size(), "a reduction is over registers, lanes and warps");
  for (const LayoutDim& output : layout.outputs()) outputs.push_back(output.name);
  // With the inputs in this order, kernel vectors come out with registers only first, then with lanes, then
  // warps.
  const Layout ordered = layout.reordered(inputs, outputs);
  const int registers = ordered.input_bits(kRegister), lanes = ordered.input_bits(kLane);
  // What leads to the same element of the slice, less what leads to a copy of the same element.
  F2Span covered(f2_kernel(ordered.matrix()));
  std::vector<ReductionStep> steps;
  for (uint64_t step : f2_kernel(ordered.without_output(dim).matrix())) {
    if (covered.contains(step)) continue;
    covered.add(step);
    const uint64_t threads = step >> registers;
    steps.push_back(
        {step & ((uint64_t{1} << registers) - 1), threads & ((uint64_t{1} << lanes) - 1), threads >> lanes});
  }
  return steps;
}

}  // namespace quern
