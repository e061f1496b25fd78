// Masks that positions decide, in the emulator: what blocks compute instead of loading it, and iterations
// that are passed over because they are masked wholly, unless that would be seen: in online softmax, in
// weights that are no softmax, and in weights relative to maxima that a kernel in front has found.
#include <span>

#include "core/graph/text.h"
#include "core/mugraph/text.h"
#include "core/mugraph/tile_masks.h"
#include "core/mugraph/views.h"
#include "core/verify/reference.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

struct Mask {
  const char *name, *definition;  // of m, of the row i and the key j
  bool lengths = false;           // and of an input n, one integer for each of the two
};
constexpr std::string_view kWide = "wide window";
constexpr Mask kMasks[] = {
    {"causal", "m = le(j, i)"},
    {"later keys", "m = lt(i, j)"},
    {"window", "a = le(j, i)\nd = sub(i, j)\nb = lt(d, 40)\nm = mul(a, b)"},
    {kWide.data(), "a = le(j, i)\nd = sub(i, j)\nb = lt(d, 190)\nm = mul(a, b)"},
    {"either end", "a = lt(j, 20)\nb = lt(i, j)\nm = max(a, b)"},
    {"offset", "d = add(i, 30)\nm = le(j, d)"},
    {"no key for some rows", "d = sub(i, 70)\nm = lt(j, d)"},
    {"lengths", "m = lt(j, n)", true},
    {"causal lengths", "a = le(j, i)\nb = lt(j, n)\nm = mul(a, b)", true},
    {"padded on the left", "m = le(n, j)", true},
    {"causal behind a cache", "d = add(i, n)\nm = le(j, d)", true},
};

// `weights` makes the weights p of the scaled scores z.
std::string graph_text(const std::string& weights) {
  return R"(graph masked
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, COLUMNS, INNER]
in v: TYPE[2, COLUMNS, INNER]
LENGTHS
i = iota(shape=[ROWS, COLUMNS], axis=0, dtype=i32)
j = iota(shape=[ROWS, COLUMNS], axis=1, dtype=i32)
MASK
kt = transpose(k, perm=[0, 2, 1])
s = matmul(q, kt)
z = mul(s, 0.75)
)" + weights +
         R"(
o = matmul(p, v)
out o
)";
}
std::string mugraph_text(const std::string& tensors, const std::string& kernels) {
  return R"(mugraph masked
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, COLUMNS, INNER]
in v: TYPE[2, COLUMNS, INNER]
LENGTHS
TENSORS
tensor o: TYPE[2, ROWS, INNER]
)" + tensors +
         R"(i = iota(shape=[ROWS, COLUMNS], axis=[0], dtype=i32)
j = iota(shape=[ROWS, COLUMNS], axis=[1], dtype=i32)
MASK
)" + kernels +
         R"(out o
)";
}
const std::string kKernel = "kernel grid=[GRID, 2] loop=TURNS threads=128 {\n";
const std::string kScores = R"(  q0 = load(q, x=1, y=0)
  k0 = load(k, y=0, loop=1)
  m0 = load(m, MAP)
  kt = transpose(k0, perm=[0, 2, 1])
  s = matmul(q0, kt)
  z = mul(s, 0.75)
)";
const std::string kOnline = R"(  t = where(m0, z, NUMBER)
  top = max(t, axis=[2], keepdims=true)
  h = accumulate_max(top)
  d = sub(t, h)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, h)
)";

