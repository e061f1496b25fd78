#include "core/schedule/layout_text.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <set>

namespace quern {

namespace {

void print_dims(const std::vector<LayoutDim>& dims, std::string& text) {
  for (size_t i = 0; i < dims.size(); ++i)
    text += (i == 0 ? "" : ", ") + dims[i].name + "[" + std::to_string(dims[i].size()) + "]";
}

// Reads one line word by word; the first failure sticks.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) {}

  const Status& status() const { return status_; }
  bool at(char c) {
    skip_spaces();
    return !rest_.empty() && rest_.front() == c;
  }
  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }
  bool take(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (status_.ok() && !take(word)) fail("expected '" + std::string(word) + "'");
  }
  std::string name() {
    skip_spaces();
    size_t length = 0;
    while (length < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[length])) || rest_[length] == '_'))
      ++length;
    if (length == 0) fail("expected a name");
    std::string result(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return result;
  }
  uint64_t number() {
    skip_spaces();
    uint64_t value = 0;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) fail("expected a number");
    rest_.remove_prefix(end - rest_.data());
    return value;
  }
  void expect_end() {
    if (status_.ok() && !at_end()) fail("expected the end of the line");
  }
  void fail(std::string_view why) {
    if (!status_.ok()) return;
    status_ =
        Status(ErrorCode::INVALID_ARGUMENT, "layout, line " + std::to_string(number_) + ": " +
                                                std::string(why) + " before '" + std::string(rest_) + "'");
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }

  std::string_view rest_;
  int number_;
  Status status_;
};

std::vector<LayoutDim> parse_dims(Line& line) {
  std::vector<LayoutDim> dims;
  std::set<std::string> names;
  int bits = 0;
  if (line.at('-') || line.at_end()) return dims;
  do {
    if (!dims.empty()) line.expect(",");
    LayoutDim dim{line.name(), 0};
    line.expect("[");
    const uint64_t size = line.number();
    line.expect("]");
    if (!std::has_single_bit(size)) line.fail("expected a size that is a power of two");
    if (!names.insert(dim.name).second) line.fail("expected a name not used yet");
    dim.bits = std::countr_zero(size | uint64_t{1} << 63);
    if ((bits += dim.bits) > 63) line.fail("expected at most 63 bits in all");
    dims.push_back(std::move(dim));
  } while (line.status().ok() && line.at(','));
  return dims;
}

uint64_t parse_column(Line& line, const std::vector<LayoutDim>& outputs) {
  uint64_t column = 0;
  int shift = 0;
  line.expect("(");
  for (const LayoutDim& dim : outputs) {
    if (&dim != &outputs.front()) line.expect(",");
    const uint64_t coordinate = line.number();
    if (coordinate >= dim.size()) line.fail("expected a coordinate of " + dim.name + " within its size");
    column |= coordinate << shift;
    shift += dim.bits;
  }
  line.expect(")");
  return column;
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

Result<Layout> parse_layout(std::string_view text) {
  std::vector<Line> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end), static_cast<int>(lines.size()) + 1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (lines.empty()) return Status(ErrorCode::INVALID_ARGUMENT, "layout: the text is empty");
  std::vector<LayoutDim> inputs = parse_dims(lines[0]);
  lines[0].expect("->");
  std::vector<LayoutDim> outputs = parse_dims(lines[0]);
  lines[0].expect_end();
  if (!lines[0].status().ok()) return lines[0].status();
  if (lines.size() != inputs.size() + 1)
    return Status(ErrorCode::INVALID_ARGUMENT, "layout: expected one line for each of the " +
                                                   std::to_string(inputs.size()) + " input dimensions");
  F2Matrix matrix;
  for (const LayoutDim& dim : outputs) matrix.rows += dim.bits;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Line& line = lines[i + 1];
    line.expect(inputs[i].name);
    line.expect(":");
    for (int bit = 0; bit < inputs[i].bits && line.status().ok(); ++bit)
      matrix.columns.push_back(parse_column(line, outputs));
    line.expect_end();
    if (!line.status().ok()) return line.status();
  }
  return Layout(std::move(inputs), std::move(outputs), std::move(matrix));
}

}  // namespace quern
