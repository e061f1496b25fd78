#include "capi/wire/prometheus.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace quern::wire {

std::optional<Bucket> bucket_of(const std::string& counter) {
  constexpr std::string_view kBetween = "_us_le_";
  const size_t at = counter.find(kBetween);
  if (at == std::string::npos) return std::nullopt;
  return Bucket{counter.substr(0, at), std::strtod(counter.c_str() + at + kBetween.size(), nullptr)};
}

std::string prometheus_text(const StatsReply& stats) {
  const auto escaped = [](const std::string& value) {
    std::string text;
    for (const char c : value)
      text += c == '\n' ? "\\n" : c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return text;
  };
  std::string text = "# HELP quern_info Facts about the daemon.\n# TYPE quern_info gauge\nquern_info{";
  const char* comma = "";
  for (const Fact& fact : stats.facts) {
    std::string name = fact.name;
    for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    text += comma + name + "=\"" + escaped(fact.text) + "\"";
    comma = ",";
  }
  text += "} 1\n";
  for (const std::string name : {"hit", "miss"}) {
    text += "# TYPE quern_" + name + "_seconds histogram\n";
    std::string tail;
    for (const Counter& counter : stats.counters) {
      char limit[32];
      if (const auto bucket = bucket_of(counter.name); bucket && bucket->name == name) {
        std::snprintf(limit, sizeof limit, "%g", bucket->limit_us / 1e6);
        text +=
            "quern_" + name + "_seconds_bucket{le=\"" + limit + "\"} " + std::to_string(counter.value) + "\n";
      } else if (counter.name == name + "_us_count") {
        text += "quern_" + name + "_seconds_bucket{le=\"+Inf\"} " + std::to_string(counter.value) + "\n";
        tail += "quern_" + name + "_seconds_count " + std::to_string(counter.value) + "\n";
      } else if (counter.name == name + "_sum_ns") {
        std::snprintf(limit, sizeof limit, "%.9f", static_cast<double>(counter.value) / 1e9);
        tail += "quern_" + name + "_seconds_sum " + limit + "\n";
      }
    }
    text += tail;
  }
  for (const Counter& counter : stats.counters)
    if (!bucket_of(counter.name))
      text += "# TYPE quern_" + counter.name + " untyped\nquern_" + counter.name + " " +
              std::to_string(counter.value) + "\n";
  return text;
}

}  // namespace quern::wire
