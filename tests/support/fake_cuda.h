// How a test steers the fake libcuda (fake_cuda.cc): look these up with dlsym in the library it gave as
// QUERN_LIBCUDA.
#pragma once

extern "C" {
// Lines such as "load in context 1" and "launch k grid 1,1,1 block 32,1,1 shared 0 args 4096 7", valid until
// the next call.
const char* fake_cuda_log();
void fake_cuda_clear_log();
// The next call of `symbol` ("cuModuleLoadData") returns `result`.
void fake_cuda_fail_once(const char* symbol, int result);
// Called for every launch that runs, by itself or in a graph, with the values of its arguments; may write to
// their memory. A result that is not 0 is a fault: from then on all synchronizations return it, as the
// driver's do.
void fake_cuda_on_launch(int (*run)(const char* kernel, const unsigned long long* arguments, int count));
}
