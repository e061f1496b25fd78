#include "core/kernel/join.h"

#include <algorithm>
#include <array>

#include "core/base/grid.h"
#include "core/kernel/builder.h"
#include "core/kernel/effects.h"

namespace quern::ir {

namespace {

constexpr int64_t kMostDeclaredBytes = 48 << 10;  // of shared memory that kernels declare themselves

Body replaced(const Body& body, const Replacement& by);

struct Replacer {
  const Replacement& by;

  Expr value(const Expr& expr) const { return ir::replaced(expr, by); }
  Stmt operator()(Let let) const {
    let.value = value(let.value);
    return let;
  }
  Stmt operator()(Declare declare) const {
    declare.extent = value(declare.extent);
    return declare;
  }
  Stmt operator()(const Assign& assign) const { return Assign{value(assign.place), value(assign.value)}; }
  Stmt operator()(For loop) const {
    for (Expr* expr : {&loop.begin, &loop.end, &loop.step}) *expr = value(*expr);
    loop.body = replaced(loop.body, by);
    return loop;
  }
  Stmt operator()(const If& branch) const { return If{value(branch.condition), replaced(branch.then, by)}; }
  Stmt operator()(Instruction instruction) const {
    for (Expr& operand : instruction.operands) operand = value(operand);
    return instruction;
  }
  Stmt operator()(WarpRole role) const {
    role.body = replaced(role.body, by);
    return role;
  }
  Stmt operator()(const Continue& end) const { return end; }
  Stmt operator()(const Return& end) const { return end; }
  Stmt operator()(const Scope& scope) const { return Scope{replaced(scope.body, by)}; }
};

Body replaced(const Body& body, const Replacement& by) {
  Body out;
  for (const Stmt& stmt : body) out.push_back(std::visit(Replacer{by}, stmt.is));
  return out;
}

// The same for blocks that are numbered from `first` on along x.
void rebase(KernelPart& part, int64_t first) {
  const Dim3& grid = part.grid;
  if (first == 0 && grid.y == 1 && grid.z == 1) return;
  Body names;
  Builder to(names);
  auto name = [&](const char* text, const Expr& value) {
    return to.let(make_variable(text, Scalar::i32), value);
  };
  std::array<Expr, 3> at = {name("own_block", block_index(0) - Expr(first)), 0, 0};
  if (grid.y > 1 || grid.z > 1) {
    const Expr number = at[0];
    at[0] = name("own_x", number % int64_t{grid.x});
    at[1] = name("own_y", number / int64_t{grid.x} % int64_t{grid.y});
    at[2] = name("own_z", number / (int64_t{grid.x} * grid.y));
  }
  const Replacement by = [&](const ExprNode& node) -> std::optional<Expr> {
    if (node.kind != ExprKind::block_index) return std::nullopt;
    const Expr& own = at[static_cast<size_t>(node.number)];
    return node.type == own.type() ? own : cast(own, node.type);
  };
  Kernel& kernel = part.kernel;
  to.add(replaced(kernel.setup, by));
  kernel.setup = std::move(names);
  kernel.body = replaced(kernel.body, by);
}

int64_t declared_bytes(const Body& body) {
  int64_t bytes = 0;
  for (const Stmt& stmt : body) {
    if (const Declare* declare = stmt.as<Declare>(); declare && declare->array->space == Space::shared)
      bytes += declare->array->count * bytes_of(declare->array->type);
    if (const Body* inner = body_of(stmt)) bytes += declared_bytes(*inner);
  }
  return bytes;
}

}  // namespace

Result<JoinedKernel> join_kernels(std::string name, std::vector<KernelPart> parts) {
  auto unfit = [](const char* why) {
    return Status(ErrorCode::UNSUPPORTED, std::string("kernels of one launch ") + why);
  };
  JoinedKernel out{std::move(name), {}, {}, parts.at(0).cluster, 0};
  int64_t blocks = 0, declared = 0;
  for (KernelPart& part : parts) {
    const Kernel& kernel = part.kernel;
    if (kernel.threads != parts[0].kernel.threads) return unfit("have as many threads each");
    if (part.cluster != out.cluster) return unfit("have clusters of one size");
    // Ranks in a cluster are those of its blocks along x.
    if (part.grid.x % out.cluster.x != 0 || out.cluster.y != 1 || out.cluster.z != 1)
      return unfit("have clusters along x alone");
    declared += declared_bytes(kernel.setup) + declared_bytes(kernel.body);
    out.shared_bytes = std::max(out.shared_bytes, kernel.shared_bytes);
    const uint64_t own = part.grid.count();
    if (own > kMostBlocksX || (blocks += static_cast<int64_t>(own)) > kMostBlocksX)
      return unfit("have fewer blocks");
  }
  if (declared > kMostDeclaredBytes) return unfit("declare less shared memory");
  out.grid.x = static_cast<uint32_t>(blocks);
  blocks = 0;
  for (KernelPart& part : parts) {
    rebase(part, blocks);
    blocks += static_cast<int64_t>(part.grid.count());
    out.parts.push_back(std::move(part));
  }
  return out;
}

}  // namespace quern::ir
