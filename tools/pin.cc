// quern pin and unpin: plans that are never evicted.
#include "tools/output.h"
#include "tools/session.h"

namespace quern {

namespace {

int run(const Arguments& arguments, bool unpin) {
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  wire::Pin request;
  request.unpin = unpin;
  for (const std::string& digits : arguments.operands()) {
    Result<Hash128> key = find_key(*session, digits);
    if (!key) return fail(arguments, key.status());
    request.keys.push_back(*key);
  }
  Result<wire::Pinned> pinned = session->ask<wire::Pinned>(request);
  if (!pinned) return fail(arguments, pinned.status());
  const char* what = unpin ? "unpinned" : "pinned";
  if (arguments.json())
    print_json({{what, pinned->count}});
  else
    print_text(std::to_string(pinned->count) + (pinned->count == 1 ? " plan " : " plans ") + what + "\n");
  return pinned->count == request.keys.size() ? kExitOk : kExitNo;
}

int run_pin(const Arguments& arguments) { return run(arguments, false); }
int run_unpin(const Arguments& arguments) { return run(arguments, true); }

}  // namespace

const Command Commands::kPinCommand = {
    "pin",
    "KEY...",
    1,
    100000,
    "keep plans from eviction",
    "A pinned plan stays when the cache is full, and quern gc leaves it. A better plan for its key takes "
    "over the pin. Pinned\n"
    "plans may take half of cache-size. A KEY is 32 digits, or the first few. quern ls shows what is pinned, "
    "quern rm\n"
    "removes the plan and its pin.\n",
    true,
    {},
    run_pin,
};

const Command Commands::kUnpinCommand = {
    "unpin", "KEY...", 1,         100000, "let plans be evicted again", "The reverse of quern pin.\n",
    true,    {},       run_unpin,
};

}  // namespace quern
