// The daemon's settings: command line, then environment, then configuration file, then defaults; one table of
// them in the .cc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "daemon/fleet.h"
#include "daemon/log.h"
#include "daemon/measures.h"

namespace quern {

struct Options {
  // Paths are absolute: relative to where the daemon was started, or to the folder of the configuration file
  // that names them.
  std::string socket, cache_dir, config;  // never empty once parsed
  std::string log_file;                   // empty: standard error
  std::string request_log;                // empty: none
  LogLevel log_level = LogLevel::info;
  bool log_json = false;
  uint64_t log_bytes = 64ull << 20;
  int listening = -1;  // a socket that the process was started with, instead of one that it makes
  bool foreground = false;
  bool help = false, version = false;
  std::function<Result<Options>()> read_again;  // as at the start; empty: they cannot be

  std::string worker;    // path of quern-worker; empty: look beside this program, then in libexecdir
  std::string nvrtc;     // path of libnvrtc; empty: the usual places
  unsigned workers = 0;  // 0: half the processors, 1 to 4
  uint64_t searchers = 1;
  uint64_t job_seconds = 60, job_cpu_seconds = 60, job_memory_bytes = 4ull << 30;
  uint64_t search_seconds = 10, optimize_seconds = 25;
  MeasureSettings::When measure = MeasureSettings::When::idle;
  uint64_t tune_seconds = 30;

  uint64_t cache_bytes = 5ull << 30;
  uint64_t max_clients = 256, max_requests = 256, max_output_bytes = 32ull << 20, max_queued_jobs = 1024,
           max_client_memory = 96ull << 20, client_seconds = 10;
  uint64_t request_seconds = 600, drain_seconds = 10;
  uint64_t idle_seconds = 0, worker_idle_seconds = 300;  // 0: for ever
  std::vector<uid_t> allow_uids;
  FleetSettings fleet;
  uint64_t metrics_port = 0;  // 0: none

  // What was set, by name: the words of the command line, else the environment, else the file.
  std::map<std::string, std::string> given;
  std::string base;  // what relative paths are relative to, while settings are read
};

// Reads all of the above. INVALID_ARGUMENT says which setting, from where, is no good. `base`: what relative
// paths of the command line and the environment are relative to; empty: the current directory.
Result<Options> parse_options(int argc, const char* const* argv, const std::string& base = "");
std::string options_help();

// Takes those settings of `fresh` that may change while the daemon runs. Names in alphabetical order.
struct ReloadedOptions {
  std::vector<std::string> changed, restart;  // taken; different, but of the next start
};
ReloadedOptions reload_options(Options& options, const Options& fresh);

// "64M", "5G", "1000": bytes, with binary K, M, G, T. INVALID_ARGUMENT for anything else.
Result<uint64_t> parse_bytes(const std::string& text);

}  // namespace quern
