// The NVRTC compiler: against an installed library where there is one, and against a fake one for what a good
// library never does.
#include <stdlib.h>

#include <algorithm>

#include "core/base/target.h"
#include "core/jit/compiler.h"
#include "core/jit/nvrtc_search.h"
#include "tests/support/test.h"

namespace quern {

namespace {

constexpr char kCopyKernel[] = R"(
extern "C" __global__ void copy(const float* a, float* b, long n) {
  const long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i];
})";

std::string fake_path() { return getenv("QUERN_FAKE_NVRTC"); }

// Opened once, before any test changes the environment that the search reads.
const Result<std::unique_ptr<Compiler>> found = open_nvrtc("");

// The installed NVRTC; skips the test when there is none.
Compiler* installed() {
  if (!found) skip_test(found.status().message());
  return found->get();
}

// An environment variable for the length of a test; set again or removed by the next test that cares.
void with(const char* name, const char* value) { value ? setenv(name, value, 1) : unsetenv(name); }

int reset_environment(void**) {
  for (const char* name : {"FAKE_NVRTC_VERSION", "FAKE_NVRTC_ARCHS", "QUERN_NVRTC"}) unsetenv(name);
  return 0;
}

void every_target_compiles_to_a_cubin_for_it(void**) {
  for (const Target& target : all_targets()) {
    const Result<CompileOutput> output = installed()->compile({kCopyKernel, target.name, {}});
    if (!output && output.status().code() == ErrorCode::UNSUPPORTED) {
      assert_contains(output.status().message(), "newer NVRTC");
      continue;
    }
    assert_ok(output);
    assert_true(output->cubin.starts_with("\177ELF"));
    assert_contains(output->cubin, "copy");
    assert_text_equal(output->log, "");
  }
}

void the_same_request_gives_the_same_cubin(void**) {
  const Result<CompileOutput> first = installed()->compile({kCopyKernel, "sm_90a", {}});
  const Result<CompileOutput> other = installed()->compile({kCopyKernel, "sm_80", {}});
  const Result<CompileOutput> again = installed()->compile({kCopyKernel, "sm_90a", {}});
  assert_ok(first);
  assert_ok(other);
  assert_ok(again);
  assert_true(first->cubin == again->cubin);
  assert_true(first->cubin != other->cubin);
}

void a_refused_program_says_which_line(void**) {
  const CompileRequest request{
      "extern \"C\" __global__ void k(int* a) {\n  a[0] = nowhere;\n}\n", "sm_80", {}};
  const Result<CompileOutput> output = installed()->compile(request);
  assert_error(output, ErrorCode::COMPILE, "kernel.cu(2): error");
  assert_contains(output.status().message(), "nowhere");
  assert_ok(installed()->compile({kCopyKernel, "sm_80", {}}));  // and the compiler goes on
}

void warnings_come_with_the_cubin(void**) {
  const CompileRequest request{
      "extern \"C\" __global__ void k(int* a) {\n  int unused;\n  a[0] = 1;\n}\n", "sm_80", {}};
  const Result<CompileOutput> output = installed()->compile(request);
  assert_ok(output);
  assert_contains(output->log, "kernel.cu(2): warning");
}

void a_bad_option_is_an_error(void**) {
  assert_error(installed()->compile({kCopyKernel, "sm_80", {"--no-such-option"}}), ErrorCode::COMPILE,
               "no-such-option");
}

void an_unknown_target_is_refused(void**) {
  assert_error(installed()->compile({kCopyKernel, "sm_42", {}}), ErrorCode::UNSUPPORTED, "sm_42");
}

void the_fingerprint_names_version_build_and_options(void**) {
  const std::string fingerprint = installed()->fingerprint();
  assert_contains(fingerprint, "nvrtc 1");
  assert_contains(fingerprint, " build ");
  assert_contains(fingerprint, "--std=c++20");
  const Result<std::unique_ptr<Compiler>> fake = open_nvrtc(fake_path());
  assert_ok(fake);
  assert_true((*fake)->fingerprint() != fingerprint);
}

void a_wrong_path_is_named_and_nothing_else_is_tried(void**) {
  const Result<std::unique_ptr<Compiler>> compiler = open_nvrtc("/nowhere/libnvrtc.so.13");
  assert_error(compiler, ErrorCode::NO_COMPILER, "/nowhere/libnvrtc.so.13");
  with("QUERN_NVRTC", "/elsewhere/libnvrtc.so.12");
  assert_error(open_nvrtc(""), ErrorCode::NO_COMPILER, "/elsewhere/libnvrtc.so.12");
  assert_int_equal(find_nvrtc("").libraries.size(), 1);
}

void a_file_that_is_no_library_is_refused(void**) {
  const std::filesystem::path file = temp_dir() / "libnvrtc.so.13";
  write_test_file(file, "this is not an ELF file");
  assert_error(open_nvrtc(file), ErrorCode::NO_COMPILER, file.string());
}

void a_library_that_is_not_nvrtc_is_refused(void**) {
  assert_error(open_nvrtc("libc.so.6"), ErrorCode::NO_COMPILER, "has no nvrtc");
}

