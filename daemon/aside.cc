#include "daemon/aside.h"

namespace quern {

void Aside::ask(const Caller& caller, Task work, Task done) {
  const void* interest = caller.interest.lock().get();
  if (!interest) return;
  leave(interest);
  const FairQueue<const void*>::Ticket ticket{caller.asker, next_order_++};
  jobs_[interest] = {std::move(work), std::move(done), caller.interest, ticket};
  queue_.push(ticket, interest);
  pump();
}

void Aside::leave(const void* interest) {
  const auto job = jobs_.extract(interest);
  if (job) queue_.erase(job.mapped().ticket);
}

void Aside::pump() {
  while (running_ < at_once_ && !queue_.empty())
    queue_.offer([this](const void* interest) { return start(interest); });
}

FairQueue<const void*>::Turn Aside::start(const void* interest) {
  auto job = std::make_shared<Job>(std::move(jobs_.extract(interest).mapped()));
  queue_.erase(job->ticket);
  ++running_;
  run_([job] { job->work(); },
       [this, job] {
         --running_;
         if (!job->interest.expired()) job->done();
         pump();
       });
  return FairQueue<const void*>::Turn::taken;
}

}  // namespace quern
