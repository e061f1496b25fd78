#include "core/emulator/compile.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/codegen/prelude.h"
#include "core/emulator/host_prelude.h"
#include "core/emulator/temporary_folder.h"

namespace quern::emulated {

namespace {

// More amortise the compiler's start better; fewer spread better over processors.
constexpr size_t kProgramsPerLibrary = 16;

struct Compilation {
  std::span<const ProgramSource> sources;
  std::string directory;
  pid_t process = -1;
};

// The linkage of kernels would make equal names of different programs collide; the table finds them by name
// instead.
std::string without_c_linkage(std::string text) {
  constexpr std::string_view kLinkage = "extern \"C\"";
  for (size_t at = 0; (at = text.find(kLinkage, at)) != std::string::npos;)
    text.replace(at, kLinkage.size(), kLinkage.size(), ' ');
  return text;
}

std::string host_text(std::span<const ProgramSource> sources) {
  std::ostringstream out;
  out << runtime_text() << host_words_text() << prelude_types_text() << host_functions_text()
      << prelude_composed_text();
  for (size_t i = 0; i < sources.size(); ++i) {
    out << "namespace program_" << i << " {\n#line 1 \"program_" << i << ".cu\"\n"
        << without_c_linkage(sources[i].text) << "\n}\n#line 1 \"kernels\"\n"
        << "extern \"C\" QUERN_EXPORTED const quern::emulated::Kernel quern_kernels_" << i << "[];\n"
        << "const quern::emulated::Kernel quern_kernels_" << i << "[] = {\n";
    for (const std::string& kernel : sources[i].kernels) {
      std::string entry = "quern::emulated::Entry<program_" + std::to_string(i) + "::" + kernel + ">";
      out << "{\"" << kernel << "\", " << entry << "::kCount, " << entry << "::call},\n";
    }
    out << "{}};\n";
  }
  return out.str();
}

std::vector<std::string> compiler_command(const std::string& directory) {
  const char* compiler = getenv("CXX");
  std::vector<std::string> command;
  std::istringstream words(compiler && *compiler ? compiler : "g++");
  for (std::string word; words >> word;) command.push_back(word);
  // -fno-tree-sra: a vector access must stay one access. No sibling calls: hooks look at their return
  // address.
  for (const char* option :
       {"-std=c++17",
        "-O1",
        "-g1",
        "-w",
        "-fPIC",
        "-shared",
        "-nostdlib",
        "-fvisibility=hidden",
        "-fno-exceptions",
        "-fno-rtti",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-fno-tree-sra",
        "-ftrivial-auto-var-init=pattern",
        "-fno-ipa-reference",
        "-fno-optimize-sibling-calls",
        "-fno-toplevel-reorder",
        "-fsanitize=thread",
        "-fsanitize=bounds,signed-integer-overflow,shift-exponent,integer-divide-by-zero,bool",
        "-fno-sanitize-recover=all",
        "-o"})
    command.push_back(option);
  command.insert(command.end(), {directory + "/programs.so", directory + "/programs.cc", "-lm", "-lc"});
  return command;
}

Status start(Compilation& compilation) {
  const Result<std::string> folder = make_temporary_folder();
  if (!folder) return folder.status();
  compilation.directory = *folder;
  std::ofstream(*folder + "/programs.cc") << host_text(compilation.sources);

  std::vector<std::string> command = compiler_command(*folder);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (*folder + "/log").c_str(), O_WRONLY | O_CREAT,
                                   0600);
  const int failure =
      posix_spawnp(&compilation.process, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure == 0) return Status();
  compilation.process = -1;
  return Status(ErrorCode::NOT_FOUND, "the C++ compiler `" + command[0] + "` cannot be started (" +
                                          strerror(failure) +
                                          "): install g++ or name another compiler in CXX");
}

// Waits for the compiler and loads what it made.
Status finish(Compilation& compilation, std::vector<Program>& programs) {
  int status = 0;
  while (waitpid(compilation.process, &status, 0) < 0 && errno == EINTR) {
  }
  compilation.process = -1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::ifstream log(compilation.directory + "/log");
    std::string text((std::istreambuf_iterator<char>(log)), {});
    return Status(ErrorCode::COMPILE,
                  "the host compiler refuses the emitted program: " + text.substr(0, 4000));
  }
  auto library = ProgramLibrary::open(compilation.directory);
  if (!library.ok()) return library.status();
  for (size_t i = 0; i < compilation.sources.size(); ++i)
    programs.push_back({compilation.sources[i].text, *library, static_cast<int>(i)});
  compilation.directory.clear();  // the library's now
  return Status();
}

void abandon(Compilation& compilation) {
  if (compilation.process > 0) waitpid(compilation.process, nullptr, 0);
  if (!compilation.directory.empty()) remove_temporary_folder(compilation.directory);
}

}  // namespace

Result<std::vector<Program>> compile_programs(std::span<const ProgramSource> sources, size_t processors) {
  if (processors == 0) processors = std::max(1u, std::thread::hardware_concurrency());
  const size_t share =
      std::clamp<size_t>((sources.size() + processors - 1) / processors, 1, kProgramsPerLibrary);
  std::vector<Program> programs;
  std::deque<Compilation> running;
  Status status;
  for (size_t begin = 0; status.ok() && (begin < sources.size() || !running.empty());) {
    if (begin < sources.size() && running.size() < processors) {
      running.push_back({sources.subspan(begin, std::min(share, sources.size() - begin)), "", -1});
      begin += share;
      status = start(running.back());
    } else {
      status = finish(running.front(), programs);
      if (status.ok()) running.pop_front();
    }
  }
  for (Compilation& compilation : running) abandon(compilation);
  if (!status.ok()) return status;
  return programs;
}

Result<Program> compile_program(const ProgramSource& source) {
  auto programs = compile_programs({&source, 1});
  if (!programs.ok()) return programs.status();
  return std::move(programs->front());
}

}  // namespace quern::emulated
