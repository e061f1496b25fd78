// What a subcommand is: one Command a subcommand, all of them in the table of commands.def. Help, parsing and
// suggestions come from it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace quern {

class Arguments;

struct Option {
  const char* name;   // long form, without dashes
  char letter;        // short form; 0 = none
  const char* value;  // placeholder of its value ("FILE"); null = a flag
  const char* help;   // a line
};

struct Command {
  const char* name;
  const char* operands;  // as the synopsis shows them: "FILE..."
  int min_operands, max_operands;
  const char* summary;  // half a line, for the list of commands
  const char* help;     // paragraphs, for `quern help NAME`
  bool asks_daemon;     // takes kDaemonOptions
  std::vector<Option> options;
  int (*run)(const Arguments&);  // returns an exit code
};

// Rows of the table, in the order in which help lists them.
std::span<const Command* const> all_commands();
const Command* find_command(std::string_view name);

// Options of every command, and of those that ask the daemon.
std::span<const Option> common_options();
std::span<const Option> daemon_options();
// All that `command` takes: its own first.
std::vector<Option> options_of(const Command& command);

// The rows of commands.def.
struct Commands {
#define QUERN_COMMAND(definition) static const Command definition;
#include "tools/commands.def"
};

}  // namespace quern
