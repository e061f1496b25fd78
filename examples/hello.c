// The plan of a graph: hello FILE TARGET. Built by: cc hello.c $(pkg-config --cflags --libs quern) -o hello
#include <quern.h>
#include <stdio.h>

int main(int argc, char** argv) {
  static char text[1 << 20];
  quern_client* client;
  quern_graph* graph;
  quern_plan* plan;
  quern_plan_info info = {.struct_size = sizeof info};
  quern_error error;
  if (argc != 3) return fprintf(stderr, "usage: hello FILE TARGET\n"), 2;
  FILE* file = fopen(argv[1], "r");
  if (!file) return perror(argv[1]), 2;
  const size_t size = fread(text, 1, sizeof text, file);
  if (quern_open(NULL, &client, &error) || quern_graph_parse(text, size, &graph, &error) ||
      quern_get(client, graph, argv[2], NULL, &plan, &error) || quern_plan_describe(plan, &info, &error))
    return fprintf(stderr, "%s: %s\n", quern_status_name(error.status), error.message), 1;
  printf("%s: key %s, %zu kernels, %zu bytes of code, %.3f ms in the daemon\n",
         info.origin == QUERN_ORIGIN_HIT ? "hit" : "miss", info.key, info.launch_count, info.cubin_size,
         (double)info.daemon_ns / 1e6);
  quern_plan_release(plan);
  quern_graph_free(graph);
  quern_close(client);
  return fclose(file);
}
