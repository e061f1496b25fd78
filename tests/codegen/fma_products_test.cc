// Products without tensor cores, in the emulator against the float reference: by each data path, with
// operands of each order, of other types than their sums, computed in the loop, the same for all matrices of
// a batch, and with what is fused behind them.
#include "tests/codegen/sized_cases.h"
#include "tests/mugraph/texts.h"
#include "tests/support/test.h"

namespace {

using namespace quern;

const char kGraph[] = R"(graph product
in x: f32[ROWS, INNER]
in w: f32[INNER, COLUMNS]
in b: f32[COLUMNS]
z = matmul(x, w)
s = add(z, b)
y = relu(s)
out y
)";
const char kProduct[] = R"(mugraph product
in x: f32[ROWS, INNER]
in w: f32[INNER, COLUMNS]
in b: f32[COLUMNS]
tensor y: f32[ROWS, COLUMNS]
kernel grid=[2, 2] loop=2 threads=128 {
  x0 = load(x, x=0, loop=1)
  w0 = load(w, y=1, loop=0)
  b0 = load(b, y=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  s = add(a, b0)
  r = relu(s)
  store(r, y, x=0, y=1)
}
out y
)";

// Sizes that tiles divide and that they do not; a loop of an iteration that stays one (128 sums and 32
// steps).
void every_path_is_right(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f32", "128", "64", "128", "", ""},
                             {"f32", "77", "52", "108", "", ""},
                             {"f32", "71", "45", "69", "", ""}})
    for (const KernelSchedule& way :
         {KernelSchedule{.tile = {64, 64, 0}, .tile_k = 32, .warps = {1, 1, 1}, .stages = 2},
          {.tile = {32, 64, 0}, .tile_k = 16, .warps = {2, 1, 2}, .stages = 3},
          {.tile = {64, 32, 0}, .tile_k = 32, .warps = {2, 2, 1}, .stages = 3, .tma = true},
          {.tile = {16, 32, 0}, .tile_k = 16, .warps = {4, 2, 1}},
          {.tile = {16, 64, 0}, .tile_k = 8, .warps = {1, 4, 4}, .stages = 2, .tma = true}}) {
      cases.push_back(sized_case("product", kGraph, kProduct, sizes, way));
      cases.back().target = way.tma ? "sm_90a" : "sm_80";
    }
  for (const Sizes& sizes : {Sizes{"f32", "128", "64", "128", "", ""}, {"f32", "77", "52", "108", "", ""}})
    for (int64_t persistent : {0, 3}) {
      cases.push_back(sized_case("fed", kGraph, kProduct, sizes,
                                 {.tile = {32, 64, 0},
                                  .tile_k = 16,
                                  .warps = {2, 2, 1},
                                  .stages = 3,
                                  .tma = true,
                                  .producer = true,
                                  .persistent = persistent}));
      cases.back().target = "sm_90a";
    }
  all_are_right(cases);
}

const char kSplit[] = R"(mugraph split
in x: f32[ROWS, INNER]
in w: f32[INNER, COLUMNS]
in b: f32[COLUMNS]
tensor y: f32[ROWS, COLUMNS]
kernel grid=[2, 2] cluster=2 loop=2 threads=128 {
  x0 = load(x, x=0, cluster=1, loop=1)
  w0 = load(w, y=1, cluster=0, loop=0)
  b0 = load(b, y=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  c = cluster_sum(a)
  s = add(c, b0)
  r = relu(s)
  store(r, y, x=0, y=1)
}
out y
)";

void parts_of_a_cluster_are_summed(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f32", "64", "128", "64", "", ""}, {"f32", "60", "100", "40", "", ""}})
    for (const KernelSchedule& way :
         {KernelSchedule{.tile_k = 16, .warps = {2, 1, 2}, .stages = 2, .tma = true},
          {.tile_k = 16, .warps = {2, 2, 1}, .stages = 2, .cluster = 4}}) {
      cases.push_back(sized_case("split", kGraph, kSplit, sizes, way));
      cases.back().target = "sm_90a";
    }
  all_are_right(cases);
}

