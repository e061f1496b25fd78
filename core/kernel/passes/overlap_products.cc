// Products that are overlapped with what threads compute: where an iteration ends with products of what it
// has made of others (attention), those are issued behind the first products of the next iteration, and run
// while the threads compute what these are for. What changes registers of products that are under way waits
// for them:
//
//   first products of iteration 0; what threads make of them; what changes operands and sums of the last products
//   for step in 1 .. trip count
//     in turns of the warpgroups:
//       first products of iteration step
//       last products of iteration step - 1
//     wait for the first; what threads make of them
//     wait for the last; give back the stage of step - 1; what changes operands and sums of the last products
//   last products of the last iteration; wait
//
// Warpgroups that compute issue their products in turns: while those of one run, the others compute. As an instruction of
// products waits until tensor cores take it, they would else wait together and then all compute at once.
//
// A turn begins when the tiles of its first products have come and operands are made. ptxas (CUDA 13.0) moves what
// changes operands behind the barrier of a turn where it stands in front of it; here it finds its place among the
// exponentials. It moves the wait for the last products in front of these as well. Where warpgroups take turns and those
// are long, half of what is summed is held in front of the wait (schedule_fence); the other half is computed beside what
// changes operands.
//
// Products may not be under way where branches meet (ptxas then makes one after the other), so that loops that pass over
// masked tiles are not overlapped.
#include <algorithm>

#include "core/base/status.h"
#include "core/kernel/effects.h"
#include "core/kernel/passes/passes.h"
#include "core/kernel/passes/tile_loop.h"
#include "core/kernel/replace.h"

