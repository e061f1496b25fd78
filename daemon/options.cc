#include "daemon/options.h"

#include <ini.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "capi/wire/paths.h"

namespace quern {

namespace {

using Setter = std::function<Status(Options&, const std::string&)>;

struct Setting {
  const char* name;      // --name on the command line, name in the file, QUERN_NAME in the environment
  const char* argument;  // nullptr: a switch, which takes nothing on the command line and yes or no elsewhere
  Setter set;
  const char* help;
  std::function<void(Options&, const Options&)> take = {};  // of those that may change while the daemon runs
};

template <class T>
std::function<void(Options&, const Options&)> live(T Options::*field) {
  return [field](Options& options, const Options& fresh) { options.*field = fresh.*field; };
}

Result<uint64_t> parse_number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return Status(ErrorCode::INVALID_ARGUMENT, "\"" + text + "\" is not a whole number");
  return value;
}

std::string absolute(const std::string& base, const std::string& path) {
  return (std::filesystem::path(base) / path).lexically_normal();
}

// What a field is one of: the options, or a part of them.
Options& holder(Options& options, const Options*) { return options; }
FleetSettings& holder(Options& options, const FleetSettings*) { return options.fleet; }

template <class Settings>
Setter path(std::string Settings::*field) {
  return [field](Options& options, const std::string& value) {
    if (value.empty()) return Status(ErrorCode::INVALID_ARGUMENT, "it is empty");
    holder(options, static_cast<const Settings*>(nullptr)).*field = absolute(options.base, value);
    return Status();
  };
}

template <class Settings>
Setter number(uint64_t Settings::*field, uint64_t low, uint64_t high) {
  return [=](Options& options, const std::string& value) {
    auto parsed = parse_number(value);
    if (!parsed) return parsed.status();
    if (*parsed < low || *parsed > high)
      return Status(ErrorCode::INVALID_ARGUMENT,
                    value + " is not within " + std::to_string(low) + " to " + std::to_string(high));
    holder(options, static_cast<const Settings*>(nullptr)).*field = *parsed;
    return Status();
  };
}

Setter bytes(uint64_t Options::*field, uint64_t low) {
  return [=](Options& options, const std::string& value) {
    auto parsed = parse_bytes(value);
    if (!parsed) return parsed.status();
    if (*parsed < low)
      return Status(ErrorCode::INVALID_ARGUMENT, value + " is below " + std::to_string(low) + " bytes");
    options.*field = *parsed;
    return Status();
  };
}

Setter flag(bool Options::*field) {
  return [field](Options& options, const std::string& value) {
    const bool yes = value == "yes" || value == "true" || value == "1";
    if (!yes && value != "no" && value != "false" && value != "0")
      return Status(ErrorCode::INVALID_ARGUMENT, "\"" + value + "\" is neither yes nor no");
    options.*field = yes;
    return Status();
  };
}

Status set_workers(Options& options, const std::string& value) {
  auto parsed = parse_number(value);
  if (!parsed) return parsed.status();
  if (*parsed < 1 || *parsed > 64)
    return Status(ErrorCode::INVALID_ARGUMENT, value + " is not within 1 to 64");
  options.workers = static_cast<unsigned>(*parsed);
  return {};
}

Status set_log_level(Options& options, const std::string& value) {
  const auto level = parse_log_level(value);
  if (!level)
    return Status(ErrorCode::INVALID_ARGUMENT, "\"" + value + "\" is not debug, info, warning or error");
  options.log_level = *level;
  return {};
}

Status set_log_format(Options& options, const std::string& value) {
  if (value != "text" && value != "json")
    return Status(ErrorCode::INVALID_ARGUMENT, "\"" + value + "\" is neither text nor json");
  options.log_json = value == "json";
  return {};
}

Status set_measure(Options& options, const std::string& value) {
  using enum MeasureSettings::When;
  for (const auto& [name, when] : {std::pair{"idle", idle}, {"always", always}, {"never", never}}) {
    if (value != name) continue;
    options.measure = when;
    return {};
  }
  return Status(ErrorCode::INVALID_ARGUMENT, "\"" + value + "\" is not idle, always or never");
}

Status set_allow_uids(Options& options, const std::string& value) {
  options.allow_uids.clear();
  for (size_t start = 0; start <= value.size();) {
    const size_t end = std::min(value.find(',', start), value.size());
    auto uid = parse_number(value.substr(start, end - start));
    if (!uid) return uid.status();
    if (*uid > 0xfffffffe)
      return Status(ErrorCode::INVALID_ARGUMENT, "there is no user " + std::to_string(*uid));
    options.allow_uids.push_back(static_cast<uid_t>(*uid));
    start = end + 1;
  }
  return {};
}

Status set_fleet(Options& options, const std::string& value) {
  const Status no_address(ErrorCode::INVALID_ARGUMENT,
                          "\"" + value + "\" is neither unix:/PATH nor HOST:PORT");
  if (value.starts_with("unix:")) {
    if (Status status = check_socket_path(value.substr(5)); !status.ok()) return status;
    if (value[5] != '/') return no_address;
  } else {
    const size_t colon = value.rfind(':');
    auto port = parse_number(colon == std::string::npos ? "" : value.substr(colon + 1));
    if (colon == 0 || !port || *port < 1 || *port > 65535) return no_address;
  }
  options.fleet.address = value;
  return {};
}

Status set_fleet_user(Options& options, const std::string& value) {
  options.fleet.user = value;
  return {};
}

Status set_fleet_prefix(Options& options, const std::string& value) {
  constexpr size_t kLongest = 64;
  if (value.empty() || value.size() > kLongest)
    return Status(ErrorCode::INVALID_ARGUMENT, "it must have 1 to " + std::to_string(kLongest) + " bytes");
  options.fleet.prefix = value;
  return {};
}

const std::vector<Setting>& settings() {
  constexpr uint64_t kDay = 86400;
  static const std::vector<Setting> table = {
      {"socket", "PATH", path(&Options::socket),
       "where to listen; default $XDG_RUNTIME_DIR/quern/quernd.sock, else /tmp/quern-UID/quernd.sock. "
       "Clients look at "
       "QUERN_SOCKET and the same defaults, not at the configuration file"},
      {"cache-dir", "DIR", path(&Options::cache_dir),
       "where plans are kept; default $XDG_CACHE_HOME/quern, else ~/.cache/quern"},
      {"cache-size", "BYTES", bytes(&Options::cache_bytes, 16 << 20),
       "what plans may take before the oldest go; default 5G"},
      {"config", "PATH", path(&Options::config),
       "configuration file; default $XDG_CONFIG_HOME/quern/quern.conf"},
      {"foreground", nullptr, flag(&Options::foreground), "stay in the foreground, log to standard error"},
      {"log-file", "PATH", path(&Options::log_file),
       "append the log to this file; default in the background: DIR/quernd.log"},
      {"log-level", "LEVEL", set_log_level, "debug, info, warning or error; default info",
       live(&Options::log_level)},
      {"log-format", "FORMAT", set_log_format, "text or json, an object a line; default text",
       live(&Options::log_json)},
      {"log-size", "BYTES", bytes(&Options::log_bytes, 1 << 16),
       "what the log file may grow to before it becomes FILE.1, in place of the one before; default 64M",
       live(&Options::log_bytes)},
      {"request-log", "PATH", path(&Options::request_log),
       "append a line for each request to this file: who, what, how it ended and how long it took; default "
       "none. "
       "log-format and log-size hold for it, too"},
      {"worker", "PATH", path(&Options::worker),
       "quern-worker; default beside quernd, else in the installed libexec directory"},
      {"workers", "N", set_workers, "worker processes; default half the processors, 1 to 4"},
      {"searchers", "N", number(&Options::searchers, 0, 64),
       "worker processes that search for better plans in the background; 0: none; default 1"},
      {"search-seconds", "N", number(&Options::search_seconds, 1, 3600),
       "how long a search for a better plan may look for programs; default 10. One that ran out of time is "
       "tried again by a later use of the plan, with twice the time"},
      {"optimize-seconds", "N", number(&Options::optimize_seconds, 1, 3600),
       "how long a search may take with the judging and compiling of what it found; default 25"},
      {"measure", "WHEN", set_measure,
       "when programs are timed on a GPU: idle (while nobody else uses it), always or never; default idle"},
      {"tune-seconds", "N", number(&Options::tune_seconds, 1, kDay),
       "how long the programs of a plan may be measured; default 30"},
      {"nvrtc", "PATH", path(&Options::nvrtc), "libnvrtc.so of CUDA 12.4 or later; default the usual places"},
      {"job-seconds", "N", number(&Options::job_seconds, 1, kDay),
       "wall clock a compile may take; default 60"},
      {"job-cpu-seconds", "N", number(&Options::job_cpu_seconds, 1, kDay),
       "CPU time a compile may take; default 60"},
      {"job-memory", "BYTES", bytes(&Options::job_memory_bytes, 256 << 20),
       "address space of a worker; default 4G"},
      {"max-clients", "N", number(&Options::max_clients, 1, 100000), "connections; default 256",
       live(&Options::max_clients)},
      {"max-requests", "N", number(&Options::max_requests, 1, 100000),
       "requests of one client that wait; default 256", live(&Options::max_requests)},
      {"max-output", "BYTES", bytes(&Options::max_output_bytes, 1 << 16),
       "unread answers after which a slow client is dropped; default 32M", live(&Options::max_output_bytes)},
      {"max-queued-jobs", "N", number(&Options::max_queued_jobs, 1, 1000000),
       "compiles of one client that wait for a worker; default 1024"},
      {"max-client-memory", "BYTES", bytes(&Options::max_client_memory, 8 << 20),
       "what all clients together may make the daemon hold, beside 128K of each; no client gets more than a "
       "quarter; default 96M"},
      {"client-seconds", "N", number(&Options::client_seconds, 1, kDay),
       "how long a client may take for the rest of a frame that it has begun, and to read an answer; default "
       "10",
       live(&Options::client_seconds)},
      {"request-seconds", "N", number(&Options::request_seconds, 1, kDay),
       "how long a request waits that names no time itself; default 600", live(&Options::request_seconds)},
      {"drain-seconds", "N", number(&Options::drain_seconds, 0, 3600),
       "how long SIGTERM lets running work finish; default 10", live(&Options::drain_seconds)},
      {"idle-seconds", "N", number(&Options::idle_seconds, 0, 30 * kDay),
       "exit when nobody has been connected and nothing was to do for so long; default 0: never. The next "
       "client, "
       "or systemd's socket, starts it again"},
      {"worker-idle-seconds", "N", number(&Options::worker_idle_seconds, 0, 30 * kDay),
       "end a worker process that had nothing to do for so long; default 300, 0: never"},
      {"allow-uids", "UID,...", set_allow_uids,
       "users that may connect, besides the daemon's own and root; the socket is then open to all and must "
       "lie in a "
       "directory that they can enter",
       live(&Options::allow_uids)},
      {"metrics-port", "N", number(&Options::metrics_port, 0, 65535),
       "a port of 127.0.0.1 where Prometheus reads the statistics at /metrics; default 0: none. All users of "
       "the machine can read them"},
      {"fleet", "ADDRESS", set_fleet,
       "a Redis or Valkey server that several daemons share plans through: unix:/PATH or HOST:PORT; default "
       "none"},
      {"fleet-user", "NAME", set_fleet_user, "who logs in there; default: the server's default user"},
      {"fleet-password-file", "PATH", path(&FleetSettings::password_file),
       "whose first line is the password there; only its owner may read it"},
      {"fleet-prefix", "TEXT", set_fleet_prefix,
       "what the names of its keys there begin with; default quern:"},
      {"fleet-key", "PATH", path(&FleetSettings::key_file),
       "the key that signs what this daemon sends there, made if it is missing; default pack.key beside the "
       "configuration"},
      {"fleet-trust", "PATH", path(&FleetSettings::trust_file),
       "public keys, one a line: whose plans are taken from there, beside one's own; default trusted-keys "
       "beside "
       "the configuration"},
      {"fleet-ms", "N", number(&FleetSettings::limit_ms, 10, 60000),
       "after how many milliseconds without an answer that server counts as down; default 250"},
      {"fleet-wait-seconds", "N", number(&FleetSettings::wait_seconds, 1, 3600),
       "how long to wait for a plan that another daemon compiles before compiling it here; default 20"},
      {"help", nullptr, flag(&Options::help), "print this and exit"},
      {"version", nullptr, flag(&Options::version), "print the version and exit"},
  };
  return table;
}

const Setting* find_setting(const std::string& name) {
  for (const Setting& setting : settings())
    if (name == setting.name) return &setting;
  return nullptr;
}

std::string environment_name(const Setting& setting) {
  std::string name = std::string("QUERN_") + setting.name;
  for (char& c : name) c = c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

bool command_line_only(const Setting& setting) {
  const std::string name = setting.name;
  return name == "help" || name == "version";
}

Status apply_environment(Options& options) {
  for (const Setting& setting : settings()) {
    if (command_line_only(setting)) continue;
    const std::string name = environment_name(setting);
    const char* value = std::getenv(name.c_str());
    if (!value || !*value) continue;
    if (Status status = setting.set(options, value); !status.ok())
      return status.with_context("environment variable " + name);
    options.given[setting.name] = value;
  }
  return {};
}

struct FileReader {
  Options* options;
  Status status;  // the first error
};

int read_line(void* user, const char* section, const char* name, const char* value) {
  FileReader& reader = *static_cast<FileReader*>(user);
  if (*section && std::strcmp(section, "quernd") != 0) {
    reader.status = Status(ErrorCode::INVALID_ARGUMENT,
                           std::string("there is no section [") + section + "]; settings stand in [quernd]");
    return 0;
  }
  const Setting* setting = find_setting(name);
  Status status;
  if (!setting || command_line_only(*setting) || setting->name == std::string("config"))
    status = Status(ErrorCode::INVALID_ARGUMENT, "there is no such setting; quernd --help lists them");
  else
    status = setting->set(*reader.options, value);
  if (status.ok()) {
    reader.options->given[setting->name] = value;
    return 1;
  }
  if (reader.status.ok()) reader.status = status.with_context(name);
  return 0;
}

// A missing file is no error unless somebody named it.
Status apply_file(Options& options, bool named) {
  FileReader reader{&options, {}};
  const std::string base = std::exchange(options.base, std::filesystem::path(options.config).parent_path());
  errno = 0;
  const int line = ini_parse(options.config.c_str(), read_line, &reader);
  options.base = base;
  if (line == 0) return {};
  if (line < 0) {
    if (errno == ENOENT && !named) return {};
    return Status(ErrorCode::INVALID_ARGUMENT,
                  "cannot read the configuration file " + options.config + ": " + std::strerror(errno));
  }
  const Status why = reader.status.ok()
                         ? Status(ErrorCode::INVALID_ARGUMENT, "this is no \"name = value\" and no [section]")
                         : reader.status;
  return why.with_context(options.config + ":" + std::to_string(line));
}

struct Argument {
  const Setting* setting;
  std::string value;
};

Result<std::vector<Argument>> read_arguments(int argc, const char* const* argv) {
  std::vector<Argument> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const Setting* setting = name.starts_with("--") ? find_setting(name.substr(2)) : nullptr;
    if (!setting)
      return Status(ErrorCode::INVALID_ARGUMENT, "unknown argument " + word + "; see quernd --help");
    if (equals != std::string::npos)
      arguments.push_back({setting, word.substr(equals + 1)});
    else if (!setting->argument)
      arguments.push_back({setting, "yes"});
    else if (i + 1 < argc)
      arguments.push_back({setting, argv[++i]});
    else
      return Status(ErrorCode::INVALID_ARGUMENT, word + " needs a value: " + word + "=" + setting->argument);
  }
  return arguments;
}

}  // namespace

