// The child's side of bench_process.h.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/graph/text.h"
#include "core/profile/bench_call.h"
#include "core/profile/bench_process.h"
#include "core/profile/child.h"

namespace quern {

namespace {

// The last word when a program faulted: this process then has no GPU any more.
class BenchServer {
 public:
  explicit BenchServer(const OpenBench& open) : open_(open) {}

  // The answer to a message.
  std::string answer(std::string_view message) {
    ByteReader in(message);
    ByteWriter out;
    const Status status = serve(in, out);
    over_ = status.code() == ErrorCode::WORKER;
    ByteWriter whole;
    whole.put(status.code());
    whole.string(status.message());
    if (status.ok()) whole.raw(out.view());
    return whole.take();
  }
  bool over() const { return over_; }

 private:
  Status serve(ByteReader& in, ByteWriter& out) {
    const auto call = in.get<BenchCall>();
    if (call == BenchCall::open) return open(in, out);
    if (!bench_) return Status(ErrorCode::INTERNAL, "no bench is open");
    switch (call) {
      case BenchCall::add:
        return add(in, out);
      case BenchCall::remove:
        bench_->remove(in.get<uint32_t>());
        return {};
      case BenchCall::check: {
        const auto check = bench_->check(in.get<uint32_t>());
        if (check) encode(*check, out);
        return check.status();
      }
      case BenchCall::time: {
        const int rounds = static_cast<int>(in.get<uint32_t>());
        std::vector<uint32_t> plans;
        for (uint32_t left = in.get<uint32_t>(); left > 0 && in.ok(); --left)
          plans.push_back(in.get<uint32_t>());
        const auto times = bench_->time(plans, rounds);
        if (times) encode(*times, out);
        return times.status();
      }
      case BenchCall::disturbance: {
        const auto share = bench_->disturbance();
        if (share) out.put(*share);
        return share.status();
      }
      default:
        return Status(ErrorCode::INTERNAL, "no such call");
    }
  }

  Status open(ByteReader& in, ByteWriter& out) {
    const auto graph = parse_graph(std::string(in.string()));
    if (!graph) return graph.status();
    auto bench = open_(*graph, decode_options(in));
    if (!bench) return bench.status();
    bench_ = std::move(*bench);
    out.string(bench_->device());
    return {};
  }

  Status add(ByteReader& in, ByteWriter& out) {
    const auto plan = decode_plan(in.string());
    if (!plan) return plan.status();
    const bool tf32 = in.get<bool>();
    LaunchRange timed;
    timed.first = in.get<uint64_t>();
    timed.end = in.get<uint64_t>();
    const auto id = bench_->add(*plan, tf32, timed);
    if (id) out.put(*id);
    return id.status();
  }

  const OpenBench& open_;
  std::unique_ptr<Bench> bench_;
  bool over_ = false;
};

}  // namespace

int serve_bench(int socket, const OpenBench& open) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Of the parent's limits that on processor time is for its own jobs: here the parent's clock ends what
  // hangs.
  rlimit limit;
  if (getrlimit(RLIMIT_CPU, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_CPU, &limit);
  }
  limit = {0, 0};
  setrlimit(RLIMIT_CORE, &limit);
  BenchServer server(open);
  for (std::string message; receive_message(socket, message);) {
    if (!send_message(socket, server.answer(message))) return 1;
    // Its context is lost with the program that faulted, and what holds it would wait for it.
    if (server.over()) _exit(1);
  }
  return 0;
}

}  // namespace quern
