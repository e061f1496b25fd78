// quern prewarm: puts the plans of many graphs for many targets into the cache.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

#include "core/base/numerics.h"
#include "core/base/target.h"
#include "core/base/words.h"
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
  uint32_t numerics = 0;
  std::string constraints;
  Tier wanted = Tier::baseline;
  Tier tier = Tier::baseline;  // of the plan that stands
  Hash128 key;
  std::string outcome;  // "hit", "compiled"; "" = not yet
  Status status;
};

// What is wanted of the graphs that one line or the command line names.
struct Terms {
  std::vector<std::string> targets;
  uint32_t numerics = 0;
  std::string constraints;
};

// Reads graphs and manifests into wishes. What cannot be read becomes a wish that has failed: the others are
// made all the same.
class Reader {
 public:
  explicit Reader(Terms terms) : terms_(std::move(terms)) {}

  // A graph, or a folder: its manifests if it has any, else its graphs.
  void operand(const std::string& path) {
    std::error_code error;
    std::vector<std::string> manifests, graphs;
    if (!std::filesystem::is_directory(path, error)) return add_graph(path, terms_);
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() == ".manifest") manifests.push_back(it->path());
      if (it->path().extension() == ".qg") graphs.push_back(it->path());
    }
    if (error) return failed(path, "", Status(ErrorCode::IO, path + ": " + error.message()));
    if (manifests.empty() && graphs.empty())
      return failed(
          path, "",
          Status(ErrorCode::NOT_FOUND, path + ": holds neither manifests nor graphs (.manifest, .qg)"));
    std::sort(manifests.begin(), manifests.end());
    std::sort(graphs.begin(), graphs.end());
    for (const std::string& name : manifests) manifest(name);
    if (manifests.empty())
      for (const std::string& name : graphs) add_graph(name, terms_);
  }

  void manifest(const std::string& path) {
    Result<std::string> text = read_file(path);
    if (!text) return failed(path, "", text.status());
    std::istringstream lines(*text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      const std::string where = path + ":" + std::to_string(number);
      Result<std::vector<std::string>> words = split_words(line);
      if (!words) {
        failed(path, "", words.status().with_context(where));
        continue;
      }
      if (words->empty()) continue;
      // What the command line says holds where the line says nothing.
      Terms own = terms_;
      bool named = false;
      for (size_t i = 1; i < words->size(); ++i) own = with_word(std::move(own), (*words)[i], named);
      add_graph(std::filesystem::path(path).parent_path() / (*words)[0], own, where);
    }
  }

  std::vector<Wish> take() { return std::move(wishes_); }

 private:
  // The first target of a line takes the place of the command line's.
  static Terms with_word(Terms terms, const std::string& word, bool& named) {
    constexpr std::string_view kConstraints = "constraints=";
    if (word == "tf32") {
      terms.numerics |= kAllowTf32;
    } else if (word.starts_with(kConstraints)) {
      terms.constraints = word.substr(kConstraints.size());
    } else {
      if (!std::exchange(named, true)) terms.targets.clear();
      terms.targets.push_back(word);
    }
    return terms;
  }

  void failed(const std::string& file, const std::string& target, Status status) {
    Wish wish;
    wish.file = file;
    wish.target = target;
    wish.status = std::move(status);
    wishes_.push_back(std::move(wish));
  }

  void add_graph(const std::string& file, const Terms& terms, const std::string& where = "") {
    const auto refuse = [&](const std::string& target, const Status& status) {
      failed(file, target, where.empty() ? status : status.with_context(where));
    };
    if (terms.targets.empty())
      return refuse("",
                    Status(ErrorCode::INVALID_ARGUMENT, "no target here, nor --target on the command line"));
    Result<GraphFile> graph = read_graph(file);
    if (!graph) return refuse("", graph.status());
    for (const std::string& target : terms.targets) {
      if (Result<const Target*> known = find_target(target); !known) {
        refuse(target, known.status());
        continue;
      }
      Wish wish;
      wish.file = file;
      wish.target = target;
      wish.text = graph->text;
      wish.numerics = terms.numerics;
      wish.constraints = terms.constraints;
      // Manifests of many processes name the same graphs.
      if (known_.emplace(wish.text, wish.target, wish.numerics, wish.constraints).second)
        wishes_.push_back(std::move(wish));
    }
  }

  const Terms terms_;
  std::vector<Wish> wishes_;
  std::set<std::tuple<std::string, std::string, uint32_t, std::string>> known_;
};

