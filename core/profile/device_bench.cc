#include "core/profile/device_bench.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/profile/buffer_sets.h"
#include "core/profile/cases.h"
#include "core/profile/device_reference.h"
#include "core/profile/guarded.h"
#include "core/profile/idle.h"
#include "core/profile/timed_plan.h"

namespace quern {

namespace {

// What outputs and workspace hold before a check, in turn: what is never written is wrong at least once.
constexpr uint8_t kPoisons[] = {0xff, 0x5a};

// Of the memory that may be used: inputs of all cases when they take less, and of the rest what the reference
// may.
constexpr double kInputShare = 0.3, kReferenceShare = 0.6;

constexpr size_t kPieceBytes = 4 << 20;  // of inputs that are looked at, at once

std::vector<uint64_t> addresses(const std::vector<GuardedMemory>& of) {
  std::vector<uint64_t> out;
  for (const GuardedMemory& memory : of) out.push_back(memory.address());
  return out;
}

class DeviceBench : public Bench {
 public:
  DeviceBench(const Graph& graph, const DeviceBenchOptions& options)
      : graph_(graph), options_(options), inputs_(graph.input_descs()), outputs_(graph.output_descs()) {}

  Status open();
  const std::string& device() const override { return name_; }
  Result<uint32_t> add(const Plan& plan, bool tf32, const LaunchRange& timed) override;
  void remove(uint32_t plan) override;
  Result<Check> check(uint32_t plan) override;
  Result<std::vector<Time>> time(std::span<const uint32_t> plans, int rounds) override;
  Result<double> disturbance() override;

 private:
  struct Loaded {
    TimedPlan timed;
    bool tf32 = false;
  };

  // The inputs of a case on the GPU.
  struct InputSet {
    std::vector<GuardedMemory> buffers;
    size_t number = SIZE_MAX;
  };

  Status allocate_buffers();
  Status allocate(const std::vector<TensorDesc>& descs, std::vector<GuardedMemory>& buffers);
  Status open_reference();
  Status compute_reference(size_t number, bool tf32);
  Status take(uint64_t bytes);
  Result<GuardedMemory> guarded(uint64_t bytes);
  Result<InputSet*> put_inputs(size_t number);
  Status check_on(size_t number, Loaded& loaded, const GuardedMemory& workspace, Check& check);
  Status find_damage(const std::vector<GuardedMemory>& buffers, const std::vector<TensorDesc>& descs,
                     const char* kind, std::string& wrong) const;
  Status find_changed_inputs(const InputSet& set, std::string& wrong) const;
  Status judge(size_t number, const Loaded& loaded, Check& check);
  Result<Judged> judge_on_cpu(size_t number, const Loaded& loaded);

  Status prepare_timing(TimedPlan& timed);
  Result<double> jitter();
  // An error of the driver, and whether it is one that the context does not survive.
  Status failed(Status status) const;

