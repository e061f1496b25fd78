#include "core/codegen/kernel_writer.h"

#include <algorithm>

#include "core/base/dtype_info.h"
#include "core/codegen/arithmetic.h"
#include "core/lang/meaning.h"
#include "core/schedule/block_costs.h"

namespace quern {

using ir::Expr;
using ir::Scalar;

namespace {

// Instructions of a thread:
constexpr double kDivideIssue = 4;   // for a quotient or remainder by a constant
constexpr double kAddressIssue = 2;  // for an address of 64 bits
// Of the instructions of composed operators as the model of blocks has them.
constexpr double kComposedShare = 0.5;
constexpr double kRoundIssue = 1.5;  // for a number that becomes one of 16 bits, or the reverse

constexpr size_t kLeastVectorBytes = 4;  // of a load under a condition

// Quotients and roots that the graph itself has stay exact: divide_fast is 0 for divisors from 2^126 on. In the meaning of other
// operators, as of the sigmoid, that is off by about 2^-126.
bool is_quotient_or_root(OpCode code) {
  return code == OpCode::div || code == OpCode::reciprocal || code == OpCode::sqrt || code == OpCode::rsqrt;
}

}  // namespace

KernelWriter::KernelWriter(const Graph& graph, IndexSpace& space, const Storage& storage, bool wide)
    : graph_(graph),
      space_(space),
      storage_(storage),
      wide_(wide),
      approximate_(approximate_functions(graph.output_descs())) {}

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
    made_[static_cast<size_t>(scope)].clear();
    atoms_[static_cast<size_t>(scope)].clear();
  }
  for (ir::Body& body : bodies_) body.clear();
  works_ = {};
  approximated_ = -1;
  after_.clear();
  after_element_.clear();
}

void KernelWriter::count(Scope scope, double issue, double special) {
  works_[static_cast<size_t>(scope)].issue += issue;
  works_[static_cast<size_t>(scope)].special += special;
}

void KernelWriter::count_access(Scope scope, const Slot& slot, const Index& index, int width, bool written) {
  count(scope, 1 + kAddressIssue + (is_narrow(slot.dtype) ? width * kRoundIssue : 0));
  works_[static_cast<size_t>(scope)].accesses.push_back({slot, index, width, written});
}

Expr KernelWriter::let(char prefix, const Expr& expression, Scope scope) {
  const std::string name = prefix + std::to_string(counters_[prefix]++);
  return ir::Builder(body(scope)).let(ir::make_variable(name, expression.type()), expression);
}

const ir::Symbol& KernelWriter::variable(const std::string& name) {
  ir::Symbol& symbol = variables_[name];
  if (!symbol) symbol = ir::make_variable(name, name == "v" ? Scalar::u32 : index_type());
  return symbol;
}

Expr KernelWriter::atom(AtomId id) {
  const Atom atom = space_.atom(id);
  if (atom.kind == Atom::Kind::variable) return Expr(variable(atom.name));
  const Scope scope = scope_of(atom.uses);
  auto& known = atoms_[static_cast<size_t>(scope)];
  if (const auto at = known.find(id); at != known.end()) return at->second;
  const Expr argument = index(atom.argument);
  count(scope, kDivideIssue);
  const Expr expression =
      atom.kind == Atom::Kind::quotient ? argument / atom.divisor : argument % atom.divisor;
  const Expr name = let('i', ir::cast(expression, index_type()), scope);
  known.insert_or_assign(id, name);
  return name;
}

void KernelWriter::measure(const Index& index) {
  __int128 reach = index.constant < 0 ? -index.constant : index.constant;
  for (const Index::Term& term : index.terms)
    reach +=
        static_cast<__int128>(term.factor < 0 ? -term.factor : term.factor) * space_.atom(term.atom).largest;
  if (reach > 0x7fffffff) needs_wide_ = true;
}

Expr KernelWriter::index(const Index& index) {
  measure(index);
  Expr out = 0;
  for (const Index::Term& term : index.terms)
    out = term.factor < 0 ? out - atom(term.atom) * -term.factor : out + atom(term.atom) * term.factor;
  return index.constant < 0 ? out - -index.constant : out + index.constant;
}

const ir::Symbol& KernelWriter::pointer(const Slot& slot, bool written) {
  for (const Parameter& parameter : parameters_)
    if (parameter.slot == slot) return parameter.symbol;
  const std::string name = "p" + std::to_string(parameters_.size());
  parameters_.push_back({slot, ir::make_memory(name, ir::Space::global, ir::scalar_of(slot.dtype), written)});
  return parameters_.back().symbol;
}

