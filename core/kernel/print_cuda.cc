// CUDA C++ of a kernel, over the functions of the device prelude. Every statement is one line, or one with a
// block; nothing is decided here.
#include <algorithm>

#include "core/base/status.h"
#include "core/kernel/join.h"

namespace quern::ir {

namespace {

// What rows of instructions.def say of order.
struct Order {
  Ordering ordering;
  std::optional<Async> async;
};
using enum Async;
constexpr Order none{Ordering::none, {}}, proxy{Ordering::proxy, {}}, memory{Ordering::memory, {}};
constexpr Order issues(Async async) { return {Ordering::issues, async}; }
constexpr Order commits(Async async) { return {Ordering::commits, async}; }
constexpr Order waits(Async async) { return {Ordering::waits, async}; }

constexpr InstrInfo kInstructions[] = {
#define QUERN_INSTRUCTION(id, name, operands, level, order) \
  {#id, name, operands, Level::level, order.ordering, order.async},
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
    block("for (" + type(*loop.counter) + " " + i + " = " + print(loop.begin) + "; " +
              print(operation(Operator::less, Expr(loop.counter), loop.end)) + "; " + next + ")",
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
    block((role.warps == 1 ? "if (warp == " : "if (warp >= ") + std::to_string(role.first_warp) + ")",
          role.body, "return;");
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

namespace {

// As a kernel has it, or, `by_value` false, the function of a part of one.
std::string print_parameter(const Parameter& parameter, const std::string& name, bool by_value) {
  const SymbolData& symbol = *parameter.symbol;
  if (symbol.space == Space::tensor_map)
    return (by_value ? "const __grid_constant__ TensorMap " : "const TensorMap& ") + name;
  return std::string(symbol.written ? "" : "const ") + cuda_name(symbol.type) +
         (parameter.distinct ? "* __restrict__ " : "* ") + name;
}

void append(std::string& list, const std::string& text) { list += (list.empty() ? "" : ", ") + text; }

std::string comment_of(const Kernel& kernel) {
  return kernel.comment.empty() ? "" : "// " + kernel.comment + "\n";
}

std::string head_of(const std::string& name, int threads, int min_blocks, const std::string& parameters) {
  return "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(threads) +
         (min_blocks > 0 ? ", " + std::to_string(min_blocks) : "") + ") " + name + "(" + parameters + ") {\n";
}

}  // namespace

std::string print_cuda(const Kernel& kernel) {
  std::string parameters;
  for (const Parameter& parameter : kernel.parameters)
    append(parameters, print_parameter(parameter, parameter.symbol->name, true));
  return comment_of(kernel) + head_of(kernel.name, kernel.threads, kernel.min_blocks, parameters) +
         print_cuda(kernel.setup, 2) + print_cuda(kernel.body, 2) + "}\n";
}

std::string print_cuda(const JoinedKernel& joined) {
  std::string functions, parameters, calls;
  int64_t blocks = 0;
  int min_blocks =
      joined.parts[0].kernel.min_blocks;  // who leaves registers for the fewest blocks needs them
  for (size_t p = 0; p < joined.parts.size(); ++p) {
    const Kernel& kernel = joined.parts[p].kernel;
    min_blocks = std::min(min_blocks, kernel.min_blocks);
    blocks += static_cast<int64_t>(joined.parts[p].grid.count());
    std::string own, arguments;
    for (const Parameter& parameter : kernel.parameters) {
      const std::string& name = parameter.symbol->name;
      append(own, print_parameter(parameter, name, false));
      append(arguments, name + "_" + std::to_string(p));
      append(parameters, print_parameter(parameter, name + "_" + std::to_string(p), true));
    }
    functions += comment_of(kernel) + "__device__ __forceinline__ void " + kernel.name + "(" + own + ") {\n" +
                 print_cuda(kernel.setup, 2) + print_cuda(kernel.body, 2) + "}\n\n";
    const bool last = p + 1 == joined.parts.size();
    calls += (last ? "  " : "  if (blockIdx.x < " + std::to_string(blocks) + "u) return ") + kernel.name +
             "(" + arguments + ");\n";
  }
  return functions + head_of(joined.name, joined.parts[0].kernel.threads, min_blocks, parameters) + calls +
         "}\n";
}

}  // namespace quern::ir
