/* Every function of quern.h, from C. Runs against the daemon that $QUERN_DAEMON names, the fake one or the
 * real one, with the fake libcuda as driver. quern_symbols_test.py checks that nothing of the header is
 * missing here. */
/* cmocka.h needs the four before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/quern.h"

static quern_client* client;
static quern_error failure;

/* Ends the test with the library's own words. */
static void must(quern_status status) {
  if (status != QUERN_OK) print_error("%s: %s\n", quern_status_name(status), failure.message);
  assert_int_equal(status, QUERN_OK);
}

static void fails(quern_status status, quern_status expected, const char* part) {
  assert_int_equal(status, expected);
  assert_int_equal(failure.status, expected);
  if (!strstr(failure.message, part)) print_error("\"%s\" is not in: %s\n", part, failure.message);
  assert_non_null(strstr(failure.message, part));
}

static const char kText[] =
    "graph small\nin x: f16[4, 8]\nin w: f16[8, 16] const\ny = rms_norm(x, axis=-1, eps=1e-5)\nz = matmul(y, "
    "w)\nout z\n";

static quern_graph* parse(const char* text) {
  quern_graph* graph = NULL;
  must(quern_graph_parse(text, strlen(text), &graph, &failure));
  return graph;
}

static quern_plan* get(const quern_graph* graph) {
  quern_plan* plan = NULL;
  must(quern_get(client, graph, "sm_90a", NULL, &plan, &failure));
  return plan;
}

static void versions_and_statuses(void** state) {
  (void)state;
  assert_int_equal(quern_version(), QUERN_VERSION);
  assert_string_equal(quern_status_name(QUERN_INVALID_GRAPH), "INVALID_GRAPH");
  assert_string_equal(quern_status_meaning(QUERN_TIMEOUT), "the time allowed has passed");
  assert_string_equal(quern_status_name(12345), "UNKNOWN");
}

static void builds_a_graph(void** state) {
  const int64_t x_shape[] = {4, 8}, w_shape[] = {8, 16}, w_strides[] = {1, 8}, axes[] = {0, 1};
  quern_graph* graph = NULL;
  quern_value x, w, n, h, z, two, s, flat;
  quern_attr norm[2], sum[2], cast[1];
  quern_tensor tensor;
  const char* text = NULL;
  size_t size = 0;
  (void)state;

  must(quern_graph_new("built", &graph, &failure));
  must(quern_graph_input(graph, "x", QUERN_F16, 2, x_shape, NULL, 0, &x, &failure));
  must(quern_graph_input(graph, "w", QUERN_F16, 2, w_shape, w_strides, QUERN_INPUT_CONST, &w, &failure));
  norm[0] = quern_attr_integer("axis", -1);
  norm[1] = quern_attr_number("eps", 1e-5);
  must(quern_graph_op(graph, "rms_norm", &x, 1, norm, 2, "n", &n, &failure));
  {
    const quern_value operands[2] = {n, w};
    must(quern_graph_op(graph, "matmul", operands, 2, NULL, 0, NULL, &h, &failure));
  }
  must(quern_graph_constant(graph, 2, QUERN_I32, &two, &failure));
  {
    const quern_value operands[2] = {h, two};
    must(quern_graph_op(graph, "mul", operands, 2, NULL, 0, "z", &z, &failure));
  }
  sum[0] = quern_attr_ints("axis", axes, 2);
  sum[1] = quern_attr_flag("keepdims", 1);
  must(quern_graph_op(graph, "sum", &z, 1, sum, 2, "s", &s, &failure));
  cast[0] = quern_attr_dtype("dtype", QUERN_F32);
  must(quern_graph_op(graph, "cast", &s, 1, cast, 1, "flat", &flat, &failure));
  must(quern_graph_output(graph, z, &failure));
  must(quern_graph_output(graph, flat, &failure));

  {
    size_t index = 99;
    int32_t is_output = 99;
    must(quern_graph_buffer(graph, "w", &index, &is_output, &failure));
    assert_int_equal(index, 1);
    assert_int_equal(is_output, 0);
    must(quern_graph_buffer(graph, "flat", &index, &is_output, &failure));
    assert_int_equal(index, 1);
    assert_int_equal(is_output, 1);
    must(quern_graph_buffer(graph, "z", NULL, NULL, &failure));
    fails(quern_graph_buffer(graph, "n", &index, &is_output, &failure), QUERN_NOT_FOUND, "\"n\"");
    assert_int_equal(index, 0);
    fails(quern_graph_buffer(graph, NULL, &index, NULL, &failure), QUERN_INVALID_ARGUMENT, "name");
  }

  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  must(quern_graph_value(graph, z, &tensor, &failure));
  assert_string_equal(tensor.name, "z");
  assert_int_equal(tensor.dtype, QUERN_F16);
  assert_int_equal(tensor.rank, 2);
  assert_int_equal(tensor.shape[0], 4);
  assert_int_equal(tensor.shape[1], 16);
  assert_int_equal(tensor.strides[0], 16);
  assert_int_equal(tensor.bytes, 4 * 16 * 2);
  must(quern_graph_value(graph, w, &tensor, &failure));
  assert_int_equal(tensor.strides[1], 8);
  must(quern_graph_value(graph, flat, &tensor, &failure));
  assert_int_equal(tensor.dtype, QUERN_F32);
  assert_int_equal(tensor.rank, 2);
  assert_int_equal(tensor.shape[1], 1);

  must(quern_graph_text(graph, &text, &size, &failure));
  assert_int_equal(size, strlen(text));
  assert_non_null(strstr(text, "graph built\n"));
  assert_non_null(strstr(text, "strides[1, 8] const"));
  {
    quern_graph* again = parse(text);
    const char* text_again = NULL;
    must(quern_graph_text(again, &text_again, NULL, &failure));
    assert_string_equal(text, text_again);
    quern_graph_free(again);
  }
  quern_graph_free(graph);
  quern_graph_free(NULL);
}

