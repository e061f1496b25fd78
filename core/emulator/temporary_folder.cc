#include "core/emulator/temporary_folder.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <random>

namespace quern::emulated {

namespace {

// What a signal handler may look at: no allocation, no locks. Folders beyond these stay when a signal comes.
constexpr size_t kMostFolders = 256, kMostLength = 256;
struct Slot {
  std::atomic<bool> taken;
  char path[kMostLength];
};
Slot slots[kMostFolders];

// The files that compile.cc puts there.
constexpr const char* kFiles[] = {"programs.cc", "programs.so", "log"};

void remove_files(const char* folder) {
  char file[kMostLength + 16];
  for (const char* name : kFiles) {
    stpcpy(stpcpy(stpcpy(file, folder), "/"), name);
    unlink(file);
  }
}

// Another thread or the compiler, which the same signal ends, may still put a file there.
void on_signal(int number) {
  constexpr int kMostTries = 1000;
  for (Slot& slot : slots) {
    if (!slot.taken) continue;
    for (int i = 0; i < kMostTries; ++i) {
      remove_files(slot.path);
      if (rmdir(slot.path) == 0 || errno != ENOTEMPTY) break;
      usleep(1000);
    }
  }
  signal(number, SIG_DFL);
  raise(number);
}

void handle_signals() {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now;
    if (sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    now = {};
    now.sa_handler = on_signal;
    sigaction(number, &now, nullptr);
  }
}

void remember(const std::string& path) {
  static std::mutex mutex;
  static std::once_flag handled;
  std::call_once(handled, handle_signals);
  if (path.size() >= kMostLength) return;
  std::lock_guard lock(mutex);
  for (Slot& slot : slots) {
    if (slot.taken) continue;
    std::strcpy(slot.path, path.c_str());
    slot.taken = true;
    return;
  }
}

void forget(const std::string& path) {
  for (Slot& slot : slots)
    if (slot.taken && path == slot.path) slot.taken = false;
}

}  // namespace

// A name is remembered before its folder is made: a signal at any time finds every folder that is there. (So
// no mkdtemp, which tells the name too late.)
Result<std::string> make_temporary_folder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string path;
  std::random_device random;
  while (!error) {
    path =
        (parent / ("quern-emulator-" + std::to_string(getpid()) + "-" + std::to_string(random()))).string();
    remember(path);
    if (mkdir(path.c_str(), 0700) == 0) return path;
    const int code = errno;
    forget(path);
    if (code != EEXIST) error.assign(code, std::generic_category());
  }
  return Status(ErrorCode::IO, "no temporary directory can be made (" + (path.empty() ? "" : path + ": ") +
                                   error.message() + "): set TMPDIR to one that can be written");
}

void remove_temporary_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  forget(path);
}

}  // namespace quern::emulated
