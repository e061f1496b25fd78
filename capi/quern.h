/* clang-format off */
/* quern.h: GPU kernels for tensor graphs, from the local kernel cache daemon.
 *
 * A program opens a client, builds a graph (or parses its text), gets a plan for a GPU architecture, and
 * launches it on a CUstream:
 *
 *   quern_error error;
 *   quern_client *client;
 *   quern_graph *graph;
 *   quern_plan *plan;
 *   if (quern_open(NULL, &client, &error) != QUERN_OK) die(error.message);
 *   if (quern_graph_parse(text, strlen(text), &graph, &error) != QUERN_OK) die(error.message);
 *   if (quern_get(client, graph, "sm_90a", NULL, &plan, &error) != QUERN_OK) die(error.message);
 *   if (quern_launch(plan, stream, inputs, outputs, workspace, &error) != QUERN_OK) die(error.message);
 *
 * The program links libquern only (pkg-config --cflags --libs quern). The CUDA driver is loaded when it is
 * first needed; everything but quern_launch, quern_plan_prepare and quern_device_target works on a machine
 * without one.
 *
 * CONVENTIONS
 *
 *  1. Versions. The soname changes when a program must be compiled again. Until then functions,
 *     constants and struct fields are only ever added. QUERN_VERSION is that of this header,
 *     quern_version() that of the library that runs.
 *  2. Errors. A function that can fail returns a quern_status and takes as its last argument a
 *     quern_error, which may be NULL. The quern_error belongs to the caller, who may put it on the
 *     stack: it is written on every failure, and on success it is left alone. When a function fails,
 *     what it would have returned is NULL or 0 (a value: QUERN_NO_VALUE), and handles are as before. QUERN_PENDING is not a
 *     failure: only quern_get and quern_prewarm return it, and only when asked not to wait. Every
 *     function can fail with QUERN_INVALID_ARGUMENT (a NULL where there must be none) and
 *     QUERN_OUT_OF_MEMORY; what else it can fail with stands beside it.
 *  3. Ownership. What a function named _open, _new, _parse or _get hands out is the caller's, who ends
 *     it with quern_close, quern_graph_free or quern_plan_release; these take NULL. Pointers inside
 *     handles (texts, shapes, the cubin) belong to the handle and live as long as it does, unless said
 *     otherwise. Arguments are read before results are written, so that a result may be stored over an
 *     operand, and they are never kept.
 *  4. Threads. A client and a plan may be used by any number of threads at once. A graph is built by
 *     one thread at a time; once built it may be read by many. Handles are ended when no other thread
 *     is using them. There are no hidden threads, no signal handlers and no callbacks.
 *  5. Blocking. A function blocks only where its text says so, and no longer than its time limit.
 *     Nothing blocks on the GPU. Signals do not end a wait early, but quern_cancel does.
 *  6. Structs with a struct_size are zeroed by the caller, who sets struct_size to sizeof the struct:
 *     that is how old programs and new libraries agree on what is in it. 0 and NULL mean the default.
 *     In a struct that the library fills in, fields that the library does not know are left alone.
 *     quern_error, quern_attr and quern_launch_arg never change.
 *  7. Forks. In a forked child a client gives QUERN_FORKED, and so do quern_launch and
 *     quern_plan_prepare, because neither a connection nor a CUDA context can be shared; open a new
 *     client there. quern_close and quern_plan_release are safe in the child and do not disturb the
 *     parent. Graphs and the texts and numbers of plans can be used in both.
 *  8. Texts are UTF-8 and end with a 0 byte. Environment: QUERN_SOCKET and QUERN_DAEMON (see
 *     quern_open_options), and XDG_RUNTIME_DIR. Read by quern_open: QUERN_NO_START (set: as the flag),
 *     QUERN_RECORD=DIR (graphs that are asked for are written there, with a manifest for `quern prewarm`),
 *     QUERN_STRICT=DIR (nothing is compiled: what is not in the cache is NOT_FOUND, and written there).
 */
/* clang-format on */
#ifndef QUERN_H
#define QUERN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define QUERN_API __attribute__((visibility("default")))
#else
#define QUERN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- versions --------------------------------------------------------------------------------------- */