Result<uint64_t> parse_bytes(const std::string& text) {
  std::string digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const size_t unit = std::string_view("KMGT").find(digits.back());
    if (unit != std::string::npos) {
      shift = 10 * static_cast<int>(unit + 1);
      digits.pop_back();
    }
  }
  auto value = parse_number(digits);
  if (!value || *value > UINT64_MAX >> shift)
    return Status(ErrorCode::INVALID_ARGUMENT, "\"" + text + "\" is not a number of bytes such as 64M or 5G");
  return *value << shift;
}

Result<Options> parse_options(int argc, const char* const* argv, const std::string& base) {
  auto arguments = read_arguments(argc, argv);
  if (!arguments) return arguments.status();
  Options options;
  std::error_code gone;  // a folder that was removed has no path
  options.base = base.empty() ? std::filesystem::current_path(gone).string() : base;
  options.socket = absolute(options.base, default_socket_path());
  options.cache_dir = absolute(options.base, default_cache_dir());
  options.config = absolute(options.base, default_config_path());
  bool config_named = std::getenv("QUERN_CONFIG") != nullptr;
  for (const Argument& argument : *arguments) {
    if (argument.setting->name != std::string("config")) continue;
    options.config = absolute(options.base, argument.value);
    config_named = true;
  }
  const std::string config = options.config;
  if (Status status = apply_file(options, config_named); !status.ok()) return status;
  if (Status status = apply_environment(options); !status.ok()) return status;
  options.config = config;
  for (const Argument& argument : *arguments) {
    if (Status status = argument.setting->set(options, argument.value); !status.ok())
      return status.with_context(std::string("--") + argument.setting->name);
    options.given[argument.setting->name] = argument.value;
  }
  const std::filesystem::path beside = std::filesystem::path(options.config).parent_path();
  if (options.fleet.key_file.empty()) options.fleet.key_file = beside / "pack.key";
  if (options.fleet.trust_file.empty()) options.fleet.trust_file = beside / "trusted-keys";
  return options;
}