struct Form {
  std::string weights, tensors, kernels;
};
const Form kSoftmax = {"t = where(m, z, NUMBER)\np = softmax(t, axis=-1)", "",
                       kKernel + kScores + "  v0 = load(v, y=0, loop=1)\n" + kOnline + R"(  ev = matmul(e, v0)
  n = accumulate_rescaled(ev, h)
  y = div(n, l)
  store(y, o, x=1, y=0)
}
)"};
// Zeros as they are: of their sums nothing is demanded, only that values are finite.
const Form kGates = {"g = sigmoid(z)\np = where(m, g, 0)", "",
                     kKernel + kScores + R"(  v0 = load(v, y=0, loop=1)
  g = sigmoid(z)
  p = where(m0, g, 0)
  pv = matmul(p, v0)
  y = accumulate_sum(pv)
  store(y, o, x=1, y=0)
}
)"};
// Demands that maxima and factors of rows meet which another kernel has stored.
const Form kBehindMaxima = {kSoftmax.weights, "tensor tops: f32[2, ROWS, 1]\ntensor parts: f32[2, ROWS, 1]\n",
                            kKernel + kScores + kOnline + R"(  w = reciprocal(l)
  store(h, tops, x=1, y=0)
  store(w, parts, x=1, y=0)
}
)" + kKernel + kScores + R"(  v0 = load(v, y=0, loop=1)
  t = where(m0, z, NUMBER)
  h = load(tops, x=1, y=0)
  w = load(parts, x=1, y=0)
  d = sub(t, h)
  e = exp(d)
  p = mul(e, w)
  pv = matmul(p, v0)
  y = accumulate_sum(pv)
  store(y, o, x=1, y=0)
}
)"};

// "tensor a: bool[ROWS, COLUMNS]", for each name that a line of the definition gives; of both where there are lengths.
std::string tensors_of(const Mask& mask) {
  const std::string definition = mask.definition;
  std::string out = "tensor i: i32[ROWS, COLUMNS]\ntensor j: i32[ROWS, COLUMNS]\n", of_both;
  for (size_t at = 0; at < definition.size();) {
    const size_t end = std::min(definition.find('\n', at), definition.size());
    const std::string line = definition.substr(at, end - at), operands = line.substr(line.find('('));
    const bool truth = line.find("= le(") != line.npos || line.find("= lt(") != line.npos;
    const bool both = mask.lengths && operands.find_first_of("n" + of_both) != operands.npos;
    if (both) of_both += line[0];
    out += "tensor " + line.substr(0, 1) + ": " + (truth || (both && line[0] == 'm') ? "bool" : "i32") +
           (both ? "[2, ROWS, COLUMNS]\n" : "[ROWS, COLUMNS]\n");
    at = end + 1;
  }
  return out;
}

// All, some, none of the keys; numbers that no sequence has.
std::string lengths(const TensorDesc& desc, size_t kind) {
  const double pairs[][2] = {{45, 300}, {0, 64}, {-7, 2147483647}};
  return write_buffer(desc, {pairs[kind][0], pairs[kind][1]});
}

// Friendly values; values some of which are infinite or undefined where most rows do not look; and scores
// below the number of those that are masked, which then are what counts.
std::vector<InputKind> inputs() {
  auto random = [](const TensorDesc& desc, size_t input) {
    return input == 3 ? lengths(desc, 0) : random_buffer(desc, 31 + input, 1.0);
  };
  auto special = [](const TensorDesc& desc, size_t input) {
    if (input == 3) return lengths(desc, 1);
    if (input != 2) return random_buffer(desc, 41 + input, 1.0);
    RealTensor elements;
    const bool heads_inside = desc.shape[0] > desc.shape[1];
    const int64_t keys = desc.shape[heads_inside ? 0 : 1], inner = desc.shape[2];
    for (int64_t e = 0; e < desc.span(); ++e) {
      const int64_t row = e / inner, key = heads_inside ? row / desc.shape[1] : row % keys;
      // The first is friendly: who looks there for the second sees nothing.
      const bool second = (heads_inside ? row % desc.shape[1] : row / keys) > 0;
      elements.push_back(second && key == keys - 3                 ? std::numeric_limits<double>::infinity()
                         : second && key == keys / 2 && e % 5 == 0 ? std::numeric_limits<double>::quiet_NaN()
                                                                   : static_cast<double>(e % 13) / 8 - 0.75);
    }
    return write_buffer(desc, elements);
  };
  auto low = [](const TensorDesc& desc, size_t input) {
    if (input == 3) return lengths(desc, 2);
    RealTensor elements;
    for (int64_t e = 0; e < desc.span(); ++e)
      elements.push_back(input == 0   ? 16.0
                         : input == 1 ? -4.0 - static_cast<double>(e % 3)
                                      : static_cast<double>(e % 13) / 8 - 0.75);
    return write_buffer(desc, elements);
  };
  return {{"random", random}, {"special", special}, {"low", low}};
}

