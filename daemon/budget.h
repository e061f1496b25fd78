// The memory that clients make the daemon hold: frames that are not complete, requests that wait, queued
// jobs, subscriptions, unread answers. Each client has a little of its own, which nobody can take from it;
// what goes beyond comes from one pool, of which no client gets more than a quarter. On the daemon's thread
// only.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace quern {

class Budget {
 public:
  static constexpr size_t kOwnBytes = 128 << 10;  // of each client, outside of the pool

  explicit Budget(size_t pool_bytes) : pool_bytes_(pool_bytes) {}
  size_t pool_bytes() const { return pool_bytes_; }
  size_t client_bytes() const { return kOwnBytes + pool_bytes_ / 4; }  // the most that one client may hold
  size_t used() const { return used_; }                                // of the pool

 private:
  friend class Account;
  const size_t pool_bytes_;
  size_t used_ = 0;
};

// Of one client; lives as long as anything is charged to it.
class Account {
 public:
  explicit Account(std::shared_ptr<Budget> budget) : budget_(std::move(budget)) {}
  ~Account() { release(used_); }
  Account(const Account&) = delete;

  size_t used() const { return used_; }
  // Whether this client, and all of them, may hold so much more.
  bool has_room(size_t bytes) const {
    return used_ + bytes <= budget_->client_bytes() && budget_->used_ + more(bytes) <= budget_->pool_bytes_;
  }
  // False, and nothing happens, when there is no room.
  bool charge(size_t bytes) {
    if (!has_room(bytes)) return false;
    budget_->used_ += more(bytes);
    used_ += bytes;
    return true;
  }
  void release(size_t bytes) {
    budget_->used_ -= beyond(used_) - beyond(used_ - bytes);
    used_ -= bytes;
  }

 private:
  size_t more(size_t bytes) const { return beyond(used_ + bytes) - beyond(used_); }  // out of the pool
  static size_t beyond(size_t bytes) { return bytes > Budget::kOwnBytes ? bytes - Budget::kOwnBytes : 0; }

  const std::shared_ptr<Budget> budget_;
  size_t used_ = 0;
};

// Bytes of an account, released when this goes.
class Charge {
 public:
  Charge() = default;
  // Not ok() when the account refuses it.
  Charge(std::shared_ptr<Account> account, size_t bytes) {
    if (!account || !account->charge(bytes)) return;
    account_ = std::move(account);
    bytes_ = bytes;
  }
  Charge(Charge&& other) noexcept { *this = std::move(other); }
  Charge& operator=(Charge&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (account_) account_->release(bytes_);
  }

  bool ok() const { return account_ != nullptr; }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Account> account_;
  size_t bytes_ = 0;
};

}  // namespace quern
