// CUDA's own words for the host compiler, and the hooks that its instrumentation calls. The text of this file
// stands after runtime.h in every program that the emulator compiles; the library itself does not include it.

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __restrict__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __constant__ static const
// Arrays are found by their symbols (program_library.cc). `used` keeps the compiler from reasoning about who
// writes them; the guard beside each array makes running over its end an access to no array.
#define QUERN_SHARED_ATTRIBUTES __attribute__((section("quern_shared"), used, aligned(16)))
#define QUERN_GUARD_NAMED(number) static char quern_guard_##number[64] QUERN_SHARED_ATTRIBUTES;
#define QUERN_GUARD(number) QUERN_GUARD_NAMED(number)
#define __shared__ QUERN_GUARD(__COUNTER__) static QUERN_SHARED_ATTRIBUTES

#define threadIdx quern::emulated::thread_index()
#define blockIdx quern::emulated::block_index()
#define blockDim quern::emulated::block_size()
#define gridDim quern::emulated::grid_size()

#define QUERN_EXPORTED __attribute__((visibility("default")))
#define QUERN_UNSEEN __attribute__((noinline, no_sanitize("thread", "undefined")))

extern "C" QUERN_EXPORTED const quern::emulated::Runtime* quern_runtime;
const quern::emulated::Runtime* quern_runtime = nullptr;

// Calls into the emulator. Never inlined, so that the return address is in the kernel, and not instrumented,
// because the runtime's data are no memory of the kernel. `const` holds within one thread of one launch.
namespace quern::emulated {

QUERN_UNSEEN __attribute__((const)) static Index thread_index() { return quern_runtime->position()->thread; }
QUERN_UNSEEN __attribute__((const)) static Index block_index() { return quern_runtime->position()->block; }
QUERN_UNSEEN __attribute__((const)) static Index block_size() {
  return quern_runtime->position()->block_size;
}
QUERN_UNSEEN __attribute__((const)) static Index grid_size() { return quern_runtime->position()->grid_size; }
QUERN_UNSEEN __attribute__((const)) static int lane() { return quern_runtime->position()->lane; }
QUERN_UNSEEN static void barrier() { quern_runtime->barrier(__builtin_return_address(0)); }
QUERN_UNSEEN static void vote(bool value) { quern_runtime->vote(value); }
QUERN_UNSEEN static bool voted() { return quern_runtime->voted(); }
QUERN_UNSEEN static void named_barrier(int number, int threads) {
  quern_runtime->named_barrier(number, threads, __builtin_return_address(0));
}
QUERN_UNSEEN static void order_barrier(int number, int threads, bool waits) {
  quern_runtime->order_barrier(number, threads, waits, __builtin_return_address(0));
}
QUERN_UNSEEN static void collective(Collective kind, unsigned mask, void* operands) {
  quern_runtime->collective(kind, mask, operands, __builtin_return_address(0));
}
QUERN_UNSEEN __attribute__((const)) static void* dynamic_shared() { return quern_runtime->dynamic_shared(); }
QUERN_UNSEEN __attribute__((const)) static int cluster_rank() { return quern_runtime->cluster_rank(); }
QUERN_UNSEEN static void cluster_arrive() { quern_runtime->cluster_arrive(__builtin_return_address(0)); }
QUERN_UNSEEN static void cluster_wait() { quern_runtime->cluster_wait(__builtin_return_address(0)); }
QUERN_UNSEEN static void* cluster_address(const void* own, int rank) {
  return quern_runtime->cluster_address(own, rank, __builtin_return_address(0));
}
QUERN_UNSEEN static void copy_bytes(const CopyInstruction& instruction, void* shared, const void* global,
                                    int bytes, int global_bytes, void* barrier = nullptr) {
  quern_runtime->copy_bytes(&instruction, shared, const_cast<void*>(global), bytes, global_bytes, barrier,
                            __builtin_return_address(0));
}
QUERN_UNSEEN static void copy_box(const CopyInstruction& instruction, const void* shared, const void* map,
                                  const int* x, int rank, void* barrier = nullptr,
                                  const int* mask = nullptr) {
  quern_runtime->copy_box(&instruction, const_cast<void*>(shared), map, x, rank, barrier, mask,
                          __builtin_return_address(0));
}
QUERN_UNSEEN static void commit_copies(const char* group) { quern_runtime->commit_copies(group); }
QUERN_UNSEEN static void wait_for_copies(const char* group, int pending) {
  quern_runtime->wait_for_copies(group, pending, __builtin_return_address(0));
}
QUERN_UNSEEN static void mbarrier_init(void* barrier, int arrivals) {
  quern_runtime->mbarrier_init(barrier, arrivals, __builtin_return_address(0));
}
QUERN_UNSEEN static void mbarrier_init_fence() { quern_runtime->mbarrier_init_fence(); }
QUERN_UNSEEN static void mbarrier_arrive(void* barrier, int bytes) {
  quern_runtime->mbarrier_arrive(barrier, bytes, __builtin_return_address(0));
}
QUERN_UNSEEN static void mbarrier_arrive_at(void* barrier, int rank) {
  quern_runtime->mbarrier_arrive_at(barrier, rank, __builtin_return_address(0));
}
QUERN_UNSEEN static void mbarrier_wait(void* barrier, unsigned parity) {
  quern_runtime->mbarrier_wait(barrier, parity, __builtin_return_address(0));
}
QUERN_UNSEEN static void fence_proxy() { quern_runtime->fence_proxy(); }
QUERN_UNSEEN static void read_constant(const void* p, int size) {
  quern_runtime->read_constant(p, size, __builtin_return_address(0));
}
QUERN_UNSEEN static void grid_wait() { quern_runtime->grid_wait(); }
QUERN_UNSEEN __attribute__((const)) static float to_float(int dtype, unsigned bits) {
  return quern_runtime->to_float(dtype, bits);
}
QUERN_UNSEEN __attribute__((const)) static unsigned from_float(int dtype, float value) {
  return quern_runtime->from_float(dtype, value);
}

}  // namespace quern::emulated

