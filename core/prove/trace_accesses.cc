#include "core/prove/trace_accesses.h"

#include <cstring>
#include <numeric>

#include "core/kernel/effects.h"
#include "core/kernel/footprint.h"
#include "core/kernel/verify_kernel.h"
#include "core/prove/arithmetic.h"
#include "core/prove/tiles.h"

namespace quern::proof {

using namespace ir;

namespace {

constexpr size_t kMostEvents = 60000;
constexpr int64_t kTmaAlignment = 128;  // of a box's place in shared memory, bytes
constexpr int64_t kMostAligned = 16;    // of other accesses

// That the condition holds, or that the number is not 0.
Expr is_nonzero(const Expr& number) {
  if (number.type() == Scalar::boolean) return number;
  return number.is_number() ? truth(number->number != 0) : less(0, number);
}

}  // namespace

Symbol variable(const std::string& name) {
  return std::make_shared<const SymbolData>(
      SymbolData{name, Space::variable, Scalar::i32, 1, false, false, nullptr});
}

void AccessTracer::fail(const std::string& what) {
  if (out_.problem.empty()) out_.problem = what + (now_ ? ": " + statement_text(*now_) : "");
}

void AccessTracer::define_memory(const SymbolData& symbol, int64_t bytes, int64_t alignment) {
  out_.memories.insert_or_assign(&symbol, Memory{&symbol, bytes, alignment});
  pointers_.insert_or_assign(&symbol, Pointer{&symbol, symbol.space, 0});
}

Expr AccessTracer::counter(const std::string& name, int64_t trips) {
  if (trips == 1) return 0;
  Symbol& symbol = counters_[{depth_, trips}];
  if (!symbol) {
    symbol = variable(name + (depth_ ? std::to_string(depth_) : "") + " of " + std::to_string(trips));
    out_.ranges.set(*symbol, {0, trips - 1});
    out_.counters.push_back(symbol);
  }
  return Expr(symbol);
}

AccessTracer::Pointer AccessTracer::pointer(const ExprNode& node) const {
  const auto at = pointers_.find(node.symbol.get());
  if (at == pointers_.end()) return {};
  Pointer out = at->second;
  if (!node.operands.empty()) out.at = add(out.at, value(node.operands[0]) * bytes_of(node.symbol->type));
  return out;
}

void AccessTracer::bind(const SymbolData& name, const Expr& to) {
  if (const ExprNode* from = pointer_of(to)) {
    const Pointer at = pointer(*from);
    if (!at.memory) return void(fail("a pointer into unknown memory"));
    pointers_.insert_or_assign(&name, at);
    return;
  }
  if (to->kind == ExprKind::call && to->function == Function::dynamic_shared)
    return define_memory(name, kernel_.shared_bytes, 1024);
  if (to->kind == ExprKind::call && to->function == Function::multiply_tile) {
    const Pointer at = pointer(*pointer_of(to->operands[0]));
    pointers_.insert_or_assign(&name, at);
    return;
  }
  fail("a pointer that is made in an unknown way");
}

Event AccessTracer::event_here() const { return {now_, {}, {}, where_, iteration_, role_}; }

void AccessTracer::add_access(Access access, std::vector<Expr> extra) {
  if (out_.events.size() >= kMostEvents) return void(fail("too many events to follow"));
  Event event = event_here();
  for (Expr& each : extra)
    if (!each.is_number(1)) event.where.push_back(std::move(each));
  for (const Expr& each : event.where)
    if (each.is_number(0)) return;
  event.access = std::move(access);
  out_.events.push_back(std::move(event));
}

void AccessTracer::access(const ExprNode* to, int64_t bytes, Kind kind, const Expr& offset,
                          std::vector<Expr> extra, int64_t alignment) {
  const Pointer at = to ? pointer(*to) : Pointer{};
  if (!at.memory) return void(fail("an access to unknown memory"));
  add_access({at.memory, at.space, add(at.at, offset), bytes, alignment ? alignment : bytes, kind, {}, false},
             std::move(extra));
}

void AccessTracer::element(const ExprNode& node, Kind kind) {
  if (node.symbol->space != Space::shared && node.symbol->space != Space::global) return;
  access(&node, bytes_of(node.type), kind);
}

void AccessTracer::reads(const Expr& expr) {
  const ExprNode& node = expr.node();
  auto guarded = [&](const Expr& part, const Expr& condition) {
    where_.push_back(condition);
    reads(part);
    where_.pop_back();
  };
  if (node.kind == ExprKind::select ||
      (node.kind == ExprKind::operation && (node.op == Operator::both || node.op == Operator::either))) {
    reads(node.operands[0]);
    const Expr first = value(node.operands[0]);
    if (node.kind == ExprKind::select) {
      guarded(node.operands[1], first);
      return guarded(node.operands[2], opposite(first));
    }
    return guarded(node.operands[1], node.op == Operator::both ? first : opposite(first));
  }
  if (node.kind == ExprKind::call && node.function == Function::multiply_tile) return tile_product(node);
  if (node.kind == ExprKind::call && node.function == Function::block_reduce) return block_reduction(node);
  if (node.kind == ExprKind::call && node.function == Function::all_agree) {
    reads(node.operands[0]);
    return barrier();
  }
  for (const Expr& operand : node.operands) reads(operand);
  if (node.kind == ExprKind::element) element(node, Kind::read);
  if (node.kind == ExprKind::call && node.function == Function::load_vector)
    access(pointer_of(node.operands[0]), bytes_of(node.templates[0].type) * node.templates[1].number,
           Kind::read);
}

void AccessTracer::barrier() {
  Event event = event_here();
  event.signal = Signal{Instr::block_barrier};
  out_.events.push_back(std::move(event));
}

void AccessTracer::block_reduction(const ExprNode& node) {
  const ExprNode* scratch = pointer_of(node.operands[1]);
  const int64_t size = bytes_of(node.type);
  const Expr thread(out_.places.thread);
  reads(node.operands[0]);
  access(scratch, size, Kind::write, thread / 32 * size, {equal(thread % 32, 0)});
  barrier();
  ++depth_;
  access(scratch, size, Kind::read, counter("warp", node.templates[0].number) * size);
  --depth_;
}

void AccessTracer::tile_product(const ExprNode& node) {
  const TemplateArg& tile = node.templates[0];
  for (int i : {0, 1}) {
    const ExprNode& matrix = node.operands[static_cast<size_t>(1 + i)].node();
    const OperandShape shape = operand_shape(tile, i, matrix);
    ++depth_;
    const Expr outer = counter("row", shape.outer);
    ++depth_;
    const Expr inner = counter("chunk", shape.chunks);
    depth_ -= 2;
    const int64_t size = bytes_of(matrix.templates[0].type);
    access(pointer_of(matrix.operands[0]), shape.vector * size, Kind::read,
           outer * (shape.outer_stride * size) + inner * (shape.inner_stride * shape.vector * size));
  }
  const Expr first = equal(Expr(out_.places.thread), 0);
  access(pointer_of(node.operands[0]), tile_bytes(tile), Kind::write, 0, {first}, 16);
  barrier();
}

namespace {

// Whose rows lanes name; 0: the instruction has none.
int64_t matrices_of(const Instruction& instruction) {
  switch (instruction.code) {
    case Instr::ldmatrix:
    case Instr::ldmatrix_trans:
      return instruction.templates[0].number;
    case Instr::stmatrix:
    case Instr::stmatrix_trans:
      return instruction.templates[1].number / 2;
    default:
      return 0;
  }
}

}  // namespace

// Every thread touches what the row says, but for repeated loads and for matrices, whose rows lanes name.
void AccessTracer::touch(const Instruction& instruction) {
  Expr offset = 0;
  std::vector<Expr> extra;
  const int before = depth_;
  if (instruction.code == Instr::load_shared && instruction.operands.size() > 2) {
    const int64_t size = bytes_of(instruction.templates[0].type);
    ++depth_;
    offset = counter("copy", instruction.templates[2].number) * (value(instruction.operands[2]) * size);
  }
  if (const int64_t lanes = 8 * matrices_of(instruction); lanes > 0 && lanes < 32)
    extra.push_back(less(Expr(out_.places.thread) % 32, lanes));
  for (size_t i = 0; i < instruction.operands.size(); ++i) touch(instruction, i, offset, extra);
  depth_ = before;
}

void AccessTracer::touch(const Instruction& instruction, size_t i, const Expr& offset,
                         const std::vector<Expr>& extra) {
  const InstrInfo& row = instr_info(instruction.code);
  const Expr& operand = instruction.operands[i];
  const char role = role_of(instruction, i);
  if (!std::strchr("SsGgcM", role)) return;
  if (operand->kind == ExprKind::call)
    return operand_panels(operand, i == 1 ? 64 : instruction.templates[1].number);
  const bool by_map = row.has('m') || row.has('M');
  const TensorMap* const map = by_map ? map_of_copy(instruction) : nullptr;
  if (by_map && !map) return;
  if (role == 'M') return stored_box(instruction, *map);
  const int64_t bytes = map ? map->box_bytes() : bytes_touched(instruction, i);
  if (bytes == 0) return void(fail("how far " + std::string(row.id) + " reaches is not known"));
  const Kind kind = role == 'S' || role == 'G' ? Kind::write : Kind::read;
  std::vector<Expr> where = extra;
  const Expr* const condition = operand_of(instruction, 'p');
  if (condition && kind == Kind::read) where.push_back(is_nonzero(value(*condition)));
  const Pointer at = pointer(*pointer_of(operand));
  if (!at.memory) return void(fail("an access to unknown memory"));
  add_access(
      {at.memory, at.space, add(at.at, offset), bytes, map ? kTmaAlignment : std::min(bytes, kMostAligned),
       kind, row.issues() ? row.async : std::nullopt, role == 'c'},
      std::move(where));
}

const TensorMap* AccessTracer::map_of_copy(const Instruction& instruction) {
  const TensorMap* map = map_of(kernel_, facts_, instruction);
  if (!map) {
    fail("a copy by a tensor map that is not known");
  } else if (instruction.templates[0].number != static_cast<int64_t>(map->box.size())) {
    fail("a copy of another rank than its tensor map");
    return nullptr;
  }
  return map;
}

void AccessTracer::stored_box(const Instruction& instruction, const TensorMap& map) {
  const int64_t size = element_bytes(map),
                unit = std::gcd(std::gcd(map.box.back(), map.shape.back()), kTensorMapAlignment / size);
  const int before = depth_;
  const size_t rank = map.box.size();
  std::vector<Expr> inside;
  Expr at = 0;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t step = d + 1 == rank ? unit : 1;
    ++depth_;
    // Coordinates are the last operands, the innermost dimension first.
    const Expr coordinate = value(instruction.operands[instruction.operands.size() - 1 - d]) +
                            counter("box", map.box[d] / step) * step;
    at = add(at, coordinate * (map.strides[d] * size));
    inside.push_back(less_equal(0, coordinate));
    inside.push_back(less_equal(coordinate, Expr(map.shape[d] - step)));
  }
  depth_ = before;
  const SymbolData* to = (*operand_of(instruction, 'M'))->symbol.get();
  add_access({to, Space::global, at, unit * size, unit * size, Kind::write, {}, false}, std::move(inside));
}

