// Runs work in a process of its own, so that an abort, a crash or a hang is a finding and not the end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace quern {

struct Finding {
  std::string cause;  // "wrong", "abort", ...
  std::string text;   // what to paste into a case, with a comment that says what is wrong
};

// What an attack counted and found.
struct Tally {
  std::map<std::string, uint64_t> counts;
  std::vector<Finding> findings;

  void merge(const Tally& other);
  uint64_t count(const std::string& what) const;
};

// The other end of the pipe to whoever counts.
class Report {
 public:
  explicit Report(int file) : file_(file) {}
  void count(const std::string& what, uint64_t n = 1) { send('c', what, std::to_string(n)); }
  void find(const std::string& cause, const std::string& text) { send('f', cause, text); }
  // What is to be blamed if the process dies before it says something else.
  void doing(const std::string& what) { send('d', what, ""); }

 private:
  void send(char kind, const std::string& key, const std::string& value);
  int file_;
};

struct Outcome {
  Tally tally;
  std::string death;  // how it ended and what it was doing; empty if it ended well
};

// The process is killed after `seconds`.
Outcome run_isolated(const std::function<void(Report&)>& work, unsigned seconds);

// Does work(first, how many, report) for 0 .. count - 1, `batch` in a process. Of a batch that dies each has
// a process of its own then, so that the one to blame is found: an "abort". `seconds` is for each.
Tally run_in_batches(size_t count, size_t batch, unsigned seconds,
                     const std::function<void(size_t, size_t, Report&)>& work);

}  // namespace quern
