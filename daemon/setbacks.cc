#include "daemon/setbacks.h"

#include <algorithm>

namespace quern {

namespace {

constexpr size_t kMaxFailures = 4096;

}  // namespace

void Setbacks::failed(const Hash128& key, const Status& status) {
  failures_[key] = status;
  failure_order_.push_back(key);
  while (failure_order_.size() > kMaxFailures) {
    failures_.erase(failure_order_.front());
    failure_order_.pop_front();
  }
}

std::optional<Status> Setbacks::last_failure(const Hash128& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? std::nullopt : std::optional(found->second);
}

uint32_t Setbacks::worker_died(const Hash128& key, const std::string& how) {
  Deaths now = deaths(key);
  ++now.count;
  now.how = how;
  deaths_[key] = now;
  if (store_) store_->quarantine(key, how);
  return now.count;
}

std::optional<std::string> Setbacks::quarantine(const Hash128& key) const {
  const Deaths now = deaths(key);
  if (now.count < kDeathsBeforeQuarantine) return std::nullopt;
  return std::to_string(now.count) + " workers died on this graph (last: " + now.how +
         "); it is set aside until its key is removed";
}

void Setbacks::release(const Hash128& key) {
  failures_.erase(key);
  // A death that is only in memory is on its way to the store.
  const bool died = deaths_.erase(key) > 0;
  if (store_ && (died || store_->find_quarantine(key).ok())) store_->release(key);
}

Setbacks::Deaths Setbacks::deaths(const Hash128& key) const {
  // The store learns of a death a commit later than the memory does.
  Deaths result;
  if (const auto found = deaths_.find(key); found != deaths_.end()) result = found->second;
  if (!store_) return result;
  if (auto stored = store_->find_quarantine(key); stored.ok() && stored->count > result.count)
    result = {stored->count, stored->reason};
  return result;
}

}  // namespace quern
