#include "core/codegen/kernel_writer.h"

#include <algorithm>

#include "core/lang/meaning.h"
#include "core/lang/value_cuda.h"
#include "core/schedule/block_costs.h"

namespace quern {

namespace {

// Instructions of a thread:
constexpr double kDivideIssue = 4;   // for a quotient or remainder by a constant
constexpr double kAddressIssue = 2;  // for an address of 64 bits
// Of the instructions of composed operators as the model of blocks has them.
constexpr double kComposedShare = 0.5;
constexpr double kRoundIssue = 1.5;  // for a number that becomes one of 16 bits, or the reverse

}  // namespace

std::string cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::i32:
      return "int";
    default:
      return dtype_name(dtype);
  }
}

std::string convert_text(std::string text, DType from, DType to) {
  if (from == to) return text;
  if (to == DType::boolean) return "(" + text + (from == DType::f32 ? " != 0.0f)" : " != 0)");
  if (from == DType::f32) return "from_float<int>(" + text + ")";
  return cuda_type(to) + "(" + text + ")";
}

std::string round_text(const std::string& text, DType dtype) {
  return dtype_size(dtype) == 2 ? "from_float<" + cuda_type(dtype) + ">(" + text + ")" : text;
}

std::string indent(const std::string& lines, int spaces) {
  std::string out;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at) + 1;
    if (lines[at] != '#') out.append(static_cast<size_t>(spaces), ' ');
    out.append(lines, at, end - at);
    at = end;
  }
  return out;
}

void KernelWriter::set_scopes(const Index& loop, const Index& element, int vector) {
  loop_uses_ = space_.uses(loop);
  element_uses_ = space_.uses(element);
  element_ = element;
  vector_ = vector;
}

Scope KernelWriter::scope_of(VariableSet uses) const {
  if (uses & element_uses_) return Scope::element;
  return uses & loop_uses_ ? Scope::loop : Scope::kernel;
}

void KernelWriter::begin_pass() {
  for (Scope scope : {Scope::loop, Scope::element}) {
    item_names_[static_cast<size_t>(scope)].clear();
    atoms_[static_cast<size_t>(scope)].clear();
  }
  for (std::string& text : texts_) text.clear();
  works_ = {};
  after_.clear();
}

void KernelWriter::count(Scope scope, double issue, double special) {
  works_[static_cast<size_t>(scope)].issue += issue;
  works_[static_cast<size_t>(scope)].special += special;
}

void KernelWriter::count_access(Scope scope, const Slot& slot, const Index& index, int width, bool written) {
  count(scope, 1 + kAddressIssue + (dtype_size(slot.dtype) == 2 ? width * kRoundIssue : 0));
  works_[static_cast<size_t>(scope)].accesses.push_back({slot, index, width, written});
}

std::string KernelWriter::declare(const std::string& type, char prefix, const std::string& expression,
                                  Scope scope) {
  const std::string name = prefix + std::to_string(counters_[prefix]++);
  text(scope) += "const " + type + " " + name + " = " + expression + ";\n";
  return name;
}

std::string KernelWriter::atom(AtomId id) {
  const Atom atom = space_.atom(id);
  if (atom.kind == Atom::Kind::variable) return atom.name;
  const Scope scope = scope_of(atom.uses);
  auto& names = atoms_[static_cast<size_t>(scope)];
  if (const auto known = names.find(id); known != names.end()) return known->second;
  const std::string argument = index(atom.argument);
  const bool simple = atom.argument.constant == 0 && atom.argument.terms.size() == 1;
  count(scope, kDivideIssue);
  const std::string expression = (simple ? argument : "(" + argument + ")") +
                                 (atom.kind == Atom::Kind::quotient ? " / " : " % ") +
                                 std::to_string(atom.divisor);
  return names[id] = declare(index_type(), 'i', expression, scope);
}

