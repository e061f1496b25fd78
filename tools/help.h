// The texts of `quern help`, made from the tables of commands, options, exit codes and operators.
#pragma once

#include <string>

#include "tools/command.h"

namespace quern {

std::string overview_text();
std::string command_text(const Command& command);
// Every operator of the language, as text or as docs/OPERATORS.md.
std::string operators_text();
std::string operators_markdown();

}  // namespace quern
