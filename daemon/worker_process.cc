#include "daemon/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "core/base/process.h"

namespace quern {

namespace {

constexpr int64_t kGreetingLimitMs = 30000;  // loading NVRTC from a cold disk takes seconds
constexpr int64_t kEndLimitMs = 1000;        // from the end of the stream to the end of the process

int64_t now_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// False when `deadline_ms` passes first.
bool wait_for(int fd, short events, int64_t deadline_ms) {
  for (;;) {
    const int64_t left = deadline_ms - now_ms();
    if (left <= 0) return false;
    pollfd wait{fd, events, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 60000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Result<wire::JobDone> decode_so_far(const std::string& bytes) {
  wire::FrameReader reader;
  reader.append(bytes);
  auto frame = reader.next();
  if (!frame) return frame.status();
  if (!*frame) return Status(ErrorCode::PROTOCOL, "there is no frame");
  return wire::decode_as<wire::JobDone>(**frame);
}

}  // namespace

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::spawn(const std::vector<std::string>& command) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return Status(ErrorCode::NO_COMPILER, std::string("no socket for a worker: ") + std::strerror(errno));
  fcntl(pair[0], F_SETFL, O_NONBLOCK);
  pid_t pid = 0;
  // A group of its own: Ctrl-C at the daemon's terminal is for the daemon, which drains.
  const int error = start_process(command, pair[1], ProcessGroup::own, pid);
  close(pair[1]);
  if (error != 0) {
    close(pair[0]);
    return Status(ErrorCode::NO_COMPILER, "cannot start the worker " + command[0] + ": " +
                                              std::strerror(error) +
                                              "; set QUERN_WORKER to the path of quern-worker");
  }
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, pair[0]));
}

WorkerProcess::~WorkerProcess() {
  if (pid_ != 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(fd_);
}

Status WorkerProcess::greet() {
  auto frame = receive(now_ms() + kGreetingLimitMs);
  if (!frame && frame.status().code() == ErrorCode::CANCELLED) return frame.status();
  if (!frame) return Status(ErrorCode::NO_COMPILER, "the worker did not greet: " + frame.status().message());
  auto hello = wire::decode_as<wire::WorkerHello>(*frame);
  if (!hello)
    return Status(ErrorCode::NO_COMPILER, "the worker's greeting is no good: " + hello.status().message());
  if (hello->version != wire::kProtocolVersion)
    return Status(ErrorCode::NO_COMPILER, "the worker speaks protocol version " +
                                              std::to_string(hello->version) + ", not " +
                                              std::to_string(wire::kProtocolVersion) +
                                              "; quernd and quern-worker must be of one release");
  hello_ = std::move(*hello);
  return {};
}

bool WorkerProcess::alive() const {
  // An idle worker has nothing to say, so whatever can be read is the end of its stream.
  pollfd wait{fd_, POLLIN, 0};
  return pid_ != 0 && poll(&wait, 1, 0) == 0;
}

Result<wire::JobDone> WorkerProcess::run(const JobSpec& spec, int64_t limit_ms,
                                         const std::function<void(wire::JobProgress)>& on_progress) {
  const int64_t deadline = now_ms() + limit_ms;
  wire::Job job;
  job.graph = spec.graph;
  job.target = spec.target;
  job.numerics = spec.numerics;
  job.kind = spec.kind;
  job.constraints = spec.constraints;
  job.state = spec.state;
  job.search_ms = spec.search_ms;
  job.keep = spec.keep;
  job.budget_ms = spec.budget_ms;
  job.programs = spec.programs;
  job.standing = spec.standing;
  job.any_load = spec.any_load;
  job.toolchain = spec.toolchain;
  if (Status status = send(wire::encode(++last_request_, job), deadline); !status.ok()) return status;
  return receive_answer(deadline, on_progress);
}

Result<wire::JobDone> WorkerProcess::receive_answer(
    int64_t deadline_ms, const std::function<void(wire::JobProgress)>& on_progress) {
  std::optional<wire::JobDone> so_far;  // what counts if there is no answer in time
  for (;;) {
    auto frame = receive(deadline_ms);
    if (!frame && frame.status().code() == ErrorCode::TIMEOUT && so_far) {
      so_far->timed_out = 1;
      so_far->report += frame.status().message() + "\n";
      return std::move(*so_far);
    }
    if (!frame) return frame.status();
    if (frame->request != last_request_)
      return end(ErrorCode::WORKER, "the worker answered another job; it ");
    if (auto error = wire::decode_as<wire::Error>(*frame); error.ok()) return wire::to_status(*error);
    if (auto progress = wire::decode_as<wire::JobProgress>(*frame); progress.ok()) {
      if (auto done = decode_so_far(progress->so_far); done.ok()) so_far = std::move(*done);
      progress->so_far.clear();
      if (on_progress) on_progress(std::move(*progress));
      continue;
    }
    auto done = wire::decode_as<wire::JobDone>(*frame);
    if (!done)
      return end(ErrorCode::WORKER, "the worker's answer is no good: " + done.status().message() + "; it ");
    return std::move(*done);
  }
}

void WorkerProcess::interrupt() {
  interrupted_ = true;
  shutdown(fd_, SHUT_RDWR);
}

Status WorkerProcess::send(std::string_view bytes, int64_t deadline_ms) {
  while (!bytes.empty()) {
    if (!wait_for(fd_, POLLOUT, deadline_ms)) return end(ErrorCode::WORKER, "the worker took no job and ");
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0)
      bytes.remove_prefix(static_cast<size_t>(sent));
    else if (errno != EINTR && errno != EAGAIN)
      return end(ErrorCode::WORKER, "the worker ");
  }
  return {};
}

Result<wire::Frame> WorkerProcess::receive(int64_t deadline_ms) {
  char buffer[65536];
  for (;;) {
    auto frame = reader_.next();
    if (!frame)
      return end(ErrorCode::WORKER, "the worker sent nonsense: " + frame.status().message() + "; it ");
    if (*frame) return **frame;
    if (!wait_for(fd_, POLLIN, deadline_ms))
      return end(ErrorCode::TIMEOUT, "the worker took longer than it is allowed, and ");
    const ssize_t size = ::recv(fd_, buffer, sizeof buffer, 0);
    if (size > 0)
      reader_.append({buffer, static_cast<size_t>(size)});
    else if (size == 0 || (errno != EINTR && errno != EAGAIN))
      return end(ErrorCode::WORKER, "the worker ");
  }
}

Status WorkerProcess::end(ErrorCode code, const std::string& what) {
  if (pid_ == 0) return Status(code, what + "is gone");
  // One that closed its socket is about to go: how it ends tells more than our signal would.
  pollfd wait{fd_, POLLIN, 0};
  char byte;
  const bool closed = poll(&wait, 1, 0) > 0 && recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
  int status = 0;
  pid_t reaped = 0;
  for (const int64_t limit = now_ms() + (closed && !interrupted_ ? kEndLimitMs : 0);
       !reaped && now_ms() < limit;) {
    reaped = waitpid(pid_, &status, WNOHANG);
    if (!reaped) usleep(1000);
  }
  const bool by_others = reaped && is_killed_by_others(status);
  if (!reaped) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = 0;
  if (by_others) return Status(ErrorCode::CANCELLED, what + describe_end(status) + " from outside");
  return Status(code, what + describe_end(status));
}

}  // namespace quern
