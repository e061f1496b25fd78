#include "core/schedule/layout_text.h"

namespace quern {

namespace {

void print_dims(const std::vector<LayoutDim>& dims, std::string& text) {
  for (size_t i = 0; i < dims.size(); ++i)
    text += (i == 0 ? "" : ", ") + dims[i].name + "[" + std::to_string(dims[i].size()) + "]";
}

}  // namespace

std::string print_layout(const Layout& layout) {
  std::string text;
  print_dims(layout.inputs(), text);
  text += layout.inputs().empty() ? "->" : " ->";
  if (!layout.outputs().empty()) text += " ";
  print_dims(layout.outputs(), text);
  text += "\n";
  for (const LayoutDim& dim : layout.inputs()) {
    text += dim.name + ":";
    for (uint64_t column : layout.columns(dim.name)) {
      text += " (";
      for (size_t i = 0; i < layout.outputs().size(); ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(layout.coordinate(column, layout.outputs()[i].name));
      text += ")";
    }
    text += "\n";
  }
  return text;
}

}  // namespace quern
