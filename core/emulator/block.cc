#include "core/emulator/block.h"

#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include <algorithm>
#include <numeric>

#include "core/base/dtype.h"

namespace quern::emulated {

namespace {

using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;
using State = EmulatedThread::State;

constexpr size_t kGuard = 4096;
constexpr size_t kStride = FiberStacks::kSize + kGuard;

// The block whose program runs on this OS thread; programs call plain functions.
thread_local Block* running = nullptr;

std::string source_line(const std::string& text, int line) {
  size_t begin = 0;
  for (int i = 1; i < line; ++i) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) return "";
    ++begin;
  }
  std::string found = text.substr(begin, text.find('\n', begin) - begin);
  found.erase(0, found.find_first_not_of(" \t"));
  return found;
}

uintptr_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// Fibers are left in the middle of calls, and AddressSanitizer's marks of those frames would be taken for the
// next fiber's, or for those of whatever is mapped there later.
void forget_frames([[maybe_unused]] char* stack) {
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(stack, FiberStacks::kSize);
#endif
}

}  // namespace

FiberStacks::FiberStacks() {
  void* memory = mmap(nullptr, kStride * kMaxClusterThreads, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(memory != MAP_FAILED, "there is address space for the stacks of a block");
  memory_ = static_cast<char*>(memory);
}

FiberStacks::~FiberStacks() {
  for (int index = 0; index < guarded_; ++index) forget_frames(memory_ + kStride * index + kGuard);
  munmap(memory_, kStride * kMaxClusterThreads);
}

char* FiberStacks::top(int index) {
  for (; guarded_ <= index; ++guarded_) mprotect(memory_ + kStride * guarded_, kGuard, PROT_NONE);
  forget_frames(memory_ + kStride * index + kGuard);
  return memory_ + kStride * (index + 1);
}

Block::Block(Program& program, const Kernel& kernel, const Launch& launch, Memory& memory, Clock& clock,
             FiberStacks& stacks, char* dynamic_shared, size_t shared_pitch, std::mt19937_64& random)
    : program_(program),
      kernel_(kernel),
      launch_(launch),
      memory_(memory),
      clock_(clock),
      stacks_(stacks),
      dynamic_shared_(dynamic_shared),
      shared_pitch_(shared_pitch),
      block_threads_(static_cast<int>(launch.block.count())),
      ranks_(static_cast<int>(launch.cluster.count())),
      random_(random),
      mbarriers_(memory, clock),
      wgmmas_(memory),
      threads_(static_cast<size_t>(block_threads_ * ranks_)) {}

const Runtime& Block::runtime() {
  static const Runtime kRuntime = {
      .position = []() -> const Position* { return &running->position_; },
      .read = [](const void* p, unsigned long size, bool aligned,
                 const void* site) { running->access(address_of(p), size, aligned, false, site); },
      .write = [](void* p, unsigned long size, bool aligned,
                  const void* site) { running->access(address_of(p), size, aligned, true, site); },
      .undefined = [](const char* what, const void* site) { running->fail(what, site); },
      .barrier = [](const void* site) { running->arrive_at_barrier(site); },
      .named_barrier =
          [](int number, int threads, const void* site) {
            running->arrive_at_named_barrier(number, threads, true, true, site);
          },
      .order_barrier =
          [](int number, int threads, bool waits, const void* site) {
            running->arrive_at_named_barrier(number, threads, waits, false, site);
          },
      .vote = [](bool value) { running->vote(value); },
      .voted = [] { return running->voted(); },
      .collective = [](Collective kind, unsigned mask, void* operands,
                       const void* site) { running->arrive_at_collective(kind, mask, operands, site); },
      .dynamic_shared = []() -> void* {
        return running->dynamic_shared_ + running->shared_pitch_ * running->rank_of(running->current_);
      },
      .cluster_rank = [] { return running->rank_of(running->current_); },
      .cluster_arrive = [](const void* site) { running->arrive_at_cluster(site); },
      .cluster_wait = [](const void* site) { running->wait_for_cluster(site); },
      .cluster_address = [](const void* own, int rank, const void* site) -> void* {
        return running->cluster_address(own, rank, site);
      },
      .copy_bytes =
          [](const CopyInstruction* instruction, void* shared, void* global, int bytes, int global_bytes,
             void* barrier, const void* site) {
            running->copy_bytes(*instruction, shared, global, bytes, global_bytes, barrier, site);
          },
      .copy_box =
          [](const CopyInstruction* instruction, void* shared, const void* map, const int* x, int rank,
             void* barrier, const int* mask, const void* site) {
            running->copy_box(*instruction, shared, map, x, rank, barrier, mask, site);
          },
      .commit_copies = [](const char* group) { running->threads_[running->current_].copies[group].commit(); },
      .wait_for_copies = [](const char* group, int pending,
                            const void* site) { running->wait_for_copies(group, pending, site); },
      .mbarrier_init =
          [](void* barrier, int arrivals, const void* site) {
            running->check_rule(running->mbarriers_.init(address_of(barrier), arrivals, running->current_),
                                site);
          },
      .mbarrier_init_fence = [] { running->mbarriers_.fence_init(running->current_); },
      .mbarrier_arrive =
          [](void* barrier, int bytes, const void* site) {
            running->check_rule(running->mbarriers_.arrive(address_of(barrier), bytes, running->current_),
                                site);
            running->wake_at_mbarriers();
          },
      .mbarrier_arrive_at = [](void* barrier, int rank,
                               const void* site) { running->arrive_at_other(barrier, rank, site); },
      .mbarrier_wait = [](void* barrier, unsigned parity,
                          const void* site) { running->wait_at_mbarrier(barrier, parity, site); },
      .fence_proxy = [] { running->memory_.fence_proxy(running->current_); },
      .read_constant =
          [](const void* p, int size, const void* site) {
            if (!running->memory_.read_constant(address_of(p), static_cast<size_t>(size)))
              running->check_rule(running->memory_.violation(), site);
          },
      .grid_wait = [] { running->clock_.wait_for_grid(running->current_); },
      .to_float = [](int dtype,
                     unsigned bits) { return static_cast<float>(narrow_value(DType(dtype), bits)); },
      .from_float = [](int dtype, float value) { return narrow_bits(DType(dtype), value); },
  };
  return kRuntime;
}

Status Block::run(uint64_t cluster_number, const std::vector<unsigned long long>& arguments) {
  running = this;
  program_.library->set_runtime(&runtime());
  arguments_ = arguments.data();
  prepare(cluster_number);
  while ((!runnable_.empty() || mbarriers_.any_under_way()) && status_.ok()) {
    // Copies land whenever they like, and at the latest when everybody waits.
    if (mbarriers_.any_under_way() && (runnable_.empty() || random_() % 4 == 0)) {
      if (std::string violation = mbarriers_.land_one(random_); !violation.empty())
        status_ = Status(ErrorCode::INTERNAL, clock_.describe_block(blocks_[0]) + ": " + violation);
      wake_at_mbarriers();
      continue;
    }
    std::swap(runnable_[random_() % runnable_.size()], runnable_.back());
    const int thread = runnable_.back();
    runnable_.pop_back();
    resume(thread);
  }
  const bool all_ended = std::all_of(threads_.begin(), threads_.end(),
                                     [](const auto& thread) { return thread.state == State::ended; });
  if (status_.ok() && !all_ended) fail_deadlock();
  if (const std::string violation = mbarriers_.end_cluster(); status_.ok() && !violation.empty())
    status_ = Status(ErrorCode::INTERNAL, clock_.describe_block(blocks_[0]) + ": " + violation);
  running = nullptr;
  return status_;
}

// Clusters tile the grid; the rank of a block counts x first.
void Block::find_blocks(uint64_t cluster_number) {
  const Dim3 grid = launch_.grid, size = launch_.cluster;
  const uint64_t wide = grid.x / size.x, high = grid.y / size.y;
  blocks_.clear();
  block_indices_.clear();
  for (unsigned rank = 0; rank < size.count(); ++rank) {
    const Index at = {static_cast<unsigned>(cluster_number % wide) * size.x + rank % size.x,
                      static_cast<unsigned>(cluster_number / wide % high) * size.y + rank / size.x % size.y,
                      static_cast<unsigned>(cluster_number / wide / high) * size.z + rank / size.x / size.y};
    block_indices_.push_back(at);
    blocks_.push_back(at.x + uint64_t{grid.x} * (at.y + uint64_t{grid.y} * at.z));
  }
}

void Block::prepare(uint64_t cluster_number) {
  const Dim3 grid = launch_.grid, block = launch_.block;
  find_blocks(cluster_number);
  clock_.begin_cluster(blocks_);
  memory_.poison_shared();
  position_.block_size = {block.x, block.y, block.z};
  position_.grid_size = {grid.x, grid.y, grid.z};
  runnable_.clear();
  at_barrier_.assign(static_cast<size_t>(ranks_), 0);
  ended_ = at_barrier_;
  votes_.assign(static_cast<size_t>(ranks_), {true, true, true});
  arrived_ = 0;
  named_barriers_.begin_cluster();
  mbarriers_.begin_cluster();
  for (int i = 0; i < static_cast<int>(threads_.size()); ++i) {
    const int t = i % block_threads_;
    threads_[i] = EmulatedThread{};
    threads_[i].index = {t % block.x, t / block.x % block.y, t / block.x / block.y};
    threads_[i].stack_top = stacks_.top(i);
    threads_[i].context = make_fcontext(threads_[i].stack_top, FiberStacks::kSize, &Block::enter);
    runnable_.push_back(i);
  }
  // Programs without wgmma are spared the bookkeeping.
  std::vector<char*> tops;
  if (program_.text.find("wgmma") != std::string::npos && block_threads_ % kWarpSize == 0)
    for (const EmulatedThread& thread : threads_) tops.push_back(thread.stack_top);
  wgmmas_.begin_cluster(tops, block_threads_);
}

void Block::enter(transfer_t transfer) {
  running->scheduler_ = transfer.fctx;
  running->kernel_.call(running->arguments_);
  running->end_thread();
}

void Block::resume(int thread) {
  current_ = thread;
  position_.thread = threads_[thread].index;
  position_.block = block_indices_[static_cast<size_t>(rank_of(thread))];
  position_.lane = thread % block_threads_ % kWarpSize;
  threads_[thread].context = jump_fcontext(threads_[thread].context, nullptr).fctx;
}

void Block::suspend() { scheduler_ = jump_fcontext(scheduler_, nullptr).fctx; }

void Block::fail(std::string violation, const void* site) {
  status_ = Status(ErrorCode::INTERNAL,
                   clock_.describe_block(blocks_[static_cast<size_t>(rank_of(current_))]) + ", " +
                       clock_.describe_thread(current_) + describe_site(site) + ": " + violation);
  // Nothing on the fiber's stack may own memory from here on: it is left as it is.
  violation = {};
  suspend();
}

void Block::access(uintptr_t address, size_t size, bool aligned, bool is_write, const void* site) {
  const auto top = address_of(threads_[current_].stack_top);
  if (top - address <= FiberStacks::kSize)
    return check_rule(wgmmas_.touch(address, size, is_write, current_), site);
  const char* action = is_write ? "write" : "read";
  if (aligned && address % size != 0)
    fail(std::string("misaligned ") + action + " of " + std::to_string(size) + " bytes at " +
             memory_.locate(address),
         site);
  if (!(is_write ? memory_.write(address, size, current_) : memory_.read(address, size, current_)))
    fail(memory_.violation(), site);
}

void Block::make_runnable(int thread) {
  threads_[thread].state = State::runnable;
  runnable_.push_back(thread);
}

void Block::arrive_at_barrier(const void* site) {
  EmulatedThread& self = threads_[current_];
  self.state = State::at_barrier;
  self.site = site;
  const int rank = rank_of(current_), first = rank * block_threads_;
  if (++at_barrier_[static_cast<size_t>(rank)] == block_threads_) {
    for (int i = first; i < first + block_threads_; ++i) {
      const EmulatedThread& other = threads_[static_cast<size_t>(i)];
      // The compiler may have made several instructions of one line; several lines are a divergent barrier.
      if (other.site != site && program_.library->find_line(program_.index, other.site) !=
                                    program_.library->find_line(program_.index, site))
        return fail("divergent barrier: " + describe_wait(other), site);
    }
    at_barrier_[static_cast<size_t>(rank)] = 0;
    clock_.barrier(rank);
    for (int i = first; i < first + block_threads_; ++i) make_runnable(i);
  }
  suspend();
}

void Block::vote(bool value) {
  bool& all =
      votes_[static_cast<size_t>(rank_of(current_))][static_cast<size_t>(threads_[current_].votes % 3)];
  all = all && value;
}

// Who comes to the next vote has left the one before behind.
bool Block::voted() {
  const size_t now = static_cast<size_t>(threads_[current_].votes++ % 3);
  std::array<bool, 3>& votes = votes_[static_cast<size_t>(rank_of(current_))];
  votes[(now + 2) % 3] = true;
  return votes[now];
}

void Block::arrive_at_named_barrier(int number, int threads, bool waits, bool orders, const void* site) {
  if (waits) {
    threads_[current_].state = State::at_named_barrier;
    threads_[current_].site = site;
  }
  std::string violation;
  const std::vector<int> met = named_barriers_.arrive({rank_of(current_), number}, threads, block_threads_,
                                                      current_, waits, violation);
  check_rule(std::move(violation), site);
  if (orders && !met.empty() && !clock_.meet(met)) fail("more barriers than the emulator can count", site);
  for (int thread : met) make_runnable(thread);
  if (waits) suspend();
}

unsigned Block::lanes_of(int thread) const {
  const int lanes = std::min(block_threads_ - first_of_warp(thread) % block_threads_, kWarpSize);
  return lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
}

void Block::arrive_at_collective(Collective kind, unsigned mask, void* operands, const void* site) {
  EmulatedThread& self = threads_[current_];
  self.state = State::at_collective;
  self.site = site;
  self.collective = kind;
  self.mask =
      mask & lanes_of(current_);  // lanes that the block does not have count as ended, and may be named
  self.operands = operands;
  if (!(self.mask >> position_.lane & 1))
    fail("the mask of " + describe_wait(self) + " leaves the lane itself out", site);
  check_warp(first_of_warp(current_));
  suspend();
}

// Lets the lanes go on that the current one waits with, if all of them are here.
void Block::check_warp(int first) {
  const EmulatedThread& self = threads_[current_];
  WarpOperands operands{self.mask, {}};
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (!(self.mask >> lane & 1)) continue;
    const EmulatedThread& other = threads_[first + lane];
    if (other.state != State::at_collective) return;
    if (other.collective != self.collective || other.mask != self.mask) {
      // It may come back from where this lane is not awaited.
      if (!(other.mask >> position_.lane & 1)) return;
      return fail("lanes of a warp disagree: this one is in " + describe_wait(self) + ", but lane " +
                      std::to_string(lane) + " in " + describe_wait(other),
                  self.site);
    }
    operands.lanes[lane] = other.operands;
  }
  std::string violation = self.collective >= Collective::wgmma_fence
                              ? wgmmas_.perform(self.collective, operands, first)
                              : perform(self.collective, operands, first, memory_);
  if (violation.empty() && self.collective == Collective::sync_warp && self.mask == lanes_of(first) &&
      !clock_.sync_warp(first))
    violation = "more __syncwarp between two barriers than the emulator can count";
  if (!violation.empty()) return fail(std::move(violation), self.site);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (self.mask >> lane & 1) make_runnable(first + lane);
  }
}

