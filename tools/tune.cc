// quern tune: has the programs of plans measured on a GPU now, with a budget of its own.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tools/constraints.h"
#include "tools/progress.h"
#include "tools/timings.h"

namespace quern {

namespace {

constexpr uint64_t kMostBudgetMs = 24 * 3'600'000;

struct Wish {
  std::string name;  // file, or the first digits of its key
  Hash128 key;
  Status status;
  wire::TuneReply reply;
};

// The key of a graph file: its plan is made if there is none.
Result<Hash128> key_of_file(const Arguments& arguments, Session& session, const std::string& path) {
  Result<GraphFile> file = read_graph(path);
  if (!file) return file.status();
  Result<std::string> target = choose_target(arguments);
  if (!target) return target.status();
  Result<std::string> constraints = constraints_of(arguments);
  if (!constraints) return constraints.status();
  wire::Get get;
  get.graph = std::move(file->text);
  get.target = *target;
  get.numerics = numerics_of(arguments);
  get.constraints = *constraints;
  get.timeout_ms = session.milliseconds_left();
  Result<wire::PlanReply> reply = session.ask<wire::PlanReply>(get);
  if (!reply) return reply.status();
  if (reply->unstored) return Status(ErrorCode::IO, path + ": " + reply->warning);
  return reply->key;
}

Result<std::vector<Wish>> read_wishes(const Arguments& arguments, Session& session) {
  if (arguments.operands().empty() == !arguments.has("all"))
    return Status(ErrorCode::INVALID_ARGUMENT, "name graph files or keys, or --all; see: quern help tune");
  std::vector<Wish> wishes;
  for (const std::string& operand : arguments.operands()) {
    const bool is_file = std::filesystem::exists(operand) ||
                         operand.find_first_not_of("0123456789abcdef") != std::string::npos;
    Result<Hash128> key = is_file ? key_of_file(arguments, session, operand) : find_key(session, operand);
    if (!key) return key.status();
    const std::string name =
        is_file ? std::filesystem::path(operand).stem().string() : to_hex(*key).substr(0, 8);
    wishes.push_back({name, *key, {}, {}});
  }
  if (!arguments.has("all")) return wishes;
  for (wire::List request;;) {
    Result<wire::ListReply> page = session.ask<wire::ListReply>(request);
    if (!page) return page.status();
    for (const wire::ListRow& row : page->rows) {
      request.after = row.key;
      wishes.push_back({to_hex(row.key).substr(0, 8), row.key, {}, {}});
    }
    if (!page->more || page->rows.empty()) return wishes;
  }
}

// How many plans can be measured at a time: one a GPU.
Result<size_t> lanes(const Arguments& arguments, Session& session) {
  Result<wire::StatsReply> stats = session.ask<wire::StatsReply>(wire::Stats{});
  if (!stats) return stats.status();
  size_t gpus = 0;
  for (const wire::Fact& fact : stats->facts)
    gpus += fact.name.rfind("gpu ", 0) == 0 && fact.text.rfind("none", 0) != 0;
  return arguments.has("device") ? 1 : std::max<size_t>(gpus, 1);
}

std::string us_text(uint64_t ps) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(ps) / 1e6);
  return ps ? text : "";
}

// One bar for all: the wish that was heard of last.
class Bar {
 public:
  Bar(size_t total, bool wanted) : total_(total), wanted_(wanted) {}

  void begin(size_t number, const Wish& wish) { show(number, wish, {}); }
  void show(size_t number, const Wish& wish, const wire::Progress& now) {
    const std::lock_guard lock(mutex_);
    const std::string what =
        wish.name +
        (total_ > 1 ? " (" + std::to_string(number + 1) + " of " + std::to_string(total_) + ")" : "");
    if (!progress_ || what != what_) progress_.emplace(what_ = what, now.total, wanted_);
    progress_->note(now.total == 0
                        ? "searching"
                        : (now.best_ps ? "best " + us_text(now.best_ps) + " us" : "") +
                              (now.baseline_ps ? ", baseline " + us_text(now.baseline_ps) + " us" : ""));
    progress_->update(now.done, now.total);
  }

 private:
  const size_t total_;
  const bool wanted_;
  std::mutex mutex_;
  std::string what_;
  std::optional<Progress> progress_;
};

