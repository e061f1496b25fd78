#include "core/prove/prove_kernel.h"

#include <algorithm>
#include <set>

#include "core/kernel/verify_kernel.h"
#include "core/prove/arithmetic.h"
#include "core/prove/count.h"
#include "core/prove/order.h"
#include "core/prove/trace.h"

namespace quern {

using namespace proof;

namespace {

using ir::Expr;
using ir::Interval;
using ir::Symbol;
using Time = std::chrono::steady_clock;
using Kind = Access::Kind;

constexpr int64_t kMostIntervals = 100000;  // of a count
constexpr int64_t kMostBlocks = 256;        // whose order is followed one by one
constexpr int64_t kMostTried = 1 << 20;     // values, to name an element that nobody writes

class Prover {
 public:
  Prover(const ir::Kernel& kernel, const ir::LaunchFacts& facts, const ProveOptions& options)
      : kernel_(kernel), facts_(facts), options_(options), start_(Time::now()) {}

  Proof run() {
    trace_ = trace_kernel(kernel_, facts_, Follow::accesses);
    if (!trace_.problem.empty()) {
      find(ProofFinding::Kind::unproved, "bounds", "", trace_.problem);
    } else {
      for (const Event& event : trace_.events)
        if (event.access) bounds(event);
      maps();
      writers();
    }
    order();
    out_.seconds = std::chrono::duration<double>(Time::now() - start_).count();
    return std::move(out_);
  }

 private:
  void find(ProofFinding::Kind kind, const std::string& rule, const std::string& access,
            const std::string& reason) {
    const ProofFinding found{kind, rule, access, reason};
    for (const ProofFinding& other : out_.findings)
      if (other.rule == rule && other.access == access && other.kind == kind) return;
    out_.findings.push_back(found);
  }
  static std::string text(const Event& event) { return event.stmt ? ir::statement_text(*event.stmt) : ""; }

  // Whether the conditions can all hold. Each answer is kept.
  SolverAnswer ask(std::vector<Expr> conditions) {
    const auto false_one = [](const Expr& each) { return each.is_number(0); };
    if (std::any_of(conditions.begin(), conditions.end(), false_one)) return by_intervals();
    std::erase_if(conditions, [](const Expr& each) { return each.is_number(); });
    ir::Ranges known = trace_.ranges;
    for (const Expr& each : conditions) {
      if (!never_wraps(each, known)) continue;
      const Interval holds = known.of(each);
      if (holds.is_one() && !holds.low) return by_intervals();
      known.assume(each, true);
    }
    for (const Expr& each : conditions)
      if (const Interval holds = known.of(each); holds.is_one() && !holds.low && never_wraps(each, known))
        return by_intervals();
    std::string key;
    for (const Expr& each : conditions) key += ir::print(each) + ";";
    const auto kept = answers_.find(key);
    if (kept != answers_.end()) return kept->second;
    const auto left =
        options_.limit - std::chrono::duration_cast<std::chrono::milliseconds>(Time::now() - start_);
    SolverAnswer answer;
    if (options_.solver && left.count() > 0) {
      // One that is hard leaves time for the others.
      answer = options_.solver->ask(conditions, trace_.ranges, left / 2);
      ++out_.by_solver;
    }
    return answers_.emplace(std::move(key), std::move(answer)).first->second;
  }
  SolverAnswer by_intervals() {
    ++out_.by_intervals;
    return {SolverAnswer::Kind::never, {}, true};
  }

  // Notes what comes of a question whose answer should be never.
  void conclude(const SolverAnswer& answer, const std::string& rule, const Event& event,
                const std::string& what) {
    if (answer.kind == SolverAnswer::Kind::never) return;
    if (answer.kind == SolverAnswer::Kind::unknown)
      return find(ProofFinding::Kind::unproved, rule, text(event), "not decided in time: " + what);
    const std::string place = describe(answer, event);
    find(answer.certain ? ProofFinding::Kind::disproved : ProofFinding::Kind::unproved, rule, text(event),
         (answer.certain ? "" : "depends on what memory holds: ") + place + ": " + what);
  }

