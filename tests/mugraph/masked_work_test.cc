// What is left of iterations that are masked wholly, and what that demands of values that a launch knows.
#include "core/mugraph/masked_work.h"

#include <cmath>

#include "tests/mugraph/texts.h"

using namespace quern;

namespace {

const char kKernel[] = R"(mugraph g
in s: f32[64, 64]
in mask: bool[64, 64]
in row: f32[64, 1]
in v: f32[64, 8]
tensor z: f32[64, SIZE]
kernel grid=[4] loop=8 threads=128 {
  x = load(s, x=0, loop=1)
  m = load(mask, x=0, loop=1)
  r = load(row, x=0)
  y = load(v, loop=0)
BODY
  store(o, z, x=0)
}
out z
)";

// The demands by the names of their values; "changes" where iterations are not passed over.
std::string demands(const std::string& body, const std::string& size) {
  const MuGraph mugraph = mugraph_of(with(with(kKernel, "BODY", body), "SIZE", size));
  const MuKernel& kernel = mugraph.kernels.back();
  auto name = [&](BlockValue value) { return " " + kernel.ops[static_cast<size_t>(value)].name; };
  const auto work = masked_work(kernel.ops, block_stages(kernel),
                                [&](BlockValue condition) { return name(condition) == " m"; });
  if (!work) return "changes";
  std::string out = "selects";
  for (const std::vector<BlockValue>& chain : work->chains) out += name(chain[0]);
  for (const MaskedWork::FarAbove& each : work->far_above)
    out +=
        "; above" + name(each.value) + " " + (std::isinf(each.number) ? "-inf" : std::to_string(each.number));
  for (BlockValue value : work->finite) out += "; finite" + name(value);
  return out;
}

void what_is_demanded(void**) {
  const std::string zeros = "t = where(m, x, 0)\n", lowest = "t = where(m, x, -inf)\n",
                    sum = "a = sum(w, axis=[1], keepdims=true)\no = accumulate_sum(a)\n",
                    top = "b = max(t, axis=[1], keepdims=true)\nh = accumulate_max(b)\n";
  const std::pair<std::string, std::string> cases[] = {
      {zeros + "w = neg(t)\n" + sum, "selects t"},
      {"t = where(m, x, 1)\nw = mul(t, 2)\n" + sum, "changes"},
      {"w = mul(x, 2)\n" + sum, "changes"},
      // Numbers, through whatever is made of them.
      {lowest + "w = sigmoid(t)\n" + sum, "selects t"},
      {zeros + "c = add(t, 0.001)\nl = log(c)\nw = mul(t, l)\n" + sum, "selects t"},
      {"u = where(m, x, 0)\nt = where(m, u, 0)\nw = cast(t, dtype=f16)\n" + sum, "selects t"},
      {"n = lt(x, 0)\n" + zeros + "w = where(n, t, 0)\n" + sum, "selects t"},
      {"n = lt(x, 0)\n" + zeros + "w = where(n, t, 1)\n" + sum, "changes"},
      // Exponentials, relative to a running maximum or to what is there for each row.
      {lowest + top +
           "d = sub(t, h)\ne = exp(d)\na = sum(e, axis=[1], keepdims=true)\no = accumulate_rescaled(a, h)\n",
       "selects t; above h -inf"},
      {lowest + "d = sub(t, r)\nw = exp(d)\n" + sum, "selects t; above r -inf"},
      {"t = where(m, x, -1000)\nd = sub(t, r)\nw = exp(d)\n" + sum, "selects t; above r -1000.000000"},
      {lowest + "b = max(x, axis=[1], keepdims=true)\nd = sub(t, b)\nw = exp(d)\n" + sum, "changes"},
      {lowest + "d = sub(r, t)\nw = exp(d)\n" + sum, "changes"},
      {lowest + top + "o = add(h, 0)\n", "selects t"},
      // Beside what is there for each row, as sinks of attention are.
      {lowest + "b = max(t, axis=[1], keepdims=true)\nc = max(b, r)\nh = accumulate_max(c)\no = add(h, 0)\n",
       "selects t; above h -inf"},
      {lowest + "b = max(t, r)\nc = max(b, axis=[1], keepdims=true)\nh = accumulate_max(c)\no = add(h, 0)\n",
       "selects t; above h -inf"},
      {"t = where(m, x, -1000)\n" + top + "o = add(h, 0)\n", "selects t; above h -1000.000000"},
      {"t = where(m, x, inf)\nb = min(t, axis=[1], keepdims=true)\no = accumulate_min(b)\n", "selects t"},
      {lowest + "b = min(t, axis=[1], keepdims=true)\no = accumulate_min(b)\n", "changes"},
      // Factors.
      {"u = where(m, x, 100000)\nc = cast(u, dtype=f16)\n" + zeros + "w = mul(t, c)\n" + sum, "changes"},
      {zeros + "w = mul(r, t)\n" + sum, "selects t; finite r"},
      {zeros + "c = reciprocal(r)\nw = mul(t, c)\n" + sum, "selects t; finite c"},
      {zeros + "c = exp(x)\nw = mul(t, c)\n" + sum, "changes"},
      {zeros + "w = div(t, r)\n" + sum, "changes"},
  };
  for (const auto& [body, wanted] : cases) {
    const std::string found = demands(body, "1");
    if (found != wanted) print_message("%s", body.c_str());
    assert_string_equal(found.c_str(), wanted.c_str());
  }
}

void products_demand_finite_tiles(void**) {
  const std::string zeros = "t = where(m, x, 0)\n", sum = "o = accumulate_sum(p)\n";
  assert_text_equal(demands(zeros + "p = matmul(t, y)\n" + sum, "8"), "selects t; finite y");
  assert_text_equal(
      demands(
          zeros + "c = transpose(y, perm=[1, 0])\ng = transpose(c, perm=[1, 0])\np = matmul(t, g)\n" + sum,
          "8"),
      "selects t; finite y");
  assert_text_equal(demands(zeros + "c = mul(y, 2)\np = matmul(t, c)\n" + sum, "8"), "changes");
  assert_text_equal(demands("p = matmul(x, y)\n" + sum, "8"), "changes");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(what_is_demanded),
                              cmocka_unit_test(products_demand_finite_tiles)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
