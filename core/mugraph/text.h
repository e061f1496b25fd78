// The text form of muGraphs (.qmu): readable, complete, and what golden files hold.
//
//   file      = { line }                                     one statement a line; `#` starts a comment
//   statement = "mugraph" name
//             | "in" name ":" dtype ints [ "dense" ]         an input, in the order of the graph's inputs; dense:
//                                                            kernels read it reshaped where it lies
//             | "tensor" name ":" dtype ints                 a tensor that a kernel writes
//             | name "=" operator "(" arguments ")"          a kernel: one operator over whole tensors
//             | "kernel" { option } "{" { block } "}"        a kernel: a block graph
//             | "out" name { "," name }
//   option    = "grid" "=" ints                              extents of x, y, z; the last ones may be left
//   out
//             | "cluster" "=" integer | "loop" "=" integer | "threads" "=" integer
//   block     = name "=" "load" "(" tensor { "," cut } ")"
//             | name "=" combine "(" name [ "," name ] [ "," "axis" "=" integer ] ")"
//             | name "=" "extent" "(" tensor "[" dim "]" { "," tensor "[" dim "]" } ")"
//             | name "=" "number" "(" number ")"
//             | name "=" operator "(" arguments ")"          as in .qg
//             | "store" "(" name "," tensor { "," cut } ")"
//   cut       = ( "x" | "y" | "z" | "cluster" | "loop" ) "=" dim     this axis cuts that dimension
//   combine   = "accumulate_" reduction | "accumulate_rescaled" | "accumulate_concat"
//             | "cluster_" reduction | "cluster_rescaled"
//   reduction = "sum" | "max" | ...                          a reduction of ops.def
//
// The mugraph line comes first. Values of a block graph and tensors have separate names. A rescaled
// combination names its value, then its `max`; `extent` is the product of extents of global tensors.
#pragma once

#include <string>
#include <string_view>

#include "core/mugraph/mugraph.h"

namespace quern {

// A valid muGraph, types filled in. INVALID_GRAPH as "LINE:COLUMN: ..." for what is no muGraph text, and as
// validate() says it for what is.
Result<MuGraph> parse_mugraph(std::string_view text);

// Reads back as the same muGraph. Shapes of tiles stand in comments.
std::string print_mugraph(const MuGraph& mugraph);

// Graphviz text: a cluster of boxes a kernel, tensors between them.
std::string print_dot(const MuGraph& mugraph);

}  // namespace quern