/* major * 1000000 + minor * 1000 + patch */
#define QUERN_VERSION 1000

/* The version of the library, as QUERN_VERSION is written. */
QUERN_API uint32_t quern_version(void);

/* ---- errors ----------------------------------------------------------------------------------------- */

typedef int32_t quern_status;

/* The values never change; new ones are added at the end. */
enum {
  QUERN_OK = 0,
  QUERN_PENDING = 1,          /* not ready yet; ask again later or wait */
  QUERN_INVALID_ARGUMENT = 2, /* an argument is not valid */
  QUERN_INVALID_GRAPH = 3,    /* the graph is not valid; the message says where and what was expected */
  QUERN_UNSUPPORTED = 4,      /* this build or this machine cannot do it */
  QUERN_NOT_FOUND = 5,        /* no such key, file or record */
  QUERN_LIMIT = 6,            /* a limit is exceeded */
  QUERN_TIMEOUT = 7,          /* the time allowed has passed */
  QUERN_BUSY = 8,             /* too much is under way; try again */
  QUERN_IO = 9,               /* the operating system refused an operation */
  QUERN_NO_DAEMON = 10,       /* the daemon cannot be reached or started */
  QUERN_DISCONNECTED = 11,    /* the connection to the daemon was lost */
  QUERN_PROTOCOL = 12,        /* a message does not follow the protocol, or a version is not spoken here */
  QUERN_PERMISSION = 13,      /* not allowed */
  QUERN_CORRUPT = 14,         /* stored data is damaged */
  QUERN_STORAGE_FULL = 15,    /* no room left in the cache or on its disk */
  QUERN_COMPILE = 16,         /* the CUDA compiler refused the program */
  QUERN_NO_COMPILER = 17,     /* no usable NVRTC was found */
  QUERN_CUDA = 18,            /* a CUDA driver call failed */
  QUERN_NO_DEVICE = 19,       /* no usable GPU or driver was found */
  QUERN_WORKER = 20,          /* the worker process died */
  QUERN_QUARANTINED = 21,     /* this graph has killed its worker before and is set aside */
  QUERN_CANCELLED = 22,       /* cancelled */
  QUERN_OUT_OF_MEMORY = 23,   /* out of memory */
  QUERN_FORKED = 24,          /* the handle was made before a fork and cannot be used in the child */
  QUERN_INTERNAL = 25         /* a bug in Quern */
};

/* What went wrong, for people: what, where, and what to do. A longer message is cut at its end. */
typedef struct quern_error {
  quern_status status;
  char message[2044];
} quern_error;

/* "INVALID_GRAPH"; "UNKNOWN" for a number that is not in the list above. Static text. */
QUERN_API const char* quern_status_name(quern_status status);
/* The comment beside the status above. Static text. */
QUERN_API const char* quern_status_meaning(quern_status status);

/* ---- tensors ---------------------------------------------------------------------------------------- */

typedef int32_t quern_dtype;

enum {
  QUERN_F16 = 1,
  QUERN_BF16 = 2,
  QUERN_F32 = 3,
  QUERN_I32 = 4,
  QUERN_BOOL = 5 /* one byte, 0 or 1 */
};

enum { QUERN_MAX_RANK = 8 };

/* A tensor of a graph, or a buffer that a plan takes. Filled in by the library; the pointers live as long as
 * the handle that was asked (for a graph: until it is changed). */
typedef struct quern_tensor {
  size_t struct_size;
  const char* name;
  quern_dtype dtype;
  int32_t rank;
  const int64_t* shape;   /* rank extents */
  const int64_t* strides; /* rank strides, in elements */
  uint64_t bytes;         /* that the buffer must hold: from the first to the last element addressed */
} quern_tensor;

/* ---- graphs ----------------------------------------------------------------------------------------- */

/* A tensor program: inputs, operators, outputs. core/lang/ops.def in Quern's sources lists the operators. */
typedef struct quern_graph quern_graph;

/* A tensor or a number in a graph; counts up from 0 in the order of building. */
typedef int32_t quern_value;

