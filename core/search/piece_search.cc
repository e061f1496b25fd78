#include "core/search/piece_search.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>

#include "core/base/threads.h"
#include "core/search/cuts.h"
#include "core/search/factors.h"
#include "core/search/keeper.h"
#include "core/search/whole.h"
#include "core/verify/verifier.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kOtherUs = 1;  // of an operator that the graph has not, and that may round otherwise or overflow
constexpr double kOtherShare = 0.03;  // of the time of a design, the same
constexpr double kOperatorUs = 1e-4;   // of DAGs with the same arithmetic the smaller one is better
constexpr double kNextKernelUs = 1.2;  // between kernels that depend on each other
constexpr size_t kMostNodes = 8000;    // of the e-graph
constexpr double kWorthwhile = 2;      // designs that take longer than this times the best are dropped
constexpr size_t kSizesPerRoles = 3;   // tile counts that go on for one choice of roles
constexpr size_t kRolesPerKernel = 2;  // of each kernel, where there are two
constexpr size_t kDesignsPerStructure = 3;
constexpr size_t kCuts = 16;  // of a DAG into kernels
constexpr int kMostVerifiers = 4;         // each remembers some 100 MB of long attention
// Values for samples at the full shape of a muGraph. What is published is verified again, with all of what a verifier takes
// by itself.
constexpr int64_t kSampleBudget = 500'000;
constexpr size_t kMostWrittenDags = 256;  // of a piece as it is written: its norms may be definitions, or not

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string kernel_key(const KernelDag& kernel) {
  std::string key;
  for (const DagOp& op : kernel.dag.ops) {
    key += std::to_string(static_cast<int>(op.term.kind)) + "." + std::to_string(op.id) + "." +
           std::to_string(op.term.index) + "." + std::to_string(static_cast<int>(op.term.code)) + "." +
           std::to_string(op.term.label) + "(";
    for (int operand : op.operands) key += std::to_string(operand) + ",";
    key += ")";
  }
  for (int output : kernel.dag.outputs) key += ">" + std::to_string(output);
  for (int store : kernel.stores) key += "s" + std::to_string(store);
  return key;
}

struct SizedRoles {
  Roles roles;
  std::vector<SizedKernel> sizes;  // best first, at least one
};

struct CostedDesign {
  Design design;
  std::vector<Cost> costs;
  double us = 0;
  std::string structure;
  size_t dag = 0;
  int others = 0;  // operators of the DAG that the graph has not

  // What has the graph's own operators comes first where it takes as long.
  double rank() const { return us * (1 + kOtherShare * others); }
};

// A grid axis of one part is none: its label is one of the tile.
void drop_single_parts(KernelDesign& kernel) {
  std::vector<Label>& grid = kernel.roles.grid;
  auto& parts = kernel.sizes.grid;
  for (size_t axis = grid.size(); axis-- > 0;) {
    if (parts[axis] > 1) continue;
    grid.erase(grid.begin() + static_cast<std::ptrdiff_t>(axis));
    std::rotate(parts.begin() + static_cast<std::ptrdiff_t>(axis),
                parts.begin() + static_cast<std::ptrdiff_t>(axis) + 1, parts.end());
  }
}

class PieceSearch {
 public:
  PieceSearch(const Piece& piece, const Target& target, const SearchOptions& options,
              Clock::time_point deadline)
      : piece_(piece.graph),
        numbered_(piece.numbered),
        as_written_(piece.as_written),
        operators_(piece.operators),
        target_(target),
        options_(options),
        start_(Clock::now()),
        deadline_(deadline) {}

  Result<PieceResult> run(GeneratorState state) {
    result_.state = std::move(state);
    Result<Terms> terms = make_terms(piece_);
    if (!terms) {
      result_.report.outside = terms.status().message();
      return std::move(result_);
    }
    terms_ = std::move(*terms);
    Status status;
    if (!within_memory([&] { status = explore(); })) result_.report.out_of_memory = true;
    if (!status.ok()) return status;
    stopped();
    return std::move(result_);
  }

