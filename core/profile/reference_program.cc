#include "core/profile/reference_program.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

#include "core/base/dtype_info.h"
#include "core/base/integers.h"
#include "core/graph/decompose.h"
#include "core/kernel/expr.h"
#include "core/profile/placed_values.h"
#include "core/profile/reference_text.h"
#include "core/verify/evaluate.h"

namespace quern {

namespace {

constexpr uint32_t kThreads = kPartsOfSum, kMostBlocks = 4096, kMostCompareBlocks = 128;
std::string str(int64_t value) { return std::to_string(value); }
std::string number_text(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "bit_cast<double>(0x%llxll)",
                static_cast<unsigned long long>(std::bit_cast<uint64_t>(value)));
  return text;
}
std::string row_text(const DTypeInfo& row) {
  return str(row.mantissa) + ", " + str(row.least_exponent) + ", " + number_text(row.largest) + ", " +
         str(row.infinities);
}
std::string dtype_text(DType dtype) {
  return std::string("DType::") + (dtype == DType::boolean ? "boolean" : dtype_name(dtype));
}
// The rows of dtypes that device_shim.cuh needs.
std::string dtypes_text() {
  std::string numbers, rows;
#define QUERN_DTYPE(number, id, name, type, bytes, kind, ...)                 \
  numbers += #id " = " #number ", ";                                          \
  rows += "    case DType::" #id ":\n      return {DTypeClass::" #kind ", " + \
          row_text(kDTypes[number - 1]) + "};\n";
#include "core/base/dtype.def"
  return "namespace exact {\n\nenum class DType : unsigned char { " + numbers + "};\n" +
         "enum class DTypeClass { narrow, wide, integer, boolean };\n"
         "struct DTypeInfo {\n  DTypeClass kind;\n  int mantissa, least_exponent;\n  double largest;\n  bool "
         "infinities;\n};\n"
         "__device__ inline DTypeInfo dtype_info(DType dtype) {\n  switch (dtype) {\n" +
         rows + "  }\n  return {};\n}\n\n}  // namespace exact\n\n";
}
// In memory: a bool is a byte that may have any value.
std::string element_type(DType dtype) {
  return dtype == DType::boolean ? "unsigned char" : ir::cuda_name(ir::scalar_of(dtype));
}

// Headers without what only the host has.
std::string without_includes(std::string_view header) {
  std::string out;
  while (!header.empty()) {
    const size_t end = std::min(header.find('\n'), header.size() - 1);
    std::string line(header.substr(0, end + 1));
    header.remove_prefix(end + 1);
    if (line.rfind("#", 0) == 0) continue;
    if (line == "namespace quern {\n") line = "namespace exact {\n";
    out += line;
  }
  return out;
}

uint32_t blocks_for(int64_t count, uint32_t most) {
  return static_cast<uint32_t>(std::clamp<int64_t>(divide_up(count, int64_t{kThreads}), 1, most));
}

class ReferenceEmitter {
 public:
  ReferenceEmitter(const Graph& graph, const Target& target)
      : graph_(graph), target_(target), primitive_(decompose(graph)) {}

  Result<ReferenceProgram> run() {
    auto values = place_values(primitive_);
    if (!values) return values.status();
    values_ = std::move(*values);
    evaluate_.workspace_bytes = static_cast<uint64_t>(std::max<int64_t>(values_.bytes, 256));
    for (size_t id = 0; id < primitive_.nodes.size(); ++id)
      if (values_.needed[id]) emit_node(id);
    emit_outputs();
    ReferenceProgram out;
    out.source = dtypes_text() + std::string(reference_shim_text()) + without_includes(value_real_text()) +
                 without_includes(noisy_text()) + std::string(reference_device_text()) +
                 "\nnamespace exact {\n\n" + environment() + meanings_ + functions_ +
                 "}  // namespace exact\n\n" + kernels_;
    out.evaluate = std::move(evaluate_);
    out.compare = std::move(compare_);
    out.options = {"--device-as-default-execution-space", "--fmad=false"};
    return out;
  }

