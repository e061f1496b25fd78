/* How long quern_launch keeps its caller, and how long it is until all is done: medians over many calls, for the baseline
 * of each graph and for the best plan that there is, on other buffers at each call and on the same. Batches are short enough
 * for the stream's queue.
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
enum { kPlaces = 4096, kApart = 256 }; /* of outputs, in bytes: more than a launcher remembers */

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

typedef struct {
  quern_plan* plan;
  void* stream;
  void *inputs[kMostTensors], *outputs[kMostTensors], *workspace;
  quern_plan_info info;
} Work;

static uint64_t bytes_of(const Work* work, int is_input, size_t index) {
  quern_tensor tensor;
  quern_error error;
  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  must((is_input ? quern_plan_input : quern_plan_output)(work->plan, index, &tensor, &error), &error);
  return tensor.bytes;
}

static void allocate_buffers(Work* work) {
  size_t i;
  for (i = 0; i < work->info.input_count; ++i) work->inputs[i] = memory(bytes_of(work, 1, i));
  for (i = 0; i < work->info.output_count; ++i)
    work->outputs[i] = memory(bytes_of(work, 0, i) + kPlaces * kApart);
  work->workspace = work->info.workspace_bytes ? memory(work->info.workspace_bytes) : NULL;
}

static void release_buffers(const Work* work) {
  size_t i;
  for (i = 0; i < work->info.input_count; ++i) release((uint64_t)(uintptr_t)work->inputs[i]);
  for (i = 0; i < work->info.output_count; ++i) release((uint64_t)(uintptr_t)work->outputs[i]);
  if (work->workspace) release((uint64_t)(uintptr_t)work->workspace);
}

static void launch(const Work* work, size_t place) {
  void* outputs[kMostTensors];
  quern_error error;
  size_t i;
  for (i = 0; i < work->info.output_count; ++i) outputs[i] = (char*)work->outputs[i] + place * kApart;
  must(quern_launch(work->plan, work->stream, work->inputs, outputs, work->workspace, &error), &error);
}

static double median(double* times) {
  qsort(times, kBatches, sizeof *times, compare);
  return times[kBatches / 2];
}

/* ns a call in which the caller waits for quern_launch, and until the GPU has done what was launched; the outputs lie at
 * `places` in turn. */
static void measure(const Work* work, size_t places, double* launched, double* done) {
  static double times[kBatches], ends[kBatches];
  const int calls =
      work->info.launch_count < kMostLaunches ? (int)(kMostLaunches / work->info.launch_count) : 1;
  size_t place = 0;
  int batch, call;
  for (batch = -1; batch < kBatches; ++batch) { /* the first warms up */
    double start;
    cuda(synchronize(work->stream), "cuStreamSynchronize");
    start = now_ns();
    for (call = 0; call < calls; ++call) launch(work, place++ % places);
    if (batch >= 0) times[batch] = (now_ns() - start) / calls;
    cuda(synchronize(work->stream), "cuStreamSynchronize");
    if (batch >= 0) ends[batch] = (now_ns() - start) / calls;
  }
  *launched = median(times);
  *done = median(ends);
}

static void report(const char* name, quern_plan* plan, void* stream) {
  Work work;
  quern_error error;
  double other, other_done, same, same_done;
  memset(&work, 0, sizeof work);
  work.plan = plan;
  work.stream = stream;
  work.info.struct_size = sizeof work.info;
  must(quern_plan_describe(plan, &work.info, &error), &error);
  if (work.info.input_count > kMostTensors || work.info.output_count > kMostTensors)
    stop(name, "too many tensors");
  if (work.info.launch_count == 0) return;
  allocate_buffers(&work);
  measure(&work, kPlaces, &other, &other_done);
  measure(&work, 1, &same, &same_done);
  printf("%-28s %-9s %4zu %12.0f %12.0f %12.0f %12.0f %12.0f %12.0f\n", name,
         work.info.tier == QUERN_BASELINE   ? "baseline"
         : work.info.tier == QUERN_MODELLED ? "modelled"
                                            : "measured",
         work.info.launch_count, other, other / (double)work.info.launch_count, other_done, same,
         same / (double)work.info.launch_count, same_done);
  release_buffers(&work);
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
  printf("%-28s %-9s %4s %38s %38s\n%-28s %-9s %4s %12s %12s %12s %12s %12s %12s\n", "", "", "",
         "other buffers each time, ns", "the same buffers, ns", "graph", "plan", "", "a call", "a kernel",
         "until done", "a call", "a kernel", "until done");
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
      report(strrchr(argv[i], '/') ? strrchr(argv[i], '/') + 1 : argv[i], plan, stream);
      quern_plan_release(plan);
    }
    quern_graph_free(graph);
  }
  quern_close(client);
  return 0;
}
