#include "core/search/generator.h"

#include <algorithm>
#include <charconv>
#include <mutex>

#include "core/base/threads.h"

namespace quern {

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kWantedParts = 64;
constexpr size_t kCheckEvery = 256;  // tried operators between two looks at clock and cancellation

// What all threads share.
struct Shared {
  explicit Shared(const GeneratorOptions& how) : options(how) {}
  const GeneratorOptions& options;
  std::atomic<bool> stopped{false};
  std::mutex mutex;
  GeneratorStop stop = GeneratorStop::exhausted;

  void stop_for(GeneratorStop reason) {
    std::lock_guard lock(mutex);
    if (!stopped.exchange(true)) stop = reason;
  }
  void look() {
    if (options.cancel && options.cancel->load(std::memory_order_relaxed))
      stop_for(GeneratorStop::cancelled);
    else if (Clock::now() >= options.deadline)
      stop_for(GeneratorStop::time_limit);
  }
};

// Depth-first through the choices of one part.
class Walker {
 public:
  Walker(const Terms& terms, const Universe& universe, Shared& shared, size_t max_dags)
      : terms_(terms), universe_(universe), shared_(shared), max_dags_(max_dags) {
    for (ClassId goal : terms.goals) need(goal);
  }

  size_t seen = 0, extended = 0, dags = 0;

  // Walks the subtree below the first `part.fixed` choices, from part.path on; `sink` gets complete DAGs.
  // False when stopped; part.path then says where to go on.
  bool walk(GeneratorState::Part& part, const std::function<void(const Dag&)>& sink) {
    std::vector<int> resume = part.path;
    part.path.resize(part.fixed);
    return descend(part, resume, 0, sink);
  }

  // Takes choices one after the other; calls sink if they make a DAG.
  void follow(const std::vector<int>& choices, const std::function<void(const Dag&)>& sink) {
    for (int choice : choices) {
      const int next = next_needed();
      if (next < 0 || choice < 0 || static_cast<size_t>(choice) >= universe_.of(needed_[next].id).size() ||
          !take(next, choice))
        return;
    }
    if (next_needed() < 0) emit(choices, sink);
  }

  // The prefixes with `depth` choices, or fewer if they are complete.
  void prefixes(size_t depth, std::vector<int>& path, std::vector<std::vector<int>>& found) {
    const int next = next_needed();
    if (next < 0 || path.size() == depth) {
      found.push_back(path);
      return;
    }
    const ClassId id = needed_[next].id;
    for (size_t i = 0; i < universe_.of(id).size(); ++i) {
      if (!take(next, static_cast<int>(i))) continue;
      path.push_back(static_cast<int>(i));
      prefixes(depth, path, found);
      path.pop_back();
      undo(next);
    }
  }

 private:
  struct Needed {
    ClassId id;
    const BlockTerm* term = nullptr;
    size_t needed_before = 0;  // length of needed_ when the term was chosen
  };

  bool descend(GeneratorState::Part& part, const std::vector<int>& resume, size_t depth,
               const std::function<void(const Dag&)>& sink) {
    const int next = next_needed();
    const bool on_resume = depth < resume.size();
    if (next < 0) {
      if (depth < part.fixed) return true;  // a state of another search; nothing here
      if (shared_.stopped) return false;
      return emit(part.path, sink);
    }
    const auto& choices = universe_.of(needed_[next].id);
    const bool fixed = depth < part.fixed;
    for (size_t i = on_resume ? static_cast<size_t>(resume[depth]) : 0; i < choices.size(); ++i) {
      if (!fixed) part.path.resize(depth), part.path.push_back(static_cast<int>(i));
      if (++seen % kCheckEvery == 0) shared_.look();
      if (shared_.stopped) return false;
      if (take(next, static_cast<int>(i))) {
        static const std::vector<int> kNothing;
        const bool same = on_resume && i == static_cast<size_t>(resume[depth]);
        const bool finished = descend(part, same ? resume : kNothing, depth + 1, sink);
        undo(next);
        if (!finished) return false;
      }
      if (fixed) return true;
    }
    return true;
  }

  void need(ClassId id) {
    for (const Needed& known : needed_)
      if (known.id == id) return;
    needed_.push_back({id, nullptr, 0});
    if (universe_.depth(id) > 0) ++open_;
  }

  int next_needed() const {
    for (size_t i = 0; i < needed_.size(); ++i)
      if (!needed_[i].term) return static_cast<int>(i);
    return -1;
  }

  // Whether `id` is `from`, or what has been chosen for `from` depends on it.
  bool depends(ClassId from, ClassId id) const {
    if (from == id) return true;
    for (const Needed& known : needed_)
      if (known.id == from) {
        if (known.term)
          for (ClassId operand : known.term->operands)
            if (depends(operand, id)) return true;
        return false;
      }
    return false;
  }

