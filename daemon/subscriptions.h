// Who wants to hear of a key's plan.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/base/hash.h"
#include "core/base/status.h"
#include "daemon/aside.h"
#include "daemon/budget.h"

namespace quern {

class Subscriptions {
 public:
  // To subscribe twice is to subscribe once. LIMIT when the client has `most` already, or no memory is left.
  Status add(const Hash128& key, ClientId client, const std::shared_ptr<Account>& account, size_t most) {
    auto& own = by_client_[client];
    Charge charge(account, kBytes);
    if (own.size() >= most || !charge.ok())
      return Status(ErrorCode::LIMIT,
                    std::to_string(own.size()) + " subscriptions of this client stand already");
    own.try_emplace(key, std::move(charge));
    by_key_[key].insert(client);
    return {};
  }
  void remove(const Hash128& key, ClientId client) {
    const auto own = by_client_.find(client);
    if (own != by_client_.end() && own->second.erase(key)) drop(key, client);
  }
  void remove_all(ClientId client) {
    const auto own = by_client_.extract(client);
    if (!own) return;
    for (const auto& [key, charge] : own.mapped()) drop(key, client);
  }
  void each(const Hash128& key, const std::function<void(ClientId)>& tell) const {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return;
    const auto clients = found->second;  // a copy: telling can drop a slow client
    for (ClientId client : clients) tell(client);
  }
  size_t size() const {
    size_t size = 0;
    for (const auto& [client, own] : by_client_) size += own.size();
    return size;
  }

 private:
  static constexpr size_t kBytes = 192;

  void drop(const Hash128& key, ClientId client) {
    const auto found = by_key_.find(key);
    found->second.erase(client);
    if (found->second.empty()) by_key_.erase(found);
  }

  std::unordered_map<ClientId, std::unordered_map<Hash128, Charge>> by_client_;
  std::unordered_map<Hash128, std::unordered_set<ClientId>> by_key_;
};

}  // namespace quern
