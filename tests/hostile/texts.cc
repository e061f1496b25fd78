#include "tests/hostile/texts.h"

#include <random>

#include "core/codegen/mugraph_emitter.h"
#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/optimize/ranking.h"
#include "core/verify/verifier.h"
#include "tests/support/hostile_graph.h"

namespace quern {

namespace {

constexpr size_t kBatch = 64;             // mutants of a process
constexpr unsigned kSecondsAMutant = 20;  // before it counts as a hang

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

// Words, numbers and single other characters; together they are the text.
std::vector<std::string> tokens_of(const std::string& text) {
  std::vector<std::string> tokens;
  for (char c : text)
    if (!tokens.empty() && in_word(c) && in_word(tokens.back().back()))
      tokens.back() += c;
    else
      tokens.emplace_back(1, c);
  return tokens;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (char c : text) {
    lines.back() += c;
    if (c == '\n') lines.emplace_back();
  }
  return lines;
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

class Mutation {
 public:
  explicit Mutation(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15) {}

  Texts apply(Texts texts) {
    std::string& text = below(8) == 0 ? texts.schedule : below(2) ? texts.graph : texts.mugraph;
    for (size_t changes = 1 + below(4); changes > 0; --changes) {
      switch (below(8)) {
        case 0:
          change_bytes(text);
          break;
        case 1:
        case 2:
          change_lines(text);
          break;
        default:
          change_tokens(text);
          break;
      }
    }
    return texts;
  }

 private:
  size_t below(size_t n) { return n ? random_() % n : 0; }

  void change_bytes(std::string& text) {
    const size_t at = below(text.size() + 1);
    const char byte = below(2) ? static_cast<char>(random_()) : "[]{}(),:=#-\n\0e9"[below(15)];
    switch (below(4)) {
      case 0:
        text.insert(at, 1, byte);
        break;
      case 1:
        text.erase(at, 1 + below(3));
        break;
      case 2:
        text.resize(at);  // cut off
        break;
      default:
        if (at < text.size()) text[at] = byte;
        break;
    }
  }

  void change_tokens(std::string& text) {
    static const char* const kNumbers[] = {"0",
                                           "1",
                                           "-1",
                                           "2",
                                           "7",
                                           "8",
                                           "9",
                                           "65536",
                                           "1e400",
                                           "2147483648",
                                           "-inf",
                                           "nan",
                                           "4096",
                                           "9223372036854775807",
                                           "99999999999999999999",
                                           "0.5",
                                           "1e-300"};
    static const char* const kWords[] = {"f16",  "bf16",    "f32",   "i32", "bool",
                                         "axis", "strides", "const", "inf", "true"};
    std::vector<std::string> tokens = tokens_of(text);
    if (tokens.empty()) return;
    // A word or a number mostly: the rest is punctuation.
    size_t at = below(tokens.size());
    for (int tries = 0; tries < 8 && !in_word(tokens[at][0]); ++tries) at = below(tokens.size());
    std::string& token = tokens[at];
    switch (below(6)) {
      case 0:
        token.clear();
        break;
      case 1:
        token += token;
        break;
      case 2:
        std::swap(token, tokens[below(tokens.size())]);
        break;
      case 3:
        token = kWords[below(std::size(kWords))];
        break;
      case 4:
        token = tokens[below(tokens.size())];
        break;
      default:
        token = std::isdigit(static_cast<unsigned char>(token[0])) || below(4) == 0
                    ? kNumbers[below(std::size(kNumbers))]
                    : tokens[below(tokens.size())];
        break;
    }
    text = join(tokens);
  }

  void change_lines(std::string& text) {
    std::vector<std::string> lines = lines_of(text);
    const size_t at = below(lines.size()), other = below(lines.size());
    switch (below(4)) {
      case 0:
        lines.erase(lines.begin() + static_cast<ptrdiff_t>(at));
        break;
      case 1:
        lines.insert(lines.begin() + static_cast<ptrdiff_t>(at), std::string(lines[other]));
        break;
      default:
        std::swap(lines[at], lines[other]);
        break;
    }
    text = join(lines);
  }

  std::mt19937_64 random_;
};

std::string print(const Texts& texts) {
  return "target " + texts.target + "\n== graph\n" + texts.graph + "== mugraph\n" + texts.mugraph +
         "== schedule\n" + texts.schedule;
}

void try_texts(const Texts& texts, Report& report) {
  report.doing(print(texts));
  report.count("texts");
  const auto graph = parse_graph(texts.graph);
  const auto mugraph = parse_mugraph(texts.mugraph);
  const auto schedule = parse_schedule(texts.schedule);
  auto reads_back = [&](const std::string& text, const auto& again, auto printer) {
    if (!again || printer(*again) != text)
      report.find("text", "reads back as another one:\n" + text + "\n" + print(texts));
  };
  if (graph) {
    report.count("graphs accepted");
    reads_back(print_graph(*graph), parse_graph(print_graph(*graph)), print_graph);
    if (auto baseline = emit_baseline(*graph, **find_target(texts.target))) report.count("baselines emitted");
  }
  if (mugraph) {
    report.count("muGraphs accepted");
    reads_back(print_mugraph(*mugraph), parse_mugraph(print_mugraph(*mugraph)),
               [](const MuGraph& m) { return print_mugraph(m); });
  }
  if (schedule) {
    report.count("schedules accepted");
    reads_back(print_schedule(*schedule), parse_schedule(print_schedule(*schedule)), print_schedule);
  }
  if (!graph || !mugraph) return;
  VerifyOptions options;
  options.seed = 1;
  options.sample_budget = 10'000;
  if (verify(*graph, *mugraph, options).verdict == Verdict::accepted)
    report.count("muGraphs verified as the graph");
  if (schedule && emit_mugraph(*graph, *mugraph, *schedule, **find_target(texts.target)))
    report.count("programs emitted");
}

}  // namespace

std::vector<Texts> searched_texts(uint64_t seed) {
  const Graph graph = hostile_graph(seed);
  const std::string name = seed % 2 ? "sm_80" : "sm_90a";
  const Target& target = **find_target(name);
  SearchOptions how;
  how.limit = std::chrono::milliseconds(500);
  how.threads = 1;
  auto found = search(graph, target, how);
  check(found.ok(), "the search refuses its options");
  std::vector<Texts> texts;
  for (const Implementation& each : rank_implementations(graph, found->candidates, target, {}, 1))
    texts.push_back({print_graph(graph), print_mugraph(found->candidates[each.candidate].mugraph),
                     print_schedule(each.schedule), name});
  return texts;
}

Texts mutate(const Texts& texts, uint64_t seed) { return Mutation(seed).apply(texts); }

Tally attack_texts(const std::vector<Texts>& corpus, uint64_t first, size_t count) {
  return run_in_batches(count, kBatch, kSecondsAMutant, [&](size_t begin, size_t many, Report& report) {
    for (uint64_t seed = first + begin; seed < first + begin + many; ++seed)
      try_texts(mutate(corpus[seed % corpus.size()], seed), report);
  });
}

}  // namespace quern
