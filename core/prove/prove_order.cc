#include <algorithm>
#include <unordered_set>

#include "core/kernel/effects.h"
#include "core/prove/order.h"
#include "core/prove/questions.h"

namespace quern::proof {

namespace {

using Kind = Access::Kind;

constexpr int64_t kMostBlocks = 256;  // whose order is followed one by one

bool signals_blocks(const ir::Body& body) {
  return std::any_of(body.begin(), body.end(), [](const ir::Stmt& stmt) {
    if (const ir::Body* inner = ir::body_of(stmt)) return signals_blocks(*inner);
    return ir::signals_blocks(stmt);
  });
}

class Order {
 public:
  explicit Order(Questions& questions) : questions_(questions) {}

  void run() {
    questions_.forget();
    if (signals_blocks(questions_.kernel().body)) {
      blocks_ = static_cast<int>(questions_.facts().cluster.count());
      if (blocks_ != 2)
        return questions_.find(ProofFinding::Kind::unproved, "phases", "",
                               "blocks that are no pair fill each other's stages");
      if (!follow_order({})) unproved_order();
      return;
    }
    if (follow_order({})) return;
    // What depends on the block's place is gone through for each place.
    const std::array<bool, 3> decide = questions_.trace().decide_trips;
    const std::array<int64_t, 3> grid = {questions_.facts().grid.x, questions_.facts().grid.y,
                                         questions_.facts().grid.z};
    std::array<int64_t, 3> counts = {1, 1, 1};
    for (size_t axis = 0; axis < 3; ++axis)
      if (decide[axis]) counts[axis] = grid[axis];
    const int64_t all = counts[0] * counts[1] * counts[2];
    if (all == 1 || all > kMostBlocks) return unproved_order();
    for (int64_t number = 0; number < all; ++number) {
      BlockPlace place;
      int64_t rest = number;
      for (size_t axis = 0; axis < 3; rest /= counts[axis++])
        if (decide[axis]) place[axis] = rest % counts[axis];
      if (questions_.is_out_of_time())
        return questions_.find(ProofFinding::Kind::unproved, "phases", "",
                               "not decided in time for each block");
      if (!follow_order(place)) return unproved_order();
    }
  }

 private:
  // False, and nothing found, where it depends on the block or on what memory holds what there is to find.
  bool follow_order(const BlockPlace& place) {
    questions_.trace() = trace_kernel(questions_.kernel(), questions_.facts(), Follow::order, place);
    if (!questions_.trace().problem.empty()) return false;
    std::erase_if(questions_.trace().events, [](const Event& event) {
      return event.access && (event.access->space != ir::Space::shared || event.access->bytes == 0);
    });
    shape_of_event_.assign(2 * questions_.trace().events.size(), -1);
    for (int rank = 0; rank < blocks_; ++rank) {
      const Ordered ordered = order_events(questions_.trace(), questions_.kernel().threads, blocks_, rank);
      fault_ = ordered.fault;
      if (fault_ && !fault_->surely) return false;
      if (fault_) {
        find_fault(ProofFinding::Kind::disproved);
        return true;
      }
      races(ordered);
    }
    return true;
  }

  void unproved_order() {
    if (!questions_.trace().problem.empty())
      return questions_.find(ProofFinding::Kind::unproved, "races", "", questions_.trace().problem);
    find_fault(ProofFinding::Kind::unproved);
  }
  void find_fault(ProofFinding::Kind kind) {
    const Event none,
        &event = fault_->event >= 0 ? questions_.trace().events[static_cast<size_t>(fault_->event)] : none;
    questions_.find(kind, "phases", text_of(event),
                    fault_->what + (event.iteration.empty() ? "" : ", " + event.iteration));
  }

  const Event& event_of(const Ordered::Moment& moment) const {
    return questions_.trace().events[static_cast<size_t>(moment.event)];
  }

  void races(const Ordered& ordered) {
    std::vector<const Ordered::Moment*> open;
    const bool clusters =
        std::any_of(questions_.trace().events.begin(), questions_.trace().events.end(),
                    [](const Event& event) { return event.access && event.access->of_cluster; });
    for (const Ordered::Moment& moment : ordered.moments) {
      const Event& event = event_of(moment);
      open.push_back(&moment);
      const bool last_role = questions_.trace().roles.empty() ||
                             (event.role == 0 && moment.event >= questions_.trace().roles.back().begins);
      std::erase_if(open, [&](const Ordered::Moment* earlier) {
        if (earlier != &moment && ordered.before(questions_.trace(), *earlier, moment))
          return last_role && !clusters && is_whole(moment);
        pair(ordered, *earlier, moment);
        return false;
      });
      if (event.access->of_cluster &&
          (ordered.cluster_end.done.empty() || ordered.cluster_end.done[0] < moment.end))
        questions_.find(ProofFinding::Kind::disproved, "races", text_of(event),
                        "a block may end while another reads its shared memory");
    }
  }
  // All threads of the first role come to it.
  bool is_whole(const Ordered::Moment& moment) const {
    size_t others = 0;
    for (const auto& role : questions_.trace().roles) others += 32 * static_cast<size_t>(role.warps);
    return moment.threads->count() + others == static_cast<size_t>(questions_.kernel().threads);
  }

