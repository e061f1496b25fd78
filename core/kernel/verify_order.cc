// The order of statements that copies, products, mbarriers and shared memory need. Branches are taken, loops
// that stay loops are gone through twice, so that what an iteration leaves meets the next one. A shared
// buffer, as it is named, is one thing here: which bytes of it threads touch is proved by core/prove.
#include <map>
#include <set>

#include "core/kernel/effects.h"
#include "core/kernel/verify_kernel.h"

namespace quern::ir {

namespace {

using Root = const SymbolData*;
using Place = std::pair<const SymbolData*, int>;  // a name, and which of its bindings

class OrderChecker {
 public:
  Status run(const Kernel& kernel) {
    body(kernel.setup);
    body(kernel.body);
    for (const auto& [async, flight] : flights_)
      if (flight.under_way) fail(async_info(async).what + std::string(" are under way when the kernel ends"));
    if (signals_blocks_) fail("other blocks of the cluster are signalled when the kernel ends");
    return status_;
  }

  void operator()(const Let& let) {
    leaf(*now_);
    if (let.name->space == Space::shared) bound_[let.name.get()] = ++bindings_;
  }
  void operator()(const Declare&) {}
  void operator()(const Assign&) { leaf(*now_); }
  void operator()(const For& loop) {
    const bool again = loop.unroll != Unroll::full;
    const bool first = first_trip_;
    first_trip_ |= again;
    body(loop.body);
    first_trip_ = first;
    if (again) body(loop.body);
  }
  void operator()(const If& branch) { body(branch.then); }
  void operator()(const Instruction& instruction) {
    leaf(*now_);
    goes_on(instruction);
    barriers(instruction);
  }
  void operator()(const WarpRole& role) {
    body(role.body);
    for (auto& [copied, state] : copied_) state = Copied::asked;  // what it waited for, the others have not
  }
  void operator()(const Continue&) {}
  void operator()(const Return&) {}
  void operator()(const Scope& scope) { body(scope.body); }

 private:
  enum class Copied : uint8_t { asked, waited, landed };
  struct Flight {
    bool open = false, under_way = false;  // not committed; not waited for
  };
  enum class Started : uint8_t { initialised, fenced, seen, seen_by_cluster };

  void body(const Body& statements) {
    for (const Stmt& stmt : statements) {
      if (!status_.ok()) return;
      now_ = &stmt;
      std::visit(*this, stmt.is);
    }
  }

  void fail(const std::string& what) {
    if (status_.ok())
      status_ = Status(ErrorCode::INTERNAL, what + (now_ ? ": " + statement_text(*now_) : ""));
  }

  // Reads first: a statement that reads and writes does so in this order.
  void leaf(const Stmt& stmt) {
    const auto* instruction = stmt.as<Instruction>();
    std::optional<Async> async;
    if (instruction && instr_info(instruction->code).issues()) async = instr_info(instruction->code).async;
    visit_effects(stmt, [&](const Effect& effect) {
      if (effect.symbol->space != Space::shared || effect.access == Access::write) return;
      if (effect.access == Access::barrier) return mbarrier(stmt, effect.symbol);
      read(effect);
      if (async && async_info(*async).proxy && unfenced_.contains(place(effect)))
        fail(effect.symbol->name + " is read by the async proxy with no fence_async behind its writes");
    });
    visit_effects(stmt, [&](const Effect& effect) {
      if (effect.symbol->space != Space::shared || effect.access != Access::write) return;
      if (async) {
        copied_.try_emplace({effect.symbol, *async}, Copied::asked);
      } else {
        written_.insert(place(effect));
        unfenced_.insert(place(effect));
        published_.insert(place(effect));
      }
    });
  }

  // A pointer that was bound again may point to another stage.
  Place place(const Effect& effect) const {
    const auto at = bound_.find(effect.through);
    return {effect.through, at == bound_.end() ? 0 : at->second};
  }

