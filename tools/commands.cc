// The table of subcommands.
#include "tools/command.h"

namespace quern {

namespace {

constexpr const Command* kCommands[] = {
#define QUERN_COMMAND(definition) &Commands::definition,
#include "tools/commands.def"
};

constexpr Option kCommon[] = {
    {"json", 0, nullptr, "print one JSON object, errors included"},
    {"help", 'h', nullptr, "print this help"},
};

constexpr Option kDaemon[] = {
    {"socket", 0, "PATH", "the daemon's socket (else $QUERN_SOCKET, else the default)"},
    {"no-start", 0, nullptr, "do not start a daemon when none is running"},
    {"timeout", 0, "SECONDS", "how long to wait (60)"},
};

}  // namespace

std::span<const Command* const> all_commands() { return kCommands; }
std::span<const Option> common_options() { return kCommon; }
std::span<const Option> daemon_options() { return kDaemon; }

const Command* find_command(std::string_view name) {
  for (const Command* command : kCommands)
    if (name == command->name) return command;
  return nullptr;
}

std::vector<Option> options_of(const Command& command) {
  std::vector<Option> options = command.options;
  if (command.asks_daemon) options.insert(options.end(), std::begin(kDaemon), std::end(kDaemon));
  options.insert(options.end(), std::begin(kCommon), std::end(kCommon));
  return options;
}

}  // namespace quern
