/* How long a hit takes, through the in-process table and through the daemon: medians over many calls. Prints
 * lines of "NAME NANOSECONDS". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capi/quern.h"

enum { kBatch = 1000, kCalls = 20000 };

static const char kText[] =
    "graph rmsnorm\nin x: f16[16, 4096]\nin w: f16[4096, 6144]\ny = rms_norm(x, axis=-1, eps=1e-5)\nz = "
    "matmul(y, w)\nout z\n";

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void die(quern_status status, const quern_error* error) {
  if (status == QUERN_OK) return;
  fprintf(stderr, "%s: %s\n", quern_status_name(status), error->message);
  exit(1);
}

/* `batch` calls are timed together where one is too short for the clock. */
static void measure(const char* name, quern_client* client, const quern_graph* graph, uint32_t flags,
                    int batch) {
  static double times[kCalls];
  quern_get_options options;
  quern_error error;
  int i, j;
  const int count = kCalls / (batch == 1 ? 1 : 20);
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = flags;
  for (i = 0; i < count; ++i) {
    const double start = now_ns();
    for (j = 0; j < batch; ++j) {
      quern_plan* plan = NULL;
      die(quern_get(client, graph, "sm_90a", &options, &plan, &error), &error);
      quern_plan_release(plan);
    }
    times[i] = (now_ns() - start) / batch;
  }
  qsort(times, (size_t)count, sizeof *times, compare);
  printf("%s_p50 %.0f\n%s_p99 %.0f\n", name, times[count / 2], name, times[count / 100 * 99]);
}

int main(void) {
  quern_client* client = NULL;
  quern_graph* graph = NULL;
  quern_plan* plan = NULL;
  quern_plan_info info;
  quern_error error;
  double start = now_ns();
  die(quern_open(NULL, &client, &error), &error);
  printf("open_and_start %.0f\n", now_ns() - start);
  die(quern_graph_parse(kText, strlen(kText), &graph, &error), &error);
  start = now_ns();
  die(quern_get(client, graph, "sm_90a", NULL, &plan, &error), &error);
  printf("miss %.0f\n", now_ns() - start);
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  die(quern_plan_describe(plan, &info, &error), &error);
  printf("cubin_bytes %zu\n", info.cubin_size);
  measure("daemon_hit", client, graph, QUERN_REFRESH, 1);
  measure("table_hit", client, graph, 0, kBatch);
  quern_plan_release(plan);
  quern_graph_free(graph);
  quern_close(client);
  return 0;
}