  const Graph graph_;
  const DeviceBenchOptions options_;
  const std::vector<TensorDesc> inputs_, outputs_;
  std::shared_ptr<const Driver> driver_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<GpuMonitor> monitor_;
  std::string name_;
  uint64_t limit_ = 0, used_ = 0;  // bytes of device memory
  StreamClock clock_;
  std::vector<Case> cases_;
  // One of them.
  std::unique_ptr<DeviceReference> device_reference_;
  std::unique_ptr<CpuReference> cpu_reference_;
  // One for every case, or where memory is short one for all.
  std::vector<InputSet> input_sets_;
  std::vector<GuardedMemory> output_buffers_;
  HostMemory pieces_;  // of inputs that are looked at
  std::optional<BufferSets> sets_;
  std::map<uint32_t, Loaded> loaded_;
  uint32_t last_ = 0;
};

Status DeviceBench::open() {
  auto driver = Driver::open();
  if (!driver) return driver.status();
  driver_ = std::move(*driver);
  auto device = Device::open(driver_, options_.device);
  if (!device) return device.status();
  device_ = std::move(*device);
  monitor_ = std::make_unique<GpuMonitor>(*driver_, options_.device);
  name_ = device_text(*driver_, device_->info());
  const Result<uint64_t> free = device_->free_bytes();
  if (!free) return free.status();
  limit_ = static_cast<uint64_t>(static_cast<double>(*free) * options_.memory_share);
  auto pieces = HostMemory::allocate(driver_, kPieceBytes);
  if (!pieces) return pieces.status();
  pieces_ = std::move(*pieces);
  auto clock = StreamClock::create(driver_);
  if (!clock) return clock.status();
  clock_ = std::move(*clock);
  cases_ = make_cases(graph_, options_.threads);
  if (Status status = allocate_buffers(); !status.ok()) return status;
  return open_reference();
}

Status DeviceBench::allocate_buffers() {
  uint64_t bytes = 0;
  for (const TensorDesc& desc : inputs_) bytes += buffer_bytes(desc);
  const bool all = static_cast<double>(bytes * cases_.size()) < kInputShare * static_cast<double>(limit_);
  input_sets_.resize(all ? cases_.size() : 1);
  for (InputSet& set : input_sets_)
    if (Status status = allocate(inputs_, set.buffers); !status.ok()) return status;
  return allocate(outputs_, output_buffers_);
}

Status DeviceBench::allocate(const std::vector<TensorDesc>& descs, std::vector<GuardedMemory>& buffers) {
  for (const TensorDesc& desc : descs) {
    auto memory = guarded(buffer_bytes(desc));
    if (!memory) return memory.status();
    buffers.push_back(std::move(*memory));
  }
  return {};
}

Status DeviceBench::open_reference() {
  if (!options_.reference.empty()) {
    const auto program = decode_reference(options_.reference);
    if (!program) return program.status();
    const auto most = static_cast<uint64_t>(kReferenceShare * static_cast<double>(limit_ - used_));
    auto reference =
        DeviceReference::make(*device_, *program, outputs_, {cases_.size(), options_.tf32, most});
    if (!reference && reference.status().code() != ErrorCode::OUT_OF_MEMORY) return reference.status();
    if (reference) {
      device_reference_ = std::move(*reference);
      used_ += device_reference_->bytes();
    }
  }
  if (device_reference_ && device_reference_->keeps()) {
    for (size_t i = 0; i < cases_.size(); ++i)
      for (const bool tf32 : {false, true})
        if (tf32 <= options_.tf32)
          if (Status status = compute_reference(i, tf32); !status.ok()) return status;
  } else if (!device_reference_) {
    cpu_reference_ = std::make_unique<CpuReference>(
        graph_, cases_, CpuReference::Options{options_.reference_limit, options_.threads, options_.tf32});
  }
  return {};
}

Status DeviceBench::compute_reference(size_t number, bool tf32) {
  Result<InputSet*> set = put_inputs(number);
  if (!set) return set.status();
  return device_reference_->compute(number, tf32, cases_[number].special, addresses((*set)->buffers),
                                    clock_.stream());
}

// Of the memory that may be used.
Status DeviceBench::take(uint64_t bytes) {
  if (used_ + bytes > limit_)
    return Status(ErrorCode::OUT_OF_MEMORY, std::to_string(bytes) + " bytes more than the " +
                                                std::to_string(used_) + " in use are above the limit of " +
                                                std::to_string(limit_));
  used_ += bytes;
  return {};
}

Result<GuardedMemory> DeviceBench::guarded(uint64_t bytes) {
  if (Status status = take(bytes); !status.ok()) return status;
  return GuardedMemory::allocate(*device_, bytes);
}

Status DeviceBench::failed(Status status) const {
  if (status.code() != ErrorCode::CUDA || clock_.stream().synchronize().ok()) return status;
  return Status(ErrorCode::WORKER, "it faulted: " + status.message());
}

Result<uint32_t> DeviceBench::add(const Plan& plan, bool tf32, const LaunchRange& timed) {
  if (plan.inputs.size() != inputs_.size() || plan.outputs.size() != outputs_.size())
    return Status(ErrorCode::INVALID_ARGUMENT, "the plan is not of this graph");
  auto loaded = TimedPlan::load(driver_, std::make_shared<const Plan>(plan), timed, clock_);
  if (!loaded) return failed(loaded.status());
  loaded_.emplace(++last_, Loaded{std::move(*loaded), tf32});
  return last_;
}

void DeviceBench::remove(uint32_t plan) {
  const auto found = loaded_.find(plan);
  if (found == loaded_.end()) return;
  used_ -= found->second.timed.workspace_bytes();
  loaded_.erase(found);
}

// ---- checking ----

Result<Bench::Check> DeviceBench::check(uint32_t plan) {
  Loaded& loaded = loaded_.at(plan);
  const uint64_t before = used_;
  auto workspace = guarded(loaded.timed.plan().workspace_bytes);
  used_ = before;  // it is gone after the check
  if (!workspace) return failed(workspace.status());
  Check check;
  for (size_t i = 0; i < cases_.size() && check.wrong.empty(); ++i) {
    if (Status status = check_on(i, loaded, *workspace, check); !status.ok()) return failed(status);
    if (!check.wrong.empty()) check.wrong = cases_[i].name + " inputs: " + check.wrong;
    check.inputs += (i ? ", " : "") + cases_[i].name;
  }
  return check;
}

Result<DeviceBench::InputSet*> DeviceBench::put_inputs(size_t number) {
  InputSet& set = input_sets_[number % input_sets_.size()];
  if (set.number == number) return &set;
  set.number = SIZE_MAX;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (Status status = set.buffers[i].upload(cases_[number].inputs[i]); !status.ok()) return status;
  set.number = number;
  return &set;
}

Status DeviceBench::check_on(size_t number, Loaded& loaded, const GuardedMemory& workspace, Check& check) {
  const Result<InputSet*> inputs = put_inputs(number);
  Status status = inputs.status();
  if (status.ok() && device_reference_ && !device_reference_->keeps())
    status = compute_reference(number, loaded.tf32);
  if (!status.ok()) return status;
  InputSet& set = **inputs;
  const uint8_t poison = kPoisons[number % std::size(kPoisons)];
  for (const GuardedMemory& output : output_buffers_)
    if (status.ok()) status = output.fill(poison, clock_.stream().handle());
  if (status.ok()) status = workspace.fill(poison, clock_.stream().handle());
  if (status.ok())
    status = loaded.timed.launcher().launch(
        {addresses(set.buffers), addresses(output_buffers_), workspace.address()}, clock_.stream().handle());
  if (status.ok()) status = clock_.stream().synchronize();
  if (!status.ok()) return status;

  std::string& wrong = check.wrong;
  status = find_damage(output_buffers_, outputs_, "output ", wrong);
  if (status.ok()) status = find_damage(set.buffers, inputs_, "input ", wrong);
  if (status.ok()) {
    const Result<std::string> damage = workspace.damage();
    if (!damage) return damage.status();
    if (!damage->empty() && wrong.empty()) wrong = "the workspace: it wrote " + *damage;
  }
  // Whether a program writes its inputs does not depend on what they hold.
  if (status.ok() && number == 0) status = find_changed_inputs(set, wrong);
  if (!wrong.empty()) set.number = SIZE_MAX;
  if (status.ok() && wrong.empty()) status = judge(number, loaded, check);
  return status;
}

Status DeviceBench::find_damage(const std::vector<GuardedMemory>& buffers,
                                const std::vector<TensorDesc>& descs, const char* kind,
                                std::string& wrong) const {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Result<std::string> damage = buffers[i].damage();
    if (!damage) return damage.status();
    if (damage->empty()) continue;
    if (wrong.empty()) wrong = kind + descs[i].name + ": it wrote " + *damage;
    if (Status status = buffers[i].repair(); !status.ok()) return status;
  }
  return {};
}

Status DeviceBench::find_changed_inputs(const InputSet& set, std::string& wrong) const {
  for (size_t i = 0; i < inputs_.size() && wrong.empty(); ++i) {
    const Result<bool> same = set.buffers[i].holds(cases_[set.number].inputs[i], pieces_);
    if (!same) return same.status();
    if (!*same) wrong = "input " + inputs_[i].name + ": it was written";
  }
  return {};
}

Status DeviceBench::judge(size_t number, const Loaded& loaded, Check& check) {
  check.elements = 0;
  for (const TensorDesc& desc : outputs_) check.elements += static_cast<uint64_t>(desc.element_count());
  Result<Judged> judged =
      device_reference_
          ? device_reference_->judge(number, loaded.tf32, addresses(output_buffers_), clock_.stream())
          : judge_on_cpu(number, loaded);
  if (!judged) return judged.status();
  if (number == 0) check.error = judged->error;
  check.largest = std::max(check.largest, judged->largest);
  check.compared = number == 0 ? judged->compared : std::min(check.compared, judged->compared);
  check.wrong = judged->wrong;
  return {};
}

Result<Judged> DeviceBench::judge_on_cpu(size_t number, const Loaded& loaded) {
  std::vector<std::string> bytes;
  Judged judged;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    auto downloaded = output_buffers_[i].download();
    if (!downloaded) return downloaded.status();
    if (outputs_[i].dtype == DType::boolean &&
        std::any_of(downloaded->begin(), downloaded->end(), [](char byte) { return (byte & ~1) != 0; })) {
      judged.wrong = outputs_[i].name + " has a bool that is neither 0 nor 1";
      return judged;
    }
    bytes.push_back(std::move(*downloaded));
  }
  return cpu_reference_->judge(number, loaded.tf32, bytes);
}

