#include "tools/session.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "capi/time_limit.h"
#include "core/base/numerics.h"
#include "core/base/target.h"
#include "core/graph/text.h"
#include "core/jit/driver.h"
#include "tools/output.h"

namespace quern {

namespace {

using std::chrono::steady_clock;

Status file_error(const std::string& path) {
  const ErrorCode code = errno == ENOENT ? ErrorCode::NOT_FOUND : ErrorCode::IO;
  return Status(code, path + ": " + std::strerror(errno));
}

}  // namespace

uint32_t Session::milliseconds_left() const {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
  return left < 1 ? 1 : daemon_limit_ms(static_cast<uint32_t>(left));
}

Result<Session> open_session(const Arguments& arguments) {
  constexpr int64_t kDay = 86400;
  Result<int64_t> seconds = arguments.integer("timeout", 60, 1, 30 * kDay);
  if (!seconds) return seconds.status();
  ClientOptions options;
  options.daemon.socket = arguments.value("socket");
  options.daemon.start = !arguments.has("no-start");
  Result<std::unique_ptr<Client>> client = Client::open(std::move(options));
  if (!client) return client.status();
  return Session{std::move(*client), steady_clock::now() + std::chrono::seconds(*seconds)};
}

Result<std::string> read_file(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (!file)
    return path.empty() ? Status(ErrorCode::NOT_FOUND, "the name of the file is empty") : file_error(path);
  std::string bytes;
  char chunk[65536];
  size_t got;
  while ((got = std::fread(chunk, 1, sizeof chunk, file)) > 0) bytes.append(chunk, got);
  const bool bad = std::ferror(file);
  Status status = bad ? file_error(path) : Status();
  if (file != stdin) std::fclose(file);
  if (!status.ok()) return status;
  return bytes;
}

Status write_file(const std::string& path, std::string_view bytes) {
  if (path == "-") {
    const bool written = std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size();
    leave_standard_output();
    return written ? Status()
                   : Status(ErrorCode::IO, std::string("standard output: ") + std::strerror(errno));
  }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return Status(ErrorCode::IO, path + ": " + std::strerror(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written) return Status(ErrorCode::IO, path + ": " + std::strerror(errno));
  return {};
}

Status in_file(const Status& status, const std::string& path) {
  const std::string& message = status.message();
  const bool line = !message.empty() && message[0] >= '0' && message[0] <= '9';
  return Status(status.code(), (path == "-" ? "standard input" : path) + (line ? ":" : ": ") + message);
}

Result<GraphFile> read_graph(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text) return text.status();
  Result<Graph> graph = parse_graph(*text);
  if (!graph) return in_file(graph.status(), path);
  return GraphFile{std::move(*text), std::move(*graph)};
}

Result<Schedule> read_schedule(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text) return text.status();
  Result<Schedule> schedule = parse_schedule(*text);
  return schedule ? schedule : in_file(schedule.status(), path);
}

Result<std::string> choose_target(const Arguments& arguments) {
  if (arguments.has("target")) {
    Result<const Target*> target = find_target(arguments.value("target"));
    if (!target) return target.status();
    return std::string((*target)->name);
  }
  Result<std::shared_ptr<const Driver>> driver = Driver::open();
  if (driver) {
    Result<DeviceInfo> device = (*driver)->device(0);
    if (!device) return device.status();
    Result<const Target*> target = target_for_device(device->major, device->minor);
    if (!target) return target.status();
    return std::string((*target)->name);
  }
  return Status(ErrorCode::INVALID_ARGUMENT,
                "there is no GPU here to take the target from; name one, such as --target sm_90a (quern help "
                "targets lists them)");
}

uint32_t numerics_of(const Arguments& arguments) { return arguments.has("tf32") ? kAllowTf32 : 0; }

Result<Tier> tier_of(const Arguments& arguments) {
  return arguments.has("wait-tier") ? tier_named(arguments.value("wait-tier"), "--wait-tier")
                                    : Tier::baseline;
}

Result<Tier> tier_named(const std::string& name, const std::string& option) {
  for (Tier tier : {Tier::baseline, Tier::modelled, Tier::measured})
    if (name == tier_name(tier)) return tier;
  return Status(ErrorCode::INVALID_ARGUMENT,
                option + " takes baseline, modelled or measured, not \"" + name + "\"");
}

Status each_row(Session& session, Hash128 after, const std::function<bool(wire::ListRow&)>& visit) {
  for (;;) {
    Result<wire::ListReply> reply = session.ask<wire::ListReply>(wire::List{after, 0});
    if (!reply) return reply.status();
    for (wire::ListRow& row : reply->rows) {
      after = row.key;
      if (!visit(row)) return {};
    }
    if (!reply->more || reply->rows.empty()) return {};
  }
}

Result<Hash128> find_key(Session& session, const std::string& digits) {
  if (std::optional<Hash128> key = parse_hash(digits)) return *key;
  if (digits.size() < 4 || digits.size() > 31 ||
      digits.find_first_not_of("0123456789abcdef") != std::string::npos)
    return Status(
        ErrorCode::INVALID_ARGUMENT,
        "\"" + digits + "\" is no key: 32 lower-case hexadecimal digits, or at least the first 4 of them");
  // Rows come in the order of keys, so those that begin with the digits follow on the key before the first of
  // them.
  Hash128 after = *parse_hash(digits + std::string(32 - digits.size(), '0'));
  if (after.low-- == 0) after.high -= after.high > 0;
  Result<wire::ListReply> page = session.ask<wire::ListReply>(wire::List{after, 2});
  if (!page) return page.status();
  std::vector<Hash128> found;
  for (const wire::ListRow& row : page->rows)
    if (to_hex(row.key).rfind(digits, 0) == 0) found.push_back(row.key);
  if (found.empty())
    return Status(ErrorCode::NOT_FOUND,
                  "no plan with a key that begins with " + digits + " is stored; see: quern ls");
  if (found.size() > 1)
    return Status(ErrorCode::INVALID_ARGUMENT, "more than one key begins with " + digits + ": " +
                                                   to_hex(found[0]) + ", " + to_hex(found[1]) + ", ...");
  return found[0];
}

}  // namespace quern