enum {
  QUERN_NO_VALUE = -1 /* what a call that failed hands out; every call refuses it as an operand or output */
};

/* An attribute of an operator. Made by one of the functions below; never kept by the library. */
typedef struct quern_attr {
  const char* name;
  int32_t kind;        /* QUERN_ATTR_... */
  int32_t reserved;    /* 0 */
  int64_t integer;     /* of an integer, a flag or a dtype */
  double number;       /* of a number */
  const int64_t* ints; /* of a list */
  size_t count;
} quern_attr;

enum {
  QUERN_ATTR_INTEGER = 1,
  QUERN_ATTR_INTS = 2,
  QUERN_ATTR_NUMBER = 3,
  QUERN_ATTR_DTYPE = 4,
  QUERN_ATTR_FLAG = 5
};

/* One integer; also a list of one. `name` and `values` must live until the operator is added. */
static inline quern_attr quern_attr_integer(const char* name, int64_t value) {
  quern_attr attr = {name, QUERN_ATTR_INTEGER, 0, value, 0, NULL, 0};
  return attr;
}
static inline quern_attr quern_attr_ints(const char* name, const int64_t* values, size_t count) {
  quern_attr attr = {name, QUERN_ATTR_INTS, 0, 0, 0, values, count};
  return attr;
}
static inline quern_attr quern_attr_number(const char* name, double value) {
  quern_attr attr = {name, QUERN_ATTR_NUMBER, 0, 0, value, NULL, 0};
  return attr;
}
static inline quern_attr quern_attr_dtype(const char* name, quern_dtype value) {
  quern_attr attr = {name, QUERN_ATTR_DTYPE, 0, value, 0, NULL, 0};
  return attr;
}
static inline quern_attr quern_attr_flag(const char* name, int value) {
  quern_attr attr = {name, QUERN_ATTR_FLAG, 0, value != 0, 0, NULL, 0};
  return attr;
}

/* An empty graph. `name` is for people only and may be NULL. INVALID_GRAPH when it cannot be a name (letters,
 * digits, _). */
QUERN_API quern_status quern_graph_new(const char* name, quern_graph** graph, quern_error* error);

/* A graph from its text form (.qg) of `size` bytes, which need not end with a 0 byte. INVALID_GRAPH with
 * "LINE:COLUMN: ..." at the first mistake; LIMIT. The result can be built further, and outputs may be missing
 * until a plan is asked for. */
QUERN_API quern_status quern_graph_parse(const char* text, size_t size, quern_graph** graph,
                                         quern_error* error);

QUERN_API void quern_graph_free(quern_graph* graph);

enum {
  QUERN_INPUT_CONST =
      1 /* contents do not change from launch to launch (weights): plans may fetch them early */
};

/* Declares the next buffer that the caller passes to quern_launch. `strides` are in elements, not negative;
 * NULL means dense and row-major. `shape` may be NULL when rank is 0. INVALID_GRAPH, LIMIT. */
QUERN_API quern_status quern_graph_input(quern_graph* graph, const char* name, quern_dtype dtype,
                                         int32_t rank, const int64_t* shape, const int64_t* strides,
                                         uint32_t flags, quern_value* value, quern_error* error);

/* A number written in the program. It takes the dtype of the tensors that it is combined with. Where
 * there is none, as in sums of numbers, `dtype` decides: QUERN_F32 or QUERN_I32. INVALID_GRAPH when an I32 is not an integer of 32
 * bits. */
QUERN_API quern_status quern_graph_constant(quern_graph* graph, double number, quern_dtype dtype,
                                            quern_value* value, quern_error* error);

/* Adds an operator, by its name in the text form ("matmul"). `name` names the result and may be NULL. A NULL
 * `operands` or `attrs` goes with a count of 0. `value` may point to one of the operands. INVALID_GRAPH when
 * there is no such operator or attribute, or the operator does not take these operands, or one of them is no
 * value of the graph, or the name is taken; LIMIT. */
QUERN_API quern_status quern_graph_op(quern_graph* graph, const char* op, const quern_value* operands,
                                      size_t operand_count, const quern_attr* attrs, size_t attr_count,
                                      const char* name, quern_value* value, quern_error* error);

