#include "tests/hostile/isolated.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/base/status.h"

namespace quern {

namespace {

// A record is its kind and the sizes of its two strings, then these.
struct Header {
  char kind;
  uint32_t key, value;
};

void write_all(int file, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(file, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(1);  // nobody listens any more
    bytes += written, size -= static_cast<size_t>(written);
  }
}

// All bytes until nobody can write any more.
std::string read_all(int file) {
  std::string bytes;
  char page[1 << 16];
  for (;;) {
    const ssize_t got = read(file, page, sizeof page);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return bytes;
    bytes.append(page, static_cast<size_t>(got));
  }
}

// What a process that died was doing last.
std::string take_records(const std::string& bytes, Tally& tally) {
  std::string doing;
  for (size_t at = 0; at + sizeof(Header) <= bytes.size();) {
    Header header;
    std::memcpy(&header, &bytes[at], sizeof header);
    at += sizeof header;
    if (at + header.key + header.value > bytes.size()) break;
    const std::string key = bytes.substr(at, header.key), value = bytes.substr(at + header.key, header.value);
    at += header.key + header.value;
    if (header.kind == 'c') tally.counts[key] += std::stoull(value);
    if (header.kind == 'f') tally.findings.push_back({key, value});
    if (header.kind == 'd') doing = key;
  }
  return doing;
}

std::string last_lines(FILE* file) {
  char text[2000];
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  fseek(file, std::max(0L, size - static_cast<long>(sizeof text)), SEEK_SET);
  return std::string(text, fread(text, 1, sizeof text, file));
}

std::string describe(int status) {
  if (WIFSIGNALED(status))
    return std::string(WTERMSIG(status) == SIGALRM ? "still running" : strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status) ? "exit status " + std::to_string(WEXITSTATUS(status)) : "";
}

}  // namespace

void Tally::merge(const Tally& other) {
  for (const auto& [what, n] : other.counts) counts[what] += n;
  findings.insert(findings.end(), other.findings.begin(), other.findings.end());
}

uint64_t Tally::count(const std::string& what) const {
  const auto at = counts.find(what);
  return at == counts.end() ? 0 : at->second;
}

void Report::send(char kind, const std::string& key, const std::string& value) {
  const Header header = {kind, static_cast<uint32_t>(key.size()), static_cast<uint32_t>(value.size())};
  std::string record(reinterpret_cast<const char*>(&header), sizeof header);
  record += key + value;
  write_all(file_, record.data(), record.size());
}

Outcome run_isolated(const std::function<void(Report&)>& work, unsigned seconds) {
  int ends[2];
  FILE* errors = tmpfile();
  // Of the compilations: what a process that dies leaves there goes with it.
  std::string directory = (std::filesystem::temp_directory_path() / "quern-attack-XXXXXX").string();
  check(mkdtemp(directory.data()) != nullptr, "a process needs a temporary directory");
  check(errors != nullptr && pipe2(ends, O_CLOEXEC) == 0,
        "a process needs a pipe and a file for its messages");
  fflush(nullptr);
  const pid_t child = fork();
  check(child >= 0, "no process can be started");
  if (child == 0) {
    close(ends[0]);
    dup2(fileno(errors), STDERR_FILENO);
    setenv("TMPDIR", directory.c_str(), 1);
    alarm(seconds);
    Report report(ends[1]);
    work(report);
    _exit(0);
  }
  close(ends[1]);
  Outcome outcome;
  const std::string doing = take_records(read_all(ends[0]), outcome.tally);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.death = describe(status);
  if (!outcome.death.empty()) {
    const std::string said = last_lines(errors);
    outcome.death += (said.empty() ? "" : ": " + said) + "\n" + doing;
  }
  fclose(errors);
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return outcome;
}

Tally run_in_batches(size_t count, size_t batch, unsigned seconds,
                     const std::function<void(size_t, size_t, Report&)>& work) {
  Tally tally;
  auto run = [&](size_t first, size_t many) {
    return run_isolated([&](Report& report) { work(first, many, report); },
                        seconds * static_cast<unsigned>(many));
  };
  for (size_t first = 0; first < count; first += batch) {
    const size_t many = std::min(batch, count - first);
    if (const Outcome all = run(first, many); all.death.empty()) {
      tally.merge(all.tally);
      continue;
    }
    for (size_t one = first; one < first + many; ++one) {
      Outcome outcome = run(one, 1);
      if (!outcome.death.empty()) outcome.tally.findings.push_back({"abort", outcome.death});
      tally.merge(outcome.tally);
    }
  }
  return tally;
}

}  // namespace quern
