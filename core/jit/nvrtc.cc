// NVRTC behind the Compiler interface. The prototypes are ours: building Quern needs no CUDA toolkit.
//
// What the options cost, measured with NVRTC 13.0 for sm_90a on one core of a 2-core x86 server, in
// milliseconds: the median of 15 compiles of a one-line kernel / of 5 compiles of a 120-line split-KV
// attention kernel.
//   no options 21.1 / 208.6      --minimal 17.6 / 205.1         --std=c++14, 17, 20: no difference
//   --no-cache 21.1 / 207.9      --split-compile=0 22.3 / 210.4  -default-device: no difference
//   -lineinfo 20.9 / 211.8       --ptxas-options=-O1 21.0 / 192.3 (other code)
//   --Ofast-compile=min 20.2 / 126.8, mid 20.0 / 85.1, max 18.6 / 86.9 (other code; NVRTC 12.4 has none)
// So --minimal is free, and only --Ofast-compile buys much; it changes the code, hence it is a caller's
// choice and not a default. Loading the library takes 14 ms (cold: 228) and the first compile in a process 32
// ms (cold: 84) for the one-line kernel: a worker that is to answer fast compiles something when it starts.
// PTX is never asked for. --restrict must not be passed: after it, the cubins of compiles without it in the
// same process were seen to change.
#include <array>
#include <filesystem>
#include <fstream>

#include "core/base/hash.h"
#include "core/base/target.h"
#include "core/jit/compiler.h"
#include "core/jit/library.h"
#include "core/jit/nvrtc_search.h"

namespace quern {

namespace {

// From nvrtc.h: results are an enum of which these matter here; a program is an opaque pointer.
constexpr int kNvrtcSuccess = 0;
constexpr int kNvrtcOutOfMemory = 1;
using NvrtcProgram = void*;

constexpr int kOldestMajor = 12, kOldestMinor = 4;
constexpr char kOldestVersion[] = "12.4";
constexpr size_t kMaxLogBytes = 16 * 1024;

struct NvrtcApi {
  const char* (*error_string)(int result);
  int (*version)(int* major, int* minor);
  int (*arch_count)(int* count);
  int (*archs)(int* archs);
  int (*create)(NvrtcProgram* program, const char* source, const char* name, int header_count,
                const char* const* headers, const char* const* include_names);
  int (*destroy)(NvrtcProgram* program);
  int (*compile)(NvrtcProgram program, int option_count, const char* const* options);
  int (*cubin_size)(NvrtcProgram program, size_t* size);
  int (*cubin)(NvrtcProgram program, char* cubin);
  int (*log_size)(NvrtcProgram program, size_t* size);
  int (*log)(NvrtcProgram program, char* log);
};

Status bind_all(const Library& library, NvrtcApi* api) {
  Status status = library.bind("nvrtcGetErrorString", api->error_string);
  if (status.ok()) status = library.bind("nvrtcVersion", api->version);
  if (status.ok()) status = library.bind("nvrtcGetNumSupportedArchs", api->arch_count);
  if (status.ok()) status = library.bind("nvrtcGetSupportedArchs", api->archs);
  if (status.ok()) status = library.bind("nvrtcCreateProgram", api->create);
  if (status.ok()) status = library.bind("nvrtcDestroyProgram", api->destroy);
  if (status.ok()) status = library.bind("nvrtcCompileProgram", api->compile);
  if (status.ok()) status = library.bind("nvrtcGetCUBINSize", api->cubin_size);
  if (status.ok()) status = library.bind("nvrtcGetCUBIN", api->cubin);
  if (status.ok()) status = library.bind("nvrtcGetProgramLogSize", api->log_size);
  if (status.ok()) status = library.bind("nvrtcGetProgramLog", api->log);
  return status;
}

// A hash of the file's size and of 64 pages spread over it: tells builds of a library apart without reading
// its 100 MB.
Result<Hash128> sample_file(const std::string& path) {
  constexpr size_t kPages = 64, kPageBytes = 4096;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return Status(ErrorCode::IO, path + ": cannot be read");
  const uint64_t size = static_cast<uint64_t>(in.tellg());
  std::string sample = std::to_string(size);
  std::array<char, kPageBytes> page;
  for (size_t i = 0; i < kPages; ++i) {
    in.clear();
    in.seekg(static_cast<std::streamoff>(size > kPageBytes ? (size - kPageBytes) * i / (kPages - 1) : 0));
    in.read(page.data(), page.size());
    sample.append(page.data(), static_cast<size_t>(in.gcount()));
  }
  return hash128(sample);
}

class Nvrtc : public Compiler {
 public:
  static Result<std::unique_ptr<Compiler>> open(const std::string& name);
  Result<CompileOutput> compile(const CompileRequest& request) override;
  std::string fingerprint() const override { return fingerprint_; }

 private:
  Status load(const std::string& name);
  Status identify();
  Status supports(const std::string& target) const;
  Status run(NvrtcProgram program, const CompileRequest& request, CompileOutput* output) const;
  std::string log_of(NvrtcProgram program) const;
  std::string name() const { return "NVRTC " + version_ + " (" + path_ + ")"; }

