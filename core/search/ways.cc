#include "core/search/ways.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/search/assembly.h"

namespace quern {

namespace {

constexpr size_t kMostAlike = 4;  // choices of a piece that others are to be like

std::string loops_of(const Choice& choice) {
  return choice.candidate ? kernel_loops(choice.candidate->mugraph) : "";
}

void sort_ways(std::vector<Way>& ways) {
  std::stable_sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.share < b.share; });
}

}  // namespace

Ways::Ways(const std::vector<Piece>& pieces, const std::vector<OtherPieces>& others, ChoicesOf choices_of)
    : pieces_(pieces), others_(others), choices_of_(std::move(choices_of)) {
  for (const Piece& piece : pieces_) {
    best_.pieces.push_back(&piece);
    best_.choices.push_back(choices_of_(piece)[0]);
  }
}

std::vector<Way> Ways::with_other_choices(const Way& way) const {
  std::vector<Way> ways;
  std::map<std::string, std::vector<size_t>> equal;
  for (size_t p = 0; p < way.pieces.size(); ++p) equal[way.pieces[p]->text()].push_back(p);
  for (const auto& [text, places] : equal) {
    const Choice had = way.choices[places[0]];
    for (const Choice& choice : choices_of_(*way.pieces[places[0]])) {
      if (choice.candidate == had.candidate) continue;
      Way& other = ways.emplace_back(way);
      other.slower = (choice.us - had.us) * static_cast<double>(places.size());
      other.share = (choice.us - had.us) / had.us;
      for (size_t place : places) other.choices[place] = choice;
    }
  }
  sort_ways(ways);
  return ways;
}

// What was parted is whole, or parted otherwise: the model that parted it may be wrong.
std::vector<Way> Ways::with_other_pieces() const {
  std::vector<Way> ways;
  for (const OtherPieces& other : others_) {
    const bool whole = other.pieces.size() == 1;
    for (size_t i = 0; i < (whole ? choices_of_(other.pieces[0]).size() : 1); ++i) {
      Way& way = ways.emplace_back(Way{-other.us, 0, {}, {}});
      auto add = [&](const Piece& piece, const Choice& choice) {
        way.pieces.push_back(&piece);
        way.choices.push_back(choice);
      };
      for (size_t p = 0; p < other.first; ++p) add(*best_.pieces[p], best_.choices[p]);
      for (const Piece& piece : other.pieces) {
        add(piece, choices_of_(piece)[i]);
        way.slower += way.choices.back().us;
      }
      for (size_t p = other.last; p < pieces_.size(); ++p) add(*best_.pieces[p], best_.choices[p]);
      way.share = way.slower / other.us;
      if (whole && !way.choices[other.first].candidate) ways.pop_back();
    }
  }
  return ways;
}

// The best choice of a piece that has the kernels of another one's, or else loops where those have.
std::optional<Choice> Ways::choice_like(const Choice& like, const Piece& piece) const {
  const std::string form = kernel_forms(like.candidate->mugraph), loops = loops_of(like);
  std::optional<Choice> similar;
  for (const Choice& choice : choices_of_(piece)) {
    if (!choice.candidate) continue;
    if (kernel_forms(choice.candidate->mugraph) == form) return choice;
    if (!similar && loops_of(choice) == loops) similar = choice;
  }
  return similar;
}

// Pieces that read one value are all computed in one way: kernels that are alike share a launch well. For each way that the
// best choices of the slowest of them have; with `other_loops`, for the best one with loops in other kernels instead.
std::vector<Way> Ways::with_alike_choices(bool other_loops) const {
  std::vector<Way> ways;
  std::map<ValueId, std::vector<size_t>> readers;
  for (size_t p = 0; p < pieces_.size(); ++p)
    for (ValueId input : pieces_[p].inputs) readers[input].push_back(p);
  std::set<std::string> seen;
  for (const auto& [value, places] : readers) {
    if (places.size() == 1) continue;
    const size_t slowest = *std::max_element(places.begin(), places.end(), [&](size_t a, size_t b) {
      return best_.choices[a].us < best_.choices[b].us;
    });
    const std::vector<Choice> choices = choices_of_(pieces_[slowest]);
    std::set<std::string> known = {loops_of(choices[0])};
    for (size_t i = 0; i < (other_loops ? choices.size() : std::min(choices.size(), kMostAlike)); ++i) {
      if (!choices[i].candidate || (other_loops && !known.insert(loops_of(choices[i])).second)) continue;
      Way way = best_;
      std::string changed = kernel_forms(choices[i].candidate->mugraph);
      size_t alike = 0;
      double us = 0;
      for (size_t place : places) {
        const std::optional<Choice> choice = choice_like(choices[i], pieces_[place]);
        if (!choice) continue;
        way.slower += choice->us - best_.choices[place].us;
        us += best_.choices[place].us;
        way.choices[place] = *choice;
        changed += " " + std::to_string(place);
        ++alike;
      }
      way.share = way.slower / us;
      if (alike > 1 && way.slower > 0 && seen.insert(changed).second) ways.push_back(std::move(way));
    }
  }
  return ways;
}

std::vector<Way> Ways::by_rank() const {
  std::vector<Way> ways;
  size_t most = 1;
  for (size_t i = 0; i < most; ++i) {
    Way& way = ways.emplace_back(Way{0, 0, {}, {}});
    for (const Piece& piece : pieces_) {
      const std::vector<Choice> choices = choices_of_(piece);
      most = std::max(most, choices.size());
      way.pieces.push_back(&piece);
      way.choices.push_back(choices[std::min(i, choices.size() - 1)]);
    }
  }
  return ways;
}

std::vector<Way> Ways::with_other_loops() const {
  // What the pieces that change take in the best way.
  auto changes_us = [&](const Way& way) {
    double us = 0;
    for (size_t p = 0; p < way.choices.size(); ++p)
      if (way.choices[p].candidate != best_.choices[p].candidate) us += best_.choices[p].us;
    return us;
  };
  std::vector<Way> ways = with_alike_choices(true);
  std::stable_sort(ways.begin(), ways.end(),
                   [&](const Way& a, const Way& b) { return changes_us(a) > changes_us(b); });
  return ways;
}

std::optional<Way> Ways::as_written() const {
  Way way = best_;
  bool changed = false;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    Choice& own = way.choices[p];
    for (const Choice& choice : choices_of_(pieces_[p]))
      if (own.candidate && choice.candidate && choice.candidate->others < own.candidate->others) own = choice;
    way.slower += own.us - best_.choices[p].us;
    changed |= own.candidate != best_.choices[p].candidate;
  }
  return changed ? std::optional(std::move(way)) : std::nullopt;
}

std::vector<Way> Ways::by_time() const {
  std::vector<Way> kinds[] = {with_other_choices(best_), with_other_pieces(), with_alike_choices(false)};
  size_t most = 0;
  for (std::vector<Way>& kind : kinds) {
    sort_ways(kind);
    most = std::max(most, kind.size());
  }
  // The kinds in turn.
  std::vector<Way> ways = {best_};
  for (size_t i = 0; i < most; ++i)
    for (std::vector<Way>& kind : kinds)
      if (i < kind.size()) ways.push_back(std::move(kind[i]));
  return ways;
}

}  // namespace quern
