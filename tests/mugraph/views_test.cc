// Loads that need no memory of their own, and what conditions over positions say of tiles.
#include "core/mugraph/views.h"

#include "core/mugraph/dependence.h"
#include "core/mugraph/tensor_view.h"
#include "core/mugraph/tile_masks.h"
#include "tests/mugraph/texts.h"

using namespace quern;

namespace {

void transposes_of_loads_are_loads(void**) {
  MuGraph mugraph = mugraph_of(R"(mugraph g
in x: f16[4, 8]
in w: f16[6, 8]
tensor z: f16[4, 6]
kernel grid=[2] loop=4 threads=128 {
  a = load(x, loop=1)
  b = load(w, x=0, loop=1)
  t = transpose(b, perm=[1, 0])
  p = matmul(a, t)
  s = accumulate_sum(p)
  store(s, z, x=1)
}
out z
)");
  use_views(mugraph);
  assert_text_equal(print_mugraph(mugraph), R"(mugraph g
in x: f16[4, 8]
in w: f16[6, 8]
tensor z: f16[4, 6]
tensor w_transposed: f16[8, 6]
w_transposed = transpose(w, perm=[1, 0])
kernel grid=[2] loop=4 threads=128 {
  a = load(x, loop=1)                         # [4, 2]
  v1 = load(w_transposed, x=1, loop=0)        # [2, 3]
  p = matmul(a, v1)                           # [4, 3]
  s = accumulate_sum(p)                       # [4, 3]
  store(s, z, x=1)                            # [4, 3]
}
out z
)");
  const TensorView& view = mugraph.tensors[3].view;
  assert_int_equal(view.source, 1);
  assert_true(view_strides(view, {8, 1}) == (Ints{1, 8}) && view_offset(view, {8, 1}) == 0);
  assert_int_equal(mugraph.tensors[3].numbered, -1);
}

// What products alone read is stored as it lies; what others read, wide elements and outputs are stored transposed.
void transposes_of_stores_are_views(void**) {
  const std::string before = R"(mugraph g
in x: f16[8, 32]
in w: f16[4, 32]
)",
                    kernel = R"(kernel grid=[2, 4] threads=128 {
  a = load(x, x=0, y=1)                       # [4, 8]
  e = exp(a)                                  # [4, 8]
)",
                    transposed = R"(  t = transpose(e, perm=[1, 0])               # [8, 4]
  store(t, k, x=1, y=0)                       # [8, 4]
}
)",
                    product = R"(kernel grid=[2] loop=4 threads=128 {
  a = load(w, loop=1)                         # [4, 8]
  b = load(k, x=1, loop=0)                    # [8, 4]
  p = matmul(a, b)                            # [4, 4]
  s = accumulate_sum(p)                       # [4, 4]
  store(s, z, x=1)                            # [4, 4]
}
)";
  auto tensors = [](const std::string& type) {
    return "tensor k: " + type + "[32, 8]\ntensor z: f16[4, 8]\n";
  };
  MuGraph mugraph = mugraph_of(before + tensors("f16") + kernel + transposed + product + "out z\n");
  use_views(mugraph);
  assert_text_equal(print_mugraph(mugraph),
                    before + tensors("f16") + "tensor k_stored: f16[8, 32]\n" + kernel +
                        "  store(e, k_stored, x=0, y=1)                # [4, 8]\n}\n" +
                        "k = transpose(k_stored, perm=[1, 0])\n" + product + "out z\n");
  assert_int_equal(mugraph.tensors[2].view.source, 4);
  const std::string reader =
      "kernel grid=[1] threads=128 {\n  a = load(k)                                 # [32, 8]\n"
      "  b = sum(a, axis=[0], keepdims=true)         # [1, 8]\n"
      "  store(b, y)                                 # [1, 8]\n}\n";
  for (const std::string& other : {before + tensors("f16") + kernel + transposed + product + "out z, k\n",
                                   before + tensors("f32") + kernel + transposed + product + "out z\n",
                                   before + tensors("f16") + "tensor y: f16[1, 8]\n" + kernel + transposed +
                                       product + reader + "out z, y\n"}) {
    MuGraph same = mugraph_of(other);
    const std::string text = print_mugraph(same);
    use_views(same);
    assert_text_equal(print_mugraph(same), text);
  }
}

