// Stands in for libnvidia-ml where a test names it in $QUERN_LIBNVML. FAKE_NVML_USE is what processes use of
// the GPU in the next moment, "12 70" in percent; "no processes" makes it refuse to count by process, and "12
// 70 old" says that the last of them was before.
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Sample {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;
};

std::string use() {
  const char* text = getenv("FAKE_NVML_USE");
  return text ? text : "";
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  strncpy(text, "580.1.2", size);
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  static int gpu;
  *device = &gpu;
  return strcmp(bus, "0000:00:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetProcessUtilization(void*, Sample* samples, unsigned* count, unsigned long long since) {
  std::vector<Sample> found;
  std::istringstream words(use());
  for (std::string word; words >> word;) {
    if (word == "no") return 3;  // not supported
    if (word == "old")
      found.back().time_us = since - 1;
    else
      found.push_back({1234, since + 1000, static_cast<unsigned>(atoi(word.c_str())), 0, 0, 0});
  }
  if (found.empty()) return 6;  // not found
  const bool fits = samples && *count >= found.size();
  *count = static_cast<unsigned>(found.size());
  if (!fits) return 7;  // insufficient size
  memcpy(samples, found.data(), found.size() * sizeof(Sample));
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* percent) {
  percent[0] = 33;
  percent[1] = 1;
  return 0;
}

}  // extern "C"
