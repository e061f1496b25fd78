// Orders the steps of each section so that few barriers suffice, and places these: one between the steps that
// write a shared buffer and those that read it, and one in front of a section that writes where another may
// still read.
#include <algorithm>

#include "core/kernel/effects.h"
#include "core/kernel/passes/passes.h"

namespace quern::ir {

namespace {

// A section that writes to shared memory waits until what was there before is no longer needed: in the loop
// at the head of each iteration, which staged tiles do anyway (with a producer they have mbarriers) and what
// stays within warps need not. In blocks that stay all of that stays within warps, and lies beside the ring.
bool begins_with_barrier(const Draft& draft, Stage stage) {
  const auto& buffers = draft.buffers;
  const bool staged = !draft.ring.tiles.empty();
  auto writes = [&](Stage each) { return draft.section(each).steps.writes_shared(buffers); };
  if (stage == Stage::loop)
    return (staged && !draft.producer) || draft.section(stage).steps.has_exchanges(buffers);
  if (stage == Stage::after && std::any_of(buffers.begin(), buffers.end(), [](const SharedBuffer& buffer) {
        return buffer.use == SharedBuffer::Use::loop_carried;
      }))
    return true;
  return stage == Stage::after && !draft.turns && writes(Stage::after) &&
         (staged || writes(Stage::before) || writes(Stage::loop));
}

bool touches(const Body& body, Space space) {
  bool found = false;
  visit_effects(body, [&](const Effect& effect) { found |= effect.symbol->space == space; });
  return found;
}

// What loads in front of the loop waits for memory, and the loop's first tiles can come meanwhile.
bool fetches_first(const Draft& draft) {
  const std::vector<Step>& before = draft.section(Stage::before).steps.all();
  return draft.loop && !draft.producer && !draft.turns && !draft.ring.tiles.empty() &&
         !touches(draft.prologue, Space::global) && !touches(draft.prologue, Space::shared) &&
         std::any_of(before.begin(), before.end(),
                     [](const Step& step) { return touches(step.body, Space::global); });
}

void set_moments(SharedBuffer& buffer, int first, int last) {
  buffer.first = buffer.first < 0 ? first : std::min(buffer.first, first);
  buffer.last = std::max(buffer.last, last);
}

}  // namespace

// Time passes with barriers: each level of a section is a moment, and goes on in the next section unless that
// begins with a barrier. The moments of the loop come again and again. Staged tiles are needed all through
// it; a producer begins with them at once, and so do others in front of whose loop there is something to wait for.
Status order_steps(Draft& draft, const PassContext& context) {
  int now = 0;
  draft.fetches_first = fetches_first(draft);
  for (Stage stage : {Stage::before, Stage::loop, Stage::after}) {
    Draft::Section& section = draft.section(stage);
    section.begins_with_barrier = begins_with_barrier(draft, stage);
    const int first = section.begins_with_barrier ? 1 : 0;
    now += first;
    const OrderProblem problem = section.steps.order_problem(draft.buffers);
    auto order = context.chooser.order(problem);
    if (!order) return order.status();
    for (const StepList::Span& span : section.steps.spans(draft.buffers, *order))
      set_moments(draft.buffers[static_cast<size_t>(span.buffer)], now + span.first, now + span.last);
    const int barriers = order->cost.barriers;
    const int listed = order_as_listed(problem).cost.barriers;
    const bool loop = stage == Stage::loop;
    (loop ? draft.costs.barriers_per_iteration : draft.costs.barriers_once) += first + barriers;
    (loop ? draft.costs.listed_per_iteration : draft.costs.listed_once) += first + listed;
    if (loop) {
      draft.ring.first = draft.producer || draft.fetches_first ? 0 : now;
      draft.ring.last = now + barriers;
    }
    now += barriers;
    section.body = section.steps.body(*order, draft.barrier());
  }
  for (SharedBuffer& buffer : draft.buffers)
    if (buffer.use == SharedBuffer::Use::kept)
      set_moments(buffer, 0, draft.ring.last);
    else if (buffer.use == SharedBuffer::Use::loop_carried ||
             (draft.turns && buffer.first >= 0))  // beside the tiles that come for the next turn
      set_moments(buffer, 0, now);
  for (Draft::Section& section : draft.sections) section.steps = {};
  return {};
}

}  // namespace quern::ir