void squeezes_of_loads_are_loads(void**) {
  MuGraph mugraph = mugraph_of(R"(mugraph g
in x: f16[1, 3, 4, 8]
in w: f16[1, 6, 8]
tensor z: f16[3, 4, 6]
kernel grid=[2, 3] threads=128 {
  a = load(x, y=1)
  r = reshape(a, shape=[1, 4, 8])
  b = load(w, x=1)
  q = reshape(b, shape=[3, 8])
  t = transpose(q, perm=[1, 0])
  p = matmul(r, t)
  store(p, z, x=2, y=0)
}
out z
)");
  use_views(mugraph);
  assert_text_equal(print_mugraph(mugraph), R"(mugraph g
in x: f16[1, 3, 4, 8]
in w: f16[1, 6, 8]
tensor z: f16[3, 4, 6]
tensor x_squeezed: f16[3, 4, 8]
tensor w_squeezed: f16[6, 8]
tensor w_squeezed_transposed: f16[8, 6]
x_squeezed = reshape(x, shape=[3, 4, 8])
w_squeezed = reshape(w, shape=[6, 8])
w_squeezed_transposed = transpose(w_squeezed, perm=[1, 0])
kernel grid=[2, 3] threads=128 {
  v0 = load(x_squeezed, y=0)                  # [1, 4, 8]
  v1 = load(w_squeezed_transposed, x=1)       # [8, 3]
  p = matmul(v0, v1)                          # [1, 4, 3]
  store(p, z, x=2, y=0)                       # [1, 4, 3]
}
out z
)");
  // A dimension that the tensor has, and of which the tile has one index, stays.
  MuGraph other = mugraph_of(R"(mugraph g
in x: f16[3, 8]
tensor z: f16[8]
kernel grid=[1] loop=3 threads=128 {
  a = load(x, loop=0)
  r = reshape(a, shape=[8])
  s = accumulate_sum(r)
  store(s, z)
}
out z
)");
  const std::string before = print_mugraph(other);
  use_views(other);
  assert_text_equal(print_mugraph(other), before);
}

// Dimensions of extent 1 that an operand of a product gets are those of the tensor that it is loaded from.
void operands_of_products_get_dimensions_where_they_lie(void**) {
  const std::string head = R"(mugraph g
in q: f16[2, 3, 4, 8]
in k: f16[2, 8, 5]
tensor z: f16[2, 3, 4, 5]
kernel grid=[2, 3] threads=128 {
  a = load(q, x=0, y=1)
  b = load(k, x=0)
  c = reshape(b, shape=[1, 1, 8, 5])
)";
  MuGraph mugraph = mugraph_of(head + "  p = matmul(a, c)\n  store(p, z, x=0, y=1)\n}\nout z\n");
  use_views(mugraph);
  assert_text_equal(print_mugraph(mugraph), R"(mugraph g
in q: f16[2, 3, 4, 8]
in k: f16[2, 8, 5]
tensor z: f16[2, 3, 4, 5]
tensor k_unsqueezed: f16[1, 2, 8, 5]
k_unsqueezed = reshape(k, shape=[1, 2, 8, 5])
kernel grid=[2, 3] threads=128 {
  a = load(q, x=0, y=1)                       # [1, 1, 4, 8]
  v1 = load(k_unsqueezed, x=1)                # [1, 1, 8, 5]
  p = matmul(a, v1)                           # [1, 1, 4, 5]
  store(p, z, x=0, y=1)                       # [1, 1, 4, 5]
}
out z
)");
  // What else is computed of them takes them as they are.
  MuGraph other = mugraph_of(head + "  n = neg(c)\n  p = matmul(a, n)\n  store(p, z, x=0, y=1)\n}\nout z\n");
  const std::string before = print_mugraph(other);
  use_views(other);
  assert_text_equal(print_mugraph(other), before);
}