std::vector<ir::Parameter> KernelWriter::parameters(bool overlapped) const {
  std::vector<ir::Parameter> out;
  for (const Parameter& parameter : parameters_)
    out.push_back({parameter.symbol, !overlapped || parameter.slot.arg.kind == LaunchArg::Kind::input});
  return out;
}

std::vector<LaunchArg> KernelWriter::arguments() const {
  std::vector<LaunchArg> args;
  for (const Parameter& parameter : parameters_) args.push_back(parameter.slot.arg);
  return args;
}

bool KernelWriter::splits(const Index& position) const {
  return space_.splits(position, aligned_.is ? aligned_.position : element_, vector_);
}

Index KernelWriter::vector_base(const Index& position) {
  if (!aligned_.is) return space_.add(position, space_.scale(element_, -1));
  return space_.add(space_.add(position, space_.scale(aligned_.position, -1)), aligned_.vector);
}

bool KernelWriter::fits_vector(const Index& position, DType dtype) const {
  return vector_ > 1 && vector_ * dtype_size(dtype) <= 16 && splits(position);
}

Expr KernelWriter::value(int i, DType type) {
  const Item& item = item_at(i);
  if (item.kind != Item::Kind::number) return ir::converted(made(i), type);
  const double number = graph_.node(item.value).number;
  const bool exact = type == item.type || type == DType::f32;
  return exact ? ir::literal(number, ir::scalar_of(type))
               : ir::converted(ir::literal(number, ir::scalar_of(item.type)), type);
}

Expr KernelWriter::made(int i) {
  const Item& item = item_at(i);
  if (item.kind == Item::Kind::held) return held_.at(item.value);
  if (item.kind == Item::Kind::number) return value(i, item.type);
  auto& known = made_[static_cast<size_t>(scope_of(item.uses))];
  if (const auto at = known.find(i); at != known.end()) return at->second;
  const Expr expr = make(i);
  known.insert_or_assign(i, expr);
  return expr;
}

Expr KernelWriter::make(int i) {
  const Item& item = item_at(i);
  const Scope scope = scope_of(item.uses);
  switch (item.kind) {
    case Item::Kind::load:
      return load(i);
    case Item::Kind::iota: {
      const Expr number = index(item.index);
      return item.type == DType::boolean ? operation(ir::Operator::not_equal, number, 0)
                                         : ir::cast(number, ir::scalar_of(item.type));
    }
    case Item::Kind::compute: {
      const ElementCost cost = element_cost(graph_.node(item.value).code);
      count(scope, std::max(1.0, kComposedShare * cost.issue), cost.special);
      return let('x', compute(i), scope);
    }
    case Item::Kind::convert:
      return cast(item);
    case Item::Kind::guard:
      return guard(i);
    case Item::Kind::choose:
      count(scope, static_cast<double>(item.operands.size() / 2));
      return let('x', choose(item), scope);
    default:
      fatal(__FILE__, __LINE__, "not an item with a statement");
  }
}

void KernelWriter::copy_last(ir::Builder& to, const ir::Symbol& into, const Expr& into_at,
                             const ir::Symbol& from, const Expr& from_at) const {
  to.unrolled("e", last_.elements, [&](ir::Builder& one, const Expr& e) {
    one.assign(ir::element(into, into_at + e), ir::element(from, from_at + e));
  });
}

bool KernelWriter::is_whole(int i) const {
  if (i < 0) return true;
  const Item& item = item_at(i);
  return is_whole(item.guard) && (!(space_.uses(item.index) & element_uses_) ||
                                  (!aligned_.is && item.extent % vector_ == 0 && splits(item.index)));
}

bool KernelWriter::is_vector_load(const Item& item) const {
  const DType dtype = storage_.source(item.value, Width::wide).dtype;
  const bool always = item.guard < 0 && last_.elements == 0;
  // What a guard holds for may end within an aligned vector, and the tensor with it.
  if (aligned_.is && item.guard >= 0) return false;
  return is_whole(item.guard) && fits_vector(item.index, dtype) &&
         (always || static_cast<size_t>(vector_) * dtype_size(dtype) >= kLeastVectorBytes);
}

