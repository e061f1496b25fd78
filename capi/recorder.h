// $QUERN_RECORD and $QUERN_STRICT: what a program asks for, written down as graph files and a manifest, which
// `quern prewarm` reads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "capi/plan_table.h"
#include "core/base/status.h"

namespace quern {

// One for each client. In `directory`: NAME-HASH.qg for every graph, whoever writes it first, and one
// manifest of this client. Its lines are `FILE TARGET [tf32] [constraints="..."]`, then in a comment how
// often the graph was asked for and of which tier the last plan was.
class Recorder {
 public:
  // Makes the directory. IO when it cannot be written. `name` is that of the manifest, in front of process
  // and time.
  static Result<std::unique_ptr<Recorder>> open(const std::string& directory, const std::string& name);
  // Writes the counts.
  ~Recorder();

  // Any thread. `outcome` is a tier, or why there is no plan. What cannot be written is left out: a full disk
  // must not fail a request.
  void note(const PlanRequest& request, const std::string& outcome);

 private:
  Recorder(std::string directory, std::string manifest)
      : directory_(std::move(directory)), manifest_(std::move(manifest)) {}
  struct Entry {
    std::string line, outcome;
    uint64_t count = 0;
  };
  Entry entry_of(const PlanRequest& request) const;
  void write_manifest() const;

  const std::string directory_, manifest_;
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // by the line without its comment
};

}  // namespace quern