  int shape_of(const Event& event) {
    const Access& access = *event.access;
    std::string key =
        ir::print(access.at) + "#" + std::to_string(access.bytes) + "#" + std::to_string(access.alignment);
    for (const Expr& each : event.where) key += ";" + ir::print(each);
    return shapes_.try_emplace(std::move(key), static_cast<int>(shapes_.size())).first->second;
  }
  int cached_shape(const Ordered::Moment& moment) {
    int& known = shape_of_event_[static_cast<size_t>(moment.event) * 2 + moment.by_other];
    if (known < 0) known = shape_of(seen(moment));
    return known;
  }

  // As this block's memory sees it.
  Event seen(const Ordered::Moment& moment) const {
    return moment.by_other ? of_other_block(event_of(moment)) : event_of(moment);
  }
  // What the other block of a pair does to the memory of this one.
  Event of_other_block(Event event) const {
    const Dim3& cluster = questions_.facts().cluster;
    const std::array<uint32_t, 3> extents = {cluster.x, cluster.y, cluster.z};
    auto there = [&](Expr expr) {
      for (size_t axis = 0; axis < 3; ++axis)
        if (const Symbol& block = questions_.trace().places.block[axis]; extents[axis] > 1)
          expr = ir::replaced(expr, block, Expr(block) ^ 1);
      return expr;
    };
    event.access->at = there(event.access->at);
    for (Expr& each : event.where) each = there(each);
    return event;
  }

  // Whether all warps that do the first come to a barrier of theirs before the second.
  static bool has_warp_barrier(const Ordered& ordered, const Ordered::Moment& first,
                               const Ordered::Moment& second) {
    const auto& barriers = ordered.warp_barriers;
    return std::any_of(barriers.lower_bound({first.role, first.end}),
                       barriers.lower_bound({second.role, second.event}),
                       [&](const auto& barrier) { return (*first.threads & ~barrier.second).none(); });
  }

  void pair(const Ordered& ordered, const Ordered::Moment& first, const Ordered::Moment& second) {
    const Access &x = *event_of(first).access, &y = *event_of(second).access;
    if (x.memory != y.memory || (x.kind == y.kind && x.kind != Kind::write)) return;
    if (first.role != second.role && ordered.before(questions_.trace(), second, first)) return;
    const bool of_cluster = x.of_cluster || y.of_cluster;
    const bool itself = &first == &second;
    const bool follows = itself || (first.end <= second.event && !of_cluster &&
                                    first.by_other == second.by_other);  // in its thread
    const bool by_warp =
        follows && !itself && first.role == second.role && has_warp_barrier(ordered, first, second);
    const uint64_t how = (follows ? 1 : 0) + (by_warp ? 2 : 0) + (of_cluster ? 4 : 0);
    const auto shape = [&](const Ordered::Moment& moment) {
      return static_cast<uint64_t>(cached_shape(moment));
    };
    if (!pairs_.insert((shape(first) << 30 | shape(second)) << 3 | how).second) return;
    const Event a = seen(first), b = seen(second);
    OtherThread other(questions_, of_cluster);
    std::vector<Expr> conditions = a.where;
    for (const Expr& each : b.where) conditions.push_back(other(each));
    const Expr thread(questions_.trace().places.thread), twin(other.twin(questions_.trace().places.thread));
    if (by_warp)
      conditions.push_back(operation(ir::Operator::not_equal, thread / 32, twin / 32));
    else if (follows)
      conditions.push_back(operation(ir::Operator::not_equal, thread, twin));
    conditions.push_back(overlap(x, a.access->at, y, other(b.access->at)));
    questions_.conclude(questions_.ask(conditions), "races", b,
                        "the same bytes as " + (itself ? "another thread's" : text_of(a)) +
                            (a.iteration.empty() ? "" : " (" + a.iteration + ")") +
                            ", with nothing that orders them");
  }

  Questions& questions_;
  std::optional<Ordered::Fault> fault_;  // of the order that was followed last
  std::map<std::string, int> shapes_;
  // Of each event, as this block does it and as the other one does; -1: not known.
  std::vector<int> shape_of_event_;
  int blocks_ = 1;  // that signal each other
  std::unordered_set<uint64_t> pairs_;  // of shapes, and how they follow each other
};

}  // namespace

void prove_order(Questions& questions) { Order(questions).run(); }

}  // namespace quern::proof
