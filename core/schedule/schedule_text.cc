// The text form of schedules.
#include <charconv>
#include <limits>
#include <map>
#include <type_traits>

#include "core/schedule/schedule.h"

namespace quern {

namespace {

std::string list_text(const auto& numbers) {
  std::string out;
  for (auto number : numbers) out += (out.empty() ? "[" : ", ") + std::to_string(number);
  return out + "]";
}
template <class Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value>)
    return std::to_string(value);
  else
    return list_text(value);
}

std::string print_choices(const BlockChoices& choices) {
  std::string out;
  if (!choices.layouts.empty()) out += " layouts=" + list_text(choices.layouts);
  if (!choices.levels.empty()) out += " levels=" + list_text(choices.levels);
  if (!choices.offsets.empty()) out += " offsets=" + list_text(choices.offsets);
  return out;
}

// The fields of one line: "name=1" and "name=[1, 2]". Every field that is taken is known and in its range.
class Fields {
 public:
  // `line` behind the word "kernel".
  explicit Fields(std::string_view line) {
    for (size_t at = line.find_first_not_of(' '); at < line.size() && reason_.empty();
         at = line.find_first_not_of(' ', at)) {
      const size_t equals = std::min(line.find('=', at), line.size());
      const std::string name(line.substr(at, equals - at));
      at = equals + 1;
      if (equals == line.size())
        refuse("\"" + name + "\" is no field: expected name=value");
      else if (!numbers_.try_emplace(name).second)
        refuse(name + " stands there twice");
      else
        at = read(line, at, name);
    }
  }

  // Numbers from `least` to `most`; where the field is left out, `out` stays as it is.
  template <class Number>
  void take(const char* name, Number& out, int64_t least, int64_t most) {
    take_all(name, &out, 1, least, most);
  }
  template <class Number, size_t count>
  void take(const char* name, std::array<Number, count>& out, int64_t least, int64_t most) {
    take_all(name, out.data(), count, least, most);
  }
  template <class Number>
  void take_list(const std::string& name, std::vector<Number>& out) {
    const std::vector<int64_t>* given = find(name);
    if (!given) return;
    for (int64_t number : *given)
      out.push_back(static_cast<Number>(in_range(name, number, 0, std::numeric_limits<Number>::max())));
  }
  // Empty if nothing was wrong, and nothing is left.
  std::string reason() const {
    return reason_.empty() && !numbers_.empty() ? "there is no field \"" + numbers_.begin()->first + "\""
                                                : reason_;
  }

 private:
  template <class Number>
  void take_all(const char* name, Number* out, size_t count, int64_t least, int64_t most) {
    const std::vector<int64_t>* given = find(name);
    if (!given) return;
    if (given->size() != count)
      return refuse(std::string(name) + " takes " + std::to_string(count) +
                    (count > 1 ? " numbers" : " number"));
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<Number>(in_range(name, (*given)[i], least, most));
  }

  void refuse(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
  }

  // The position behind the value that begins at `at`.
  size_t read(std::string_view line, size_t at, const std::string& name) {
    const bool list = at < line.size() && line[at] == '[';
    const size_t end = std::min(list ? line.find(']', at) : line.find(' ', at), line.size());
    if (list && end == line.size()) refuse(name + " has no ]");
    for (at += list; at < end; at = std::min(line.find_first_not_of(", ", at), end)) {
      int64_t number = 0;
      const auto [next, error] = std::from_chars(line.data() + at, line.data() + end, number);
      const auto stop = static_cast<size_t>(next - line.data());
      if (error != std::errc() || (stop < end && line[stop] != ',' && line[stop] != ' ')) {
        refuse(name + " takes integers, not \"" + std::string(line.substr(at, end - at)) + "\"");
        return line.size();
      }
      numbers_[name].push_back(number);
      at = stop;
    }
    return end + list;
  }

  const std::vector<int64_t>* find(const std::string& name) {
    const auto at = numbers_.find(name);
    if (at == numbers_.end()) return nullptr;
    taken_ = std::move(at->second);
    numbers_.erase(at);
    return &taken_;
  }

  int64_t in_range(const std::string& name, int64_t number, int64_t least, int64_t most) {
    if (number < least || number > most)
      refuse(name + " takes numbers from " + std::to_string(least) + " to " + std::to_string(most) +
             ", not " + std::to_string(number));
    return number;
  }

  std::map<std::string, std::vector<int64_t>> numbers_;  // of fields not taken yet
  std::vector<int64_t> taken_;
  std::string reason_;
};

// The reason why not, or nothing.
std::string parse_line(std::string_view line, KernelSchedule& kernel) {
  constexpr std::string_view kWord = "kernel";
  if (!line.starts_with(kWord) || (line.size() > kWord.size() && line[kWord.size()] != ' '))
    return "expected \"kernel\" and its fields";
  Fields fields(line.substr(kWord.size()));
#define QUERN_SCHEDULE_FIELD(type, name, value, least, most, ...) \
  fields.take(#name, kernel.name, least, most);
#include "core/schedule/schedule.def"
  fields.take_list("layouts", kernel.choices.layouts);
  fields.take_list("levels", kernel.choices.levels);
  fields.take_list("offsets", kernel.choices.offsets);
  return fields.reason();
}

}  // namespace

std::string print_schedule(const Schedule& schedule) {
  std::string out;
  for (const KernelSchedule& kernel : schedule.kernels) {
    out += "kernel";
#define QUERN_SCHEDULE_FIELD(type, name, value, ...) \
  if (kernel.name != value) out += " " #name "=" + text_of(kernel.name);
#include "core/schedule/schedule.def"
    out += print_choices(kernel.choices) + "\n";
  }
  return out;
}

std::string schedule_field_table() {
  const KernelSchedule defaults;
  std::string out = "| field | default | requires | meaning |\n|---|---|---|---|\n";
  auto row = [&](const char* name, const std::string& value, const std::string& needs, const char* doc) {
    std::string condition;  // a bar would end its column
    for (char c : needs == "true" ? "" : "`" + needs + "`") condition += c == '|' ? "\\|" : std::string(1, c);
    out += "| `" + std::string(name) + "` | " + value + " | " + condition + " | " + doc + " |\n";
  };
#define QUERN_SCHEDULE_FIELD(type, name, value, least, most, needs, doc) \
  row(#name, text_of(defaults.name), #needs, doc);
#include "core/schedule/schedule.def"
  return out;
}

Result<Schedule> parse_schedule(std::string_view text) {
  Schedule schedule;
  for (size_t at = 0, number = 1; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line[0] == '#') continue;
    KernelSchedule kernel;
    if (const std::string reason = parse_line(line, kernel); !reason.empty())
      return Status(ErrorCode::INVALID_ARGUMENT, std::to_string(number) + ":1: " + reason);
    schedule.kernels.push_back(std::move(kernel));
  }
  return schedule;
}

}  // namespace quern
