// What mugraph_bench compares: muGraphs out of files and out of the search, with the best of their schedules,
// emitted and compiled.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "core/base/plan.h"
#include "core/codegen/mugraph_emitter.h"
#include "core/jit/compiler.h"
#include "core/schedule/schedule.h"

namespace quern {

// A muGraph to take schedules of, and what the search's model says of it (nan: it is from a file).
struct Subject {
  std::string label;
  Graph graph;  // what it computes
  MuGraph mugraph;
  double us = NAN;
};

struct Contestant {
  std::string label;
  Schedule schedule;
  std::string source;
  Plan plan;
  std::vector<EmittedBlock> blocks;
  double searched_us = NAN, modelled_us = 0;  // by the model of the search, and by that of schedules
  double compile_ms = 0;
  double error = 0;
  std::string wrong;  // empty: right
  std::string resources;
  std::vector<double> hot, cold;  // microseconds, a round each
};

struct SubjectOptions {
  std::string graph;                  // a file
  std::vector<std::string> mugraphs;  // files
  size_t search = 0;                  // so many candidates of the search too
  std::string save;                   // a folder for these
  bool small = false;                 // instances of a few elements each, as the verifier takes them
};
std::vector<Subject> make_subjects(const SubjectOptions& options, const Target& target);

bool computes_in_tf32(const Schedule& schedule);

// The `top` best schedules of a muGraph that can be emitted, with `tf32` as many again that compute f32
// products in tf32, or `only` one; says on stdout why others cannot.
std::vector<Contestant> emit_contestants(const Subject& subject, size_t top, const Schedule* only,
                                         const Target& target, bool tf32);
// The `best` first ones of the list that the optimizer makes of all these muGraphs, and `spread` others: half
// of them the best of muGraphs that have none among those, the rest from further and further down the list.
std::vector<Contestant> emit_ranked(const std::vector<Subject>& subjects, size_t best, size_t spread,
                                    const Target& target, bool tf32);
// A program of a list that was made before, of the subject with this label.
struct Listed {
  std::string label;
  Schedule schedule;
};
std::vector<Contestant> emit_listed(const std::vector<Subject>& subjects, const std::vector<Listed>& programs,
                                    const Target& target);
inline constexpr const char* kBaselineLabel = "baseline";
Contestant emit_baseline_contestant(const Graph& graph, const Target& target);
// By NVRTC, `jobs` at a time; says on stdout how many may not run (core/optimize/registers.h); those get
// no cubin.
void compile_contestants(std::vector<Contestant>& contestants, Compiler& compiler, const Target& target,
                         unsigned jobs);

}  // namespace quern
