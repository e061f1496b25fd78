#include "core/search/unpack.h"

#include <algorithm>
#include <map>

#include "core/graph/dims.h"
#include "core/search/pieces.h"
#include "core/search/rewriter.h"

namespace quern {

namespace {

using Nodes = std::set<ValueId>;

// Where a slice of one dimension lies in it.
struct Range {
  int64_t from_end = 0;  // the dimension: 1 for columns, 2 for rows
  int64_t first = 0, last = 0;
  auto operator<=>(const Range&) const = default;
  int64_t extent() const { return last - first; }
};

class Unpacker : CopyingRewriter {
 public:
  explicit Unpacker(const Graph& graph) : CopyingRewriter(graph), readers_(readers()) {}

  // Nothing if nothing is packed, or what is made is too large for a graph.
  std::optional<Graph> run() {
    for (ValueId id = 0; id < end(); ++id)
      if (is_packed(id)) packed_.insert(id);
    if (packed_.empty()) return std::nullopt;
    return rewritten([this](ValueId id) {
      if (paths_.count(id)) return ValueId{-1};  // nobody reads it any more
      return packed_.count(first_operand(id)) ? taken(id) : copy(id);
    });
  }

 private:
  ValueId first_operand(ValueId id) const { return node(id).operands.empty() ? -1 : node(id).operands[0]; }
  bool is_product(ValueId id) const { return op_info(node(id).code).kind == OpKind::contraction; }

  // What a slice takes, if it takes a part of the columns or of the rows alone, without steps.
  std::optional<Range> range_of(ValueId id) const {
    const Node& slice = node(id);
    if (slice.code != OpCode::slice) return std::nullopt;
    std::optional<Range> out;
    for (size_t d = 0; d < slice.type.shape.size(); ++d) {
      if (is_whole(graph_, slice, d)) continue;
      if (out || (*slice.attrs.step)[d] != 1) return std::nullopt;
      out = Range{static_cast<int64_t>(slice.type.shape.size() - d), (*slice.attrs.start)[d],
                  (*slice.attrs.stop)[d]};
    }
    return out && out->from_end <= 2 ? out : std::nullopt;
  }

  // The products that `last` is computed of, element by element, and what is computed of them on the way; nothing if there are
  // none, or if something else reads one of these, too.
  Nodes path_to(ValueId last) const {
    Nodes around = {last}, path;
    for (ValueId id = last; id >= 0; --id)  // operands come before their users
      if (around.count(id) && is_pointwise(node(id).code))
        for (ValueId operand : node(id).operands)
          if (node(operand).type.shape == node(last).type.shape) around.insert(operand);
    for (ValueId id : around) {
      const std::vector<ValueId>& operands = node(id).operands;
      const auto on_path = [&](ValueId operand) { return path.count(operand) > 0; };
      if (is_product(id) ||
          (is_pointwise(node(id).code) && std::any_of(operands.begin(), operands.end(), on_path)))
        path.insert(id);
    }
    const auto is_matrix = [this](ValueId operand) { return node(operand).type.rank() >= 2; };
    const auto can_go = [&](ValueId id) {
      const std::vector<ValueId>& operands = node(id).operands;
      const Nodes& readers = readers_[index(id)];
      return (!is_product(id) || std::all_of(operands.begin(), operands.end(), is_matrix)) &&
             !is_output(id) &&
             (id == last || std::includes(path.begin(), path.end(), readers.begin(), readers.end()));
    };
    return std::all_of(path.begin(), path.end(), can_go) ? path : Nodes();
  }

  // Then paths_ has what it is computed of.
  bool is_packed(ValueId id) {
    const Nodes& slices = readers_[index(id)];
    if (slices.size() < 2) return false;
    std::set<Range> ranges;
    for (ValueId slice : slices) {
      const std::optional<Range> range = range_of(slice);
      if (!range || (!ranges.empty() && (range->from_end != ranges.begin()->from_end ||
                                         range->extent() != ranges.begin()->extent())))
        return false;
      ranges.insert(*range);
    }
    Nodes path = path_to(id);
    int64_t products = 0;
    for (ValueId each : path)
      if (is_product(each)) products += all_are_views(node(each), ranges) ? 1 : kMostProducts;
    const int64_t made = products * static_cast<int64_t>(ranges.size());
    if (made == 0 || made > kMostProducts || !meet(slices)) return false;
    paths_.merge(path);
    return true;
  }

  // What is taken of an operand is read where it lies, unless it is off the 16 bytes that loads want.
  bool all_are_views(const Node& product, const std::set<Range>& ranges) const {
    return std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
      const DType dtype = node(product.operands[taken_operand(range)]).type.dtype;
      return range.first * dtype_size(dtype) % 16 == 0;
    });
  }
  // Columns of a product are those of its second operand, rows those of its first.
  static size_t taken_operand(const Range& range) { return range.from_end == 1 ? 1 : 0; }

  // Whether there is a value that is computed of all of them, element by element.
  bool meet(const Nodes& slices) const {
    std::map<ValueId, Nodes> of;  // the slices that a value is computed of
    for (ValueId slice : slices) of[slice] = {slice};
    for (ValueId id = *slices.begin(); id < end(); ++id) {
      if (is_pointwise(node(id).code))
        for (ValueId operand : node(id).operands)
          if (const auto at = of.find(operand); at != of.end())
            of[id].insert(at->second.begin(), at->second.end());
      if (const auto at = of.find(id); at != of.end() && at->second == slices) return true;
    }
    return false;
  }

  // A slice of what is packed.
  ValueId taken(ValueId slice) { return part_of(first_operand(slice), *range_of(slice), node(slice).name); }
  ValueId part_of(ValueId id, const Range& range, std::string name = "") {
    const Node& value = node(id);
    if (value.type.rank() < range.from_end) return became(id);
    const size_t d = static_cast<size_t>(value.type.rank() - range.from_end);
    if (value.type.shape[d] == 1) return became(id);
    if (const auto known = parts_.find({id, range}); known != parts_.end()) return known->second;
    if (name.empty()) name = unused(value.name + "_part");
    if (!paths_.count(id)) {
      Attrs attrs;
      attrs.start = Ints(value.type.shape.size(), 0);
      attrs.stop = value.type.shape;
      (*attrs.start)[d] = range.first;
      (*attrs.stop)[d] = range.last;
      return parts_[{id, range}] = add(OpCode::slice, {became(id)}, attrs, name);
    }
    std::vector<ValueId> operands;
    for (size_t o = 0; o < value.operands.size(); ++o) {
      const bool whole = is_product(id) && o != taken_operand(range);
      operands.push_back(whole ? became(value.operands[o]) : part_of(value.operands[o], range));
    }
    return parts_[{id, range}] = add(value.code, operands, value.attrs, name);
  }

  std::vector<Nodes> readers_;
  Nodes packed_, paths_;  // what slices take apart; the products of these, and what stands between
  std::map<std::pair<ValueId, Range>, ValueId> parts_;
};

}  // namespace

std::optional<Graph> unpack_products(const Graph& graph) { return Unpacker(graph).run(); }

}  // namespace quern
