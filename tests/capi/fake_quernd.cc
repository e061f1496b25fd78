// The fake daemon as a program, for tests of starting one: it listens at $QUERN_SOCKET until SIGTERM. With
// $FAKE_QUERND_PIDS each start appends a line to that file. $FAKE_QUERND_FAILS makes it complain and exit;
// $FAKE_QUERND_SLOW_MS makes it slow to listen.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/capi/fake_daemon.h"

int main() {
  const char* socket = getenv("QUERN_SOCKET");
  if (!socket || getenv("FAKE_QUERND_FAILS")) {
    fprintf(stderr, "fake quernd: fails as it was told to\n");
    return 3;
  }
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  if (const char* pids = getenv("FAKE_QUERND_PIDS")) {
    const std::string line = std::to_string(getpid()) + "\n";
    const int fd = open(pids, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line.data(), line.size()) < 0) return 4;
    close(fd);
  }
  if (const char* slow = getenv("FAKE_QUERND_SLOW_MS")) usleep(static_cast<useconds_t>(atoi(slow)) * 1000);
  const quern::FakeDaemon daemon(socket);
  int signal = 0;
  sigwait(&term, &signal);
  return 0;
}