/* Declares `value` as the next buffer that quern_launch fills. INVALID_GRAPH for a number, LIMIT. */
QUERN_API quern_status quern_graph_output(quern_graph* graph, quern_value value, quern_error* error);

/* Name, dtype and shape of a value; strides are those of an input, and dense otherwise. NOT_FOUND. */
QUERN_API quern_status quern_graph_value(const quern_graph* graph, quern_value value, quern_tensor* tensor,
                                         quern_error* error);

/* Where the input or output called `name` stands in the lists that quern_launch takes, for callers who bind buffers
 * by name: `index` (may be NULL) gets its place among the inputs, and `is_output` (may be NULL) 0; or its place
 * among the outputs, and 1. An output that is an input counts as the input. Ask the graph: many graphs share one plan,
 * whose buffers have the names of the canonical form (i0, t3). NOT_FOUND. */
QUERN_API quern_status quern_graph_buffer(const quern_graph* graph, const char* name, size_t* index,
                                          int32_t* is_output, quern_error* error);

/* The text form of the graph, which parses to the same graph. It belongs to the graph and lives until the
 * graph is changed. */
QUERN_API quern_status quern_graph_text(const quern_graph* graph, const char** text, size_t* size,
                                        quern_error* error);

/* ---- clients ---------------------------------------------------------------------------------------- */

/* A connection to the daemon, and the plans that came over it. */
typedef struct quern_client quern_client;

enum {
  QUERN_NO_START = 1 /* do not start a daemon when none is running */
};

typedef struct quern_open_options {
  size_t struct_size;
  uint32_t flags;         /* set of QUERN_NO_START */
  uint32_t timeout_ms;    /* for connecting, starting the daemon included; 0 = 10 seconds */
  const char* socket;     /* NULL = $QUERN_SOCKET, else $XDG_RUNTIME_DIR/quern/quernd.sock, else
                             /tmp/quern-UID/quernd.sock */
  const char* daemon;     /* the program to start; NULL = $QUERN_DAEMON, else quernd beside libquern or the
                             program, else in $PATH */
  uint32_t max_plans;     /* kept for later calls of quern_get, the least recently used go first; 0 = 1024 */
  uint32_t look_every_ms; /* see quern_get; 0 = 100, UINT32_MAX = never */
} quern_open_options;

/* Connects, and starts the daemon if none is running: of any number of processes that do so at once exactly
 * one starts it. The daemon outlives the program. Blocks up to timeout_ms. `options` may be NULL. NO_DAEMON
 * with all that was tried; TIMEOUT when a daemon is there but does not answer; PERMISSION when the socket or
 * its directory is not to be trusted; PROTOCOL, BUSY, IO. */
QUERN_API quern_status quern_open(const quern_open_options* options, quern_client** client,
                                  quern_error* error);

/* Ends the connection. Plans that came over it stay valid until they are released. */
QUERN_API void quern_close(quern_client* client);

/* A descriptor to put into poll, select or epoll: readable when quern_process has something to do. It stays
 * the same for the life of the client, also when the connection is lost and made again; never read from it or
 * close it. -1 in a forked child. */
QUERN_API int quern_fd(const quern_client* client);

/* Takes in what the daemon has sent by itself, and never blocks. `better` (may be NULL) gets the number of
 * plans for which a better one was announced since the last call, and of those that were PENDING and are
 * ready, or could not be made; quern_get hands them out, or says why. A lost connection
 * is no error: the next request makes a new one. FORKED. */
QUERN_API quern_status quern_process(quern_client* client, uint64_t* better, quern_error* error);

/* Ends every call on `client` that waits, in whatever thread: within some 20 ms each returns CANCELLED (or a
 * plan that the client has, see quern_get). Calls that begin later are not affected. Never blocks; safe in a
 * signal handler, and in any thread while no other closes the client. The daemon goes on with what it was
 * asked for. Does nothing in a forked child and for NULL. */
QUERN_API void quern_cancel(quern_client* client);

/* ---- getting plans ---------------------------------------------------------------------------------- */

