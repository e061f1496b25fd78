#include "core/prove/order.h"

#include <algorithm>
#include <set>

#include "core/prove/arithmetic.h"
#include "core/prove/order_state.h"

namespace quern::proof {

using ir::Expr;
using ir::Instr;

void Clock::join(const Clock& other) {
  done.resize(std::max(done.size(), other.done.size()), -1);
  for (size_t i = 0; i < other.done.size(); ++i) done[i] = std::max(done[i], other.done[i]);
  for (const auto& [barrier, phase] : other.phases) phases[barrier] = std::max(phases[barrier], phase);
}

namespace {

constexpr int kForever = 1 << 30;

class Simulation {
 public:
  Simulation(const Trace& trace, int threads, int blocks, int rank)
      : trace_(trace), threads_(threads), blocks_(blocks), rank_(rank) {
    for (int t = 0; t < threads; ++t) all_.set(static_cast<size_t>(t));
    own_roles_ = static_cast<int>(trace.roles.size()) + 1;
    roles_ = own_roles_ * blocks;
    lists_.resize(static_cast<size_t>(own_roles_));
    for (size_t i = 0; i < trace.events.size(); ++i)
      lists_[static_cast<size_t>(trace.events[i].role)].push_back(static_cast<int>(i));
  }

  Ordered run() {
    run_with_slow(0, true);
    for (int slow = 1; slow < roles_ && !out_.fault; ++slow) run_with_slow(slow, false);
    return std::move(out_);
  }

 private:
  std::shared_ptr<const Threads> threads_of(const Event& event) {
    std::string key;
    std::vector<Expr> conditions;
    for (const Expr& condition : event.where)
      if (!condition.is_number()) key += ir::print(condition) + ";";
    std::shared_ptr<const Threads>& known = known_threads_[key];
    if (known) return known;
    Threads threads;
    for (int t = 0; t < threads_; ++t) {
      const Values values{{trace_.places.thread.get(), t}};
      const bool here = std::none_of(event.where.begin(), event.where.end(), [&](const Expr& condition) {
        const auto value = evaluate(condition, values);
        return value && !*value;
      });
      if (here) threads.set(static_cast<size_t>(t));
    }
    known = std::make_shared<Threads>(threads);
    return known;
  }
  // Whether it depends on the thread alone who comes.
  bool is_certain(const Event& event) const {
    const Values values{{trace_.places.thread.get(), 0}};
    return std::all_of(event.where.begin(), event.where.end(),
                       [&](const Expr& condition) { return evaluate(condition, values).has_value(); });
  }

  // Whether it depends on nothing but the block who comes.
  bool concerns_all(const Event& event) const {
    const Values values{{trace_.places.thread.get(), 0}};
    return std::all_of(event.where.begin(), event.where.end(), [&](const Expr& condition) {
      return trace_.places.decide_by_block(condition) || evaluate(condition, values).has_value();
    });
  }

  void fail(const std::string& what, int event, bool surely = true) {
    if (!out_.fault) out_.fault = Ordered::Fault{what, event, surely};
  }

  void run_with_slow(int slow, bool first) {
    record_ = first;
    state_.assign(static_cast<size_t>(roles_), {});
    barriers_.clear();
    meetings_.assign(static_cast<size_t>(blocks_), {});
    met_.assign(static_cast<size_t>(blocks_), 0);
    for (int block = 0; block < blocks_; ++block) {
      Role& role = first_role(block);
      role.begun = true;
      role.known = {{all_, Clock{std::vector<int>(static_cast<size_t>(roles_), -1), {}}}};
      role.cluster = role.known[0].clock;
    }
    std::vector<int> order;
    for (int role = 0; role < roles_; ++role)
      if (role != slow) order.push_back(role);
    order.push_back(slow);
    for (bool moved = true; moved && !out_.fault;) {
      moved = false;
      for (int role : order) {
        while (!out_.fault && step(role)) {
          moved = true;
          if (role == slow) break;
        }
        if (moved && role == slow) break;
      }
    }
    if (!out_.fault) finish();
  }

