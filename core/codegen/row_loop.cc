#include "core/codegen/row_loop.h"

#include <algorithm>

#include "core/base/integers.h"
#include "core/kernel/replace.h"

namespace quern {

using ir::Expr;

namespace {

constexpr int kAhead = 8;  // steps of a thread whose copies are under way

}  // namespace

void RowLoop::begin(ir::Builder& to, const Expr& thread, const Expr& block, const Expr& row) const {
  to.let(lane_, thread % shape_.team);
  if (shape_.aligned) {
    const Expr first = to.let(ir::make_variable("begin", first_vector_->type), row * row_length_);
    to.let(first_vector_, first / shape_.vector);
    const Expr skipped = to.let(skipped_, ir::cast(first % shape_.vector, skipped_->type));
    to.let(steps_, (skipped + (row_length_ + shape_.vector - 1)) / shape_.vector);
  }
  if (!is_shared()) return;
  const Expr first = ir::cast(block % shape_.cluster, first_->type) * part();
  to.let(first_, is_even() ? first : ir::select(less(first, all()), first, all()));
}

// The steps of the row, and of the part.
Expr RowLoop::all() const { return shape_.aligned ? Expr(steps_) : ir::cast(steps(), steps_->type); }
Expr RowLoop::end() const {
  if (is_even()) return part();
  if (!is_shared()) return all();
  return ir::select(less(first() + part(), all()), ir::cast(part(), first_->type), all() - first());
}

void RowLoop::let_place_in_row(ir::Builder& to) const {
  if (is_shared()) to.let(j_, first() + Expr(step_in_part()));
}

// `body` of another step: `j` within the row, `step` within the part.
ir::Body RowLoop::placed(const ir::Body& body, const Expr& j, const Expr& step) const {
  return ir::replaced(body, [&](const ir::ExprNode& node) {
    if (node.kind != ir::ExprKind::symbol) return std::optional<Expr>();
    if (node.symbol == j_) return std::optional(j);
    return node.symbol == step_in_part_ ? std::optional(step) : std::nullopt;
  });
}

void RowLoop::run(ir::Builder& to, ir::Body body, ir::Unroll unroll) {
  const bool team = shape_.team > 1;
  if (body.empty() || (!team && steps() == 1)) return to.add(std::move(body));
  if (const ir::Body copies = std::exchange(copies_, {}); !copies.empty())
    return arrive(to, copies, std::move(body));
  ir::Body step;
  ir::Builder each(step);
  let_place_in_row(each);
  each.add(std::move(body));
  to.add(ir::For{step_in_part(), team ? lane() : Expr(0), end(), unroll, std::move(step),
                 team ? shape_.team : 1});
}

void RowLoop::run_at(ir::Builder& to, const Expr& position, const ir::Body& body) const {
  to.when(less(position, row_length_), [&](ir::Builder& inside) {
    const Expr at = shape_.aligned ? position + ir::cast(Expr(skipped_), position.type()) : position;
    const Expr j = inside.let(ir::make_variable("at", j_->type), at / shape_.vector);
    Expr own = ir::truth(true), step = j;
    if (is_shared()) {
      step = inside.let(ir::make_variable("at_in_part", step_in_part_->type), j - first());
      own = both(less_equal(first(), j), less(step, part()));
    }
    inside.when(both(own, equal(step % shape_.team, lane())),
                [&](ir::Builder& one) { one.add(placed(body, j, step)); });
  });
}

// The loop over a row while it arrives: in a step, the copies of a later one, and what is done with this one's.
void RowLoop::arrive(ir::Builder& to, const ir::Body& copies, ir::Body body) const {
  const ir::Symbol &own = step_in_part(), step = ir::make_variable("step", own->type);
  const int64_t team = shape_.team, steps = divide_up(part(), team), ahead = std::min<int64_t>(kAhead, steps);
  const bool whole = part() % team == 0 && is_even();
  auto inside = [&](const Expr& at) { return whole ? ir::truth(true) : less(at, end()); };
  // A group of copies in any case, as threads count groups.
  auto copy = [&](ir::Builder& some, const Expr& at, const Expr& condition) {
    some.when(condition, [&](ir::Builder& one) { one.add(placed(copies, first() + at, at)); });
    some.emit(ir::Instr::cp_async_commit);
  };
  auto work = [&](ir::Builder& some) {
    some.when(inside(Expr(own)), [&](ir::Builder& one) {
      let_place_in_row(one);
      one.add(std::move(body));
    });
  };
  for (int64_t s = 0; s < ahead; ++s) copy(to, lane() + s * team, inside(lane() + s * team));
  if (steps == 1) {
    to.emit(ir::Instr::cp_async_wait, {}, {0});
    return to.scope([&](ir::Builder& one) {
      one.let(own, lane());
      work(one);
    });
  }
  to.rolled(step, 0, steps, [&](ir::Builder& each) {
    each.let(own, lane() + Expr(step) * team);
    const Expr later = Expr(own) + ahead * team;
    copy(each, later,
         ahead == steps ? ir::truth(false)
         : whole        ? less(step, steps - ahead)
                        : less(later, end()));
    each.emit(ir::Instr::cp_async_wait, {}, {ahead});
    work(each);
  });
  to.emit(ir::Instr::cp_async_wait, {}, {0});
}

}  // namespace quern
