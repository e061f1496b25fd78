// What most subcommands begin with: a connection to the daemon, the graph of a file, and a target.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "capi/client.h"
#include "core/graph/graph.h"
#include "core/schedule/schedule.h"
#include "tools/arguments.h"

namespace quern {

struct Session {
  std::unique_ptr<Client> client;
  TimePoint deadline;  // of the whole subcommand, from --timeout

  template <class Reply, class Request>
  Result<Reply> ask(const Request& request, Client::OnProgress on_progress = {}) {
    return client->ask<Reply>(request, deadline, std::move(on_progress));
  }
  // What the daemon is told of the time that is left, for requests that say how long they wait; at least 1.
  uint32_t milliseconds_left() const;
};

// Connects as the options of `arguments` say.
Result<Session> open_session(const Arguments& arguments);

// A whole file; "-" is standard input. NOT_FOUND, IO.
Result<std::string> read_file(const std::string& path);
// "-" is standard output; what is printed for people then goes to standard error. IO, PERMISSION.
Status write_file(const std::string& path, std::string_view bytes);
// The same about a file: "FILE:LINE:COLUMN: what", as compilers write it and editors read it, where the
// message begins with a line; else "FILE: what".
Status in_file(const Status& status, const std::string& path);
struct GraphFile {
  std::string text;
  Graph graph;
};
// INVALID_GRAPH as "FILE:LINE:COLUMN: ...".
Result<GraphFile> read_graph(const std::string& path);

// INVALID_ARGUMENT as "FILE:LINE:1: ...".
Result<Schedule> read_schedule(const std::string& path);

// --target if it is given, else that of the first GPU. INVALID_ARGUMENT when there is neither.
Result<std::string> choose_target(const Arguments& arguments);

// --tf32 as bits of the numerics policy.
uint32_t numerics_of(const Arguments& arguments);

// --wait-tier, or baseline. INVALID_ARGUMENT when it is no tier.
Result<Tier> tier_of(const Arguments& arguments);
// The tier of that name, which `option` gave. INVALID_ARGUMENT.
Result<Tier> tier_named(const std::string& name, const std::string& option);

// Calls `visit` with every stored plan's row behind the key `after`, in the order of keys, until it says
// false.
Status each_row(Session& session, Hash128 after, const std::function<bool(wire::ListRow&)>& visit);

// A key from its 32 digits or the first few of them. NOT_FOUND, INVALID_ARGUMENT.
Result<Hash128> find_key(Session& session, const std::string& digits);

}  // namespace quern
