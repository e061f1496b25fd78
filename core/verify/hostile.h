// Hostile inputs: values that are legitimate, and on which arithmetic that is right in a field goes wrong in
// floats. A class is one row of a table; the same class and seed give the same bytes everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace quern {

// Elements of a float input, dense row-major, before they are rounded to its dtype.
using HostileElements = std::vector<double> (*)(DType dtype, const Ints& shape, uint64_t seed);

// Which float inputs of a graph are drawn from a class; the others are friendly.
enum class HostileInputs : uint8_t {
  all,
  one,     // with infinities in all of them nearly every result is NaN, which shows nothing
  either,  // all at once, or one: what overflows with one factor may not be seen beside another
};

struct HostileClass {
  const char* name;
  const char* doc;  // what its float inputs hold
  HostileInputs inputs;
  HostileElements elements, alone = elements;  // drawn for all inputs, and for one
};

std::span<const HostileClass> hostile_classes();
// Null if there is none of this name.
const HostileClass* find_hostile_class(std::string_view name);

// A buffer of desc.span() elements; elements that share a place are equal, places that no element has hold
// NaN. Whatever the class, bool inputs hold both values, in blocks (tiles, halves and whole rows), and i32
// inputs hold small numbers among numbers that wrap around.
std::string hostile_buffer(const TensorDesc& desc, size_t input_index, const HostileClass& cls,
                           uint64_t seed);

// One buffer an input; empty where `read` says that nobody reads it. Of a class that spares the others, float
// input number `which` is drawn from it; one that is likely to show something, or none, where there is no
// such input. Of one that does so in some draws, all are for 0, and number `which` - 1 for others; without a
// number the seed decides. Most integers that positions are compared with are lengths, none and too many among them.
std::vector<std::string> hostile_inputs(const Graph& graph, const HostileClass& cls, uint64_t seed,
                                        const std::vector<bool>& read = {}, size_t which = SIZE_MAX);

}  // namespace quern
