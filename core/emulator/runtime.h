// What a program compiled for the emulator and the emulator tell each other. The emulator includes this file;
// its text also stands at the head of every compiled program, so it needs nothing and knows no library types.
#pragma once

namespace quern::emulated {

struct Index {
  unsigned x, y, z;
};

struct Position {
  Index thread, block, block_size, grid_size;
  int lane;
};

// What the lanes of a warp do together.
enum class Collective {
  sync_warp,
  shuffle_xor,
  shuffle_down,
  shuffle,
  ballot,
  mma_f16,
  mma_bf16,
  mma_tf32,
  ldmatrix,
  ldmatrix_trans,
  stmatrix,
  stmatrix_trans,
  wgmma_fence,
  wgmma,
  wgmma_commit,
  wgmma_wait,
};

// The operands of one lane; results are written through the same pointer before the lane goes on.
struct ShuffleOperands {
  unsigned value;  // bits; of a ballot, 0 or 1
  int lane;        // lane mask, delta or source
  unsigned result;
};
struct MmaOperands {
  float* d;
  const unsigned* a;
  const unsigned* b;
};
// Shared memory as SharedOperand in wgmma.cuh describes it.
struct WgmmaOperand {
  const void* at;
  int swizzle;
  bool turned;
  int panel, step;
};
struct WgmmaOperands {
  float* sums;
  const unsigned* fragments;  // of the left operand, or null and it is `a`
  WgmmaOperand a, b;
  int columns;
  bool bf16;
  int pending;      // of a wait
  bool add = true;  // to what the sums are; else to zeros
};
struct LdmatrixOperands {
  unsigned* registers;
  const void* row;
  int count;
};
struct StmatrixOperands {
  const unsigned* registers;
  void* row;
  int count;
};

// An instruction that copies between global and shared memory beside its thread.
struct CopyInstruction {
  const char* name;
  bool loads;         // into shared memory
  bool proxy;         // by the async proxy
  int alignment;      // of its places, bytes
  const char* group;  // its thread waits for its groups of this name; null: the bytes count at an mbarrier
};

// `site` is the address after the instruction that asked, for messages.
struct Runtime {
  const Position* (*position)();  // of the running thread
  void (*read)(const void* address, unsigned long size, bool aligned, const void* site);
  void (*write)(void* address, unsigned long size, bool aligned, const void* site);
  void (*undefined)(const char* what, const void* site);
  void (*barrier)(const void* site);
  void (*named_barrier)(int number, int threads, const void* site);
  // One that orders no memory, for those who wait there or pass by.
  void (*order_barrier)(int number, int threads, bool waits, const void* site);
  void (*vote)(bool value);  // before a barrier, and what came of it behind
  bool (*voted)();
  void (*collective)(Collective kind, unsigned mask, void* operands, const void* site);
  void* (*dynamic_shared)();
  int (*cluster_rank)();
  void (*cluster_arrive)(const void* site);
  void (*cluster_wait)(const void* site);
  // Where block `rank` of the cluster has what `own` is here.
  void* (*cluster_address)(const void* own, int rank, const void* site);
  // As many bytes as in shared memory, of which a load has only so many in global memory and zeros behind them;
  // or the box at x of what the launch gave as the argument `map`. Loads for an mbarrier go into the blocks of
  // the cluster that the mask says, for the mbarrier of each; null: into this one.
  void (*copy_bytes)(const CopyInstruction* instruction, void* shared, void* global, int bytes,
                     int global_bytes, void* barrier, const void* site);
  void (*copy_box)(const CopyInstruction* instruction, void* shared, const void* map, const int* x, int rank,
                   void* barrier, const int* mask, const void* site);
  void (*commit_copies)(const char* group);
  void (*wait_for_copies)(const char* group, int pending, const void* site);
  // mbarrier.cuh
  void (*mbarrier_init)(void* barrier, int arrivals, const void* site);
  void (*mbarrier_init_fence)();
  void (*mbarrier_arrive)(void* barrier, int bytes, const void* site);
  void (*mbarrier_arrive_at)(void* barrier, int rank, const void* site);
  void (*mbarrier_wait)(void* barrier, unsigned parity, const void* site);
  void (*fence_proxy)();
  void (*read_constant)(const void* p, int size, const void* site);  // memory.cuh: ld.global.nc
  void (*grid_wait)();
  // Of narrow dtypes, by their numbers.
  float (*to_float)(int dtype, unsigned bits);
  unsigned (*from_float)(int dtype, float value);
};

// One kernel of a compiled program. Arguments are 64-bit words: pointers and integers alike.
struct Kernel {
  const char* name;
  int argument_count;
  void (*call)(const unsigned long long* arguments);
};

}  // namespace quern::emulated
