// quern ls and quern rm: the plans in the cache.
#include <unistd.h>

#include "core/base/numerics.h"
#include "core/base/target.h"
#include "tools/output.h"
#include "tools/session.h"

namespace quern {

namespace {

// INVALID_ARGUMENT for filters that no plan could pass.
Status check_filters(const Arguments& arguments) {
  if (arguments.has("target"))
    if (Result<const Target*> target = find_target(arguments.value("target")); !target)
      return Status(ErrorCode::INVALID_ARGUMENT, target.status().message());
  if (arguments.has("tier"))
    if (Result<Tier> tier = tier_named(arguments.value("tier"), "--tier"); !tier) return tier.status();
  return {};
}

Json row_json(const wire::ListRow& row) {
  return {{"key", to_hex(row.key)},
          {"name", row.name},
          {"inputs", row.inputs},
          {"outputs", row.outputs},
          {"tier", tier_name(row.tier)},
          {"pinned", row.pinned != 0},
          {"generation", row.generation},
          {"target", row.target},
          {"tf32", (row.numerics & kAllowTf32) != 0},
          {"plan_bytes", row.plan_bytes},
          {"created_ms", row.created_ms},
          {"used_ms", row.used_ms}};
}

// "mlp(x, w1, w2)": the names in one of the requests; of many inputs only some.
std::string graph_text(const wire::ListRow& row) {
  constexpr size_t kWidth = 40;
  std::string text = row.name.empty() ? "-" : row.name;
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    text += i == 0 ? "(" : ", ";
    const bool fits = text.size() + row.inputs[i].size() < kWidth;
    text += fits ? row.inputs[i] : "...";
    if (!fits) break;
  }
  return text + (row.inputs.empty() ? "" : ")");
}

struct Page {
  std::vector<wire::ListRow> rows;
  bool more = false;
};

// The first `limit` rows that the filters let through.
Result<Page> collect(const Arguments& arguments, Session& session, size_t limit, Hash128 after) {
  const std::string target = arguments.value("target"), tier = arguments.value("tier");
  Page page;
  Status status = each_row(session, after, [&](wire::ListRow& row) {
    if (!target.empty() && row.target != target) return true;
    if (!tier.empty() && tier != tier_name(row.tier)) return true;
    page.more = page.rows.size() == limit;
    if (!page.more) page.rows.push_back(std::move(row));
    return !page.more;
  });
  if (!status.ok()) return status;
  return page;
}

int run_list(const Arguments& arguments) {
  Result<int64_t> limit = arguments.integer("limit", 100, 1, 1000000000);
  if (!limit) return fail(arguments, limit.status());
  const std::string after_text = arguments.value("after");
  const std::optional<Hash128> after = after_text.empty() ? Hash128() : parse_hash(after_text);
  if (!after)
    return fail(arguments,
                Status(ErrorCode::INVALID_ARGUMENT, "--after takes a key, not \"" + after_text + "\""));
  if (Status status = check_filters(arguments); !status.ok()) return fail(arguments, status);
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  Result<Page> page = collect(arguments, *session, static_cast<size_t>(*limit), *after);
  if (!page) return fail(arguments, page.status());

  if (arguments.json()) {
    Json rows = Json::array();
    for (const wire::ListRow& row : page->rows) rows.push_back(row_json(row));
    print_json({{"plans", rows}, {"more", page->more}});
    return kExitOk;
  }
  Table table({"KEY", "GRAPH", "TARGET", "TIER", ">GENERATION", ">SIZE", "CREATED", "LAST USED"});
  for (const wire::ListRow& row : page->rows)
    table.add({to_hex(row.key), graph_text(row), row.target + (row.numerics & kAllowTf32 ? " tf32" : ""),
               std::string(tier_name(row.tier)) + (row.pinned ? ", pinned" : ""),
               std::to_string(row.generation), human_bytes(row.plan_bytes), human_time(row.created_ms),
               human_time(row.used_ms)});
  print_text(table.text());
  if (page->more) print_text("more: quern ls --after " + to_hex(page->rows.back().key) + "\n");
  return kExitOk;
}

int run_remove(const Arguments& arguments) {
  wire::Remove request;
  request.all = arguments.has("all");
  if (request.all != arguments.operands().empty())
    return fail(arguments, Status(ErrorCode::INVALID_ARGUMENT,
                                  "name keys, or say --all to forget every plan; not both"));
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  for (const std::string& digits : arguments.operands()) {
    Result<Hash128> key = find_key(*session, digits);
    if (!key) return fail(arguments, key.status());
    request.keys.push_back(*key);
  }
  Result<wire::Removed> removed = session->ask<wire::Removed>(request);
  if (!removed) return fail(arguments, removed.status());
  if (arguments.json())
    print_json({{"removed", removed->count}});
  else
    print_text(std::to_string(removed->count) + (removed->count == 1 ? " plan" : " plans") + " removed\n");
  return request.all || removed->count == request.keys.size() ? kExitOk : kExitNo;
}

}  // namespace

const Command Commands::kListCommand = {
    "ls",
    "",
    0,
    0,
    "the plans in the cache",
    "Lists stored plans in the order of their keys, one a line. GRAPH has the names of the graph and of its\n"
    "inputs in one of the requests for the plan; graphs that differ in names only share one plan.\n",
    true,
    {{"target", 't', "TARGET", "only plans for this GPU architecture"},
     {"tier", 0, "TIER", "only plans of this tier: baseline, modelled, measured"},
     {"limit", 'n', "N", "at most N lines (100)"},
     {"after", 0, "KEY", "only keys behind this one: the next page"}},
    run_list,
};

const Command Commands::kRemoveCommand = {
    "rm",
    "[KEY]...",
    0,
    1000000,
    "forget plans",
    "Removes plans from the cache, and lifts the quarantine of their graphs. A KEY is 32 digits, or the\n"
    "first few of them. Exit code 1 means that one of them was not there.\n",
    true,
    {{"all", 0, nullptr, "every plan"}},
    run_remove,
};

}  // namespace quern
