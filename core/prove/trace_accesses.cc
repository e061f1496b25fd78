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
constexpr int64_t kTmaAlignment = 128;  // of the place in shared memory, bytes

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

void AccessTracer::access(const ExprNode* to, int64_t bytes, Kind kind, Agent agent, const Expr& offset,
                          std::vector<Expr> extra, int64_t alignment, bool of_cluster) {
  const Pointer at = to ? pointer(*to) : Pointer{};
  if (!at.memory) return void(fail("an access to unknown memory"));
  add_access({at.memory, at.space, add(at.at, offset), bytes, alignment ? alignment : bytes, kind, agent,
              of_cluster},
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
  access(scratch, size, Kind::write, Agent::thread, thread / 32 * size, {equal(thread % 32, 0)});
  barrier();
  ++depth_;
  access(scratch, size, Kind::read, Agent::thread, counter("warp", node.templates[0].number) * size);
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
    access(pointer_of(matrix.operands[0]), shape.vector * size, Kind::read, Agent::thread,
           outer * (shape.outer_stride * size) + inner * (shape.inner_stride * shape.vector * size));
  }
  const Expr first = equal(Expr(out_.places.thread), 0);
  access(pointer_of(node.operands[0]), tile_bytes(tile), Kind::write, Agent::thread, 0, {first}, 16);
  barrier();
}

void AccessTracer::touch(const Instruction& instruction) {
  auto at = [&](size_t i) { return pointer_of(instruction.operands[i]); };
  auto number = [&](size_t i) { return value(instruction.operands[i]); };
  const int64_t bytes = instruction.operands.empty() ? 0 : bytes_touched(instruction, 0);
  switch (instruction.code) {
    case Instr::load_global:
    case Instr::load_written:
    case Instr::load_shared_or_zero:
      return access(at(1), bytes, Kind::read, Agent::thread, 0, {number(2)});
    case Instr::load_shared: {
      ++depth_;
      const int64_t copies = instruction.operands.size() > 2 ? instruction.templates[2].number : 1;
      const int64_t size = bytes_of(instruction.templates[0].type);
      const Expr offset = copies > 1 ? counter("copy", copies) * (number(2) * size) : Expr(0);
      access(at(1), bytes, Kind::read, Agent::thread, offset);
      --depth_;
      return;
    }
    case Instr::cluster_factors:
      return access(at(1), 4, Kind::read, Agent::thread, 0, {number(2)}, 0, true);
    case Instr::cp_async: {
      access(at(0), bytes, Kind::write, Agent::cp_async);
      const Expr source = instruction.operands.size() > 2 ? number(2) : Expr(bytes);
      const Expr there = source.is_number() ? truth(source->number > 0) : less(0, source);
      return access(at(1), bytes, Kind::read, Agent::thread, 0, {there});
    }
    case Instr::ldmatrix:
    case Instr::ldmatrix_trans: {
      const int64_t lanes = 8 * instruction.templates[0].number;
      return access(at(1), 16, Kind::read, Agent::thread, 0,
                    {lanes == 32 ? truth(true) : less(Expr(out_.places.thread) % 32, lanes)});
    }
    case Instr::tma_load:
    case Instr::tma_load_multicast:
      return box(instruction);
    case Instr::tma_store:
      return stored_box(instruction);
    case Instr::wgmma:
      return operand_panels(instruction.operands[2], 8 * (instruction.templates[1].number / 8));
    case Instr::wgmma_shared:
      operand_panels(instruction.operands[1], 64);
      return operand_panels(instruction.operands[2], instruction.templates[1].number);
    default:
      return touch_as_its_row_says(instruction);
  }
}

void AccessTracer::touch_as_its_row_says(const Instruction& instruction) {
  for (size_t i = 0; i < instruction.operands.size(); ++i) {
    const char role = role_of(instruction, i);
    if (!std::strchr("SsGgc", role)) continue;
    const int64_t bytes = bytes_touched(instruction, i);
    if (bytes == 0)
      return void(fail("how far " + std::string(instr_info(instruction.code).id) + " reaches is not known"));
    const Kind kind = role == 'S' || role == 'G' ? Kind::write : Kind::read;
    access(pointer_of(instruction.operands[i]), bytes, kind, Agent::thread, 0, {}, 0, role == 'c');
  }
}

