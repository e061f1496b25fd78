#include "tools/arguments.h"

#include <getopt.h>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace quern {

namespace {

Status usage(const Command& command, const std::string& message) {
  return Status(ErrorCode::INVALID_ARGUMENT, message + "\nusage: quern " + command.name +
                                                 (*command.operands ? " " : "") + command.operands +
                                                 " [OPTION]...; see: quern help " + command.name);
}

// Edits between two words: insert, delete, replace, or swap two neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

// What getopt_long refused, in words.
Status refused(const Command& command, const std::vector<Option>& options, int sign, char** argv) {
  const std::string word = argv[optind - 1];
  std::string given = word;
  if (word.rfind("--", 0) != 0 && optopt) given = std::string("-") + static_cast<char>(optopt);
  if (sign == ':') return usage(command, "the option " + given + " needs a value");
  if (word.rfind("--", 0) == 0 && optopt)
    return usage(command, "the option " + word.substr(0, word.find('=')) + " takes no value");
  std::vector<std::string> names;
  for (const Option& option : options) names.push_back(std::string("--") + option.name);
  return usage(command, std::string("\"quern ") + command.name + "\" has no option " + given +
                            suggestion(word.substr(0, word.find('=')), names));
}

}  // namespace

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t distance = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    const bool begins = word.size() >= 3 && candidate.rfind(word, 0) == 0;
    const size_t edits = begins ? 1 : edit_distance(word, candidate);
    if (edits < distance) best = candidate, distance = edits;
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

Result<Arguments> Arguments::parse(const Command& command, int argc, char** argv) {
  const std::vector<Option> options = options_of(command);
  std::string letters = ":";
  std::vector<option> rows;
  constexpr int kFirst = 256;  // values of long options lie above all letters
  for (size_t i = 0; i < options.size(); ++i) {
    const Option& row = options[i];
    rows.push_back(
        {row.name, row.value ? required_argument : no_argument, nullptr, kFirst + static_cast<int>(i)});
    if (row.letter) letters += std::string(1, row.letter) + (row.value ? ":" : "");
  }
  rows.push_back({nullptr, 0, nullptr, 0});

  Arguments arguments;
  arguments.command_ = &command;
  optind = 0;
  opterr = 0;
  for (;;) {
    const int sign = getopt_long(argc, argv, letters.c_str(), rows.data(), nullptr);
    if (sign == -1) break;
    if (sign == '?' || sign == ':') return refused(command, options, sign, argv);
    for (size_t i = 0; i < options.size(); ++i)
      if (sign == kFirst + static_cast<int>(i) || sign == options[i].letter)
        arguments.values_[options[i].name].push_back(options[i].value ? optarg : "");
  }
  arguments.operands_.assign(argv + optind, argv + argc);
  if (arguments.has("help")) return arguments;
  const int count = static_cast<int>(arguments.operands_.size());
  if (count < command.min_operands)
    return usage(command, std::string("\"quern ") + command.name + "\" needs " + command.operands);
  if (count > command.max_operands)
    return usage(command, "\"quern " + std::string(command.name) + "\" takes no operand \"" +
                              arguments.operands_[command.max_operands] + "\" here");
  return arguments;
}

std::string Arguments::value(std::string_view option) const {
  const auto found = values_.find(option);
  return found == values_.end() ? "" : found->second.back();
}

std::vector<std::string> Arguments::values(std::string_view option) const {
  const auto found = values_.find(option);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

Result<uint64_t> Arguments::duration_ms(std::string_view option, uint64_t most) const {
  const std::string text = value(option);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  constexpr uint64_t kHour = 3'600'000;
  constexpr std::pair<std::string_view, uint64_t> kUnits[] = {
      {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"min", 60'000}, {"h", kHour}, {"d", 24 * kHour}};
  for (const auto& [name, ms] : kUnits)
    if (error == std::errc() && unit == name && number >= 1 && number <= most / ms) return number * ms;
  const bool days = most > 48 * kHour;
  return usage(*command_, "--" + std::string(option) + " takes a time such as " +
                              (days ? "12h or 30d" : "90s, 10m or 1h") + ", at most " +
                              std::to_string(most / (days ? 24 * kHour : kHour)) + (days ? "d" : "h") +
                              ", not \"" + text + "\"");
}

Result<int64_t> Arguments::integer(std::string_view option, int64_t fallback, int64_t low,
                                   int64_t high) const {
  if (!has(option)) return fallback;
  const std::string text = value(option);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= low && number <= high)
    return number;
  return usage(*command_, "--" + std::string(option) + " takes a number from " + std::to_string(low) +
                              " to " + std::to_string(high) + ", not \"" + text + "\"");
}

}  // namespace quern
