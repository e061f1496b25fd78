/* A gated MLP and attention, each as one graph: the plan of each is run on the GPU and compared with a reference; without a GPU, on the
 * emulator.
 *   cc fused.c $(pkg-config --cflags --libs quern) -ldl -lm -o fused */
#include "fused.h"

#include <quern.h>

enum { kRows = 16, kWidth = 128, kHidden = 256, kHeads = 2, kQueries = 32, kKeys = 64, kDepth = 64 };

static quern_error error;
static cuda driver;
static int has_gpu;

static void check(quern_status status) {
  if (status == QUERN_OK) return;
  fprintf(stderr, "%s: %s\n", quern_status_name(error.status), error.message);
  exit(1);
}

static void need(int cuda_error) {
  if (cuda_error) fprintf(stderr, "CUDA error %d\n", cuda_error), exit(1);
}

static quern_value input(quern_graph* graph, const char* name, int rank, const int64_t* shape, uint32_t flags) {
  quern_value value;
  check(quern_graph_input(graph, name, QUERN_F16, rank, shape, NULL, flags, &value, &error));
  return value;
}

static quern_value op(quern_graph* graph, const char* name, quern_value a, quern_value b, const quern_attr* attr) {
  const quern_value operands[] = {a, b};
  quern_value value;
  check(quern_graph_op(graph, name, operands, b == QUERN_NO_VALUE ? 1 : 2, attr, attr ? 1 : 0, NULL, &value, &error));
  return value;
}

/* Fills the inputs, launches the plan, and returns its only output. `hosts` get the inputs as they were. */
static uint16_t* run(quern_plan* plan, uint16_t** hosts) {
  quern_plan_info info = {.struct_size = sizeof info};
  uint64_t buffers[8], workspace = 0;
  void* pointers[8];
  size_t bytes = 0;
  check(quern_plan_describe(plan, &info, &error));
  for (size_t i = 0; i <= info.input_count; ++i) { /* the last one is the output */
    quern_tensor tensor = {.struct_size = sizeof tensor};
    check(i < info.input_count ? quern_plan_input(plan, i, &tensor, &error) : quern_plan_output(plan, 0, &tensor, &error));
    bytes = tensor.bytes;
    need(driver.cuMemAlloc(&buffers[i], bytes));
    pointers[i] = (void*)(uintptr_t)buffers[i];
    if (i == info.input_count) break;
    hosts[i] = malloc(bytes);
    fill(hosts[i], bytes / 2, 0.5f);
    need(driver.cuMemcpyHtoD(buffers[i], hosts[i], bytes));
  }
  if (info.workspace_bytes) need(driver.cuMemAlloc(&workspace, info.workspace_bytes));
  check(quern_launch(plan, NULL, pointers, pointers + info.input_count, (void*)(uintptr_t)workspace, &error));
  uint16_t* result = malloc(bytes);
  need(driver.cuMemcpyDtoH(result, buffers[info.input_count], bytes));
  for (size_t i = 0; i <= info.input_count; ++i) driver.cuMemFree(buffers[i]);
  if (workspace) driver.cuMemFree(workspace);
  return result;
}

static double* widened(const uint16_t* half, size_t count) {
  double* wide = malloc(count * sizeof *wide);
  for (size_t i = 0; i < count; ++i) wide[i] = from_half(half[i]);
  return wide;
}

/* y = (silu(x w1) * (x w3)) w2 */
static quern_graph* mlp_graph(void) {
  const int64_t x_shape[] = {kRows, kWidth}, up[] = {kWidth, kHidden}, down[] = {kHidden, kWidth};
  quern_graph* graph;
  check(quern_graph_new("mlp", &graph, &error));
  const quern_value x = input(graph, "x", 2, x_shape, 0), w1 = input(graph, "w1", 2, up, QUERN_INPUT_CONST),
                    w3 = input(graph, "w3", 2, up, QUERN_INPUT_CONST), w2 = input(graph, "w2", 2, down, QUERN_INPUT_CONST);
  const quern_value gate = op(graph, "silu", op(graph, "matmul", x, w1, NULL), QUERN_NO_VALUE, NULL);
  const quern_value hidden = op(graph, "mul", gate, op(graph, "matmul", x, w3, NULL), NULL);
  check(quern_graph_output(graph, op(graph, "matmul", hidden, w2, NULL), &error));
  return graph;
}

