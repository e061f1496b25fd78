#include "capi/recorder.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/base/hash.h"
#include "core/base/numerics.h"
#include "core/base/words.h"

namespace quern {

namespace {

// Appears whole or not at all.
Status write_whole(const std::string& path, std::string_view bytes) {
  const std::string draft = path + "." + std::to_string(getpid()) + ".new";
  std::FILE* file = std::fopen(draft.c_str(), "wbe");
  bool written = file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file && std::fclose(file) != 0) written = false;
  if (written && std::rename(draft.c_str(), path.c_str()) == 0) return {};
  const Status status(ErrorCode::IO, path + ": " + std::strerror(errno));
  unlink(draft.c_str());
  return status;
}

// "graph NAME" is the first line of what print_graph writes.
std::string name_of(std::string_view graph) {
  const size_t start = std::string_view("graph ").size();
  return std::string(graph.substr(std::min(start, graph.size()), graph.find('\n') - start)).substr(0, 64);
}

}  // namespace

Result<std::unique_ptr<Recorder>> Recorder::open(const std::string& directory, const std::string& name) {
  std::error_code error;
  const std::string folder = std::filesystem::absolute(directory, error);
  std::filesystem::create_directories(folder, error);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string manifest =
      folder + "/" + name + "-" + std::to_string(getpid()) + "-" +
      std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(now).count()) + ".manifest";
  std::unique_ptr<Recorder> recorder(new Recorder(folder, manifest));
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    return Status(ErrorCode::IO, "graphs cannot be recorded in " + folder + ": " + std::strerror(errno));
  return recorder;
}

Recorder::~Recorder() {
  if (!entries_.empty()) write_manifest();
}

void Recorder::note(const PlanRequest& request, const std::string& outcome) {
  std::string id = to_hex(request.graph_hash) + std::string(request.target) + " " +
                   std::to_string(request.numerics) + " " + std::string(request.constraints);
  std::lock_guard lock(mutex_);
  auto [found, is_new] = entries_.try_emplace(std::move(id));
  Entry& entry = found->second;
  ++entry.count;
  const bool told = entry.outcome == outcome;
  entry.outcome = outcome;
  // Not at each call: a program that asks a million times writes twenty times.
  if (!is_new && told && (entry.count & (entry.count - 1)) != 0) return;
  if (is_new) {
    const std::string file = name_of(request.graph) + "-" + to_hex(request.graph_hash).substr(0, 12) + ".qg";
    entry.line = quoted_word(file) + " " + std::string(request.target);
    if (request.numerics & kAllowTf32) entry.line += " tf32";
    if (!request.constraints.empty())
      entry.line += " " + quoted_word("constraints=" + std::string(request.constraints));
    const std::string path = directory_ + "/" + file;
    if (access(path.c_str(), F_OK) != 0 && !write_whole(path, request.graph).ok()) return;
  }
  write_manifest();
}

void Recorder::write_manifest() const {
  std::string text = "# what a program asked for; quern prewarm -m FILE makes it\n";
  for (const auto& [id, entry] : entries_)
    text += entry.line + "  # asked " + std::to_string(entry.count) + " times, " + entry.outcome + "\n";
  [[maybe_unused]] const Status written = write_whole(manifest_, text);
}

}  // namespace quern