// What -fsanitize=thread calls before every access.
#define QUERN_ACCESS_HOOK(name, action, size, aligned)                    \
  extern "C" QUERN_UNSEEN void __tsan_##name(void* p) {                   \
    quern_runtime->action(p, size, aligned, __builtin_return_address(0)); \
  }
#define QUERN_ACCESS_HOOKS(size)                             \
  QUERN_ACCESS_HOOK(read##size, read, size, true)            \
  QUERN_ACCESS_HOOK(write##size, write, size, true)          \
  QUERN_ACCESS_HOOK(unaligned_read##size, read, size, false) \
  QUERN_ACCESS_HOOK(unaligned_write##size, write, size, false)
QUERN_ACCESS_HOOKS(1)
QUERN_ACCESS_HOOKS(2)
QUERN_ACCESS_HOOKS(4)
QUERN_ACCESS_HOOKS(8)
QUERN_ACCESS_HOOKS(16)
extern "C" QUERN_UNSEEN void __tsan_read_range(void* p, unsigned long size) {
  quern_runtime->read(p, size, false, __builtin_return_address(0));
}
extern "C" QUERN_UNSEEN void __tsan_write_range(void* p, unsigned long size) {
  quern_runtime->write(p, size, false, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

// What -fsanitize=undefined calls when an expression has no meaning in C++, which NVRTC's optimiser also
// builds on.
#define QUERN_UNDEFINED_HOOK(name, what)                         \
  extern "C" QUERN_UNSEEN void __ubsan_handle_##name##_abort() { \
    quern_runtime->undefined(what, __builtin_return_address(0)); \
  }
QUERN_UNDEFINED_HOOK(out_of_bounds, "index out of the bounds of an array")
QUERN_UNDEFINED_HOOK(add_overflow, "signed integer overflow in an addition")
QUERN_UNDEFINED_HOOK(sub_overflow, "signed integer overflow in a subtraction")
QUERN_UNDEFINED_HOOK(mul_overflow, "signed integer overflow in a multiplication")
QUERN_UNDEFINED_HOOK(negate_overflow, "signed integer overflow in a negation")
QUERN_UNDEFINED_HOOK(divrem_overflow, "integer division by zero or overflow in a division")
QUERN_UNDEFINED_HOOK(shift_out_of_bounds, "shift by a negative or too large count")
QUERN_UNDEFINED_HOOK(load_invalid_value, "a bool that is neither 0 nor 1")

// A table of the kernels of each program, made by the text that compile.cc puts after it.
namespace quern::emulated {

template <int... kIndex>
struct Indices {};
template <int kCount, int... kIndex>
struct CountTo : CountTo<kCount - 1, kCount - 1, kIndex...> {};
template <int... kIndex>
struct CountTo<0, kIndex...> {
  using Type = Indices<kIndex...>;
};

template <class... Arguments, int... kIndex>
QUERN_UNSEEN void call_with(void (*kernel)(Arguments...), const unsigned long long* words,
                            Indices<kIndex...>) {
  static_assert(((sizeof(Arguments) == 8) && ...),
                "kernel parameters are pointers, 64-bit integers or tensor maps");
  kernel((Arguments)words[kIndex]...);
}
template <auto kKernel>
struct Entry;
template <class... Arguments, void (*kKernel)(Arguments...)>
struct Entry<kKernel> {
  static constexpr int kCount = sizeof...(Arguments);
  QUERN_UNSEEN static void call(const unsigned long long* words) {
    call_with(kKernel, words, typename CountTo<kCount>::Type());
  }
};

}  // namespace quern::emulated

// The numbers of narrow dtypes, from the rows that stand behind this text (core/base/dtype.def).
template <class T>
struct Narrow;
#define QUERN_NUMBER_narrow(number, id)   \
  struct id;                              \
  template <>                             \
  struct Narrow<id> {                     \
    static constexpr int kNumber = number; \
  };
#define QUERN_NUMBER_wide(number, id)
#define QUERN_NUMBER_integer(number, id)
#define QUERN_NUMBER_boolean(number, id)
#define QUERN_DTYPE(number, id, name, type, bytes, kind, ...) QUERN_NUMBER_##kind(number, id)
