// quern doctor: looks at everything Quern needs, and says how to fix what is missing.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "capi/start.h"
#include "capi/wire/paths.h"
#include "core/base/target.h"
#include "core/jit/compiler.h"
#include "core/jit/driver.h"
#include "tools/output.h"
#include "tools/session.h"

namespace quern {

namespace {

enum class Verdict { ok, warn, fail };

struct Finding {
  std::string name;
  Verdict verdict;
  std::string what;
  std::string fix;  // "" = nothing to do
};

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::ok ? "ok" : verdict == Verdict::warn ? "warn" : "fail";
}

class Doctor {
 public:
  explicit Doctor(const Arguments& arguments) : arguments_(arguments) {}

  std::vector<Finding> examine() {
    socket_directory();
    daemon_program();
    config_file();
    daemon();
    cache_directory();
    nvrtc();
    driver();
    emulator();
    limits();
    return std::move(findings_);
  }

 private:
  void add(std::string name, Verdict verdict, std::string what, std::string fix = "") {
    findings_.push_back({std::move(name), verdict, std::move(what), std::move(fix)});
  }

  std::string socket() const {
    return arguments_.has("socket") ? arguments_.value("socket") : default_socket_path();
  }

  void socket_directory() {
    const std::string path = socket();
    const Status status = check_socket_dir(path, trusted_users());
    if (status.ok() || status.code() == ErrorCode::NOT_FOUND)
      add("socket", Verdict::ok, path + (status.ok() ? "" : " (its directory will be made)"));
    else
      add("socket", Verdict::fail, status.message(), "or set QUERN_SOCKET to a path in a directory of yours");
  }

  void daemon_program() {
    const Result<std::string> program = find_daemon();
    if (program)
      add("daemon program", Verdict::ok, *program);
    else
      add("daemon program", Verdict::warn, program.status().message(),
          "install quernd beside quern, or set QUERN_DAEMON to it");
  }

  void config_file() {
    const std::string path = default_config_path();
    if (access(path.c_str(), R_OK) == 0)
      add("configuration", Verdict::ok, path);
    else if (errno == ENOENT || errno == ENOTDIR)
      add("configuration", Verdict::ok, path + " does not exist: defaults hold");
    else
      add("configuration", Verdict::fail, path + ": " + std::strerror(errno),
          "make it readable: chmod u+r " + path);
  }

  void daemon() {
    Result<Session> session = open_session(arguments_);
    if (!session) {
      const bool only_asleep = arguments_.has("no-start") && session.status().code() == ErrorCode::NO_DAEMON;
      add("daemon", only_asleep ? Verdict::warn : Verdict::fail, session.status().message(),
          only_asleep ? "it starts with the first request, or run: quernd"
                      : "run quernd by hand to see what it says");
      return;
    }
    const wire::Welcome welcome = session->client->welcome();
    const bool same = welcome.software == "quernd " QUERN_PACKAGE_VERSION;
    add("daemon", same ? Verdict::ok : Verdict::warn,
        welcome.software + ", process " + std::to_string(welcome.pid),
        same ? "" : "this is quern " QUERN_PACKAGE_VERSION "; restart the daemon: quern stop");
    Result<wire::StatsReply> stats = session->ask<wire::StatsReply>(wire::Stats{1});
    if (!stats)
      return add("daemon statistics", Verdict::fail, stats.status().message(),
                 "restart the daemon: quern stop");
    for (const wire::Fact& fact : stats->facts) {
      if (fact.name == "socket") socket_of_daemon(fact.text);
      if (fact.name == "cache_dir") cache_dir_ = fact.text;
      if (fact.name == "log") add("log", Verdict::ok, fact.text);
      if (fact.name == "toolchain") toolchain_ = fact.text;
      if (fact.name == "store") store(fact.text);
      if (fact.name == "store_write" && store_writes_) store_write(fact.text);
      if (fact.name == "store_rescue") store_rescue(fact.text);
      if (fact.name == "compiler") compiler(fact.text);
      if (fact.name == "fleet") fleet(fact.text);
      if (fact.name == "measure" && fact.text == "never")
        add("measuring", Verdict::ok, "turned off (measure = never)");
      if (fact.name.rfind("gpu ", 0) == 0) measuring(fact.name, fact.text);
    }
    for (const wire::Counter& counter : stats->counters)
      if (counter.name == "failed_commits" && counter.value > 0)
        add("writes", Verdict::warn,
            std::to_string(counter.value) + " writes have failed since the daemon started",
            "its log says why: quern stats names the file");
  }

  // The same place may have several names.
  static bool same_file(const std::string& a, const std::string& b) {
    std::error_code error;
    return std::filesystem::equivalent(a, b, error) ||
           std::filesystem::absolute(a).lexically_normal() == std::filesystem::absolute(b).lexically_normal();
  }