// Keys that are repeated for the queries that share them, where a block has those of one; HEADS blocks have them.
void repeated_keys_are_views_of_one(void**) {
  auto with_blocks = [](int64_t heads) {
    return mugraph_of(R"(mugraph g
in k: f16[2, 3, 4, 8]
in q: f16[2, 6, 5, 8]
tensor narrow: f16[2, 3, 1, 4, 8]
tensor wide: f16[2, 3, 2, 4, 8]
tensor repeated: f16[2, 6, 4, 8]
tensor turned: f16[2, 6, 8, 4]
tensor z: f16[2, 6, 5, 4]
narrow = reshape(k, shape=[2, 3, 1, 4, 8])
wide = broadcast(narrow, shape=[2, 3, 2, 4, 8])
repeated = reshape(wide, shape=[2, 6, 4, 8])
turned = transpose(repeated, perm=[0, 1, 3, 2])
kernel grid=[2, )" + std::to_string(heads) +
                      R"(] threads=128 {
  a = load(q, x=0, y=1)
  b = load(turned, x=0, y=1)
  p = matmul(a, b)
  store(p, z, x=0, y=1)
}
out z
)");
  };
  const MuGraph mugraph = with_blocks(6);
  const TensorView& view = mugraph.tensors[5].view;
  assert_int_equal(view.source, 0);
  assert_int_equal(view.dims[1].repeats, 2);
  assert_true(view_strides(view, {96, 32, 8, 1}) == (Ints{96, 32, 1, 8}));
  assert_true(repeats(view, {1, 2, 8, 4}) && !repeats(view, {2, 1, 8, 4}));
  // A tile of two heads has what is repeated: it has memory of its own.
  assert_int_equal(with_blocks(3).tensors[5].view.source, -1);
}

// Numbers stay computed from where a tile lies.
void positions_are_not_squeezed(void**) {
  MuGraph mugraph = mugraph_of(R"(mugraph g
in x: f32[8]
tensor j: f32[1, 8]
tensor z: f32[8]
j = iota(axis=[1], shape=[1, 8], dtype=f32)
kernel grid=[2] threads=128 {
  a = load(x, x=0)
  b = load(j, x=1)
  r = reshape(b, shape=[4])
  s = sub(a, r)
  store(s, z, x=0)
}
out z
)");
  const std::string before = print_mugraph(mugraph);
  use_views(mugraph);
  assert_text_equal(print_mugraph(mugraph), before);
  assert_int_equal(mugraph.tensors[1].numbered, 1);
  // Nor what a transpose makes of them.
  MuGraph turned = mugraph_of(R"(mugraph g
in x: f32[8]
tensor j: f32[1, 8]
tensor z: f32[8]
j = iota(axis=[1], shape=[1, 8], dtype=f32)
kernel grid=[2] threads=128 {
  a = load(x, x=0)
  b = load(j, x=1)
  t = transpose(b, perm=[1, 0])
  r = reshape(t, shape=[4])
  s = sub(a, r)
  store(s, z, x=0)
}
out z
)");
  use_views(turned);
  assert_int_equal(turned.tensors.size(), 4);
  assert_int_equal(turned.tensors[3].numbered, 0);
}

// What operators over whole tensors make of x, an input, or y = neg(x), both [6, 20, 8]: the last of them is
// b.
struct ViewCase {
  const char *before, *b;  // the operator in front of b's with its result's shape, if there is one
  Ints strides;            // empty: no view
  int64_t offset;
};

