#include "core/search/oracle.h"

#include <algorithm>

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

class Grower {
 public:
  Grower(const EGraph& egraph, Oracle& oracle, Clock::time_point deadline,
         const std::function<bool()>& cancelled)
      : egraph_(egraph), oracle_(oracle), deadline_(deadline), cancelled_(cancelled) {
    for (ClassId id : egraph.classes())
      for (ENode node : egraph.nodes(id)) {
        if (node.children.empty())
          leaves_.push_back(std::move(node));
        else
          vocabulary_.insert(
              {node.code, node.index, node.number, std::vector<ClassId>(node.children.size())});
      }
  }

  Prefixes run() {
    const auto start = Clock::now();
    for (const ENode& leaf : leaves_) ask(leaf);
    // A round asks about operators that have one operand at least that the round before found.
    for (size_t old = 0; old < known_.size() && found_.finished;) {
      const size_t end = known_.size();
      for (const ENode& symbol : vocabulary_) choose(symbol, 0, old, end, false);
      old = end;
    }
    found_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(found_);
  }

 private:
  // Operands from `at` on, all from the first `end` known classes.
  void choose(ENode op, size_t at, size_t old, size_t end, bool any_new) {
    if (at == op.children.size()) {
      if (any_new) ask(op);
      return;
    }
    const bool must = !any_new && at + 1 == op.children.size();
    for (size_t i = must ? old : 0; i < end && found_.finished; ++i) {
      op.children[at] = known_[i];
      choose(op, at + 1, old, end, any_new || i >= old);
    }
  }

  void ask(const ENode& op) {
    if (Clock::now() >= deadline_ || cancelled_()) found_.finished = false;
    if (!found_.finished) return;
    const Ruling ruling = oracle_.admits(op);
    ++(ruling == Ruling::yes ? found_.yes : ruling == Ruling::no ? found_.no : found_.undecided);
    if (ruling == Ruling::no) return;
    const ClassId id = egraph_.lookup(op);
    if (id < 0) {
      found_.beyond += ruling == Ruling::yes;
      return;
    }
    found_.admitted.insert(op);
    if (std::find(known_.begin(), known_.end(), id) == known_.end()) known_.push_back(id);
  }

  const EGraph& egraph_;
  Oracle& oracle_;
  const Clock::time_point deadline_;
  const std::function<bool()>& cancelled_;
  std::vector<ENode> leaves_;
  std::set<ENode, Prefixes::Less> vocabulary_;  // operators without operands
  std::vector<ClassId> known_;                  // classes that prefixes compute
  Prefixes found_;
};

}  // namespace

Ruling LookupOracle::admits(const ENode& op) {
  if (egraph_.lookup(op) >= 0) return Ruling::yes;
  return saturated_ ? Ruling::no : Ruling::undecided;
}

Prefixes grow_prefixes(const EGraph& saturated, Oracle& oracle, Clock::time_point deadline,
                       const std::function<bool()>& cancelled) {
  return Grower(saturated, oracle, deadline, cancelled).run();
}

}  // namespace quern
