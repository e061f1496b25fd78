// quern: asks the daemon for plans, looks into its cache, and runs and checks graphs.
#include <cstdio>
#include <cstring>

#include "tools/arguments.h"
#include "tools/help.h"
#include "tools/output.h"

namespace quern {

namespace {

// What is wrong with a command line. Nothing was parsed, so whether JSON was asked for can only be looked up.
int usage_error(const Status& status, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") != 0) continue;
    print_json({{"error", error_json(status)}});
    break;
  }
  std::fprintf(stderr, "quern: %s\n", visible(status.message()).c_str());
  return kExitUsage;
}

Status unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command* command : all_commands()) names.push_back(command->name);
  return Status(ErrorCode::INVALID_ARGUMENT,
                "there is no command \"" + name + "\"" + suggestion(name, names) +
                    (name[0] == '-' ? "; options stand behind the command" : "") + "\nsee: quern help");
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fputs(overview_text().c_str(), stderr);
    return kExitUsage;
  }
  const char* name = argv[1];
  if (!std::strcmp(name, "--help") || !std::strcmp(name, "-h")) name = "help";
  if (!std::strcmp(name, "--version") || !std::strcmp(name, "-V")) name = "version";
  const Command* command = find_command(name);
  if (!command) return usage_error(unknown_command(name), argc, argv);
  const Result<Arguments> arguments = Arguments::parse(*command, argc - 1, argv + 1);
  if (!arguments) return usage_error(arguments.status(), argc, argv);
  if (arguments->has("help")) {
    print_text(command_text(*command));
    return kExitOk;
  }
  return command->run(*arguments);
}

}  // namespace

}  // namespace quern

int main(int argc, char** argv) {
  const int code = quern::run(argc, argv);
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    std::perror("quern: standard output");
    return code ? code : quern::kExitFailed;
  }
  return code;
}
