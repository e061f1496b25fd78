#include "capi/graph_handle.h"

#include "core/graph/text.h"

void quern_graph::changed() {
  text_.reset();
  descs_.clear();
}

const quern_graph::Text& quern_graph::text() const {
  const std::lock_guard lock(mutex_);
  if (!text_) {
    std::string text = quern::print_graph(graph());
    const quern::Hash128 hash = quern::hash128(text);
    text_ = Text{std::move(text), hash};
  }
  return *text_;
}

const quern::TensorDesc& quern_graph::desc(quern::ValueId value) const {
  const std::lock_guard lock(mutex_);
  if (descs_.empty()) descs_.resize(graph().nodes.size());
  std::optional<quern::TensorDesc>& desc = descs_[static_cast<size_t>(value)];
  if (!desc) {
    const quern::Node& node = graph().node(value);
    desc = quern::TensorDesc{
        node.name, node.type.dtype, node.type.shape,
        node.code == quern::OpCode::input ? node.strides : quern::dense_strides(node.type.shape)};
  }
  return *desc;
}
