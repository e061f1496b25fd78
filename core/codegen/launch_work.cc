#include "core/codegen/launch_work.h"

#include <algorithm>
#include <set>

namespace quern {

namespace {

constexpr int64_t kSectorBytes = 32, kWarp = 32;
constexpr double kPipeBytes = 128;  // that an access takes at least of the path to L1 and shared memory

AtomId atom_of(const Index& variable) { return variable.is_constant() ? -1 : variable.terms[0].atom; }

}  // namespace

WorkCounter::WorkCounter(const IndexSpace& space, const Index& lane, const Index& element, int vector)
    : space_(space), lane_(atom_of(lane)), element_(atom_of(element)), vector_(vector) {}

// In a warp in the middle of the kernel.
int64_t WorkCounter::evaluate(const Index& index, int64_t lane, int64_t element) const {
  int64_t sum = index.constant;
  for (const Index::Term& term : index.terms) {
    const Atom& atom = space_.atom(term.atom);
    int64_t value = 0;
    switch (atom.kind) {
      case Atom::Kind::variable:
        value = term.atom == lane_      ? std::min(atom.largest, atom.largest / 2 / kWarp * kWarp + lane)
                : term.atom == element_ ? element
                                        : atom.largest / 2;
        break;
      case Atom::Kind::quotient:
        value = evaluate(atom.argument, lane, element) / atom.divisor;
        break;
      case Atom::Kind::remainder:
        value = evaluate(atom.argument, lane, element) % atom.divisor;
        break;
    }
    sum += term.factor * value;
  }
  return sum;
}

// That a warp touches with all of its elements.
double WorkCounter::sectors(const ScopeWork::Access& access, int elements) const {
  std::set<int64_t> sectors;
  const int64_t size = static_cast<int64_t>(dtype_size(access.slot.dtype));
  for (int64_t lane = 0; lane < kWarp; ++lane)
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
