#include "capi/start.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "capi/wire/paths.h"

namespace quern {

namespace {

using std::chrono::steady_clock;

std::string folder_of(const std::string& file) { return file.substr(0, file.rfind('/')); }

// The folders of the file that holds this code (libquern.so, or the program it is linked into) and of the
// program.
std::vector<std::string> own_folders() {
  std::vector<std::string> folders;
  char real[PATH_MAX];
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&find_daemon), &info) && realpath(info.dli_fname, real))
    folders.push_back(folder_of(real));
  if (realpath("/proc/self/exe", real)) folders.push_back(folder_of(real));
  return folders;
}

bool is_program(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::vector<std::string> places() {
  std::vector<std::string> places;
  for (const std::string& folder : own_folders())
    for (const char* relative : {"/", "/../bin/", "/../../bin/", "/../daemon/"})
      places.push_back(folder + relative + "quernd");
  const char* path = getenv("PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    // An empty part would mean the current folder, where nothing should be started from by accident.
    if (colon > 0) places.push_back(std::string(rest.substr(0, colon)) + "/quernd");
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return places;
}

Status no_daemon(std::string message) { return Status(ErrorCode::NO_DAEMON, std::move(message)); }

// What the child needs, made before the fork: between fork and exec only async-signal-safe calls are allowed,
// since another thread may hold any lock.
struct Spawn {
  std::string program;
  std::vector<std::string> environment;
  std::vector<char*> argv, envp;
  int complaints = -1;

  Spawn(const std::string& path, const std::string& socket, int errors) : program(path), complaints(errors) {
    const std::string variable = "QUERN_SOCKET=";
    for (char** entry = environ; *entry; ++entry)
      if (std::strncmp(*entry, variable.c_str(), variable.size()) != 0) environment.push_back(*entry);
    environment.push_back(variable + socket);
    for (std::string& entry : environment) envp.push_back(entry.data());
    envp.push_back(nullptr);
    argv = {program.data(), nullptr};
  }

  // In the grandchild. Returns errno.
  int execute() const {
    const int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
        dup2(complaints >= 0 ? complaints : null, 2) < 0)
      return errno;
    close_range(
        3, ~0u,
        CLOSE_RANGE_CLOEXEC);  // without it the program's own descriptors leak; older kernels have none
    for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(program.c_str(), argv.data(), envp.data());
    return errno;
  }
};

// What the grandchild reports before it becomes the daemon: its pid, then an errno only if exec failed.
struct Report {
  pid_t pid = 0;
  int error = 0;
};

[[noreturn]] void run_child(const Spawn& spawn, int report) {
  setsid();
  if (fork() != 0) _exit(0);
  const pid_t pid = getpid();
  int error = write(report, &pid, sizeof pid) == sizeof pid ? spawn.execute() : errno;
  if (write(report, &error, sizeof error) < 0) error = 0;
  _exit(127);
}

bool read_fully(int fd, void* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = read(fd, static_cast<char*>(data) + done, size - done);
    if (got == 0 || (got < 0 && errno != EINTR)) return false;
    if (got > 0) done += static_cast<size_t>(got);
  }
  return true;
}

// Forks twice, so that the daemon is nobody's child: no zombie, no SIGCHLD for the program. Returns its pid.
Result<pid_t> spawn_daemon(const std::string& program, const std::string& socket, int complaints) {
  const Spawn spawn(program, socket, complaints);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return Status(ErrorCode::IO, std::string("cannot make a pipe: ") + std::strerror(errno));
  Descriptor read_end(ends[0]);
  pid_t child;
  {
    Descriptor write_end(ends[1]);
    child = fork();
    if (child == 0) run_child(spawn, ends[1]);
  }
  if (child < 0) return Status(ErrorCode::IO, std::string("cannot fork: ") + std::strerror(errno));
  // ECHILD when the program ignores SIGCHLD: then nobody is left to wait for.
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  Report report;
  if (!read_fully(read_end.get(), &report.pid, sizeof report.pid))
    return no_daemon("cannot start " + program + ": no process could be made");
  if (read_fully(read_end.get(), &report.error, sizeof report.error))
    return no_daemon("cannot start " + program + ": " + std::strerror(report.error));
  return report.pid;
}

// Where quernd complains until it goes into the background, where it has a log file of its own.
Descriptor make_complaints() { return Descriptor(memfd_create("quernd", MFD_CLOEXEC)); }