static void a_result_may_be_stored_over_an_operand(void** state) {
  const int64_t shape[] = {4};
  quern_graph* graph = NULL;
  quern_value v[2];
  const char* text = NULL;
  (void)state;

  must(quern_graph_new("chain", &graph, &failure));
  must(quern_graph_input(graph, "w", QUERN_F32, 1, shape, NULL, 0, &v[1], &failure));
  must(quern_graph_input(graph, "x", QUERN_F32, 1, shape, NULL, 0, &v[0], &failure));
  must(quern_graph_op(graph, "silu", &v[0], 1, NULL, 0, "act", &v[0], &failure));
  must(quern_graph_op(graph, "mul", v, 2, NULL, 0, "gated", &v[1], &failure));
  must(quern_graph_output(graph, v[1], &failure));
  must(quern_graph_text(graph, &text, NULL, &failure));
  assert_non_null(strstr(text, "act = silu(x)\ngated = mul(act, w)\nout gated"));
  quern_graph_free(graph);
}

/* A value that a failed call has handed out is no value of the graph, not its first input. */
static void failed_calls_hand_out_no_value(void** state) {
  const int64_t shape[] = {4};
  quern_graph* graph = NULL;
  quern_tensor tensor;
  quern_value x, v, operands[2];
  (void)state;

  must(quern_graph_new("failing", &graph, &failure));
  must(quern_graph_input(graph, "x", QUERN_F32, 1, shape, NULL, 0, &x, &failure));
  v = 0;
  fails(quern_graph_input(graph, "x", QUERN_F32, 1, shape, NULL, 0, &v, &failure), QUERN_INVALID_GRAPH,
        "taken");
  assert_int_equal(v, QUERN_NO_VALUE);
  v = 0;
  fails(quern_graph_constant(graph, 0.5, QUERN_I32, &v, &failure), QUERN_INVALID_GRAPH, "integer");
  assert_int_equal(v, QUERN_NO_VALUE);
  v = 0;
  fails(quern_graph_constant(NULL, 0.5, QUERN_F32, &v, &failure), QUERN_INVALID_ARGUMENT, "graph");
  assert_int_equal(v, QUERN_NO_VALUE);
  v = 0;
  fails(quern_graph_op(graph, "silu", &x, 1, NULL, 0, "x", &v, &failure), QUERN_INVALID_GRAPH, "taken");
  assert_int_equal(v, QUERN_NO_VALUE);
  operands[0] = x;
  operands[1] = v;
  fails(quern_graph_op(graph, "mul", operands, 2, NULL, 0, NULL, &v, &failure), QUERN_INVALID_GRAPH,
        "mul: operand 1 is -1, which a call that failed hands out");
  operands[1] = 7;
  fails(quern_graph_op(graph, "mul", operands, 2, NULL, 0, NULL, &v, &failure), QUERN_INVALID_GRAPH,
        "mul: operand 1 is 7, but the graph has 1 values");
  fails(quern_graph_output(graph, v, &failure), QUERN_INVALID_GRAPH, "the output is -1");
  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  fails(quern_graph_value(graph, v, &tensor, &failure), QUERN_NOT_FOUND, "value -1");
  quern_graph_free(graph);
}

