#include "capi/graph_handle.h"

#include "core/graph/text.h"

void quern_graph::changed() {
  text_.reset();
  descs_.reset();
}

const quern_graph::Text& quern_graph::text() const {
  return text_.get([this] {
    std::string text = quern::print_graph(graph());
    const quern::Hash128 hash = quern::hash128(text);
    return Text{std::move(text), hash};
  });
}

const quern::TensorDesc& quern_graph::desc(quern::ValueId value) const {
  const auto& descs = descs_.get([this] {
    std::vector<quern::TensorDesc> all;
    for (const quern::Node& node : graph().nodes) {
      const bool is_input = node.code == quern::OpCode::input;
      all.push_back({node.name, node.type.dtype, node.type.shape,
                     is_input ? node.strides : quern::dense_strides(node.type.shape)});
    }
    return all;
  });
  return descs[static_cast<size_t>(value)];
}