  std::string describe(const SolverAnswer& answer, const Event& event) const {
    auto value = [&](const Symbol& symbol) {
      const auto at = answer.values.find(symbol.get());
      return at == answer.values.end() ? trace_.ranges.of(Expr(symbol)).low : at->second;
    };
    const Places& places = trace_.places;
    std::string out = "block (";
    for (size_t i = 0; i < 3; ++i) out += (i ? ", " : "") + std::to_string(value(places.block[i]));
    out += "), thread " + std::to_string(value(places.thread));
    for (const auto& [symbol, number] : answer.values)
      if (symbol != places.thread.get() && symbol != places.block[0].get() &&
          symbol != places.block[1].get() && symbol != places.block[2].get())
        out += ", " + symbol->name.substr(0, symbol->name.find(" of ")) + " " + std::to_string(number);
    return out + (event.iteration.empty() ? "" : ", " + event.iteration);
  }

  static std::vector<Expr> with(std::vector<Expr> conditions, const Expr& more) {
    conditions.push_back(more);
    return conditions;
  }

  const Memory* memory_of(const Access& access) const {
    const auto at = trace_.memories.find(access.memory);
    return at == trace_.memories.end() ? nullptr : &at->second;
  }

  void bounds(const Event& event) {
    const Access& access = *event.access;
    const Memory* memory = memory_of(access);
    if (!memory)
      return find(ProofFinding::Kind::unproved, "bounds", text(event), "memory of an unknown size");
    if (access.bytes > 0) {
      const std::string what = std::to_string(access.bytes) + " bytes of " + memory->symbol->name +
                               ", which has " + std::to_string(memory->bytes);
      conclude(ask(with(event.where, less(access.at, 0))), "bounds", event, what + ", before its beginning");
      conclude(ask(with(event.where, less(memory->bytes - access.bytes, access.at))), "bounds", event, what);
    }
    if (access.alignment > memory->alignment)
      find(ProofFinding::Kind::disproved, "alignment", text(event),
           memory->symbol->name + " begins at a multiple of " + std::to_string(memory->alignment) +
               " bytes, not of " + std::to_string(access.alignment));
    else if (is_multiple(access.at, access.alignment))
      ++out_.by_intervals;
    else
      conclude(ask(with(event.where, operation(ir::Operator::not_equal, access.at % access.alignment, 0))),
               "alignment", event, "not at a multiple of " + std::to_string(access.alignment) + " bytes");
  }

  // Tensor maps describe no more than there is.
  void maps() {
    for (size_t i = 0; i < facts_.parameters.size(); ++i) {
      const auto& map = facts_.parameters[i].map;
      if (!map) continue;
      const std::string& name = kernel_.parameters[i].symbol->name;
      if (const Status status = check_tensor_map(*map); !status.ok())
        find(ProofFinding::Kind::disproved, "bounds", name, status.message());
      int64_t last = 0;
      for (size_t d = 0; d < map->shape.size(); ++d) last += (map->shape[d] - 1) * map->strides[d];
      if (last >= facts_.parameters[i].elements)
        find(ProofFinding::Kind::disproved, "bounds", name,
             "its last element is number " + std::to_string(last) + " of " +
                 std::to_string(facts_.parameters[i].elements));
    }
  }

