// Products of warpgroups as they are under way beside the threads (core/codegen/device/wgmma.cuh), with the
// rules of the PTX ISA: registers that a product uses are ordered by wgmma_fence before it and by wgmma_wait
// behind it, and what it reads from shared memory must be there for the asynchronous proxy and stay until the
// wait. Each warp computes its 16 rows by itself; that all four of a group do the same is checked.
#pragma once

#include <array>
#include <bitset>
#include <map>
#include <string>
#include <vector>

#include "core/emulator/collective.h"
#include "core/emulator/memory.h"

namespace quern::emulated {

// Functions that return text return the rule that was broken, empty if none.
class Wgmmas {
 public:
  explicit Wgmmas(Memory& memory) : memory_(memory) {}

  // `stack_tops` of all threads, of whole warps; none if there will be no products.
  void begin_cluster(const std::vector<char*>& stack_tops, int block_threads);
  // Of a warp, all of whose lanes are here: fence, product, commit or wait. `first` is its first thread.
  std::string perform(Collective kind, const WarpOperands& operands, int first);
  // A thread reads or writes its own registers (what lies on its stack).
  std::string touch(uintptr_t address, size_t size, bool is_write, int thread);
  std::string end_thread(int thread) const;

 private:
  static constexpr size_t kSlots = 32 * 1024;  // of 4 bytes, of a stack
  struct Sums {
    std::array<float*, kWarpSize> at;
    int columns, group;
    std::vector<float> values;  // of each lane
  };
  struct Fragments {
    std::array<const unsigned*, kWarpSize> at;
    int group;
  };
  struct Unit {
    uintptr_t at;
    int group;
  };
  struct Warp {
    int committed = 0, products = 0;
    bool fenced = false;
    std::vector<Sums> sums;            // under way
    std::vector<Fragments> fragments;  // read by those
    std::vector<Unit> units;           // of 16 bytes of shared memory, read by those
    bool busy() const { return !sums.empty(); }
  };
  // What a product of a warp looks like to the others of its group.
  struct Shape {
    uintptr_t a, b;
    int columns;
    bool operator==(const Shape&) const = default;
  };

  int warp_in_block(int thread) const { return thread % block_threads_ / kWarpSize; }
  // Of all blocks numbered through; the last warps of a block may be none.
  int warpgroup_of(int thread) const;
  Warp& warp_of(int thread) { return warps_[static_cast<size_t>(thread / kWarpSize)]; }
  std::string multiply(const WarpOperands& operands, int first);
  std::string read_units(const WgmmaOperand& operand, int rows, const WarpOperands& operands, int first);
  std::string use_registers(const void* at, size_t size, int thread);
  std::string wait(int pending, int first);

  Memory& memory_;
  std::vector<char*> stack_tops_;
  int block_threads_ = 1;
  std::vector<std::bitset<kSlots>> touched_;  // of each thread since its last fence
  std::vector<Warp> warps_;
  std::map<int, std::vector<Shape>> groups_;  // of each warpgroup, its products
};

}  // namespace quern::emulated
