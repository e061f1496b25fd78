#include "tests/hostile/case.h"

#include <sstream>

namespace quern {

std::string print_case(const HostileCase& test) {
  std::string text;
  std::istringstream comment(test.comment);
  for (std::string line; std::getline(comment, line);) text += "# " + line + "\n";
  if (!test.target.empty()) text += "target " + test.target + "\n";
  if (!test.input_class.empty()) text += "class " + test.input_class + "\n";
  text += "seed " + std::to_string(test.seed) + "\n== graph\n" + test.graph;
  if (!test.mugraph.empty()) text += "== mugraph\n" + test.mugraph + "== schedule\n" + test.schedule;
  return text;
}

Result<HostileCase> parse_case(std::string_view text) {
  HostileCase test;
  std::string* section = nullptr;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key, value;
    words >> key >> value;
    if (key == "==" && (value == "graph" || value == "mugraph" || value == "schedule"))
      section = value == "graph" ? &test.graph : value == "mugraph" ? &test.mugraph : &test.schedule;
    else if (section)
      *section += line + "\n";
    else if (line.starts_with("#"))
      test.comment += line.substr(std::min<size_t>(line.size(), 2)) + "\n";
    else if (key == "target")
      test.target = value;
    else if (key == "class")
      test.input_class = value;
    else if (key == "seed")
      test.seed = std::stoull(value);
    else if (!line.empty())
      return Status(ErrorCode::INVALID_ARGUMENT, "no line of a case: \"" + line + "\"");
  }
  return test;
}

}  // namespace quern