  // The same expression for another thread, maybe of another block.
  class Other {
   public:
    Other(Prover& prover, bool other_block)
        : trace_(prover.trace_), twins_(prover.twins_), other_block_(other_block) {}
    Expr operator()(const Expr& expr) {
      std::set<Symbol> symbols;
      ir::visit_nodes(expr, [&](const ir::ExprNode& node) {
        if (node.symbol && node.symbol->space == ir::Space::variable) symbols.insert(node.symbol);
      });
      Expr out = expr;
      for (const Symbol& symbol : symbols) out = ir::replaced(out, symbol, Expr(twin(symbol)));
      return out;
    }
    Symbol twin(const Symbol& symbol) {
      const auto& block = trace_.places.block;
      if (!other_block_ && std::find(block.begin(), block.end(), symbol) != block.end()) return symbol;
      Symbol& out = twins_[symbol.get()];
      if (!out) {
        ir::SymbolData data = *symbol;
        data.name = "other " + data.name;
        out = std::make_shared<const ir::SymbolData>(std::move(data));
        trace_.ranges.set(*out, trace_.ranges.of(Expr(symbol)));
      }
      return out;
    }

   private:
    Trace& trace_;
    std::map<const ir::SymbolData*, Symbol>& twins_;
    const bool other_block_;
  };

  static Expr overlap(const Access& a, const Expr& at, const Access& b, const Expr& other) {
    const int64_t unit = std::max(a.bytes, b.bytes);
    // Where both are aligned to their own sizes, the smaller one lies in the larger one.
    const bool nested = a.bytes == a.alignment && b.bytes == b.alignment;
    if (nested && a.bytes == b.bytes) return equal(at, other);
    if (nested) return equal(at / unit, other / unit);
    return both(less(at, other + b.bytes), less(other, at + a.bytes));
  }

  // Every element of what the kernel writes has one writer.
  void writers() {
    for (size_t i = 0; i < kernel_.parameters.size(); ++i) {
      const ir::SymbolData& symbol = *kernel_.parameters[i].symbol;
      if (symbol.space != ir::Space::global || !symbol.written) continue;
      std::vector<const Event*> stores;
      for (const Event& event : trace_.events)
        if (event.access && event.access->memory == &symbol && event.access->kind == Kind::write)
          stores.push_back(&event);
      bool one_writer = true;
      for (size_t a = 0; a < stores.size(); ++a)
        for (size_t b = a; b < stores.size(); ++b) one_writer &= distinct(*stores[a], *stores[b], a == b);
      if (one_writer) covered(symbol, facts_.parameters[i].elements, stores);
    }
  }

  std::vector<Symbol> variables_of(const Event& event) const {
    std::set<const ir::SymbolData*> seen;
    std::vector<Symbol> out(trace_.places.block.begin(), trace_.places.block.end());
    out.push_back(trace_.places.thread);
    for (const Symbol& symbol : out) seen.insert(symbol.get());
    auto add = [&](const Expr& expr) {
      ir::visit_nodes(expr, [&](const ir::ExprNode& node) {
        if (node.symbol && node.symbol->space == ir::Space::variable && seen.insert(node.symbol.get()).second)
          out.push_back(node.symbol);
      });
    };
    add(event.access->at);
    for (const Expr& each : event.where) add(each);
    return out;
  }

  // Sizes of rows, matrices, ...: what the access's place is made of multiples of, and of a rest that is less.
  const std::vector<int64_t>& radices_of(const Event& event) {
    auto [at, fresh] = radices_.try_emplace(&event);
    if (!fresh || !never_wraps(event.access->at, trace_.ranges)) return at->second;
    const Linear form = linear_form(event.access->at);
    std::set<int64_t, std::greater<>> factors;
    for (const auto& [term, factor] : form.terms)
      if (factor > event.access->bytes) factors.insert(factor);
    for (int64_t radix : factors) {
      if (!at->second.empty() && at->second.back() % radix != 0) continue;
      const Expr rest = sum_of(digit(form, 0, radix));
      if (ask(with(event.where, either(less(rest, 0), less_equal(radix, rest)))).kind ==
          SolverAnswer::Kind::never)
        at->second.push_back(radix);
    }
    return at->second;
  }
  // Of what is less than a multiple of `above` (all if 0) the multiples of `radix`, or the rest if that is not there.
  static Linear digit(const Linear& form, int64_t above, int64_t rest_of) {
    Linear out;
    for (const auto& term : form.terms)
      if ((above == 0 || term.second % above != 0) && (rest_of == 0 || term.second % rest_of != 0))
        out.terms.push_back(term);
    out.constant = form.constant;
    return out;
  }

