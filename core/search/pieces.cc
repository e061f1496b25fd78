#include "core/search/pieces.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/graph/builder.h"
#include "core/graph/canon.h"
#include "core/mugraph/positions.h"
#include "core/mugraph/tensor_view.h"
#include "core/search/terms.h"

namespace quern {

namespace {

// Operators of a piece that has much inside, and no more products than are searched whole.
constexpr int kOverBound = 11;
constexpr double kKernelBytes = 4e6;  // what a kernel costs beside its traffic, as bytes of traffic

bool is_leaf(const Node& node) { return op_info(node.code).kind == OpKind::leaf; }

// Operators that a search may need for one of the program: a softmax over a loop is its definition.
int operators(const Node& node) { return node.code == OpCode::softmax ? 5 : 1; }

double bytes(const Node& node) {
  return static_cast<double>(node.type.element_count()) * static_cast<double>(dtype_size(node.type.dtype));
}

class Cutter {
 public:
  explicit Cutter(const Graph& graph) : graph_(graph), positions_(positions_of(graph)) {
    find_needed();
    leave_positions_outside();
    for (const Node& node : graph_.nodes) names_.insert(node.name);
  }

  std::vector<Piece> cut(int bound) {
    order_nodes();
    std::vector<Piece> pieces = cut_ordered(bound, bound + kOverBound, kMostJoined);
    for (Piece& piece : pieces)
      piece.as_written = piece.operators > bound && std::all_of(piece.nodes.begin(), piece.nodes.end(),
                                                                [&](ValueId id) { return is_pointwise(id); });
    return pieces;
  }

  std::vector<Piece> cut(const std::vector<ValueId>& nodes) {
    order_ = nodes;
    const int size = operators_of(nodes);
    return nodes.size() == 1 ? std::vector<Piece>() : cut_ordered(size - 1, size - 1, size - 1);
  }

  std::vector<Piece> pieces_of(std::vector<ValueId> nodes) const {
    std::erase_if(nodes, [&](ValueId id) { return is_inside(id); });
    std::vector<Piece> pieces;
    for (std::vector<ValueId>& group : components(nodes)) {
      std::vector<ValueId> outputs = outputs_of(group);
      pieces.push_back(make_piece(std::move(group), std::move(outputs)));
    }
    return pieces;
  }

  Piece joined(std::vector<ValueId> nodes, int bound) const {
    std::vector<ValueId> outputs = outputs_of(nodes);
    Piece piece = make_piece(std::move(nodes), std::move(outputs));
    piece.as_written = piece.operators > bound;
    return piece;
  }

  // Each of these values from what is given outside and from those before it.
  std::vector<Piece> one_piece_a_value(const Piece& piece, const std::vector<ValueId>& values) const {
    std::vector<Piece> pieces;
    std::map<ValueId, int> times;
    for (ValueId output : values) {
      std::set<ValueId> needed = {output};
      std::vector<ValueId> nodes;
      for (auto id = piece.nodes.rbegin(); id != piece.nodes.rend(); ++id) {
        if (!needed.count(*id)) continue;
        nodes.insert(nodes.begin(), *id);
        if (++times[*id] == 2 && op_info(node(*id).code).kind == OpKind::contraction) return {};
        for (ValueId operand : sources(*id))
          if (std::find(values.begin(), values.end(), operand) == values.end()) needed.insert(operand);
      }
      pieces.push_back(make_piece(std::move(nodes), {output}));
    }
    return pieces.size() == 1 ? std::vector<Piece>() : pieces;
  }

 private:
  const Node& node(ValueId id) const { return graph_.node(id); }

  // Casts that change no value, or that others make floats of again, are no nodes of pieces: each piece has its own of what it
  // reads.
  bool is_inside(ValueId id) const { return belongs_to_readers(graph_, id); }
  ValueId source(ValueId id) const { return is_inside(id) ? source(node(id).operands[0]) : id; }
  std::vector<ValueId> sources(ValueId id) const {
    std::vector<ValueId> out;
    for (ValueId operand : node(id).operands) out.push_back(source(operand));
    return out;
  }