  void read(const Effect& effect) {
    const std::string& name = effect.symbol->name;
    const bool own = effect.symbol->own;  // nobody else need have got there
    if (!own && (effect.of_cluster ? published_ : written_).contains(place(effect)))
      fail(name + " is read with no barrier" + (effect.of_cluster ? " of the cluster" : "") +
           " behind its writes");
    // In its first trip a loop may skip what it has not yet asked for.
    if (first_trip_) return;
    for (const auto& [copied, state] : copied_)
      if (copied.first == effect.symbol && state != Copied::landed && !(own && state == Copied::waited))
        fail(name + " is read before the copies into it are waited for");
  }

  // What is issued is in a group once it is committed, and is over once its group is waited for.
  void goes_on(const Instruction& instruction) {
    const InstrInfo& row = instr_info(instruction.code);
    if (!row.async || *row.async == Async::mbarrier) return;
    Flight& flight = flights_[*row.async];
    if (row.issues()) flight.open = flight.under_way = true;
    if (row.ordering == Ordering::commits) flight.open = false;
    if (row.ordering != Ordering::waits) return;
    if (flight.open)
      fail(async_info(*row.async).what + std::string(" are waited for that are not committed"));
    if (instruction.templates[0].number == 0) flight.under_way = false;
    for (auto& [copied, state] : copied_)
      if (copied.second == *row.async && state == Copied::asked) state = Copied::waited;
  }

  void barriers(const Instruction& instruction) {
    switch (instruction.code) {
      case Instr::fence_async:
        return unfenced_.clear();
      case Instr::cluster_barrier:
      case Instr::cluster_wait:
        published_.clear();
        signals_blocks_ = false;
        for (Started started : {Started::fenced, Started::seen})
          move(mbarriers_, started, Started::seen_by_cluster);
        [[fallthrough]];
      case Instr::block_barrier:
      case Instr::named_barrier:
        written_.clear();
        move(copied_, Copied::waited, Copied::landed);
        return move(mbarriers_, Started::fenced, Started::seen);
      case Instr::warp_barrier:
        written_.clear();
        return move(copied_, Copied::waited, Copied::landed);
      case Instr::mbarrier_wait:
        for (auto& [copied, state] : copied_)
          if (copied.second == Async::mbarrier || state == Copied::waited) state = Copied::landed;
        return;
      case Instr::mbarrier_init_fence:
        return move(mbarriers_, Started::initialised, Started::fenced);
      default:
        return;
    }
  }

  void mbarrier(const Stmt& stmt, Root root) {
    if (stmt.as<Instruction>()->code == Instr::mbarrier_init) {
      mbarriers_.try_emplace(root, Started::initialised);
      return;
    }
    const auto at = mbarriers_.find(root);
    if (at == mbarriers_.end()) return fail("the mbarrier " + root->name + " is not initialised");
    if (signals_blocks(stmt)) {
      signals_blocks_ = true;
      if (at->second != Started::seen_by_cluster)
        fail("no barrier tells other blocks of the cluster that the mbarrier " + root->name +
             " is initialised");
    }
    if (at->second < Started::seen)
      fail("no barrier tells all threads that the mbarrier " + root->name + " is initialised");
  }

  template <class What, class State>
  static void move(std::map<What, State>& states, State from, State to) {
    for (auto& [what, state] : states)
      if (state == from) state = to;
  }

  const Stmt* now_ = nullptr;
  bool first_trip_ = false;
  std::map<Root, int> bound_;
  int bindings_ = 0;
  std::set<Place> written_, published_,
      unfenced_;  // since the last barrier, that of the cluster, the proxy fence
  std::map<std::pair<Root, Async>, Copied> copied_;
  std::map<Async, Flight> flights_;
  std::map<Root, Started> mbarriers_;
  bool signals_blocks_ = false;  // since the last barrier of the cluster
  Status status_;
};

}  // namespace

Status verify_order(const Kernel& kernel) { return OrderChecker().run(kernel); }

}  // namespace quern::ir