void Block::end_thread() {
  EmulatedThread& self = threads_[current_];
  self.state = State::ended;
  for (const auto& [group, copies] : self.copies)
    if (copies.under_way() > 0)
      fail("the thread ends with " + std::to_string(copies.under_way()) + " copies by " + std::string(group) +
               " that it did not wait for (commit, wait)",
           nullptr);
  if (self.arrived_at_cluster) fail("the thread ends between cluster_arrive and cluster_wait", nullptr);
  check_rule(wgmmas_.end_thread(current_), nullptr);
  if (!clock_.sees_earlier_launches(current_))
    fail("the thread ends with no grid_wait: launches behind this one count on its end for those before it",
         nullptr);
  const int rank = rank_of(current_);
  if (++ended_[static_cast<size_t>(rank)] == block_threads_ && ranks_ > 1) end_block(rank);
  end_cluster_barrier();
  suspend();
}

// The shared memory of a block goes with it: what others do there must have happened.
void Block::end_block(int rank) {
  if (!memory_.may_end(address_of(dynamic_shared_) + shared_pitch_ * static_cast<size_t>(rank), rank,
                       current_))
    fail(memory_.violation(), nullptr);
}

void Block::arrive_at_cluster(const void* site) {
  EmulatedThread& self = threads_[current_];
  if (self.arrived_at_cluster) fail("cluster_arrive twice with no cluster_wait between", site);
  self.arrived_at_cluster = true;
  clock_.arrive_at_cluster(current_);
  ++arrived_;
  end_cluster_barrier();
}

