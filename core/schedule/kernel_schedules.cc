#include "core/schedule/kernel_schedules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <new>
#include <optional>

#include "core/base/integers.h"
#include "core/base/threads.h"
#include "core/mugraph/tensor_view.h"
#include "core/mugraph/tile_masks.h"
#include "core/schedule/block_work.h"
#include "core/schedule/model.h"
#include "core/schedule/schedule_choices.h"
#include "core/schedule/tile_access.h"
#include "core/schedule/tile_pairs.h"
#include "core/schedule/uneven_tiles.h"

namespace quern {

namespace {

constexpr int kWarpgroup = 128;    // threads
constexpr int kMostMinBlocks = 4;  // more blocks an SM fit by themselves, or do not help
constexpr int kStages[] = {2, 3, 4, 6};

// By cp.async and tensor cores that read registers, and by the hardware that newer targets have for the same.
template <class Consider>
void consider_staged(KernelSchedule schedule, const KernelShape& shape, const Target& target,
                     Consider consider) {
  schedule.tma = schedule.wgmma = false;
  consider(schedule);
  if (!target.tma) return;
  schedule.tma = true;
  consider(schedule);
  const auto& warps = schedule.warps;
  if (!target.wgmma || !shape.narrow || (warps[0] < 4 && (warps[0] != 1 || warps[1] < 4))) return;
  schedule.wgmma = true;
  consider(schedule);
}

// Whether TMA should be able to bring the tile of a tensor there, whose rows it can bring, for wgmma: neighbours lie along
// one dimension, and parts that are cut off are whole fragments of tensor cores, or as large as wgmma takes them. The emitter
// decides.
bool fits_tma(const MuKernel& kernel, const BlockOp& load, const TensorPlace& place) {
  const KernelSchedule by_producer = {.wgmma = true, .producer = true};
  const Ints &whole = place.shape, &tile = load.type.shape;
  bool neighbours = false, single = true;
  for (size_t d = 0; d < whole.size(); ++d) {
    const int64_t part = tile[d], least = d + 2 < whole.size() ? 1 : 16;
    const bool is_whole = std::has_single_bit(static_cast<uint64_t>(part)) ||
                          is_unpadded(kernel, by_producer, load, place, static_cast<int>(d));
    if (part != whole[d] && (part < least || !is_whole)) return false;
    neighbours |= whole[d] > 1 && place.strides[d] == 1;
    single &= whole[d] == 1;
  }
  return neighbours || single;
}

// Whether it should be able to bring the tiles of the loop, but for some that threads read where they lie. The caller's tensors
// are taken to be dense.
bool loop_fits_tma(const MuGraph& mugraph, const MuKernel& kernel) {
  const std::vector<Stage> stages = block_stages(kernel);
  bool some = false;
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    const BlockOp& op = kernel.ops[i];
    if (!op.is_load() || stages[i] != Stage::loop) continue;
    const TensorPlace place = dense_place(mugraph, op.tensor());
    if (place.numbered >= 0) continue;
    if (has_tma_rows(place) ? !fits_tma(kernel, op, place)
                            : feeds_product(kernel.ops, static_cast<BlockValue>(i)))
      return false;
    some |= has_tma_rows(place);
  }
  return some;
}

// The work of the blocks of a muGraph's only kernel, for schedules that come one after the other: how many
// stages a ring has, how many blocks there are and what ptxas is told of them make no difference to it.
class BlockWorks {
 public:
  explicit BlockWorks(const Target& target) : target_(target) {}

  const BlockWork& of(const MuGraph& applied, const KernelSchedule& schedule) {
    if (applied_ != &applied) known_.clear();
    applied_ = &applied;
    KernelSchedule like = schedule;
    like.stages = std::min(schedule.stages, 2);
    like.persistent = 0;
    like.pingpong = false;
    like.min_blocks = 0;
    like.setmaxnreg = false;
    auto at =
        std::find_if(known_.begin(), known_.end(), [&](const auto& each) { return each.first == like; });
    if (at == known_.end())
      at = known_.insert(at, {like, block_work(applied, applied.kernels[0], like, target_)});
    return at->second;
  }
  KernelTime time(const MuGraph& applied, const KernelSchedule& schedule) {
    return modelled_block(of(applied, schedule), schedule, target_);
  }

