#include "daemon/worker.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>

#include "capi/wire/frame.h"

namespace quern {

namespace {

void set_limit(decltype(RLIMIT_CPU) resource, uint64_t soft) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? soft : std::min<rlim_t>(soft, limit.rlim_max);
  setrlimit(resource, &limit);
}

// RLIMIT_CPU counts from the start of the process, so each job sets it anew.
void allow_cpu(uint64_t seconds) {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  set_limit(RLIMIT_CPU, static_cast<uint64_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1 + seconds);
}

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// The next frame; nothing at the end of the stream or when it is no good.
std::optional<wire::Frame> receive(int socket, wire::FrameReader& reader) {
  char buffer[65536];
  for (;;) {
    auto frame = reader.next();
    if (!frame) return std::nullopt;
    if (*frame) return **frame;
    const ssize_t size = recv(socket, buffer, sizeof buffer, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::nullopt;
    reader.append({buffer, static_cast<size_t>(size)});
  }
}

// A search works on as many processors as it likes for as long as its budget says.
uint64_t cpu_seconds(const WorkerLimits& limits, const wire::Job& job) {
  return limits.cpu_seconds + job.budget_ms / 1000 * std::max(std::thread::hardware_concurrency(), 1u);
}

std::string answer(int socket, const WorkerSkill& skill, const WorkerLimits& limits,
                   const wire::Frame& frame) {
  const uint64_t request = frame.request;
  auto job = wire::decode_as<wire::Job>(frame);
  if (!job) return wire::encode(request, wire::to_error(job.status()));
  if (limits.cpu_seconds > 0) allow_cpu(cpu_seconds(limits, *job));
  // When the daemon is gone the answer cannot be sent either, and that ends the worker.
  auto done = skill.run(*job, [socket, request](const wire::JobProgress& progress) {
    if (const std::string encoded = wire::encode(request, progress); wire::fits(encoded))
      send_all(socket, encoded);
  });
  if (!done) return wire::encode(request, wire::to_error(done.status()));
  std::string encoded = wire::encode(request, *done);
  if (wire::fits(encoded)) return encoded;
  return wire::encode(
      request, wire::to_error(Status(ErrorCode::LIMIT, "the plan has " + std::to_string(encoded.size()) +
                                                           " bytes, more than a frame can hold")));
}

}  // namespace

int run_worker(int socket, const WorkerSkill& skill, const WorkerLimits& limits) {
  set_limit(RLIMIT_CORE, 0);
  if (limits.memory_bytes > 0) set_limit(RLIMIT_AS, limits.memory_bytes);
  wire::WorkerHello hello;
  hello.version = wire::kProtocolVersion;
  hello.toolchain = skill.toolchain;
  hello.reason = skill.reason;
  hello.device = skill.gpu.device;
  hello.target = skill.gpu.target;
  hello.devices = skill.gpus;
  hello.no_device = skill.gpu.reason;
  if (!send_all(socket, wire::encode(0, hello))) return 1;
  if (!skill.useful()) return 0;
  wire::FrameReader reader;
  while (const auto frame = receive(socket, reader)) {
    if (!send_all(socket, answer(socket, skill, limits, *frame))) return 1;
  }
  return 0;
}

}  // namespace quern
