// What is behind a quern_graph: a builder, and the text that stands for the graph in requests.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/graph/builder.h"

namespace quern {

// A value made when it is first asked for. Any number of threads may ask at once; without a lock, which a
// fork in one thread could leave taken for ever in the child.
template <class T>
class Lazy {
 public:
  Lazy() = default;
  ~Lazy() { reset(); }
  template <class Make>
  const T& get(Make make) const {
    if (const T* value = value_.load(std::memory_order_acquire)) return *value;
    const T* made = new T(make());
    const T* first = nullptr;
    if (value_.compare_exchange_strong(first, made, std::memory_order_acq_rel)) return *made;
    delete made;  // another thread was quicker
    return *first;
  }
  // While nobody asks.
  void reset() { delete value_.exchange(nullptr); }

 private:
  mutable std::atomic<const T*> value_{nullptr};
};

}  // namespace quern

struct quern_graph {
 public:
  explicit quern_graph(quern::GraphBuilder builder) : builder_(std::move(builder)) {}

  quern::GraphBuilder& builder() { return builder_; }
  // To be called after the builder has changed the graph: what was derived from it is dropped.
  void changed();
  const quern::Graph& graph() const { return builder_.graph(); }

  struct Text {
    std::string text;  // .qg
    quern::Hash128 hash;
  };
  const Text& text() const;
  // The description of a value, which must exist.
  const quern::TensorDesc& desc(quern::ValueId value) const;

 private:
  quern::GraphBuilder builder_;
  quern::Lazy<Text> text_;
  quern::Lazy<std::vector<quern::TensorDesc>> descs_;  // by value
};
