// A libnvrtc for tests that must not depend on a real one. A program whose source contains "#error" is
// refused with a log; any other "compiles" to an ELF magic number followed by its options and source.
//   FAKE_NVRTC_VERSION  what nvrtcVersion says, such as "12.1" (default "13.0")
//   FAKE_NVRTC_ARCHS    the architectures it lists, such as "80 90" (default: "80 86 89 90 100 103 120")
//   FAKE_NVRTC_CRASH    if set, a source that contains this text ends the process by abort()
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Program {
  std::string source, cubin, log;
};

std::string setting(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value ? value : otherwise;
}

std::vector<int> architectures() {
  std::istringstream words(setting("FAKE_NVRTC_ARCHS", "80 86 89 90 100 103 120"));
  std::vector<int> archs;
  for (int arch; words >> arch;) archs.push_back(arch);
  return archs;
}

Program* of(void* program) { return static_cast<Program*>(program); }

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(int result) {
  return result == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR unknown";
}

int nvrtcVersion(int* major, int* minor) {
  return sscanf(setting("FAKE_NVRTC_VERSION", "13.0").c_str(), "%d.%d", major, minor) == 2 ? 0 : 11;
}

int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(architectures().size());
  return 0;
}

int nvrtcGetSupportedArchs(int* archs) {
  for (int arch : architectures()) *archs++ = arch;
  return 0;
}

int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{source, "", ""};
  return 0;
}

int nvrtcDestroyProgram(void** program) {
  delete of(*program);
  *program = nullptr;
  return 0;
}

int nvrtcCompileProgram(void* program, int option_count, const char* const* options) {
  Program* p = of(program);
  const std::string crash = setting("FAKE_NVRTC_CRASH", "");
  if (!crash.empty() && p->source.find(crash) != std::string::npos) abort();
  if (p->source.find("#error") != std::string::npos) {
    p->log = "kernel.cu(1): error: the source asks for it\n";
    return 6;
  }
  p->cubin = "\177ELF";
  for (int i = 0; i < option_count; ++i) p->cubin += std::string(options[i]) + "\n";
  p->cubin += p->source;
  return 0;
}

int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = of(program)->cubin.size();
  return 0;
}

int nvrtcGetCUBIN(void* program, char* cubin) {
  memcpy(cubin, of(program)->cubin.data(), of(program)->cubin.size());
  return 0;
}

int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = of(program)->log.size() + 1;
  return 0;
}

int nvrtcGetProgramLog(void* program, char* log) {
  memcpy(log, of(program)->log.c_str(), of(program)->log.size() + 1);
  return 0;
}

}  // extern "C"
