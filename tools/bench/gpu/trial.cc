#include "tools/bench/gpu/trial.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <future>

#include "core/codegen/baseline.h"
#include "core/verify/hostile.h"
#include "core/verify/reference.h"
#include "tools/bench/gpu/need.h"

namespace quern {

namespace {

constexpr size_t kHotLaunches = 40;
constexpr double kFarBehind = 3;

size_t bytes_of(const TensorDesc& desc) { return static_cast<size_t>(desc.span()) * dtype_size(desc.dtype); }

}  // namespace

Trial::Trial(const Graph& graph, std::vector<Contestant>& contestants)
    : graph_(graph),
      contestants_(contestants),
      driver_(need(Driver::open())),
      device_(need(Device::open(driver_))) {
  const auto& descs = contestants_[0].plan.inputs;
  size_t workspace = 256;
  for (size_t i = 0; i < descs.size(); ++i) host_.push_back(random_buffer(descs[i], i + 1, 1.0));
  for (const Contestant& contestant : contestants_)
    workspace = std::max(workspace, static_cast<size_t>(contestant.plan.workspace_bytes));
  workspace_ = need(device_->allocate(workspace));
  need_driver(driver_->api().stream_create(&stream_, 1), "creating a stream");
  need_driver(driver_->api().event_create(&start_, 0), "creating an event");
  need_driver(driver_->api().event_create(&stop_, 0), "creating an event");
  sets_.push_back(make_buffers());
}

size_t Trial::input_bytes() const {
  size_t bytes = 0;
  for (const TensorDesc& desc : contestants_[0].plan.inputs) bytes += bytes_of(desc);
  return bytes;
}

void Trial::need_driver(int result, const char* what) const { need(driver_->check(result, what)); }

Trial::Buffers Trial::make_buffers() {
  Buffers out;
  for (const std::string& bytes : host_) {
    out.memory.push_back(need(device_->allocate(std::max<size_t>(bytes.size(), 16))));
    need(out.memory.back().upload(bytes.data(), bytes.size()));
    out.inputs.push_back(out.memory.back().address());
  }
  for (const TensorDesc& desc : contestants_[0].plan.outputs) {
    out.memory.push_back(need(device_->allocate(std::max<size_t>(bytes_of(desc), 16))));
    out.outputs.push_back(out.memory.back().address());
  }
  return out;
}

std::vector<std::string> Trial::run_once(const Plan& plan) {
  if (plan.workspace_bytes > workspace_.size())
    workspace_ = need(device_->allocate(static_cast<size_t>(plan.workspace_bytes)));
  Launcher launcher(driver_, std::make_shared<const Plan>(plan));
  const Buffers& set = sets_[0];
  for (size_t o = 0; o < plan.outputs.size(); ++o) need(set.memory[host_.size() + o].fill(0xff, stream_));
  need(workspace_.fill(0xff, stream_));
  need(launcher.launch({set.inputs, set.outputs, workspace_.address()}, stream_));
  need_driver(driver_->api().stream_synchronize(stream_), "running a candidate");
  std::vector<std::string> out;
  for (size_t o = 0; o < plan.outputs.size(); ++o) {
    out.emplace_back(bytes_of(plan.outputs[o]), '\0');
    need(set.memory[host_.size() + o].download(out.back().data(), out.back().size()));
  }
  return out;
}

// Into the first set.
void Trial::upload(const std::vector<std::string>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    need(sets_[0].memory[i].upload(inputs[i].data(), inputs[i].size()));
}

void Trial::check(bool hostile) {
  struct Case {
    const char* name;
    std::vector<std::string> inputs;
    std::array<std::future<std::vector<Expected>>, 2> expected;  // exact, in tf32: what contestants need
  };
  std::vector<Case> cases;
  cases.push_back({"random", host_, {}});
  if (hostile)
    for (const HostileClass& cls : hostile_classes())
      cases.push_back({cls.name, hostile_inputs(graph_, cls, 1), {}});
  for (Case& each : cases)
    for (const Contestant& contestant : contestants_) {
      const bool tf32 = computes_in_tf32(contestant.schedule);
      if (each.expected[tf32].valid()) continue;
      each.expected[tf32] = std::async(std::launch::async, [this, &each, tf32] {
        std::vector<RealTensor> inputs;
        for (const std::string& bytes : each.inputs)
          inputs.push_back(read_buffer(contestants_[0].plan.inputs[inputs.size()], bytes.data()));
        return expect_outputs(graph_, inputs, tf32);
      });
    }
  for (Case& each : cases) {
    upload(each.inputs);
    std::array<std::vector<Expected>, 2> expected;
    for (size_t tf32 = 0; tf32 < 2; ++tf32)
      if (each.expected[tf32].valid()) expected[tf32] = each.expected[tf32].get();
    for (Contestant& contestant : contestants_)
      compare_outputs(contestant, each.name, expected[computes_in_tf32(contestant.schedule)]);
  }
  upload(host_);
}

void Trial::compare_outputs(Contestant& contestant, const std::string& inputs,
                            const std::vector<Expected>& expected) {
  const std::vector<std::string> outputs = run_once(contestant.plan);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const TensorDesc& desc = contestant.plan.outputs[o];
    const Comparison result = compare(desc, read_buffer(desc, outputs[o].data()), expected[o]);
    if (inputs == "random") contestant.error = std::max(contestant.error, result.error);
    if (!result.acceptable)
      contestant.wrong +=
          (contestant.wrong.empty() ? "" : "; ") + inputs + " inputs, " + desc.name + " " + result.what;
  }
}

