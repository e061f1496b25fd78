// The longest common subsequence by dynamic programming: texts here have at most some thousand lines.
#include "tools/diff.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace quern {

namespace {

constexpr size_t kContext = 2;  // equal lines shown around a difference

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

struct Line {
  char sign;
  std::string_view text;
};

std::vector<Line> align(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b) {
  // common[i][j]: the most lines that a[i..] and b[j..] share in order.
  std::vector<std::vector<uint16_t>> common(a.size() + 1, std::vector<uint16_t>(b.size() + 1));
  for (size_t i = a.size(); i-- > 0;)
    for (size_t j = b.size(); j-- > 0;)
      common[i][j] = a[i] == b[j] ? static_cast<uint16_t>(common[i + 1][j + 1] + 1)
                                  : std::max(common[i + 1][j], common[i][j + 1]);
  std::vector<Line> lines;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      lines.push_back({' ', a[i]});
      ++i, ++j;
    } else if (i < a.size() && (j == b.size() || common[i + 1][j] >= common[i][j + 1])) {
      lines.push_back({'-', a[i++]});
    } else {
      lines.push_back({'+', b[j++]});
    }
  }
  return lines;
}

}  // namespace

std::string diff_lines(std::string_view a, std::string_view b) {
  if (a == b) return "";
  const std::vector<Line> lines = align(split_lines(a), split_lines(b));
  std::vector<bool> shown(lines.size());
  for (size_t at = 0; at < lines.size(); ++at)
    if (lines[at].sign != ' ')
      for (size_t near = at - std::min(at, kContext); near <= std::min(at + kContext, lines.size() - 1);
           ++near)
        shown[near] = true;
  std::string text;
  for (size_t at = 0; at < lines.size(); ++at) {
    if (shown[at])
      text += lines[at].sign + std::string(lines[at].text) + "\n";
    else if (at > 0 && shown[at - 1])
      text += "...\n";
  }
  return text;
}

}  // namespace quern