 private:
  const Target& target_;
  const MuGraph* applied_ = nullptr;
  std::vector<std::pair<KernelSchedule, BlockWork>> known_;  // of it
};

// Persistent blocks that have a pair of tiles each: so many of the `blocks` that fit that all have about as many other tiles.
// 0: there are no pairs, or more than blocks.
int64_t blocks_of_pairs(const MuGraph& mugraph, const MuKernel& kernel, int64_t blocks) {
  const auto pairs = tile_pairs(kernel, uneven_axis(mugraph, kernel).axis);
  if (!pairs || pairs->count > blocks) return 0;
  const int64_t rounds = divide_up(pairs->others, blocks / pairs->count);
  return pairs->count * divide_up(pairs->others, rounds);
}

// As many blocks as fit, where these have several tiles each and share nothing but the ring.
std::optional<KernelSchedule> persistent(const MuGraph& mugraph, const MuKernel& kernel,
                                         const KernelSchedule& schedule, int64_t blocks_per_sm,
                                         const Target& target, BlockWorks& works) {
  const int64_t tiles = kernel.grid[0] * kernel.grid[1] * kernel.grid[2], blocks = blocks_per_sm * target.sms;
  if (!schedule.producer || kernel.grid[3] > 1 || tiles <= blocks) return std::nullopt;
  // Where some have more to do than others, whoever is ready takes the next one, or all have as much of both.
  if (unmasked_share(mugraph, kernel).mean < 1 && !schedule.intervals) return std::nullopt;
  const BlockWork& work = works.of(mugraph, schedule);
  if (work.exchange_bytes > 0 || work.written_bytes > 0) return std::nullopt;
  KernelSchedule out = schedule;
  out.persistent = schedule.intervals ? blocks_of_pairs(mugraph, kernel, blocks) : blocks;
  return out.persistent > 0 ? std::optional(out) : std::nullopt;
}

// The same by two warpgroups in turns, of which one stores a tile while the products of the other run. What registers the
// producer leaves they have.
std::optional<KernelSchedule> in_turns(const MuGraph& mugraph, const MuKernel& kernel,
                                       const KernelSchedule& schedule, const Target& target,
                                       BlockWorks& works) {
  if (!schedule.wgmma || schedule.workers() != kWarpgroup || schedule.min_blocks > 0 || schedule.overlap ||
      schedule.intervals || schedule.transform)
    return std::nullopt;
  auto out = persistent(mugraph, kernel, schedule, 1, target, works);
  if (!out) return std::nullopt;
  out->pingpong = out->setmaxnreg = true;
  if (works.time(mugraph, *out).blocks_per_sm > 1) return std::nullopt;
  return out;
}

struct Ranked {
  double us;
  KernelSchedule schedule;
};

// The schedules of a muGraph's only kernel with one tile and one size of clusters.
class SchedulesOfTile {
 public:
  // `own`: the kernel's own schedule; `whole`: the shape of the kernel before it is cut.
  SchedulesOfTile(const MuGraph& mugraph, const KernelSchedule& own, const KernelShape& whole,
                  const Target& target, bool allow_tf32)
      : mugraph_(mugraph),
        own_(own),
        whole_(whole),
        target_(target),
        gains_by_tf32_(gains_by_tf32(mugraph.kernels[0])),
        allow_tf32_(allow_tf32),
        works_(target) {}

  // Those with the tile and the clusters of `base`.
  std::vector<Ranked> of(KernelSchedule base) && {
    base.tile_k = 0;
    const MuGraph* applied = applied_to(base);
    if (!applied) return {};
    const MuKernel& cut = applied->kernels[0];
    const KernelShape shape = shape_of(cut);
    const int64_t cut_by_loop = extent_or_none(*applied, cut, kGridAxes);
    for (const auto& warps : warp_choices(shape)) {
      base.warps = warps;
      for (int64_t tile_k : tile_k_choices(cut, shape, base, cut_by_loop)) {
        base.tile_k = tile_k;
        const int64_t count = tile_k == 0 ? cut.trip_count : divide_up(cut_by_loop, tile_k);
        base.prefetch = true;
        base.stages = 0;
        consider(base);
        if (cut_by_loop == 0) continue;
        base.prefetch = false;
        consider(base);
        base.prefetch = true;
        for (int stages : kStages) {
          base.stages = stages;
          if (stages <= std::max<int64_t>(2, count))
            consider_staged(base, shape, target_, [&](const KernelSchedule& each) { consider(each); });
        }
      }
    }
    return std::move(ranked_);
  }