  // That two accesses meet; digit by digit where both have the same.
  std::vector<Expr> same_element(const Event& a, const Event& b, Other& other) {
    const Access &x = *a.access, &y = *b.access;
    std::vector<int64_t> radices;
    if (x.bytes == y.bytes && x.bytes == x.alignment && y.bytes == y.alignment) {
      const std::vector<int64_t>& of_b = radices_of(b);
      for (int64_t radix : radices_of(a))
        if (std::find(of_b.begin(), of_b.end(), radix) != of_b.end()) radices.push_back(radix);
    }
    if (radices.empty()) return {overlap(x, x.at, y, other(y.at))};
    const Linear first = linear_form(x.at), second = linear_form(y.at);
    std::vector<Expr> out;
    int64_t above = 0;
    auto meet = [&](int64_t radix) {
      auto part = [&](const Linear& form) {
        Linear all = digit(form, above, 0), digits;
        for (const auto& [term, factor] : all.terms)
          if (radix == 0 || factor % radix == 0)
            digits.terms.emplace_back(term, radix == 0 ? factor : factor / radix);
        digits.constant = radix == 0 ? form.constant : 0;
        return sum_of(digits);
      };
      out.push_back(equal(part(first), other(part(second))));
      above = radix;
    };
    for (int64_t radix : radices) meet(radix);
    meet(0);
    return out;
  }

  // Whether no element is written by both, or twice by one.
  bool distinct(const Event& a, const Event& b, bool same) {
    Other other(*this, true);
    std::vector<Expr> conditions = a.where;
    for (const Expr& each : b.where) conditions.push_back(other(each));
    for (const Expr& each : same_element(a, b, other)) conditions.push_back(each);
    auto differs = [&](const std::vector<Symbol>& variables) {
      Expr out = ir::truth(false);
      for (const Symbol& each : variables)
        if (!trace_.ranges.of(Expr(each)).is_one())
          out = either(out, operation(ir::Operator::not_equal, Expr(each), Expr(other.twin(each))));
      return out;
    };
    const Places& places = trace_.places;
    const std::vector<Symbol> threads{places.block[0], places.block[1], places.block[2], places.thread};
    const SolverAnswer twice = ask(same ? with(conditions, differs(variables_of(a))) : conditions);
    if (twice.kind == SolverAnswer::Kind::never) return true;
    const SolverAnswer two =
        twice.kind == SolverAnswer::Kind::sometimes ? ask(with(conditions, differs(threads))) : twice;
    if (two.kind == SolverAnswer::Kind::never)
      find(ProofFinding::Kind::unproved, "writers", text(a),
           "a thread writes an element twice: whether all are written is not counted");
    else
      conclude(two, "writers", a, "another thread writes the same element" + (same ? "" : ": " + text(b)));
    return false;
  }

  void covered(const ir::SymbolData& symbol, int64_t elements, const std::vector<const Event*>& stores) {
    int64_t written = 0;
    for (const Event* store : stores) {
      const auto count = count_values(variables_of(*store), store->where, trace_.ranges, kMostIntervals);
      if (!count)
        return find(ProofFinding::Kind::unproved, "writers", text(*store),
                    "too much to count whether every element is written");
      written += *count * store->access->bytes / ir::bytes_of(symbol.type);
    }
    if (written == elements) return;
    find(ProofFinding::Kind::disproved, "writers", stores.empty() ? symbol.name : text(*stores[0]),
         std::to_string(written) + " of " + std::to_string(elements) + " elements of " + symbol.name +
             " are written" + missing_element(symbol, elements, stores));
  }