void AccessTracer::operand_panels(const Expr& operand, int64_t extent) {
  const ExprNode& node = operand.node();
  const Pointer to = pointer(*pointer_of(node.operands[0]));
  if (!to.memory) return void(fail("an operand in unknown memory"));
  auto add_read = [&](const Expr& at, int64_t bytes, int64_t alignment) {
    add_access({to.memory, to.space, at, bytes, alignment, Kind::read, Async::wgmma, false});
  };
  const int64_t row = node.templates[0].number, unit = 8 * row;
  const bool turned = node.templates[1].number;
  for (const Panel& panel : panels_of(node.templates, extent))
    add_read(add(to.at / unit * unit, panel.offset), unit, 1);
  // It begins in the first of eight rows: at its beginning, or some steps of k along it.
  add_read(to.at, 0, turned ? unit : 32);
  if (!turned) add_read(to.at / row * row, 0, unit);
}

void AccessTracer::signal(const Instruction& instruction) {
  const InstrInfo& row = instr_info(instruction.code);
  if (!row.synchronises() || row.level == Level::grid) return;
  Event event = event_here();
  Signal out{instruction.code};
  if (const Expr* const barrier = operand_of(instruction, 'b')) {
    const Pointer at = pointer(*pointer_of(*barrier));
    if (!at.memory) return void(fail("an mbarrier in unknown memory"));
    out.at = at.at;
    const Kind kind = instruction.code == Instr::mbarrier_init ? Kind::write : Kind::signal;
    if (!row.issues()) add_access({at.memory, at.space, at.at, 8, 8, kind, {}, false});
    for (char role : {'n', 'k'})
      if (const Expr* const blocks = operand_of(instruction, role)) out.blocks = value(*blocks);
  }
  if (row.issues()) {
    const TensorMap* const map = map_of(kernel_, facts_, instruction);
    out.number = map ? map->box_bytes() : bytes_touched(instruction, 0);
  } else if (const Expr* const number = operand_of(instruction, 'e')) {
    out.number = value(*number);
  } else if (!instruction.templates.empty()) {
    out.number = instruction.templates[0].number;
  }
  event.signal = out;
  out_.events.push_back(std::move(event));
}

}  // namespace quern::proof
