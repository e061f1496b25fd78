#include "core/emulator/temporary_folder.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>

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

void on_signal(int number) {
  for (Slot& slot : slots) {
    if (!slot.taken) continue;
    char file[kMostLength + 16];
    for (const char* name : kFiles) {
      stpcpy(stpcpy(stpcpy(file, slot.path), "/"), name);
      unlink(file);
    }
    rmdir(slot.path);
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

}  // namespace

Result<std::string> make_temporary_folder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string pattern = (parent / "quern-emulator-XXXXXX").string();
  if (error || !mkdtemp(pattern.data()))
    return Status(ErrorCode::IO, "no temporary directory can be made (" +
                                     (error ? error.message() : pattern + ": " + strerror(errno)) +
                                     "): set TMPDIR to one that can be written");
  remember(pattern);
  return pattern;
}

void remove_temporary_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
  for (Slot& slot : slots)
    if (slot.taken && path == slot.path) slot.taken = false;
}

}  // namespace quern::emulated
