// quernd: reads the settings, goes into the background unless told not to, and serves.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "capi/wire/paths.h"
#include "daemon/server.h"

namespace quern {

namespace {

constexpr int kCannotStart = 1, kBadSetting = 2, kAnotherDaemon = 3;

int complain(const Status& status, int exit_status) {
  std::fprintf(stderr, "quernd: %s\n", status.message().c_str());
  return exit_status;
}

// The parent waits until the daemon says through the pipe how its start went, and exits with that: whoever
// started quernd can connect as soon as it returns.
class Background {
 public:
  void enter() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::exit(complain(Status(ErrorCode::IO, "no pipe"), kCannotStart));
    const pid_t child = fork();
    if (child < 0) std::exit(complain(Status(ErrorCode::IO, "cannot fork"), kCannotStart));
    if (child > 0) {
      close(ends[1]);
      char status = kCannotStart;
      const bool told = read(ends[0], &status, 1) == 1;
      _exit(told ? status : kCannotStart);
    }
    close(ends[0]);
    pipe_ = ends[1];
    setsid();
    if (fork() != 0) _exit(0);  // no terminal can be acquired any more
    if (chdir("/") != 0) std::exit(complain(Status(ErrorCode::IO, "cannot enter /"), kCannotStart));
    leave_terminal();
  }
  void report(const Status& status, int exit_status) {
    if (!status.ok()) dprintf(errors_, "quernd: %s\n", status.message().c_str());
    close(errors_);
    const char byte = static_cast<char>(exit_status);
    [[maybe_unused]] const ssize_t size = write(pipe_, &byte, 1);
    close(pipe_);
  }

 private:
  // Before anything is started: a process that inherited them would keep whoever reads them waiting.
  void leave_terminal() {
    errors_ = fcntl(2, F_DUPFD_CLOEXEC, 3);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd : {0, 1, 2}) dup2(null, fd);
    close(null);
  }

  int errors_ = -1;  // the caller's standard error, for why the daemon could not start
  int pipe_ = -1;
};

Status prepare(Options& options, Log& log) {
  auto inherited = inherited_socket(options.socket);
  if (!inherited) return inherited.status();
  options.listening = *inherited;
  // Whoever hands over a socket watches the process, too.
  options.foreground = options.foreground || options.listening >= 0;
  log.set_level(options.log_level);
  log.set_json(options.log_json);
  log.set_limit(options.log_bytes);
  const bool named = !options.log_file.empty();
  if (!options.foreground && !named) options.log_file = options.cache_dir + "/quernd.log";
  if (options.log_file.empty()) return {};
  // A cache directory that cannot be made leaves a daemon that keeps nothing; that alone must not keep it
  // from starting.
  if (Status made = make_dirs(options.log_file.substr(0, options.log_file.rfind('/'))); !made.ok())
    log.warning(made.message());
  const Status status = log.open_file(options.log_file);
  // Whoever names a log wants one.
  if (named || options.foreground) return status;
  if (!status.ok()) log.warning(status.message());
  return {};
}

int serve(const Options& options, Log& log, Background* background) {
  Server server(options, &log);
  const Status status = server.start();
  const int exit_status = status.ok() ? 0 : status.code() == ErrorCode::BUSY ? kAnotherDaemon : kCannotStart;
  if (background)
    background->report(status, exit_status);
  else if (!status.ok())
    complain(status, exit_status);
  if (status.ok()) server.run();
  return exit_status;
}

// Answers of 100 KB and more come and go all the time: to get each from the system and to give it back costs
// a page fault for every 4 KB.
void keep_memory() {
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
}

int run(int argc, char** argv) {
  auto options = parse_options(argc, argv);
  if (!options) return complain(options.status(), kBadSetting);
  if (options->help) return std::fputs(options_help().c_str(), stdout), 0;
  if (options->version) return std::printf("%s\n", kDaemonSoftware), 0;
  options->read_again = [argc, argv, base = options->base] { return parse_options(argc, argv, base); };
  signal(SIGPIPE, SIG_IGN);
  umask(077);
  keep_memory();
  Log log;
  if (Status status = prepare(*options, log); !status.ok()) return complain(status, kCannotStart);
  if (options->foreground) return serve(*options, log, nullptr);
  Background background;
  background.enter();
  return serve(*options, log, &background);
}

}  // namespace

}  // namespace quern

int main(int argc, char** argv) { return quern::run(argc, argv); }