ReloadedOptions reload_options(Options& options, const Options& fresh) {
  const auto given = [](const Options& from, const char* name) -> std::optional<std::string> {
    const auto found = from.given.find(name);
    return found == from.given.end() ? std::nullopt : std::optional(found->second);
  };
  ReloadedOptions result;
  for (const Setting& setting : settings()) {
    if (given(options, setting.name) == given(fresh, setting.name)) continue;
    (setting.take ? result.changed : result.restart).push_back(setting.name);
    if (setting.take) setting.take(options, fresh);
  }
  for (const std::string& name : result.changed) {
    options.given.erase(name);
    if (const auto value = given(fresh, name.c_str())) options.given[name] = *value;
  }
  std::sort(result.changed.begin(), result.changed.end());
  std::sort(result.restart.begin(), result.restart.end());
  return result;
}

std::string options_help() {
  std::string help =
      "usage: quernd [--NAME=VALUE ...]\n\n"
      "The kernel cache daemon of Quern. A setting comes from the command line (--name), else from the "
      "environment (QUERN_NAME),\n"
      "else from the section [quernd] of the configuration file (name = value), else it has its default.\n\n";
  for (const Setting& setting : settings()) {
    std::string left =
        std::string("  --") + setting.name + (setting.argument ? std::string("=") + setting.argument : "");
    left.resize(std::max<size_t>(left.size() + 1, 26), ' ');
    help += left + setting.help + "\n";
  }
  help +=
      "\nSIGTERM and SIGINT finish what runs and exit; a second one exits at once. SIGHUP opens the log "
      "files "
      "again and reads\nthe settings again, as quern reload does: log-level, log-format, log-size, "
      "max-clients, max-requests, "
      "max-output,\nclient-seconds, request-seconds, drain-seconds, allow-uids and the keys in fleet-trust "
      "hold at once.\n"
      "Exit status: 0 stopped as told (in the background: it is listening now), 1 cannot start, 2 a setting "
      "is no good,\n"
      "3 another daemon serves this socket or has this cache open.\n";
  return help;
}

}  // namespace quern