  void socket_of_daemon(const std::string& path) {
    if (!same_file(path, socket()))
      add("daemon's socket", Verdict::warn, path + ", but this program connects to " + socket(),
          "the socket was moved or is another daemon's; run: quern stop");
  }

  void store_write(const std::string& text) {
    const bool ok = text == "ok";
    add("store write", ok ? Verdict::ok : Verdict::fail, ok ? "a record was written and read back" : text,
        ok ? "" : "hits work, new plans are not kept; fix that, then: quern stop");
  }

  // What was set aside stays until somebody has taken note of it.
  void store_rescue(const std::string& text) {
    std::error_code none;
    bool aside = false;
    for (const auto& file : std::filesystem::directory_iterator(cache_dir_, none))
      aside = aside || file.path().filename().string().find(".damaged-") != std::string::npos;
    add("store damage", aside ? Verdict::warn : Verdict::ok, text,
        aside ? "look after the disk; then: rm " + cache_dir_ + "/*.damaged-*" : "");
  }

  void store(const std::string& text) {
    store_writes_ = text == "read-write";
    if (store_writes_) return add("store", Verdict::ok, text);
    const bool none = text.rfind("none", 0) == 0;
    add("store", none ? Verdict::fail : Verdict::warn, text,
        none ? "plans are compiled anew for each daemon; fix the cache directory, then: quern stop"
             : "hits work, new plans are not kept; make the cache directory writable, then: quern stop");
  }

  void compiler(const std::string& text) {
    if (text == "ready" || text == "starting") return add("daemon's compiler", Verdict::ok, text);
    add("daemon's compiler", Verdict::fail, text,
        "hits work, misses do not; fix NVRTC (below), then: quern stop");
  }

  void measuring(const std::string& name, const std::string& text) {
    const bool none = text.rfind("none", 0) == 0;
    add("measuring on " + name, none ? Verdict::warn : Verdict::ok, text,
        none ? "plans are ranked by the cost model only; they are measured where the cache is used with a GPU"
             : "");
  }

  void fleet(const std::string& text) {
    const bool up = text.ends_with(": up");
    add("fleet", up ? Verdict::ok : Verdict::warn, text,
        up ? "" : "plans are made here until the server is back; see the setting fleet and the server's log");
  }

  void cache_directory() {
    const std::string path = cache_dir_.empty() ? default_cache_dir() : cache_dir_;
    struct stat info;
    const bool found = stat(path.c_str(), &info) == 0;
    // What a service keeps for others is its own business: whether it can write was tried above.
    if (!cache_dir_.empty() && (found ? info.st_uid != geteuid() : errno == EACCES))
      return add("cache", Verdict::ok, path + ", of the user that runs the daemon");
    if (!found) {
      const bool missing = errno == ENOENT;
      return add("cache", missing ? Verdict::ok : Verdict::fail,
                 path + ": " + (missing ? "will be made" : std::strerror(errno)),
                 missing ? "" : "set QUERN_CACHE_DIR to a directory of yours");
    }
    if (!S_ISDIR(info.st_mode))
      return add("cache", Verdict::fail, path + " is not a directory", "remove it, or set QUERN_CACHE_DIR");
    if (access(path.c_str(), W_OK | X_OK) != 0)
      return add("cache", Verdict::fail, path + " cannot be written",
                 "chmod u+rwx " + path + ", or set QUERN_CACHE_DIR");
    if (info.st_mode & (S_IWGRP | S_IWOTH))
      return add("cache", Verdict::warn, "others can write to " + path, "chmod go-w " + path);
    struct statvfs disk;
    if (statvfs(path.c_str(), &disk) != 0)
      return add("cache", Verdict::warn, path + ": " + std::strerror(errno));
    const uint64_t free_bytes = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    constexpr uint64_t kLittle = uint64_t{1} << 30;
    if (!cache_dir_.empty() && std::getenv("QUERN_CACHE_DIR") && !same_file(cache_dir_, default_cache_dir()))
      add("daemon's cache", Verdict::warn,
          cache_dir_ + ", but QUERN_CACHE_DIR is " + default_cache_dir() + " here",
          "a daemon reads it when it starts; to have it start anew with this one: quern stop");
    add("cache", free_bytes < kLittle ? Verdict::warn : Verdict::ok,
        path + ", " + human_bytes(free_bytes) + " free on its disk",
        free_bytes < kLittle ? "make room, or set QUERN_CACHE_DIR to another disk" : "");
  }

