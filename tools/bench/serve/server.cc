#include "tools/bench/serve/server.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tools/bench/serve/load.h"

namespace quern::serve {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  return cores;
}

void run_on(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  if (!cores.empty()) sched_setaffinity(0, sizeof set, &set);
}

Server::Server(const std::vector<std::string>& command, std::string socket, const std::vector<int>& cores)
    : socket_(std::move(socket)) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_on(cores);
    const int null = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) dup2(null, fd);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  for (int tries = 0; tries < 60000; ++tries) {
    if (const int fd = connect_to(socket_); fd >= 0) {
      start_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      close(fd);
      return;
    }
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) die(command[0] + " has ended");
    usleep(500);
  }
  die(command[0] + " does not listen at " + socket_);
}

Server::~Server() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

Memory Server::memory() const {
  std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
  Memory memory;
  double kib = 0;
  for (std::string word; in >> word;) {
    if (word == "VmRSS:" && in >> kib) memory.resident_mib = kib / 1024;
    if (word == "RssAnon:" && in >> kib) memory.beyond_maps_mib = kib / 1024;
  }
  return memory;
}

double Server::cpu_us() const {
  double us = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task")) {
    double ns = 0;
    std::ifstream(task.path() / "schedstat") >> ns;
    us += ns / 1000;
  }
  return us;
}

}  // namespace quern::serve
