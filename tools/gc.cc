// quern gc: forgets plans that nobody uses, or that are too many.
#include <algorithm>
#include <chrono>

#include "core/base/target.h"
#include "tools/output.h"
#include "tools/session.h"

namespace quern {

namespace {

constexpr uint64_t kMostUnusedMs = 3650ull * 24 * 3'600'000;
constexpr size_t kKeysAtOnce = 1000;

// Those that the filters let through and nobody has pinned, the least recently used first.
Result<std::vector<wire::ListRow>> candidates(const Arguments& arguments, Session& session) {
  const std::string target = arguments.value("target"), tier = arguments.value("tier");
  std::vector<wire::ListRow> rows;
  Status status = each_row(session, {}, [&](wire::ListRow& row) {
    if (!row.pinned && (target.empty() || row.target == target) &&
        (tier.empty() || tier == tier_name(row.tier)))
      rows.push_back(std::move(row));
    return true;
  });
  if (!status.ok()) return status;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.used_ms < b.used_ms; });
  return rows;
}

// From the front of `rows`: what was not used since `before_ms`, and then what makes the rest larger than
// `keep_bytes`.
size_t count_to_go(const std::vector<wire::ListRow>& rows, uint64_t before_ms, uint64_t keep_bytes) {
  uint64_t bytes = 0;
  for (const wire::ListRow& row : rows) bytes += row.plan_bytes;
  size_t count = 0;
  for (; count < rows.size() && (rows[count].used_ms < before_ms || bytes > keep_bytes); ++count)
    bytes -= rows[count].plan_bytes;
  return count;
}

Result<uint64_t> remove_all(Session& session, const std::vector<wire::ListRow>& rows) {
  uint64_t removed = 0;
  for (size_t begin = 0; begin < rows.size(); begin += kKeysAtOnce) {
    wire::Remove request;
    for (size_t i = begin; i < std::min(rows.size(), begin + kKeysAtOnce); ++i)
      request.keys.push_back(rows[i].key);
    Result<wire::Removed> reply = session.ask<wire::Removed>(request);
    if (!reply) return reply.status();
    removed += reply->count;
  }
  return removed;
}

int run_gc(const Arguments& arguments) {
  Result<uint64_t> unused =
      arguments.has("unused") ? arguments.duration_ms("unused", kMostUnusedMs) : uint64_t{0};
  if (!unused) return fail(arguments, unused.status());
  Result<int64_t> keep = arguments.integer("keep-mib", INT64_MAX >> 20, 0, INT64_MAX >> 20);
  if (!keep) return fail(arguments, keep.status());
  if (!*unused && !arguments.has("keep-mib"))
    return fail(arguments,
                Status(ErrorCode::INVALID_ARGUMENT, "say what may go: --unused TIME, --keep-mib N, or both"));
  if (arguments.has("tier"))
    if (Result<Tier> tier = tier_named(arguments.value("tier"), "--tier"); !tier)
      return fail(arguments, tier.status());
  if (arguments.has("target"))
    if (Result<const Target*> target = find_target(arguments.value("target")); !target)
      return fail(arguments, target.status());
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  Result<std::vector<wire::ListRow>> rows = candidates(arguments, *session);
  if (!rows) return fail(arguments, rows.status());

  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto now_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  rows->resize(count_to_go(*rows, *unused ? now_ms - *unused : 0, static_cast<uint64_t>(*keep) << 20));
  uint64_t bytes = 0;
  Json keys = Json::array();
  for (const wire::ListRow& row : *rows) {
    bytes += row.plan_bytes;
    keys.push_back(to_hex(row.key));
  }
  const bool dry = arguments.has("dry-run");
  Result<uint64_t> removed = dry ? Result<uint64_t>(rows->size()) : remove_all(*session, *rows);
  if (!removed) return fail(arguments, removed.status());
  if (arguments.json())
    print_json({{"removed", dry ? 0 : *removed}, {"chosen", rows->size()}, {"bytes", bytes}, {"keys", keys}});
  else
    print_text(std::to_string(*removed) + (*removed == 1 ? " plan" : " plans") +
               (dry ? " would be removed, " : " removed, ") + human_bytes(bytes) + "\n");
  return kExitOk;
}

}  // namespace

const Command Commands::kGcCommand = {
    "gc",
    "",
    0,
    0,
    "forget plans that nobody uses, or that are too many",
    "Removes plans, the least recently used first: those that were not used for a time, and then as many as\n"
    "it takes for the rest to fit a size. The file of the cache does not shrink; the room is used again. A "
    "cache\n"
    "never needs it: beyond its cache-size the daemon itself evicts what was not used for longest.\n",
    true,
    {{"unused", 0, "TIME", "plans that were not used for so long: 12h, 30d"},
     {"keep-mib", 0, "N", "plans beyond N MiB in all"},
     {"target", 't', "TARGET", "only plans for this GPU architecture"},
     {"tier", 0, "TIER", "only plans of this tier: baseline, modelled, measured"},
     {"dry-run", 'n', nullptr, "only say what would go"}},
    run_gc,
};

}  // namespace quern
