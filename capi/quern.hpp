// quern.hpp: quern.h for C++17, header only. Handles end themselves, and failures are thrown as quern::Error.
//
//   quern::Client client;
//   quern::Graph graph = quern::Graph::parse(text);
//   quern::Plan plan = client.get(graph, "sm_90a");
//   plan.launch(stream, {x, w}, {z}, workspace);
//
// The conventions are those of quern.h: what it says about threads, blocking, forks and how long pointers
// live holds here too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quern.h"

namespace quern {
// Names of its own for the linker: libquern itself is C++ with other classes of these names.
inline namespace hpp {

class Error : public std::runtime_error {
 public:
  Error(quern_status status, const char* message)
      : std::runtime_error(std::string(quern_status_name(status)) + ": " + message), status_(status) {}
  quern_status status() const { return status_; }

 private:
  quern_status status_;
};

namespace detail {
// Calls a function of quern.h that takes `arguments` and then a quern_error.
template <class Function, class... Arguments>
quern_status call(Function function, Arguments... arguments) {
  quern_error error;
  const quern_status status = function(arguments..., &error);
  if (status != QUERN_OK && status != QUERN_PENDING) throw Error(status, error.message);
  return status;
}
template <class Struct>
Struct sized() {
  Struct value{};
  value.struct_size = sizeof value;
  return value;
}
template <class Handle, void (*end)(Handle*)>
struct End {
  void operator()(Handle* handle) const { end(handle); }
};
template <class Handle, void (*end)(Handle*)>
using Owned = std::unique_ptr<Handle, End<Handle, end>>;
}  // namespace detail

// Options with every default; set what should differ.
inline quern_open_options open_options() { return detail::sized<quern_open_options>(); }
inline quern_get_options get_options() { return detail::sized<quern_get_options>(); }

class Graph;

// A tensor or a number in a graph. No integer: graph.op("mul", {x, 1}) multiplies by one.
class Value {
 public:
  quern_value id() const { return id_; }  // what quern.h calls it

 private:
  friend class Graph;
  friend class Operand;
  Value(const quern_graph* graph, quern_value id) : graph_(graph), id_(id) {}

  const quern_graph* graph_;
  quern_value id_;
};

// What an operator takes: a value, or a number, which becomes a constant of the graph.
class Operand {
 public:
  Operand(Value value) : value_(value) {}
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Operand(Number number)
      : value_(nullptr, QUERN_NO_VALUE),
        number_(static_cast<double>(number)),
        dtype_(std::is_integral_v<Number> ? QUERN_I32 : QUERN_F32) {}

 private:
  friend class Graph;
  bool is_number() const { return !value_.graph_; }

  Value value_;
  double number_ = 0;
  quern_dtype dtype_ = QUERN_F32;
};

class Graph {
 public:
  explicit Graph(const char* name = nullptr) {
    quern_graph* graph;
    detail::call(quern_graph_new, name, &graph);
    graph_.reset(graph);
  }
  static Graph parse(std::string_view text) {
    quern_graph* graph;
    detail::call(quern_graph_parse, text.data(), text.size(), &graph);
    return Graph(graph);
  }

  Value input(const char* name, quern_dtype dtype, const std::vector<int64_t>& shape, uint32_t flags = 0) {
    return add(quern_graph_input, name, dtype, static_cast<int32_t>(shape.size()), shape.data(),
               static_cast<const int64_t*>(nullptr), flags);
  }
  Value strided_input(const char* name, quern_dtype dtype, const std::vector<int64_t>& shape,
                      const std::vector<int64_t>& strides, uint32_t flags = 0) {
    if (strides.size() != shape.size())
      throw Error(QUERN_INVALID_ARGUMENT, "as many strides as extents are needed");
    return add(quern_graph_input, name, dtype, static_cast<int32_t>(shape.size()), shape.data(),
               strides.data(), flags);
  }
  Value constant(double number, quern_dtype dtype = QUERN_F32) {
    return add(quern_graph_constant, number, dtype);
  }
  // Numbers among the operands become constants.
  Value op(const char* op, std::initializer_list<Operand> operands,
           std::initializer_list<quern_attr> attrs = {}, const char* name = nullptr) {
    std::vector<quern_value> ids;
    for (const Operand& operand : operands)
      ids.push_back(id(operand.is_number() ? constant(operand.number_, operand.dtype_) : operand.value_));
    return add(quern_graph_op, op, ids.data(), ids.size(), attrs.begin(), attrs.size(), name);
  }
  void output(Value value) { detail::call(quern_graph_output, get(), id(value)); }
  // The value that quern.h calls `id`, of a parsed graph for instance: values count up from 0.
  Value value(quern_value id) const {
    const Value value(get(), id);
    describe(value);
    return value;
  }

  // Lives until the graph is changed.
  quern_tensor describe(Value value) const {
    quern_tensor tensor = detail::sized<quern_tensor>();
    detail::call(quern_graph_value, get(), id(value), &tensor);
    return tensor;
  }
  // See quern_graph_buffer.
  struct Buffer {
    size_t index;
    bool is_output;
  };
  Buffer buffer(const char* name) const {
    size_t index;
    int32_t is_output;
    detail::call(quern_graph_buffer, get(), name, &index, &is_output);
    return {index, is_output != 0};
  }

  std::string_view text() const {
    const char* text;
    size_t size;
    detail::call(quern_graph_text, get(), &text, &size);
    return {text, size};
  }
  quern_graph* get() const { return graph_.get(); }

 private:
  explicit Graph(quern_graph* graph) : graph_(graph) {}
  template <class Function, class... Arguments>
  Value add(Function function, Arguments... arguments) {
    quern_value value;
    detail::call(function, get(), arguments..., &value);
    return Value(get(), value);
  }
  quern_value id(Value value) const {
    if (value.graph_ != get()) throw Error(QUERN_INVALID_ARGUMENT, "a value belongs to another graph");
    return value.id_;
  }

  detail::Owned<quern_graph, quern_graph_free> graph_;
};

// Copies share one plan.
class Plan {
 public:
  // Takes over the caller's reference.
  explicit Plan(quern_plan* plan) : plan_(plan) {}
  Plan(const Plan& other) : plan_(quern_plan_retain(other.get())) {}
  Plan(Plan&&) noexcept = default;
  Plan& operator=(Plan other) noexcept {
    std::swap(plan_, other.plan_);
    return *this;
  }

  quern_plan_info info() const {
    quern_plan_info info = detail::sized<quern_plan_info>();
    detail::call(quern_plan_describe, get(), &info);
    return info;
  }
  quern_tensor input(size_t index) const { return at<quern_tensor>(quern_plan_input, index); }
  quern_tensor output(size_t index) const { return at<quern_tensor>(quern_plan_output, index); }
  quern_launch_info launch_info(size_t index) const {
    return at<quern_launch_info>(quern_plan_launch, index);
  }
  quern_tensor_map tensor_map(size_t index) const {
    return at<quern_tensor_map>(quern_plan_tensor_map, index);
  }

  void prepare(void* stream = nullptr) { detail::call(quern_plan_prepare, get(), stream); }
  // The lists must be as long as the plan has inputs and outputs.
  void launch(void* stream, const std::vector<void*>& inputs, const std::vector<void*>& outputs,
              void* workspace = nullptr) {
    const quern_plan_info counts = info();
    if (inputs.size() != counts.input_count || outputs.size() != counts.output_count)
      throw Error(QUERN_INVALID_ARGUMENT, ("the plan takes " + std::to_string(counts.input_count) +
                                           " inputs and " + std::to_string(counts.output_count) + " outputs")
                                              .c_str());
    detail::call(quern_launch, get(), stream, inputs.data(), outputs.data(), workspace);
  }
  quern_plan* get() const { return plan_.get(); }

 private:
  template <class Struct, class Function>
  Struct at(Function function, size_t index) const {
    Struct value = detail::sized<Struct>();
    detail::call(function, get(), index, &value);
    return value;
  }

  detail::Owned<quern_plan, quern_plan_release> plan_;
};

class Client {
 public:
  explicit Client(const quern_open_options& options = open_options()) {
    quern_client* client;
    detail::call(quern_open, &options, &client);
    client_.reset(client);
  }

  Plan get(const Graph& graph, const char* target = nullptr,
           const quern_get_options& options = get_options()) {
    std::optional<Plan> plan = try_get(graph, target, options);
    if (!plan) throw Error(QUERN_PENDING, "the plan is not ready; with QUERN_NO_WAIT use try_get");
    return *std::move(plan);
  }
  // Nothing where quern_get returns QUERN_PENDING.
  std::optional<Plan> try_get(const Graph& graph, const char* target, const quern_get_options& options) {
    quern_plan* plan;
    if (detail::call(quern_get, get(), graph.get(), target, &options, &plan) == QUERN_PENDING)
      return std::nullopt;
    return Plan(plan);
  }
  // One status a graph; does not throw for what went wrong with a single one.
  std::vector<quern_status> prewarm(const std::vector<const Graph*>& graphs, const char* target = nullptr,
                                    const quern_get_options& options = get_options()) {
    std::vector<const quern_graph*> handles;
    for (const Graph* graph : graphs) handles.push_back(graph->get());
    std::vector<quern_status> statuses(graphs.size());
    quern_prewarm(get(), handles.data(), handles.size(), target, &options, statuses.data(), nullptr);
    return statuses;
  }
  bool outdated(const Plan& plan) const { return quern_plan_outdated(get(), plan.get()) != 0; }

  int fd() const { return quern_fd(get()); }
  // Waits of other threads end, with QUERN_CANCELLED thrown there.
  void cancel() { quern_cancel(get()); }
  uint64_t process() {
    uint64_t better;
    detail::call(quern_process, get(), &better);
    return better;
  }

  struct Statistic {
    std::string name;
    std::optional<std::string> text;  // of a fact; a counter has none
    uint64_t value = 0;
  };
  std::vector<Statistic> stats(uint32_t timeout_ms = 0) {
    quern_stats* raw;
    detail::call(quern_stats_get, get(), timeout_ms, &raw);
    const detail::Owned<quern_stats, quern_stats_free> stats(raw);
    std::vector<Statistic> list;
    for (size_t i = 0; i < quern_stats_count(raw); ++i) {
      quern_stat stat = detail::sized<quern_stat>();
      detail::call(quern_stats_at, raw, i, &stat);
      list.push_back(
          {stat.name, stat.text ? std::optional<std::string>(stat.text) : std::nullopt, stat.value});
    }
    return list;
  }
  quern_client* get() const { return client_.get(); }

 private:
  detail::Owned<quern_client, quern_close> client_;
};

// "sm_90a": the target of a CUDA device.
inline const char* device_target(int device = 0) {
  const char* target;
  detail::call(quern_device_target, device, &target);
  return target;
}

}  // namespace hpp
}  // namespace quern
