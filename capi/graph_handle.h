// What is behind a quern_graph: a builder, and the text that stands for the graph in requests.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "core/base/hash.h"
#include "core/graph/builder.h"

struct quern_graph {
 public:
  explicit quern_graph(quern::GraphBuilder builder) : builder_(std::move(builder)) {}

  quern::GraphBuilder& builder() { return builder_; }
  // To be called after the builder has changed the graph: what was derived from it is dropped.
  void changed();
  const quern::Graph& graph() const { return builder_.graph(); }

  // The .qg text and its hash, made when first asked for. Any number of threads may ask while nobody changes
  // the graph.
  struct Text {
    std::string text;
    quern::Hash128 hash;
  };
  const Text& text() const;
  // The same for the description of a value, which must exist.
  const quern::TensorDesc& desc(quern::ValueId value) const;

 private:
  quern::GraphBuilder builder_;
  mutable std::mutex mutex_;
  mutable std::optional<Text> text_;
  // By value; a deque, because descriptions that were handed out must stay where they are.
  mutable std::deque<std::optional<quern::TensorDesc>> descs_;
};