  // Roles of a block are numbered one after the other, the first being of all its threads.
  int block_of(int role) const { return role / own_roles_; }
  Role& first_role(int block) { return state_[static_cast<size_t>(block * own_roles_)]; }
  const std::vector<int>& events_of(int role) const { return lists_[static_cast<size_t>(role % own_roles_)]; }
  static int64_t key_of(int64_t place, int block) { return place | int64_t{block} << 48; }

  void begin_roles(int event, int block) {
    for (size_t i = 0; i < trace_.roles.size(); ++i) {
      Role& role = state_[static_cast<size_t>(block * own_roles_) + i + 1];
      if (role.begun || event < trace_.roles[i].begins) continue;
      role.begun = true;
      role.known = {{all_, clock_of(first_role(block), all_)}};
    }
  }

  Clock clock_of(const Role& role, const Threads& threads) const {
    Clock out;
    out.done.assign(static_cast<size_t>(roles_), -1);
    for (const Role::Known& known : role.known)
      if ((threads & ~known.threads).none()) out.join(known.clock);
    return out;
  }

  // Whether the role went on.
  bool step(int number) {
    Role& role = state_[static_cast<size_t>(number)];
    const auto& list = events_of(number);
    if (number % own_roles_ == 0)
      begin_roles(role.next < list.size() ? list[role.next] : kForever, block_of(number));
    if (!role.begun || role.next >= list.size()) return false;
    const int at = list[role.next];
    const Event& event = trace_.events[static_cast<size_t>(at)];
    const std::shared_ptr<const Threads> threads = threads_of(event);
    if (event.access) {
      if (record_) note(role, number, event, at, threads);
    } else if (threads->any()) {
      const bool barrier =
          event.signal->code == Instr::block_barrier || event.signal->code == Instr::named_barrier;
      if (barrier && !is_certain(event) && concerns_all(event)) {
        ++role.next;  // all come or none: nothing is known by it
        return true;
      }
      if (!is_certain(event)) {
        fail("who comes to it depends on the block", at, false);
        return false;
      }
      if (!signal(role, number, event, at, *threads)) return false;
    }
    ++role.next;
    return true;
  }

  // Whether other blocks of the cluster get what it copies.
  static bool is_multicast(const Event& event) {
    const auto* instruction = event.stmt ? event.stmt->as<ir::Instruction>() : nullptr;
    return instruction && ir::instr_info(instruction->code).has('k');
  }

  void note(Role& role, int number, const Event& event, int at,
            const std::shared_ptr<const Threads>& threads) {
    const bool by_other = block_of(number) > 0;
    if (by_other && !is_multicast(event)) return;
    Ordered::Moment moment;
    moment.event = moment.end = at;
    moment.role = number;
    moment.by_other = by_other;
    moment.threads = threads;
    moment.clock = std::make_shared<Clock>(clock_of(role, *threads));
    moment.cluster = std::make_shared<Clock>(role.cluster);
    if (event.access->async) {
      moment.end = kForever;
      role.groups[*event.access->async].issue(out_.moments.size(), *threads);
    }
    out_.moments.push_back(std::move(moment));
  }

  // The threads that a role has; the first one has what the others leave.
  Threads of_role(int number) const {
    number %= own_roles_;
    Threads out = number == 0 ? all_ : Threads();
    for (size_t i = 0; i < trace_.roles.size(); ++i)
      for (int t = trace_.roles[i].first_warp * 32, end = std::min(threads_, t + trace_.roles[i].warps * 32);
           t < end; ++t)
        if (number == 0 || number == static_cast<int>(i) + 1) out.set(static_cast<size_t>(t), number != 0);
    return out;
  }

