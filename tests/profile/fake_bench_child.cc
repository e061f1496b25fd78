// A bench's process whose programs do what their code says: "hang", "crash", "fault", "hang_later", else how
// long they take. Its device is named after its process.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "core/profile/bench_process.h"
#include "tests/profile/fake_bench.h"

namespace {

using namespace quern;

class ChildBench : public FakeBench {
 public:
  explicit ChildBench(bool tf32) : device_("process " + std::to_string(getpid()) + (tf32 ? ", tf32" : "")) {}
  const std::string& device() const override { return device_; }
  Result<Check> check(uint32_t plan) override {
    const std::string& code = loaded.at(plan);
    if (code == "hang") pause();
    if (code == "crash") raise(SIGSEGV);
    if (code == "fault") return Status(ErrorCode::WORKER, "it faulted: CUDA_ERROR_ILLEGAL_ADDRESS");
    if (code == "refused") return Status(ErrorCode::CUDA, "too many registers");
    return FakeBench::check(plan);
  }
  Result<std::vector<Time>> time(std::span<const uint32_t> plans, int rounds) override {
    for (const uint32_t plan : plans) {
      const std::string& code = loaded.at(plan);
      if (code == "hang_later") pause();
      programs[code].us = std::max(1.0, std::atof(code.c_str()));
    }
    return FakeBench::time(plans, rounds);
  }

 private:
  const std::string device_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  return serve_bench(
      0, [&](const Graph& graph, const DeviceBenchOptions& options) -> Result<std::unique_ptr<Bench>> {
        if (graph.name != "test") return Status(ErrorCode::INTERNAL, "another graph");
        // "once FILE": the GPU is gone when the process starts again.
        if (how == "once" && access(argv[2], F_OK) == 0)
          return Status(ErrorCode::NO_DEVICE, "it fell off the bus");
        if (how == "once") fclose(fopen(argv[2], "w"));
        if (how == "none") return Status(ErrorCode::NO_DEVICE, "there is no GPU 0");
        return std::unique_ptr<Bench>(std::make_unique<ChildBench>(options.tf32));
      });
}
