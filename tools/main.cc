// quern: asks the daemon for plans, looks into its cache, and runs and checks graphs.
#include <cstdio>
#include <cstring>

#include "tools/arguments.h"
#include "tools/help.h"
#include "tools/output.h"

namespace quern {

namespace {

int unknown_command(const char* name) {
  std::vector<std::string> names;
  for (const Command* command : all_commands()) names.push_back(command->name);
  const char* hint = name[0] == '-' ? "; options stand behind the command" : "";
  std::fprintf(stderr, "quern: there is no command \"%s\"%s%s\nsee: quern help\n", name,
               suggestion(name, names).c_str(), hint);
  return kExitUsage;
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
  if (!command) return unknown_command(name);
  const Result<Arguments> arguments = Arguments::parse(*command, argc - 1, argv + 1);
  if (!arguments) {
    // Nothing was parsed, so whether JSON was asked for can only be looked up.
    for (int i = 2; i < argc; ++i)
      if (!std::strcmp(argv[i], "--json")) print_json({{"error", error_json(arguments.status())}});
    std::fprintf(stderr, "quern: %s\n", arguments.status().message().c_str());
    return kExitUsage;
  }
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