  bool signal(Role& role, int number, const Event& event, int at, const Threads& threads) {
    const Signal& signal = *event.signal;
    switch (signal.code) {
      case Instr::block_barrier:
      case Instr::named_barrier:
        return block_barrier(role, number, at, threads);
      case Instr::warp_barrier:
        if (threads == present(number)) role.warp_barrier = at;
        if (record_ && has_whole_warps(threads, present(number)))
          out_.warp_barriers.emplace(std::pair{number, at}, threads);
        return true;
      case Instr::cluster_barrier:
        if (blocks_ > 1) return meet(role, number, at, threads);
        block_barrier(role, number, at, threads);
        role.cluster = role.everything();
        return true;
      case Instr::cluster_arrive:
        role.cluster_arrived = role.everything();
        role.cluster_arrived.done[0] = at;
        return true;
      case Instr::cluster_wait:
        role.cluster.join(role.cluster_arrived);
        return true;
      default:
        if (signal.row().has('b')) return mbarriers(role, number, signal, at, threads);
        return !signal.row().async || group(role, signal, at, threads);
    }
  }

  Threads present(int number) const {
    const bool split = own_roles_ > 1 && state_[static_cast<size_t>(block_of(number) * own_roles_ + 1)].begun;
    return split ? of_role(number) : all_;
  }

  // Of those that are there.
  bool has_whole_warps(const Threads& threads, const Threads& there) const {
    const Threads warp((uint64_t{1} << 32) - 1);
    for (int first = 0; first < threads_; first += 32) {
      const Threads all = there & warp << static_cast<size_t>(first);
      if ((threads & all).any() && (all & ~threads).any()) return false;
    }
    return true;
  }

  bool block_barrier(Role& role, int number, int at, const Threads& threads) {
    if (threads != present(number)) {
      fail("not all threads come to a barrier", at);
      return false;
    }
    Clock clock = role.everything();
    clock.done[static_cast<size_t>(number)] = at;
    role.known = {{all_, clock}};
    return true;
  }

  // Both blocks come, each with its first role.
  bool meet(Role& role, int number, int at, const Threads& threads) {
    const size_t own = static_cast<size_t>(block_of(number)), number_met = met_[own];
    if (meetings_[own].size() == number_met) {
      if (!block_barrier(role, number, at, threads)) return false;
      meetings_[own].push_back(role.everything());
    }
    for (const auto& each : meetings_)
      if (each.size() == number_met) return false;
    for (const auto& each : meetings_) role.known[0].clock.join(each[number_met]);
    role.cluster = role.known[0].clock;
    ++met_[own];
    return true;
  }

  // Whoever issued something commits it and waits for it. Of another block nothing is noted.
  bool group(Role& role, const Signal& signal, int at, const Threads& threads) {
    Groups& groups = role.groups[*signal.row().async];
    if (groups.empty() || (threads & groups.issuers).none()) return true;
    if ((groups.issuers & ~threads).any()) {
      fail("only some of the threads that issued " + what(*signal.row().async) + " commit or wait", at,
           false);
      return false;
    }
    if (signal.row().ordering == ir::Ordering::commits) {
      groups.commit();
      return true;
    }
    const size_t left = static_cast<size_t>(signal.number->number);
    while (groups.closed.size() > left) {
      for (size_t moment : groups.closed.front()) out_.moments[moment].end = at;
      groups.closed.erase(groups.closed.begin());
    }
    return true;
  }
  static std::string what(ir::Async async) { return ir::async_info(async).what; }

  // What those who arrive tell: all they know, and what their warps did before the last barrier of the warp.
  Clock told_by(const Role& role, int number, int at, const Threads& threads) const {
    Clock out = clock_of(role, threads);
    const Threads all = present(number);
    bool every_warp = true;
    for (int warp = 0; warp * 32 < threads_; ++warp) {
      bool here = false, comes = false;
      for (int t = warp * 32; t < std::min(threads_, warp * 32 + 32); ++t) {
        here |= all.test(static_cast<size_t>(t));
        comes |= threads.test(static_cast<size_t>(t));
      }
      every_warp &= comes || !here;
    }
    const int own = threads == all ? at : every_warp ? role.warp_barrier : -1;
    out.done[static_cast<size_t>(number)] = std::max(out.done[static_cast<size_t>(number)], own);
    return out;
  }