// Transposes are read where they lie: the left operand by columns, the right one by rows.
const char kTurnedGraph[] = R"(graph turned
in x: f32[INNER, ROWS]
in w: f32[COLUMNS, INNER]
u = transpose(x)
v = transpose(w)
z = matmul(u, v)
out z
)";
const char kTurned[] = R"(mugraph turned
in x: f32[INNER, ROWS]
in w: f32[COLUMNS, INNER]
tensor u: f32[ROWS, INNER]
tensor v: f32[INNER, COLUMNS]
tensor z: f32[ROWS, COLUMNS]
u = transpose(x)
v = transpose(w)
kernel grid=[2, 2] loop=2 threads=128 {
  u0 = load(u, x=0, loop=1)
  v0 = load(v, y=1, loop=0)
  uv = matmul(u0, v0)
  a = accumulate_sum(uv)
  store(a, z, x=0, y=1)
}
out z
)";

void operands_lie_in_any_order(void**) {
  std::vector<MuGraphCase> cases;
  for (const Sizes& sizes : {Sizes{"f32", "64", "64", "64", "", ""},
                             {"f32", "60", "44", "100", "", ""},
                             {"f32", "35", "45", "67", "", ""}})
    for (const KernelSchedule& way :
         {KernelSchedule{.tile = {32, 32, 0}, .tile_k = 32, .warps = {2, 1, 1}, .stages = 2},
          {.tile = {32, 64, 0}, .tile_k = 16, .warps = {2, 2, 1}, .stages = 3, .tma = true},
          {.tile = {16, 32, 0}, .tile_k = 8, .warps = {1, 2, 2}}}) {
      cases.push_back(sized_case("turned", kTurnedGraph, kTurned, sizes, way));
      cases.back().target = way.tma ? "sm_90a" : "sm_80";
    }
  all_are_right(cases);
}

// Batches: of both operands, of one of them, and of each another one; and a vector on either side.
void matrices_of_a_batch_are_right(void**) {
  const std::string graph = R"(graph batch
in x: f32[LEFT]
in w: f32[RIGHT]
z = matmul(x, w)
out z
)";
  const std::string mugraph = R"(mugraph batch
in x: f32[LEFT]
in w: f32[RIGHT]
tensor z: f32[RESULT]
kernel grid=[1] loop=2 threads=128 {
  x0 = load(x, loop=BY_X)
  w0 = load(w, loop=BY_W)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z)
}
out z
)";
  struct Batch {
    const char *left, *right, *result, *by_x, *by_w;
  };
  std::vector<MuGraphCase> cases;
  for (const Batch& batch : {Batch{"3, 12, INNER", "3, INNER, 20", "3, 12, 20", "2", "1"},
                             {"2, 3, 12, INNER", "3, INNER, 20", "2, 3, 12, 20", "3", "1"},
                             {"2, 1, 12, INNER", "1, 3, INNER, 20", "2, 3, 12, 20", "3", "2"},
                             {"12, INNER", "5, INNER, 20", "5, 12, 20", "1", "1"},
                             {"3, 12, INNER", "INNER", "3, 12", "2", "0"},
                             {"INNER", "3, INNER, 20", "3, 20", "0", "1"}}) {
    auto filled = [&](std::string text) {
      for (const auto& [word, by] : {std::pair{"LEFT", batch.left},
                                     {"RIGHT", batch.right},
                                     {"RESULT", batch.result},
                                     {"BY_X", batch.by_x},
                                     {"BY_W", batch.by_w}})
        text = with(text, word, by);
      return text;
    };
    for (int stages : {0, 2})
      for (const char* inner : {"32", "22"})
        cases.push_back(sized_case("batch", filled(graph), filled(mugraph), {"f32", "", inner, "", "", ""},
                                   {.warps = {2, 2, 1}, .stages = stages}));
  }
  all_are_right(cases);
}

