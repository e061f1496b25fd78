#include "core/profile/bench_process.h"

#include <map>
#include <optional>

#include "core/base/bytes.h"
#include "core/graph/text.h"
#include "core/profile/bench_call.h"
#include "core/profile/child.h"
#include "core/profile/reference_program.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

class BenchProcess : public Bench {
 public:
  BenchProcess(const Graph& graph, const BenchProcessOptions& options) : options_(options) {
    ByteWriter out;
    out.put(BenchCall::open);
    out.string(print_graph(graph));
    DeviceBenchOptions bench = options.bench;
    if (options.compiler && options.target)
      if (const auto reference = make_reference(graph, *options.target, *options.compiler))
        bench.reference = encode_reference(*reference);
    encode(bench, out);
    opening_ = out.take();
  }

  Status start() {
    auto child = Child::spawn(options_.command);
    if (!child) return child.status();
    child_ = std::move(*child);
    known_.clear();
    auto name = answer(opening_, options_.first);
    if (!name) {
      child_.reset();
      return name.status();
    }
    device_ = ByteReader(*name).string();
    return {};
  }

  const std::string& device() const override { return device_; }

  Result<uint32_t> add(const Plan& plan, bool tf32, const LaunchRange& timed) override {
    const uint32_t id = ++last_;
    plans_[id] = {encode_plan(plan), tf32, timed};
    const Result<uint32_t> there = known(id);
    if (there) return id;
    plans_.erase(id);
    return there.status();
  }

  void remove(uint32_t plan) override {
    if (const auto there = known_.find(plan); there != known_.end() && child_) {
      ByteWriter out;
      out.put(BenchCall::remove);
      out.put(there->second);
      (void)answer(out.view(), options_.least);  // a process that is gone has none of it
    }
    known_.erase(plan);
    plans_.erase(plan);
  }

  Result<Check> check(uint32_t plan) override {
    const Result<uint32_t> there = known(plan);
    if (!there) return there.status();
    ByteWriter out;
    out.put(BenchCall::check);
    out.put(*there);
    const auto answered = timed_answer(out.view(), longest_check_, 1);
    if (!answered) return answered.status();
    ByteReader in(*answered);
    Check check = decode_check(in);
    if (!in.ok()) return nonsense();
    return check;
  }

  Result<std::vector<Time>> time(std::span<const uint32_t> plans, int rounds) override {
    ByteWriter out;
    out.put(BenchCall::time);
    out.put(static_cast<uint32_t>(rounds));
    out.put(static_cast<uint32_t>(plans.size()));
    for (const uint32_t plan : plans) {
      const Result<uint32_t> there = known(plan);
      if (!there) return there.status();
      out.put(*there);
    }
    const auto answered = timed_answer(out.view(), longest_time_, static_cast<double>(plans.size()) * rounds);
    if (!answered) return answered.status();
    ByteReader in(*answered);
    std::vector<Time> times = decode_times(in);
    if (!in.ok() || times.size() != plans.size()) return nonsense();
    return times;
  }

  Result<double> disturbance() override {
    if (Status status = ensure(); !status.ok()) return status;
    ByteWriter out;
    out.put(BenchCall::disturbance);
    const auto answered = answer(out.view(), options_.first);
    if (!answered) return answered.status();
    return ByteReader(*answered).get<double>();
  }

 private:
  static Status nonsense() { return Status(ErrorCode::WORKER, "its process sent nonsense"); }

  // A process that runs. When there can be none any more, the GPU is gone for good.
  Status ensure() {
    if (child_) return {};
    Status status = start();
    if (status.ok()) return status;
    return Status(ErrorCode::NO_DEVICE, "the GPU cannot be used any more: " + status.message());
  }

  // The number of a plan in the process, which gets it when it is new there.
  Result<uint32_t> known(uint32_t plan) {
    if (Status status = ensure(); !status.ok()) return status;
    if (const auto found = known_.find(plan); found != known_.end()) return found->second;
    ByteWriter out;
    out.put(BenchCall::add);
    out.string(plans_.at(plan).bytes);
    out.put(plans_.at(plan).tf32);
    out.put(uint64_t{plans_.at(plan).timed.first});
    out.put(uint64_t{plans_.at(plan).timed.end});
    const auto answered = answer(out.view(), options_.first);
    if (!answered) return answered.status();
    return known_[plan] = ByteReader(*answered).get<uint32_t>();
  }

  // `longest` is that of a call of one unit that was answered, in seconds; 0: there was none.
  Result<std::string> timed_answer(std::string_view message, double& longest, double units) {
    const auto start = Clock::now();
    const std::chrono::duration<double> expected(4 * longest * units);
    const auto limit = longest == 0
                           ? options_.first
                           : options_.least + std::chrono::duration_cast<std::chrono::milliseconds>(expected);
    auto answered = answer(message, limit);
    if (answered)
      longest = std::max(longest, std::chrono::duration<double>(Clock::now() - start).count() / units);
    return answered;
  }

  Result<std::string> answer(std::string_view message, std::chrono::milliseconds limit) {
    auto answered = child_->call(message, Clock::now() + limit);
    Status status = answered.status();
    if (answered) {
      ByteReader in(*answered);
      const auto code = in.get<ErrorCode>();
      const std::string text(in.string());
      if (in.ok() && code == ErrorCode::OK) return std::string(in.raw(in.remaining()));
      status = in.ok() ? Status(code, text) : nonsense();
    }
    if (status.code() == ErrorCode::WORKER) child_.reset();  // of no use any more
    return status;
  }

  struct Added {
    std::string bytes;
    bool tf32 = false;
    LaunchRange timed;
  };

  const BenchProcessOptions options_;
  std::string opening_, device_;
  std::unique_ptr<Child> child_;
  std::map<uint32_t, Added> plans_;
  std::map<uint32_t, uint32_t> known_;  // their numbers in the process that runs now
  uint32_t last_ = 0;
  double longest_check_ = 0, longest_time_ = 0;  // seconds
};

}  // namespace

Result<std::unique_ptr<Bench>> open_bench(const Graph& graph, const BenchProcessOptions& options) {
  auto bench = std::make_unique<BenchProcess>(graph, options);
  if (Status status = bench->start(); !status.ok()) return status;
  return std::unique_ptr<Bench>(std::move(bench));
}

}  // namespace quern
