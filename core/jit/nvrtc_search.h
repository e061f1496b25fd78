// Where a libnvrtc may lie on this machine.
#pragma once

#include <string>
#include <vector>

namespace quern {

struct NvrtcPlaces {
  std::vector<std::string> libraries;  // to try in this order: paths, or bare names for the loader's search
  std::vector<std::string> empty;      // folders that were looked into and hold none
};

// With `path` (a file or a folder), else $QUERN_NVRTC, only that: who names a compiler gets that one or an
// error. Else, in this order:
//  1. the private folder of an installation: lib/quern/nvrtc in one of the three folders above that of the
//     executable, and $XDG_DATA_HOME/quern/nvrtc or ~/.local/share/quern/nvrtc; in those three also
//     nvidia/*/lib, where the wheel nvidia-cuda-nvrtc puts it beside a wheel of Quern;
//  2. lib64 and lib of $CUDA_HOME and $CUDA_PATH, then of /usr/local/cuda*, the newest first;
//  3. what the loader finds by the names libnvrtc.so.13 and libnvrtc.so.12.
// Within a folder, higher versions come first.
NvrtcPlaces find_nvrtc(const std::string& path);

}  // namespace quern
