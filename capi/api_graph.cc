// The C functions that build and read graphs.
#include <algorithm>
#include <cmath>
#include <memory>

#include "capi/api.h"
#include "capi/graph_handle.h"
#include "core/graph/text.h"
#include "core/lang/attrs.h"
#include "core/lang/op.h"

namespace quern::api {

namespace {

Status invalid_graph(std::string message) { return Status(ErrorCode::INVALID_GRAPH, std::move(message)); }

// A pointer that goes with a count.
Status require_list(const void* pointer, size_t count, const char* name) {
  return count > 0 ? require(pointer, name) : Status();
}

const char* kind_name(AttrKind kind) {
  switch (kind) {
    case AttrKind::ints:
      return "an integer or a list of integers";
    case AttrKind::number:
      return "a number";
    case AttrKind::dtype:
      return "a dtype";
    case AttrKind::flag:
      return "a flag";
  }
  return "?";
}

// Each stores the value of `attr` if it is of a kind that fits; false otherwise.
bool store(const quern_attr& attr, std::optional<Ints>& member) {
  if (attr.kind == QUERN_ATTR_INTEGER) member = Ints{attr.integer};
  if (attr.kind == QUERN_ATTR_INTS) member = Ints(attr.ints, attr.ints + attr.count);
  return member.has_value();
}
bool store(const quern_attr& attr, std::optional<double>& member) {
  if (attr.kind == QUERN_ATTR_INTEGER) member = static_cast<double>(attr.integer);
  if (attr.kind == QUERN_ATTR_NUMBER) member = attr.number;
  return member.has_value();
}
bool store(const quern_attr& attr, std::optional<DType>& member) {
  if (attr.kind == QUERN_ATTR_DTYPE && attr.integer > 0 && attr.integer < 256 &&
      is_valid(static_cast<DType>(attr.integer)))
    member = static_cast<DType>(attr.integer);
  return member.has_value();
}
bool store(const quern_attr& attr, std::optional<bool>& member) {
  if (attr.kind == QUERN_ATTR_FLAG) member = attr.integer != 0;
  return member.has_value();
}

Status add_attr(const quern_attr& attr, Attrs& attrs) {
  if (Status status = require(attr.name, "the name of an attribute"); !status.ok()) return status;
  if (attr.kind == QUERN_ATTR_INTS)
    if (Status status = require_list(attr.ints, attr.count, "the list of an attribute"); !status.ok())
      return status;
  const AttrInfo* info = find_attr(attr.name);
  if (!info) return invalid_graph(std::string("there is no attribute \"") + attr.name + "\"");
  Status status;
  for_each_attr(attrs, [&](const AttrInfo& row, auto& member) {
    if (row.id != info->id) return;
    if (member.has_value())
      status = invalid_graph(std::string("the attribute ") + row.name + " is given twice");
    else if (!store(attr, member))
      status = invalid_graph(std::string("the attribute ") + row.name + " takes " + kind_name(row.kind));
  });
  return status;
}

Result<ValueId> add_op(quern_graph& graph, const char* op, std::span<const quern_value> operands,
                       std::span<const quern_attr> given, const char* name) {
  const OpInfo* info = find_op(op, static_cast<int>(std::min<size_t>(operands.size(), 1 << 16)));
  if (!info && !is_op_name(op)) return invalid_graph(std::string("there is no operator \"") + op + "\"");
  if (!info)
    return invalid_graph(std::string("the operator ") + op + " does not take " +
                         std::to_string(operands.size()) + " operands");
  Attrs attrs;
  for (const quern_attr& attr : given)
    if (Status status = add_attr(attr, attrs); !status.ok()) return status.with_context(op);
  Result<ValueId> value = graph.builder().add_op(info->code, operands, std::move(attrs), name ? name : "");
  return value ? value : Result<ValueId>(value.status().with_context(op));
}

// Runs a function that adds a value: `body` gives a Result<ValueId>. `value` is written last, because it may
// be one of the operands.
template <class Body>
quern_status hand_out(quern_graph* graph, quern_value* value, quern_error* error, Body body) {
  quern_value made = QUERN_NO_VALUE;
  const quern_status status = guarded(error, [&]() -> Status {
    if (Status status = require(value, "value"); !status.ok()) return status;
    if (Status status = require(graph, "graph"); !status.ok()) return status;
    const Result<ValueId> result = body();
    if (!result) return result.status();
    graph->changed();
    made = *result;
    return {};
  });
  if (value) *value = made;
  return status;
}

}  // namespace

}  // namespace quern::api

using namespace quern;
using namespace quern::api;

quern_status quern_graph_new(const char* name, quern_graph** graph, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(graph, "graph"); !status.ok()) return status;
    *graph = nullptr;
    if (name && !is_valid_name(name)) return invalid_graph(std::string("\"") + name + "\" cannot be a name");
    *graph = new quern_graph(GraphBuilder(name ? name : "graph"));
    return {};
  });
}