// It waits for all threads that have not ended.
void Block::end_cluster_barrier() {
  const int gone = std::accumulate(ended_.begin(), ended_.end(), 0);
  if (arrived_ == 0 || arrived_ + gone < static_cast<int>(threads_.size())) return;
  arrived_ = 0;
  for (int i = 0; i < static_cast<int>(threads_.size()); ++i) {
    threads_[i].all_arrived = threads_[i].arrived_at_cluster;
    if (threads_[i].state == State::at_cluster) make_runnable(i);
  }
}

void Block::wait_for_cluster(const void* site) {
  EmulatedThread& self = threads_[current_];
  if (!self.arrived_at_cluster) fail("cluster_wait with no cluster_arrive before", site);
  if (!self.all_arrived) {
    self.state = State::at_cluster;
    self.site = site;
    suspend();
  }
  self.arrived_at_cluster = self.all_arrived = false;
  clock_.wait_for_cluster(current_);
}

void* Block::cluster_address(const void* own, int rank, const void* site) {
  const auto offset = static_cast<size_t>(static_cast<const char*>(own) - dynamic_shared_) -
                      shared_pitch_ * static_cast<size_t>(rank_of(current_));
  if (rank < 0 || rank >= ranks_)
    fail("the cluster has no block " + std::to_string(rank) + ": it has " + std::to_string(ranks_), site);
  if (offset >= launch_.shared_bytes)
    fail("access to " + memory_.locate(address_of(own)) +
             " in another block, which is not dynamic shared memory",
         site);
  if (!clock_.knows_cluster(current_))
    fail("access to the shared memory of a block that may not have begun: no cluster_wait before", site);
  if (ended_[static_cast<size_t>(rank)] == block_threads_)
    fail("access to the shared memory of a block that has ended", site);
  return dynamic_shared_ + shared_pitch_ * static_cast<size_t>(rank) + offset;
}