static void refuses_bad_graphs(void** state) {
  const int64_t shape[] = {4, 8}, huge[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const char *before = NULL, *after = NULL;
  quern_graph* graph = NULL;
  quern_value x, y;
  quern_attr attr;
  quern_tensor tensor;
  quern_plan* plan = NULL;
  (void)state;

  fails(quern_graph_parse("graph g\nin x: f17[4]\nout x\n", 28, &graph, &failure), QUERN_INVALID_GRAPH, "2:");
  assert_null(graph);
  fails(quern_graph_parse(NULL, 3, &graph, &failure), QUERN_INVALID_ARGUMENT, "text must not be NULL");
  fails(quern_graph_parse("", 0, NULL, &failure), QUERN_INVALID_ARGUMENT, "graph must not be NULL");
  fails(quern_graph_new("not a name", &graph, &failure), QUERN_INVALID_GRAPH, "not a name");
  must(quern_graph_new(NULL, &graph, &failure));
  must(quern_graph_input(graph, "x", QUERN_F16, 2, shape, NULL, 0, &x, &failure));
  must(quern_graph_text(graph, &before, NULL, &failure));
  quern_graph_free(parse(before)); /* a graph without outputs */
  fails(quern_graph_input(graph, "x", QUERN_F16, 2, shape, NULL, 0, &y, &failure), QUERN_INVALID_GRAPH,
        "taken");
  fails(quern_graph_input(graph, "y", 77, 2, shape, NULL, 0, &y, &failure), QUERN_INVALID_GRAPH, "dtype 77");
  fails(quern_graph_input(graph, "y", QUERN_F16, 9, huge, NULL, 0, &y, &failure), QUERN_INVALID_GRAPH,
        "rank 9");
  fails(quern_graph_input(graph, "y", QUERN_F16, 2, shape, NULL, 8, &y, &failure), QUERN_INVALID_ARGUMENT,
        "flags");
  fails(quern_graph_op(graph, "matmull", &x, 1, NULL, 0, NULL, &y, &failure), QUERN_INVALID_GRAPH, "matmull");
  fails(quern_graph_op(graph, "matmul", &x, 1, NULL, 0, NULL, &y, &failure), QUERN_INVALID_GRAPH,
        "1 operands");
  fails(quern_graph_op(graph, "matmul", NULL, 2, NULL, 0, NULL, &y, &failure), QUERN_INVALID_ARGUMENT,
        "operands");
  attr = quern_attr_number("nonsense", 1);
  fails(quern_graph_op(graph, "softmax", &x, 1, &attr, 1, NULL, &y, &failure), QUERN_INVALID_GRAPH,
        "nonsense");
  attr = quern_attr_flag("axis", 1);
  fails(quern_graph_op(graph, "softmax", &x, 1, &attr, 1, NULL, &y, &failure), QUERN_INVALID_GRAPH,
        "axis takes an integer");
  attr = quern_attr_integer("axis", 5);
  fails(quern_graph_op(graph, "softmax", &x, 1, &attr, 1, NULL, &y, &failure), QUERN_INVALID_GRAPH,
        "softmax");
  fails(quern_graph_constant(graph, 1.5, QUERN_I32, &y, &failure), QUERN_INVALID_GRAPH, "integer");
  fails(quern_graph_output(graph, 99, &failure), QUERN_INVALID_GRAPH, "99");
  memset(&tensor, 0, sizeof tensor);
  fails(quern_graph_value(graph, x, &tensor, &failure), QUERN_INVALID_ARGUMENT, "struct_size");
  tensor.struct_size = sizeof tensor;
  fails(quern_graph_value(graph, 99, &tensor, &failure), QUERN_NOT_FOUND, "99");
  /* What failed has changed nothing, not even the text that was handed out. */
  must(quern_graph_text(graph, &after, NULL, &failure));
  assert_ptr_equal(before, after);
  fails(quern_get(client, graph, "sm_90a", NULL, &plan, &failure), QUERN_INVALID_GRAPH, "no output");
  /* The error buffer is optional. */
  assert_int_equal(quern_graph_output(graph, 99, NULL), QUERN_INVALID_GRAPH);
  quern_graph_free(graph);
}

static void gets_a_plan(void** state) {
  quern_graph *graph = parse(kText), *same = parse(kText);
  quern_plan *plan = get(graph), *again = get(same), *fresh = NULL;
  quern_plan_info info;
  quern_tensor tensor;
  quern_get_options options;
  (void)state;

  assert_ptr_equal(plan, again); /* from the table */
  quern_plan_release(again);
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  must(quern_plan_describe(plan, &info, &failure));
  assert_int_equal(strlen(info.key), 32);
  assert_string_equal(info.target, "sm_90a");
  assert_int_equal(info.tier, QUERN_BASELINE);
  assert_int_equal(info.generation, 1);
  assert_true(info.cubin_size > 4);
  assert_non_null(info.cubin);
  assert_int_equal(info.input_count, 2);
  assert_int_equal(info.output_count, 1);
  assert_true(info.launch_count >= 1);
  assert_non_null(info.certificate);
  assert_string_equal(info.warning, "");
  assert_true(info.daemon_ns > 0);

  memset(&tensor, 0, sizeof tensor);
  tensor.struct_size = sizeof tensor;
  must(quern_plan_input(plan, 1, &tensor, &failure));
  assert_int_equal(tensor.bytes, 8 * 16 * 2);
  must(quern_plan_output(plan, 0, &tensor, &failure));
  assert_int_equal(tensor.rank, 2);
  assert_int_equal(tensor.shape[0], 4);
  assert_int_equal(tensor.shape[1], 16);
  fails(quern_plan_output(plan, 1, &tensor, &failure), QUERN_NOT_FOUND, "output 1");
  fails(quern_plan_input(plan, 2, &tensor, &failure), QUERN_NOT_FOUND, "input 2");

  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = QUERN_REFRESH;
  must(quern_get(client, graph, "sm_90a", &options, &fresh, &failure));
  assert_ptr_equal(plan, fresh); /* the same generation */
  assert_int_equal(quern_plan_outdated(client, plan), 0);
  quern_plan_release(fresh);
  assert_ptr_equal(quern_plan_retain(plan), plan);
  quern_plan_release(plan);
  quern_plan_release(plan);
  quern_plan_release(NULL);
  quern_graph_free(graph);
  quern_graph_free(same);
}

static void obeys_the_options(void** state) {
  quern_graph* graph = parse("graph options\nin x: f32[3, 5]\ny = exp(x)\nout y\n");
  quern_get_options options;
  struct {
    quern_get_options known;
    uint64_t unknown;
  } newer;
  quern_plan *plan = NULL, *other = NULL;
  int tries;
  (void)state;

  memset(&options, 0, sizeof options);
  fails(quern_get(client, graph, "sm_90a", &options, &plan, &failure), QUERN_INVALID_ARGUMENT, "struct_size");
  options.struct_size = sizeof options;
  options.flags = QUERN_NO_COMPILE;
  failure.message[0] = 0;
  assert_int_equal(quern_get(client, graph, "sm_90a", &options, &plan, &failure), QUERN_NOT_FOUND);
  assert_null(plan);
  options.flags = QUERN_NO_WAIT;
  options.priority = 200;
  options.timeout_ms = 5000;
  assert_int_equal(quern_get(client, graph, "sm_90a", &options, &plan, &failure), QUERN_PENDING);
  assert_null(plan);
  for (tries = 0; tries < 2000 && !plan; ++tries) {
    const quern_status status = quern_get(client, graph, "sm_90a", &options, &plan, &failure);
    if (status != QUERN_PENDING) must(status);
    if (!plan) poll(NULL, 0, 5);
  }
  assert_non_null(plan);
  quern_plan_release(plan);
  options.flags = 64;
  fails(quern_get(client, graph, "sm_90a", &options, &plan, &failure), QUERN_INVALID_ARGUMENT, "flags 64");
  options.flags = 0;
  options.numerics = 2;
  fails(quern_get(client, graph, "sm_90a", &options, &plan, &failure), QUERN_INVALID_ARGUMENT, "numerics 2");
  options.numerics = QUERN_ALLOW_TF32;
  options.priority = 256;
  fails(quern_get(client, graph, "sm_90a", &options, &plan, &failure), QUERN_INVALID_ARGUMENT, "priority");
  fails(quern_get(client, graph, "sm_none", NULL, &plan, &failure), QUERN_UNSUPPORTED, "sm_none");

  /* Constraints are part of the key, and none at all are the empty ones. */
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.constraints = "";
  must(quern_get(client, graph, "sm_90a", NULL, &plan, &failure));
  must(quern_get(client, graph, "sm_90a", &options, &other, &failure));
  assert_ptr_equal(plan, other);
  quern_plan_release(other);
  options.constraints = "franges 4 8";
  must(quern_get(client, graph, "sm_90a", &options, &other, &failure));
  assert_ptr_not_equal(plan, other);
  quern_plan_release(other);
  quern_plan_release(plan);
  options.constraints = "nonsense 4";
  fails(quern_get(client, graph, "sm_90a", &options, &plan, &failure), QUERN_INVALID_ARGUMENT,
        "no constraint \"nonsense\"");
  fails(quern_get(NULL, graph, "sm_90a", NULL, &plan, &failure), QUERN_INVALID_ARGUMENT, "client");

  /* A program that was compiled against a later header. */
  memset(&newer, 0, sizeof newer);
  newer.known.struct_size = sizeof newer;
  must(quern_get(client, graph, "sm_90a", &newer.known, &plan, &failure));
  quern_plan_release(plan);
  newer.unknown = 1;
  fails(quern_get(client, graph, "sm_90a", &newer.known, &plan, &failure), QUERN_INVALID_ARGUMENT,
        "does not have");
  quern_graph_free(graph);
}

/* Cancelling ends waits that are under way, of which there are none here, and asking nobody gives only what the
 * client has. */
static void asks_nobody_and_cancels(void** state) {
  quern_graph* graph = parse("graph at_hand\nin x: f32[3, 6]\ny = exp(x)\nout y\n");
  const quern_graph* graphs[1];
  quern_get_options options;
  quern_plan *plan = NULL, *again = NULL;
  quern_status status = QUERN_OK;
  (void)state;

  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = QUERN_NO_REQUEST;
  graphs[0] = graph;
  fails(quern_get(client, graph, "sm_90a", &options, &plan, &failure), QUERN_NOT_FOUND, "may not be asked");
  assert_int_equal(quern_prewarm(client, graphs, 1, "sm_90a", &options, &status, &failure), QUERN_NOT_FOUND);
  assert_int_equal(status, QUERN_NOT_FOUND);
  quern_cancel(NULL);
  quern_cancel(client);
  must(quern_get(client, graph, "sm_90a", NULL, &plan, &failure));
  must(quern_get(client, graph, "sm_90a", &options, &again, &failure));
  assert_ptr_equal(plan, again);
  options.flags |= QUERN_REFRESH;
  fails(quern_get(client, graph, "sm_90a", &options, &again, &failure), QUERN_INVALID_ARGUMENT, "forbids");
  quern_plan_release(plan);
  quern_plan_release(plan);
  quern_graph_free(graph);
}

static void prewarms(void** state) {
  quern_graph* graphs[3];
  quern_status statuses[3];
  quern_plan* plan;
  (void)state;
  graphs[0] = parse("graph w0\nin x: f32[7]\ny = tanh(x)\nout y\n");
  graphs[1] = parse("graph w1\nin x: f32[7]\ny = erf(x)\nout y\n");
  must(quern_graph_new("w2", &graphs[2], &failure));
  must(quern_prewarm(client, (const quern_graph* const*)graphs, 2, "sm_90a", NULL, statuses, &failure));
  assert_int_equal(statuses[0], QUERN_OK);
  assert_int_equal(statuses[1], QUERN_OK);
  fails(quern_prewarm(client, (const quern_graph* const*)graphs, 3, "sm_90a", NULL, statuses, &failure),
        QUERN_INVALID_GRAPH, "no output");
  assert_int_equal(statuses[0], QUERN_OK);
  assert_int_equal(statuses[2], QUERN_INVALID_GRAPH);
  must(quern_prewarm(client, NULL, 0, "sm_90a", NULL, NULL, &failure));
  plan = get(graphs[1]);
  quern_plan_release(plan);
  quern_graph_free(graphs[0]);
  quern_graph_free(graphs[1]);
  quern_graph_free(graphs[2]);
}

static void has_statistics(void** state) {
  quern_stats* stats = NULL;
  quern_stat stat;
  size_t i;
  int hits = 0, software = 0;
  (void)state;
  must(quern_stats_get(client, 0, &stats, &failure));
  memset(&stat, 0, sizeof stat);
  stat.struct_size = sizeof stat;
  for (i = 0; i < quern_stats_count(stats); ++i) {
    must(quern_stats_at(stats, i, &stat, &failure));
    hits += strcmp(stat.name, "hits") == 0 && !stat.text && stat.value > 0;
    software += strcmp(stat.name, "software") == 0 && stat.text && stat.text[0];
  }
  assert_int_equal(hits, 1);
  assert_int_equal(software, 1);
  fails(quern_stats_at(stats, i, &stat, &failure), QUERN_NOT_FOUND, "statistic");
  quern_stats_free(stats);
  quern_stats_free(NULL);
  assert_int_equal(quern_stats_count(NULL), 0);
}

static void is_pollable(void** state) {
  struct pollfd ready;
  uint64_t better = 7;
  (void)state;
  /* Of plans that were pending in the tests above. */
  must(quern_process(client, &better, &failure));
  must(quern_process(client, &better, &failure));
  assert_int_equal(better, 0);
  ready.fd = quern_fd(client);
  ready.events = POLLIN;
  ready.revents = 0;
  assert_true(ready.fd >= 0);
  assert_int_equal(poll(&ready, 1, 0), 0);
}

/* The entry points of the fake libcuda, as a program that uses the driver has them. */
static int (*retain_primary)(void**, int);
static int (*set_context)(void*);
static int (*create_stream)(void**, unsigned);
static int (*begin_capture)(void*, int);
static int (*end_capture)(void*, void**);
static const char* (*cuda_log)(void);
static void (*clear_log)(void);

static void find(void* library, const char* name, void* function, size_t size) {
  void* found = dlsym(library, name);
  assert_non_null(found);
  memcpy(function, &found, size);
}

static void load_fake_cuda(void) {
  void* library = dlopen(getenv("QUERN_LIBCUDA"), RTLD_NOW);
  assert_non_null(library);
  find(library, "cuDevicePrimaryCtxRetain", &retain_primary, sizeof retain_primary);
  find(library, "cuCtxSetCurrent", &set_context, sizeof set_context);
  find(library, "cuStreamCreate", &create_stream, sizeof create_stream);
  find(library, "cuStreamBeginCapture_v2", &begin_capture, sizeof begin_capture);
  find(library, "cuStreamEndCapture", &end_capture, sizeof end_capture);
  find(library, "fake_cuda_log", &cuda_log, sizeof cuda_log);
  find(library, "fake_cuda_clear_log", &clear_log, sizeof clear_log);
}

static int occurrences(const char* text, const char* part) {
  int count = 0;
  for (; (text = strstr(text, part)) != NULL; ++text) ++count;
  return count;
}

static void launches(void** state) {
  quern_graph* graph = parse(kText);
  quern_plan *plan = get(graph), *by_device = NULL;
  quern_plan_info info;
  quern_launch_info launch;
  quern_tensor_map map;
  const char* target = NULL;
  void *context = NULL, *stream = NULL, *captured = NULL, *memory, *workspace;
  void *inputs[2], *outputs[1];
  size_t i;
  (void)state;
  load_fake_cuda();

  must(quern_device_target(0, &target, &failure));
  assert_string_equal(target, "sm_90a");
  assert_int_not_equal(quern_device_target(9, &target, &failure), QUERN_OK);
  must(quern_get(client, graph, NULL, NULL, &by_device, &failure));
  assert_ptr_equal(plan, by_device);
  quern_plan_release(by_device);

  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  must(quern_plan_describe(plan, &info, &failure));
  memset(&launch, 0, sizeof launch);
  launch.struct_size = sizeof launch;
  for (i = 0; i < info.launch_count; ++i) {
    must(quern_plan_launch(plan, i, &launch, &failure));
    assert_true(strlen(launch.kernel) > 0);
    assert_true(launch.grid[0] >= 1 && launch.block[0] >= 1 && launch.cluster[0] >= 1);
    assert_true(launch.arg_count >= 1);
    assert_true(launch.args[0].kind >= QUERN_ARG_INPUT && launch.args[0].kind <= QUERN_ARG_TENSOR_MAP);
  }
  fails(quern_plan_launch(plan, i, &launch, &failure), QUERN_NOT_FOUND, "launch");
  memset(&map, 0, sizeof map);
  map.struct_size = sizeof map;
  fails(quern_plan_tensor_map(plan, 0, &map, &failure), QUERN_NOT_FOUND, "tensor map 0 of a plan with 0");

  memory = aligned_alloc(256, 4096);
  workspace = aligned_alloc(256, (info.workspace_bytes + 511) / 256 * 256);
  inputs[0] = memory;
  inputs[1] = (char*)memory + 1024;
  outputs[0] = (char*)memory + 2048;
  fails(quern_launch(plan, NULL, inputs, outputs, workspace, &failure), QUERN_CUDA,
        "no CUDA context is current");
  assert_int_equal(retain_primary(&context, 0), 0);
  assert_int_equal(set_context(context), 0);
  assert_int_equal(create_stream(&stream, 0), 0);
  must(quern_plan_prepare(plan, stream, &failure));
  must(quern_launch(plan, stream, inputs, outputs, workspace, &failure));
  must(quern_launch(plan, NULL, inputs, outputs, workspace, &failure));
  assert_int_equal(occurrences(cuda_log(), "load in context"), 1);
  assert_int_equal(occurrences(cuda_log(), "launch "), 2 * info.launch_count);

  /* Into a CUDA graph. */
  clear_log();
  assert_int_equal(begin_capture(stream, 0), 0);
  must(quern_launch(plan, stream, inputs, outputs, workspace, &failure));
  assert_int_equal(end_capture(stream, &captured), 0);
  assert_string_equal(cuda_log(), "");

  outputs[0] = (char*)memory + 2056;
  fails(quern_launch(plan, stream, inputs, outputs, workspace, &failure), QUERN_INVALID_ARGUMENT,
        "not 16-byte aligned");
  inputs[1] = NULL;
  fails(quern_launch(plan, stream, inputs, outputs, workspace, &failure), QUERN_INVALID_ARGUMENT,
        "null pointer");
  fails(quern_launch(plan, stream, NULL, outputs, workspace, &failure), QUERN_INVALID_ARGUMENT,
        "inputs must not be NULL");
  quern_plan_release(plan);
  quern_graph_free(graph);
  free(memory);
  free(workspace);
}

static void knows_a_forked_child(void** state) {
  quern_graph* graph = parse(kText);
  quern_plan* plan = get(graph);
  pid_t child;
  int status = -1;
  (void)state;
  child = fork();
  if (child == 0) {
    quern_plan* other = NULL;
    quern_tensor tensor;
    int right = quern_get(client, graph, "sm_90a", NULL, &other, NULL) == QUERN_FORKED;
    right = right && quern_process(client, NULL, NULL) == QUERN_FORKED && quern_fd(client) == -1;
    right =
        right && quern_plan_prepare(plan, NULL, &failure) == QUERN_FORKED && strstr(failure.message, "fork");
    memset(&tensor, 0, sizeof tensor);
    tensor.struct_size = sizeof tensor;
    right = right && quern_plan_input(plan, 0, &tensor, NULL) == QUERN_OK;
    quern_plan_release(plan);
    quern_close(client);
    client = NULL;
    right = right && quern_open(NULL, &client, NULL) == QUERN_OK;
    right = right && quern_get(client, graph, "sm_90a", NULL, &other, NULL) == QUERN_OK;
    quern_plan_release(other);
    quern_close(client);
    _exit(right ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  /* The parent's connection has not noticed. */
  {
    quern_stats* stats = NULL;
    must(quern_stats_get(client, 5000, &stats, &failure));
    quern_stats_free(stats);
  }
  quern_plan_release(plan);
  quern_graph_free(graph);
}

static void opens_as_told(void** state) {
  quern_open_options options;
  quern_client* other = NULL;
  (void)state;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.flags = QUERN_NO_START;
  must(quern_open(&options, &other, &failure)); /* the one that runs */
  quern_close(other);
  options.socket = "/tmp/quern-no-such-folder/s";
  fails(quern_open(&options, &other, &failure), QUERN_NO_DAEMON, "turned off");
  assert_null(other);
  options.flags = 2;
  fails(quern_open(&options, &other, &failure), QUERN_INVALID_ARGUMENT, "flags 2");
  fails(quern_open(NULL, NULL, &failure), QUERN_INVALID_ARGUMENT, "client");
  quern_close(NULL);
  assert_int_equal(quern_fd(NULL), -1);
}

static int open_client(void** state) {
  (void)state;
  if (quern_open(NULL, &client, &failure) != QUERN_OK) {
    print_error("%s\n", failure.message);
    return 1;
  }
  return 0;
}

static int close_client(void** state) {
  (void)state;
  quern_close(client);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(versions_and_statuses),
      cmocka_unit_test(builds_a_graph),
      cmocka_unit_test(a_result_may_be_stored_over_an_operand),
      cmocka_unit_test(failed_calls_hand_out_no_value),
      cmocka_unit_test(refuses_bad_graphs),
      cmocka_unit_test(gets_a_plan),
      cmocka_unit_test(obeys_the_options),
      cmocka_unit_test(asks_nobody_and_cancels),
      cmocka_unit_test(prewarms),
      cmocka_unit_test(has_statistics),
      cmocka_unit_test(is_pollable),
      cmocka_unit_test(launches),
      cmocka_unit_test(knows_a_forked_child),
      cmocka_unit_test(opens_as_told),
  };
  return cmocka_run_group_tests_name("quern.h", tests, open_client, close_client);
}