struct Way {
  const char *rows, *inner, *columns, *grid, *trip_count;
  KernelSchedule schedule;
};

std::vector<Way> ways() {
  KernelSchedule direct, staged, tma, warpgroup, producer, all, intervals, overlap, ragged;
  direct.warps = {1, 1, 2};
  staged.warps = {2, 1, 1};
  staged.stages = 2;
  tma = staged;
  tma.tma = true;
  warpgroup = tma;
  warpgroup.warps = {4, 1, 1};
  warpgroup.wgmma = true;
  producer = warpgroup;
  producer.producer = true;
  all = producer;  // of which none is passed over
  all.overlap = all.shared_a = true;
  all.stages = 3;
  intervals = producer;
  intervals.intervals = true;
  overlap = intervals;
  overlap.overlap = true;
  overlap.stages = 3;
  ragged = overlap;
  ragged.tile_k = 64;
  ragged.shared_a = true;
  return {{"96", "16", "96", "3", "6", direct},      {"96", "16", "96", "3", "6", staged},
          {"80", "32", "100", "3", "4", staged},     {"96", "16", "96", "3", "3", tma},
          {"128", "64", "192", "2", "3", warpgroup}, {"128", "64", "192", "2", "3", producer},
          {"128", "64", "192", "2", "3", all},       {"128", "64", "320", "2", "5", intervals},
          {"128", "64", "320", "2", "5", overlap},   {"128", "64", "296", "2", "5", ragged}};
}

// The same, of values in which the heads of a key lie together.
std::string with_heads_inside(const std::string& text) {
  const bool blocks = text.starts_with("mugraph");
  const std::string turned = with(text, "in v: TYPE[2, COLUMNS, INNER]", "in v: TYPE[COLUMNS, 2, INNER]"),
                    made = with(turned, "MASK\n", "MASK\nvs = transpose(v, perm=[1, 0, 2])\n");
  return blocks ? with(with(made, "tensor o:", "tensor vs: TYPE[2, COLUMNS, INNER]\ntensor o:"), "load(v,", "load(vs,")
                : with(made, "matmul(p, v)", "matmul(p, vs)");
}

MuGraphCase make_case(const Form& form, const Way& way, const Mask& mask, const std::string& dtype,
                      const std::string& number, const std::string& heads = "2", bool heads_inside = false) {
  auto fill = [&](const std::string& given) {
    const std::string text = heads_inside ? with_heads_inside(given) : given;
    const std::string masked =
        with(with(with(text, "TENSORS", tensors_of(mask)), "MASK", mask.definition), "NUMBER", number);
    const std::string all =
        with(with(with(masked, "TYPE[2,", "TYPE[" + heads + ","), "f32[2,", "f32[" + heads + ","), "GRID, 2]",
             "GRID, " + heads + "]");
    return with(with(all, "LENGTHS", mask.lengths ? "in n: i32[2, 1, 1]" : ""), "MAP",
                mask.lengths ? "x=1, y=0, loop=2" : "x=0, loop=1");
  };
  MuGraphCase out =
      sized_case(std::string(mask.name) + " " + number, fill(graph_text(form.weights)),
                 fill(mugraph_text(form.tensors, form.kernels)),
                 {dtype.c_str(), way.rows, way.inner, way.columns, way.grid, way.trip_count}, way.schedule);
  use_views(out.mugraph);
  // Kernels in front compute the same scores in the same way.
  KernelSchedule front = way.schedule;
  front.intervals = front.overlap = front.shared_a = front.producer = false;
  out.schedule = default_schedule(out.mugraph);
  for (KernelSchedule& kernel : out.schedule.kernels) kernel = front;
  out.schedule.kernels.back() = way.schedule;
  out.inputs = inputs();
  return out;
}

// Of online softmax, with intervals or without, or of other weights: a test each, as they take a while.
enum class Asked { softmax, intervals, weights } g_asked = Asked::softmax;

bool is_asked(const Way& way) {
  return g_asked == Asked::weights || way.schedule.intervals == (g_asked == Asked::intervals);
}

