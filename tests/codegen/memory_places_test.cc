// Where tiles lie in memory: those of ragged extents, and those of slices, reshapes and transposes that are
// read in the memory of their source, by each data path in the emulator against the float reference.
#include "core/verify/reference.h"
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

const char kProduct[] = R"(mugraph product
in x: TYPE[ROWS, INNER]
in w: TYPE[INNER, COLUMNS]
tensor z: TYPE[ROWS, COLUMNS]
kernel grid=[2, 2] loop=2 threads=128 {
  x0 = load(x, x=0, loop=1)
  w0 = load(w, y=1, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z, x=0, y=1)
}
out z
)";

// A producer takes nothing but what TMA brings: with even parts of 100, 72 and 200 elements it could bring
// nothing.
void ragged_tiles_come_by_every_path(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "100", "72", "200", "", ""}, {"bf16", "70", "136", "88", "", ""}})
    for (const KernelSchedule& way :
         {KernelSchedule{.tile = {32, 64, 0}, .tile_k = 32, .warps = {2, 2, 1}},
          {.tile = {32, 64, 0}, .tile_k = 32, .warps = {2, 2, 1}, .stages = 3},
          {.tile = {32, 64, 0}, .tile_k = 32, .warps = {2, 2, 1}, .stages = 3, .tma = true, .producer = true},
          {.tile = {64, 64, 0},
           .tile_k = 64,
           .warps = {4, 1, 1},
           .stages = 2,
           .tma = true,
           .wgmma = true,
           .producer = true}})
      cases.push_back(sized_case("ragged product", kProductGraph, kProduct, sizes, way));
  all_are_right_on_hostile_inputs(cases);
}

const char kSplitAttention[] = R"(mugraph attention
in q: TYPE[2, ROWS, INNER]
in k: TYPE[2, INNER, COLUMNS]
in v: TYPE[2, COLUMNS, INNER]
tensor o: TYPE[2, ROWS, INNER]
kernel grid=[2] cluster=2 loop=3 threads=128 {
  q0 = load(q, x=0)
  k0 = load(k, x=0, cluster=2, loop=2)
  v0 = load(v, x=0, cluster=1, loop=1)
  s = matmul(q0, k0)
  top = max(s, axis=[2], keepdims=true)
  m = accumulate_max(top)
  d = sub(s, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  pv = matmul(e, v0)
  n = accumulate_rescaled(pv, m)
  lc = cluster_rescaled(l, m)
  nc = cluster_rescaled(n, m)
  y = div(nc, lc)
  store(y, o, x=0)
}
out o
)";

// 129 keys over two blocks: parts of 96 and 33, not of 65 and 64, so that iterations of 32 end within none.
void parts_of_a_cluster_have_whole_iterations(void**) {
  const MuGraphCase one = sized_case("split", kAttentionGraph, kSplitAttention,
                                     {"f16", "16", "32", "129", "", ""}, {.tile_k = 32});
  const auto cut = apply_schedule(one.mugraph, one.schedule);
  assert_ok(cut.status());
  assert_true(cut->kernels[0].tiles == (std::array<int64_t, kGridAxes + 1>{0, 0, 0, 96, 32}));
  std::vector<MuGraphCase> cases;
  for (const KernelSchedule& way :
       {KernelSchedule{.tile_k = 32, .warps = {1, 1, 2}, .cluster = 2},
        {.tile_k = 32, .warps = {1, 1, 2}, .stages = 2, .tma = true, .cluster = 2}})
    for (const char* keys : {"129", "136", "200"}) {
      cases.push_back(
          sized_case("split", kAttentionGraph, kSplitAttention, {"f16", "16", "32", keys, "", ""}, way));
      cases.back().target = "sm_90a";
    }
  all_are_right_on_hostile_inputs(cases);
}

