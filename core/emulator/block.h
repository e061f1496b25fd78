// Runs the threads of one block, or of all blocks of one cluster, each on a fiber: a thread runs until it
// waits for others, then another takes over, in an order drawn from the seed. What compiled programs ask of
// the emulator (runtime.h) is answered here.
#pragma once

#include <array>
#include <boost/context/detail/fcontext.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/emulator/async_copy.h"
#include "core/emulator/collective.h"
#include "core/emulator/compile.h"
#include "core/emulator/mbarrier.h"
#include "core/emulator/memory.h"
#include "core/emulator/named_barrier.h"
#include "core/emulator/wgmma.h"

namespace quern::emulated {

// Stacks for the fibers, with a guard page below each; they are used again block after block.
class FiberStacks {
 public:
  static constexpr size_t kSize = 128 * 1024;
  FiberStacks();
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;
  // The high end of the stack of fiber `index` < kMaxClusterThreads.
  char* top(int index);

 private:
  char* memory_;
  int guarded_ = 0;  // stacks that have their guard page
};

struct EmulatedThread {
  enum class State { runnable, at_barrier, at_named_barrier, at_collective, at_cluster, at_mbarrier, ended };
  State state = State::runnable;
  boost::context::detail::fcontext_t context = nullptr;
  char* stack_top = nullptr;
  Index index{};
  const void* site = nullptr;  // where it waits, and for what:
  Collective collective{};
  unsigned mask = 0;
  void* operands = nullptr;
  uintptr_t mbarrier = 0;
  unsigned parity = 0;
  std::map<std::string_view, CopyGroups> copies;  // by the name of their groups
  int votes = 0;
  bool arrived_at_cluster = false, all_arrived = false;  // and has not waited yet
};

class Block {
 public:
  // Threads, memory and the order of threads of one launch; run() is called for each of its clusters. Blocks
  // of a cluster have their dynamic shared memory `shared_pitch` bytes apart.
  Block(Program& program, const Kernel& kernel, const Launch& launch, Memory& memory, Clock& clock,
        FiberStacks& stacks, char* dynamic_shared, size_t shared_pitch, std::mt19937_64& random);

  // The message of a violation names kernel, block, thread and line. One run at a time in an OS thread.
  Status run(uint64_t cluster_number, const std::vector<unsigned long long>& arguments);

 private:
  static const Runtime& runtime();
  static void enter(boost::context::detail::transfer_t transfer);

  void prepare(uint64_t cluster_number);
  void find_blocks(uint64_t cluster_number);
  void resume(int thread);
  void suspend();
  // Ends the run with this violation. Comes back to no one when called on a fiber.
  void fail(std::string violation, const void* site);
  void fail_deadlock();

  void access(uintptr_t address, size_t size, bool aligned, bool is_write, const void* site);
  void arrive_at_barrier(const void* site);
  void vote(bool value);
  bool voted();
  // `waits`: for those who have not come; `orders`: what was before, for all who meet.
  void arrive_at_named_barrier(int number, int threads, bool waits, bool orders, const void* site);
  void arrive_at_collective(Collective kind, unsigned mask, void* operands, const void* site);
  void check_warp(int first);
  void copy_bytes(const CopyInstruction& instruction, void* shared, void* global, int bytes, int global_bytes,
                  void* barrier, const void* site);
  void copy_box(const CopyInstruction& instruction, void* shared, const void* map, const int* x, int rank,
                void* barrier, const int* mask, const void* site);
  void begin_copy(const Copy& copy, void* barrier, const void* site);
  void wait_for_copies(const char* group, int pending, const void* site);
  void arrive_at_cluster(const void* site);
  void end_cluster_barrier();
  void wait_for_cluster(const void* site);
  void* cluster_address(const void* own, int rank, const void* site);
  void wait_at_mbarrier(void* barrier, unsigned parity, const void* site);
  void wake_at_mbarriers();
  void arrive_at_other(void* barrier, int rank, const void* site);
  void check_rule(std::string violation, const void* site) {
    if (!violation.empty()) fail(std::move(violation), site);
  }
  void end_thread();
  void end_block(int rank);

  int rank_of(int thread) const { return thread / block_threads_; }
  // The first thread of the warp of `thread`, and its lanes.
  int first_of_warp(int thread) const { return thread - thread % block_threads_ % kWarpSize; }
  unsigned lanes_of(int thread) const;
  std::string describe_site(const void* site) const;
  std::string describe_wait(const EmulatedThread& thread) const;
  void make_runnable(int thread);

  Program& program_;
  const Kernel& kernel_;
  const Launch& launch_;
  Memory& memory_;
  Clock& clock_;
  FiberStacks& stacks_;
  char* dynamic_shared_;
  size_t shared_pitch_;
  int block_threads_, ranks_;
  std::mt19937_64& random_;

  NamedBarriers named_barriers_;
  Mbarriers mbarriers_;
  Wgmmas wgmmas_;
  std::vector<EmulatedThread> threads_;
  std::vector<int> runnable_;
  int current_ = 0;                      // the running thread
  std::vector<int> at_barrier_, ended_;  // threads of each block of the cluster
  // Of each block of the cluster, whether all have voted for it: this time, next time, and last time, in
  // turns.
  std::vector<std::array<bool, 3>> votes_;
  int arrived_ = 0;               // threads at the cluster's barrier
  std::vector<uint64_t> blocks_;  // the numbers of the cluster's blocks
  std::vector<Index> block_indices_;
  const unsigned long long* arguments_ = nullptr;
  Position position_{};
  boost::context::detail::fcontext_t scheduler_ = nullptr;
  Status status_;
};

}  // namespace quern::emulated