  void find_needed() {
    needed_.assign(graph_.nodes.size(), false);
    users_.assign(graph_.nodes.size(), {});
    is_output_.assign(graph_.nodes.size(), false);
    for (ValueId id : graph_.outputs) needed_[id] = is_output_[id] = true;
    for (size_t id = graph_.nodes.size(); id-- > 0;)
      if (needed_[id] && !is_inside(static_cast<ValueId>(id)))
        for (ValueId operand : sources(static_cast<ValueId>(id))) {
          needed_[operand] = true;
          users_[operand].push_back(static_cast<ValueId>(id));
        }
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      const bool inner = needed_[id] && !is_leaf(graph_.nodes[id]);
      outside_.push_back(inner ? outside_reason(graph_, static_cast<ValueId>(id)) : "");
    }
  }

  void leave_positions_outside() {
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.nodes.size()); ++id) {
      const auto at = static_cast<size_t>(id);
      const bool inside = needed_[at] && outside_[at].empty() && !is_output_[at] && !is_leaf(node(id));
      if (inside && positions_[at].computed && positions_[at].made->is_computed_in_kernels())
        outside_[at] = "positions decide it, kernels that read it compute it";
    }
  }
  bool is_numbered(ValueId id) const {
    const ValueOfPositions& value = positions_[static_cast<size_t>(id)];
    return value.computed && value.made->is_decided();
  }

  bool is_pointwise(ValueId id) const { return quern::is_pointwise(node(id).code); }
  // What moves elements of an input, or of such a view.
  bool is_view(ValueId id) const {
    if (!moves_only(node(id).code)) return false;
    const ValueId from = node(id).operands[0];
    return is_leaf(node(from)) || is_view(from);
  }
  bool is_product(ValueId id) const { return op_info(node(id).code).kind == OpKind::contraction; }

  // What only moves elements to where something outside the algebra reads them, as a transpose in front of a concatenation.
  bool leads_outside(ValueId id) const {
    return moves_only(node(id).code) && std::any_of(users_[id].begin(), users_[id].end(), [&](ValueId user) {
             return !outside_[user].empty() || leads_outside(user);
           });
  }

  // Products of one value follow each other: they may share what makes it, and a launch. What is outside the algebra as early
  // as it can run, with what leads to it, so that it parts as little as possible; the rest near what it uses.
  void order_nodes() {
    std::vector<int> waits(graph_.nodes.size(), 0);
    std::vector<ValueId> ready;
    auto release = [&](ValueId id) {
      for (ValueId user : users_[id])
        if (--waits[user] == 0) ready.push_back(user);
    };
    for (size_t id = 0; id < graph_.nodes.size(); ++id) {
      waits[id] = static_cast<int>(graph_.nodes[id].operands.size());
      if (waits[id] == 0 && needed_[id] && !is_leaf(graph_.nodes[id]))
        ready.push_back(static_cast<ValueId>(id));
    }
    for (size_t id = 0; id < graph_.nodes.size(); ++id)
      if (is_leaf(graph_.nodes[id])) release(static_cast<ValueId>(id));
    while (!ready.empty()) {
      auto next = std::find_if(ready.rbegin(), ready.rend(), [&](ValueId id) {
        return !order_.empty() && is_product(id) && is_product(order_.back()) &&
               sources(id)[0] == sources(order_.back())[0];
      });
      // The last one that became ready follows what was just made.
      if (next == ready.rend())
        next = std::find_if(ready.rbegin(), ready.rend(),
                            [&](ValueId id) { return !outside_[id].empty() || leads_outside(id); });
      if (next == ready.rend()) next = ready.rbegin();
      const ValueId id = *next;
      ready.erase(std::next(next).base());
      order_.push_back(id);
      release(id);
    }
  }

  int operators_of(const std::vector<ValueId>& nodes) const {
    int size = 0;
    for (ValueId id : nodes) size += operators(node(id));
    return size;
  }

  std::vector<Piece> cut_ordered(int bound, int most, int most_light) {
    choose_segments(bound, most, most_light);
    std::vector<Piece> pieces;
    for (const auto& [first, last] : segments_)
      for (Piece& piece : pieces_of(segment(first, last))) pieces.push_back(std::move(piece));
    return pieces;
  }

  // Dynamic programming over where segments of the order end. Those of more than `bound` operators, `most` at most, have
  // more inside than they read and write; those that compute element by element, or sums and maxima of that, may have
  // `most_light`.
  void choose_segments(int bound, int most, int most_light) {
    const size_t count = order_.size();
    std::vector<double> best(count + 1, 1e300);
    std::vector<size_t> from(count + 1, 0);
    best[0] = 0;
    for (size_t first = 0; first < count; ++first) {
      int size = 0, products = 0;
      double inside = 0;
      bool light = true;
      for (size_t last = first + 1; last <= count; ++last) {
        const ValueId id = order_[last - 1];
        size += operators(node(id));
        products += is_product(id);
        light &= is_pointwise(id) || op_info(node(id).code).kind == OpKind::reduction;
        inside = std::max(inside, bytes(node(id)));
        const bool single = last == first + 1;
        if (!single &&
            (size > (light ? most_light : most) || !outside_[id].empty() || !outside_[order_[first]].empty()))
          break;
        if (!single && !has_terms(first, last)) break;
        const double moved = traffic(first, last);
        const double cost =
            best[first] + moved + (moved > 0 ? kKernelBytes * (1 + unfinished(first, last)) : 0);
        if (!single && !light && size > bound && (inside <= moved || products > kMostProducts)) continue;
        if (cost < best[last]) {
          best[last] = cost;
          from[last] = first;
        }
      }
    }
    for (size_t last = count; last > 0; last = from[last])
      segments_.insert(segments_.begin(), {from[last], last});
  }

  std::vector<ValueId> segment(size_t first, size_t last) const {
    return {order_.begin() + static_cast<std::ptrdiff_t>(first),
            order_.begin() + static_cast<std::ptrdiff_t>(last)};
  }

  bool has_terms(size_t first, size_t last) const {
    const std::vector<ValueId> nodes = segment(first, last);
    return make_terms(bare_piece(nodes, outputs_of(nodes)).graph).ok();
  }

  // A segment of nothing but views costs nothing: who reads them does so where they lie.
  double traffic(size_t first, size_t last) const {
    std::vector<ValueId> nodes = segment(first, last);
    std::erase_if(nodes, [&](ValueId id) { return is_view(id); });
    double total = 0;
    for (ValueId id : inputs_of(nodes)) total += bytes(node(id));
    for (ValueId id : outputs_of(nodes)) total += bytes(node(id));
    return total;
  }

  // Results of products that are stored as they are, for others to compute element by element with: who has multiplied could
  // have done that, and who multiplies next does it once for each of his tiles.
  int unfinished(size_t first, size_t last) const {
    int count = 0;
    for (ValueId id : outputs_of(segment(first, last)))
      count +=
          is_product(id) && !is_output_[id] &&
          std::all_of(users_[id].begin(), users_[id].end(), [&](ValueId user) { return is_pointwise(user); });
    return count;
  }

  // In the order of first use.
  std::vector<ValueId> inputs_of(const std::vector<ValueId>& nodes) const {
    const std::set<ValueId> inside(nodes.begin(), nodes.end());
    std::vector<ValueId> inputs;
    for (ValueId id : nodes)
      for (ValueId operand : sources(id))
        if (!inside.count(operand) && node(operand).code != OpCode::constant &&
            std::find(inputs.begin(), inputs.end(), operand) == inputs.end())
          inputs.push_back(operand);
    return inputs;
  }

  std::vector<ValueId> outputs_of(const std::vector<ValueId>& nodes) const {
    const std::set<ValueId> inside(nodes.begin(), nodes.end());
    std::vector<ValueId> outputs;
    for (ValueId id : nodes)
      if (is_output_[id] || std::any_of(users_[id].begin(), users_[id].end(),
                                        [&](ValueId user) { return !inside.count(user); }))
        outputs.push_back(id);
    return outputs;
  }

  // Nodes that do not depend on each other are different pieces.
  std::vector<std::vector<ValueId>> components(const std::vector<ValueId>& nodes) const {
    std::map<ValueId, ValueId> parent;
    for (ValueId id : nodes) parent[id] = id;
    auto find = [&](ValueId id) {
      while (parent[id] != id) id = parent[id];
      return id;
    };
    for (ValueId id : nodes)
      for (ValueId operand : sources(id))
        if (parent.count(operand)) parent[find(id)] = find(operand);
    std::map<ValueId, std::vector<ValueId>> groups;
    for (ValueId id : nodes) groups[find(id)].push_back(id);
    std::vector<std::vector<ValueId>> result;
    for (auto& [root, group] : groups) result.push_back(std::move(group));
    return result;
  }

  // Values from outside that are used more than once.
  std::vector<ValueId> repeated_inputs(const Piece& piece) const {
    std::map<ValueId, int> uses;
    for (ValueId id : piece.nodes)
      for (ValueId operand : sources(id)) ++uses[operand];
    std::vector<ValueId> repeated;
    for (ValueId input : piece.inputs)
      if (uses[input] > 1) repeated.push_back(input);
    return repeated;
  }

  Piece make_piece(std::vector<ValueId> nodes, std::vector<ValueId> outputs) const {
    Piece piece = bare_piece(std::move(nodes), std::move(outputs));
    if (!piece.outside.empty() ||
        std::none_of(piece.inputs.begin(), piece.inputs.end(), [&](ValueId id) { return is_known(id); }))
      return piece;
    Piece placed{with_makers(piece), {}, {}, piece.outputs, ""};
    build(placed, {});
    piece.placed = std::move(placed.graph);
    return piece;
  }

  // What its readers know where it lies, or what it is.
  bool is_known(ValueId id) const { return is_numbered(id) || is_view(id); }

  // The nodes of a piece behind those that make its known inputs.
  std::vector<ValueId> with_makers(const Piece& piece) const {
    std::set<ValueId> makers;
    const std::function<void(ValueId)> add = [&](ValueId id) {
      if (is_leaf(node(id)) || !(positions_[static_cast<size_t>(id)].computed || is_view(id)) ||
          !makers.insert(id).second)
        return;
      for (ValueId operand : sources(id)) add(operand);
    };
    for (ValueId input : piece.inputs)
      if (is_known(input)) add(input);
    std::vector<ValueId> nodes(makers.begin(), makers.end());
    nodes.insert(nodes.end(), piece.nodes.begin(), piece.nodes.end());
    return nodes;
  }

  // The roles of an input are parted only where the piece has no terms otherwise.
  Piece bare_piece(std::vector<ValueId> nodes, std::vector<ValueId> outputs) const {
    Piece piece{std::move(nodes), {}, {}, std::move(outputs), ""};
    piece.operators = operators_of(piece.nodes);
    if (piece.nodes.size() == 1) piece.outside = outside_[piece.nodes[0]];
    build(piece, {});
    if (!piece.outside.empty() || make_terms(piece.graph).ok()) return piece;
    const std::vector<ValueId> repeated = repeated_inputs(piece);
    std::vector<std::set<ValueId>> ways;
    for (ValueId input : repeated) ways.push_back({input});
    if (repeated.size() > 1) ways.push_back({repeated.begin(), repeated.end()});
    Piece parted = piece;
    for (const std::set<ValueId>& way : ways)
      if (build(parted, way); make_terms(parted.graph).ok()) return parted;
    return piece;
  }

  // Inputs and graph of a piece; every use of what is `parted` is an input of its own.
  void build(Piece& piece, const std::set<ValueId>& parted) const {
    piece.numbered.clear();
    GraphBuilder builder(graph_.name);
    std::map<ValueId, ValueId> became;
    piece.inputs.clear();
    // The names of inputs and casts that are there again are others.
    std::set<std::string> taken;
    auto unused_name = [&](const Node& value) {
      std::string name = value.name;
      for (int number = 2; taken.count(name) || (number > 2 && names_.count(name)); ++number)
        name = value.name + "_" + std::to_string(number);
      taken.insert(name);
      return name;
    };
    auto add_input = [&](ValueId id) {
      const Node& value = node(id);
      const std::string name = unused_name(value);
      piece.inputs.push_back(id);
      piece.numbered.push_back(is_numbered(id));
      return became[id] =
                 *builder.add_input(name, value.type.dtype, value.type.shape, value.strides, value.is_const);
    };
    for (ValueId id : inputs_of(piece.nodes)) add_input(id);
    std::set<ValueId> used;
    auto add_op = [&](OpCode code, const std::vector<ValueId>& operands, const Attrs& attrs,
                      const std::string& name) {
      const Result<ValueId> added = builder.add_op(code, operands, attrs, name);
      check(added.ok(), "an operator of a valid graph is not valid in a piece of it");
      return *added;
    };
    std::map<ValueId, ValueId> cast;  // what the piece casts itself
    auto operand_of = [&](ValueId operand) {
      const ValueId given = source(operand);
      if (parted.count(given) && !used.insert(given).second) {
        add_input(given);
        cast.erase(operand);
      }
      if (!became.count(given))
        became[given] = *builder.add_constant(node(given).number, node(given).type.dtype == DType::i32);
      if (given == operand) return became[given];
      const auto [at, fresh] = cast.try_emplace(operand, 0);
      if (fresh)
        at->second = add_op(OpCode::cast, {became[given]}, node(operand).attrs, unused_name(node(operand)));
      return at->second;
    };
    for (ValueId id : piece.nodes) {
      std::vector<ValueId> operands;
      for (ValueId operand : node(id).operands) operands.push_back(operand_of(operand));
      became[id] = add_op(node(id).code, operands, node(id).attrs, node(id).name);
    }
    for (ValueId id : piece.outputs) check(builder.add_output(became[id]).ok(), "a piece has no such output");
    Result<Graph> built = builder.finish();
    check(built.ok(), "a piece of a valid graph is not valid");
    piece.graph = std::move(*built);
  }

  const Graph& graph_;
  std::set<std::string> names_;
  std::vector<bool> needed_, is_output_;
  const std::vector<ValueOfPositions> positions_;
  std::vector<std::vector<ValueId>> users_;
  std::vector<std::string> outside_;  // by node
  std::vector<ValueId> order_;
  std::vector<std::pair<size_t, size_t>> segments_;  // half open, in order_
};

}  // namespace