// ---- timing ----

Result<std::vector<Bench::Time>> DeviceBench::time(std::span<const uint32_t> plans, int rounds) {
  for (const uint32_t plan : plans)
    if (Status status = prepare_timing(loaded_.at(plan).timed); !status.ok()) return failed(status);
  std::vector<Time> times(plans.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t turn = 0; turn < plans.size(); ++turn) {
      const size_t i = (turn + static_cast<size_t>(round)) % plans.size();  // none is always the first
      const TimedPlan& timed = loaded_.at(plans[i]).timed;
      const Result<double> cold = timed.cold(*sets_, clock_);
      if (!cold) return failed(cold.status());
      const Result<double> hot = timed.hot(clock_);
      if (!hot) return failed(hot.status());
      times[i].cold.push_back(*cold);
      times[i].hot.push_back(*hot);
    }
  return times;
}

Status DeviceBench::prepare_timing(TimedPlan& timed) {
  if (!sets_) {
    auto sets = BufferSets::make(*device_, inputs_, outputs_, cases_[0].inputs, limit_ - used_);
    if (!sets) return sets.status();
    used_ += sets->bytes();
    sets_ = std::move(*sets);
  }
  if (!timed.has_workspace()) {
    const uint64_t bytes = std::max<uint64_t>(timed.plan().workspace_bytes, 256);
    if (Status status = take(bytes); !status.ok()) return status;
    auto workspace = device_->allocate(bytes);
    if (!workspace) return workspace.status();
    timed.take_workspace(std::move(*workspace));
  }
  return timed.prepare(*sets_, clock_);
}

