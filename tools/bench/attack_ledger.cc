#include "tools/bench/attack_ledger.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "tests/hostile/campaign.h"

namespace quern {

namespace {

namespace fs = std::filesystem;

// What a run that settles it counts (of programs that are wrong and the like: none).
constexpr std::pair<const char*, uint64_t> kWanted[] = {{"graphs", 2000}, {"mutants", 20000}};

// Causes of findings (tests/hostile/campaign.h, wrong_mugraphs.h), and what they mean.
constexpr std::pair<const char*, const char*> kCauses[] = {
    {"wrong", "programs that are wrong"},
    {"abort", "aborts, crashes and hangs"},
    {"rule", "programs that break a rule of the GPU"},
    {"compile", "programs that do not compile"},
    {"baseline", "graphs without a baseline"},
    {"search", "candidates that the search itself refused"},
    {"accepted", "wrong mutants that were accepted"},
    {"original", "muGraphs of the search that are wrong"},
};

std::string file_of(const std::string& cause, uint64_t first, size_t index) {
  return cause + "-" + std::to_string(first) + "-" + std::to_string(index) + ".case";
}

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

void row(std::string& text, const std::string& what, std::initializer_list<uint64_t> counts) {
  text += "| " + what + " |";
  for (const uint64_t count : counts) text += " " + std::to_string(count) + " |";
  text += "\n";
}

}  // namespace

AttackLedger::AttackLedger(fs::path folder) : folder_(std::move(folder)) { fs::create_directories(folder_); }

std::set<uint64_t> AttackLedger::done() const {
  std::set<uint64_t> batches;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (const std::string name = entry.path().filename(); is_number(name)) batches.insert(std::stoull(name));
  return batches;
}

void AttackLedger::add(uint64_t first, const Tally& tally) const {
  const fs::path path = folder_ / std::to_string(first), unfinished = path.string() + ".new";
  std::ofstream out(unfinished);
  for (const auto& [what, count] : tally.counts) out << "count " << count << " " << what << "\n";
  for (size_t i = 0; i < tally.findings.size(); ++i) {
    const Finding& finding = tally.findings[i];
    const std::string name = file_of(finding.cause, first, i);
    std::ofstream(folder_ / name) << finding.text;
    out << "find " << finding.cause << " " << name << ": " << finding.text.substr(0, finding.text.find('\n'))
        << "\n";
  }
  out.close();
  fs::rename(unfinished, path);
}

Tally AttackLedger::total() const {
  Tally tally;
  for (uint64_t first : done()) {
    std::ifstream in(folder_ / std::to_string(first));
    for (std::string kind, key, rest; in >> kind >> key && in.get() && std::getline(in, rest);) {
      if (kind == "count") tally.counts[rest] += std::stoull(key);
      if (kind == "find") tally.findings.push_back({key, rest});
    }
    ++tally.counts["batches"];
  }
  return tally;
}

std::string attack_table(const Tally& tally, double seconds, size_t jobs) {
  std::ostringstream head;
  head << "attack: " << static_cast<int64_t>(seconds) << " s, " << jobs << " jobs, " << tally.count("batches")
       << " batches in all\n\n";
  std::string text = head.str() + "| what | wanted | reached |\n|---|---|---|\n";
  for (const auto& [what, wanted] : kWanted) row(text, what, {wanted, tally.count(what)});
  for (const auto& [cause, meaning] : kCauses)
    row(text, meaning,
        {0, static_cast<uint64_t>(
                std::count_if(tally.findings.begin(), tally.findings.end(),
                              [&](const Finding& finding) { return finding.cause == cause; }))});
  text += "\n| class of inputs | runs | wrong |\n|---|---|---|\n";
  for (const std::string& name : input_classes())
    row(text, name, {tally.count("runs on " + name), tally.count("wrong on " + name)});
  text += "\n| also counted | count |\n|---|---|\n";
  for (const auto& [what, count] : tally.counts)
    if (what.find(" on ") == std::string::npos || what.starts_with("refused")) row(text, what, {count});
  text += "\n";
  for (const Finding& finding : tally.findings) text += finding.cause + ": " + finding.text + "\n";
  return text;
}

}  // namespace quern