Result<std::vector<Wish>> read_wishes(const Arguments& arguments, const wire::Get& how) {
  if (arguments.operands().empty() && !arguments.has("manifest"))
    return Status(ErrorCode::INVALID_ARGUMENT,
                  "name graph files or folders, or a list of them with --manifest; see: quern help prewarm");
  Terms terms{arguments.values("target"), how.numerics, how.constraints};
  for (const std::string& target : terms.targets)
    if (Result<const Target*> known = find_target(target); !known) return known.status();
  const auto has_targets = [](const std::string& path) { return std::filesystem::is_directory(path); };
  if (terms.targets.empty() &&
      !std::all_of(arguments.operands().begin(), arguments.operands().end(), has_targets)) {
    Result<std::string> target = choose_target(arguments);
    if (!target) return target.status();
    terms.targets.push_back(*target);
  }
  Reader reader(std::move(terms));
  for (const std::string& manifest : arguments.values("manifest")) reader.manifest(manifest);
  for (const std::string& path : arguments.operands()) reader.operand(path);
  return reader.take();
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
  std::vector<Wish*> asked;
  for (; next < wishes.size() && pending.size() + gets.size() < kWindow; ++next) {
    if (!wishes[next].status.ok()) continue;  // it could not be read
    wire::Get get = how;
    get.numerics = wishes[next].numerics;
    get.constraints = wishes[next].constraints;
    asked.push_back(&wishes[next]);
    get.graph = wishes[next].text;
    get.target = wishes[next].target;
    gets.push_back(std::move(get));
  }
  const std::vector<Result<Answer>> answers = session.client->exchange_all(gets, session.deadline);
  for (size_t i = 0; i < answers.size(); ++i)
    if (!settle_or_queue(*asked[i], answers[i])) pending.push_back(asked[i]);
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

std::atomic<bool> interrupted{false};

// Nothing of what this command has queued is made any more, but for what runs already.
void drop_queued(Session& session, std::vector<Wish>& wishes, size_t next,
                 const std::vector<Wish*>& pending) {
  wire::Remove request;
  request.queued = 1;
  for (const Wish* wish : pending) request.keys.push_back(wish->key);
  if (!pending.empty()) [[maybe_unused]]
    const auto dropped = session.client->ask<wire::Removed>(
        request, std::chrono::steady_clock::now() + std::chrono::seconds(5));
  const Status status(ErrorCode::CANCELLED, "interrupted before it was made");
  for (Wish* wish : pending) wish->status = status;
  for (; next < wishes.size(); ++next)
    if (wishes[next].status.ok()) wishes[next].status = status;
}

// Background jobs run behind everything that somebody waits for, so nobody waits here: their states are
// looked at.
void settle_all(const wire::Get& how, Session& session, std::vector<Wish>& wishes, bool show_progress) {
  constexpr auto kShortest = std::chrono::milliseconds(5), kLongest = std::chrono::milliseconds(64);
  Progress progress("prewarming", wishes.size(), show_progress);
  std::vector<Wish*> pending;
  size_t next = 0;
  auto pause = kShortest;
  while (!interrupted && (next < wishes.size() || !pending.empty())) {
    const size_t before = next - pending.size();
    ask_for_more(how, session, wishes, next, pending);
    look_after(session, pending);
    if (!pending.empty()) progress.note(pending[0]->file + " for " + pending[0]->target);
    progress.update(next - pending.size());
    pause = next - pending.size() > before ? kShortest : std::min(pause * 2, kLongest);
    if (!pending.empty()) std::this_thread::sleep_for(pause);
  }
  if (interrupted) drop_queued(session, wishes, next, pending);
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
      std::fprintf(
          stderr, "quern: %s\n",
          visible(wish.target.empty() ? wish.status.message()
                                      : wish.file + " for " + wish.target + ": " + wish.status.message())
              .c_str());
  }
  if (!arguments.json()) {
    Table table({"FILE", "TARGET", "TIER", "RESULT"});
    for (const Wish& wish : wishes)
      table.add({wish.file, wish.target.empty() ? "-" : wish.target,
                 wish.status.ok() ? tier_name(wish.tier) : "-",
                 wish.status.ok() ? wish.outcome : std::string("failed: ") + error_name(wish.status.code())});
    print_text(table.text() + "\n");
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
  Result<std::vector<Wish>> wishes = read_wishes(arguments, *how);
  if (!wishes) return fail(arguments, wishes.status());
  for (Wish& wish : *wishes) wish.wanted = *wanted;
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  // Nobody waits for a prewarm as for a request: unless a time is named it may take as long as it takes.
  if (!arguments.has("timeout"))
    session->deadline = std::chrono::steady_clock::now() + std::chrono::hours(24);
  const auto start = std::chrono::steady_clock::now();
  struct sigaction on_interrupt = {};
  on_interrupt.sa_handler = [](int) { interrupted = true; };
  on_interrupt.sa_flags = static_cast<int>(SA_RESETHAND);  // a second one ends the program at once
  sigaction(SIGINT, &on_interrupt, nullptr);
  settle_all(*how, *session, *wishes, !arguments.json());
  return report(arguments, *wishes,
                static_cast<uint64_t>((std::chrono::steady_clock::now() - start).count()));
}

}  // namespace

const Command Commands::kPrewarmCommand = {
    "prewarm",
    "[FILE | FOLDER]...",
    0,
    1000000,
    "put the plans of many graphs into the cache",
    "Has the daemon make the plans of all graphs for all targets, in the background and side by side,\n"
    "and waits until they are stored. No GPU is needed. Of a folder it takes the manifests (*.manifest), "
    "else\n"
    "the graphs (*.qg). A manifest has lines of \"FILE TARGET...\", with FILE relative to the manifest; "
    "words with\n"
    "blanks stand in double quotes, and \"#\" starts a comment. The words tf32 and \"constraints=...\" mean "
    "what the\n"
    "options do. QUERN_RECORD makes programs write manifests (quern help environment). With --wait-tier it "
    "also\n"
    "waits for the searches for better plans; if a search finds none, the plan stays and is counted as below "
    "the\n"
    "tier. A file that is no graph does not keep the others from being made. An interrupt drops what is "
    "queued. The exit\n"
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