  bool take(int next, int choice) {
    const ClassId id = needed_[next].id;
    const BlockTerm& term = universe_.of(id)[choice];
    if (size_ + term.size() > shared_.options.bound) return false;
    for (ClassId operand : term.operands)
      if (universe_.depth(operand) >= Universe::kUnreachable || depends(operand, id)) return false;
    needed_[next].term = &term;
    needed_[next].needed_before = needed_.size();
    size_ += term.size();
    if (universe_.depth(id) > 0) --open_;
    for (ClassId operand : term.operands) need(operand);
    if (size_ + open_ > shared_.options.bound) {
      undo(next);
      return false;
    }
    ++extended;
    return true;
  }

  void undo(int next) {
    Needed& last = needed_[next];
    size_ -= last.term->size();
    for (size_t i = last.needed_before; i < needed_.size(); ++i)
      if (universe_.depth(needed_[i].id) > 0) --open_;
    needed_.resize(last.needed_before);
    needed_[next].term = nullptr;
    if (universe_.depth(needed_[next].id) > 0) ++open_;
  }

  // False when the part's limit is reached.
  bool emit(const std::vector<int>& choices, const std::function<void(const Dag&)>& sink) {
    Dag dag;
    dag.choices = choices;
    std::vector<int> position(needed_.size(), -1);
    for (ClassId goal : terms_.goals) dag.outputs.push_back(place(goal, dag, position));
    // A class may have lost a label that its operators still have; such a DAG has tiles that do not fit.
    for (const DagOp& op : dag.ops)
      if (op.labels != terms_.egraph.labels(op.id)) return true;
    if (dags == max_dags_) return false;
    ++dags;
    sink(dag);
    return true;
  }

  int place(ClassId id, Dag& dag, std::vector<int>& position) const {
    size_t at = 0;
    while (needed_[at].id != id) ++at;
    if (position[at] >= 0) return position[at];
    DagOp op{*needed_[at].term, id, {}, 0};
    for (ClassId operand : op.term.operands) {
      op.operands.push_back(place(operand, dag, position));
      op.labels |= dag.ops[op.operands.back()].labels;
    }
    if (op.term.kind == BlockKind::leaf) op.labels = label_set(terms_.inputs[op.term.index]);
    if (op.term.label >= 0) op.labels &= ~label_bit(op.term.label);
    if (op.term.label2 >= 0) op.labels &= ~label_bit(op.term.label2);
    dag.ops.push_back(std::move(op));
    return position[at] = static_cast<int>(dag.ops.size()) - 1;
  }

  const Terms& terms_;
  const Universe& universe_;
  Shared& shared_;
  const size_t max_dags_;
  std::vector<Needed> needed_;  // in the order in which they were first needed
  int size_ = 0;                // operators chosen
  int open_ = 0;                // needed classes without an operator that need at least one
};

std::vector<GeneratorState::Part> first_parts(const Terms& terms, const Universe& universe, Shared& shared) {
  std::vector<std::vector<int>> found;
  for (size_t depth = 0; depth <= 8 && found.size() < kWantedParts; ++depth) {
    std::vector<int> path;
    std::vector<std::vector<int>> next;
    Walker(terms, universe, shared, 0).prefixes(depth, path, next);
    const bool grown = depth == 0 || next.size() != found.size();
    found = std::move(next);
    if (!grown && depth > 3) break;
  }
  std::vector<GeneratorState::Part> parts;
  for (std::vector<int>& path : found) {
    const size_t fixed = path.size();
    parts.push_back({std::move(path), fixed, false});
  }
  return parts;
}

// Whether the path can be taken in this search.
bool fits(const Terms& terms, const Universe& universe, const GeneratorState::Part& part) {
  (void)terms;
  size_t most = 0;
  for (ClassId id : terms.egraph.classes()) most = std::max(most, universe.of(id).size());
  return part.fixed <= part.path.size() && std::all_of(part.path.begin(), part.path.end(), [&](int choice) {
           return choice >= 0 && static_cast<size_t>(choice) < most;
         });
}

}  // namespace

const char* generator_stop_name(GeneratorStop stop) {
  switch (stop) {
    case GeneratorStop::exhausted:
      return "exhausted";
    case GeneratorStop::dag_limit:
      return "limit of candidates";
    case GeneratorStop::time_limit:
      return "time limit";
    case GeneratorStop::cancelled:
      return "cancelled";
    case GeneratorStop::out_of_memory:
      return "out of memory";
  }
  return "?";
}

std::string GeneratorState::text() const {
  std::string text = "generator 1\nbound " + std::to_string(bound) + "\n";
  for (const Part& part : parts) {
    text += part.done ? "done" : "part";
    text += " " + std::to_string(part.fixed);
    for (int choice : part.path) text += " " + std::to_string(choice);
    text += "\n";
  }
  for (const std::vector<int>& choices : kept) {
    text += "kept";
    for (int choice : choices) text += " " + std::to_string(choice);
    text += "\n";
  }
  return text;
}