 private:
  bool is_cancelled() const { return options_.cancel && options_.cancel->load(std::memory_order_relaxed); }
  bool is_over() const { return is_cancelled() || Clock::now() >= deadline_; }
  // The same, and says so in the report.
  bool stopped() {
    PieceReport& report = result_.report;
    report.cancelled |= is_cancelled();
    report.timed_out |= Clock::now() >= deadline_;
    return report.cancelled || report.timed_out;
  }

  template <class F>
  static bool within_memory(F step) {
    try {
      step();
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  // All steps. Out of memory, a step ends with what it has, or throws std::bad_alloc.
  Status explore() {
    if (!as_written_) saturate_terms();
    const Prefixes* prefixes = result_.report.prefixes ? &*result_.report.prefixes : nullptr;
    const Universe universe(terms_, prefixes);
    result_.report.admitted = universe.admitted();
    if (Status status = generate_dags(universe); !status.ok()) return status;
    design_kernels();
    emit();
    return {};
  }

  // The time up to which a step may use what is left, when steps after it need some too.
  Clock::time_point share(double of_rest) const {
    const auto now = Clock::now();
    return now >= deadline_ ? deadline_
                            : now + std::chrono::duration_cast<Clock::duration>((deadline_ - now) * of_rest);
  }

  void saturate_terms() {
    const auto start = Clock::now();
    // The limit on nodes is what stops large pieces, so that what is found does not depend on the machine.
    SaturationLimits limits;
    limits.nodes = kMostNodes;
    limits.time = std::chrono::duration_cast<std::chrono::milliseconds>(share(0.4) - start);
    PieceReport& report = result_.report;
    const EGraph program = terms_.egraph;
    const std::vector<ClassId> goals = terms_.goals;
    // The program as it is written can still be searched without its other forms.
    if (!within_memory([&] { report.saturation = saturate(terms_.egraph, all_axioms(), limits); })) {
      report.out_of_memory = true;
      terms_.egraph = program;
      terms_.goals = goals;
    }
    for (auto* ids : {&terms_.goals, &terms_.of_value})
      for (ClassId& id : *ids)
        if (id >= 0) id = terms_.egraph.find(id);
    report.nodes = terms_.egraph.node_count();
    report.classes = terms_.egraph.classes().size();
    report.saturate_s = seconds_since(start);
    if (!options_.oracle) return;
    const std::unique_ptr<Oracle> oracle = options_.oracle(program, goals, terms_.egraph);
    report.prefixes = grow_prefixes(terms_.egraph, *oracle, share(0.8), [&] { return stopped(); });
    report.prefixes->seconds = seconds_since(start) - report.saturate_s;
    report.timed_out |= !report.prefixes->finished;
  }

  Status generate_dags(const Universe& universe) {
    const auto start = Clock::now();
    GeneratorOptions options;
    options.bound =
        as_written_ ? static_cast<int>(terms_.egraph.node_count()) : std::max(options_.bound, operators_);
    options.threads = options_.threads;
    options.max_dags = as_written_ ? kMostWrittenDags : options_.max_dags;
    options.deadline = share(0.5);
    options.cancel = options_.cancel;
    std::mutex mutex;
    std::map<size_t, Keeper> keepers;  // by part
    const Factors factors(terms_);
    auto scored = [&](const Dag& dag) {
      return Kept{arithmetic_us(dag, terms_, target_) + kOperatorUs * static_cast<double>(dag.ops.size()) +
                      kOtherUs * factors.operators_not_of_graph(dag),
                  dag};
    };
    auto sink = [&](size_t part, const Dag& dag) {
      if (factors.are_moved(dag)) return;
      std::unique_lock lock(mutex);
      Keeper& keeper = keepers[part];
      lock.unlock();
      keeper.offer(form_of(dag, terms_), scored(dag));
    };
    Keeper all;
    for (const std::vector<int>& choices : result_.state.kept)
      if (std::optional<Dag> dag = replay(terms_, universe, options.bound, choices))
        all.offer(form_of(*dag, terms_), scored(*dag));
    Result<GeneratorReport> report = generate(terms_, universe, options, result_.state, sink);
    if (!report) return report.status();
    for (const auto& [part, keeper] : keepers) all.merge(keeper);
    result_.state.kept.clear();
    for (Kept& kept : all.all()) {
      result_.state.kept.push_back(kept.dag.choices);
      others_.push_back(factors.operators_not_of_graph(kept.dag));
      kept_.push_back(std::move(kept.dag));
    }
    result_.report.generator = *report;
    result_.report.out_of_memory |= report->stop == GeneratorStop::out_of_memory;
    result_.report.kept = kept_.size();
    result_.report.generate_s = seconds_since(start);
    result_.finished = report->stop == GeneratorStop::exhausted;
    return {};
  }

  // ---- kernels ----

  void design_kernels() {
    const auto start = Clock::now();
    std::vector<std::pair<size_t, Cut>> cuts;  // with the DAG
    std::map<std::string, size_t> known;
    std::vector<std::pair<const KernelDag*, const Cut*>> kernels;
    for (size_t d = 0; d < kept_.size(); ++d)
      for (Cut& cut : kernel_cuts(kept_[d], terms_, options_.kernels > 1 ? kCuts : 1)) {
        for (Cut& changed : with_whole_reductions(cut, terms_)) cuts.emplace_back(d, std::move(changed));
        cuts.emplace_back(d, std::move(cut));
      }
    for (const auto& [dag, cut] : cuts)
      for (const KernelDag& kernel : cut.kernels)
        if (known.try_emplace(kernel_key(kernel), kernels.size()).second) kernels.emplace_back(&kernel, &cut);
    std::vector<std::vector<SizedRoles>> sized(kernels.size());
    std::mutex mutex;
    const auto deadline = share(0.6);
    const bool enough_memory = run_for_each(kernels.size(), options_.threads, [&](size_t i) {
      if (Clock::now() >= deadline || (options_.cancel && *options_.cancel)) return;
      std::vector<std::string> why;
      sized[i] = size_kernel(*kernels[i].first, *kernels[i].second, why);
      std::lock_guard lock(mutex);
      result_.report.roles += sized[i].size();
      for (std::string& reason : why) reasons_.insert(std::move(reason));
    });
    result_.report.out_of_memory |= !enough_memory;
    result_.report.kernels = kernels.size();
    result_.report.timed_out |= Clock::now() >= deadline;
    for (const auto& [dag, cut] : cuts) {
      std::vector<const std::vector<SizedRoles>*> choices;
      for (const KernelDag& kernel : cut.kernels) choices.push_back(&sized[known[kernel_key(kernel)]]);
      add_designs(dag, cut, choices);
    }
    result_.report.reasons.assign(reasons_.begin(), reasons_.end());
    result_.report.design_s = seconds_since(start);
  }

  std::vector<SizedRoles> size_kernel(const KernelDag& kernel, const Cut& cut,
                                      std::vector<std::string>& why) {
    std::vector<SizedRoles> found;
    const std::vector<double> bytes = element_bytes(piece_, numbered_, cut);
    for (Roles& roles : legal_roles(kernel, cut.tensors, terms_, target_, &why)) {
      const KernelModel model(kernel, roles, cut.tensors, bytes, terms_, target_);
      std::vector<SizedKernel> sizes = best_sizes(model, roles, terms_, target_, kSizesPerRoles,
                                                  [&](const Sizes& size) { return allows(roles, size); });
      if (!sizes.empty()) found.push_back({std::move(roles), std::move(sizes)});
    }
    std::stable_sort(found.begin(), found.end(), [](const SizedRoles& a, const SizedRoles& b) {
      return a.sizes[0].cost.us < b.sizes[0].cost.us;
    });
    return found;
  }

  // Whether the caller's constraints allow a grid and a number of iterations; maps are checked when they are
  // known.
  bool allows(const Roles& roles, const Sizes& sizes) const {
    if (options_.constraints.empty()) return true;
    std::array<int64_t, kGridAxes> grid = {sizes.grid[0], sizes.grid[1], sizes.grid[2], 1};
    if (roles.split == Split::second_kernel) grid[roles.split_axis()] = sizes.ranks;
    return options_.constraints.allow_grid(grid) && options_.constraints.allow_trip_count(sizes.trip_count);
  }

  void add_designs(size_t dag, const Cut& cut, const std::vector<const std::vector<SizedRoles>*>& choices) {
    for (const auto* choice : choices)
      if (choice->empty()) return;
    if (cut.kernels.size() == 1) {
      for (const SizedRoles& sized : *choices[0])
        for (const SizedKernel& sizes : sized.sizes) add_design(dag, cut, {{&sized.roles, &sizes}});
      return;
    }
    for (size_t i = 0; i < std::min(kRolesPerKernel, choices[0]->size()); ++i)
      for (size_t j = 0; j < std::min(kRolesPerKernel, choices[1]->size()); ++j) {
        const SizedRoles &first = (*choices[0])[i], &second = (*choices[1])[j];
        add_design(dag, cut, {{&first.roles, &first.sizes[0]}, {&second.roles, &second.sizes[0]}});
      }
  }

  void add_design(size_t dag, const Cut& cut,
                  const std::vector<std::pair<const Roles*, const SizedKernel*>>& kernels) {
    CostedDesign found{{{}, cut.tensors, cut.handed_on}, {}, 0, "", dag, others_[dag]};
    for (size_t k = 0; k < kernels.size(); ++k) {
      const auto& [roles, sized] = kernels[k];
      found.design.kernels.push_back({cut.kernels[k], *roles, sized->sizes});
      if (options_.constraints.empty()) drop_single_parts(found.design.kernels.back());
      found.costs.push_back(sized->cost);
      found.us += sized->cost.us + (k > 0 ? kNextKernelUs : 0);
      found.structure += print_roles(found.design.kernels.back(), terms_) + "\n";
    }
    ++result_.report.designs;
    // DAGs of one form are alternatives of one structure.
    std::vector<CostedDesign>& best = designs_[found.structure + form_of(kept_[dag], terms_)];
    const auto at = std::upper_bound(best.begin(), best.end(), found.rank(),
                                     [](double rank, const CostedDesign& known) { return rank < known.rank(); });
    if (at == best.end() && best.size() == kDesignsPerStructure) return;
    best.insert(at, std::move(found));
    if (best.size() > kDesignsPerStructure) best.pop_back();
  }

  // ---- muGraphs ----

  // The best of every structure, then what else is good; as many as are wanted, best first. Among them what has most of the
  // graph's own operators: where inputs are such that others overflow it is what is left.
  std::vector<CostedDesign> choose() {
    std::vector<CostedDesign> first, rest, chosen;
    for (auto& [structure, designs] : designs_)
      for (size_t i = 0; i < designs.size(); ++i) (i == 0 ? first : rest).push_back(std::move(designs[i]));
    auto better = [](const CostedDesign& a, const CostedDesign& b) {
      return std::pair(a.rank(), std::string_view(a.structure)) < std::pair(b.rank(), std::string_view(b.structure));
    };
    std::stable_sort(first.begin(), first.end(), better);
    std::stable_sort(rest.begin(), rest.end(), better);
    if (first.size() > options_.results) {
      const auto own =
          std::min_element(first.begin(), first.end(),
                           [](const CostedDesign& a, const CostedDesign& b) { return a.others < b.others; });
      if (own != first.begin() && own->us <= kWorthwhile * first[0].us)
        std::rotate(first.begin() + 1, own, own + 1);
    }
    for (auto* designs : {&first, &rest})
      for (CostedDesign& design : *designs)
        if (chosen.size() < options_.results && design.us <= kWorthwhile * first[0].us)
          chosen.push_back(std::move(design));
    std::stable_sort(chosen.begin(), chosen.end(), better);
    return chosen;
  }

  // What has become of a design.
  struct Emitted {
    std::optional<Candidate> candidate;
    bool derived = false, refused = false, undecided = false;
    std::string failure;
  };

  // Each thread has a verifier of its own, which remembers what the piece computes.
  void emit() {
    const auto start = Clock::now();
    const std::vector<CostedDesign> chosen = choose();
    std::vector<Emitted> emitted(chosen.size());
    std::atomic<size_t> next{0};
    const bool enough_memory =
        run_on_threads(std::min({options_.threads, kMostVerifiers, static_cast<int>(chosen.size())}), [&] {
          Verifier verifier(piece_, {.seed = options_.seed,
                                     .sample_budget = kSampleBudget,
                                     .cheap_work = 0,
                                     .stop = [this] { return is_over(); }});
          for (size_t i; (i = next++) < chosen.size() && !is_over();)
            emitted[i] = emit_one(chosen[i], verifier);
        });
    PieceReport& report = result_.report;
    for (Emitted& each : emitted) {
      report.emitted += each.derived;
      report.refused_maps += each.refused;
      report.undecided += each.undecided;
      if (!each.failure.empty()) report.failures.push_back(std::move(each.failure));
      if (!each.candidate) continue;
      ++report.verified;
      result_.candidates.push_back(std::move(*each.candidate));
    }
    report.out_of_memory |= !enough_memory;
    report.verify_s = seconds_since(start);
  }

  // No candidate when the muGraph is not allowed, or not shown to be right.
  Emitted emit_one(const CostedDesign& chosen, Verifier& verifier) const {
    Emitted out;
    Result<MuGraph> mugraph = derive(piece_, terms_, chosen.design);
    Candidate candidate{{},           chosen.us, chosen.structure, print_dag(kept_[chosen.dag], terms_),
                        chosen.costs, {},        chosen.others};
    auto fail = [&](const std::string& why) {
      out.failure = why + "\n" + candidate.structure + candidate.operators;
      return out;
    };
    if (!mugraph) return fail(mugraph.status().message());
    out.derived = true;
    out.refused = !options_.constraints.allow(*mugraph);
    if (out.refused) return out;
    Certificate certificate = verifier.verify(*mugraph);
    out.undecided = certificate.verdict == Verdict::undecided && !is_over();
    if (certificate.verdict == Verdict::rejected) return fail(certificate.reason);
    if (certificate.verdict == Verdict::undecided) return out;
    candidate.mugraph = std::move(*mugraph);
    candidate.certificates = {std::move(certificate)};
    out.candidate = std::move(candidate);
    return out;
  }

  const Graph& piece_;
  const std::vector<bool>& numbered_;
  const bool as_written_;
  const int operators_;
  const Target& target_;
  const SearchOptions& options_;
  const Clock::time_point start_, deadline_;
  Terms terms_;
  std::vector<Dag> kept_;
  std::vector<int> others_;  // operators of each that the graph has not
  std::set<std::string> reasons_;
  std::map<std::string, std::vector<CostedDesign>> designs_;  // by structure
  PieceResult result_;
};

}  // namespace

Result<PieceResult> search_piece(const Piece& piece, const Target& target, const SearchOptions& options,
                                 std::chrono::steady_clock::time_point deadline, GeneratorState state) {
  return PieceSearch(piece, target, options, deadline).run(std::move(state));
}

}  // namespace quern
