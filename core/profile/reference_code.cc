// Reference programs with their code, and their bytes.
#include <utility>

#include "core/base/bytes.h"
#include "core/codegen/prelude.h"
#include "core/profile/reference_program.h"

namespace quern {

Result<ReferenceProgram> make_reference(const Graph& graph, const Target& target, Compiler& compiler) {
  auto program = emit_reference(graph, target);
  if (!program) return program.status();
  auto compiled =
      compiler.compile({std::string(prelude_text()) + program->source, target.name, program->options});
  if (!compiled) return compiled.status().with_context("the reference of this graph");
  program->evaluate.cubin = program->compare.cubin = std::move(compiled->cubin);
  return program;
}

std::string encode_reference(const ReferenceProgram& program) {
  ByteWriter out;
  out.string(encode_plan(program.evaluate));
  out.string(encode_plan(program.compare));
  return out.take();
}

Result<ReferenceProgram> decode_reference(const std::string& bytes) {
  ByteReader in(bytes);
  auto evaluate = decode_plan(in.string()), compare = decode_plan(in.string());
  if (!evaluate) return evaluate.status();
  if (!compare) return compare.status();
  ReferenceProgram program;
  program.evaluate = std::move(*evaluate);
  program.compare = std::move(*compare);
  return program;
}

}  // namespace quern
