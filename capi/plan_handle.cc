#include "capi/plan_handle.h"

#include "capi/fork.h"

namespace quern {

Result<std::shared_ptr<const Driver>> process_driver() {
  static std::mutex mutex;
  static std::shared_ptr<const Driver> driver;
  const std::lock_guard lock(mutex);
  // A failure is not remembered: the user may mend what was wrong.
  if (driver) return driver;
  Result<std::shared_ptr<const Driver>> opened = Driver::open();
  if (opened) driver = *opened;
  return opened;
}

}  // namespace quern

using quern::ErrorCode;
using quern::Launcher;
using quern::Result;
using quern::Status;

namespace {

std::vector<quern_launch_arg> public_args(const quern::Launch& launch) {
  std::vector<quern_launch_arg> args;
  for (const quern::LaunchArg& arg : launch.args)
    args.push_back({static_cast<int32_t>(arg.kind), 0, arg.value});
  return args;
}

}  // namespace

quern_plan::quern_plan(quern::wire::PlanReply reply, quern::Plan plan)
    : reply_(std::move(reply)),
      plan_(std::make_shared<const quern::Plan>(std::move(plan))),
      key_text_(quern::to_hex(reply_.key)),
      made_in_(quern::fork_count()) {
  for (const quern::Launch& launch : plan_->launches) args_.push_back(public_args(launch));
}

Result<PlanRef> quern_plan::make(quern::wire::PlanReply reply) {
  Result<quern::Plan> plan = quern::decode_plan(reply.plan);
  if (!plan) return plan.status().with_context("the daemon's plan for " + quern::to_hex(reply.key));
  reply.plan = std::string();
  return PlanRef(new quern_plan(std::move(reply), std::move(*plan)));
}

void quern_plan::release() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // In a forked child the modules are the parent's: the launcher is left as it is.
  if (made_in_ == quern::fork_count()) delete launcher_.load(std::memory_order_relaxed);
  delete this;
}

Result<Launcher*> quern_plan::launcher() {
  if (made_in_ != quern::fork_count())
    return Status(ErrorCode::FORKED,
                  "the plan was made before a fork; get it again in the child, from a new client");
  if (Launcher* launcher = launcher_.load(std::memory_order_acquire)) return launcher;
  const std::lock_guard lock(mutex_);
  if (Launcher* launcher = launcher_.load(std::memory_order_relaxed)) return launcher;
  Result<std::shared_ptr<const quern::Driver>> driver = quern::process_driver();
  if (!driver) return driver.status();
  Launcher* launcher = new Launcher(*driver, plan_);
  launcher_.store(launcher, std::memory_order_release);
  return launcher;
}