std::vector<MuGraphCase> cases() {
  std::vector<MuGraphCase> out;
  std::vector<Way> asked = ways();
  std::erase_if(asked, [](const Way& way) { return !is_asked(way); });
  for (const Way& way : asked)
    for (const Mask& mask : kMasks) {
      if (g_asked == Asked::weights) {
        // Every way meets a third of the masks with each kind of weights, others than the next way.
        const auto turn = ((&way - asked.data()) + (&mask - kMasks)) % 3;
        if (turn == 0) out.push_back(make_case(kGates, way, mask, "bf16", "0"));
        if (turn == 1)
          out.push_back(make_case(kBehindMaxima, way, mask, "f16", mask.lengths ? "-1000" : "-inf"));
        continue;
      }
      // Short windows say nothing of other loops.
      if (!way.schedule.intervals && mask.name == kWide) continue;
      // Two of these, the next way meets the mask with the others; one where loops are long, as those of intervals.
      constexpr std::pair<const char*, const char*> kOperands[] = {
          {"f16", "-inf"}, {"bf16", "-1000"}, {"f16", "-1000"}, {"bf16", "-inf"}};
      const auto turn = static_cast<size_t>((&way - asked.data()) + (&mask - kMasks)) % 2;
      const size_t first = way.schedule.intervals ? turn : 2 * turn, count = way.schedule.intervals ? 1 : 2;
      for (const auto& [dtype, number] : std::span(kOperands).subspan(first, count))
        out.push_back(make_case(kSoftmax, way, mask, dtype, number));
    }
  return out;
}

bool has_even_rows(const Mask& mask) { return mask.name == kWide || std::string_view(mask.name) == "window"; }

void masked_by_positions_is_right(void**) { all_are_right(cases()); }

// Blocks that stay have pairs of tiles, of as many heads at a time as there are blocks for, and try again where
// something that they did not visit counts.
void blocks_that_stay_have_intervals(void**) {
  KernelSchedule way;
  way.warps = {4, 1, 1};
  way.stages = 2;
  way.tma = way.wgmma = way.producer = way.intervals = true;
  KernelSchedule overlap = way;
  overlap.stages = 3;
  overlap.overlap = overlap.shared_a = true;
  std::vector<MuGraphCase> cases;
  size_t number_of_way = 0;  // each mask meets one or two
  bool looked_in_front = false, looked_behind = false;
  for (const Mask& mask : kMasks)
    for (const auto& [schedule, blocks, dtype, number] :
         {std::tuple(way, 2, "f16", "-inf"), std::tuple(overlap, 4, "bf16", "-1000"),
          std::tuple(overlap, 300, "bf16", "-inf")}) {
      if (mask.lengths || has_even_rows(mask) || number_of_way++ % 2 == 1) continue;
      KernelSchedule stays = schedule;
      stays.persistent = blocks;
      cases.push_back(make_case(kSoftmax, {"256", "64", "320", "4", "5", stays}, mask, dtype, number, "3"));
      const EmittedMuGraph program = emitted(cases.back());
      // A launch in front looks for what is not finite, or sums say whether all is, and one behind does everything again.
      const std::vector<Launch>& launches = program.plan.launches;
      assert_int_equal(launches.size(), 2);
      const bool behind = sums_show_finite(cases.back().mugraph, cases.back().mugraph.kernels.back());
      assert_int_equal(program.kernels.find("verdicts") != std::string::npos, behind);
      (behind ? looked_behind : looked_in_front) = true;
      const Dim3& grid = launches[behind ? 0 : 1].grid;
      assert_int_equal(grid.x, std::min(3, blocks / 2));
      assert_int_equal(grid.y, 2);
    }
  assert_true(cases.size() >= 8);
  assert_true(looked_behind && looked_in_front);
  all_are_right(cases);
}

KernelSchedule overlapped(int warps) {
  KernelSchedule way;
  way.warps = {warps, 1, 1};
  way.stages = 3;
  way.tma = way.wgmma = way.producer = way.intervals = way.overlap = true;
  return way;
}

