// Things that wait for their turn, shared out fairly: the user who was served longest ago comes first, of one
// user's clients the same, and only within a client do priority and age count. However much one client
// queues, another one's next thing is the next.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "daemon/budget.h"

namespace quern {

using ClientId = uint64_t;

// Whose turn something takes, and who pays for the memory that it takes meanwhile.
struct Asker {
  uid_t user = 0;
  ClientId client = 0;               // 0: those of the user who have left
  std::shared_ptr<Account> account;  // may be null: nobody's
  uint8_t priority = 0;              // among the client's own
};

template <class T>
class FairQueue {
 public:
  // Where something stands: what erase() needs.
  struct Ticket {
    Asker asker;
    uint64_t order = 0;
  };

  // Of equal priority, the lower `order` comes first; each is used once.
  void push(const Ticket& ticket, T item) {
    lanes_[ticket.asker.user].clients[ticket.asker.client].items.emplace(place_of(ticket), std::move(item));
    ++size_;
  }
  void erase(const Ticket& ticket) {
    const auto user = lanes_.find(ticket.asker.user);
    if (user == lanes_.end()) return;
    const auto client = user->second.clients.find(ticket.asker.client);
    if (client != user->second.clients.end()) size_ -= client->second.items.erase(place_of(ticket));
  }

  enum class Turn { taken, passed, over };
  // Offers what waits to `offer`, in the order of turns, until it is `taken` (the caller erases it; it costs
  // its client the turn) or the round is `over`.
  Turn offer(const std::function<Turn(const T&)>& offer) {
    for (const auto& [user_served, user] : by_turn(lanes_)) {
      for (const auto& [served, client] : by_turn(user->clients)) {
        for (const auto& [place, item] : client->items) {
          const T offered = item;  // taking it erases it
          const Turn turn = offer(offered);
          if (turn == Turn::passed) continue;
          if (turn == Turn::taken) user->served = client->served = ++turns_;
          return turn;
        }
      }
    }
    return Turn::over;
  }

  // The client has left, and all that it had here was erased.
  void leave(uid_t user, ClientId client) {
    if (const auto lanes = lanes_.find(user); lanes != lanes_.end()) lanes->second.clients.erase(client);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  struct Place {
    int priority = 0;
    uint64_t order = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Client {
    uint64_t served = 0;  // which turn it had last; kept while it is connected, whether or not it waits
    std::map<Place, T> items;
  };
  struct User {
    uint64_t served = 0;
    std::map<ClientId, Client> clients;
  };

  static Place place_of(const Ticket& ticket) { return {-int{ticket.asker.priority}, ticket.order}; }

  template <class Lanes>
  static std::multimap<uint64_t, typename Lanes::mapped_type*> by_turn(Lanes& lanes) {
    std::multimap<uint64_t, typename Lanes::mapped_type*> order;
    for (auto& [id, lane] : lanes) order.emplace(lane.served, &lane);
    return order;
  }

  std::map<uid_t, User> lanes_;
  uint64_t turns_ = 0;
  size_t size_ = 0;
};

}  // namespace quern