// What a whole vector agrees on is asked once, of its first element.
Expr KernelWriter::guard(int i) {
  const Item& item = item_at(i);
  const bool whole = is_whole(i);
  const Scope scope = scope_of(whole ? item.uses & ~element_uses_ : item.uses);
  const bool first = whole && (space_.uses(item.index) & element_uses_) != 0;
  count(scope, 1);
  const Expr outer = item.guard >= 0 ? made(item.guard) : ir::truth(true);
  return let('g', both(outer, less(index(first ? vector_base(item.index) : item.index), item.extent)), scope);
}

bool KernelWriter::loads_vectors(int i) const {
  const Item& item = item_at(i);
  return item.kind == Item::Kind::load && item.guard < 0 && scope_of(item.uses) != Scope::kernel &&
         (vector_ == 1 || fits_vector(item.index, storage_.source(item.value, Width::wide).dtype));
}

void KernelWriter::copy(int i, const ir::Symbol& shared, const Expr& at) {
  const Item& item = item_at(i);
  const Slot& slot = storage_.source(item.value, Width::wide);
  const Index base = vector_ == 1 ? item.index : vector_base(item.index);
  count_access(Scope::loop, slot, base, vector_, false);
  const ir::Symbol& memory = pointer(slot, false);
  const Expr from = index(base);
  ir::Builder to(body(Scope::loop));
  to.when(last_.elsewhere, [&](ir::Builder& all) {
    all.emit(ir::Instr::cp_async, {ir::address(shared, at), ir::address(memory, from)},
             {vector_ * static_cast<int64_t>(dtype_size(slot.dtype))});
  });
  if (last_.elements > 0)
    to.when(last_.here, [&](ir::Builder& rest) {
      copy_last(rest, shared, at, memory, from);
      // It is read whole.
      const Expr zero = ir::rounded(ir::literal(0, ir::scalar_of(register_type(slot.dtype))), slot.dtype);
      rest.unrolled("e", vector_ - last_.elements, [&](ir::Builder& one, const Expr& e) {
        one.assign(ir::element(shared, at + (e + last_.elements)), zero);
      });
    });
}

Expr KernelWriter::load_kept(int i) {
  const auto& [shared, at] = kept_.at(i);
  const Scalar type = shared->type;
  const bool narrow = is_narrow(storage_.source(item_at(i).value, Width::wide).dtype);
  works_[static_cast<size_t>(Scope::loop)].shared_bytes += vector_ * static_cast<double>(ir::bytes_of(type));
  count(Scope::loop, 1 + (narrow ? vector_ * kRoundIssue : 0));
  const ir::Symbol vector = ir::make_vector("v" + std::to_string(counters_['v']++), type, vector_);
  ir::Builder(body(Scope::loop))
      .let(vector, ir::call(ir::Function::load_vector, type, {ir::address(shared, at)}, {type, vector_}));
  return ir::element(vector, vector_ == 1 ? Expr(0) : Expr(variable("v")));
}

ir::Symbol KernelWriter::load_vector(const Item& item) {
  const Slot& slot = storage_.source(item.value, Width::wide);
  const ir::Symbol& memory = pointer(slot, false);
  const Scalar type = memory->type;
  const Index base = vector_base(item.index);
  const VariableSet guards = item.guard < 0 ? 0 : item_at(item.guard).uses;
  const Scope scope = scope_of((space_.uses(base) | guards) & ~element_uses_);
  count_access(scope, slot, base, vector_, false);
  const std::string name = "v" + std::to_string(counters_['v']++);
  const Expr held = item.guard < 0 ? ir::truth(true) : made(item.guard), at = index(base);
  ir::Builder to(body(scope));
  if (item.guard < 0 && last_.elements == 0) {
    const ir::Symbol vector = ir::make_vector(name, type, vector_);
    to.let(vector, ir::call(ir::Function::load_vector, type, {ir::address(memory, at)}, {type, vector_}));
    return vector;
  }
  const ir::Symbol vector = ir::make_registers(name, type, vector_);
  to.declare(vector);
  to.emit(ir::Instr::load_written,
          {ir::address(vector, 0), ir::address(memory, at), both(last_.elsewhere, held)},
          {type, vector_, false});
  if (last_.elements > 0)
    to.when(both(last_.here, held), [&](ir::Builder& rest) { copy_last(rest, vector, 0, memory, at); });
  return vector;
}