quern_status quern_graph_parse(const char* text, size_t size, quern_graph** graph, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(graph, "graph"); !status.ok()) return status;
    *graph = nullptr;
    if (Status status = require_list(text, size, "text"); !status.ok()) return status;
    Result<Graph> parsed = parse_unfinished_graph(std::string_view(text ? text : "", size));
    if (!parsed) return parsed.status();
    *graph = new quern_graph(GraphBuilder(std::move(*parsed)));
    return {};
  });
}

void quern_graph_free(quern_graph* graph) { delete graph; }

quern_status quern_graph_input(quern_graph* graph, const char* name, quern_dtype dtype, int32_t rank,
                               const int64_t* shape, const int64_t* strides, uint32_t flags,
                               quern_value* value, quern_error* error) {
  return hand_out(graph, value, error, [&]() -> Result<ValueId> {
    if (Status status = require(name, "name"); !status.ok()) return status;
    if (rank < 0 || rank > kMaxRank)
      return invalid_graph("rank " + std::to_string(rank) + " is not between 0 and 8");
    const size_t count = static_cast<size_t>(rank);
    if (Status status = require_list(shape, count, "shape"); !status.ok()) return status;
    if (flags & ~uint32_t{QUERN_INPUT_CONST})
      return invalid_argument("unknown flags " + std::to_string(flags));
    if (dtype < 0 || dtype > 255 || !is_valid(static_cast<DType>(dtype)))
      return invalid_graph("there is no dtype " + std::to_string(dtype));
    return graph->builder().add_input(name, static_cast<DType>(dtype), Ints(shape, shape + count),
                                      strides ? Ints(strides, strides + count) : Ints(),
                                      flags & QUERN_INPUT_CONST);
  });
}

quern_status quern_graph_constant(quern_graph* graph, double number, quern_dtype dtype, quern_value* value,
                                  quern_error* error) {
  return hand_out(graph, value, error, [&]() -> Result<ValueId> {
    if (dtype != QUERN_F32 && dtype != QUERN_I32)
      return invalid_argument("the dtype of a constant is QUERN_F32 or QUERN_I32");
    return graph->builder().add_constant(number, dtype == QUERN_I32);
  });
}

quern_status quern_graph_op(quern_graph* graph, const char* op, const quern_value* operands,
                            size_t operand_count, const quern_attr* attrs, size_t attr_count,
                            const char* name, quern_value* value, quern_error* error) {
  return hand_out(graph, value, error, [&]() -> Result<ValueId> {
    if (Status status = require(op, "op"); !status.ok()) return status;
    if (Status status = require_list(operands, operand_count, "operands"); !status.ok()) return status;
    if (Status status = require_list(attrs, attr_count, "attrs"); !status.ok()) return status;
    return add_op(*graph, op, {operands, operand_count}, {attrs, attr_count}, name);
  });
}

quern_status quern_graph_output(quern_graph* graph, quern_value value, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(graph, "graph"); !status.ok()) return status;
    Status status = graph->builder().add_output(value);
    if (status.ok()) graph->changed();
    return status;
  });
}

quern_status quern_graph_value(const quern_graph* graph, quern_value value, quern_tensor* tensor,
                               quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(graph, "graph"); !status.ok()) return status;
    const size_t count = graph->graph().nodes.size();
    if (value < 0 || static_cast<size_t>(value) >= count)
      return Status(ErrorCode::NOT_FOUND,
                    "value " + std::to_string(value) +
                        (value == QUERN_NO_VALUE ? ", which a call that failed hands out," : "") +
                        " of a graph of " + std::to_string(count));
    return write_struct(public_tensor(graph->desc(value)), tensor, "tensor");
  });
}

quern_status quern_graph_buffer(const quern_graph* graph, const char* name, size_t* index, int32_t* is_output,
                                quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (index) *index = 0;
    if (is_output) *is_output = 0;
    if (Status status = require(graph, "graph"); !status.ok()) return status;
    if (Status status = require(name, "name"); !status.ok()) return status;
    const Graph& built = graph->graph();
    int32_t output = 0;
    for (const std::vector<ValueId>* list : {&built.inputs, &built.outputs}) {
      const auto found =
          std::find_if(list->begin(), list->end(), [&](ValueId id) { return built.node(id).name == name; });
      if (found != list->end()) {
        if (index) *index = static_cast<size_t>(found - list->begin());
        if (is_output) *is_output = output;
        return {};
      }
      ++output;
    }
    return Status(ErrorCode::NOT_FOUND, std::string("the graph has no input or output \"") + name + "\"");
  });
}

quern_status quern_graph_text(const quern_graph* graph, const char** text, size_t* size, quern_error* error) {
  return guarded(error, [&]() -> Status {
    if (Status status = require(text, "text"); !status.ok()) return status;
    *text = nullptr;
    if (size) *size = 0;
    if (Status status = require(graph, "graph"); !status.ok()) return status;
    *text = graph->text().text.c_str();
    if (size) *size = graph->text().text.size();
    return {};
  });
}