void Block::fail_deadlock() {
  std::string text = "deadlock: ";
  int waiting = 0, ended = 0;
  const EmulatedThread* last = nullptr;
  for (int i = 0; i < static_cast<int>(threads_.size()); ++i) {
    const EmulatedThread& thread = threads_[i];
    if (thread.state == State::ended) ++ended;
    if (thread.state == State::ended || (last && last->site == thread.site && last->mask == thread.mask))
      continue;
    last = &thread;
    if (++waiting <= 4)
      text += clock_.describe_thread(i) + " and others wait in " + describe_wait(thread) + "; ";
  }
  text += std::to_string(ended) + " of " + std::to_string(threads_.size()) + " threads have ended";
  status_ = Status(ErrorCode::INTERNAL, clock_.describe_block(blocks_[0]) + ": " + text);
}

std::string Block::describe_site(const void* site) const {
  const int line = site ? program_.library->find_line(program_.index, site) : 0;
  if (line == 0) return "";
  return ", line " + std::to_string(line) + " `" + source_line(program_.text, line) + "`";
}

std::string Block::describe_wait(const EmulatedThread& thread) const {
  std::string what = thread.state == State::at_cluster         ? "cluster_wait"
                     : thread.state == State::at_named_barrier ? "barrier_of"
                                                               : "__syncthreads";
  if (thread.state == State::at_collective) {
    char mask[16];
    snprintf(mask, sizeof mask, "0x%08x", thread.mask);
    what = std::string(collective_name(thread.collective)) + " with mask " + mask;
  }
  if (thread.state == State::at_mbarrier)
    what = "mbarrier_wait for parity " + std::to_string(thread.parity & 1) + " of an mbarrier whose " +
           mbarriers_.describe(thread.mbarrier);
  return what + describe_site(thread.site);
}

}  // namespace quern::emulated