void slices_and_reshapes_are_read_where_their_source_lies(void**) {
  const ViewCase cases[] = {
      {"", "[5, 10, 8] = slice(y, start=[1, 3, 0], stop=[6, 13, 8])", {160, 8, 1}, 184},
      {"[6, 10, 16] = reshape(y, shape=[6, 10, 16])",
       "[6, 10, 8] = slice(a, start=[0, 0, 8], stop=[6, 10, 16])",
       {160, 16, 1},
       8},
      {"", "[6, 20, 4] = slice(y, start=[0, 0, 4], stop=[6, 20, 8])", {}, 0},
      {"", "[6, 10, 8] = slice(y, start=[0, 0, 0], stop=[6, 20, 8], step=[1, 2, 1])", {}, 0},
      {"", "[6, 4, 5, 8] = reshape(y, shape=[6, 4, 5, 8])", {160, 40, 8, 1}, 0},
      {"", "[120, 1, 8] = reshape(y, shape=[120, 1, 8])", {8, 0, 1}, 0},
      {"", "[8, 120] = reshape(y, shape=[8, 120])", {120, 1}, 0},
      {"", "[6, 4, 5, 1, 8] = reshape(x, shape=[6, 4, 5, 1, 8])", {160, 40, 8, 0, 1}, 0},
      {"", "[120, 8] = reshape(x, shape=[120, 8])", {}, 0},
      {"[6, 4, 5, 8] = reshape(x, shape=[6, 4, 5, 8])",
       "[6, 20, 2, 4] = reshape(a, shape=[6, 20, 2, 4])",
       {160, 8, 4, 1},
       0},
      {"[6, 10, 8] = slice(y, start=[0, 10, 0], stop=[6, 20, 8])",
       "[6, 2, 5, 8] = reshape(a, shape=[6, 2, 5, 8])",
       {160, 40, 8, 1},
       80},
      {"[6, 10, 8] = slice(y, start=[0, 0, 0], stop=[6, 10, 8])",
       "[60, 8] = reshape(a, shape=[60, 8])",
       {},
       0},
      {"[8, 6, 20] = transpose(y, perm=[2, 0, 1])", "[8, 120] = reshape(a, shape=[8, 120])", {1, 8}, 0},
      {"[6, 8, 20] = transpose(y, perm=[0, 2, 1])", "[6, 160] = reshape(a, shape=[6, 160])", {}, 0},
      {"", "[6, 20, 8] = neg(y)", {}, 0},
  };
  for (const ViewCase& each : cases) {
    std::string declared = "mugraph g\nin x: f16[6, 20, 8]\ntensor y: f16[6, 20, 8]\n",
                operators = "y = neg(x)\n";
    auto add = [&](const std::string& name, const std::string& text) {
      const size_t shape = text.find(']') + 1;
      declared += "tensor " + name + ": f16" + text.substr(0, shape) + "\n";
      operators += name + text.substr(shape) + "\n";
    };
    if (each.before[0]) add("a", each.before);
    add("b", each.b);
    const MuGraph mugraph = mugraph_of(declared + operators + "out b\n");
    const TensorView& view = mugraph.tensors.back().view;
    if ((view.source >= 0) == each.strides.empty()) fail_test(each.b);
    if (each.strides.empty()) continue;
    const Ints source = {160, 8, 1};
    if (view_strides(view, source) != each.strides) fail_test(each.b);
    assert_int_equal(view_offset(view, source), each.offset);
  }
}

// A concatenation is in several places, and so is a transpose of it; what is read narrowly, or lies nowhere,
// is none.
void concatenations_are_read_where_their_pieces_lie(void**) {
  auto pieced = [](const std::string& operators) {
    return mugraph_of("mugraph g\nin x: f16[6, 20, 8]\nin r: f16[6, 8]\nin n: f16[6, 20, 4]\n" + operators +
                      "out z\n")
        .tensors.back()
        .pieced;
  };
  const std::string row = "tensor q: f16[6, 1, 8]\ntensor c: f16[6, 21, 8]\n",
                    rows = "q = reshape(r, shape=[6, 1, 8])\nc = concat(x, q, axis=[1])\n";
  const PiecedView view =
      pieced(row + "tensor z: f16[8, 6, 21]\n" + rows + "z = transpose(c, perm=[2, 0, 1])\n");
  assert_int_equal(view.axis, 2);
  assert_true(view.extents == (Ints{20, 1}));
  assert_int_equal(view.pieces[0].source, 0);
  assert_int_equal(view.pieces[1].source, 1);
  assert_true(view_strides(view.pieces[0], {160, 8, 1}) == (Ints{1, 160, 8}));
  assert_true(view_strides(view.pieces[1], {8, 1}) == (Ints{1, 8, 0}));
  assert_int_equal(pieced("tensor z: f16[6, 20, 16]\nz = concat(x, x, axis=[2])\n").axis, 2);
  assert_int_equal(pieced("tensor z: f16[6, 20, 12]\nz = concat(n, x, axis=[2])\n").axis, -1);
  // The heads are split, and the rows stay.
  const PiecedView heads =
      pieced(row + "tensor z: f16[2, 3, 1, 21, 8]\n" + rows + "z = reshape(c, shape=[2, 3, 1, 21, 8])\n");
  assert_int_equal(heads.axis, 3);
  assert_true(view_strides(heads.pieces[0], {160, 8, 1}) == (Ints{480, 160, 0, 8, 1}));
  assert_true(view_strides(heads.pieces[1], {8, 1}) == (Ints{24, 8, 0, 0, 1}));
  assert_int_equal(
      pieced(row + "tensor z: f16[6, 7, 3, 8]\n" + rows + "z = reshape(c, shape=[6, 7, 3, 8])\n").axis, -1);
  const MuGraph whole =
      mugraph_of("mugraph g\nin x: f16[6, 20, 8]\nin r: f16[6, 8]\n" + row + "tensor z: f16[126, 8]\n" +
                 rows + "z = reshape(c, shape=[126, 8])\nout z\n");
  assert_int_equal(whole.tensors[3].pieced.axis, 1);  // in memory, too, for the reshape
  assert_true(memory_of(whole, 3) == (std::vector<int32_t>{0, 1}) &&
              memory_of(whole, 4) == (std::vector<int32_t>{3}));
}