static void mlp_reference(uint16_t** in, double* out) {
  const double *x = widened(in[0], kRows * kWidth), *w1 = widened(in[1], kWidth * kHidden), *w3 = widened(in[2], kWidth * kHidden),
               *w2 = widened(in[3], kHidden * kWidth);
  static double gate[kRows * kHidden], up[kRows * kHidden];
  multiply(x, w1, gate, kRows, kWidth, kHidden, 0);
  multiply(x, w3, up, kRows, kWidth, kHidden, 0);
  for (int i = 0; i < kRows * kHidden; ++i) gate[i] *= up[i] / (1 + exp(-gate[i]));
  multiply(gate, w2, out, kRows, kHidden, kWidth, 0);
}

/* o = softmax(q k' / sqrt(depth)) v, for each head */
static quern_graph* attention_graph(void) {
  const int64_t q_shape[] = {kHeads, kQueries, kDepth}, k_shape[] = {kHeads, kKeys, kDepth}, swapped[] = {0, 2, 1}, last = -1;
  const quern_attr perm = quern_attr_ints("perm", swapped, 3), axis = quern_attr_ints("axis", &last, 1);
  quern_graph* graph;
  quern_value scale;
  check(quern_graph_new("attention", &graph, &error));
  const quern_value q = input(graph, "q", 3, q_shape, 0), k = input(graph, "k", 3, k_shape, 0), v = input(graph, "v", 3, k_shape, 0);
  check(quern_graph_constant(graph, 1 / sqrt(kDepth), QUERN_F32, &scale, &error));
  const quern_value scores = op(graph, "matmul", q, op(graph, "transpose", k, QUERN_NO_VALUE, &perm), NULL);
  const quern_value weights = op(graph, "softmax", op(graph, "mul", scores, scale, NULL), QUERN_NO_VALUE, &axis);
  check(quern_graph_output(graph, op(graph, "matmul", weights, v, NULL), &error));
  return graph;
}

static void attention_reference(uint16_t** in, double* out) {
  const double *q = widened(in[0], kHeads * kQueries * kDepth), *k = widened(in[1], kHeads * kKeys * kDepth),
               *v = widened(in[2], kHeads * kKeys * kDepth);
  for (int head = 0; head < kHeads; ++head) {
    double scores[kQueries * kKeys] = {0};
    multiply(q + head * kQueries * kDepth, k + head * kKeys * kDepth, scores, kQueries, kDepth, kKeys, 1);
    for (int i = 0; i < kQueries; ++i) {
      double sum = 0;
      for (int j = 0; j < kKeys; ++j) sum += scores[i * kKeys + j] = exp(scores[i * kKeys + j] / sqrt(kDepth));
      for (int j = 0; j < kKeys; ++j) scores[i * kKeys + j] /= sum;
    }
    multiply(scores, v + head * kKeys * kDepth, out + head * kQueries * kDepth, kQueries, kKeys, kDepth, 0);
  }
}

static int show(quern_client* client, const char* name, quern_graph* graph, void (*reference)(uint16_t**, double*), size_t count) {
  quern_plan* plan;
  const char* text;
  uint16_t* inputs[8];
  check(quern_get(client, graph, has_gpu ? NULL : "sm_90a", NULL, &plan, &error));
  check(quern_graph_text(graph, &text, NULL, &error));
  int wrong;
  if (has_gpu) {
    double* want = calloc(count, sizeof *want);
    uint16_t* got = run(plan, inputs);
    reference(inputs, want);
    wrong = compare(name, got, want, count);
  } else {
    wrong = run_emulated(text);
  }
  quern_plan_release(plan);
  quern_graph_free(graph);
  return wrong;
}

int main(void) {
  quern_client* client;
  has_gpu = cuda_open(&driver);
  check(quern_open(NULL, &client, &error));
  const int wrong = show(client, "mlp", mlp_graph(), mlp_reference, kRows * kWidth) +
                    show(client, "attention", attention_graph(), attention_reference, kHeads * kQueries * kDepth);
  quern_close(client);
  return wrong != 0;
}
