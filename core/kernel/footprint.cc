#include "core/kernel/footprint.h"

#include <cstring>
#include <limits>

namespace quern::ir {

namespace {

int64_t number(const Instruction& instruction, size_t at) {
  return at < instruction.templates.size() ? instruction.templates[at].number : 0;
}

// Of <T, count, ...>, or of a copy of <bytes>; 0 if the instruction has other arguments.
int64_t vector_bytes(const Instruction& instruction) {
  if (instruction.templates.empty()) return 0;
  if (instruction.templates[0].kind == TemplateArg::Kind::type)
    return bytes_of(instruction.templates[0].type) * number(instruction, 1);
  const InstrInfo& row = instr_info(instruction.code);
  return row.issues() && !row.has('m') && !row.has('M') ? number(instruction, 0) : 0;
}

}  // namespace

int64_t bytes_touched(const Instruction& instruction, size_t operand) {
  switch (instruction.code) {
    case Instr::cluster_factors:
      return operand == 0 ? 4 * number(instruction, 0) : 4;
    case Instr::ldmatrix:
    case Instr::ldmatrix_trans:
      return operand == 0 ? 4 * number(instruction, 0) : 16;
    case Instr::stmatrix:
    case Instr::stmatrix_trans:
      return operand == 0 ? 16 : vector_bytes(instruction);
    case Instr::mma:
      return operand == 0 ? 16 : operand == 1 && !number(instruction, 1) ? 16 : 8;
    case Instr::wgmma:
      return operand == 0 ? 2 * number(instruction, 1) : operand == 1 ? 16 : 0;
    case Instr::wgmma_shared:
      return operand == 0 ? 2 * number(instruction, 1) : 0;
    case Instr::mbarrier_init:
    case Instr::mbarrier_arrive:
    case Instr::mbarrier_arrive_at:
    case Instr::mbarrier_arrive_expect:
    case Instr::mbarrier_wait:
      return operand == 0 ? 8 : 0;
    default:  // loads, stores and copies of vectors
      return operand < 2 ? vector_bytes(instruction) : 0;
  }
}

char role_of(const Instruction& instruction, size_t operand) {
  const char* role = instr_info(instruction.code).operands;
  for (; *role; ++role) {
    if (*role == '?') continue;
    if (operand == 0 || *role == 'x') return *role;
    --operand;
  }
  return 0;
}

bool is_number_role(char role) { return role != 0 && std::strchr("epnkx", role); }

const Expr* operand_of(const Instruction& instruction, char role) {
  for (size_t i = 0; i < instruction.operands.size(); ++i)
    if (role_of(instruction, i) == role) return &instruction.operands[i];
  return nullptr;
}

std::pair<size_t, size_t> operand_count(Instr code) {
  const std::string roles = instr_info(code).operands;
  const size_t optional = roles.find('?');
  if (optional != std::string::npos) return {optional, roles.size() - 1};
  if (roles.find('x') != std::string::npos) return {roles.size(), std::numeric_limits<size_t>::max()};
  return {roles.size(), roles.size()};
}

const ExprNode* pointer_of(const Expr& operand) {
  if (operand->kind == ExprKind::call && operand->function == Function::shared_operand)
    return pointer_of(operand->operands[0]);
  const bool points = operand->kind == ExprKind::address ||
                      (operand->kind == ExprKind::symbol && operand->symbol->space != Space::variable);
  return points ? &operand.node() : nullptr;
}

const TensorMap* map_of(const Kernel& kernel, const LaunchFacts& facts, const Instruction& instruction) {
  const Expr* const read = operand_of(instruction, 'm');
  const Expr* const map = read ? read : operand_of(instruction, 'M');
  if (!map || (*map)->kind != ExprKind::symbol) return nullptr;
  for (size_t i = 0; i < kernel.parameters.size(); ++i)
    if (kernel.parameters[i].symbol == (*map)->symbol)
      return facts.parameters[i].map ? &*facts.parameters[i].map : nullptr;
  return nullptr;
}

}  // namespace quern::ir