void an_old_library_is_refused_with_its_version(void**) {
  with("FAKE_NVRTC_VERSION", "12.3");
  assert_error(open_nvrtc(fake_path()), ErrorCode::NO_COMPILER, "version 12.3 is older than 12.4");
  with("FAKE_NVRTC_VERSION", "11.8");
  assert_error(open_nvrtc(fake_path()), ErrorCode::NO_COMPILER, "version 11.8 is older than 12.4");
  with("FAKE_NVRTC_VERSION", "12.4");
  assert_ok(open_nvrtc(fake_path()));
}

void an_architecture_it_does_not_know_is_unsupported(void**) {
  with("FAKE_NVRTC_VERSION", "12.4");
  with("FAKE_NVRTC_ARCHS", "80 90");
  const Result<std::unique_ptr<Compiler>> compiler = open_nvrtc(fake_path());
  assert_ok(compiler);
  const Result<CompileOutput> output = (*compiler)->compile({kCopyKernel, "sm_100a", {}});
  assert_error(output, ErrorCode::UNSUPPORTED, "NVRTC 12.4");
  assert_contains(output.status().message(), "sm_100a, only for sm_80, sm_90;");
  assert_ok((*compiler)->compile({kCopyKernel, "sm_90a", {}}));
}

void options_reach_the_compiler(void**) {
  const Result<std::unique_ptr<Compiler>> compiler = open_nvrtc(fake_path());
  assert_ok(compiler);
  const Result<CompileOutput> output = (*compiler)->compile({kCopyKernel, "sm_90a", {"--fmad=false"}});
  assert_ok(output);
  assert_contains(output->cubin, "--gpu-architecture=sm_90a\n--std=c++20\n");
  assert_contains(output->cubin, "\n--fmad=false\n");
}

void a_folder_offers_its_newest_library_first(void**) {
  const std::filesystem::path folder = temp_dir();
  for (const char* name :
       {"libnvrtc.so.9", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "libnvrtc.alt.so.14"})
    write_test_file(folder / name, "");
  const NvrtcPlaces places = find_nvrtc(folder);
  assert_int_equal(places.libraries.size(), 3);
  assert_text_equal(places.libraries[0], (folder / "libnvrtc.so.13").string());
  assert_text_equal(places.libraries[2], (folder / "libnvrtc.so.9").string());
  assert_int_equal(find_nvrtc(temp_dir()).empty.size(), 1);
}

void the_private_folder_comes_before_toolkits(void**) {
  const char* before = getenv("XDG_DATA_HOME");
  const std::string saved = before ? before : "";
  const std::filesystem::path data = temp_dir(), toolkit = temp_dir();
  std::filesystem::create_directories(data / "quern/nvrtc");
  std::filesystem::create_directories(toolkit / "lib64");
  write_test_file(data / "quern/nvrtc/libnvrtc.so.12", "");
  write_test_file(toolkit / "lib64/libnvrtc.so.13", "");
  with("XDG_DATA_HOME", data.c_str());
  with("CUDA_HOME", toolkit.c_str());
  const std::vector<std::string> places = find_nvrtc("").libraries;
  with("XDG_DATA_HOME", before ? saved.c_str() : nullptr);
  with("CUDA_HOME", nullptr);
  const auto private_at = std::find(places.begin(), places.end(), data / "quern/nvrtc/libnvrtc.so.12");
  const auto toolkit_at = std::find(places.begin(), places.end(), toolkit / "lib64/libnvrtc.so.13");
  assert_true(private_at != places.end() && toolkit_at != places.end() && private_at < toolkit_at);
  assert_text_equal(places.back(), "libnvrtc.so.12");
}

}  // namespace

}  // namespace quern

int main() {
  using namespace quern;
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_target_compiles_to_a_cubin_for_it),
      cmocka_unit_test(the_same_request_gives_the_same_cubin),
      cmocka_unit_test(a_refused_program_says_which_line),
      cmocka_unit_test(warnings_come_with_the_cubin),
      cmocka_unit_test(a_bad_option_is_an_error),
      cmocka_unit_test(an_unknown_target_is_refused),
      cmocka_unit_test(the_fingerprint_names_version_build_and_options),
      cmocka_unit_test_setup(a_wrong_path_is_named_and_nothing_else_is_tried, reset_environment),
      cmocka_unit_test_setup(a_file_that_is_no_library_is_refused, reset_environment),
      cmocka_unit_test_setup(a_library_that_is_not_nvrtc_is_refused, reset_environment),
      cmocka_unit_test_setup(an_old_library_is_refused_with_its_version, reset_environment),
      cmocka_unit_test_setup(an_architecture_it_does_not_know_is_unsupported, reset_environment),
      cmocka_unit_test_setup(options_reach_the_compiler, reset_environment),
      cmocka_unit_test_setup(a_folder_offers_its_newest_library_first, reset_environment),
      cmocka_unit_test_setup(the_private_folder_comes_before_toolkits, reset_environment),
  };
  return cmocka_run_group_tests_name("nvrtc", tests, nullptr, nullptr);
}