  // The same, by the warps of `base` and wgmma alone.
  std::vector<Ranked> of_uneven(KernelSchedule base) && {
    const MuGraph* applied = applied_to(base);
    if (!applied) return {};
    const MuKernel& cut = applied->kernels[0];
    for (int64_t tile_k :
         tile_k_choices(cut, shape_of(cut), base, extent_or_none(*applied, cut, kGridAxes))) {
      base.tile_k = tile_k;
      for (int stages : kStages) {
        base.stages = stages;
        consider_as_is(base);
      }
    }
    return std::move(ranked_);
  }

 private:
  // Null where the tiles do not fit.
  const MuGraph* applied_to(const KernelSchedule& schedule) {
    const auto [at, fresh] = applied_.try_emplace(schedule.tile_k);
    if (fresh) {
      KernelSchedule tiles = own_;
      tiles.tile = schedule.tile;
      tiles.tile_k = schedule.tile_k;
      tiles.cluster = schedule.cluster;
      tiles.pdl = false;  // this one depends on none
      if (auto applied = apply_schedule(mugraph_, {{tiles}})) at->second = std::move(*applied);
    }
    return at->second ? &*at->second : nullptr;
  }

  void consider(KernelSchedule schedule) {
    consider_as_is(schedule);
    const bool gains = gains_by_tf32_ && !schedule.wgmma;  // which takes 16-bit operands only
    schedule.tf32 = allow_tf32_ && gains;
    if (schedule.tf32) consider_as_is(schedule);
    schedule.tf32 = false;
    schedule.tf32x3 = gains;
    if (schedule.tf32x3) consider_as_is(schedule);
  }

  void consider_as_is(const KernelSchedule& schedule) {
    const MuGraph* applied = applied_to(schedule);
    if (!applied) return;
    const MuKernel& cut = applied->kernels[0];
    const bool of_products = whole_.chained || whole_.of_products;
    // Warpgroups, which wait for each other at every iteration, are faster with a producer where it fits;
    // others are not.
    KernelSchedule fed = schedule;
    fed.producer = schedule.wgmma && loop_fits_tma(*applied, cut);
    const bool masked = unmasked_share(*applied, cut).mean < 1;
    // Rows within a warp, which then hands nothing to others.
    const bool alone = fed.producer && fed.warps[1] == 1 && fed.warps[2] == 1;
    // Registers of the producer's are for those who need many: attention, which has sums of two products.
    // Beside three warpgroups its own takes none that are left.
    fed.setmaxnreg = fed.producer &&
                     (!are_powers_of_two(fed.warps) || (alone && of_products && fed.workers() > kWarpgroup));
    KernelSchedule cut_short = fed;
    cut_short.intervals = alone && masked;
    if (cut_short.intervals) rank(*applied, cut_short);
    KernelSchedule overlapped = cut_short;
    overlapped.overlap = alone && whole_.of_products && fed.stages > 2;
    if (overlapped.overlap) {
      rank(*applied, overlapped);
      KernelSchedule fewer_registers = overlapped;
      fewer_registers.shared_a = true;
      rank(*applied, fewer_registers);
      rank_with_transform(*applied, overlapped);
      rank_with_transform(*applied, fewer_registers);
    }
    // Or all iterations, of which then none is passed over.
    overlapped.intervals = false;
    if (overlapped.overlap && masked) {
      rank(*applied, overlapped);
      rank_with_transform(*applied, overlapped);
    }
    if (of_products) rank_with_transform(*applied, fed);
    const double fed_us = rank(*applied, fed);
    if (fed.producer && fed_us >= works_.time(*applied, schedule).us) rank(*applied, schedule);
  }

