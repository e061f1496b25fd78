// The text form (.qg) of graphs: readable, diffable, and what travels on the wire.
//
//   file       = { line }                                  one statement a line; `#` starts a comment; a byte order mark may come first
//   statement  = "graph" name
//              | "in" name ":" dtype ints [ "strides" ints ] [ "const" ]
//              | name "=" operator "(" [ argument { "," argument } ] ")"
//              | "out" name { "," name }
//   argument   = name | number | attribute "=" value       operands before attributes
//   value      = integer | ints | number | dtype | "true" | "false"
//   ints       = "[" [ integer { "," integer } ] "]"
//
// The graph line comes first. A name is defined once, before it is used.
#pragma once

#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace quern {

// INVALID_GRAPH as "LINE:COLUMN: what was wrong, what was expected" at the first error; LIMIT for a text or
// graph that is too large.
Result<Graph> parse_graph(std::string_view text);
// The same for a text that is to be built on: it may lack outputs.
Result<Graph> parse_unfinished_graph(std::string_view text);

// Reads back as the same graph, names included.
std::string print_graph(const Graph& graph);

// Graphviz text: one box a node with its operator, type and attributes.
std::string print_dot(const Graph& graph);
// Quoted for such a text.
std::string quote_dot(std::string_view text);

}  // namespace quern
