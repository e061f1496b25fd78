#include "tools/disassemble.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include "tools/session.h"

extern char** environ;

namespace quern {

namespace {

namespace fs = std::filesystem;

// Empty when there is none.
std::string find_program(const char* name) {
  const char *path = std::getenv("PATH"), *cuda = std::getenv("CUDA_HOME");
  std::istringstream folders((path ? path : "") +
                             std::string(cuda && *cuda ? std::string(":") + cuda + "/bin" : ""));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const fs::path program = fs::path(folder) / name;
        access(program.c_str(), X_OK) == 0 && !fs::is_directory(program))
      return program;
  return "";
}

Result<std::vector<std::string>> command() {
  if (const std::string program = find_program("nvdisasm"); !program.empty())
    return std::vector{program, std::string("-c")};
  if (const std::string program = find_program("cuobjdump"); !program.empty())
    return std::vector{program, std::string("-sass")};
  return Status(
      ErrorCode::IO,
      "there is no disassembler: neither nvdisasm nor cuobjdump is in $PATH or $CUDA_HOME/bin; they come "
      "with the CUDA toolkit, in its packages cuda-nvdisasm and cuda-cuobjdump");
}

// A file that goes with this object.
struct TemporaryFile {
  std::string path;
  ~TemporaryFile() {
    if (!path.empty()) unlink(path.c_str());
  }
  Status make() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "quern-XXXXXX").string();
    const int fd = error ? -1 : mkstemp(pattern.data());
    if (fd < 0)
      return Status(ErrorCode::IO, "no temporary file can be made: " + std::string(std::strerror(errno)));
    close(fd);
    path = pattern;
    return {};
  }
};

// Standard output and error of a program go to the same file.
Status run(const std::vector<std::string>& command, const std::string& output) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t pid;
  const int error = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return Status(ErrorCode::IO, command[0] + ": " + std::strerror(error));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const Result<std::string> said = read_file(output);
  return Status(ErrorCode::IO, command[0] + " refused the cubin: " + (said ? *said : ""));
}

}  // namespace

Result<std::string> disassemble(std::string_view cubin) {
  Result<std::vector<std::string>> words = command();
  if (!words) return words.status();
  TemporaryFile input, output;
  for (TemporaryFile* file : {&input, &output})
    if (Status status = file->make(); !status.ok()) return status;
  if (Status status = write_file(input.path, cubin); !status.ok()) return status;
  words->push_back(input.path);
  if (Status status = run(*words, output.path); !status.ok()) return status;
  return read_file(output.path);
}

}  // namespace quern
