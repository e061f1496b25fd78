#include "core/kernel/join.h"

#include <algorithm>
#include <array>

#include "core/base/grid.h"
#include "core/kernel/builder.h"
#include "core/kernel/effects.h"
#include "core/kernel/replace.h"

namespace quern::ir {

namespace {

// Of a kernel (CUDA C++ Programming Guide, "Function Parameters": 4 KB), less what alignment takes.
constexpr size_t kMostParameterBytes = 4000;
constexpr size_t kMostParts = 16;  // blocks look for theirs one part after the other

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

// What kernels declare themselves no two of them share.
bool declares_shared_memory(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const Stmt& stmt) {
    const Declare* declare = stmt.as<Declare>();
    const Body* inner = body_of(stmt);
    return (declare && declare->array->space == Space::shared) || (inner && declares_shared_memory(*inner));
  });
}

}  // namespace

Result<JoinedKernel> join_kernels(std::string name, std::vector<KernelPart> parts) {
  auto unfit = [](const char* why) {
    return Status(ErrorCode::UNSUPPORTED, std::string("kernels of one launch ") + why);
  };
  JoinedKernel out{std::move(name), {}, {}, parts.at(0).cluster, 0};
  if (parts.size() > kMostParts) return unfit("are fewer");
  size_t parameter_bytes = 0;
  int64_t blocks = 0;
  for (KernelPart& part : parts) {
    const Kernel& kernel = part.kernel;
    if (kernel.threads != parts[0].kernel.threads) return unfit("have as many threads each");
    if (part.cluster != out.cluster) return unfit("have clusters of one size");
    // Ranks in a cluster are those of its blocks along x.
    if (part.grid.x % out.cluster.x != 0 || out.cluster.y != 1 || out.cluster.z != 1)
      return unfit("have clusters along x alone");
    if (declares_shared_memory(kernel.setup) || declares_shared_memory(kernel.body))
      return unfit("find their shared memory where the launch has it");
    out.shared_bytes = std::max(out.shared_bytes, kernel.shared_bytes);
    for (const Parameter& parameter : kernel.parameters)
      parameter_bytes += parameter.symbol->space == Space::tensor_map ? 128 : 8;
    if (parameter_bytes > kMostParameterBytes) return unfit("have fewer parameters");
    const uint64_t own = part.grid.count();
    if (own > kMostBlocksX || (blocks += static_cast<int64_t>(own)) > kMostBlocksX)
      return unfit("have fewer blocks");
  }
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