void KernelWriter::measure(const Index& index) {
  __int128 reach = index.constant < 0 ? -index.constant : index.constant;
  for (const Index::Term& term : index.terms)
    reach +=
        static_cast<__int128>(term.factor < 0 ? -term.factor : term.factor) * space_.atom(term.atom).largest;
  if (reach > 0x7fffffff) needs_wide_ = true;
}

std::string KernelWriter::index(const Index& index) {
  measure(index);
  std::string out;
  for (const Index::Term& term : index.terms) {
    const int64_t factor = term.factor < 0 ? -term.factor : term.factor;
    out += out.empty() ? (term.factor < 0 ? "-" : "") : (term.factor < 0 ? " - " : " + ");
    out += atom(term.atom);
    if (factor != 1) out += " * " + std::to_string(factor);
  }
  if (index.constant < 0)
    out += " - " + std::to_string(-index.constant);
  else if (index.constant > 0 || out.empty())
    out += (out.empty() ? "" : " + ") + std::to_string(index.constant);
  return out;
}

std::string KernelWriter::pointer(const Slot& slot, bool written) {
  size_t i = 0;
  while (i < parameters_.size() && !(parameters_[i].slot == slot)) ++i;
  if (i == parameters_.size()) parameters_.push_back({slot, written});
  return "p" + std::to_string(i);
}

std::string KernelWriter::parameter_list() const {
  std::string out;
  for (size_t i = 0; i < parameters_.size(); ++i)
    out += (i ? ", " : "") + std::string(parameters_[i].written ? "" : "const ") +
           cuda_type(parameters_[i].slot.dtype) + "* __restrict__ p" + std::to_string(i);
  return out;
}

std::vector<LaunchArg> KernelWriter::arguments() const {
  std::vector<LaunchArg> args;
  for (const Parameter& parameter : parameters_) args.push_back(parameter.slot.arg);
  return args;
}

bool KernelWriter::fits_vector(const Index& position, DType dtype) const {
  return vector_ > 1 && vector_ * dtype_size(dtype) <= 16 && space_.splits(position, element_, vector_);
}

std::string KernelWriter::value(int i, DType type) {
  const Item& item = item_at(i);
  if (item.kind != Item::Kind::number) return convert_text(name(i), item.type, type);
  const double number = graph_.node(item.value).number;
  const bool exact = type == item.type || type == DType::f32;
  return exact ? cuda_literal(number, type) : convert_text(cuda_literal(number, item.type), item.type, type);
}

std::string KernelWriter::name(int i) {
  const Item& item = item_at(i);
  if (item.kind == Item::Kind::held) return held_.at(item.value);
  if (item.kind == Item::Kind::number) return value(i, item.type);
  auto& names = item_names_[static_cast<size_t>(scope_of(item.uses))];
  if (const auto known = names.find(i); known != names.end()) return known->second;
  return names[i] = make(i);
}

std::string KernelWriter::make(int i) {
  const Item& item = item_at(i);
  const Scope scope = scope_of(item.uses);
  switch (item.kind) {
    case Item::Kind::load:
      return load(item);
    case Item::Kind::iota: {
      const std::string number = "(" + index(item.index) + ")";
      return item.type == DType::boolean ? "(" + number + " != 0)" : cuda_type(item.type) + number;
    }
    case Item::Kind::compute: {
      const ElementCost cost = element_cost(graph_.node(item.value).code);
      count(scope, std::max(1.0, kComposedShare * cost.issue), cost.special);
      return declare(cuda_type(item.type), 'x', compute(item), scope);
    }
    case Item::Kind::convert:
      return cast(item);
    case Item::Kind::guard: {
      count(scope, 1);
      const std::string outer = item.guard >= 0 ? name(item.guard) + " && " : "";
      return declare("bool", 'g', outer + "(" + index(item.index) + " < " + std::to_string(item.extent) + ")",
                     scope);
    }
    case Item::Kind::choose:
      count(scope, static_cast<double>(item.operands.size() / 2));
      return declare(cuda_type(item.type), 'x', choose(item), scope);
    default:
      fatal(__FILE__, __LINE__, "not an item with a statement");
  }
}