 private:
  const Node& node(size_t id) const { return primitive_.nodes[id]; }
  size_t operand(size_t id, size_t i) const { return static_cast<size_t>(node(id).operands[i]); }
  const Ints& shape(size_t id) const { return node(id).type.shape; }
  DType dtype(size_t id) const { return node(id).type.dtype; }

  // ---- kernels and their parameters ----

  std::string environment() const {
    std::string out = "struct Environment {\n  char* workspace;\n";
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      out += std::string("  const ") + element_type(input_dtype(i)) + "* in" + str(static_cast<int64_t>(i)) +
             ";\n";
    return out + "  bool special, tf32;\n};\n\n";
  }
  DType input_dtype(size_t i) const { return graph_.node(graph_.inputs[i]).type.dtype; }
  std::string parameters() const {
    std::string out = "char* workspace";
    for (size_t i = 0; i < graph_.inputs.size(); ++i)
      out += std::string(", const ") + element_type(input_dtype(i)) + "* in" + str(static_cast<int64_t>(i));
    return out + ", const int* flags";
  }
  std::string make_environment() const {
    std::string out = "  const exact::Environment e = {workspace";
    for (size_t i = 0; i < graph_.inputs.size(); ++i) out += ", in" + str(static_cast<int64_t>(i));
    return out + ", flags[0] != 0, flags[1] != 0};\n";
  }
  Launch launch(const std::string& kernel, int64_t count) const {
    Launch launch{kernel, {blocks_for(count, kMostBlocks), 1, 1}, {kThreads, 1, 1}, {}, 0, {}};
    launch.args.push_back({LaunchArg::Kind::workspace, 0});
    for (size_t i = 0; i <= graph_.inputs.size(); ++i)
      launch.args.push_back({LaunchArg::Kind::input, static_cast<int64_t>(i)});
    return launch;
  }

  void emit_outputs() {
    evaluate_.target = compare_.target = target_.name;
    evaluate_.inputs = graph_.input_descs();
    evaluate_.inputs.push_back({"flags", DType::i32, {2}, {1}});
    const std::vector<TensorDesc> descs = graph_.output_descs();
    for (const TensorDesc& desc : descs) {
      const int64_t words = desc.element_count() * static_cast<int64_t>(sizeof(WantedElement) / 4);
      evaluate_.outputs.push_back({desc.name, DType::i32, {words}, {1}});
    }
    compare_.inputs = evaluate_.outputs;
    for (const TensorDesc& desc : descs) compare_.inputs.push_back(desc);
    for (size_t o = 0; o < descs.size(); ++o) emit_output(o, descs[o]);
  }

  void emit_output(size_t o, const TensorDesc& desc) {
    const std::string number = str(static_cast<int64_t>(o)), count = str(desc.element_count()),
                      type = dtype_text(desc.dtype);
    kernels_ += "extern \"C\" __global__ void want" + number + "(" + parameters() + ", int* out) {\n" +
                make_environment() + "  exact::want(out, " + count + "ll, exact::" + type +
                ", e.special, [&](long long i) { return exact::" +
                value(static_cast<size_t>(primitive_.outputs[o]), "i") + "; });\n}\n";
    kernels_ += "extern \"C\" __global__ void compare" + number + "(const int* wanted, const " +
                element_type(desc.dtype) +
                "* actual, int* parts) {\n  exact::compare(wanted, actual, parts, " + count +
                "ll, exact::" + type + ");\n}\n";
    const uint32_t blocks = blocks_for(desc.element_count(), kMostCompareBlocks);
    const int64_t words = int64_t{blocks} * kThreads * static_cast<int64_t>(sizeof(ComparedPart) / 4);
    compare_.outputs.push_back({desc.name, DType::i32, {words}, {1}});
    using Kind = LaunchArg::Kind;
    const auto index = static_cast<int64_t>(o), outputs = static_cast<int64_t>(compare_.inputs.size() / 2);
    compare_.launches.push_back(
        {"compare" + number,
         {blocks, 1, 1},
         {kThreads, 1, 1},
         {},
         0,
         {{Kind::input, index}, {Kind::input, outputs + index}, {Kind::output, index}}});
    if (desc.element_count() == 0) return;
    evaluate_.launches.push_back(launch("want" + number, desc.element_count()));
    evaluate_.launches.back().args.push_back({Kind::output, index});
  }

