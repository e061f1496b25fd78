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
    if (uncommitted_ || copying_) fail("copies are under way when the kernel ends");
    if (storing_) fail("stores by TMA are under way when the kernel ends");
    if (signals_blocks_) fail("other blocks of the cluster are signalled when the kernel ends");
    if (open_products_ || products_) fail("products are under way when the kernel ends");
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
    copies(instruction);
    stores(instruction);
    products(instruction);
    barriers(instruction);
  }
  void operator()(const WarpRole& role) {
    body(role.body);
    for (auto& [root, state] : copied_) state = Copied::asked;  // what it waited for, the others have not
  }
  void operator()(const Continue&) {}
  void operator()(const Return&) {}
  void operator()(const Scope& scope) { body(scope.body); }

 private:
  enum class Copied : uint8_t { asked, waited, landed };
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

  static bool is_copy(const Stmt& stmt) {
    const Instruction* instruction = stmt.as<Instruction>();
    return instruction && (instruction->code == Instr::cp_async || instruction->code == Instr::tma_load ||
                           instruction->code == Instr::tma_load_multicast);
  }

  // Reads first: a statement that reads and writes does so in this order.
  void leaf(const Stmt& stmt) {
    const bool copy = is_copy(stmt);
    const auto* asked = stmt.as<Instruction>();
    const bool store = asked && asked->code == Instr::tma_store;
    visit_effects(stmt, [&](const Effect& effect) {
      if (effect.symbol->space != Space::shared || effect.access == Access::write) return;
      if (effect.access == Access::barrier) return mbarrier(stmt, effect.symbol);
      read(effect);
      if (store && unfenced_.contains(place(effect)))
        fail(effect.symbol->name + " is stored by TMA with no fence_async behind its writes");
    });
    visit_effects(stmt, [&](const Effect& effect) {
      if (effect.symbol->space != Space::shared || effect.access != Access::write) return;
      if (copy) {
        copied_.try_emplace(effect.symbol, Copied::asked);
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
    if ((effect.of_cluster ? published_ : written_).contains(place(effect)))
      fail(name + " is read with no barrier" + (effect.of_cluster ? " of the cluster" : "") +
           " behind its writes");
    // In its first trip a loop may skip what it has not yet asked for.
    const auto copied = copied_.find(effect.symbol);
    if (!first_trip_ && copied != copied_.end() && copied->second != Copied::landed)
      fail(name + " is read before the copies into it are waited for");
  }

  void copies(const Instruction& instruction) {
    switch (instruction.code) {
      case Instr::cp_async:
        uncommitted_ = copying_ = true;
        return;
      case Instr::cp_async_commit:
        uncommitted_ = false;
        return;
      case Instr::cp_async_wait:
        if (uncommitted_) fail("copies are waited for that are not committed");
        if (instruction.templates[0].number == 0) copying_ = false;
        return move(copied_, Copied::asked, Copied::waited);
      default:
        return;
    }
  }

  void stores(const Instruction& instruction) {
    switch (instruction.code) {
      case Instr::tma_store:
        uncommitted_stores_ = storing_ = true;
        return;
      case Instr::tma_store_commit:
        uncommitted_stores_ = false;
        return;
      case Instr::tma_store_wait:
        if (uncommitted_stores_) fail("stores by TMA are waited for that are not committed");
        if (instruction.templates[0].number == 0) storing_ = false;
        return;
      default:
        return;
    }
  }

  void products(const Instruction& instruction) {
    switch (instruction.code) {
      case Instr::wgmma:
      case Instr::wgmma_shared:
        open_products_ = products_ = true;
        return;
      case Instr::wgmma_commit:
        open_products_ = false;
        return;
      case Instr::wgmma_wait:
        if (open_products_) fail("products are waited for that are not committed");
        if (instruction.templates[0].number == 0) products_ = false;
        return;
      default:
        return;
    }
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
        move(copied_, Copied::asked, Copied::landed);
        return move(copied_, Copied::waited, Copied::landed);
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

  template <class State>
  static void move(std::map<Root, State>& states, State from, State to) {
    for (auto& [root, state] : states)
      if (state == from) state = to;
  }

  const Stmt* now_ = nullptr;
  bool first_trip_ = false;
  std::map<Root, int> bound_;
  int bindings_ = 0;
  std::set<Place> written_, published_,
      unfenced_;  // since the last barrier, that of the cluster, the proxy fence
  std::map<Root, Copied> copied_;
  std::map<Root, Started> mbarriers_;
  bool uncommitted_ = false, copying_ = false, open_products_ = false, products_ = false;
  bool signals_blocks_ = false;  // since the last barrier of the cluster
  bool uncommitted_stores_ = false, storing_ = false;
  Status status_;
};

}  // namespace

Status verify_order(const Kernel& kernel) { return OrderChecker().run(kernel); }

}  // namespace quern::ir
