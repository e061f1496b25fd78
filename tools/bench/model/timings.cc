#include "tools/bench/model/timings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/verify/rounded_values.h"
#include "tools/bench/need.h"

namespace quern {

namespace {

TimedGraph read_graph(const std::filesystem::path& folder, const std::string& name,
                      const nlohmann::json& rows, const Target& target) {
  const Graph graph = need(parse_graph(read_file(folder / "graphs" / (name + ".qg"))));
  TimedGraph out;
  out.name = name;
  out.family = name.substr(0, name.find_first_of("_0123456789"));
  out.baseline = need(baseline_work(graph, target));
  std::map<std::string, std::shared_ptr<ProgramModel>> models;
  for (const nlohmann::json& row : rows) {
    TimedProgram program;
    program.label = row.at("mugraph");
    program.measured_us = row.at("cold_us");
    program.resources = row.at("resources");
    if (program.label != "baseline") {
      auto& model = models[program.label];
      if (!model) {
        const std::string number = program.label.substr(program.label.rfind(' ') + 1);
        out.mugraphs.push_back(std::make_unique<MuGraph>(
            need(parse_mugraph(read_file(folder / "qmu" / (name + "-" + number + ".qmu"))))));
        note_rounded_values(graph, *out.mugraphs.back());
        model = std::make_shared<ProgramModel>(need(ProgramModel::make(graph, *out.mugraphs.back(), target)));
      }
      program.model = model;
      std::string schedule = row.at("schedule");
      std::replace(schedule.begin(), schedule.end(), ';', '\n');
      program.schedule = need(parse_schedule(schedule));
    }
    out.programs.push_back(std::move(program));
  }
  return out;
}

}  // namespace

bool TimedProgram::is_on_stack() const {
  static const std::string kStack = " bytes on the stack";
  for (size_t at = 0; (at = resources.find(kStack, at)) != std::string::npos; ++at)
    if (at < 2 || resources.substr(at - 2, 2) != " 0") return true;
  return false;
}

double TimedGraph::modelled_us(const TimedProgram& program, const Target& target) const {
  return program.model ? need(program.model->us(program.schedule)) : modelled_launches(baseline, target);
}

std::vector<TimedGraph> read_timings(const std::string& folder, const Target& target) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<TimedGraph> out;
  for (const std::filesystem::path& file : files) {
    const nlohmann::json all = nlohmann::json::parse(read_file(file));
    for (const auto& [name, graph] : all.items())
      if (graph.contains("candidates"))
        out.push_back(read_graph(folder, name, graph.at("candidates"), target));
  }
  return out;
}

}  // namespace quern