void tune_all(Session& session, wire::Tune how, size_t lanes, std::vector<Wish>& wishes, bool show) {
  Bar bar(wishes.size(), show);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t number; (number = next++) < wishes.size();) {
      Wish& wish = wishes[number];
      wire::Tune tune = how;
      tune.key = wish.key;
      tune.timeout_ms = session.milliseconds_left();
      bar.begin(number, wish);
      Result<wire::TuneReply> reply =
          session.ask<wire::TuneReply>(tune, [&](const wire::Progress& now) { bar.show(number, wish, now); });
      wish.status = reply.status();
      if (reply) wish.reply = std::move(*reply);
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(lanes, wishes.size()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

Json json_of(const Wish& wish) {
  if (!wish.status.ok())
    return {{"name", wish.name}, {"key", to_hex(wish.key)}, {"error", error_json(wish.status)}};
  const wire::TuneReply& reply = wish.reply;
  return {{"name", wish.name},
          {"key", to_hex(wish.key)},
          {"tier", tier_name(static_cast<Tier>(reply.tier))},
          {"generation", reply.generation},
          {"device", reply.device},
          {"baseline_us", static_cast<double>(reply.baseline_ps) / 1e6},
          {"best_us", static_cast<double>(reply.best_ps) / 1e6},
          {"timed", reply.timed},
          {"refused", reply.refused},
          {"reason", reply.reason}};
}

int report(const Arguments& arguments, const std::vector<Wish>& wishes) {
  Status first;
  Json rows = Json::array();
  Table table({"GRAPH", ">BASELINE us", ">BEST us", ">SPEEDUP", ">TIMED", ">REFUSED", "WHY"});
  for (const Wish& wish : wishes) {
    rows.push_back(json_of(wish));
    const wire::TuneReply& reply = wish.reply;
    if (!wish.status.ok()) {
      if (first.ok()) first = wish.status;
      if (!arguments.json())
        std::fprintf(stderr, "quern: %s: %s\n", wish.name.c_str(), wish.status.message().c_str());
      continue;
    }
    char speedup[32] = "";
    if (reply.best_ps && reply.baseline_ps)
      std::snprintf(speedup, sizeof speedup, "%.2f",
                    static_cast<double>(reply.baseline_ps) / static_cast<double>(reply.best_ps));
    table.add({wish.name, us_text(reply.baseline_ps), us_text(reply.best_ps), speedup,
               std::to_string(reply.timed), std::to_string(reply.refused), reply.reason});
  }
  if (wishes.empty() && !arguments.json())
    std::fprintf(stderr, "quern: there is no plan in the cache to measure\n");
  if (arguments.json())
    print_json({{"plans", rows}});
  else if (std::any_of(wishes.begin(), wishes.end(), [](const Wish& wish) { return wish.status.ok(); }))
    print_text(table.text());
  return exit_code(first);
}

int run_tune(const Arguments& arguments) {
  Result<uint64_t> budget =
      arguments.has("budget") ? arguments.duration_ms("budget", kMostBudgetMs) : uint64_t{0};
  if (!budget) return fail(arguments, budget.status());
  Result<int64_t> device = arguments.integer("device", -1, 0, 63);
  if (!device) return fail(arguments, device.status());
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  // It takes what it takes, unless a time is named.
  if (!arguments.has("timeout"))
    session->deadline = std::chrono::steady_clock::now() + std::chrono::hours(24 * 7);
  Result<std::vector<Wish>> wishes = read_wishes(arguments, *session);
  if (!wishes) return fail(arguments, wishes.status());
  Result<size_t> at_once = lanes(arguments, *session);
  if (!at_once) return fail(arguments, at_once.status());
  wire::Tune how;
  how.budget_ms = *budget;
  how.gpu = static_cast<uint32_t>(*device + 1);
  how.progress = 1;
  tune_all(*session, how, *at_once, *wishes, !arguments.json());
  return report(arguments, *wishes);
}

}  // namespace

const Command Commands::kTuneCommand = {
    "tune",
    "[FILE|KEY]...",
    0,
    1000000,
    "measure the programs of plans on a GPU, and keep the best",
    "Has the daemon measure the programs of the plans of these graphs (FILE), or of stored plans (KEY, or\n"
    "--all), on a GPU of their target, even while other programs use it, and publish the fastest correct "
    "one. What is\n"
    "not in the cache is made first, and a search that has not ended is continued with half of\n"
    "the budget. Plans that were made on a machine without a GPU need no compiler here. With several GPUs\n"
    "it measures as many plans side by side. The exit code is that of the first plan that failed.\n",
    true,
    with_constraints({{"all", 'a', nullptr, "all plans in the cache"},
                      {"budget", 'b', "TIME", "of each plan: 90s, 10m, 1h (the daemon's tune-seconds)"},
                      {"device", 'd', "N", "on this GPU only, counted as the CUDA driver does"},
                      {"target", 't', "TARGET", "of the graphs, such as sm_90a (that of the first GPU)"},
                      {"tf32", 0, nullptr, "as in quern get"}}),
    run_tune,
};

}  // namespace quern