  NvrtcApi api_{};
  std::string path_, version_, fingerprint_;
  std::vector<std::string> options_;
  std::vector<int> archs_;
};

Result<std::unique_ptr<Compiler>> Nvrtc::open(const std::string& name) {
  auto nvrtc = std::make_unique<Nvrtc>();
  const Status status = nvrtc->load(name);
  if (!status.ok()) return status;
  return std::unique_ptr<Compiler>(std::move(nvrtc));
}

Status Nvrtc::load(const std::string& name) {
  Result<Library> library = Library::open(name);
  if (!library) return library.status();
  path_ = library->path();
  Status status = bind_all(*library, &api_);
  if (!status.ok()) return status;

  int major = 0, minor = 0, count = 0;
  if (api_.version(&major, &minor) != kNvrtcSuccess)
    return Status(ErrorCode::NO_COMPILER, path_ + ": does not tell its version");
  version_ = std::to_string(major) + "." + std::to_string(minor);
  if (std::pair(major, minor) < std::pair(kOldestMajor, kOldestMinor))
    return Status(ErrorCode::NO_COMPILER,
                  path_ + ": version " + version_ + " is older than " + kOldestVersion);
  if (api_.arch_count(&count) == kNvrtcSuccess && count > 0) archs_.resize(static_cast<size_t>(count));
  if (archs_.empty() || api_.archs(archs_.data()) != kNvrtcSuccess)
    return Status(ErrorCode::NO_COMPILER, path_ + ": does not tell its architectures");

  options_ = {"--std=c++20", "--minimal", "-default-device"};
  // Quern keeps its own cache; a hidden one (12.4 has none, and refuses the option) would only make times
  // lie.
  if (major >= 13) options_.push_back("--no-cache");
  return identify();
}

// Opens the companion library from the folder of the library itself: NVRTC opens it by name alone when it
// first compiles, and might get another one, or none where the loader does not know the folder. Then sets the
// fingerprint.
Status Nvrtc::identify() {
  namespace fs = std::filesystem;
  std::vector<std::string> files = {path_};
  std::error_code ignored;
  const fs::path companion = fs::path(path_).replace_filename("libnvrtc-builtins.so." + version_);
  if (fs::exists(companion, ignored)) {
    const Result<Library> opened = Library::open(companion);
    if (!opened) return opened.status();
    files.push_back(companion);
  }
  fingerprint_ = "nvrtc " + version_ + " build";
  for (const std::string& file : files) {
    const Result<Hash128> sample = sample_file(file);
    if (!sample) return sample.status();
    fingerprint_ += " " + to_hex(*sample).substr(0, 16);
  }
  for (const std::string& option : options_) fingerprint_ += " " + option;
  return Status();
}

// NVRTC lists plain numbers; "sm_90a" is compiled by whatever knows 90.
Status Nvrtc::supports(const std::string& target) const {
  const Result<const Target*> known = find_target(target);
  if (!known) return known.status();
  std::string names;
  for (int arch : archs_) {
    if (arch == (*known)->major * 10 + (*known)->minor) return Status();
    names += (names.empty() ? "sm_" : ", sm_") + std::to_string(arch);
  }
  return Status(ErrorCode::UNSUPPORTED, name() + " cannot compile for " + target + ", only for " + names +
                                            "; a newer NVRTC is needed for a newer architecture");
}

Result<CompileOutput> Nvrtc::compile(const CompileRequest& request) {
  const Status supported = supports(request.target);
  if (!supported.ok()) return supported;
  NvrtcProgram program = nullptr;
  const int result = api_.create(&program, request.source.c_str(), "kernel.cu", 0, nullptr, nullptr);
  if (result != kNvrtcSuccess)
    return Status(result == kNvrtcOutOfMemory ? ErrorCode::OUT_OF_MEMORY : ErrorCode::COMPILE,
                  name() + ": " + api_.error_string(result));
  CompileOutput output;
  const Status status = run(program, request, &output);
  api_.destroy(&program);
  if (!status.ok()) return status;
  return output;
}

Status Nvrtc::run(NvrtcProgram program, const CompileRequest& request, CompileOutput* output) const {
  const std::string architecture = "--gpu-architecture=" + request.target;
  std::vector<const char*> options = {architecture.c_str()};
  for (const std::string& option : options_) options.push_back(option.c_str());
  for (const std::string& option : request.options) options.push_back(option.c_str());

  int result = api_.compile(program, static_cast<int>(options.size()), options.data());
  output->log = log_of(program);
  size_t size = 0;
  if (result == kNvrtcSuccess) result = api_.cubin_size(program, &size);
  if (result == kNvrtcSuccess) {
    output->cubin.resize(size);
    result = api_.cubin(program, output->cubin.data());
  }
  if (result == kNvrtcSuccess && size > 0) return Status();
  return Status(result == kNvrtcOutOfMemory ? ErrorCode::OUT_OF_MEMORY : ErrorCode::COMPILE,
                name() + " for " + request.target + ": " + api_.error_string(result) + "\n" + output->log);
}

std::string Nvrtc::log_of(NvrtcProgram program) const {
  size_t size = 0;  // counts the final NUL
  if (api_.log_size(program, &size) != kNvrtcSuccess || size <= 1) return "";
  std::string log(size, '\0');
  if (api_.log(program, log.data()) != kNvrtcSuccess) return "";
  log.resize(size - 1);
  if (log.size() > kMaxLogBytes) log = log.substr(0, kMaxLogBytes) + "\n(the rest of the log is cut)\n";
  return log;
}

}  // namespace

Result<std::unique_ptr<Compiler>> open_nvrtc(const std::string& path) {
  const NvrtcPlaces places = find_nvrtc(path);
  std::string tried;
  for (const std::string& library : places.libraries) {
    Result<std::unique_ptr<Compiler>> nvrtc = Nvrtc::open(library);
    if (nvrtc) return nvrtc;
    tried += "\n  " + nvrtc.status().message();
  }
  for (const std::string& folder : places.empty) tried += "\n  " + folder + ": holds no libnvrtc.so.*";
  return Status(
      ErrorCode::NO_COMPILER,
      std::string("no usable NVRTC ") + kOldestVersion +
          " or later; install a CUDA toolkit, or the wheel nvidia-cuda-nvrtc beside that of Quern, or set QUERN_NVRTC to a library. "
          "Tried:" +
          tried);
}

}  // namespace quern