  // ", not number 255": found by trying, if that does not take long.
  std::string missing_element(const ir::SymbolData& symbol, int64_t elements,
                              const std::vector<const Event*>& stores) const {
    if (elements > kMostTried) return "";
    std::vector<bool> written(static_cast<size_t>(elements), false);
    const int64_t size = ir::bytes_of(symbol.type);
    for (const Event* store : stores) {
      const Access& access = *store->access;
      const bool all = for_each_value(
          variables_of(*store), store->where, trace_.ranges, kMostTried, [&](const Values& values) {
            const int64_t first = evaluate(access.at, values).value_or(0) / size;
            for (int64_t i = first; i < std::min(elements, first + access.bytes / size); ++i)
              if (i >= 0) written[static_cast<size_t>(i)] = true;
          });
      if (!all) return "";
    }
    const auto at = std::find(written.begin(), written.end(), false);
    return at == written.end() ? "" : ", not number " + std::to_string(at - written.begin());
  }

  void order() {
    answers_.clear();
    twins_.clear();
    if (follow_order({})) return;
    // What depends on the block's place is gone through for each place.
    const std::array<bool, 3> decide = trace_.decide_trips;
    const std::array<int64_t, 3> grid = {facts_.grid.x, facts_.grid.y, facts_.grid.z};
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
      if (Time::now() - start_ > options_.limit)
        return find(ProofFinding::Kind::unproved, "phases", "", "not decided in time for each block");
      if (!follow_order(place)) return unproved_order();
    }
  }

  // False, and nothing found, where it depends on the block or on what memory holds what there is to find.
  bool follow_order(const BlockPlace& place) {
    trace_ = trace_kernel(kernel_, facts_, Follow::order, place);
    shape_of_event_.clear();
    if (!trace_.problem.empty()) return false;
    std::erase_if(trace_.events, [](const Event& event) {
      return event.access && (event.access->space != ir::Space::shared || event.access->bytes == 0);
    });
    const Ordered ordered = order_events(trace_, kernel_.threads);
    fault_ = ordered.fault;
    if (fault_ && !fault_->surely) return false;
    if (fault_)
      find_fault(ProofFinding::Kind::disproved);
    else
      races(ordered);
    return true;
  }

  void unproved_order() {
    if (!trace_.problem.empty()) return find(ProofFinding::Kind::unproved, "races", "", trace_.problem);
    find_fault(ProofFinding::Kind::unproved);
  }
  void find_fault(ProofFinding::Kind kind) {
    const Event none, &event = fault_->event >= 0 ? trace_.events[static_cast<size_t>(fault_->event)] : none;
    find(kind, "phases", text(event), fault_->what + (event.iteration.empty() ? "" : ", " + event.iteration));
  }

  const Event& event_of(const Ordered::Moment& moment) const {
    return trace_.events[static_cast<size_t>(moment.event)];
  }

  void races(const Ordered& ordered) {
    std::vector<const Ordered::Moment*> open;
    const bool clusters = std::any_of(trace_.events.begin(), trace_.events.end(), [](const Event& event) {
      return event.access && event.access->of_cluster;
    });
    for (const Ordered::Moment& moment : ordered.moments) {
      const Event& event = event_of(moment);
      open.push_back(&moment);
      const bool last_role =
          trace_.roles.empty() || (event.role == 0 && moment.event >= trace_.roles.back().begins);
      std::erase_if(open, [&](const Ordered::Moment* earlier) {
        if (earlier != &moment && ordered.before(trace_, *earlier, moment))
          return last_role && !clusters && is_whole(moment);
        pair(ordered, *earlier, moment);
        return false;
      });
      if (event.access->of_cluster &&
          (ordered.cluster_end.done.empty() || ordered.cluster_end.done[0] < moment.end))
        find(ProofFinding::Kind::disproved, "races", text(event),
             "a block may end while another reads its shared memory");
    }
  }
  // All threads of the first role come to it.
  bool is_whole(const Ordered::Moment& moment) const {
    size_t others = 32 * trace_.roles.size();
    return moment.threads->count() + others == static_cast<size_t>(kernel_.threads);
  }

