// quern prewarm: puts the plans of many graphs for many targets into the cache.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <thread>

#include "core/base/target.h"
#include "tools/constraints.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/session.h"

namespace quern {

namespace {

// Jobs that wait in the daemon for this command at a time: enough to keep its workers busy, few enough for
// its queue.
constexpr size_t kWindow = 64;

struct Wish {
  std::string file, target;
  std::string text;  // of the graph
  Tier wanted = Tier::baseline;
  Tier tier = Tier::baseline;  // of the plan that stands
  Hash128 key;
  std::string outcome;  // "hit", "compiled"; "" = not yet
  Status status;
};

Status add_wishes(const std::string& file, const std::vector<std::string>& targets,
                  std::vector<Wish>& wishes) {
  Result<GraphFile> graph = read_graph(file);
  if (!graph) return graph.status();
  for (const std::string& target : targets) {
    if (Result<const Target*> known = find_target(target); !known) return known.status().with_context(file);
    Wish wish;
    wish.file = file;
    wish.target = target;
    wish.text = graph->text;
    wishes.push_back(std::move(wish));
  }
  return {};
}

// Lines of "FILE TARGET...", where FILE is relative to the manifest's folder; without targets those of the
// command line.
Status add_manifest(const std::string& path, const std::vector<std::string>& targets,
                    std::vector<Wish>& wishes) {
  Result<std::string> text = read_file(path);
  if (!text) return text.status();
  std::istringstream lines(*text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string file, target;
    if (!(words >> file)) continue;
    std::vector<std::string> own;
    while (words >> target) own.push_back(target);
    const std::string where = path + ":" + std::to_string(number);
    if (own.empty() && targets.empty())
      return Status(ErrorCode::INVALID_ARGUMENT,
                    where + ": no target here, nor --target on the command line");
    const std::string resolved = std::filesystem::path(path).parent_path() / file;
    if (Status status = add_wishes(resolved, own.empty() ? targets : own, wishes); !status.ok())
      return status.with_context(where);
  }
  return {};
}

Result<std::vector<Wish>> read_wishes(const Arguments& arguments) {
  std::vector<Wish> wishes;
  std::vector<std::string> targets = arguments.values("target");
  if (arguments.operands().empty() && !arguments.has("manifest"))
    return Status(ErrorCode::INVALID_ARGUMENT,
                  "name graph files, or a list of them with --manifest; see: quern help prewarm");
  if (targets.empty() && !arguments.operands().empty()) {
    Result<std::string> target = choose_target(arguments);
    if (!target) return target.status();
    targets.push_back(*target);
  }
  for (const std::string& manifest : arguments.values("manifest"))
    if (Status status = add_manifest(manifest, targets, wishes); !status.ok()) return status;
  for (const std::string& file : arguments.operands())
    if (Status status = add_wishes(file, targets, wishes); !status.ok()) return status;
  return wishes;
}

// True when the wish is settled: there already, or refused. Else its job is queued.
bool settle_or_queue(Wish& wish, const Result<Answer>& answer) {
  if (!answer) {
    wish.status = answer.status();
  } else if (answer->is<wire::Pending>()) {
    Result<wire::Pending> pending = answer->as<wire::Pending>();
    if (pending) {
      wish.key = pending->key;
      return false;
    }
    wish.status = pending.status();
  } else {
    Result<wire::PlanReply> reply = answer->as<wire::PlanReply>();
    wish.status = reply.status();
    if (!reply) return true;
    wish.key = reply->key;
    wish.tier = reply->tier;
    if (wish.tier < wish.wanted) return false;
    wish.outcome = reply->origin == wire::Origin::hit ? "hit" : "compiled";
  }
  return true;
}

// True when the job of the wish, and the search if one is waited for, have ended, well or not.
bool settle_by_status(Wish& wish, const Result<Answer>& answer) {
  if (!answer) {
    wish.status = answer.status();
    return true;
  }
  Result<wire::JobStatusReply> job = answer->as<wire::JobStatusReply>();
  if (!job) {
    wish.status = job.status();
    return true;
  }
  const bool stored = job->generation > 0;
  if (stored) wish.tier = static_cast<Tier>(job->tier);
  const bool reached = stored && wish.tier >= wish.wanted;
  const bool busy = job->state == wire::JobState::queued || job->state == wire::JobState::running;
  if (busy && !reached) return false;
  if (stored)
    wish.outcome = "compiled";
  else if (job->state == wire::JobState::quarantined)
    wish.status = Status(ErrorCode::QUARANTINED, job->reason);
  else
    wish.status = Status(ErrorCode::COMPILE,
                         job->reason.empty() ? "the plan was made but could not be stored" : job->reason);
  return true;
}

// Asks as `how` says for the wishes behind `next` until the window is full, and adds those that have to be
// waited for to `pending`.
void ask_for_more(const wire::Get& how, Session& session, std::vector<Wish>& wishes, size_t& next,
                  std::vector<Wish*>& pending) {
  std::vector<wire::Get> gets;
  const size_t first = next;
  for (; next < wishes.size() && pending.size() + gets.size() < kWindow; ++next) {
    wire::Get get = how;
    get.graph = wishes[next].text;
    get.target = wishes[next].target;
    gets.push_back(std::move(get));
  }
  const std::vector<Result<Answer>> answers = session.client->exchange_all(gets, session.deadline);
  for (size_t i = 0; i < answers.size(); ++i)
    if (!settle_or_queue(wishes[first + i], answers[i])) pending.push_back(&wishes[first + i]);
}

// Drops from `pending` what has been settled since. Jobs end about in the order in which they were asked for,
// so only the first few are looked at.
void look_after(Session& session, std::vector<Wish*>& pending) {
  constexpr size_t kLooks = 8;
  std::vector<wire::JobStatus> questions;
  for (size_t i = 0; i < pending.size() && i < kLooks; ++i) questions.push_back({pending[i]->key});
  const std::vector<Result<Answer>> states = session.client->exchange_all(questions, session.deadline);
  std::vector<Wish*> still;
  for (size_t i = 0; i < pending.size(); ++i)
    if (i >= states.size() || !settle_by_status(*pending[i], states[i])) still.push_back(pending[i]);
  pending.swap(still);
}

// Background jobs run behind everything that somebody waits for, so nobody waits here: their states are
// looked at.
void settle_all(const wire::Get& how, Session& session, std::vector<Wish>& wishes, bool show_progress) {
  constexpr auto kShortest = std::chrono::milliseconds(5), kLongest = std::chrono::milliseconds(64);
  Progress progress("prewarming", wishes.size(), show_progress);
  std::vector<Wish*> pending;
  size_t next = 0;
  auto pause = kShortest;
  while (next < wishes.size() || !pending.empty()) {
    const size_t before = next - pending.size();
    ask_for_more(how, session, wishes, next, pending);
    look_after(session, pending);
    progress.update(next - pending.size());
    pause = next - pending.size() > before ? kShortest : std::min(pause * 2, kLongest);
    if (!pending.empty()) std::this_thread::sleep_for(pause);
  }
}

int report(const Arguments& arguments, const std::vector<Wish>& wishes, uint64_t ns) {
  size_t hits = 0, compiled = 0, failed = 0, below = 0;
  Status first;
  Json rows = Json::array();
  for (const Wish& wish : wishes) {
    hits += wish.outcome == "hit";
    compiled += wish.outcome == "compiled";
    below += wish.status.ok() && wish.tier < wish.wanted;
    if (!wish.status.ok() && failed++ == 0) first = wish.status;
    Json row = {{"file", wish.file},
                {"target", wish.target},
                {"key", to_hex(wish.key)},
                {"tier", wish.status.ok() ? Json(tier_name(wish.tier)) : Json()},
                {"outcome", wish.status.ok() ? wish.outcome : "failed"}};
    if (!wish.status.ok()) row["error"] = error_json(wish.status);
    rows.push_back(row);
    if (!wish.status.ok() && !arguments.json())
      std::fprintf(stderr, "quern: %s\n",
                   visible(wish.file + " for " + wish.target + ": " + wish.status.message()).c_str());
  }
  if (arguments.json())
    print_json({{"hits", hits},
                {"compiled", compiled},
                {"failed", failed},
                {"below", below},
                {"ns", ns},
                {"plans", rows}});
  else
    print_text(std::to_string(wishes.size()) + " plans: " + std::to_string(hits) + " were there, " +
               std::to_string(compiled) + " compiled, " + std::to_string(failed) + " failed" +
               (below ? ", " + std::to_string(below) + " below the tier" : "") + "; " + human_duration(ns) +
               "\n");
  return exit_code(first);
}

// All requests but for graph and target.
Result<wire::Get> request_of(const Arguments& arguments) {
  Result<int64_t> priority = arguments.integer("priority", 0, 0, 255);
  if (!priority) return priority.status();
  Result<std::string> constraints = constraints_of(arguments);
  if (!constraints) return constraints.status();
  wire::Get get;
  get.numerics = numerics_of(arguments);
  get.flags = wire::kGetNoWait;
  get.priority = static_cast<uint8_t>(*priority);
  get.constraints = *constraints;
  return get;
}

int run_prewarm(const Arguments& arguments) {
  Result<wire::Get> how = request_of(arguments);
  if (!how) return fail(arguments, how.status());
  Result<Tier> wanted = tier_of(arguments);
  if (!wanted) return fail(arguments, wanted.status());
  Result<std::vector<Wish>> wishes = read_wishes(arguments);
  if (!wishes) return fail(arguments, wishes.status());
  for (Wish& wish : *wishes) wish.wanted = *wanted;
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  // Nobody waits for a prewarm as for a request: unless a time is named it may take as long as it takes.
  if (!arguments.has("timeout"))
    session->deadline = std::chrono::steady_clock::now() + std::chrono::hours(24);
  const auto start = std::chrono::steady_clock::now();
  settle_all(*how, *session, *wishes, !arguments.json());
  return report(arguments, *wishes,
                static_cast<uint64_t>((std::chrono::steady_clock::now() - start).count()));
}

}  // namespace

const Command kPrewarmCommand = {
    "prewarm",
    "[FILE]...",
    0,
    1000000,
    "put the plans of many graphs into the cache",
    "Has the daemon make the plans of all graphs for all targets, in the background and side by side,\n"
    "and waits until they are stored. No GPU is needed. A manifest has lines of \"FILE TARGET...\",\n"
    "with FILE relative to the manifest; \"#\" starts a comment. With --wait-tier it also waits for the\n"
    "searches for better plans; a plan whose search finds none stays as it is and is counted. The exit\n"
    "code is that of the first plan that failed.\n",
    true,
    with_constraints(
        {{"target", 't', "TARGET", "GPU architecture; may be given several times (that of the first GPU)"},
         {"manifest", 'm', "FILE", "graphs and their targets; may be given several times"},
         {"wait-tier", 0, "TIER", "wait for plans of this tier too: modelled, measured (baseline)"},
         {"tf32", 0, nullptr, "as in quern get"},
         {"priority", 0, "N", "among background jobs, higher goes first: 0 to 255 (0)"}}),
    run_prewarm,
};

}  // namespace quern