Result<GeneratorState> GeneratorState::parse(std::string_view text) {
  const Status wrong(ErrorCode::INVALID_ARGUMENT, "this is no state of a search that can be continued");
  std::vector<std::vector<std::string_view>> lines(1);
  while (!text.empty()) {
    const size_t end = text.find_first_of(" \n");
    if (end == std::string_view::npos) return wrong;
    lines.back().push_back(text.substr(0, end));
    if (text[end] == '\n') lines.emplace_back();
    text.remove_prefix(end + 1);
  }
  lines.pop_back();
  auto number = [](std::string_view word, auto& value) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc() && end == word.data() + word.size();
  };
  using Words = std::vector<std::string_view>;
  GeneratorState state;
  if (lines.size() < 2 || lines[0] != Words{"generator", "1"} || lines[1].size() != 2 ||
      lines[1][0] != "bound" || !number(lines[1][1], state.bound))
    return wrong;
  for (size_t i = 2; i < lines.size(); ++i) {
    const Words& words = lines[i];
    if (words[0] == "kept") {
      state.kept.emplace_back();
      for (size_t w = 1; w < words.size(); ++w)
        if (!number(words[w], state.kept.back().emplace_back())) return wrong;
      continue;
    }
    Part part;
    if (words.size() < 2 || (words[0] != "done" && words[0] != "part") || !number(words[1], part.fixed))
      return wrong;
    part.done = words[0] == "done";
    for (size_t w = 2; w < words.size(); ++w)
      if (!number(words[w], part.path.emplace_back())) return wrong;
    state.parts.push_back(std::move(part));
  }
  return state;
}

std::optional<Dag> replay(const Terms& terms, const Universe& universe, int bound,
                          const std::vector<int>& choices) {
  GeneratorOptions options;
  options.bound = bound;
  Shared shared(options);
  std::optional<Dag> found;
  Walker(terms, universe, shared, 1).follow(choices, [&](const Dag& dag) { found = dag; });
  return found;
}

Result<GeneratorReport> generate(const Terms& terms, const Universe& universe,
                                 const GeneratorOptions& options, GeneratorState& state,
                                 const std::function<void(size_t, const Dag&)>& sink) {
  const auto start = Clock::now();
  Shared shared(options);
  if (state.parts.empty()) state = {options.bound, first_parts(terms, universe, shared), {}};
  if (state.bound != options.bound)
    return Status(ErrorCode::INVALID_ARGUMENT, "the state is of a search with bound " +
                                                   std::to_string(state.bound) + ", not " +
                                                   std::to_string(options.bound));
  for (const GeneratorState::Part& part : state.parts)
    if (!fits(terms, universe, part))
      return Status(ErrorCode::INVALID_ARGUMENT, "the state is of a search for another graph");
  GeneratorReport report;
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next++) < state.parts.size();) {
      GeneratorState::Part& part = state.parts[i];
      if (part.done) continue;
      shared.look();
      // Each part has its share of the limit, so that what comes does not depend on the threads.
      Walker walker(terms, universe, shared, std::max<size_t>(1, options.max_dags / state.parts.size()));
      part.done = walker.walk(part, [&](const Dag& dag) { sink(i, dag); });
      std::lock_guard lock(shared.mutex);
      report.seen += walker.seen;
      report.extended += walker.extended;
      report.dags += walker.dags;
      if (!part.done && !shared.stopped) shared.stop = GeneratorStop::dag_limit;
    }
  };
  if (!run_on_threads(options.threads, work)) shared.stop = GeneratorStop::out_of_memory;
  report.stop = shared.stop;
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

std::string print_states(const std::map<size_t, GeneratorState>& states) {
  std::string text;
  for (const auto& [number, state] : states) text += "piece " + std::to_string(number) + "\n" + state.text();
  return text;
}

Result<std::map<size_t, GeneratorState>> parse_states(const std::string& text) {
  std::map<size_t, GeneratorState> states;
  for (size_t at = 0; at < text.size();) {
    const size_t line_end = text.find('\n', at);
    if (text.compare(at, 6, "piece ") != 0 || line_end == std::string::npos)
      return Status(ErrorCode::INVALID_ARGUMENT, "this is no state of a search that can be continued");
    const size_t next = std::min(text.find("\npiece ", line_end), text.size() - 1) + 1;
    Result<GeneratorState> state =
        GeneratorState::parse(std::string_view(text).substr(line_end + 1, next - line_end - 1));
    if (!state) return state.status();
    states[std::strtoul(text.c_str() + at + 6, nullptr, 10)] = std::move(*state);
    at = next;
  }
  return states;
}

}  // namespace quern
