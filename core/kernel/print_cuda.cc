// CUDA C++ of a kernel, over the functions of the device prelude. Every statement is one line, or one with a
// block; nothing is decided here.
#include "core/base/status.h"
#include "core/kernel/ir.h"

namespace quern::ir {

namespace {

constexpr InstrInfo kInstructions[] = {
#define QUERN_INSTRUCTION(id, name, operands, level, ordering) \
  {#id, name, operands, Level::level, Ordering::ordering},
#include "core/kernel/instructions.def"
};

class Printer {
 public:
  explicit Printer(int indent) : indent_(indent) {}

  void operator()(const Let& let) {
    const SymbolData& name = *let.name;
    if (name.space == Space::variable)
      return line("const " + type(name) + " " + name.name + " = " + print(let.value) + ";");
    if (name.vector)
      return line("const " + vector_type(name) + " " + name.name + " = " + print(let.value) + ";");
    // A pointer: to what it says, out of whatever its value points to.
    const std::string to = (is_read_only(name) ? "const " : "") + type(name) + "*";
    const bool same = pointer_type(let.value) == name.type;
    line(to + " const " + name.name + " = " +
         (same ? print(let.value) : "reinterpret_cast<" + to + ">(" + print(let.value) + ")") + ";");
  }
  void operator()(const Declare& declare) {
    const SymbolData& array = *declare.array;
    const std::string zero = declare.zero ? " = {}" : "";
    if (array.vector) return line(vector_type(array) + " " + array.name + zero + ";");
    const std::string extent =
        declare.extent.is_number(0) ? std::to_string(array.count) : print(declare.extent);
    line((array.space == Space::shared ? "__shared__ __align__(16) " : "") + type(array) + " " + array.name +
         "[" + extent + "]" + zero + ";");
  }
  void operator()(const Assign& assign) { line(print(assign.place) + " = " + print(assign.value) + ";"); }
  void operator()(const For& loop) {
    const std::string& i = loop.counter->name;
    if (loop.unroll != Unroll::automatic)
      out_ += loop.unroll == Unroll::full ? "#pragma unroll\n" : "#pragma unroll 1\n";
    const std::string next = loop.step.is_number(1) ? "++" + i : i + " += " + print(loop.step);
    block("for (" + type(*loop.counter) + " " + i + " = " + print(loop.begin) + "; " + i + " < " +
              print(loop.end) + "; " + next + ")",
          loop.body);
  }
  void operator()(const If& branch) { block("if (" + print(branch.condition) + ")", branch.then); }
  void operator()(const Instruction& instruction) {
    const InstrInfo& row = instr_info(instruction.code);
    std::string list;
    const char* role = row.operands;
    bool braces = false;
    for (const Expr& operand : instruction.operands) {
      if (*role == '?') ++role;
      list += list.empty() ? "" : ", ";
      if (*role == 'x' && !braces) {
        list += "{";
        braces = true;
      }
      // A single tensor map or array is passed whole.
      list += print(operand);
      if (*role && *role != 'x') ++role;  // what verify_kernel refuses may have too many
    }
    line(row.name + print(instruction.templates) + "(" + list + (braces ? "}" : "") + ");");
  }
  void operator()(const WarpRole& role) {
    line("// " + role.name);
    block("if (warp == " + std::to_string(role.first_warp) + ")", role.body, "return;");
  }
  void operator()(const Continue&) { line("continue;"); }
  void operator()(const Return&) { line("return;"); }
  void operator()(const Scope& scope) { block("", scope.body); }

  void body(const Body& statements) {
    for (const Stmt& stmt : statements) std::visit(*this, stmt.is);
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string type(const SymbolData& symbol) { return cuda_name(symbol.type); }
  static std::string vector_type(const SymbolData& vector) {
    return "Vector<" + type(vector) + ", " + std::to_string(vector.count) + ">";
  }
  static bool is_read_only(const SymbolData& symbol) {
    return symbol.space == Space::global && !symbol.written;
  }
  static Scalar pointer_type(const Expr& value) { return value.type(); }
  void line(const std::string& text) { out_ += std::string(static_cast<size_t>(indent_), ' ') + text + "\n"; }
  void block(const std::string& head, const Body& statements, const std::string& last = "") {
    line(head + (head.empty() ? "{" : " {"));
    indent_ += 2;
    body(statements);
    if (!last.empty()) line(last);
    indent_ -= 2;
    line("}");
  }

  int indent_;
  std::string out_;
};

}  // namespace

const InstrInfo& instr_info(Instr code) { return kInstructions[static_cast<size_t>(code)]; }

std::string print_cuda(const Body& body, int indent) {
  Printer printer(indent);
  printer.body(body);
  return printer.take();
}

std::string print_cuda(const Kernel& kernel) {
  std::string parameters;
  for (const Parameter& parameter : kernel.parameters) {
    const SymbolData& symbol = *parameter.symbol;
    parameters += parameters.empty() ? "" : ", ";
    if (symbol.space == Space::tensor_map)
      parameters += "const __grid_constant__ TensorMap " + symbol.name;
    else
      parameters += std::string(symbol.written ? "" : "const ") + cuda_name(symbol.type) +
                    (parameter.distinct ? "* __restrict__ " : "* ") + symbol.name;
  }
  return (kernel.comment.empty() ? "" : "// " + kernel.comment + "\n") +
         "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(kernel.threads) +
         (kernel.min_blocks > 0 ? ", " + std::to_string(kernel.min_blocks) : "") + ") " + kernel.name + "(" +
         parameters + ") {\n" + print_cuda(kernel.setup, 2) + print_cuda(kernel.body, 2) + "}\n";
}

}  // namespace quern::ir