  // ---- values ----

  std::string name(size_t id) const { return str(static_cast<int64_t>(id)); }
  // Element `at` of a value.
  std::string value(size_t id, const std::string& at) const { return "v" + name(id) + "(e, " + at + ")"; }
  // The same, converted to what another computes in.
  std::string read(size_t id, const std::string& at, DType to) const {
    const DType from = compute_class(dtype(id));
    if (from == compute_class(to)) return value(id, at);
    return "noise::convert_class(" + value(id, at) + ", " + dtype_text(compute_class(to)) + ")";
  }

  // An element of an operand, which several of the result may read.
  std::string shared(size_t id, size_t from, const std::string& element) const {
    const bool repeats = node(from).type.element_count() < node(id).type.element_count();
    return repeats ? "noise::shared(" + element + ")" : element;
  }

  // The coordinates of element i of a tensor of this shape, weighted.
  static std::string mapped(const Ints& shape, const Ints& strides, int64_t start = 0) {
    const Ints dense = dense_strides(shape);
    if (start == 0 && strides == dense) return "i";
    std::string out = str(start) + "ll";
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1 || strides[d] == 0) continue;
      // Of 32 bits where that is enough: divisions take long.
      const bool narrow = dense[0] * shape[0] < (int64_t{1} << 31);
      const std::string unit = narrow ? "u" : "ll";
      std::string at = narrow ? "unsigned(i)" : "i";
      if (dense[d] != 1) at += " / " + str(dense[d]) + unit;
      if (d > 0) at += " % " + str(shape[d]) + unit;
      out += " + (" + at + ") * " + str(strides[d]) + "ll";
    }
    return out;
  }

  // c<id> computes an element, v<id> hands it out; s<id> stores it.
  void emit_node(size_t id) {
    const std::string computed = compute(id);
    const std::string own = name(id), type = compute_class(dtype(id)) == DType::f32 ? "false" : "true";
    functions_ += "__device__ inline Noisy " + std::string(values_.stored[id] ? "c" : "v") + own +
                  "(const Environment& e, long long i) {\n" + computed + "}\n";
    if (!values_.stored[id]) return;
    const std::string place =
        "reinterpret_cast<Stored*>(e.workspace + " + str(values_.offsets[id]) + "ll) + i";
    functions_ += "__device__ inline Noisy v" + own +
                  "(const Environment& e, long long i) {\n  return load_value<" + type + ">(" + place +
                  ");\n}\n";
    const int64_t count = node(id).type.element_count();
    functions_ += "__device__ inline void s" + own +
                  "(const Environment& e, long long i, const Noisy& value) {\n  store_value<" + type + ">(" +
                  place + ", value);\n}\n";
    if (count == 0) return;
    kernels_ += "extern \"C\" __global__ void make" + own + "(" + parameters() + ") {\n" +
                make_environment() + (values_.in_parts[id] ? make_in_parts(id) : make_each(id)) + "}\n";
    evaluate_.launches.push_back(launch("make" + own, values_.in_parts[id] ? count * kThreads : count));
  }

  std::string make_each(size_t id) const {
    return "  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < " +
           str(node(id).type.element_count()) + "ll; i += gridDim.x * (long long)blockDim.x)\n    exact::s" +
           name(id) + "(e, i, exact::c" + name(id) + "(e, i));\n";
  }

  std::string make_in_parts(size_t id) const {
    const std::string own = name(id);
    return "  __shared__ __align__(16) char parts[" + str(kThreads) +
           " * sizeof(exact::PartOfSum)];\n  "
           "exact::make_in_parts(reinterpret_cast<exact::PartOfSum*>(parts), " +
           str(node(id).type.element_count()) + "ll, " + str(longest_loop(primitive_, node(id))) +
           "ll, [&](long long i, long long first, long long last) { return exact::p" + own +
           "(e, i, first, last); }, [](const exact::Noisy& a, const exact::PartOfSum& b) { return exact::j" +
           own + "(a, b); }, [&](long long i, const exact::Noisy& sum) { exact::s" + own + "(e, i, exact::f" +
           own + "(sum, i)); });\n";
  }

  std::string finish(size_t id, const std::string& result) const {
    return "  return noise::finish(" + result + ", " + dtype_text(dtype(id)) + ", source_of(" + name(id) +
           ", i));\n";
  }
  static std::string give(const std::string& text) { return "  return " + text + ";\n"; }

  std::string compute(size_t id) {
    switch (op_info(node(id).code).kind) {
      case OpKind::elementwise:
        return elementwise(id);
      case OpKind::contraction:
        return matmul(id);
      case OpKind::reduction:
        return reduce(id);
      case OpKind::conversion:
        if (node(id).keeps_precision) return finish(id, value(operand(id, 0), "i"));
        return give("noise::cast(" + value(operand(id, 0), "i") + ", " + dtype_text(dtype(id)) +
                    ", source_of(" + name(id) + ", i))");
      default:
        return leaf_or_movement(id);
    }
  }

  std::string leaf_or_movement(size_t id) {
    const Node& own = node(id);
    const size_t from = own.operands.empty() ? 0 : operand(id, 0);
    switch (own.code) {
      case OpCode::input: {
        const size_t i = static_cast<size_t>(
            std::find(primitive_.inputs.begin(), primitive_.inputs.end(), static_cast<ValueId>(id)) -
            primitive_.inputs.begin());
        return give("noise::known(element(e.in" + name(i) + ", " + mapped(own.type.shape, own.strides) +
                    "))");
      }
      case OpCode::constant:
        return give("noise::known(" + number_text(round_to(own.type.dtype, own.number)) + ")");
      case OpCode::iota: {
        Ints along(own.type.shape.size(), 0);
        along[static_cast<size_t>(own.attrs.axis->front())] = 1;
        return give("noise::known(round_to(" + dtype_text(own.type.dtype) + ", double(" +
                    mapped(own.type.shape, along) + ")))");
      }
      case OpCode::reshape:
        return give(value(from, "i"));
      case OpCode::broadcast:
        return give(shared(
            id, from, value(from, mapped(shape(id), internal::broadcast_strides(shape(from), shape(id))))));
      case OpCode::transpose: {
        const Ints dense = dense_strides(shape(from));
        Ints strides;
        for (int64_t axis : *own.attrs.perm) strides.push_back(dense[static_cast<size_t>(axis)]);
        return give(value(from, mapped(shape(id), strides)));
      }
      case OpCode::slice: {
        Ints strides = dense_strides(shape(from));
        int64_t start = 0;
        for (size_t d = 0; d < strides.size(); ++d) {
          start += (*own.attrs.start)[d] * strides[d];
          strides[d] *= (*own.attrs.step)[d];
        }
        return give(value(from, mapped(shape(id), strides, start)));
      }
      case OpCode::concat:
        return concat(id);
      default:
        fatal(__FILE__, __LINE__, "the reference takes decomposed graphs");
    }
  }

  std::string concat(size_t id) {
    const size_t axis = static_cast<size_t>(node(id).attrs.axis->front());
    Ints along(shape(id).size(), 0);
    along[axis] = 1;
    std::string out = "  const long long at = " + mapped(shape(id), along) + ";\n";
    int64_t start = 0;
    for (size_t i = 0; i < node(id).operands.size(); ++i) {
      const size_t from = operand(id, i);
      const Ints strides = dense_strides(shape(from));
      const int64_t end = start + shape(from)[axis];
      if (end > start)
        out += "  if (at < " + str(end) + ") return " +
               read(from, mapped(shape(id), strides, -start * strides[axis]), dtype(id)) + ";\n";
      start = end;
    }
    return out + "  return Noisy();\n";
  }

  // The meaning of an operator, over any value type.
  void need_meaning(OpCode code) {
    if (!known_meanings_.insert(code).second) return;
    const int arity = op_info(code).kind == OpKind::reduction ? 2 : op_info(code).min_arity;
    auto operand = [&](int at) { return "operands[" + str(at < arity ? at : 0) + "]"; };
    meanings_ += "template <class V>\n__device__ inline V meaning" + str(static_cast<int64_t>(code)) +
                 "(const V* operands) {\n  const V &x = operands[0], &y = " + operand(1) +
                 ", &z = " + operand(2) + ";\n" + std::string("  (void)x, (void)y, (void)z;\n  return ") +
                 op_info(code).meaning + ";\n}\n";
  }

  std::string elementwise(size_t id) {
    const Node& own = node(id);
    const OpInfo& info = op_info(own.code);
    const DType computes = compute_dtype(own.code, primitive_.operand_types(own));
    need_meaning(own.code);
    std::string out = "  Noisy x[3];\n";
    for (size_t i = 0; i < own.operands.size(); ++i) {
      const DType to = info.result == ResultRule::select && i == 0 ? DType::boolean : computes;
      out +=
          "  x[" + str(static_cast<int64_t>(i)) + "] = " +
          shared(id, operand(id, i),
                 read(operand(id, i),
                      mapped(shape(id), internal::broadcast_strides(shape(operand(id, i)), shape(id))), to)) +
          ";\n";
    }
    const std::string meaning = "meaning" + str(static_cast<int64_t>(own.code)), arity = str(info.min_arity);
    if (is_float(computes))
      return out +
             finish(id, "noise::apply_to_floats([](const auto* v) { return " + meaning + "(v); }, x, " +
                            arity + ", " + (info.result == ResultRule::floating ? "true" : "false") + ")");
    if (info.result == ResultRule::floating)
      fatal(__FILE__, __LINE__, "a floating operator computes in floats");
    return out + finish(id, "noise::apply_to_integers([](const Int* v) { return " + meaning + "(v); }, x, " +
                                arity + ")");
  }

  // ---- sums, and what else makes one value of many ----

  struct SumText {
    std::string rates, start, loops, term;
  };
  static std::string longest_loop_text(const std::string& index) {
    return "  for (long long " + index + " = first; " + index + " < last; ++" + index + ")\n";
  }

  // p<id> adds up the terms that its longest loop has from `first` to `last`, j<id> joins a part to what is in front of
  // it, f<id> makes an element of the whole. Gives what computes an element by one thread.
  std::string sum_of(size_t id, const SumText& sum) {
    const std::string own = name(id),
                      rates = "  const noise::SumRates rates = " + sum.rates + ";\n  (void)rates;\n";
    const auto [add, join] = steps_of(id);
    functions_ += "__device__ inline PartOfSum p" + own +
                  "(const Environment& e, long long i, long long first, long long last) {\n" + rates +
                  "  PartOfSum part;\n  part.value = " + sum.start + ";\n" + sum.loops +
                  "  {\n    const Noisy x[3] = {part.value, " + sum.term + "};\n    part.value = " + add +
                  ";\n    count_term(part);\n  }\n  return part;\n}\n";
    functions_ += "__device__ inline Noisy j" + own + "(const Noisy& sum, const PartOfSum& part) {\n" +
                  rates + "  const Noisy x[3] = {sum, part.value};\n  return " + join + ";\n}\n";
    functions_ +=
        "__device__ inline Noisy f" + own + "(const Noisy& sum, long long i) {\n" + finish(id, "sum") + "}\n";
    return give("f" + own + "(p" + own + "(e, i, 0, " + str(longest_loop(primitive_, node(id))) +
                ").value, i)");
  }

  // What makes one of x[0] and the term x[1], and one of x[0] and the part x[1].
  std::pair<std::string, std::string> steps_of(size_t id) {
    const Node& own = node(id);
    const DType computes = compute_class(dtype(id));
    const uint32_t laws = op_info(own.code).laws;
    if (op_info(own.code).kind == OpKind::contraction || (laws & kLinear))
      return {"noise::add_term(x[0], x[1], " + dtype_text(computes) + ", rates)",
              "join_sums(x[0], part, " + dtype_text(computes) + ", rates)"};
    need_meaning(own.code);
    const std::string meaning = "meaning" + str(static_cast<int64_t>(own.code));
    const std::string combined =
        is_float(computes) || (laws & kOrdered)
            ? meaning + "(x)"
            : "noise::combine_integers(x[0], x[1], [](const Int* v) { return " + meaning + "(v); })";
    return {combined, combined};
  }

  std::string matmul(size_t id) {
    const Ints &a = shape(operand(id, 0)), &b = shape(operand(id, 1)), &own = shape(id);
    const bool row = a.size() == 1, column = b.size() == 1;
    const size_t batch = own.size() - !row - !column;
    auto strides_of = [&](const Ints& of, bool left) {
      Ints strides(own.size(), 0);
      if (of.size() == 1) return strides;
      const Ints dense = dense_strides(of);
      const size_t outer = of.size() - 2;
      for (size_t d = 0; d < outer; ++d)
        if (of[d] != 1) strides[batch - outer + d] = dense[d];
      strides[batch + (left || row ? 0 : 1)] = left ? dense[outer] : dense[outer + 1];
      return strides;
    };
    const DType computes = compute_class(dtype(id));
    SumText sum;
    sum.rates = "noise::sum_rates(" + str(a.back()) + ", true)";
    sum.start = "noise::known(0)";
    sum.loops = "  const long long a = " + mapped(own, strides_of(a, true)) +
                ", b = " + mapped(own, strides_of(b, false)) + ";\n" + longest_loop_text("k");
    sum.term = "noise::multiply_terms(" + read(operand(id, 0), "a + k", computes) + ", " +
               read(operand(id, 1), "b + k * " + str(column ? 1 : b.back()), computes) + ", " +
               dtype_text(dtype(id)) + ", e.tf32)";
    return sum_of(id, sum);
  }

  std::string reduce(size_t id) {
    const size_t from = operand(id, 0);
    const Ints& whole = shape(from);
    const Ints dense = dense_strides(whole);
    Ints kept, reduced, steps;
    const Node& own = node(id);
    for (size_t d = 0, next = 0; d < whole.size(); ++d) {
      if (next == own.attrs.axis->size() || (*own.attrs.axis)[next] != static_cast<int64_t>(d)) {
        kept.push_back(dense[d]);
        continue;
      }
      ++next;
      reduced.push_back(whole[d]);
      steps.push_back(dense[d]);
      if (*own.attrs.keepdims) kept.push_back(0);
    }
    int64_t terms = 1;
    for (int64_t extent : reduced) terms *= extent;
    const DType computes = compute_class(dtype(id));
    SumText sum;
    sum.rates = "noise::sum_rates(" + str(terms) + ", false)";
    sum.start = "noise::known(" + number_text(reduction_identity(own.code, computes)) + ")";
    sum.loops = "  const long long at = " + mapped(shape(id), kept) + ";\n";
    std::string place = "at";
    const auto longest = std::max_element(reduced.begin(), reduced.end());
    for (auto extent = reduced.begin(); extent != reduced.end(); ++extent) {
      const auto d = static_cast<size_t>(extent - reduced.begin());
      const std::string r = "r" + name(d);
      sum.loops += extent == longest
                       ? longest_loop_text(r)
                       : "  for (long long " + r + " = 0; " + r + " < " + str(*extent) + "; ++" + r + ")\n";
      place += " + " + r + " * " + str(steps[d]);
    }
    sum.term = read(from, place, computes);
    return sum_of(id, sum);
  }

  const Graph& graph_;
  const Target& target_;
  const Graph primitive_;
  PlacedValues values_;
  std::set<OpCode> known_meanings_;
  std::string meanings_, functions_, kernels_;
  Plan evaluate_, compare_;
};

}  // namespace

Result<ReferenceProgram> emit_reference(const Graph& graph, const Target& target) {
  return ReferenceEmitter(graph, target).run();
}

}  // namespace quern