  // Where threads make operands of wgmma, by warps of their own: beside what is computed between products. Beside products alone,
  // whose operands fill the bandwidth of shared memory, it takes longer (docs/results/models-h200.md).
  void rank_with_transform(const MuGraph& applied, KernelSchedule schedule) {
    if (!schedule.producer || !works_.of(applied, schedule).makes_operands) return;
    schedule.transform = schedule.setmaxnreg = true;
    if (check_fields(schedule).ok()) rank(applied, schedule);
  }

  // With what it may have beside its tiles, too. Returns its own time.
  double rank(const MuGraph& applied, const KernelSchedule& each) {
    const MuKernel& cut = applied.kernels[0];
    const KernelTime time = works_.time(applied, each);
    if (!std::isfinite(time.us)) return time.us;
    ranked_.push_back({time.us, each});
    if (const auto staying = persistent(applied, cut, each, time.blocks_per_sm, target_, works_))
      ranked_.push_back({works_.time(applied, *staying).us, *staying});
    if (const auto turns = in_turns(applied, cut, each, target_, works_))
      ranked_.push_back({works_.time(applied, *turns).us, *turns});
    KernelSchedule denser = each;
    // ptxas chooses other registers, and banks of them, where it knows how many blocks there are.
    if (whole_.product && !whole_.narrow) {
      denser.min_blocks = static_cast<int>(std::min<int64_t>(time.blocks_per_sm, kMostMinBlocks));
      ranked_.push_back({time.us, denser});
    }
    // One block more at a time, at the price of registers.
    denser.min_blocks = static_cast<int>(time.blocks_per_sm) + 1;
    if (denser.min_blocks > kMostMinBlocks) return time.us;
    const double denser_us = works_.time(applied, denser).us;
    if (denser_us < time.us) ranked_.push_back({denser_us, denser});
    return time.us;
  }

  const MuGraph& mugraph_;
  const KernelSchedule& own_;
  const KernelShape& whole_;
  const Target& target_;
  const bool gains_by_tf32_, allow_tf32_;
  BlockWorks works_;
  std::map<int64_t, std::optional<MuGraph>> applied_;  // by tile_k; none where it does not fit
  std::vector<Ranked> ranked_;
};

// Best first, each once.
std::vector<KernelSchedule> by_time(std::vector<Ranked> ranked) {
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.us < b.us; });
  std::vector<KernelSchedule> out;
  auto same_time = ranked.begin();  // equal schedules take equally long
  for (auto each = ranked.begin(); each != ranked.end(); ++each) {
    if (each->us != same_time->us) same_time = each;
    if (std::none_of(same_time, each, [&](const Ranked& other) { return other.schedule == each->schedule; }))
      out.push_back(each->schedule);
  }
  return out;
}

}  // namespace

std::vector<KernelSchedule> kernel_schedules(const MuGraph& mugraph, const KernelSchedule& own,
                                             const Target& target, const EnumeratorOptions& options) {
  const MuKernel& kernel = mugraph.kernels[0];
  const KernelShape whole = shape_of(kernel);
  std::vector<KernelSchedule> even, uneven;
  for (const int64_t cluster : cluster_choices(kernel, whole, target))
    for (const TileExtents& tile : tile_choices(mugraph, kernel, whole)) {
      KernelSchedule& base = even.emplace_back(own);
      base.tile = tile;
      base.cluster = cluster;
    }
  if (whole.narrow)
    for (const UnevenTile& tile : uneven_tiles(mugraph, kernel, target)) {
      KernelSchedule& base = uneven.emplace_back(own);
      base.tile = tile.tile;
      base.warps = tile.warps;
      base.tma = base.wgmma = true;
    }
  std::vector<std::vector<Ranked>> found(even.size() + uneven.size());
  const bool enough_memory = run_for_each(found.size(), options.threads, [&](size_t i) {
    SchedulesOfTile tile(mugraph, own, whole, target, options.allow_tf32);
    found[i] =
        i < even.size() ? std::move(tile).of(even[i]) : std::move(tile).of_uneven(uneven[i - even.size()]);
  });
  if (!enough_memory) throw std::bad_alloc();
  std::vector<Ranked> ranked;
  for (std::vector<Ranked>& each : found)
    ranked.insert(ranked.end(), std::make_move_iterator(each.begin()), std::make_move_iterator(each.end()));
  return by_time(std::move(ranked));
}

}  // namespace quern