// Rows and keys that 64 does not divide, by warpgroups.
void ragged_attention_comes_by_tma(void**) {
  std::vector<MuGraphCase> cases;
  for (const char* dtype : {"f16", "bf16"})
    for (const char* keys : {"200", "264"})
      for (const KernelSchedule& way :
           {KernelSchedule{.tile = {0, 0, 64},
                           .tile_k = 64,
                           .warps = {4, 1, 1},
                           .stages = 3,
                           .tma = true,
                           .wgmma = true,
                           .producer = true},
            {.tile = {0, 0, 64}, .tile_k = 64, .warps = {4, 1, 1}, .stages = 2, .tma = true, .wgmma = true}})
        cases.push_back(sized_case("ragged attention", kAttentionGraph, kAttention,
                                   {dtype, "100", "64", keys, "2", "2"}, way));
  all_are_right_on_hostile_inputs(cases);
}

// Attention over four heads of 16 out of one tensor with queries, keys and values, each of two tokens more
// than it has use for, and heads that are joined again.
const char kPackedGraph[] = R"(graph packed
in c: TYPE[ROWS, 192]
b = neg(c)
q0 = slice(b, start=[2, 0], stop=[ROWS, 64])
k0 = slice(b, start=[2, 64], stop=[ROWS, 128])
v0 = slice(b, start=[2, 128], stop=[ROWS, 192])
q1 = reshape(q0, shape=[COLUMNS, 4, 16])
k1 = reshape(k0, shape=[COLUMNS, 4, 16])
v1 = reshape(v0, shape=[COLUMNS, 4, 16])
q = transpose(q1, perm=[1, 0, 2])
k = transpose(k1, perm=[1, 2, 0])
v = transpose(v1, perm=[1, 0, 2])
s = matmul(q, k)
p = softmax(s, axis=-1)
a = matmul(p, v)
f = reshape(a, shape=[INNER, 16])
y = neg(f)
out y
)";
const char kPacked[] = R"(mugraph packed
in c: TYPE[ROWS, 192]
tensor b: TYPE[ROWS, 192]
tensor q0: TYPE[COLUMNS, 64]
tensor k0: TYPE[COLUMNS, 64]
tensor v0: TYPE[COLUMNS, 64]
tensor q1: TYPE[COLUMNS, 4, 16]
tensor k1: TYPE[COLUMNS, 4, 16]
tensor v1: TYPE[COLUMNS, 4, 16]
tensor q: TYPE[4, COLUMNS, 16]
tensor k: TYPE[4, 16, COLUMNS]
tensor v: TYPE[4, COLUMNS, 16]
tensor a: TYPE[4, COLUMNS, 16]
tensor f: TYPE[INNER, 16]
tensor y: TYPE[INNER, 16]
b = neg(c)
q0 = slice(b, start=[2, 0], stop=[ROWS, 64], step=[1, 1])
k0 = slice(b, start=[2, 64], stop=[ROWS, 128], step=[1, 1])
v0 = slice(b, start=[2, 128], stop=[ROWS, 192], step=[1, 1])
q1 = reshape(q0, shape=[COLUMNS, 4, 16])
k1 = reshape(k0, shape=[COLUMNS, 4, 16])
v1 = reshape(v0, shape=[COLUMNS, 4, 16])
q = transpose(q1, perm=[1, 0, 2])
k = transpose(k1, perm=[1, 2, 0])
v = transpose(v1, perm=[1, 0, 2])
kernel grid=[4] loop=2 threads=128 {
  qt = load(q, x=0)
  kt = load(k, x=0, loop=2)
  vt = load(v, x=0, loop=1)
  s = matmul(qt, kt)
  top = max(s, axis=[2], keepdims=true)
  m = accumulate_max(top)
  d = sub(s, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  pv = matmul(e, vt)
  n = accumulate_rescaled(pv, m)
  o = div(n, l)
  store(o, a, x=0)
}
f = reshape(a, shape=[INNER, 16])
kernel grid=[3] threads=64 {
  g = load(f, x=0)
  h = neg(g)
  store(h, y, x=0)
}
out y
)";

