#include "core/codegen/block/body.h"

#include <cctype>

namespace quern {

namespace {

std::string unique_word(const std::string& name) {
  std::string out;
  for (char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') out += c;
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out = "v" + out;
  return out + "_";
}

}  // namespace

BlockBody::BlockBody()
    : shared_memory(ir::make_memory("shared", ir::Space::shared, Scalar::byte)),
      iteration_number(ir::make_variable("iteration", Scalar::i32)),
      turn(ir::make_variable("turn", Scalar::i32)),
      unmasked(ir::make_variable("unmasked", Scalar::boolean)) {}

void BlockPart::fail(BlockValue value, const std::string& what) {
  const BlockOp& op = program_.op(value);
  if (body_.status.ok())
    body_.status =
        Status(ErrorCode::UNSUPPORTED, "operator " + std::to_string(value) +
                                           (op.name.empty() ? "" : " (" + op.name + ")") + " " + what);
}

std::string BlockPart::base_name(BlockValue value) const {
  const BlockOp& op = program_.op(value);
  if (!op.name.empty()) return unique_word(op.name);
  if (!op.is_load()) return "v_";
  // Pieces have their numbers behind the name of the whole, as what is fresh has.
  const TensorPlace& place = facts_.place(op);
  return unique_word(place.pieces.empty() ? place.name : place.pieces[0].name);
}

Symbol BlockPart::shared_buffer(Scalar type, int64_t bytes, SharedBuffer::Use use, int64_t alignment) {
  body_.shared.push_back({ir::make_memory(fresh("s"), ir::Space::shared, type), bytes, alignment, use});
  return body_.shared.back().symbol;
}

}  // namespace quern