std::string KernelWriter::load(const Item& item) {
  const Slot& slot = storage_.source(item.value, Width::wide);
  const std::string memory = pointer(slot, false), type = cuda_type(slot.dtype);
  std::string element;
  if (item.guard < 0 && fits_vector(item.index, slot.dtype)) {
    const Index base = vector_base(item.index);
    const std::string vector = "Vector<" + type + ", " + std::to_string(vector_) + ">";
    count_access(scope_of(space_.uses(base)), slot, base, vector_, false);
    element = declare(vector, 'v',
                      "load_vector<" + type + ", " + std::to_string(vector_) + ">(" + memory + " + " +
                          index(base) + ")",
                      scope_of(space_.uses(base))) +
              "[v]";
  } else {
    count_access(scope_of(item.uses), slot, item.index, 1, false);
    element = memory + "[" + index(item.index) + "]";
  }
  if (dtype_size(slot.dtype) == 2) element = "to_float(" + element + ")";
  if (item.guard >= 0) element = name(item.guard) + " ? " + element + " : " + cuda_literal(0, item.type);
  return declare(cuda_type(item.type), 'x', element, scope_of(item.uses));
}

std::string KernelWriter::compute(const Item& item) {
  const Node& node = graph_.node(item.value);
  const std::vector<TensorType> types = graph_.operand_types(node);
  const DType type = compute_dtype(node.code, types);
  std::vector<CudaText> operands;
  for (size_t i = 0; i < item.operands.size(); ++i) {
    const DType wanted = node.code == OpCode::where && i == 0 ? DType::boolean : type;
    operands.emplace_back(value(item.operands[i], wanted), wanted);
  }
  const CudaText result = apply_meaning<CudaText>(node.code, operands.data());
  return convert_text(result.as(result.type()), result.type(), item.type);
}

std::string KernelWriter::cast(const Item& item) {
  const DType dtype = graph_.node(item.value).type.dtype;
  const std::string operand = value(item.operands[0], item.type);
  const Scope scope = scope_of(item.uses);
  count(scope, 2 * kRoundIssue);
  if (dtype_size(dtype) != 2) return declare(cuda_type(item.type), 'x', operand, scope);
  return declare("float", 'x', "to_float(" + round_text(operand, dtype) + ")", scope);
}

std::string KernelWriter::choose(const Item& item) {
  std::string out;
  size_t i = 0;
  for (; i + 1 < item.operands.size(); i += 2)
    out += name(item.operands[i]) + " ? " + value(item.operands[i + 1], item.type) + " : ";
  return out + value(item.operands[i], item.type);
}

void KernelWriter::store(int i, const Slot& slot, const Index& position, const std::string& condition) {
  const std::string element = round_text(value(i, register_type(slot.dtype)), slot.dtype);
  const std::string memory = pointer(slot, true), type = cuda_type(slot.dtype);
  if (!fits_vector(position, slot.dtype)) {
    const Scope scope = scope_of(space_.uses(position) | item_at(i).uses);
    const std::string place = index(position);
    count_access(scope, slot, position, 1, true);
    text(scope) += condition + memory + "[" + place + "] = " + element + ";\n";
    return;
  }
  const std::string name = "y" + std::to_string(counters_['y']++), size = std::to_string(vector_);
  count_access(Scope::loop, slot, vector_base(position), vector_, true);
  text(Scope::loop) += "Vector<" + type + ", " + size + "> " + name + ";\n";
  text(Scope::element) += name + "[v] = " + element + ";\n";
  after_ += "store_vector<" + type + ", " + size + ">(" + memory + " + " + index(vector_base(position)) +
            ", " + name + ");\n";
}

}  // namespace quern
