#include "core/codegen/launch_work.h"

#include <algorithm>
#include <set>

#include "core/schedule/tile_access.h"

namespace quern {

namespace {

constexpr int64_t kWarp = 32;
constexpr double kPipeBytes = 128;  // that an access takes at least of the path to L1 and shared memory

AtomId atom_of(const Index& variable) { return variable.is_constant() ? -1 : variable.terms[0].atom; }

}  // namespace

WorkCounter::WorkCounter(const IndexSpace& space, const Index& lane, const Index& element, int vector)
    : space_(space),
      lane_(atom_of(lane)),
      element_(atom_of(element)),
      vector_(vector),
      values_(static_cast<size_t>(vector * kWarp)) {}

// In a warp in the middle of the kernel. Atoms follow those that they are made of, and more may come while a
// kernel is written.
int64_t WorkCounter::evaluate(const Index& index, int lane, int element) const {
  auto value_of = [](const Index& sum, const std::vector<int64_t>& values) {
    int64_t value = sum.constant;
    for (const Index::Term& term : sum.terms) value += term.factor * values[static_cast<size_t>(term.atom)];
    return value;
  };
  std::vector<int64_t>& values = values_[static_cast<size_t>(element) * kWarp + static_cast<size_t>(lane)];
  while (values.size() < space_.atom_count()) {
    const auto id = static_cast<AtomId>(values.size());
    const Atom& atom = space_.atom(id);
    int64_t value = 0;
    switch (atom.kind) {
      case Atom::Kind::variable:
        value = id == lane_      ? std::min(atom.largest, atom.largest / 2 / kWarp * kWarp + lane)
                : id == element_ ? element
                                 : atom.largest / 2;
        break;
      case Atom::Kind::quotient:
        value = value_of(atom.argument, values) / atom.divisor;
        break;
      case Atom::Kind::remainder:
        value = value_of(atom.argument, values) % atom.divisor;
        break;
    }
    values.push_back(value);
  }
  return value_of(index, values);
}

// That a warp touches with all of its elements.
double WorkCounter::sectors(const ScopeWork::Access& access, int elements) const {
  std::set<int64_t> sectors;
  const int64_t size = static_cast<int64_t>(dtype_size(access.slot.dtype));
  for (int lane = 0; lane < kWarp; ++lane)
    for (int element = 0; element < elements; ++element) {
      const int64_t first = evaluate(access.index, lane, element) * size;
      for (int64_t at = first; at < first + access.width * size; at += std::min(kSectorBytes, size))
        sectors.insert(at / kSectorBytes);
    }
  return static_cast<double>(sectors.size());
}

double WorkCounter::different_elements(const ScopeWork::Access& access) const {
  double count = access.width;
  std::set<AtomId> seen;
  const std::function<void(const Index&)> visit = [&](const Index& index) {
    for (const Index::Term& term : index.terms) {
      const Atom& atom = space_.atom(term.atom);
      if (!seen.insert(term.atom).second) continue;
      if (atom.kind == Atom::Kind::variable)
        count *= static_cast<double>(atom.largest + 1);
      else
        visit(atom.argument);
    }
  };
  visit(access.index);
  return count;
}

void WorkCounter::add(const ScopeWork& scope, double times, bool by_element, double warps) {
  const int elements = by_element ? vector_ : 1;
  Work& work = block_.once;
  work.slots += scope.issue * times * elements * warps;
  work.special += scope.special * times * elements * warps;
  work.shared_bytes += scope.shared_bytes * kWarp * times * warps;
  for (const ScopeWork::Access& access : scope.accesses) {
    const double bytes = sectors(access, elements) * kSectorBytes;
    const double width = access.width * static_cast<double>(dtype_size(access.slot.dtype));
    work.shared_bytes += std::max(elements * std::max(kPipeBytes, width * kWarp), bytes) * times * warps;
    block_.once_bytes += elements * width * kWarp * times * warps;
    block_.once_l2 += bytes * times * warps;
    touch(access.slot, access.written, space_.smallest(access.index),
          space_.largest(access.index) + access.width - 1, different_elements(access));
  }
}

void WorkCounter::touch(const Slot& slot, bool written, int64_t first, int64_t last, double most) {
  for (Touched& each : touched_)
    if (each.slot == slot && each.written == written) {
      each.first = std::min(each.first, first);
      each.last = std::max(each.last, last);
      each.most += most;
      return;
    }
  touched_.push_back({slot, written, first, last, most});
}

LaunchWork WorkCounter::take(const KernelSchedule& schedule) {
  LaunchWork out{block_, schedule, {}};
  for (const Touched& each : touched_) {
    const double elements = std::min(each.most, static_cast<double>(each.last - each.first + 1));
    out.accesses.push_back(
        {each.slot.arg, elements * static_cast<double>(dtype_size(each.slot.dtype)), each.written});
  }
  return out;
}

}  // namespace quern