std::string Piece::text() const {
  std::string out = canonical_text(graph);
  for (size_t i = 0; i < numbered.size(); ++i)
    if (numbered[i]) out += "numbered " + std::to_string(i) + "\n";
  if (placed) out += canonical_text(*placed);
  if (as_written) out += "as written\n";
  return out;
}

std::vector<Piece> cut_into_pieces(const Graph& graph, int bound) { return Cutter(graph).cut(bound); }

std::vector<Piece> one_piece_an_output(const Graph& graph, const Piece& piece) {
  return Cutter(graph).one_piece_a_value(piece, piece.outputs);
}

std::vector<Piece> one_piece_a_reduction(const Graph& graph, const Piece& piece) {
  auto reduces = [&](const Node& node) {
    const OpKind kind = op_info(node.code).kind;
    return (kind == OpKind::reduction || kind == OpKind::composite) &&
           bytes(node) < bytes(graph.node(node.operands[0]));
  };
  std::vector<ValueId> values;
  for (ValueId id : piece.nodes)
    if (reduces(graph.node(id)) ||
        std::find(piece.outputs.begin(), piece.outputs.end(), id) != piece.outputs.end())
      values.push_back(id);
  return Cutter(graph).one_piece_a_value(piece, values);
}

std::vector<Piece> cut_smaller(const Graph& graph, const Piece& piece) {
  return Cutter(graph).cut(piece.nodes);
}

std::vector<Piece> pieces_of(const Graph& graph, const std::vector<ValueId>& nodes) {
  return Cutter(graph).pieces_of(nodes);
}

Piece joined_piece(const Graph& graph, std::vector<ValueId> nodes, int bound) {
  std::sort(nodes.begin(), nodes.end());
  return Cutter(graph).joined(std::move(nodes), bound);
}

}  // namespace quern
