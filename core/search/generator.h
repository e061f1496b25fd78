// Enumerates the DAGs of admitted block operators that compute the goals: every acyclic choice of one
// admitted operator for each class that is needed, up to a bound on operators.
//
// It goes from the goals to the leaves, so that every operator is used and every complete DAG comes once. The
// order is fixed: the first class that is needed and has no operator yet, its operators in canonical order.
// A position in the enumeration is a path of choices; a state holds one for each part of the search space, is
// a text, and can be continued.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/search/dag.h"

namespace quern {

struct GeneratorOptions {
  int bound = 11;  // block operators; loads and constants are not counted
  int threads = 2;
  size_t max_dags = 200000;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  const std::atomic<bool>* cancel = nullptr;
};

enum class GeneratorStop : uint8_t { exhausted, dag_limit, time_limit, cancelled, out_of_memory };
const char* generator_stop_name(GeneratorStop stop);

// Where an enumeration stands. Parts are subtrees of the choices.
struct GeneratorState {
  struct Part {
    std::vector<int> path;  // the next choices to take
    size_t fixed = 0;       // how many of them name the part
    bool done = false;
    bool operator==(const Part&) const = default;
  };
  int bound = 0;
  std::vector<Part> parts;
  std::vector<std::vector<int>> kept;  // choices of DAGs that the search wants to see again
  bool operator==(const GeneratorState&) const = default;

  std::string text() const;
  // INVALID_ARGUMENT when the text is none of ours.
  static Result<GeneratorState> parse(std::string_view text);
};

// States of pieces that are not finished, by the order in which different ones came up: "piece N" and then the
// generator's lines. INVALID_ARGUMENT as above.
std::string print_states(const std::map<size_t, GeneratorState>& states);
Result<std::map<size_t, GeneratorState>> parse_states(const std::string& text);

struct GeneratorReport {
  GeneratorStop stop = GeneratorStop::exhausted;
  size_t seen = 0;      // operators that were tried as the next of a prefix
  size_t extended = 0;  // that made a prefix within the bound, without a cycle
  size_t dags = 0;      // complete
  double seconds = 0;
};

// The DAG to which these choices lead; nothing when they are of another search.
std::optional<Dag> replay(const Terms& terms, const Universe& universe, int bound,
                          const std::vector<int>& choices);

// Calls sink(part, dag) for every DAG, from several threads, but for one part always in order from one
// thread at a time. Starts at `state` if it has parts, and leaves there where it stopped.
// INVALID_ARGUMENT when the state is of another search.
Result<GeneratorReport> generate(const Terms& terms, const Universe& universe,
                                 const GeneratorOptions& options, GeneratorState& state,
                                 const std::function<void(size_t, const Dag&)>& sink);

}  // namespace quern
