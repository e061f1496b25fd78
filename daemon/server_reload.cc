// Settings that change while the daemon runs.
#include <algorithm>

#include "daemon/server.h"

namespace quern {

namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

}  // namespace

void Server::limit_sessions() {
  SessionLimits limits;
  limits.output_bytes = options_.max_output_bytes;
  limits.frame_ns = limits.output_ns = options_.client_seconds * 1'000'000'000;
  sessions_->set_limits(limits, {max_clients_, options_.allow_uids});
}

// All or nothing: a file with one bad line changes nothing.
Result<wire::Reloaded> Server::reload() {
  if (!options_.read_again)
    return Status(ErrorCode::UNSUPPORTED, "this daemon cannot read its settings again");
  auto fresh = options_.read_again();
  if (!fresh) return fresh.status();
  if (fleet_)
    if (Status status = fleet_->reload(); !status.ok()) return status;
  const ReloadedOptions result = reload_options(options_, *fresh);
  apply(result.changed);
  log_->info("event=reloaded changed=\"" + joined(result.changed) + "\" need_a_restart=\"" +
             joined(result.restart) + "\"");
  return wire::Reloaded{result.changed, result.restart};
}

void Server::apply(const std::vector<std::string>& changed) {
  log_->set_level(options_.log_level);
  for (Log* log : {log_, &request_log_}) {
    log->set_json(options_.log_json);
    log->set_limit(options_.log_bytes);
  }
  allow_files();
  limit_sessions();
  service_->set_limits(static_cast<uint32_t>(options_.max_requests), options_.request_seconds * 1000);
  if (std::find(changed.begin(), changed.end(), "allow-uids") == changed.end()) return;
  if (Status status = listener_->open_to(!options_.allow_uids.empty()); !status.ok())
    log_->error("event=socket_mode reason=\"" + status.message() + "\"");
}

}  // namespace quern
