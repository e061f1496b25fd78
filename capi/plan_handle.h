// What is behind a quern_plan: a plan, where it came from, and its launcher. Never changes once made; counts
// its references.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "capi/quern.h"
#include "capi/wire/messages.h"
#include "core/base/plan.h"
#include "core/jit/launcher.h"

struct quern_plan {
 public:
  // CORRUPT when the reply's plan cannot be decoded.
  static quern::Result<class PlanRef> make(quern::wire::PlanReply reply);

  const quern::Plan& plan() const { return *plan_; }
  const quern::wire::PlanReply& reply() const { return reply_; }  // without the encoded plan
  const std::string& key_text() const { return key_text_; }
  const std::vector<quern_launch_arg>& args(size_t launch) const { return args_[launch]; }

  // The launcher of this process: NO_DEVICE without a driver, FORKED in a child of the process that made it.
  quern::Result<quern::Launcher*> launcher();

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release();

 private:
  quern_plan(quern::wire::PlanReply reply, quern::Plan plan);
  ~quern_plan() = default;

  std::atomic<uint64_t> references_{0};
  quern::wire::PlanReply reply_;
  const std::shared_ptr<const quern::Plan> plan_;
  const std::string key_text_;
  std::vector<std::vector<quern_launch_arg>> args_;
  const uint64_t made_in_;  // fork_count()
  std::mutex mutex_;        // guards the making of launcher_
  std::atomic<quern::Launcher*> launcher_{nullptr};
};

// Holds one reference to a quern_plan.
class PlanRef {
 public:
  PlanRef() = default;
  explicit PlanRef(quern_plan* plan) : plan_(plan) {
    if (plan_) plan_->retain();
  }
  PlanRef(const PlanRef& other) : PlanRef(other.plan_) {}
  PlanRef(PlanRef&& other) noexcept : plan_(std::exchange(other.plan_, nullptr)) {}
  PlanRef& operator=(PlanRef other) noexcept {
    std::swap(plan_, other.plan_);
    return *this;
  }
  ~PlanRef() {
    if (plan_) plan_->release();
  }

  quern_plan* get() const { return plan_; }
  quern_plan* operator->() const { return plan_; }
  explicit operator bool() const { return plan_ != nullptr; }
  // Hands the reference over to the caller.
  quern_plan* take() { return std::exchange(plan_, nullptr); }

 private:
  quern_plan* plan_ = nullptr;
};

namespace quern {
// The CUDA driver of this process, loaded when it is first asked for. NO_DEVICE.
Result<std::shared_ptr<const Driver>> process_driver();
}  // namespace quern
