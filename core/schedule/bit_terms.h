// A layout as arithmetic: each output is an XOR of shifted and masked inputs. The emitter prints these terms:
//
//   m = (t & 16) >> 2 ^ (t & 3) << 1
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/schedule/layout.h"

namespace quern {

// (x & mask) << shift, or >> -shift, of the value x of an input dimension.
struct BitTerm {
  int input;  // number among the layout's inputs
  uint64_t mask;
  int shift;
};

struct BitTerms {
  std::vector<BitTerm> terms;  // inputs in order, then rising shifts
  // The bits that the terms can set. A constant outside them can be added instead of XORed, so it becomes the
  // immediate of an address.
  uint64_t reach = 0;
  // No bit is set by two terms: they can be added or ORed.
  bool disjoint = true;
};

// `output` as a function of all inputs. The inputs that are known when the code is emitted (registers) are
// better taken out first (without_input) and their part computed with Layout::apply.
BitTerms bit_terms(const Layout& layout, std::string_view output);
}  // namespace quern