/* What a caller launches: one cubin with an ordered list of kernel launches and a workspace. Never changes.
 */
typedef struct quern_plan quern_plan;

enum {
  QUERN_NO_WAIT = 1,    /* on a miss let the daemon make the plan in the background, and return QUERN_PENDING;
                           quern_fd tells when it is ready */
  QUERN_NO_COMPILE = 2, /* on a miss make nothing, and return QUERN_NOT_FOUND */
  QUERN_REFRESH = 4,    /* ask the daemon even when the client has the plan */
  QUERN_NO_REQUEST = 8  /* never ask the daemon: return QUERN_NOT_FOUND where it would have to be asked */
};

enum {
  QUERN_ALLOW_TF32 = 1 /* f32 products may be computed from operands rounded to tf32 */
};

typedef struct quern_get_options {
  size_t struct_size;
  uint32_t flags;      /* set of QUERN_NO_WAIT, ... */
  uint32_t numerics;   /* set of QUERN_ALLOW_TF32; part of the key */
  uint32_t timeout_ms; /* 0 = 60 seconds, UINT32_MAX = as long as it takes */
  uint32_t priority;   /* 0 to 255: among waiting jobs of the daemon the higher goes first */
  /* What the search for a better plan may find, as "griddims 96,1,1 64,1,1; fmaps 0 -1; franges 16"; part of
     the key; NULL or "" = anything. docs/mugraphs.md describes griddims, blockdims, imaps, omaps, fmaps and
     franges. */
  const char* constraints;
  /* QUERN_BASELINE, QUERN_MODELLED or QUERN_MEASURED: wait for a plan of this tier, up to timeout_ms; 0 =
     any. A plan of a lower tier comes when nothing is under way that would make a better one. A measuring
     that is put off, as while others use the GPU, is under way: TIMEOUT says why and until when. */
  int32_t min_tier;
} quern_get_options;

/* The plan of a graph for a target such as "sm_90a"; NULL means that of CUDA device 0.
 *
 * A graph that this client has asked for before costs no system call, and gives the same handle (one more
 * reference, to be released like the first), until the daemon announces a better plan; then that one is
 * fetched. Announcements are noticed in quern_process, in any request, and here, at most once every
 * look_every_ms, by one read that does not block. When a better plan cannot be fetched the old one is
 * returned, which is as right as it ever was.
 *
 * Otherwise blocks up to timeout_ms for the daemon, less than a millisecond if the plan is in its cache.
 * After TIMEOUT and CANCELLED the daemon goes on with its work: ask again, or ask with a lower min_tier for the plan that
 * is there. If the connection is lost, it is made again once, as by quern_open; then DISCONNECTED or NO_DAEMON.
 * PENDING, NOT_FOUND: see the flags. UNSUPPORTED for an unknown target, INVALID_ARGUMENT for constraints that
 * cannot be parsed. INVALID_GRAPH for a graph without outputs. NO_COMPILER, COMPILE, WORKER, QUARANTINED when there
 * is no plan and none could be made. LIMIT, BUSY, FORKED, and with a NULL target NO_DEVICE. */
QUERN_API quern_status quern_get(quern_client* client, const quern_graph* graph, const char* target,
                                 const quern_get_options* options, quern_plan** plan, quern_error* error);

/* Asks for the plans of `count` graphs at once, so that the daemon can make them side by side, and keeps them
 * for quern_get. `statuses` (may be NULL) gets one status a graph. The result is that of the first graph that
 * failed, else PENDING if one is pending, else OK. The options, blocking and errors are those of quern_get,
 * with one time limit for all. */
QUERN_API quern_status quern_prewarm(quern_client* client, const quern_graph* const* graphs, size_t count,
                                     const char* target, const quern_get_options* options,
                                     quern_status* statuses, quern_error* error);

/* 1 when the client knows of a better plan for the same key, which quern_get would fetch; 0 otherwise. No
 * system call. */
QUERN_API int quern_plan_outdated(const quern_client* client, const quern_plan* plan);

/* ---- plans ------------------------------------------------------------------------------------------ */

