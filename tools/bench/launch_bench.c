/* How long quern_launch keeps its caller: medians over many calls, for the baseline of each graph and for the
 * best plan that there is. Kernels run meanwhile; batches are short enough for the stream's queue.
 *
 * usage: launch_bench TARGET GRAPH.qg...     with QUERN_LIBCUDA a fake driver: what is Quern's own part */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capi/quern.h"

enum { kBatches = 300, kMostLaunches = 200, kMostTensors = 256, kMostText = 1 << 20 };

static int (*init)(unsigned);
static int (*retain_primary)(void**, int);
static int (*set_context)(void*);
static int (*create_stream)(void**, unsigned);
static int (*synchronize)(void*);
static int (*allocate)(uint64_t*, size_t);
static int (*release)(uint64_t);

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void stop(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}
static void must(quern_status status, const quern_error* error) {
  if (status != QUERN_OK) stop(quern_status_name(status), error->message);
}
static void cuda(int result, const char* what) {
  if (result != 0) stop(what, "failed");
}

/* ISO C has no conversion between pointers to data and to functions. */
static void load(void* driver, const char* name, void* function) {
  void* const found = dlsym(driver, name);
  if (!found) stop(name, "is not in the driver");
  memcpy(function, &found, sizeof found);
}

static void* open_device(void) {
  const char* path = getenv("QUERN_LIBCUDA");
  void* const driver = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
  void *context = NULL, *stream = NULL;
  if (!driver) stop("no CUDA driver", dlerror());
  load(driver, "cuInit", &init);
  load(driver, "cuDevicePrimaryCtxRetain", &retain_primary);
  load(driver, "cuCtxSetCurrent", &set_context);
  load(driver, "cuStreamCreate", &create_stream);
  load(driver, "cuStreamSynchronize", &synchronize);
  load(driver, "cuMemAlloc_v2", &allocate);
  load(driver, "cuMemFree_v2", &release);
  cuda(init(0), "cuInit");
  cuda(retain_primary(&context, 0), "cuDevicePrimaryCtxRetain");
  cuda(set_context(context), "cuCtxSetCurrent");
  cuda(create_stream(&stream, 1), "cuStreamCreate"); /* does not wait for the default stream */
  return stream;
}

static void* memory(uint64_t bytes) {
  uint64_t address = 0;
  cuda(allocate(&address, bytes + 256), "cuMemAlloc");
  return (void*)(uintptr_t)address;
}

static void measure(const char* name, quern_plan* plan, void* stream) {
  static double times[kBatches];
  void *inputs[kMostTensors], *outputs[kMostTensors], *workspace;
  quern_plan_info info;
  quern_tensor tensor;
  quern_error error;
  size_t i;
  int batch, batches, calls;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  must(quern_plan_describe(plan, &info, &error), &error);
  if (info.input_count > kMostTensors || info.output_count > kMostTensors) stop(name, "too many tensors");
  for (i = 0; i < info.input_count + info.output_count; ++i) {
    const int is_input = i < info.input_count;
    memset(&tensor, 0, sizeof tensor);
    tensor.struct_size = sizeof tensor;
    must(is_input ? quern_plan_input(plan, i, &tensor, &error)
                  : quern_plan_output(plan, i - info.input_count, &tensor, &error),
         &error);
    *(is_input ? &inputs[i] : &outputs[i - info.input_count]) = memory(tensor.bytes);
  }
  workspace = info.workspace_bytes ? memory(info.workspace_bytes) : NULL;
  must(quern_launch(plan, stream, inputs, outputs, workspace, &error), &error);
  calls = info.launch_count < kMostLaunches
              ? (int)(kMostLaunches / (info.launch_count ? info.launch_count : 1))
              : 1;
  for (batches = 0; batches < kBatches; ++batches) {
    double start;
    cuda(synchronize(stream), "cuStreamSynchronize");
    start = now_ns();
    for (batch = 0; batch < calls; ++batch)
      must(quern_launch(plan, stream, inputs, outputs, workspace, &error), &error);
    times[batches] = (now_ns() - start) / calls;
  }
  cuda(synchronize(stream), "cuStreamSynchronize");
  qsort(times, kBatches, sizeof *times, compare);
  printf("%-28s %-9s %3zu launches  %8.0f ns a call  %7.0f ns a kernel\n", name,
         info.tier == QUERN_BASELINE   ? "baseline"
         : info.tier == QUERN_MODELLED ? "modelled"
                                       : "measured",
         info.launch_count, times[kBatches / 2],
         times[kBatches / 2] / (double)(info.launch_count ? info.launch_count : 1));
  for (i = 0; i < info.input_count; ++i) release((uint64_t)(uintptr_t)inputs[i]);
  for (i = 0; i < info.output_count; ++i) release((uint64_t)(uintptr_t)outputs[i]);
  if (workspace) release((uint64_t)(uintptr_t)workspace);
}

int main(int argc, char** argv) {
  static char text[kMostText];
  quern_client* client = NULL;
  quern_error error;
  void* stream;
  int i, tier;
  if (argc < 3) stop("usage", "launch_bench TARGET GRAPH.qg...");
  stream = open_device();
  must(quern_open(NULL, &client, &error), &error);
  for (i = 2; i < argc; ++i) {
    quern_graph* graph = NULL;
    FILE* const file = fopen(argv[i], "r");
    size_t size;
    if (!file) stop(argv[i], "cannot be read");
    size = fread(text, 1, sizeof text, file);
    fclose(file);
    must(quern_graph_parse(text, size, &graph, &error), &error);
    for (tier = QUERN_BASELINE; tier <= QUERN_MODELLED; ++tier) {
      quern_get_options options;
      quern_plan* plan = NULL;
      memset(&options, 0, sizeof options);
      options.struct_size = sizeof options;
      options.min_tier = tier;
      must(quern_get(client, graph, argv[1], &options, &plan, &error), &error);
      measure(strrchr(argv[i], '/') ? strrchr(argv[i], '/') + 1 : argv[i], plan, stream);
      quern_plan_release(plan);
    }
    quern_graph_free(graph);
  }
  quern_close(client);
  return 0;
}
