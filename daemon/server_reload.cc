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
  session_limits_.output_bytes = options_.max_output_bytes;
  session_limits_.frame_ns = session_limits_.output_ns = options_.client_seconds * 1'000'000'000;
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
  limit_sessions();
  allow_files();
  service_->set_limits(static_cast<uint32_t>(options_.max_requests), options_.request_seconds * 1000);
  if (std::find(changed.begin(), changed.end(), "allow-uids") == changed.end()) return;
  if (Status status = listener_->open_to(!options_.allow_uids.empty()); !status.ok())
    log_->error("event=socket_mode reason=\"" + status.message() + "\"");
  for (auto& [id, session] : sessions_)
    if (const auto user = users_.find(id);
        user != users_.end() && !may_connect({user->second, 0}, options_.allow_uids))
      session->close("its user may not connect any more");
}

}  // namespace quern