  void nvrtc() {
    const Result<std::unique_ptr<Compiler>> compiler = open_nvrtc("");
    if (compiler && !toolchain_.empty() && toolchain_ != (*compiler)->fingerprint())
      add("NVRTC", Verdict::warn,
          (*compiler)->fingerprint() + "\nthe daemon compiles with another one: " + toolchain_,
          "plans of one are misses for the other; to have the daemon start with this one: quern stop");
    else if (compiler)
      add("NVRTC", Verdict::ok, (*compiler)->fingerprint());
    else
      add("NVRTC", Verdict::fail, compiler.status().message(),
          "install a CUDA toolkit of version 12.4 or later, or set QUERN_NVRTC to libnvrtc.so or its folder");
  }

  void driver() {
    const Result<std::shared_ptr<const Driver>> driver = Driver::open();
    if (!driver)
      return add("GPU", Verdict::warn, driver.status().message(),
                 "needed only to launch kernels; without one name targets with --target, and quern run uses "
                 "the emulator");
    const int version = (*driver)->version();
    add("CUDA driver", Verdict::ok,
        (*driver)->path() + ", CUDA " + std::to_string(version / 1000) + "." +
            std::to_string(version % 1000 / 10));
    for (int i = 0; i < (*driver)->device_count(); ++i) {
      const Result<DeviceInfo> device = (*driver)->device(i);
      if (!device) {
        add("GPU " + std::to_string(i), Verdict::fail, device.status().message(), "see what nvidia-smi says");
        continue;
      }
      const Result<const Target*> target = target_for_device(device->major, device->minor);
      add("GPU " + std::to_string(i), target ? Verdict::ok : Verdict::warn,
          device->name + ", " + human_bytes(device->memory_bytes) + ", " +
              (target ? (*target)->name : target.status().message()),
          target ? "" : "this version of Quern makes no kernels for it");
    }
  }

  void emulator() {
    const char* variable = std::getenv("CXX");
    const std::string name = variable && *variable ? variable : "g++";
    const bool found = std::system(("command -v " + quoted(name) + " >/dev/null 2>&1").c_str()) == 0;
    add("emulator", found ? Verdict::ok : Verdict::warn,
        found ? "compiles with " + name : "there is no " + name,
        found ? "" : "needed only by quern run without a GPU; install g++, or set CXX");
  }

  static std::string quoted(const std::string& word) {
    std::string text = "'";
    for (char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
  }

  void limits() {
    rlimit files{}, space{};
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_AS, &space);
    constexpr rlim_t kFiles = 256;
    if (files.rlim_cur < kFiles)
      add("open files", Verdict::warn, "at most " + std::to_string(files.rlim_cur),
          "each client of the daemon takes one; raise it: ulimit -n 1024");
    else
      add("open files", Verdict::ok,
          files.rlim_cur == RLIM_INFINITY ? "no limit" : "at most " + std::to_string(files.rlim_cur));
    if (space.rlim_cur != RLIM_INFINITY)
      add("address space", Verdict::warn, "at most " + human_bytes(space.rlim_cur),
          "the cache maps its whole file; lift the limit: ulimit -v unlimited");
    else
      add("address space", Verdict::ok, "no limit");
  }

  const Arguments& arguments_;
  std::vector<Finding> findings_;
  std::string cache_dir_, toolchain_;  // the daemon's
  bool store_writes_ = false;
};

int run_doctor(const Arguments& arguments) {
  const std::vector<Finding> findings = Doctor(arguments).examine();
  bool healthy = true;
  Json rows = Json::array();
  size_t width = 0;
  for (const Finding& finding : findings) {
    healthy = healthy && finding.verdict != Verdict::fail;
    width = std::max(width, finding.name.size());
    rows.push_back({{"name", finding.name},
                    {"verdict", verdict_name(finding.verdict)},
                    {"what", finding.what},
                    {"fix", finding.fix}});
  }
  if (arguments.json()) {
    print_json({{"healthy", healthy}, {"findings", rows}});
    return healthy ? kExitOk : kExitNo;
  }
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Finding& finding : findings) {
    const std::string name = std::string(verdict_name(finding.verdict)) +
                             std::string(6 - std::strlen(verdict_name(finding.verdict)), ' ') + finding.name;
    lines.emplace_back(name, finding.what + (finding.fix.empty() ? "" : "\n-> " + finding.fix));
  }
  print_text(facts_text(lines));
  return healthy ? kExitOk : kExitNo;
}

}  // namespace

const Command Commands::kDoctorCommand = {
    "doctor",
    "",
    0,
    0,
    "check socket, daemon, cache, compiler, driver and limits",
    "Looks at everything Quern needs and prints a line each: ok, warn (something is missing that not\n"
    "everybody needs) or fail, and below it how to fix it. It starts the daemon as any request would.\n"
    "Exit code 1 means that something fails.\n",
    true,
    {},
    run_doctor,
};

}  // namespace quern