void slices_and_heads_are_read_where_they_lie(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "66", "256", "64", "", ""}, {"bf16", "42", "160", "40", "", ""}})
    for (const KernelSchedule& way :
         {KernelSchedule{.tile_k = 32, .warps = {2, 1, 1}},
          {.tile_k = 32, .warps = {2, 1, 1}, .stages = 2},
          {.tile_k = 32, .warps = {2, 1, 1}, .stages = 2, .tma = true, .producer = true}}) {
      cases.push_back(sized_case("packed", kPackedGraph, kPacked, sizes, way));
      KernelSchedule& last = cases.back().schedule.kernels.back();
      last = KernelSchedule{.warps = {1, 1, 2}};
    }
  all_are_right_on_hostile_inputs(cases);
}

// One query for each head, whose key and value follow GRID others of a cache; the key is computed, and the
// value a row of what is given.
const char kAppendGraph[] = R"(graph append
in q: TYPE[2, ROWS, INNER]
in kc: TYPE[2, GRID, INNER]
in vc: TYPE[2, GRID, INNER]
in kn: TYPE[2, INNER]
in vn: TYPE[2, INNER]
kd = neg(kn)
k1 = reshape(kd, shape=[2, 1, INNER])
v1 = reshape(vn, shape=[2, 1, INNER])
k = concat(kc, k1, axis=1)
v = concat(vc, v1, axis=1)
k4 = reshape(k, shape=[2, 1, COLUMNS, INNER])
k3 = reshape(k4, shape=[2, COLUMNS, INNER])
t = transpose(k3, perm=[0, 2, 1])
s = matmul(q, t)
p = softmax(s, axis=-1)
o = matmul(p, v)
out o
)";
const char kAppend[] = R"(mugraph append
in q: TYPE[2, ROWS, INNER]
in kc: TYPE[2, GRID, INNER]
in vc: TYPE[2, GRID, INNER]
in kn: TYPE[2, INNER]
in vn: TYPE[2, INNER]
tensor kd: TYPE[2, INNER]
tensor k1: TYPE[2, 1, INNER]
tensor v1: TYPE[2, 1, INNER]
tensor k: TYPE[2, COLUMNS, INNER]
tensor v: TYPE[2, COLUMNS, INNER]
tensor k4: TYPE[2, 1, COLUMNS, INNER]
tensor k3: TYPE[2, COLUMNS, INNER]
tensor t: TYPE[2, INNER, COLUMNS]
tensor o: TYPE[2, ROWS, INNER]
kd = neg(kn)
k1 = reshape(kd, shape=[2, 1, INNER])
v1 = reshape(vn, shape=[2, 1, INNER])
k = concat(kc, k1, axis=[1])
v = concat(vc, v1, axis=[1])
k4 = reshape(k, shape=[2, 1, COLUMNS, INNER])
k3 = reshape(k4, shape=[2, COLUMNS, INNER])
t = transpose(k3, perm=[0, 2, 1])
kernel grid=[2] loop=2 threads=128 {
  q0 = load(q, x=0)
  t0 = load(t, x=0, loop=2)
  v0 = load(v, x=0, loop=1)
  s = matmul(q0, t0)
  top = max(s, axis=[2], keepdims=true)
  m = accumulate_max(top)
  d = sub(s, m)
  e = exp(d)
  r = sum(e, axis=[2], keepdims=true)
  l = accumulate_rescaled(r, m)
  pv = matmul(e, v0)
  n = accumulate_rescaled(pv, m)
  y = div(n, l)
  store(y, o, x=0)
}
out o
)";

// Where the cache ends with a tile, and where it ends within one; by TMA there is no such load.
void a_row_behind_a_cache_is_read_where_it_lies(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "4", "32", "65", "64", ""},
                             {"bf16", "16", "64", "51", "50", ""},
                             {"f32", "3", "20", "34", "33", ""}})
    for (const KernelSchedule& way : {KernelSchedule{.tile_k = 32, .warps = {1, 1, 1}},
                                      {.tile_k = 16, .warps = {2, 1, 1}, .prefetch = false},
                                      {.tile_k = 32, .warps = {1, 1, 1}, .stages = 2},
                                      {.tile_k = 16, .warps = {2, 1, 1}, .stages = 3, .tma = true}})
      cases.push_back(sized_case("append", kAppendGraph, kAppend, sizes, way));
  all_are_right_on_hostile_inputs(cases);
  // No kernel writes keys or values together.
  const Plan plan = emitted(cases[0]).plan;
  assert_int_equal(plan.launches.size(), 2);
  assert_true(plan.workspace_bytes < 1024);
}

