#include <algorithm>
#include <set>

#include "core/prove/arithmetic.h"
#include "core/prove/count.h"
#include "core/prove/questions.h"

namespace quern::proof {

namespace {

using Kind = Access::Kind;

// Of a count. Persistent blocks of attention whose last tile begins earlier (11 tiles of 192 rows, 32 heads) need more than 100,000,
// and 0.1 s for them.
constexpr int64_t kMostIntervals = 400000;
constexpr int64_t kMostTried = 1 << 20;  // values, to name an element that nobody writes

class Writers {
 public:
  explicit Writers(Questions& questions) : questions_(questions) {}

  void run() {
    for (size_t i = 0; i < questions_.kernel().parameters.size(); ++i) {
      const ir::SymbolData& symbol = *questions_.kernel().parameters[i].symbol;
      if (symbol.space == ir::Space::shared || !symbol.written) continue;
      const auto& map = questions_.facts().parameters[i].map;
      std::vector<const Event*> stores;
      for (const Event& event : questions_.trace().events)
        if (event.access && event.access->memory == &symbol && event.access->kind == Kind::write)
          stores.push_back(&event);
      bool one_writer = true;
      for (size_t a = 0; a < stores.size(); ++a)
        for (size_t b = a; b < stores.size(); ++b) one_writer &= distinct(*stores[a], *stores[b], a == b);
      if (one_writer)
        covered(symbol, questions_.facts().parameters[i].elements,
                map ? element_bytes(*map) : ir::bytes_of(symbol.type), stores);
    }
  }

 private:
  std::vector<Symbol> variables_of(const Event& event) const {
    std::set<const ir::SymbolData*> seen;
    std::vector<Symbol> out(questions_.trace().places.block.begin(), questions_.trace().places.block.end());
    out.push_back(questions_.trace().places.thread);
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

  // Sizes of rows, matrices, ...: what the access's place is made of multiples of, and of a rest that is
  // less.
  const std::vector<int64_t>& radices_of(const Event& event) {
    auto [at, fresh] = radices_.try_emplace(&event);
    if (!fresh || !never_wraps(event.access->at, questions_.trace().ranges)) return at->second;
    const Linear form = linear_form(event.access->at);
    std::set<int64_t, std::greater<>> factors;
    for (const auto& [term, factor] : form.terms)
      if (factor > event.access->bytes) factors.insert(factor);
    for (int64_t radix : factors) {
      if (!at->second.empty() && at->second.back() % radix != 0) continue;
      const Expr rest = sum_of(digit(form, 0, radix));
      if (questions_.ask(with(event.where, either(less(rest, 0), less_equal(radix, rest)))).kind ==
          SolverAnswer::Kind::never)
        at->second.push_back(radix);
    }
    return at->second;
  }
  // Of what is less than a multiple of `above` (all if 0) the multiples of `radix`, or the rest if that is
  // not there.
  static Linear digit(const Linear& form, int64_t above, int64_t rest_of) {
    Linear out;
    for (const auto& term : form.terms)
      if ((above == 0 || term.second % above != 0) && (rest_of == 0 || term.second % rest_of != 0))
        out.terms.push_back(term);
    out.constant = form.constant;
    return out;
  }

  // That two accesses meet; digit by digit where both have the same.
  std::vector<Expr> same_element(const Event& a, const Event& b, OtherThread& other) {
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
    OtherThread other(questions_, true);
    std::vector<Expr> conditions = a.where;
    for (const Expr& each : b.where) conditions.push_back(other(each));
    for (const Expr& each : same_element(a, b, other)) conditions.push_back(each);
    auto differs = [&](const std::vector<Symbol>& variables) {
      Expr out = ir::truth(false);
      for (const Symbol& each : variables)
        if (!questions_.trace().ranges.of(Expr(each)).is_one())
          out = either(out, operation(ir::Operator::not_equal, Expr(each), Expr(other.twin(each))));
      return out;
    };
    const Places& places = questions_.trace().places;
    const std::vector<Symbol> threads{places.block[0], places.block[1], places.block[2], places.thread};
    const SolverAnswer twice = questions_.ask(same ? with(conditions, differs(variables_of(a))) : conditions);
    if (twice.kind == SolverAnswer::Kind::never) return true;
    const SolverAnswer two = twice.kind == SolverAnswer::Kind::sometimes
                                 ? questions_.ask(with(conditions, differs(threads)))
                                 : twice;
    if (two.kind == SolverAnswer::Kind::never)
      questions_.find(ProofFinding::Kind::unproved, "writers", text_of(a),
                      "a thread writes an element twice: whether all are written is not counted");
    else
      questions_.conclude(two, "writers", a,
                          "another thread writes the same element" + (same ? "" : ": " + text_of(b)));
    return false;
  }

  // Elements of `size` bytes.
  void covered(const ir::SymbolData& symbol, int64_t elements, int64_t size,
               const std::vector<const Event*>& stores) {
    int64_t written = 0;
    for (const Event* store : stores) {
      const auto count =
          count_values(variables_of(*store), store->where, questions_.trace().ranges, kMostIntervals);
      if (!count)
        return questions_.find(ProofFinding::Kind::unproved, "writers", text_of(*store),
                               "too much to count whether every element is written");
      written += *count * store->access->bytes / size;
    }
    if (written == elements) return;
    questions_.find(ProofFinding::Kind::disproved, "writers",
                    stores.empty() ? symbol.name : text_of(*stores[0]),
                    std::to_string(written) + " of " + std::to_string(elements) + " elements of " +
                        symbol.name + " are written" + missing_element(elements, size, stores));
  }

  // ", not number 255": found by trying, if that does not take long.
  std::string missing_element(int64_t elements, int64_t size, const std::vector<const Event*>& stores) const {
    if (elements > kMostTried) return "";
    std::vector<bool> written(static_cast<size_t>(elements), false);
    for (const Event* store : stores) {
      const Access& access = *store->access;
      const bool all =
          for_each_value(variables_of(*store), store->where, questions_.trace().ranges, kMostTried,
                         [&](const Values& values) {
                           const int64_t first = evaluate(access.at, values).value_or(0) / size;
                           for (int64_t i = first; i < std::min(elements, first + access.bytes / size); ++i)
                             if (i >= 0) written[static_cast<size_t>(i)] = true;
                         });
      if (!all) return "";
    }
    const auto at = std::find(written.begin(), written.end(), false);
    return at == written.end() ? "" : ", not number " + std::to_string(at - written.begin());
  }

  Questions& questions_;
  std::map<const Event*, std::vector<int64_t>> radices_;
};

}  // namespace

void prove_writers(Questions& questions) { Writers(questions).run(); }

}  // namespace quern::proof