void a_tensor_that_is_given_is_no_view(void**) {
  MuGraph part = mugraph_of(R"(mugraph g
in x: f16[4, 8]
tensor t: f16[8, 4]
tensor i: i32[8, 4]
tensor z: f16[8, 4]
t = transpose(x, perm=[1, 0])
i = iota(shape=[8, 4], axis=[0], dtype=i32)
z = add(t, i)
out z
)");
  assert_true(part.tensors[1].view.source == 0 && part.tensors[2].numbered == 0);
  part.inputs = {1, 2};
  part.kernels.erase(part.kernels.begin(), part.kernels.end() - 1);
  assert_ok(validate(part));
  assert_true(part.tensors[1].view.source == -1 && part.tensors[2].numbered == -1);
}

const char kMasked[] = R"(mugraph g
in x: f32[64, 64]
tensor i: i32[64, 64]
tensor j: i32[64, 64]
tensor m: bool[64, 64]
tensor z: f32[64, 1]
i = iota(shape=[64, 64], axis=[0], dtype=i32)
j = iota(shape=[64, 64], axis=[1], dtype=i32)
MASK
kernel grid=[4] loop=8 threads=128 {
  x0 = load(x, x=0, loop=1)
  m0 = load(m, x=0, loop=1)
  t = where(m0, x0, -1000)
  top = max(t, axis=[1], keepdims=true)
  h = accumulate_max(top)
  d = sub(t, h)
  e = exp(d)
  r = sum(e, axis=[1], keepdims=true)
  l = accumulate_rescaled(r, h)
  store(l, z, x=0)
}
out z
)";

MuGraph masked(const std::string& mask) {
  MuGraph mugraph = mugraph_of(with(kMasked, "MASK", mask));
  use_views(mugraph);
  return mugraph;
}

void masks_are_computed_from_positions(void**) {
  const MuGraph mugraph = masked("m = le(j, i)");
  for (const MuTensor& tensor : mugraph.tensors) assert_string_not_equal(tensor.name.c_str(), "m");
  const std::string text = print_mugraph(mugraph);
  assert_true(text.find("load(j, x=0, loop=1)") != text.npos && text.find("load(m") == text.npos);
  int numbered = 0;
  for (const MuTensor& tensor : mugraph.tensors) numbered += tensor.numbered >= 0;
  assert_int_equal(numbered, 2);
}

// What comes from memory stays there.
void other_tensors_are_loaded(void**) {
  const std::string before = print_mugraph(masked("m = le(x, 0.5)"));
  assert_true(before.find("load(m, x=0, loop=1)") != before.npos);
}

