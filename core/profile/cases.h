// The inputs that programs of a graph are checked on, and what their outputs should then be, from the CPU:
// all elements, or as many of a sample as can be computed in time.
#pragma once

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/verify/reference.h"

namespace quern {

struct Case {
  std::string name;                 // "random", then the hostile classes
  std::vector<std::string> inputs;  // the bytes of buffers
  bool special = false;             // has_special_numbers(): takes a while
};
// `threads` at once. The same graph gives the same bytes everywhere.
std::vector<Case> make_cases(const Graph& graph, unsigned threads);

// What became of the outputs for one case.
struct Judged {
  double error = 0, largest = 0;  // as in Bench::Check
  uint64_t compared = 0;
  std::string wrong;
};

class CpuReference {
 public:
  struct Options {
    std::chrono::milliseconds limit{10000};  // for all cases together
    unsigned threads = 4;
    bool tf32 = false;  // what programs may make that compute in tf32, too
  };
  // The cases must outlive it. Takes about the limit where not all elements can be computed.
  CpuReference(const Graph& graph, const std::vector<Case>& cases, const Options& options);

  // Of the bytes of all outputs. Where what tf32 gives is not known, f32's stricter bounds hold.
  Judged judge(size_t number, bool tf32, const std::vector<std::string>& outputs) const;

 private:
  struct Values {
    std::vector<Expected> expected;
    std::vector<std::vector<int64_t>> elements;  // of each output; empty: all
  };
  Values compute(const Case& on, bool tf32, bool all, std::chrono::steady_clock::time_point until) const;

  const Graph& graph_;
  std::vector<TensorDesc> inputs_, outputs_;
  std::vector<Values> values_[2];  // exact, tf32: of each case
};

}  // namespace quern
