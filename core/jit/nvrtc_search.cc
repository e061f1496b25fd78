#include "core/jit/nvrtc_search.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <filesystem>

namespace quern {

namespace {

namespace fs = std::filesystem;

// What the environment says, or nothing; an empty variable counts as unset.
std::string environment(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

// The paths in `folder` whose file names start with `prefix` and go on with a digit, by version, the highest
// first.
std::vector<std::string> versioned(const fs::path& folder, const std::string& prefix) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.size() > prefix.size() && name.starts_with(prefix) &&
        isdigit(static_cast<unsigned char>(name[prefix.size()])))
      found.push_back(it->path());
  }
  std::sort(found.begin(), found.end(),
            [](const std::string& a, const std::string& b) { return strverscmp(a.c_str(), b.c_str()) > 0; });
  return found;
}

// Adds the libraries of `folder`. A folder that does not exist is noted too: the user may have meant it to.
void look_into(const fs::path& folder, NvrtcPlaces* places) {
  std::vector<std::string> found = versioned(folder, "libnvrtc.so.");
  std::error_code ignored;
  if (found.empty() && fs::exists(folder / "libnvrtc.so", ignored)) found.push_back(folder / "libnvrtc.so");
  if (found.empty()) places->empty.push_back(folder);
  places->libraries.insert(places->libraries.end(), found.begin(), found.end());
}

// The wheels of one Python environment share a folder: nvidia/cu13/lib, or nvidia/cuda_nvrtc/lib of CUDA 12.
void look_into_wheels(const fs::path& packages, NvrtcPlaces* places) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator it(packages / "nvidia", error), end; !error && it != end; it.increment(error))
    folders.push_back(it->path() / "lib");
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders)
    if (!versioned(folder, "libnvrtc.so.").empty()) look_into(folder, places);
}

void look_into_private_folders(NvrtcPlaces* places) {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; level < 3 && folder.has_relative_path(); ++level) {
    folder = folder.parent_path();
    look_into(folder / "lib/quern/nvrtc", places);
    look_into_wheels(folder, places);
  }
  const std::string data = environment("XDG_DATA_HOME"), home = environment("HOME");
  if (!data.empty())
    look_into(fs::path(data) / "quern/nvrtc", places);
  else if (!home.empty())
    look_into(fs::path(home) / ".local/share/quern/nvrtc", places);
}

void look_into_toolkits(NvrtcPlaces* places) {
  std::vector<std::string> roots;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (std::string root = environment(name); !root.empty()) roots.push_back(root);
  for (const std::string& root : versioned("/usr/local", "cuda-")) roots.push_back(root);
  roots.push_back("/usr/local/cuda");
  for (const std::string& root : roots) {
    std::error_code ignored;
    const fs::path lib64 = fs::path(root) / "lib64";
    look_into(fs::exists(lib64, ignored) ? lib64 : fs::path(root) / "lib", places);
  }
}

}  // namespace

NvrtcPlaces find_nvrtc(const std::string& path) {
  NvrtcPlaces places;
  const std::string named = path.empty() ? environment("QUERN_NVRTC") : path;
  if (!named.empty()) {
    std::error_code ignored;
    if (fs::is_directory(named, ignored))
      look_into(named, &places);
    else
      places.libraries.push_back(named);
    return places;
  }
  look_into_private_folders(&places);
  look_into_toolkits(&places);
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) places.libraries.push_back(name);
  return places;
}

}  // namespace quern
