// Writes the text of a random graph line by line: what the makers of random graphs share. The same seed gives
// the same text everywhere.
#pragma once

#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "core/graph/text.h"

namespace quern {

class GraphWriter {
 protected:
  using Shape = std::vector<int64_t>;

  GraphWriter(const std::string& name, uint64_t seed)
      : random_(seed * 0x9e3779b97f4a7c15), text_("graph " + name + "\n") {}

  Graph finish() const {
    Result<Graph> graph = parse_graph(text_);
    check(graph.ok(), ("a random text is no graph: " + graph.status().message() + "\n" + text_).c_str());
    return std::move(*graph);
  }

  bool coin() { return random_() & 1; }
  bool one_in(int n) { return random_() % static_cast<uint64_t>(n) == 0; }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[random_() % list.size()];
  }
  int64_t batch() { return pick<int64_t>({1, 2, 3}); }

  static std::string list(const Shape& shape) {
    std::string text;
    for (int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
    return "[" + text + "]";
  }
  std::string in(const Shape& shape, const std::string& dtype) {
    const std::string name = "x" + std::to_string(count_++);
    text_ += "in " + name + ": " + dtype + list(shape) + "\n";
    return name;
  }
  std::string in(const Shape& shape) { return in(shape, dtype_); }
  // `rest` follows the operands: ", axis=0".
  std::string op(const std::string& code, const std::string& operands, const std::string& rest = "") {
    const std::string name = "v" + std::to_string(count_++);
    text_ += name + " = " + code + "(" + operands + rest + ")\n";
    return name;
  }
  std::string op2(const std::string& code, const std::string& a, const std::string& b) {
    return op(code, a + ", " + b);
  }
  void out(const std::string& names) { text_ += "out " + names + "\n"; }

  std::mt19937_64 random_;
  std::string text_;
  std::string dtype_ = "f16";  // of inputs
  int count_ = 0;
};

}  // namespace quern