  // Those threads whose signal is for this block.
  Threads for_block(const Signal& signal, int number, int block, int at, const Threads& threads) {
    const int rank = block ^ rank_;
    if (signal.row().has('k'))
      return signal.blocks.is_number() && signal.blocks->number >> rank & 1 ? threads : Threads();
    if (!signal.row().has('n')) return block == block_of(number) ? threads : Threads();
    Threads out;
    for (int t = 0; t < threads_; ++t) {
      if (!threads.test(static_cast<size_t>(t))) continue;
      const auto to = evaluate(signal.blocks, {{trace_.places.thread.get(), t}});
      if (!to) fail("which block is signalled is not known", at, false);
      if (to && (*to < 0 || *to >= blocks_))
        fail("block " + std::to_string(*to) + " of the cluster is signalled, which has " +
                 std::to_string(blocks_),
             at);
      out.set(static_cast<size_t>(t), to && *to == rank);
    }
    return out;
  }

  bool mbarriers(Role& role, int number, const Signal& signal, int at, const Threads& threads) {
    if (!signal.at.is_number() || !signal.number.is_number()) {
      fail("which mbarrier it is, or its number, depends on more than the iteration", at, false);
      return false;
    }
    for (int block = 0; block < blocks_; ++block) {
      const Threads some = for_block(signal, number, block, at, threads);
      if (some.any() && !mbarrier(role, number, block, signal, at, some)) return false;
      if (some.any() && block == 0 && block_of(number) > 0 && signal.row().has('n')) arrived_[number] = at;
    }
    if (signal.row().issues()) role.groups.erase(ir::Async::mbarrier);
    return !out_.fault;
  }

  bool mbarrier(Role& role, int number, int block, const Signal& signal, int at, const Threads& threads) {
    const int64_t place = key_of(signal.at->number, block), count = static_cast<int64_t>(threads.count());
    Barrier& barrier = barriers_[place];
    if (signal.code == Instr::mbarrier_init) {
      if (barrier.arrivals != 0 || count != 1) fail("an mbarrier is initialised twice", at);
      barrier.arrivals = barrier.missing = signal.number->number;
      barrier.event = at;
      return !out_.fault;
    }
    if (barrier.arrivals == 0) {
      fail("an mbarrier that nobody has initialised", at);
      return false;
    }
    if (signal.code == Instr::mbarrier_wait)
      return wait(role, barrier, place, signal.number->number & 1, threads);
    if (signal.row().issues()) {
      if (count != 1) fail("a copy is asked for by " + std::to_string(count) + " threads", at);
      if (block == 0)
        for (size_t moment : role.groups[ir::Async::mbarrier].open) {
          out_.moments[moment].barrier = place;
          out_.moments[moment].phase = barrier.phase;
        }
      barrier.bytes -= signal.number->number;
      // What the other block sends may come before this one announces it.
      if (barrier.bytes < 0 && (blocks_ == 1 || barrier.missing == 0))
        fail("more bytes are asked for than the phase announces", at);
    } else {
      if (count > barrier.missing)
        fail(std::to_string(count) + " arrivals, and the phase lacks " + std::to_string(barrier.missing), at);
      barrier.missing -= count;
      if (signal.code == Instr::mbarrier_arrive_expect) barrier.bytes += count * signal.number->number;
      barrier.coming.join(told_by(role, number, at, threads));
    }
    barrier.end_phase();
    return !out_.fault;
  }

  // By the parity of the phase. What it tells is the first phase that may have ended, as far as the threads
  // knew.
  bool wait(Role& role, const Barrier& barrier, int64_t place, int64_t parity, const Threads& threads) {
    if ((barrier.phase & 1) == parity) return false;
    Clock clock = clock_of(role, threads);
    int& known = clock.phases[place];
    int ended = known;
    if ((ended & 1) == parity) ++ended;
    for (int phase = known; phase < ended; ++phase) {
      const Clock told = barrier.ended[static_cast<size_t>(phase)];
      clock.join(told);
    }
    clock.phases[place] = std::max(clock.phases[place], ended);
    role.learn(threads, clock);
    return true;
  }