// What is no f32 in memory, or made in the loop, is left in shared memory first.
void other_operands_are_copied(void**) {
  std::vector<MuGraphCase> cases;
  const char scaled[] = R"(mugraph scaled
in x: TYPE[ROWS, INNER]
in w: f32[INNER, COLUMNS]
tensor z: f32[ROWS, COLUMNS]
kernel grid=[2] loop=2 threads=128 {
  x0 = load(x, x=0, loop=1)
  w0 = load(w, loop=0)
  e = square(x0)
  c = cast(e, dtype=f32)
  v = add(w0, 1)
  xw = matmul(c, v)
  a = accumulate_sum(xw)
  store(a, z, x=0)
}
out z
)";
  const char scaled_graph[] = R"(graph scaled
in x: TYPE[ROWS, INNER]
in w: f32[INNER, COLUMNS]
e = square(x)
c = cast(e, dtype=f32)
v = add(w, 1)
z = matmul(c, v)
out z
)";
  const char mixed[] = R"(mugraph mixed
in x: TYPE[ROWS, INNER]
in w: f32[INNER, COLUMNS]
tensor z: f32[ROWS, COLUMNS]
kernel grid=[2] loop=2 threads=128 {
  x0 = load(x, x=0, loop=1)
  w0 = load(w, loop=0)
  xw = matmul(x0, w0)
  a = accumulate_sum(xw)
  store(a, z, x=0)
}
out z
)";
  const char mixed_graph[] = R"(graph mixed
in x: TYPE[ROWS, INNER]
in w: f32[INNER, COLUMNS]
z = matmul(x, w)
out z
)";
  for (const char* dtype : {"f16", "f32"})
    for (const char* inner : {"64", "36"})
      for (int stages : {0, 3}) {
        const Sizes sizes = {dtype, "40", inner, "24", "", ""};
        cases.push_back(
            sized_case("scaled", scaled_graph, scaled, sizes, {.warps = {2, 1, 2}, .stages = stages}));
        cases.push_back(
            sized_case("mixed", mixed_graph, mixed, sizes, {.warps = {1, 4, 1}, .stages = stages}));
      }
  all_are_right(cases);
}

// One operand of products before, in and behind the loop is left in shared memory once.
void operands_of_several_stages_are_right(void**) {
  const char several[] = R"(mugraph several
in x: f32[ROWS, 8]
in w: f32[8, COLUMNS]
in u: f32[8, INNER]
in v: f32[INNER, COLUMNS]
tensor z: f32[ROWS, COLUMNS]
kernel grid=[2] loop=2 threads=128 {
  x0 = load(x, x=0)
  w0 = load(w)
  xw = matmul(x0, w0)
  u0 = load(u, loop=1)
  v0 = load(v, loop=0)
  uv = matmul(u0, v0)
  a = accumulate_sum(uv)
  xa = matmul(x0, a)
  s = add(xw, xa)
  store(s, z, x=0)
}
out z
)";
  const char several_graph[] = R"(graph several
in x: f32[ROWS, 8]
in w: f32[8, COLUMNS]
in u: f32[8, INNER]
in v: f32[INNER, COLUMNS]
xw = matmul(x, w)
uv = matmul(u, v)
xa = matmul(x, uv)
z = add(xw, xa)
out z
)";
  std::vector<MuGraphCase> cases;
  for (int stages : {0, 2})
    for (const WarpCounts& warps : {WarpCounts{1, 1, 4}, WarpCounts{2, 2, 1}})
      cases.push_back(sized_case("several", several_graph, several, {"", "40", "32", "24", "", ""},
                                 {.warps = warps, .stages = stages}));
  all_are_right(cases);
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operands_of_several_stages_are_right), cmocka_unit_test(every_path_is_right),
      cmocka_unit_test(parts_of_a_cluster_are_summed),        cmocka_unit_test(operands_lie_in_any_order),
      cmocka_unit_test(matrices_of_a_batch_are_right),        cmocka_unit_test(other_operands_are_copied),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
