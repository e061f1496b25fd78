// A draft as text: its sections, each as far as it is filled.
#include "core/kernel/passes/draft.h"
#include "core/kernel/print_ir.h"

namespace quern::ir {

namespace {

class DraftPrinter {
 public:
  explicit DraftPrinter(const Draft& draft) : draft_(draft) {}

  std::string take() {
    out_ = print_ir(draft_.kernel);
    for (const SharedBuffer& buffer : draft_.buffers) this->buffer(buffer);
    ring(draft_.ring);
    section("names of the thread", draft_.thread_names);
    section("names of shared memory", draft_.memory_names);
    section("names of the block's place", draft_.block_names);
    section("mbarriers", draft_.barrier_setup);
    section("whether there is anything to do", draft_.guard);
    section("prologue", draft_.prologue);
    section("roles", draft_.roles);
    steps("before the loop", Stage::before);
    if (draft_.loop) loop(*draft_.loop);
    steps("an iteration", Stage::loop);
    section("the loop", draft_.loop_body);
    steps("after the loop", Stage::after);
    section("end", draft_.end);
    return std::move(out_);
  }

 private:
  void line(const std::string& text) { out_ += "  " + text + "\n"; }
  void section(const std::string& name, const Body& body) {
    if (body.empty()) return;
    line(name);
    out_ += print_ir(body, 4);
  }
  void buffer(const SharedBuffer& buffer) {
    constexpr const char* kUses[] = {"exchanged", "published to the cluster", "loop-carried", "kept"};
    std::string text = "buffer " + buffer.symbol->name + ": " + std::to_string(buffer.bytes) + " bytes, " +
                       kUses[static_cast<size_t>(buffer.use)];
    if (buffer.first >= 0)
      text += ", moments " + std::to_string(buffer.first) + " to " + std::to_string(buffer.last);
    if (buffer.offset >= 0) text += ", at " + std::to_string(buffer.offset);
    line(text);
  }
  void ring(const TileRing& ring) {
    if (ring.tiles.empty()) return;
    std::string text = "ring of " + std::to_string(ring.stages) + " stages";
    if (ring.offset >= 0) text += ", at " + std::to_string(ring.offset);
    if (ring.offset >= 0 && !ring.maps.empty()) text += ", mbarriers at " + std::to_string(ring.barriers_at);
    line(text);
    for (const TileRing::Tile& tile : ring.tiles)
      line("  tile " + tile.memory->name + ": " + type_text(*tile.memory) + ", " +
           std::to_string(tile.bytes) + " bytes");
    if (!draft_.loop) return;
    section("copies of an iteration, by all threads", ring.cp_async.all());
    for (const Arrival& each : ring.arrivals) {
      section("copies of an iteration, by TMA, " + std::to_string(each.bytes) + " bytes", each.copies.all());
      section("for that, in front of the loop", each.transform_once);
      section("made in an iteration, by warps of their own", each.transform);
    }
    section("copies in front of the loop, by TMA, " + std::to_string(ring.once_bytes) + " bytes",
            ring.once.all());
  }
  void loop(const TileLoop& loop) {
    line("loop of " + loop.iteration->name + ", trip count " + print(loop.trip_count) +
         (loop.prefetch ? ", prefetching into registers" : ""));
    section("in front of it", loop.declared);
    section("names of an iteration", loop.names);
    section("loads of an iteration", loop.loads);
    section("what was prefetched becomes that of this iteration", loop.take);
    if (loop.masked) {
      line("has scores that are not masked if " + print(loop.masked->possible));
      section("where it has none", loop.masked->look);
    }
    if (loop.first) section("the first " + print(loop.first->count) + " iterations", loop.first->body);
    for (const Symbol& sums : loop.outstanding) line("outstanding product: " + sums->name);
    if (!loop.pipelined) return;
    section("product of the iteration before", loop.pipelined->group);
    section("when it has landed", loop.pipelined->rest);
  }
  void steps(const std::string& name, Stage stage) {
    const Draft::Section& own = draft_.section(stage);
    const std::string barrier = own.begins_with_barrier && !own.body.empty() ? ", behind a barrier" : "";
    int number = 0;
    for (const Step& step : own.steps.all())
      section(name + ", step " + std::to_string(number++) + (step.in_place ? ", in place" : ""), step.body);
    section(name + barrier, own.body);
  }

  const Draft& draft_;
  std::string out_;
};

}  // namespace

std::string print_ir(const Draft& draft) { return DraftPrinter(draft).take(); }

}  // namespace quern::ir
