#include "tools/timings.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace quern {

namespace {

constexpr size_t kNameDigits = 8;

std::string number(double value, const char* format = "%.2f") {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string us_text(double us) { return us > 0 ? number(us) : ""; }

std::vector<std::pair<double, double>> modelled_and_measured(const DeviceTimings& timings) {
  std::vector<std::pair<double, double>> pairs;
  for (const TimedProgram& program : timings.programs)
    if (program.timed() && program.modelled_us > 0) pairs.emplace_back(program.modelled_us, program.cold_us);
  return pairs;
}

}  // namespace

const TimedProgram* DeviceTimings::baseline() const {
  for (const TimedProgram& program : programs)
    if (program.row.baseline) return &program;
  return nullptr;
}

const TimedProgram* DeviceTimings::best() const {
  return programs.empty() || !programs.front().timed() ? nullptr : &programs.front();
}

std::vector<DeviceTimings> join_timings(const std::vector<wire::ProgramRow>& programs,
                                        const std::vector<wire::TimingRow>& timings) {
  std::map<std::string, std::map<std::string, const wire::TimingRow*>> devices;
  for (const wire::TimingRow& row : timings) devices[row.device][to_hex(row.program)] = &row;
  std::vector<DeviceTimings> joined;
  for (const auto& [device, rows] : devices) {
    DeviceTimings& one = joined.emplace_back();
    one.device = device;
    for (const wire::ProgramRow& program : programs) {
      TimedProgram& timed = one.programs.emplace_back();
      timed.row = program;
      timed.modelled_us = static_cast<double>(program.modelled_ns) / 1e3;
      const auto found = rows.find(to_hex(program.program));
      if (found == rows.end()) continue;
      timed.cold_us = static_cast<double>(found->second->cold_ps) / 1e6;
      timed.hot_us = static_cast<double>(found->second->hot_ps) / 1e6;
      timed.error = static_cast<double>(found->second->error_ppb) / 1e9;
      timed.samples = found->second->samples;
      timed.refusal = found->second->refusal;
    }
    std::stable_sort(one.programs.begin(), one.programs.end(), [](const auto& a, const auto& b) {
      return a.timed() != b.timed() ? a.timed() : a.timed() && a.cold_us < b.cold_us;
    });
  }
  return joined;
}

std::optional<double> regret(const DeviceTimings& timings) {
  const auto pairs = modelled_and_measured(timings);
  if (pairs.size() < 2) return std::nullopt;
  const auto first = std::min_element(pairs.begin(), pairs.end());
  const auto best = std::min_element(pairs.begin(), pairs.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return first->second / best->second;
}

Status for_each_plan(Session& session, Tier tier, size_t most,
                     const std::function<Status(const wire::ShowReply&)>& visit) {
  size_t visited = 0;
  for (wire::List request; visited < most;) {
    Result<wire::ListReply> page = session.ask<wire::ListReply>(request);
    if (!page) return page.status();
    for (const wire::ListRow& row : page->rows) {
      request.after = row.key;
      if (row.tier != tier) continue;
      if (visited++ == most) return {};
      Result<wire::ShowReply> shown = session.ask<wire::ShowReply>(wire::Show{row.key});
      if (!shown && shown.status().code() == ErrorCode::NOT_FOUND) continue;  // it went meanwhile
      if (!shown) return shown.status();
      if (Status status = visit(*shown); !status.ok()) return status;
    }
    if (!page->more || page->rows.empty()) return {};
  }
  return {};
}

Result<std::vector<ModelQuality>> model_quality(Session& session, size_t most) {
  std::map<std::string, ModelQuality> devices;
  Status status = for_each_plan(session, Tier::measured, most, [&](const wire::ShowReply& shown) {
    for (const DeviceTimings& timings : join_timings(shown.programs, shown.timings)) {
      const auto pairs = modelled_and_measured(timings);
      const auto correlation = rank_correlation(pairs);
      const auto loss = regret(timings);
      if (!correlation || !loss) continue;
      ModelQuality& quality = devices[timings.device];
      quality.device = timings.device;
      ++quality.graphs;
      quality.programs += pairs.size();
      quality.correlation += *correlation;
      quality.regret *= *loss;
    }
    return Status();
  });
  if (!status.ok()) return status;
  std::vector<ModelQuality> all;
  for (auto& [device, quality] : devices) {
    const double graphs = static_cast<double>(quality.graphs);
    quality.correlation /= graphs;
    quality.regret = std::pow(quality.regret, 1 / graphs);
    all.push_back(quality);
  }
  return all;
}

std::string program_name(const wire::ProgramRow& row) {
  return row.baseline ? "baseline" : to_hex(row.program).substr(0, kNameDigits);
}

std::string timings_text(const std::vector<DeviceTimings>& devices) {
  std::string text;
  for (const DeviceTimings& device : devices) {
    Table table({"PROGRAM", ">MODEL us", ">COLD us", ">HOT us", ">ROUNDS", ">ERROR", "VERDICT"});
    size_t untried = 0;
    for (const TimedProgram& program : device.programs) {
      const bool tried = program.timed() || !program.refusal.empty();
      untried += !tried;
      if (!tried) continue;
      const bool timed = program.timed();
      table.add({program_name(program.row), us_text(program.modelled_us),
                 timed ? us_text(program.cold_us) : "", timed ? us_text(program.hot_us) : "",
                 timed ? std::to_string(program.samples) : "",
                 timed && program.error > 0 ? number(program.error, "%.1e") : "",
                 program.row.stands ? "stands" : program.refusal.substr(0, program.refusal.find('\n'))});
    }
    text += (text.empty() ? "" : "\n") + device.device + "\n" + table.text("  ");
    if (untried > 0) text += "  " + std::to_string(untried) + " more were not tried\n";
  }
  return text;
}

Json timings_json(const std::vector<DeviceTimings>& devices) {
  Json all = Json::array();
  for (const DeviceTimings& device : devices) {
    Json programs = Json::array();
    for (const TimedProgram& program : device.programs)
      programs.push_back({{"program", to_hex(program.row.program)},
                          {"baseline", program.row.baseline != 0},
                          {"stands", program.row.stands != 0},
                          {"modelled_us", program.modelled_us},
                          {"cold_us", program.cold_us},
                          {"hot_us", program.hot_us},
                          {"rounds", program.samples},
                          {"error", program.error},
                          {"refusal", program.refusal},
                          {"schedule", program.row.schedule}});
    all.push_back({{"device", device.device}, {"programs", programs}});
  }
  return all;
}

}  // namespace quern
