// How many registers a thread of a block wants, were there as many: an estimate of what ptxas gives it.
#pragma once

#include "core/schedule/schedule.h"

namespace quern {

// What lives in registers; of a thread unless it says otherwise.
struct RegisterNeeds {
  bool wgmma = false;  // a product is computed by warpgroups, whose results stay where they are
  double product_sums = 0, product_middle = 0;  // results of products: over the loop, in an iteration
  double fragments = 0;                         // operands of products of an iteration
  double split = 0;           // operands of a step of products in three, which are halves in tf32
  double held = 0, made = 0;  // operands that stay through the loop, and that are made where there is none
  double loaded = 0;          // words of an iteration that come straight from global memory
  double once_loaded = 0;     // and outside of the loop
  double parted = 0;  // of both, from tensors that lie in pieces: loaded behind branches, before any is used
  double before_loop = 0;     // of these, where there is a loop, which may be more than that needs
  double once_fragments = 0;  // of these, operands of products
  double block_sums = 0, block_middle = 0;  // elements of the block: over the loop, in an iteration
  double block_kept = 0;                    // elements of the block that are reduced and used again
  double loop_kept = 0;                     // and in an iteration without products, of all tiles together
  // Elements of the block that threads exchange, as another dimension becomes the innermost.
  double turned = 0;
  double fma_sums = 0,
         fma_operands = 0;  // of products without tensor cores: sums, and what is multiplied next
};

// Of wgmma ptxas takes 26 and the results of products, one each: 42, 58, 90, 154 for 16 to 128 of them. It
// compiles no instruction for which the launch leaves fewer, whatever setmaxnreg brings.
inline double wgmma_registers(double sums) { return 26 + sums; }

double estimate_registers(const RegisterNeeds& needs, const KernelSchedule& schedule);

}  // namespace quern