void shares_of_masks(void**) {
  struct Case {
    const char* mask;
    double mean, most, partly;  // of 4 blocks of 16 rows and 8 iterations of 8 keys
    int axis;
    bool grows;
  };
  for (const Case& each :
       {Case{"m = le(j, i)", 20.0 / 32, 1, 8.0 / 32, 0, true},
        Case{"m = lt(i, j)", 20.0 / 32, 1, 8.0 / 32, 0, false}, Case{"m = le(0, i)", 1, 1, 0, -1, false},
        Case{"m = lt(j, 8)", 1.0 / 8, 1.0 / 8, 0, -1, false},
        Case{"m = lt(j, 9)", 2.0 / 8, 2.0 / 8, 1.0 / 8, -1, false}}) {
    const MuGraph mugraph = masked(each.mask);
    const MuKernel& kernel = mugraph.kernels.back();
    assert_true(unmasked_share(mugraph, kernel).mean == each.mean);
    assert_true(unmasked_share(mugraph, kernel).most == each.most);
    assert_true(unmasked_share(mugraph, kernel).partly == each.partly);
    const UnevenAxis uneven = uneven_axis(mugraph, kernel);
    assert_int_equal(uneven.axis, each.axis);
    if (each.axis >= 0) assert_int_equal(uneven.grows, each.grows);
  }
}

// Masks and their positions are for nothing but selects; what others ask for as well is not of them.
void what_only_masks_ask_for(void**) {
  const MuGraph mugraph = masked("m = le(j, i)");
  const MuKernel& kernel = mugraph.kernels.back();
  std::set<OpCode> codes;
  for (BlockValue value : masking_values(mugraph, kernel))
    codes.insert(kernel.ops[static_cast<size_t>(value)].code());
  assert_true((codes == std::set<OpCode>{OpCode::le, OpCode::where}));
  MuKernel other = kernel;
  for (BlockOp& op : other.ops)
    if (op.is_compute() && op.code() == OpCode::where) op.operands[0] = op.operands[1];
  assert_true(masking_values(mugraph, other).empty());
}

// A maximum of what is not masked changes, so that no iteration is passed over.
void unmasked_maxima_pass_over_nothing(void**) {
  const std::string sums = "  l = accumulate_rescaled(r, h)\n";
  std::string text = with(kMasked, "MASK", "m = le(j, i)");
  text.insert(text.find(sums) + sums.size(),
              "  other = max(x0, axis=[1], keepdims=true)\n  n = accumulate_max(other)\n");
  text.insert(text.find("  store(l"), "  q = add(l, n)\n");
  text.replace(text.find("store(l"), 7, "store(q");
  MuGraph mugraph = mugraph_of(text);
  use_views(mugraph);
  assert_true(unmasked_share(mugraph, mugraph.kernels.back()).mean == 1);
  assert_int_equal(uneven_axis(mugraph, mugraph.kernels.back()).axis, -1);
}

// Two blocks have half of the keys each: of 4 iterations the first one has 2, 4, 4 and 4, the second one
// fewer.
void the_busiest_block_of_a_cluster_counts(void**) {
  MuGraph mugraph = masked("m = le(j, i)");
  MuKernel& kernel = mugraph.kernels.back();
  kernel.grid[kGridAxes - 1] = 2;
  kernel.trip_count = 4;
  for (BlockOp& op : kernel.ops)
    if (op.is_load() && op.loop_dim() >= 0) op.access().map[kGridAxes - 1] = op.loop_dim();
  assert_true(unmasked_share(mugraph, kernel).mean == 14.0 / 16);
  assert_true(unmasked_share(mugraph, kernel).most == 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(slices_and_reshapes_are_read_where_their_source_lies),
                              cmocka_unit_test(concatenations_are_read_where_their_pieces_lie),
                              cmocka_unit_test(a_tensor_that_is_given_is_no_view),
                              cmocka_unit_test(transposes_of_loads_are_loads),
                              cmocka_unit_test(transposes_of_stores_are_views),
                              cmocka_unit_test(squeezes_of_loads_are_loads),
                              cmocka_unit_test(operands_of_products_get_dimensions_where_they_lie),
                              cmocka_unit_test(repeated_keys_are_views_of_one),
                              cmocka_unit_test(positions_are_not_squeezed),
                              cmocka_unit_test(masks_are_computed_from_positions),
                              cmocka_unit_test(other_tensors_are_loaded),
                              cmocka_unit_test(unmasked_maxima_pass_over_nothing),
                              cmocka_unit_test(shares_of_masks),
                              cmocka_unit_test(what_only_masks_ask_for),
                              cmocka_unit_test(the_busiest_block_of_a_cluster_counts)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