  void finish() {
    for (int number = 0; number < roles_ && !out_.fault; ++number) {
      const Role& role = state_[static_cast<size_t>(number)];
      const auto& list = events_of(number);
      if (role.next >= list.size()) continue;
      const int at = list[role.next];
      const Event& event = trace_.events[static_cast<size_t>(at)];
      const bool known = event.signal && event.signal->at.is_number();
      const Barrier& barrier = barriers_[known ? key_of(event.signal->at->number, block_of(number)) : -1];
      fail("it waits forever: phase " + std::to_string(barrier.phase) + " lacks " +
               std::to_string(barrier.missing) + " arrivals and " + std::to_string(barrier.bytes) + " bytes",
           at);
    }
    for (const auto& [place, barrier] : barriers_) {
      if (barrier.bytes != 0)
        fail("its last phase announces " + std::to_string(barrier.bytes) + " bytes too many", barrier.event);
      if (barrier.missing != barrier.arrivals)
        fail("its last phase lacks " + std::to_string(barrier.missing) + " arrivals", barrier.event);
    }
    if (!record_) return;
    const Clock end = first_role(0).everything();
    for (const auto& [role, event] : arrived_)
      if (end.done[static_cast<size_t>(role)] < event)
        fail("a block may end while another arrives at its mbarrier", event);
    for (Role& role : state_)
      for (const auto& [async, groups] : role.groups)
        if (const auto left = groups.all(); !left.empty())
          fail("nobody waits for the " + what(async), out_.moments[left[0]].event);
    out_.cluster_end = state_[0].cluster;
    // The block is there until the last of its threads ends.
    Clock waited = end;
    for (int number = 0; number < own_roles_; ++number)
      waited.join(state_[static_cast<size_t>(number)].everything());
    for (const Ordered::Moment& moment : out_.moments) {
      const auto known = waited.phases.find(moment.barrier);
      if (moment.barrier >= 0 && (known == waited.phases.end() || known->second <= moment.phase))
        fail("nobody waits for the copy", moment.event);
    }
  }

  const Trace& trace_;
  const int threads_, blocks_, rank_;
  int own_roles_ = 1, roles_ = 1;  // of a block, and of all
  Threads all_;
  std::vector<std::vector<int>> lists_;  // events, by role
  std::map<std::string, std::shared_ptr<const Threads>> known_threads_;
  std::vector<Role> state_;
  std::map<int64_t, Barrier> barriers_;
  // By block: what it knew when it came to each barrier of the cluster.
  std::vector<std::vector<Clock>> meetings_;
  std::vector<size_t> met_;
  // By role of the other block: the last event with which it arrived at this one's mbarriers.
  std::map<int, int> arrived_;
  bool record_ = true;
  Ordered out_;
};

}  // namespace

bool Ordered::before(const Trace& trace, const Moment& a, const Moment& b) const {
  const Event &first = trace.events[static_cast<size_t>(a.event)],
              &second = trace.events[static_cast<size_t>(b.event)];
  if (a.barrier >= 0) {
    const auto at = b.clock->phases.find(a.barrier);
    return at != b.clock->phases.end() && at->second > a.phase;
  }
  const bool of_cluster = first.access->of_cluster || second.access->of_cluster;
  const Clock& clock = of_cluster ? *b.cluster : *b.clock;
  return static_cast<size_t>(a.role) < clock.done.size() && clock.done[static_cast<size_t>(a.role)] >= a.end;
}

Ordered order_events(const Trace& trace, int threads, int blocks, int rank) {
  Simulation simulation(trace, threads, blocks, rank);
  return simulation.run();
}

}  // namespace quern::proof