Expr KernelWriter::load(int i) {
  const Item& item = item_at(i);
  const Slot& slot = storage_.source(item.value, Width::wide);
  const bool whole = is_vector_load(item);
  Expr element = 0;
  if (kept_.contains(i)) {
    element = load_kept(i);
  } else if (whole) {
    element = ir::element(load_vector(item), Expr(variable("v")));
  } else {
    count_access(scope_of(item.uses), slot, item.index, 1, false);
    element = ir::element(pointer(slot, false), index(item.index));
    // Behind the last element there is nothing that a shorter vector could read.
    if (last_.elements > 0 && !aligned_.is && (item.uses & element_uses_))
      element = ir::select(either(last_.elsewhere, less(Expr(variable("v")), last_.elements)), element,
                           ir::rounded(ir::literal(0, ir::scalar_of(register_type(slot.dtype))), slot.dtype));
  }
  if (is_narrow(slot.dtype)) element = ir::call(ir::Function::to_float, Scalar::f32, {element});
  if (!whole && item.guard >= 0)
    element = ir::select(made(item.guard), element, ir::literal(0, element.type()));
  return let('x', element, scope_of(item.uses));
}

Expr KernelWriter::compute(int i) {
  const Item& item = item_at(i);
  const Node& node = graph_.node(item.value);
  const std::vector<TensorType> types = graph_.operand_types(node);
  const DType type = compute_dtype(node.code, types);
  std::vector<ir::Value> operands;
  for (size_t operand = 0; operand < item.operands.size(); ++operand)
    operands.emplace_back(
        value(item.operands[operand], node.code == OpCode::where && operand == 0 ? DType::boolean : type));
  if (i == approximated_ || (approximate_ && !is_quotient_or_root(node.code)))
    for (ir::Value& operand : operands) operand = operand.approximate();
  if (node.code == OpCode::div && scope_of(item.uses) != Scope::kernel) {
    const Item& divisor = item_at(item.operands[1]);
    // What a quotient by a literal is compilers know by themselves.
    if (divisor.kind != Item::Kind::number && scope_of(divisor.uses) == Scope::kernel)
      operands[1] = operands[1].shared_divisor();
  }
  return ir::converted(apply_meaning<ir::Value>(node.code, operands.data()), item.type);
}

Expr KernelWriter::cast(const Item& item) {
  const DType dtype = graph_.node(item.value).type.dtype;
  const Expr operand = value(item.operands[0], item.type);
  const Scope scope = scope_of(item.uses);
  count(scope, 2 * kRoundIssue);
  if (!is_narrow(dtype)) return let('x', operand, scope);
  return let('x', ir::call(ir::Function::to_float, Scalar::f32, {ir::rounded(operand, dtype)}), scope);
}

Expr KernelWriter::choose(const Item& item) {
  Expr out = value(item.operands.back(), item.type);
  for (size_t i = item.operands.size() - 1; i >= 2; i -= 2)
    out = ir::select(made(item.operands[i - 2]), value(item.operands[i - 1], item.type), out);
  return out;
}

void KernelWriter::store(int i, const Slot& slot, const Index& position, const Expr& condition) {
  const Expr element = ir::rounded(value(i, register_type(slot.dtype)), slot.dtype);
  const ir::Symbol& memory = pointer(slot, true);
  if (!fits_vector(position, slot.dtype)) {
    const Scope scope = scope_of(space_.uses(position) | item_at(i).uses);
    const Expr place = index(position);
    count_access(scope, slot, position, 1, true);
    ir::Builder(body(scope)).when(condition, [&](ir::Builder& to) {
      to.assign(ir::element(memory, place), element);
    });
    return;
  }
  const ir::Symbol vector = ir::make_vector("y" + std::to_string(counters_['y']++), memory->type, vector_);
  count_access(Scope::loop, slot, vector_base(position), vector_, true);
  ir::Builder(body(Scope::loop)).declare(vector);
  ir::Builder(body(Scope::element)).assign(ir::element(vector, Expr(variable("v"))), element);
  const Expr at = index(vector_base(position));
  ir::Builder after(after_);
  auto store_all = [&](ir::Builder& all) {
    all.emit(ir::Instr::store_global, {ir::address(memory, at), vector}, {memory->type, vector_});
  };
  if (aligned_.is) {
    const Expr v(variable("v"));
    ir::Builder(after_element_).assign(ir::element(memory, at + v), ir::element(vector, v));
    return store_all(after);
  }
  after.when(last_.elsewhere, store_all);
  if (last_.elements > 0)
    after.when(last_.here, [&](ir::Builder& rest) { copy_last(rest, memory, at, vector, 0); });
}

}  // namespace quern