void Trial::check_baseline(Compiler& compiler, const Target& target) {
  const Emitted emitted = need(emit_baseline(graph_, target));
  Plan plan = emitted.plan;
  plan.cubin = need(compiler.compile({emitted.source, target.name, {}})).cubin;
  std::vector<RealTensor> wanted;
  for (const std::string& bytes : run_once(plan))
    wanted.push_back(read_buffer(plan.outputs[wanted.size()], bytes.data()));
  for (Contestant& contestant : contestants_) {
    const std::vector<std::string> outputs = run_once(contestant.plan);
    for (size_t o = 0; o < outputs.size(); ++o) {
      const RealTensor actual = read_buffer(contestant.plan.outputs[o], outputs[o].data());
      double error = 0, size = 0;
      for (size_t e = 0; e < actual.size(); ++e) {
        error += (actual[e] - wanted[o][e]) * (actual[e] - wanted[o][e]);
        size += wanted[o][e] * wanted[o][e];
      }
      contestant.error = std::max(contestant.error, std::sqrt(error / size));
      if (!(contestant.error < 5e-3)) contestant.wrong = "far from the baseline";
    }
  }
}

void Trial::time(int rounds) {
  struct Timed {
    std::unique_ptr<Launcher> launcher;
    void *hot = nullptr, *cold = nullptr;
  };
  const size_t copies = std::clamp<size_t>(4 * device_->info().l2_bytes / input_bytes() + 2, 4, 1000);
  while (sets_.size() < copies) sets_.push_back(make_buffers());
  std::vector<Timed> timed(contestants_.size());
  for (size_t i = 0; i < contestants_.size(); ++i) {
    timed[i].launcher =
        std::make_unique<Launcher>(driver_, std::make_shared<const Plan>(contestants_[i].plan));
    need(timed[i].launcher->load(stream_));
    timed[i].hot = capture(*timed[i].launcher, kHotLaunches, 1);
    timed[i].cold = capture(*timed[i].launcher, copies, copies);
  }
  double fastest = INFINITY;
  for (int round = -1; round < rounds; ++round)
    for (size_t i = 0; i < contestants_.size(); ++i) {
      // Far behind after its first rounds, it need not be known better.
      if (round > 0 && contestants_[i].cold[0] > kFarBehind * fastest) continue;
      const double hot = run_graph(timed[i].hot) / kHotLaunches,
                   cold = run_graph(timed[i].cold) / static_cast<double>(copies);
      if (round < 0) continue;
      fastest = std::min(fastest, cold);
      contestants_[i].hot.push_back(hot);
      contestants_[i].cold.push_back(cold);
    }
}

void* Trial::capture(Launcher& launcher, size_t launches, size_t sets) {
  void *graph = nullptr, *executable = nullptr;
  need_driver(driver_->api().capture_begin(stream_, 0), "beginning a capture");
  for (size_t i = 0; i < launches; ++i) {
    const Buffers& set = sets_[i % sets];
    need(launcher.launch({set.inputs, set.outputs, workspace_.address()}, stream_));
  }
  need_driver(driver_->api().capture_end(stream_, &graph), "ending a capture");
  need_driver(driver_->api().graph_instantiate(&executable, graph, 0), "instantiating a graph");
  driver_->api().graph_destroy(graph);
  return executable;
}

// Microseconds.
double Trial::run_graph(void* executable) {
  need_driver(driver_->api().event_record(start_, stream_), "recording an event");
  need_driver(driver_->api().graph_launch(executable, stream_), "launching a graph");
  need_driver(driver_->api().event_record(stop_, stream_), "recording an event");
  need_driver(driver_->api().stream_synchronize(stream_), "running a graph");
  float ms = 0;
  need_driver(driver_->api().event_elapsed(&ms, start_, stop_), "reading an event");
  return 1e3 * static_cast<double>(ms);
}

}  // namespace quern
