#include "core/kernel/print_ir.h"

#include "core/base/status.h"

namespace quern::ir {

namespace {

const char* name_of(Scalar type) {
  constexpr const char* kNames[] = {
      "none",
#define QUERN_SCALAR(id, ...) #id,
#include "core/kernel/scalars.def"
  };
  return kNames[static_cast<size_t>(type)];
}

const char* name_of(Level level) {
  constexpr const char* kNames[] = {"thread", "warp", "warpgroup", "block", "cluster", "grid"};
  return kNames[static_cast<size_t>(level)];
}

// What an instruction orders.
const char* ordered_by(const InstrInfo& row) {
  if (row.ordering == Ordering::waits) return async_info(*row.async).what;
  return row.ordering == Ordering::proxy ? "proxies" : row.ordering == Ordering::memory ? "memory" : "";
}

// What the letters of instructions.def stand for.
const char* access_text(char letter) {
  switch (letter) {
    case 'd':
      return "define ";
    case 'u':
      return "update ";
    case 'r':
      return "use ";
    case 'S':
      return "write shared ";
    case 's':
      return "read shared ";
    case 'c':
      return "read cluster ";
    case 'G':
      return "write global ";
    case 'g':
      return "read global ";
    case 'b':
      return "mbarrier ";
    case 'm':
    case 'M':
      return "map ";
    default:
      return "";
  }
}

class Printer {
 public:
  explicit Printer(int indent) : indent_(indent) {}

  void operator()(const Let& let) {
    line(let.name->name + ": " + type_text(*let.name) + " = " + print(let.value));
  }
  void operator()(const Declare& declare) {
    const std::string extent = declare.extent.is_number(0) ? "" : ", " + print(declare.extent) + " elements";
    line("declare " + declare.array->name + ": " + type_text(*declare.array) + extent +
         (declare.zero ? " = 0" : ""));
  }
  void operator()(const Assign& assign) { line(print(assign.place) + " = " + print(assign.value)); }
  void operator()(const For& loop) {
    const std::string step = loop.step.is_number(1) ? "" : " step " + print(loop.step);
    const char* const unroll[] = {", unrolled", ", rolled", ""};
    nest("for " + loop.counter->name + " in " + print(loop.begin) + " .. " + print(loop.end) + step +
             unroll[static_cast<size_t>(loop.unroll)],
         loop.body);
  }
  void operator()(const If& branch) { nest("if " + print(branch.condition), branch.then); }
  void operator()(const Instruction& instruction) {
    const InstrInfo& row = instr_info(instruction.code);
    std::string text = row.id + print(instruction.templates), coordinates;
    const char* role = row.operands;
    const char* separator = " ";
    for (const Expr& operand : instruction.operands) {
      if (*role == '?') ++role;
      if (*role == 'x') {
        coordinates += (coordinates.empty() ? "" : ", ") + print(operand);
        continue;
      }
      text += separator + std::string(*role ? access_text(*role++) : "") + print(operand);
      separator = ", ";
    }
    if (!coordinates.empty()) text += " at (" + coordinates + ")";
    const std::string ordered = ordered_by(row);
    const bool alone = row.level == Level::thread, orders = !ordered.empty();
    if (!alone || orders)
      text += std::string("  # ") + (alone ? "" : name_of(row.level)) + (alone || !orders ? "" : ", ") +
              (orders ? "orders " : "") + ordered;
    line(text);
  }
  void operator()(const WarpRole& role) {
    nest("role " + role.name + ", warp " + std::to_string(role.first_warp), role.body);
  }
  void operator()(const Continue&) { line("continue"); }
  void operator()(const Return&) { line("return"); }
  void operator()(const Scope& scope) { nest("scope", scope.body); }

  void body(const Body& statements) {
    for (const Stmt& stmt : statements) std::visit(*this, stmt.is);
  }
  std::string take() { return std::move(out_); }

 private:
  void line(const std::string& text) { out_ += std::string(static_cast<size_t>(indent_), ' ') + text + "\n"; }
  void nest(const std::string& head, const Body& statements) {
    line(head);
    indent_ += 2;
    body(statements);
    indent_ -= 2;
  }

  int indent_;
  std::string out_;
};

}  // namespace

std::string type_text(const SymbolData& symbol) {
  const std::string type = name_of(symbol.type);
  switch (symbol.space) {
    case Space::variable:
      return type;
    case Space::registers:
      return (symbol.vector ? "vector " : "") + type + "[" + std::to_string(symbol.count) + "]";
    case Space::shared:
      return symbol.count > 0 ? "shared " + type + "[" + std::to_string(symbol.count) + "]"
                              : "shared " + type + "*";
    case Space::global:
      return std::string("global ") + (symbol.written ? "" : "const ") + type + "*";
    case Space::tensor_map:
      return type;
  }
  fatal(__FILE__, __LINE__, "not a space");
}

std::string print_ir(const Body& body, int indent) {
  Printer printer(indent);
  printer.body(body);
  return printer.take();
}

std::string print_ir(const Kernel& kernel) {
  std::string out = "kernel " + kernel.name + ": " + std::to_string(kernel.threads) + " threads, " +
                    std::to_string(kernel.shared_bytes) + " bytes of shared memory";
  if (kernel.min_blocks > 0) out += ", at least " + std::to_string(kernel.min_blocks) + " blocks per SM";
  out += "\n";
  for (const Parameter& parameter : kernel.parameters)
    out += "  parameter " + parameter.symbol->name + ": " + type_text(*parameter.symbol) +
           (parameter.distinct ? "" : ", may be written by others") + "\n";
  for (const auto& [name, body] : {std::pair("setup", &kernel.setup), std::pair("body", &kernel.body)})
    if (!body->empty()) out += std::string("  ") + name + "\n" + print_ir(*body, 4);
  return out;
}

}  // namespace quern::ir