  int shape_of(const Event& event) {
    const Access& access = *event.access;
    std::string key =
        ir::print(access.at) + "#" + std::to_string(access.bytes) + "#" + std::to_string(access.alignment);
    for (const Expr& each : event.where) key += ";" + ir::print(each);
    return shapes_.try_emplace(std::move(key), static_cast<int>(shapes_.size())).first->second;
  }
  int cached_shape(const Ordered::Moment& moment) {
    const auto [at, fresh] = shape_of_event_.try_emplace(moment.event, 0);
    if (fresh) at->second = shape_of(event_of(moment));
    return at->second;
  }

  void pair(const Ordered& ordered, const Ordered::Moment& first, const Ordered::Moment& second) {
    const Event &a = event_of(first), &b = event_of(second);
    const Access &x = *a.access, &y = *b.access;
    if (x.memory != y.memory || (x.kind == Kind::read && y.kind == Kind::read) ||
        (x.kind == Kind::signal && y.kind == Kind::signal))
      return;
    if (a.role != b.role && ordered.before(trace_, second, first)) return;
    const bool of_cluster = x.of_cluster || y.of_cluster;
    const bool itself = &first == &second;
    const bool follows = itself || (first.end <= second.event && !of_cluster);  // in its thread
    const auto warp_barrier =
        std::lower_bound(ordered.warp_barriers.begin(), ordered.warp_barriers.end(), first.end);
    const bool by_warp = follows && !itself && a.role == b.role &&
                         warp_barrier != ordered.warp_barriers.end() && *warp_barrier < second.event;
    const auto [seen, fresh] = pairs_.insert({cached_shape(first), cached_shape(second),
                                              (follows ? 1 : 0) + (by_warp ? 2 : 0) + (of_cluster ? 4 : 0)});
    if (!fresh) return;
    Other other(*this, of_cluster);
    std::vector<Expr> conditions = a.where;
    for (const Expr& each : b.where) conditions.push_back(other(each));
    const Expr thread(trace_.places.thread), twin(other.twin(trace_.places.thread));
    if (by_warp)
      conditions.push_back(operation(ir::Operator::not_equal, thread / 32, twin / 32));
    else if (follows)
      conditions.push_back(operation(ir::Operator::not_equal, thread, twin));
    conditions.push_back(overlap(x, x.at, y, other(y.at)));
    conclude(ask(conditions), "races", b,
             "the same bytes as " + (itself ? "another thread's" : text(a)) +
                 (a.iteration.empty() ? "" : " (" + a.iteration + ")") + ", with nothing that orders them");
  }

  const ir::Kernel& kernel_;
  const ir::LaunchFacts& facts_;
  const ProveOptions& options_;
  const Time::time_point start_;
  Trace trace_;
  std::optional<Ordered::Fault> fault_;            // of the order that was followed last
  std::map<const ir::SymbolData*, Symbol> twins_;  // what stands for the other thread's
  std::map<std::string, SolverAnswer> answers_;
  std::map<const Event*, std::vector<int64_t>> radices_;
  std::map<std::string, int> shapes_;
  std::map<int, int> shape_of_event_;
  std::set<std::array<int, 3>> pairs_;
  Proof out_;
};

}  // namespace

const ProofFinding* Proof::disproof() const {
  for (const ProofFinding& finding : findings)
    if (finding.kind == ProofFinding::Kind::disproved) return &finding;
  return nullptr;
}

std::string Proof::summary() const {
  if (proved()) return "proved";
  const ProofFinding& shown = disproof() ? *disproof() : findings[0];
  return std::string(disproof() ? "disproved: " : "unproved: ") + shown.rule + ": " + shown.access + ": " +
         shown.reason +
         (findings.size() > 1 ? " (and " + std::to_string(findings.size() - 1) + " more)" : "");
}

Proof prove_kernel(const ir::Kernel& kernel, const ir::LaunchFacts& facts, const ProveOptions& options) {
  return Prover(kernel, facts, options).run();
}

}  // namespace quern
