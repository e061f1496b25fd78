#include "core/base/words.h"

namespace quern {

Result<std::vector<std::string>> split_words(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false, in_quotes = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!in_quotes && c == '#' && !in_word) break;
    if (!in_quotes && blank) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '"')
      in_quotes = !in_quotes;
    else if (in_quotes && c == '\\' && i + 1 < line.size() && (line[i + 1] == '"' || line[i + 1] == '\\'))
      words.back() += line[++i];
    else
      words.back() += c;
  }
  if (in_quotes) return Status(ErrorCode::INVALID_ARGUMENT, "a quote is opened and not closed");
  return words;
}

std::string quoted_word(std::string_view word) {
  if (!word.empty() && word.find_first_of(" \t\r\n#\"\\") == std::string_view::npos) return std::string(word);
  std::string text = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

}  // namespace quern