/* One more reference, to be released; returns `plan`. */
QUERN_API quern_plan* quern_plan_retain(quern_plan* plan);
/* Gives one reference back. With the last one the plan's modules are unloaded: see to it that no launch of it
 * is still running. */
QUERN_API void quern_plan_release(quern_plan* plan);

typedef int32_t quern_tier;

/* How good a plan is; a higher tier is better. */
enum {
  QUERN_BASELINE = 1, /* correct */
  QUERN_MODELLED = 2, /* searched, ranked by the cost model */
  QUERN_MEASURED = 3  /* timed on a GPU */
};

typedef int32_t quern_origin;

/* Where the daemon had the plan from when it first answered with it. */
enum {
  QUERN_ORIGIN_HIT = 1,      /* its cache */
  QUERN_ORIGIN_COMPILED = 2, /* made for this request */
  QUERN_ORIGIN_SHARED = 3    /* made for a request that came before and was not finished */
};

typedef struct quern_plan_info {
  size_t struct_size;
  const char* key;    /* 32 hexadecimal digits: names graph, target, numerics and toolchain */
  const char* target; /* "sm_90a" */
  quern_tier tier;
  quern_origin origin;
  uint64_t generation; /* rises each time the key's plan is replaced by a better one; 0 = not stored */
  const void* cubin;   /* the kernel image, an ELF file of cubin_size bytes */
  size_t cubin_size;
  uint64_t workspace_bytes; /* of device memory that a launch needs; contents mean nothing before and after */
  size_t input_count;
  size_t output_count;
  size_t launch_count;
  const char* certificate; /* what was checked about the plan: lines of "name: value" */
  const char* warning;     /* why the daemon could not store it, and the like; "" = nothing */
  uint64_t daemon_ns;      /* from the request's arrival at the daemon to that first answer */
  uint64_t queue_ns;       /* of that, waiting for a worker */
  uint64_t emit_ns;        /* of that, from graph text to CUDA text */
  uint64_t compile_ns;     /* of that, from CUDA text to cubin */
} quern_plan_info;

QUERN_API quern_status quern_plan_describe(const quern_plan* plan, quern_plan_info* info, quern_error* error);

/* The buffers, in the order in which quern_launch takes them. NOT_FOUND. */
QUERN_API quern_status quern_plan_input(const quern_plan* plan, size_t index, quern_tensor* tensor,
                                        quern_error* error);
QUERN_API quern_status quern_plan_output(const quern_plan* plan, size_t index, quern_tensor* tensor,
                                         quern_error* error);

/* One parameter of a kernel: 8 bytes, or the 128 of a tensor map. */
typedef struct quern_launch_arg {
  int32_t kind;     /* QUERN_ARG_... */
  int32_t reserved; /* 0 */
  int64_t value;
} quern_launch_arg;

enum {
  QUERN_ARG_INPUT = 1,     /* device pointer of input `value` */
  QUERN_ARG_OUTPUT = 2,    /* device pointer of output `value` */
  QUERN_ARG_WORKSPACE = 3, /* pointer of the workspace plus `value` bytes */
  QUERN_ARG_INTEGER = 4,   /* the integer `value` */
  /* A CUtensorMap by value, which quern_plan_tensor_map(plan, `value`, ...) describes. Only in plans for
     sm_90 and later. */
  QUERN_ARG_TENSOR_MAP = 5
};

typedef struct quern_launch_info {
  size_t struct_size;
  const char* kernel; /* a function in the cubin */
  uint32_t grid[3];   /* x, y, z */
  uint32_t block[3];
  uint32_t cluster[3];          /* 1, 1, 1 = no cluster */
  uint32_t shared_bytes;        /* of dynamic shared memory, at least */
  const quern_launch_arg* args; /* in the order of the kernel's parameters */
  size_t arg_count;
  /* 1: may be launched with CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 1, so that it begins
     while the launch before it, or what the caller enqueued before the plan, ends; it waits by itself for what
     it needs. quern_launch then sets CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT to 100 for all kernels
     of the plan, and asks for so much shared memory for large blocks that no multiprocessor takes more of them
     than its share of the grid: without, the plan may take up to twice as long. */
  uint32_t overlaps;
} quern_launch_info;

