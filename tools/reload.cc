// quern reload: has the daemon read its settings again.
#include "tools/output.h"
#include "tools/session.h"

namespace quern {

namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "nothing" : text;
}

int run_reload(const Arguments& arguments) {
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  Result<wire::Reloaded> reloaded = session->ask<wire::Reloaded>(wire::Reload{});
  if (!reloaded) return fail(arguments, reloaded.status());
  if (arguments.json())
    print_json({{"changed", reloaded->changed}, {"restart", reloaded->restart}});
  else
    print_text(facts_text(
        {{"changed", listed(reloaded->changed)}, {"at the next start", listed(reloaded->restart)}}));
  return kExitOk;
}

}  // namespace

const Command Commands::kReloadCommand = {
    "reload",
    "",
    0,
    0,
    "have the daemon read its settings again",
    "The daemon reads its configuration file again and takes the settings that may change while it runs: "
    "log-level,\n"
    "log-format, log-size, max-clients, max-requests, max-output, client-seconds, request-seconds, "
    "drain-seconds, allow-uids\n"
    "and the keys in fleet-trust. Those that differ otherwise hold from its next start on. When a setting is "
    "no good\n"
    "nothing changes. SIGHUP does the same, and opens the log files again.\n",
    true,
    {},
    run_reload,
};

}  // namespace quern