// Rows and columns of a product's operands in several places, cut along and across these.
const char kPiecesGraph[] = R"(graph pieces
in a: TYPE[ROWS, 24]
in b: TYPE[ROWS, 40]
in c: TYPE[ROWS, 64]
in u: TYPE[128, COLUMNS]
in w: TYPE[128, 24]
x = concat(a, b, c, axis=1)
v = concat(u, w, axis=1)
y = matmul(x, v)
out y
)";
const char kPieces[] = R"(mugraph pieces
in a: TYPE[ROWS, 24]
in b: TYPE[ROWS, 40]
in c: TYPE[ROWS, 64]
in u: TYPE[128, COLUMNS]
in w: TYPE[128, 24]
tensor x: TYPE[ROWS, 128]
tensor v: TYPE[128, INNER]
tensor y: TYPE[ROWS, INNER]
x = concat(a, b, c, axis=[1])
v = concat(u, w, axis=[1])
kernel grid=[2, 2] loop=2 threads=128 {
  x0 = load(x, y=0, loop=1)
  v0 = load(v, x=1, loop=0)
  xv = matmul(x0, v0)
  s = accumulate_sum(xv)
  store(s, y, x=1, y=0)
}
out y
)";

void pieces_are_cut_along_and_across(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f16", "20", "64", "40", "", ""}, {"bf16", "9", "96", "72", "", ""}})
    for (const KernelSchedule& way :
         {KernelSchedule{.warps = {1, 1, 4}},
          {.tile_k = 8, .warps = {1, 2, 1}},
          {.tile = {24, 0, 0}, .tile_k = 32, .warps = {1, 2, 2}, .stages = 2},
          {.tile_k = 64, .warps = {1, 4, 1}, .stages = 2, .tma = true, .wgmma = true}})
      cases.push_back(sized_case("pieces", kPiecesGraph, kPieces, sizes, way));
  all_are_right_on_hostile_inputs(cases);
}

// Neighbours in memory are those of two dimensions where the inner one has two elements: lanes go along both.
void lanes_go_along_short_inner_dimensions(void**) {
  std::vector<MuGraphCase> cases;
  for (const auto& [type, name] : {std::pair("f16", "f16"), std::pair("f32", "float")}) {
    cases.push_back(sized_case("pixel shuffle", R"(graph shuffle
in x: TYPE[2, 4, 2, 2, 16, 64]
y = transpose(x, perm=[0, 1, 4, 2, 5, 3])
out y
)",
                               R"(mugraph shuffle
in x: TYPE[2, 4, 2, 2, 16, 64]
tensor y: TYPE[2, 4, 16, 2, 64, 2]
tensor t: TYPE[2, 4, 16, 2, 64, 2]
t = transpose(x, perm=[0, 1, 4, 2, 5, 3])
kernel grid=[2, 16, 2] threads=64 {
  v = load(t, x=3, y=2, z=1)
  store(v, y, x=3, y=2, z=1)
}
out y
)",
                               {type, "", "", "", "", ""}, {.warps = {1, 1, 2}}));
    assert_contains(emitted(cases.back()).source, "store_vector<" + std::string(name) + ", 2>(");
  }
  all_are_right_on_hostile_inputs(cases);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(ragged_tiles_come_by_every_path),
                              cmocka_unit_test(parts_of_a_cluster_have_whole_iterations),
                              cmocka_unit_test(ragged_attention_comes_by_tma),
                              cmocka_unit_test(slices_and_heads_are_read_where_they_lie),
                              cmocka_unit_test(a_row_behind_a_cache_is_read_where_it_lies),
                              cmocka_unit_test(pieces_are_cut_along_and_across),
                              cmocka_unit_test(lanes_go_along_short_inner_dimensions)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
