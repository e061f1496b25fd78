#include "daemon/catalog.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>

#include "core/base/bytes.h"
#include "core/optimize/program.h"

namespace quern {

namespace {

constexpr uint32_t kMaxPage = 1000;

std::vector<KeyPart> parts_of(const StoredPlan& plan) {
  auto parts = parse_key_material(plan.material);
  return parts.ok() ? *parts : std::vector<KeyPart>();
}

// The graph's text in what Planner::request_material writes; empty where no request is known.
std::string requested_graph(Store& store, const Hash128& key) {
  const auto request = store.request_of(key);
  if (!request.ok()) return "";
  ByteReader bytes(*request);
  bytes.get<uint32_t>();  // numerics
  bytes.string();         // target
  return std::string(bytes.raw(bytes.remaining()));
}

// The words of a statement of a graph: of "in  x: f16[4]  # ..." they are "in", "x", "f16[4]".
std::vector<std::string> words_of(std::string line) {
  line.resize(std::min(line.find('#'), line.size()));
  for (char& c : line)
    if (c == ',' || c == ':') c = ' ';
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

// The names of the graph, its inputs and its outputs, as the request that made the plan had them. It was
// parsed then; here only its statements are told apart: "graph NAME" stands first, "in" and "out" are no
// names of values.
void add_names(Store& store, const Hash128& key, wire::ListRow& row) {
  std::istringstream lines(requested_graph(store, key));
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(std::move(line));
    if (words.size() < 2 || words[1] == "=") continue;
    if (words[0].ends_with("graph") && row.name.empty())
      row.name = words[1];  // a byte order mark may stand before it
    if (words[0] == "in") row.inputs.push_back(words[1]);
    if (words[0] == "out") row.outputs.insert(row.outputs.end(), words.begin() + 1, words.end());
  }
}

wire::ListRow row_of(Store& store, const StoredPlan& plan, const std::vector<KeyPart>& parts) {
  wire::ListRow row;
  add_names(store, plan.key, row);
  row.key = plan.key;
  row.tier = plan.tier;
  row.generation = plan.generation;
  row.target = key_part(parts, "target");
  row.numerics =
      static_cast<uint32_t>(std::strtoul(std::string(key_part(parts, "policy")).c_str(), nullptr, 16));
  row.plan_bytes = plan.plan.size();
  row.created_ms = static_cast<uint64_t>(std::max<int64_t>(plan.created_ms, 0));
  row.used_ms = static_cast<uint64_t>(std::max<int64_t>(plan.used_ms, 0));
  row.pinned = store.is_pinned(plan.key);
  return row;
}

// The writes of one request, counted down by the store's writer thread.
struct Countdown {
  std::mutex mutex;
  size_t left = 0;
  uint64_t found = 0;
  Status first_error;
};

void write_each(const std::vector<Hash128>& keys,
                const std::function<void(const Hash128&, Store::Done)>& write, const Post& post,
                std::function<void(Result<uint64_t>)> done) {
  auto countdown = std::make_shared<Countdown>();
  // One for this function, so that no key's completion comes last before all are queued.
  countdown->left = keys.size() + 1;
  const auto finish_one = [countdown, post, done](const Status& status) {
    std::lock_guard lock(countdown->mutex);
    if (status.ok())
      ++countdown->found;
    else if (status.code() != ErrorCode::NOT_FOUND && countdown->first_error.ok())
      countdown->first_error = status;
    if (--countdown->left > 0) return;
    const Result<uint64_t> result = countdown->first_error.ok() ? Result<uint64_t>(countdown->found)
                                                                : Result<uint64_t>(countdown->first_error);
    post([done, result] { done(result); });
  };
  for (const Hash128& key : keys) write(key, finish_one);
  finish_one(Status(ErrorCode::NOT_FOUND, ""));
}

}  // namespace

Result<wire::ListReply> list_plans(Store& store, const wire::List& request) {
  const uint32_t limit = request.limit ? std::min(request.limit, kMaxPage) : kMaxPage;
  wire::ListReply reply;
  const auto add = [&](const StoredPlan& plan) {
    if (reply.rows.size() == limit) {
      reply.more = 1;
      return false;
    }
    reply.rows.push_back(row_of(store, plan, parts_of(plan)));
    return true;
  };
  Status listed = store.list(add, &request.after);
  if (!listed.ok()) return listed;
  return reply;
}

Result<wire::ShowReply> show_plan(Store& store, const Hash128& key) {
  auto plan = store.peek(key);
  if (!plan) return plan.status();
  const std::vector<KeyPart> parts = parts_of(*plan);
  wire::ShowReply reply;
  reply.row = row_of(store, *plan, parts);
  reply.graph = key_part(parts, "graph");
  reply.toolchain = key_part(parts, "toolchain");
  if (auto text = print_key_material(plan->material); text.ok()) reply.key_text = *text;
  reply.constraints = key_part(parts, "constraints");
  reply.request = requested_graph(store, key);
  reply.plan = std::move(plan->plan);
  add_programs(store, key, reply.programs, reply.timings);
  auto findings = store.findings(key);
  if (!findings) return reply;
  reply.reason = std::move(findings->reason);
  reply.report = std::move(findings->report);
  if (findings->generation != plan->generation) return reply;
  reply.mugraph = std::move(findings->mugraph);
  reply.schedule = std::move(findings->schedule);
  reply.cuda = std::move(findings->cuda);
  return reply;
}

void add_programs(Store& store, const Hash128& key, std::vector<wire::ProgramRow>& rows,
                  std::vector<wire::TimingRow>& timings) {
  const auto stands = store.peek(key);
  const Tuning tuning = store.tuning(key);
  // A baseline needs no record of which program it is.
  std::optional<Hash128> standing;
  if (stands.ok() && tuning.generation == stands->generation) standing = tuning.program;
  if (stands.ok() && stands->tier == Tier::baseline) standing = Program().name();
  const auto stored = store.programs(key);
  const auto programs =
      stored.ok() ? decode_programs(*stored) : Result<std::vector<Program>>(stored.status());
  if (programs.ok())
    for (const Program& program : *programs) {
      wire::ProgramRow row;
      row.program = program.name();
      row.modelled_ns = program.modelled_ns;
      row.baseline = program.is_baseline();
      row.stands = standing == row.program;
      row.compiled = !program.plan.empty();
      row.mugraph = program.mugraph;
      row.schedule = program.schedule;
      rows.push_back(std::move(row));
    }
  const auto known = store.timings(key);
  for (const Timing& timing : known.ok() ? *known : std::vector<Timing>()) {
    wire::TimingRow row;
    row.device = timing.device;
    row.program = timing.program;
    row.cold_ps = static_cast<uint64_t>(timing.cold_ns * 1e3);
    row.hot_ps = static_cast<uint64_t>(timing.hot_ns * 1e3);
    row.samples = timing.samples;
    row.error_ppb = static_cast<uint64_t>(std::min(timing.error * 1e9, 1e18));
    row.refusal = timing.refusal;
    if (row.device != kModelDevice) timings.push_back(std::move(row));
  }
}

Result<std::vector<Hash128>> all_keys(Store& store) {
  std::vector<Hash128> keys;
  Status listed = store.list([&](const StoredPlan& plan) {
    keys.push_back(plan.key);
    return true;
  });
  if (!listed.ok()) return listed;
  return keys;
}

void remove_plans(Store& store, const std::vector<Hash128>& keys, const Post& post,
                  std::function<void(Result<uint64_t>)> done) {
  write_each(
      keys, [&](const Hash128& key, Store::Done finish) { store.remove(key, std::move(finish)); }, post,
      std::move(done));
}

void pin_plans(Store& store, const std::vector<Hash128>& keys, bool pinned, const Post& post,
               std::function<void(Result<uint64_t>)> done) {
  write_each(
      keys, [&](const Hash128& key, Store::Done finish) { store.pin(key, pinned, std::move(finish)); }, post,
      std::move(done));
}

wire::VerifyReply verify_reply(const VerifyReport& report) {
  wire::VerifyReply reply;
  reply.checked = report.records;
  reply.damaged = report.damage.size();
  for (const VerifyReport::Damage& damage : report.damage) {
    if (reply.problems.size() == wire::kMaxProblems) break;
    reply.problems.push_back(damage.table + " " + damage.key + ": " + damage.what);
  }
  return reply;
}

void add_store_stats(Store& store, wire::StatsReply& stats) {
  auto counts = store.stats();
  if (!counts) {
    stats.facts.push_back({"store", "damaged: " + counts.status().message()});
    return;
  }
  const auto count = [&](const char* name, uint64_t value) { stats.counters.push_back({name, value}); };
  count("plans", counts->plans);
  count("quarantined", counts->quarantined);
  count("store_bytes", counts->live_bytes);
  count("store_file_bytes", counts->file_bytes);
  count("store_limit_bytes", counts->max_bytes);
  count("published", counts->published);
  count("commits", counts->commits);
  count("failed_commits", counts->failed_commits);
  count("evicted", counts->evicted);
  count("damaged", counts->damaged);
  count("rescues", counts->rescues);
  if (!counts->last_rescue.empty()) stats.facts.push_back({"store_rescue", counts->last_rescue});
  stats.facts.push_back(
      {"store", counts->read_only ? "read-only: the cache directory cannot be written; new plans are not kept"
                                  : "read-write"});
}

void try_write(Store& store, const Post& post, std::function<void(std::string)> done) {
  store.set_meta("tried", "a write", [post, done = std::move(done)](const Status& status) {
    post([done, how = status.ok() ? std::string("ok") : status.message()] { done(how); });
  });
}

}  // namespace quern