// The last 600 bytes of them.
std::string last_words(const Descriptor& complaints) {
  const off_t end = complaints.valid() ? lseek(complaints.get(), 0, SEEK_END) : 0;
  std::string text(static_cast<size_t>(std::clamp<off_t>(end, 0, 600)), 0);
  const ssize_t got =
      pread(complaints.get(), text.data(), text.size(), end - static_cast<off_t>(text.size()));
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "" : "; it wrote: " + text;
}

// Sleeps a little longer each time; false when the wait is over.
bool sleep_before(const Wait& wait, std::chrono::microseconds& pause) {
  const auto now = steady_clock::now();
  if (now >= wait.deadline || wait.cancelled()) return false;
  std::this_thread::sleep_for(std::min<steady_clock::duration>(pause, wait.deadline - now));
  pause = std::min(pause * 2, std::chrono::microseconds(20000));
  return true;
}

// Starts the daemon and waits until it accepts. The caller holds the lock.
Result<Descriptor> start_daemon(const std::string& program, const std::string& socket, const Wait& wait) {
  const Descriptor complaints = make_complaints();
  Result<pid_t> pid = spawn_daemon(program, socket, complaints.get());
  if (!pid) return pid.status();
  std::chrono::microseconds pause(500);
  for (;;) {
    // Asked before connecting: a daemon that ends because another one got ahead of it has left that one
    // behind.
    const bool ended = kill(*pid, 0) != 0 && errno == ESRCH;
    Result<Descriptor> connected = connect_socket(socket);
    if (connected || connected.status().code() != ErrorCode::NO_DAEMON) return connected;
    if (ended)
      return no_daemon("started " + program + ", which ended before it listened at " + socket +
                       last_words(complaints));
    if (!sleep_before(wait, pause))
      return no_daemon("started " + program + " (process " + std::to_string(*pid) +
                       "), which did not listen in time at " + socket + last_words(complaints));
  }
}

// Takes the lock, or gets a connection because somebody else has started the daemon meanwhile.
Result<Descriptor> lock_and_start(const std::string& program, const std::string& socket, const Wait& wait) {
  const std::string path = socket + ".start";
  Descriptor lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return no_daemon("cannot open the lock file " + path + ": " + std::strerror(errno));
  std::chrono::microseconds pause(500);
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return no_daemon("cannot lock " + path + ": " + std::strerror(errno));
    Result<Descriptor> connected = connect_socket(socket);
    if (connected || connected.status().code() != ErrorCode::NO_DAEMON) return connected;
    if (!sleep_before(wait, pause))
      return no_daemon("another process is starting the daemon at " + socket +
                       " and did not succeed in time");
  }
  Result<Descriptor> connected = connect_socket(socket);
  if (connected || connected.status().code() != ErrorCode::NO_DAEMON) return connected;
  return start_daemon(program, socket, wait);
}

std::string absolute(const std::string& path) { return std::filesystem::absolute(path).string(); }

}  // namespace

Result<std::string> find_daemon() {
  if (const char* named = getenv("QUERN_DAEMON"); named && *named) {
    if (is_program(named)) return absolute(named);
    return no_daemon(std::string("$QUERN_DAEMON is not a program: ") + named);
  }
  std::string tried;
  for (const std::string& place : places()) {
    if (is_program(place)) return absolute(place);
    tried += "\n  " + place;
  }
  return no_daemon("no daemon runs, and quernd was not found; set QUERN_DAEMON to its path. Tried:" + tried);
}

Result<Descriptor> connect_daemon(const DaemonOptions& options, const Wait& wait) {
  const std::string socket = options.socket.empty() ? default_socket_path() : options.socket;
  Result<Descriptor> connected = connect_socket(socket);
  if (connected || connected.status().code() != ErrorCode::NO_DAEMON) return connected;
  if (!options.start) return no_daemon(connected.status().message() + "; starting one was turned off");
  if (const char* off = getenv("QUERN_NO_START"); off && *off && std::strcmp(off, "0") != 0)
    return no_daemon(connected.status().message() + "; QUERN_NO_START keeps programs from starting one");
  Result<std::string> program =
      options.program.empty() ? find_daemon() : Result<std::string>(absolute(options.program));
  if (!program) return program.status().with_context(socket);
  if (Status status = make_socket_dir(socket); !status.ok()) return status;
  Result<Descriptor> started = lock_and_start(*program, absolute(socket), wait);
  if (!started && wait.cancelled()) return Status(ErrorCode::CANCELLED, "starting the daemon was cancelled");
  return started;
}

}  // namespace quern