/* For callers who launch the cubin themselves: launches run in order on one stream. A launch with an extent
 * of 0 is left out. NOT_FOUND. */
QUERN_API quern_status quern_plan_launch(const quern_plan* plan, size_t index, quern_launch_info* info,
                                         quern_error* error);

/* What cuTensorMapEncodeTiled takes to make a tensor map of a plan. Elements are moved as unsigned integers
 * of the dtype's size; interleave none, element strides 1, L2 promotion 256 bytes, fill with zeros. */
typedef struct quern_tensor_map {
  size_t struct_size;
  quern_launch_arg buffer; /* where the tensor begins */
  int32_t dtype;           /* QUERN_F16, ... */
  int32_t rank;
  const int64_t* shape;   /* outermost dimension first, as everywhere here; the driver wants them reversed */
  const int64_t* strides; /* in elements; the last is 1, and the driver takes the others in bytes */
  const int64_t* box;
  uint32_t swizzle; /* bytes: 0 = none, 32, 64, 128 */
} quern_tensor_map;

/* Lists belong to the plan. NOT_FOUND. */
QUERN_API quern_status quern_plan_tensor_map(const quern_plan* plan, size_t index, quern_tensor_map* map,
                                             quern_error* error);

/* ---- launching -------------------------------------------------------------------------------------- */

/* The target of a CUDA device, for quern_get. Static text. Blocks while the driver starts, on the first call
 * in a process. NO_DEVICE, CUDA. */
QUERN_API quern_status quern_device_target(int device, const char** target, quern_error* error);

/* Loads the plan into the CUDA context of `stream`, as the first quern_launch there would: call it before a
 * launch that must be quick. Blocks as long as the driver takes to load a module, under a millisecond.
 * NO_DEVICE, CUDA, FORKED. */
QUERN_API quern_status quern_plan_prepare(quern_plan* plan, void* stream, quern_error* error);

/* Launches the plan on `stream`, a CUstream (NULL = the default stream of the current context), and returns
 * at once. The third call on a stream makes a CUDA graph of the plan, in tens of microseconds; from then on calls launch
 * that graph with their buffers, which keeps the caller for less time than one kernel does.
 * Works while the stream is being captured into a CUDA graph, which then must not be launched once
 * the plan is released. `inputs` and `outputs` are device pointers to distinct buffers of the sizes that
 * quern_plan_input and quern_plan_output say, aligned to 16 bytes; `workspace` is one of workspace_bytes,
 * aligned to 256, and NULL if that is 0. They must stay valid until the stream has got there, and launches
 * that can overlap need workspaces of their own. INVALID_ARGUMENT for a pointer that is NULL or not aligned;
 * NO_DEVICE, CUDA, FORKED. */
QUERN_API quern_status quern_launch(quern_plan* plan, void* stream, void* const* inputs, void* const* outputs,
                                    void* workspace, quern_error* error);

/* ---- statistics ------------------------------------------------------------------------------------- */

/* A snapshot of the daemon's counters and facts; capi/wire/PROTOCOL.md lists their names. */
typedef struct quern_stats quern_stats;

typedef struct quern_stat {
  size_t struct_size;
  const char* name;
  const char* text; /* of a fact; NULL = it is a counter */
  uint64_t value;   /* of a counter */
} quern_stat;

/* Asks the daemon; blocks up to timeout_ms (0 = 60 seconds). The result is ended with quern_stats_free.
 * TIMEOUT, NO_DAEMON, DISCONNECTED, BUSY, FORKED. */
QUERN_API quern_status quern_stats_get(quern_client* client, uint32_t timeout_ms, quern_stats** stats,
                                       quern_error* error);
QUERN_API void quern_stats_free(quern_stats* stats);
QUERN_API size_t quern_stats_count(const quern_stats* stats);
/* NOT_FOUND. */
QUERN_API quern_status quern_stats_at(const quern_stats* stats, size_t index, quern_stat* stat,
                                      quern_error* error);

#ifdef __cplusplus
}
#endif

#endif