// As many keys as queries: what most rows do not visit makes sums of others not finite, and everything is computed again. Two
// warpgroups issue their products in turns.
void sums_tell_what_is_not_finite(void**) {
  const KernelSchedule way = overlapped(8);
  KernelSchedule stays = way, stores = way;
  stays.persistent = 2;
  stores.tma_store = true;
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& schedule : {way, stays, stores}) {
    cases.push_back(
        make_case(kSoftmax, {"256", "64", "256", "2", "4", schedule}, kMasks[0], "bf16", "-inf", "3"));
    const EmittedMuGraph program = emitted(cases.back());
    assert_int_equal(program.plan.launches.size(), 2);
    assert_string_equal(program.blocks[0].again.c_str(), program.plan.launches[1].kernel.c_str());
    assert_true(program.kernels.find("order_wait<256>(") != std::string::npos);
  }
  all_are_right(cases);
}

// Values that are a view of an input, whose heads lie between each other: a launch in front looks at all of them.
void values_that_are_views_are_looked_at(void**) {
  const KernelSchedule way = overlapped(4);
  std::vector<MuGraphCase> cases;
  for (const Mask& mask : kMasks) {
    if (!mask.lengths) continue;
    cases.push_back(make_case(kSoftmax, {"128", "64", "320", "2", "5", way}, mask, "bf16", "-inf", "2", true));
    const EmittedMuGraph program = emitted(cases.back());
    assert_int_equal(program.plan.launches.size(), 2);
    assert_true(program.plan.launches[0].kernel.find("block") == std::string::npos);
  }
  assert_true(cases.size() >= 4);
  all_are_right(cases);
}

// The mask has no memory and no launch, the transposed keys neither, and staged loops pass over what is
// masked.
void blocks_compute_masks(void**) {
  for (const MuGraphCase& each : cases()) {
    const EmittedMuGraph program = emitted(each);
    const auto kernels =
        static_cast<size_t>(std::count_if(each.mugraph.kernels.begin(), each.mugraph.kernels.end(),
                                          [](const MuKernel& kernel) { return kernel.custom; }));
    // With intervals a launch in front looks for what is not finite: that which is there, if there is one.
    const bool looked_at = each.schedule.kernels.back().intervals;
    assert_int_equal(program.plan.launches.size(), kernels + (looked_at && kernels == 1));
    assert_int_equal(program.plan.workspace_bytes > 0, looked_at || kernels > 1);
    const KernelSchedule& way = each.schedule.kernels.back();
    const bool passes = way.stages > 0 && (!way.overlap || way.intervals || kernels > 1);
    const bool agreed = program.kernels.find("all_agree<") != std::string::npos;
    if (agreed != passes) print_message("%s\n", each.label.c_str());
    assert_int_equal(agreed, passes);
  }
}

// As many heads come together as the L2 cache holds the keys and values of, each with its longest rows first.
void heads_come_together(void**) {
  std::vector<MuGraphCase> some;
  for (const Way& way : ways()) {
    if (!is_asked(way) || !way.schedule.producer || way.schedule.tile_k > 0) continue;
    some.push_back(make_case(g_asked == Asked::weights ? kGates : kSoftmax,
                             {"256", "64", "256", "4", "4", way.schedule}, kMasks[0], "bf16", "-inf", "4"));
    constexpr double kHead = 2 * 2 * 256 * 64;
    some.back().l2_mib = 2 * 2.5 * kHead / (1 << 20);
    assert_true(emitted(some.back()).source.find("int(blockIdx.x) / 2") != std::string::npos);
  }
  assert_false(some.empty());
  // In so small a cache the launch in front that intervals have is one of clusters, which the emulator does not run.
  if (g_asked == Asked::softmax) all_are_right(some);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string asked = argc > 1 ? argv[1] : "";
  g_asked = asked == "intervals" ? Asked::intervals : asked == "weights" ? Asked::weights : Asked::softmax;
  const CMUnitTest of_intervals[] = {cmocka_unit_test(blocks_that_stay_have_intervals),
                                     cmocka_unit_test(sums_tell_what_is_not_finite),
                                     cmocka_unit_test(values_that_are_views_are_looked_at)};
  if (asked == "persistent") return cmocka_run_group_tests(of_intervals, nullptr, nullptr);
  const CMUnitTest tests[] = {cmocka_unit_test(heads_come_together), cmocka_unit_test(blocks_compute_masks),
                              cmocka_unit_test(masked_by_positions_is_right)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
