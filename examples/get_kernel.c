/* Writes the kernel of a graph to a file:  get_kernel graph.qg sm_90a kernel.cubin
 * Build it with  cc get_kernel.c -o get_kernel $(pkg-config --cflags --libs quern) */
#include <quern.h>
#include <stdio.h>

static quern_error error;
static int failed(void) {
  return fprintf(stderr, "%s: %s\n", quern_status_name(error.status), error.message), 1;
}

int main(int argc, char** argv) {
  static char text[1 << 20];
  quern_client* client = NULL;
  quern_graph* graph = NULL;
  quern_plan* plan = NULL;
  quern_plan_info info = {.struct_size = sizeof info};
  FILE* file = argc == 4 ? fopen(argv[1], "rb") : NULL;
  if (!file) return fprintf(stderr, "usage: get_kernel GRAPH.qg TARGET OUTPUT\n"), 2;
  const size_t size = fread(text, 1, sizeof text, file);
  fclose(file);

  if (quern_open(NULL, &client, &error)) return failed(); /* starts the daemon if none runs */
  if (quern_graph_parse(text, size, &graph, &error)) return failed();
  if (quern_get(client, graph, argv[2], NULL, &plan, &error)) return failed();
  if (quern_plan_describe(plan, &info, &error)) return failed();
  printf("%s: tier %d, generation %llu, %zu launches, %zu bytes, made in %.3f ms\n", info.key, (int)info.tier,
         (unsigned long long)info.generation, info.launch_count, info.cubin_size,
         (double)info.daemon_ns / 1e6);

  if ((file = fopen(argv[3], "wb"))) fwrite(info.cubin, 1, info.cubin_size, file), fclose(file);
  quern_plan_release(plan);
  quern_graph_free(graph);
  quern_close(client);
  return file ? 0 : 1;
}
