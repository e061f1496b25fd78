#include "core/codegen/interpreter.h"

#include "core/mugraph/text.h"

namespace quern {

Interpreter::Interpreter(const MuGraph& mugraph, const Schedule* schedule) : mugraph_(mugraph) {
  std::vector<TensorDesc> outputs;
  for (int32_t output : mugraph.outputs) {
    const TensorType& type = mugraph.tensors[static_cast<size_t>(output)].type;
    outputs.push_back({"", type.dtype, type.shape, dense_strides(type.shape)});
  }
  forms_.resize(mugraph.kernels.size());
  for (size_t k = 0; k < mugraph.kernels.size(); ++k)
    if (mugraph.kernels[k].custom)
      lower(k, schedule ? &schedule->kernels[k] : nullptr, schedule && approximate_functions(outputs));
}

// The operators that are emitted: primitive ones, in the forms that the emitter chooses for them.
void Interpreter::lower(size_t k, const KernelSchedule* schedule, bool approximate) {
  BlockProgram program = lower_block(mugraph_, mugraph_.kernels[k]);
  KernelForm& form = forms_[k];
  form.approximate = approximate;
  for (BlockValue value = 0; value < static_cast<BlockValue>(program.ops.size()); ++value) {
    const BlockOp& op = program.op(value);
    if (!op.is_compute()) continue;
    if (op.code() == OpCode::matmul && schedule)
      if (const auto dtype = tensor_core_dtype(program, value, schedule->tf32)) form.products[value] = *dtype;
    if (op.code() == OpCode::exp)
      if (const auto exp = exp_arithmetic(program, value, approximate); exp.x >= 0 || exp.down)
        form.exponentials[value] = exp;
  }
  form.stages = std::move(program.stages);
  mugraph_.kernels[k].ops = std::move(program.ops);
}

Result<std::vector<RealTensor>> Interpreter::run(const std::vector<RealTensor>& inputs,
                                                 SumOrder order) const {
  KernelDomain domain(mugraph_, forms_, order);
  std::vector<Elements<KernelValue>> values;
  for (const RealTensor& input : inputs) values.emplace_back(input.begin(), input.end());
  auto computed = evaluate_mugraph(mugraph_, domain, values, &operators_);
  if (!computed) return computed.status();
  std::vector<RealTensor> outputs;
  for (const Elements<KernelValue>& output : *computed) {
    outputs.emplace_back();
    for (const KernelValue& value : output) outputs.back().push_back(domain.read(value));
  }
  return outputs;
}

std::string Interpreter::text() const {
  std::string text = print_mugraph(mugraph_);
  for (const KernelForm& form : forms_) {
    text += form.approximate ? "approximate" : "exact";
    for (const auto& [value, dtype] : form.products)
      text += " " + std::to_string(value) + ":" + dtype_name(dtype);
    for (const auto& [value, exp] : form.exponentials)
      text += " " + std::to_string(value) + ":" + std::to_string(static_cast<int>(exp.form)) + ":" +
              std::to_string(exp.down);
    text += "\n";
  }
  return text;
}

}  // namespace quern