// A process that ended a moment ago is seen for a while, so it looks again before it says that others are
// there.
Result<double> DeviceBench::disturbance() {
  constexpr int kWindow = 250, kLooks = 8;  // milliseconds: NVML samples several times in one
  constexpr double kQuiet = 0.02;
  double least = 1;
  for (int look = 0; look < kLooks && least > kQuiet; ++look) {
    const double share = monitor_->use_by_others(kWindow).value_or(0);
    const Result<double> own = jitter();
    if (!own) return own.status();
    least = std::min(least, std::max(share, *own));
  }
  return least;
}

// Of the time that something simple takes, the share that others took.
Result<double> DeviceBench::jitter() {
  constexpr size_t kBytes = 64u << 20;  // filled in some 30 us
  constexpr int kFills = 24;
  auto memory = device_->allocate(kBytes);
  if (!memory) return memory.status();
  std::vector<double> times;
  for (int i = 0; i < kFills; ++i) {
    Status status = clock_.start();
    if (status.ok()) status = memory->fill(0, clock_.stream().handle());
    if (!status.ok()) return failed(status);
    const Result<double> us = clock_.stop();
    if (!us) return failed(us.status());
    if (i >= kFills / 4) times.push_back(*us);  // clocks have risen
  }
  // A single outlier is nobody's use.
  std::sort(times.begin(), times.end());
  times.pop_back();
  double sum = 0;
  for (const double us : times) sum += us;
  return 1 - times[times.size() / 4] * static_cast<double>(times.size()) / sum;
}

}  // namespace

std::string device_text(const Driver& driver, const DeviceInfo& device) {
  const std::string version = GpuMonitor(driver, device.ordinal).driver_version();
  return device.name + ", driver " + (version.empty() ? std::to_string(driver.version()) : version);
}

Result<std::unique_ptr<Bench>> open_device_bench(const Graph& graph, const DeviceBenchOptions& options) {
  auto bench = std::make_unique<DeviceBench>(graph, options);
  if (Status status = bench->open(); !status.ok()) return status;
  return std::unique_ptr<Bench>(std::move(bench));
}

}  // namespace quern