const TensorMap* AccessTracer::map_of_copy(const Instruction& instruction) {
  const TensorMap* map = map_of(kernel_, facts_, instruction.operands[1]);
  if (!map) {
    fail("a copy by a tensor map that is not known");
  } else if (instruction.templates[0].number != static_cast<int64_t>(map->box.size())) {
    fail("a copy of another rank than its tensor map");
    return nullptr;
  }
  return map;
}

void AccessTracer::box(const Instruction& instruction) {
  if (const TensorMap* map = map_of_copy(instruction))
    access(pointer_of(instruction.operands[0]), map->box_bytes(), Kind::write, Agent::tma, 0, {},
           kTmaAlignment);
}

void AccessTracer::stored_box(const Instruction& instruction) {
  const TensorMap* map = map_of_copy(instruction);
  if (!map) return;
  access(pointer_of(instruction.operands[0]), map->box_bytes(), Kind::read, Agent::tma_store, 0, {},
         kTmaAlignment);
  const int64_t size = element_bytes(*map),
                unit = std::gcd(std::gcd(map->box.back(), map->shape.back()), kTensorMapAlignment / size);
  const int before = depth_;
  const size_t rank = map->box.size();
  std::vector<Expr> inside;
  Expr at = 0;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t step = d + 1 == rank ? unit : 1;
    ++depth_;
    const Expr coordinate =
        value(instruction.operands[1 + rank - d]) + counter("box", map->box[d] / step) * step;
    at = add(at, coordinate * (map->strides[d] * size));
    inside.push_back(less_equal(0, coordinate));
    inside.push_back(less_equal(coordinate, Expr(map->shape[d] - step)));
  }
  depth_ = before;
  const SymbolData* to = instruction.operands[1]->symbol.get();
  add_access({to, Space::global, at, unit * size, unit * size, Kind::write, Agent::thread, false},
             std::move(inside));
}

void AccessTracer::operand_panels(const Expr& operand, int64_t extent) {
  const ExprNode& node = operand.node();
  const Pointer to = pointer(*pointer_of(node.operands[0]));
  if (!to.memory) return void(fail("an operand in unknown memory"));
  auto add_read = [&](const Expr& at, int64_t bytes, int64_t alignment) {
    add_access({to.memory, to.space, at, bytes, alignment, Kind::read, Agent::wgmma, false});
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
  const bool copy = instruction.code == Instr::tma_load || instruction.code == Instr::tma_load_multicast;
  const bool groups = instruction.code == Instr::cp_async_commit || instruction.code == Instr::wgmma_commit ||
                      instruction.code == Instr::tma_store_commit;
  if (row.ordering == Ordering::none && !copy && !groups && instruction.code != Instr::mbarrier_init) return;
  if (row.level == Level::grid) return;
  Event event = event_here();
  Signal out{instruction.code};
  const std::string roles = row.operands;
  const size_t barrier = roles.find('b');
  if (barrier != std::string::npos) {
    const Pointer at = pointer(*pointer_of(instruction.operands[barrier]));
    if (!at.memory) return void(fail("an mbarrier in unknown memory"));
    out.at = at.at;
    const Kind kind = instruction.code == Instr::mbarrier_init ? Kind::write : Kind::signal;
    if (!copy) add_access({at.memory, at.space, at.at, 8, 8, kind, Agent::thread, false});
    if (instruction.code == Instr::mbarrier_arrive_at)
      out.blocks = value(instruction.operands[1]);
    else if (instruction.operands.size() > 1 && !copy)
      out.number = value(instruction.operands[1]);
    if (instruction.code == Instr::tma_load_multicast) out.blocks = value(instruction.operands[3]);
    if (const TensorMap* map = copy ? map_of(kernel_, facts_, instruction.operands[1]) : nullptr)
      out.number = map->box_bytes();
  }
  if (!instruction.templates.empty() && !copy) out.number = instruction.templates[0].number;
  event.signal = out;
  out_.events.push_back(std::move(event));
}

}  // namespace quern::proof