namespace quern::ir {

namespace {

bool is(const Stmt& stmt, Instr code) {
  const auto* instruction = stmt.as<Instruction>();
  return instruction && instruction->code == code;
}

// Instructions of products, their groups, and what orders registers before them.
bool is_of_product(const Stmt& stmt) {
  if (const Body* body = body_of(stmt)) return std::any_of(body->begin(), body->end(), is_of_product);
  for (Instr code : {Instr::wgmma_fence, Instr::wgmma, Instr::wgmma_shared, Instr::wgmma_commit})
    if (is(stmt, code)) return true;
  return false;
}

// The parts of an iteration.
struct Parts {
  Body first, made, late, last;  // `late`: of what is made, what changes registers of `last`
  Body landed;                   // sums of `first`, as far as it has not waited for them
  Body declared;                 // what parts share: declared in front of the loop
  int groups = 0;                // of `last`
};

bool meet(const std::set<const SymbolData*>& a, const std::set<const SymbolData*>& b) {
  return std::any_of(a.begin(), a.end(), [&](const SymbolData* each) { return b.contains(each); });
}

// Declarations are moved out, and zeros written where they stood.
Body without_declarations(const Body& body, Body& declared) {
  Body out;
  Builder to(out);
  for (const Stmt& stmt : body) {
    const auto* declare = stmt.as<Declare>();
    if (!declare) {
      to.add(stmt);
      continue;
    }
    declared.push_back(Declare{declare->array, false, declare->extent});
    if (!declare->zero) continue;
    to.unrolled("r", declare->array->count, [&](Builder& each, const Expr& r) {
      each.assign(element(declare->array, r), literal(0, declare->array->type));
    });
  }
  return out;
}

// Null where the iteration has no such parts.
std::optional<Parts> split(const Body& iteration) {
  Parts parts;
  const Body body = without_declarations(iteration, parts.declared);
  // The last products: groups that nothing waits for.
  auto begin_of_last = body.end();
  for (auto at = body.begin(); at != body.end(); ++at) {
    if (is(*at, Instr::wgmma_wait)) begin_of_last = body.end();
    if (is(*at, Instr::wgmma_fence) && begin_of_last == body.end()) begin_of_last = at;
  }
  const auto waits = std::find_if(std::make_reverse_iterator(begin_of_last), body.rend(),
                                  [](const Stmt& stmt) { return is(stmt, Instr::wgmma_wait); });
  if (begin_of_last == body.end() || waits == body.rend()) return std::nullopt;
  auto made = waits.base();
  parts.first.assign(body.begin(), made - 1);
  for (; made != begin_of_last && is(*made, Instr::wgmma_landed); ++made) parts.landed.push_back(*made);
  // What stands between the last products is made before them.
  Body between(made, begin_of_last);
  for (auto at = begin_of_last; at != body.end(); ++at) {
    (is_of_product(*at) ? parts.last : between).push_back(*at);
    parts.groups += is(*at, Instr::wgmma_commit);
  }
  std::set<const SymbolData*> busy = named_registers(parts.last), read;
  for (const Stmt& stmt : between) {
    std::set<const SymbolData*> writes = written_symbols({stmt}, Space::registers);
    const bool late = meet(named_registers({stmt}), busy) || meet(writes, read);
    (late ? parts.late : parts.made).push_back(stmt);
    if (!late) continue;
    busy.merge(writes);
    read.merge(read_symbols({stmt}, Space::registers));
  }
  return parts;
}

// Whether the statement makes the elements of `to` one by one of those of `from` at the same places.
bool makes_in_place(const Stmt& stmt, const Symbol& from, const Symbol& to) {
  const auto* loop = stmt.as<For>();
  const auto* assign = loop && loop->body.size() == 1 ? loop->body[0].as<Assign>() : nullptr;
  if (!assign || assign->place->kind != ExprKind::element || assign->place->symbol != to) return false;
  bool reads = false, same = true;
  visit_nodes(assign->value, [&](const ExprNode& node) {
    same &= node.symbol != to;
    if (node.symbol != from) return;
    reads = true;
    same &= node.kind == ExprKind::element && node.operands[0] == assign->place->operands[0];
  });
  return reads && same;
}

// Whether statement `at` of what is made may write elements of `to` over those of `from`, which nobody needs any more.
bool takes_place(const Parts& parts, size_t at, const Symbol& from, const Symbol& to) {
  auto names = [](const Body& body, const Symbol& array) {
    return named_registers(body).contains(array.get());
  };
  const auto place = parts.made.begin() + static_cast<std::ptrdiff_t>(at);
  if (!makes_in_place(*place, from, to)) return false;
  const bool needed =
      names(Body(place + 1, parts.made.end()), from) || names(parts.late, from) || names(parts.last, from);
  return !needed && !names(Body(parts.made.begin(), place), to) && !names(parts.first, to);
}

// Arrays that are made of another one's elements take its place: what lives beside products that are under way finds
// registers, which ptxas of CUDA 13.0 otherwise does not see. `all` are the same iteration with and without masks.
void make_in_place(const std::vector<Parts*>& all) {
  auto declared = [&](const Stmt& stmt) { return stmt.as<Declare>()->array; };
  for (size_t at = 0; at < all[0]->made.size(); ++at)
    for (const Stmt& one : all[0]->declared)
      for (const Stmt& other : all[0]->declared) {
        const Symbol from = declared(one), to = declared(other);
        if (from->count != to->count || from->type != to->type ||
            !std::all_of(all.begin(), all.end(),
                         [&](const Parts* parts) { return takes_place(*parts, at, from, to); }))
          continue;
        for (Parts* parts : all) {
          for (Body* body : {&parts->made, &parts->late, &parts->last}) *body = renamed(*body, to, from);
          std::erase_if(parts->declared, [&](const Stmt& stmt) { return declared(stmt) == to; });
        }
        return make_in_place(all);
      }
}

constexpr int kWarpgroup = 128;  // threads
// Columns of the last products from which on they are long: heads of 128, which gain 1 to 4 % (H200).
constexpr int64_t kLongColumns = 128;
constexpr int64_t kMostSums = 8;  // registers; what has more is a tile, not sums of rows

// The first half of the sums that an iteration adds what it has made to, perhaps where that is not ragged. Null where there is
// none.
std::optional<Expr> first_sums(const Parts& parts) {
  for (auto at = parts.made.rbegin(); at != parts.made.rend(); ++at) {
    const auto* loop = at->as<For>();
    const Body* body = loop ? &loop->body : nullptr;
    if (const auto* inside = body && body->size() == 1 ? (*body)[0].as<If>() : nullptr) body = &inside->then;
    const auto* add = body && body->size() == 1 ? (*body)[0].as<Assign>() : nullptr;
    if (!add || add->place->kind != ExprKind::element || add->value->kind != ExprKind::operation ||
        add->value->op != Operator::add || !(add->value->operands[0] == add->place))
      continue;
    const Symbol& sums = add->place->symbol;
    const bool stays = std::none_of(parts.declared.begin(), parts.declared.end(),
                                    [&](const Stmt& stmt) { return stmt.as<Declare>()->array == sums; });
    if (!stays || sums->type != Scalar::f32 || sums->count > kMostSums) continue;
    Expr half = element(sums, 0);
    for (int64_t i = 1; i < sums->count / 2; ++i) half = half + element(sums, i);
    return half;
  }
  return std::nullopt;
}

bool has_long_products(const Body& products) {
  return std::any_of(products.begin(), products.end(), [](const Stmt& stmt) {
    if (const Body* body = body_of(stmt)) return has_long_products(*body);
    return (is(stmt, Instr::wgmma) || is(stmt, Instr::wgmma_shared)) &&
           stmt.as<Instruction>()->templates[1].number >= kLongColumns;
  });
}

Expr group_of(const Draft& draft) { return Expr(draft.warp) / (kWarpgroup / 32); }

// The loop of the threads that compute. `masked`: the parts of the first iterations, which have masks.
Body overlapped_loop(const Draft& draft, const Parts& parts, const std::optional<Parts>& masked) {
  const TileLoop& loop = *draft.loop;
  const Symbol step = make_variable("step", Scalar::i32);
  const Expr last = loop.trip_count - 1;
  const bool several = draft.workers > kWarpgroup;
  Body out = loop.declared;
  Builder to(out);
  auto in_scope = [&](Builder& at, const Expr& iteration, const Body& body) {
    at.scope([&](Builder& there) {
      there.let(loop.iteration, iteration);
      there.add(body);
    });
  };
  auto in_iteration = [&](Builder& at, const Expr& iteration, const Body& part, const Body& before) {
    in_scope(at, iteration, part_of_iteration(draft, part, before));
  };
  // The wait for their tiles stands in front of the wait for their turn.
  auto first_products = [&](Builder& at, const Expr& iteration) {
    if (!loop.loads.empty()) {
      Body loads = loop.names;
      Builder(loads).add(loop.loads);
      in_scope(at, iteration, loads);
    }
    Body body = part_of_iteration(draft, parts.first, {}), turn;
    if (several) Builder(turn).emit(Instr::order_wait, {group_of(draft)}, {draft.workers});
    body.insert(std::find_if(body.begin(), body.end(), is_of_product), turn.begin(), turn.end());
    in_scope(at, iteration, body);
  };
  auto last_products = [&](Builder& at, const Expr& iteration) {
    in_iteration(at, iteration, parts.last, parts.first);
  };
  auto change_operands = [&](Builder& at, const Expr& iteration, const Parts& of) {
    in_iteration(at, iteration, of.late, of.first);
  };
  auto end_turn = [&](Builder& at) {
    if (several) at.emit(Instr::order_arrive, {group_of(draft)}, {draft.workers});
  };
  // Of the first products, while `groups` are under way behind them.
  auto make = [&](Builder& at, const Expr& iteration, const Parts& of, int groups) {
    at.emit(Instr::wgmma_wait, {}, {groups});
    at.add(parts.landed);
    in_iteration(at, iteration, of.made, of.first);
    if (groups == 0 || !several || !has_long_products(of.last)) return;
    if (const auto sums = first_sums(of)) at.emit(Instr::schedule_fence, {*sums});
  };
  // The last products are there, and the stage that they have read is given back.
  auto land = [&](Builder& at, const Expr& iteration) {
    at.add(wait_for_products(loop.outstanding));
    at.emit(Instr::warp_barrier);
    give_back(draft, iteration_of_all(draft, iteration), gives_back(draft), at);
  };
  auto steps = [&](Builder& some, const Expr& begin, const Expr& end, const Parts& of) {
    some.rolled(step, begin, end, [&](Builder& each) {
      first_products(each, step);
      last_products(each, Expr(step) - 1);
      end_turn(each);
      make(each, step, of, of.groups);
      land(each, Expr(step) - 1);
      change_operands(each, step, of);
    });
  };
  auto iterations = [&](Builder& some) {
    some.add(parts.declared);
    first_products(some, 0);
    end_turn(some);
    const Parts& begins = masked ? *masked : parts;
    make(some, 0, begins, 0);
    change_operands(some, 0, begins);
    if (masked) steps(some, 1, loop.first->count, *masked);
    steps(some, masked ? max_of(loop.first->count, 1) : 1, loop.trip_count, parts);
    give_back_once(draft, some);
    last_products(some, last);
    some.add(loop.beside_last);
    land(some, last);
  };
  if (loop.trip_count.is_number())
    iterations(to);
  else
    to.when(less(0, loop.trip_count), iterations);
  if (!loop.trip_count.is_number() && draft.turns)
    to.when(less_equal(loop.trip_count, 0), [&](Builder& none) { give_back_once(draft, none); });
  to.add(loop.behind);
  return out;
}

// Whether two iterations have the same products.
bool have_same_products(const Parts& a, const Parts& b) {
  auto same = [](const Body& one, const Body& other) { return print_cuda(one) == print_cuda(other); };
  return same(a.first, b.first) && same(a.last, b.last) && same(a.landed, b.landed) &&
         a.made.size() == b.made.size() && a.late.size() == b.late.size();
}

}  // namespace

Status overlap_products(Draft& draft, const PassContext&) {
  if (!draft.loop || !draft.schedule.overlap) return {};
  Draft::Section& section = draft.section(Stage::loop);
  auto parts = split(section.body), masked = draft.loop->first ? split(draft.loop->first->body) : std::nullopt;
  if (!parts || section.begins_with_barrier || has_barriers(section.body) ||
      (draft.loop->masked && !draft.schedule.intervals) || draft.loop->trip_count.is_number(1) ||
      (draft.loop->first && !(masked && have_same_products(*parts, *masked))))
    return Status(ErrorCode::UNSUPPORTED,
                  "overlap is for loops whose last products are of what is made of others, without barriers "
                  "and masked tiles");
  std::vector<Parts*> all = {&*parts};
  if (masked) all.push_back(&*masked);
  make_in_place(all);
  draft.loop_body = overlapped_loop(draft, *parts, masked);
  if (draft.workers > kWarpgroup)
    Builder(draft.roles).emit(Instr::order_begin, {group_of(draft)}, {draft.workers});
  draft.loop.reset();
  section.body.clear();
  return {};
}

}  // namespace quern::ir
