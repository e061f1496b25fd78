#include "core/search/constraints.h"

#include <algorithm>
#include <charconv>

namespace quern {

namespace {

template <class T>
bool lists(const std::vector<T>& allowed, const T& value) {
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

// An axis of one part cuts nothing, whatever the map says.
bool lists_map(const std::vector<std::array<int, 3>>& allowed, const MuKernel& kernel, const AxisMap& map) {
  return allowed.empty() || std::any_of(allowed.begin(), allowed.end(), [&](const std::array<int, 3>& want) {
           for (int axis = 0; axis < 3; ++axis)
             if (kernel.grid[axis] > 1 && want[axis] != map[axis]) return false;
           return true;
         });
}

Status wrong(std::string_view name, std::string_view value, const char* wanted) {
  return Status(ErrorCode::INVALID_ARGUMENT, "the constraint " + std::string(name) + " takes " + wanted +
                                                 ", not \"" + std::string(value) + "\"");
}

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Maps name dimensions, or with -1 none; the others are counts.
bool is_map(std::string_view name) { return name.ends_with("maps"); }

template <class T>
Status check_range(std::string_view name, std::string_view text, T value) {
  if (is_map(name) ? value >= -1 : value >= 1) return {};
  return wrong(name, text, is_map(name) ? "dimensions from 0 on, or -1 for none" : "numbers from 1 on");
}

template <class T>
Status parse_value(std::string_view name, std::string_view text, T& value) {
  return parse_number(text, value) ? check_range(name, text, value) : wrong(name, text, "a number");
}

// Missing numbers are -1 in maps and 1 in counts.
template <class T>
Status parse_value(std::string_view name, std::string_view text, std::array<T, 3>& triple) {
  triple.fill(is_map(name) ? -1 : 1);
  for (size_t i = 0, at = 0; at <= text.size(); ++i) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (i == 3 || !parse_number(text.substr(at, comma - at), triple[i]))
      return wrong(name, text, "up to three numbers as \"16,1,4\"");
    if (Status status = check_range(name, text, triple[i]); !status.ok()) return status;
    at = comma + 1;
  }
  return {};
}

std::string print_value(int64_t value) { return std::to_string(value); }
template <class T>
std::string print_value(const std::array<T, 3>& triple) {
  return print_value(triple[0]) + "," + print_value(triple[1]) + "," + print_value(triple[2]);
}

// Calls visit(name, list) for every list, in the order of the struct.
template <class C, class Visit>
void for_each_list(C& constraints, Visit visit) {
  visit("griddims", constraints.griddims);
  visit("blockdims", constraints.blockdims);
  visit("imaps", constraints.imaps);
  visit("omaps", constraints.omaps);
  visit("fmaps", constraints.fmaps);
  visit("franges", constraints.franges);
}

// The next part of `text` up to a `divider`, without spaces around it; takes it off.
std::string_view take(std::string_view& text, char divider) {
  const size_t end = std::min(text.find(divider), text.size());
  std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  while (part.starts_with(' ')) part.remove_prefix(1);
  while (part.ends_with(' ')) part.remove_suffix(1);
  return part;
}

}  // namespace

bool Constraints::empty() const {
  return griddims.empty() && blockdims.empty() && imaps.empty() && omaps.empty() && fmaps.empty() &&
         franges.empty();
}

bool Constraints::allow_grid(const std::array<int64_t, kGridAxes>& grid) const {
  return lists(griddims, {grid[0], grid[1], grid[2]});
}

bool Constraints::allow_trip_count(int64_t trip_count) const { return lists(franges, trip_count); }

bool Constraints::allow(const MuGraph& mugraph) const {
  for (const MuKernel& kernel : mugraph.kernels) {
    if (!kernel.custom) continue;
    const bool threads =
        blockdims.empty() || std::any_of(blockdims.begin(), blockdims.end(), [&](const auto& dims) {
          return dims[0] * dims[1] * dims[2] == kernel.threads;
        });
    if (!allow_grid(kernel.grid) || !allow_trip_count(kernel.trip_count) || !threads) return false;
    for (const BlockOp& op : kernel.ops) {
      if (op.is_load() && (!lists_map(imaps, kernel, op.map()) || !lists(fmaps, op.loop_dim()))) return false;
      if (op.is_store() && !lists_map(omaps, kernel, op.map())) return false;
    }
  }
  return true;
}

Result<Constraints> parse_constraints(std::string_view text) {
  Constraints constraints;
  while (!text.empty()) {
    std::string_view values = take(text, ';');
    const std::string_view name = take(values, ' ');
    if (name.empty()) continue;
    bool known = false;
    Status status;
    for_each_list(constraints, [&](std::string_view own, auto& list) {
      if (own != name) return;
      known = true;
      while (!values.empty() && status.ok())
        if (const std::string_view value = take(values, ' '); !value.empty())
          status = parse_value(name, value, list.emplace_back());
    });
    if (!status.ok()) return status;
    if (!known)
      return Status(ErrorCode::INVALID_ARGUMENT,
                    "there is no constraint \"" + std::string(name) +
                        "\"; there are griddims, blockdims, imaps, omaps, fmaps and franges");
  }
  return constraints;
}

std::string print_constraints(const Constraints& constraints) {
  std::string text;
  for_each_list(constraints, [&](const char* name, auto list) {
    if (list.empty()) return;
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    text += std::string(text.empty() ? "" : "; ") + name;
    for (const auto& value : list) text += " " + print_value(value);
  });
  return text;
}

}  // namespace quern
