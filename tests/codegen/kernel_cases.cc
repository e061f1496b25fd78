#include "tests/codegen/kernel_cases.h"

namespace quern {

namespace {

struct Program {
  const char* label;
  const char* text;
  double scale = 1.0;
};

std::vector<EmulatedCase> cases_of(std::initializer_list<Program> programs) {
  std::vector<EmulatedCase> cases;
  for (const Program& program : programs)
    cases.push_back({program.label, test_graph(std::string("graph g\n") + program.text), cases.size() + 1,
                     program.scale});
  return cases;
}

}  // namespace

std::vector<EmulatedCase> row_cases() {
  return cases_of({
      {"a block a row, vectors", "in x: f16[3, 2048]\ny = softmax(x)\nout y\n"},
      {"a block a row, no vectors",
       "in x: bf16[3, 1027]\nin w: bf16[1027]\nin b: bf16[1027]\ny = layer_norm(x, w, b)\nout y\n"},
      {"a block a row, vectors across rows", "in x: f32[4, 2051]\ny = softmax(x)\nout y\n"},
      {"a warp a row, no vectors",
       "in x: f16[13, 3, 197]\nin b: f16[13, 1, 197]\ns = add(x, b)\ny = softmax(s)\nm = max(s, "
       "axis=-1)\nout y, m\n"},
      {"rows of other vectors than its outputs",
       "in x: f32[5, 1333]\nin a: f32[5, 1333]\ny = mul(x, a)\nz = rms_norm(y)\nw = cast(z, dtype=bf16)\nout "
       "w, z\n"},
      {"an element of a ragged row",
       "in x: f32[6, 1501]\nin t: i32[6, 1]\nl = softmax(x)\ni = iota(shape=[6, 1501], axis=1)\ne = eq(i, "
       "t)\n"
       "p = where(e, l, 0)\ns = sum(p, axis=1)\nout s\n"},
      {"ragged rows of two inputs",
       "in a: f32[8, 2051]\nin b: f32[5, 2051]\nx = concat(a, b, axis=0)\ny = softmax(x)\nout y\n"},
      {"ragged rows, and rows that are no tensor's",
       "in a: f32[3, 2051]\nin b: f32[5, 1]\nc = broadcast(b, shape=[5, 2051])\nx = concat(a, c, "
       "axis=0)\ny = softmax(x)\nout y\n"},
      {"ragged rows from the middle",
       "in x: f32[16, 1331]\ny = slice(x, start=[8, 0], stop=[15, 1331])\nz = layer_norm(y)\nm = max(y, "
       "axis=1)\nout z, m\n"},
      {"long ragged rows of narrow elements", "in x: bf16[2, 40003]\ny = softmax(x)\nout y\n"},
      {"sums of ragged rows of narrow elements",
       "in x: f16[3, 1203]\ny = max(x, axis=1)\nz = sum(x, axis=1)\nout y, z\n"},
      {"a few long ragged rows", "in x: f32[2, 20003]\ny = softmax(x)\nout y\n"},
      {"a warp a row", "in x: f32[5, 96]\ny = rms_norm(x)\nz = mul(y, 3)\nm = max(z, axis=-1)\nout z, m\n"},
      {"columns, vectors", "in x: f32[40, 32768]\ny = sum(x, axis=0)\nz = mul(y, y)\nout z\n"},
      {"columns, softmax", "in x: f16[40, 70]\ny = softmax(x, axis=0)\nout y\n"},
      {"middle axis", "in x: f32[3, 9, 40]\ny = layer_norm(x, axis=1)\nout y\n"},
      {"two axes apart",
       "in x: i32[3, 9, 40]\ny = sum(x, axis=[0, 2])\nz = max(x, axis=[0, 2])\nw = add(y, z)\nout w\n"},
      {"long rows, split", "in x: f32[2, 40000]\ny = sum(x, axis=1)\nm = max(x)\nout y, m\n"},
      {"long ragged rows, split",
       "in x: f16[20001, 3]\ny = sum(x, axis=0)\nm = max(x, axis=0, keepdims=true)\nout y, m\n", 0.1},
      {"long rows of integers, split", "in x: bool[50021]\ny = sum(x)\nm = max(x)\nout y, m\n"},
      {"chain of rows",
       "in x: f32[4, 128]\na = softmax(x)\nb = softmax(a)\nc = softmax(b)\nd = softmax(c)\ne = sum(d, "
       "axis=1)\n"
       "out d, e, b\n"},
      {"rows after an expensive prologue",
       "in x: f16[6, 64]\na = gelu(x)\nb = silu(a)\nc = tanh(b)\nd = gelu_tanh(c)\ne = softmax(d)\nf = "
       "mul(e, d)\nout f\n"},
      {"rows and their transpose",
       "in x: f16[33, 65]\ny = softmax(x)\nz = transpose(y)\nw = softmax(z)\nout y, z, w\n"},
      {"residual and norm", "in x: f16[4, 64]\nin a: f16[4, 64]\nh = add(x, a)\nn = rms_norm(h)\nout h, n\n"},
      {"vectors along points",
       "in x: f16[64, 4096]\nin b: f16[4096]\nin c: f16[64, 1]\ny = add(x, b)\nz = mul(y, c)\nout z\n"},
  });
}

std::vector<EmulatedCase> product_cases() {
  return cases_of({
      {"16 rows, split over k",
       "in x: f16[5, 1024]\nin w: f16[1024, 136]\ny = matmul(x, w)\nz = relu(y)\nout z, y\n", 0.2},
      {"16 rows, ragged k", "in x: bf16[16, 72]\nin w: bf16[72, 264]\ny = matmul(x, w)\nout y\n", 0.3},
      {"32 rows", "in x: f16[30, 64]\nin w: f16[64, 130]\ny = matmul(x, w)\nout y\n", 0.3},
      {"64 rows, odd columns", "in x: f16[70, 40]\nin w: f16[40, 67]\ny = matmul(x, w)\nout y\n", 0.3},
      {"128 rows", "in x: f16[520, 40]\nin w: f16[40, 512]\ny = matmul(x, w)\nout y\n", 0.3},
      {"one row", "in x: f16[64]\nin w: f16[64, 33]\ny = matmul(x, w)\nout y\n", 0.3},
      {"one column", "in x: bf16[35, 64]\nin w: bf16[64]\ny = matmul(x, w)\nout y\n", 0.3},
      {"both transposed",
       "in x: f16[48, 40]\nin w: f16[72, 48]\na = transpose(x)\nb = transpose(w)\ny = matmul(a, b)\nout y\n",
       0.3},
      {"strides of inputs",
       "in x: f16[33, 40] strides[1, 64]\nin w: f16[40, 24] strides[48, 2]\ny = matmul(x, w)\nout y\n", 0.3},
      {"strides of 0",
       "in x: f16[33, 40] strides[0, 1]\nin w: f16[40, 24] strides[1, 0]\ny = matmul(x, w)\nout y\n", 0.3},
      {"slices",
       "in x: f16[40, 100]\nin w: f16[80, 48]\na = slice(x, start=[3, 4], stop=[40, 36], step=[2, 1])\n"
       "b = slice(w, start=[1, 8], stop=[65, 40], step=[2, 1])\ny = matmul(a, b)\nout y\n",
       0.3},
      {"heads",
       "in q: f16[2, 24, 4, 16]\nin k: f16[2, 24, 2, 16]\na = transpose(q, perm=[0, 2, 1, 3])\n"
       "b = reshape(k, shape=[2, 24, 2, 1, 16])\nc = broadcast(b, shape=[2, 24, 2, 2, 16])\nd = reshape(c, "
       "shape=[2, 24, 4, 16])\n"
       "e = transpose(d, perm=[0, 2, 3, 1])\ns = matmul(a, e)\np = softmax(s)\nt = transpose(d, perm=[0, 2, "
       "1, 3])\no = matmul(p, t)\nout o\n"},
      {"computed operands",
       "in x: f16[20, 32]\nin w: f16[32, 24]\na = gelu(x)\nb = mul(w, 2)\ny = matmul(a, b)\nz = matmul(a, "
       "b)\n"
       "s = add(y, z)\nout s, a\n",
       0.3},
      {"two products, one kernel",
       "in x: f16[8, 64]\nin v: f16[64, 64]\nin w: f16[64, 64]\na = matmul(x, v)\nb = matmul(x, w)\n"
       "c = silu(a)\nd = mul(c, b)\nout d\n",
       0.3},
      {"product of products",
       "in x: f16[9, 24]\nin v: f16[24, 40]\nin w: f16[40, 17]\na = matmul(x, v)\nb = matmul(a, w)\nout b, "
       "a\n",
       0.3},
      {"f32", "in x: f32[70, 33]\nin w: f32[33, 66]\ny = matmul(x, w)\nz = add(y, 1)\nout z\n"},
      {"f32, sixteen columns a thread",
       "in x: f32[1537, 18]\nin w: f32[18, 2050]\ny = matmul(x, w)\nout y\n"},
      {"f32, eight columns a thread",
       "in x: f32[18, 513]\nin w: f32[520, 18]\na = transpose(x)\nb = transpose(w)\ny = matmul(a, b)\nout "
       "y\n"},
      {"f32, 16 rows, split over k", "in x: f32[3, 1024]\nin w: f32[1024, 20]\ny = matmul(x, w)\nout y\n"},
      {"mixed dtypes",
       "in x: f16[18, 20]\nin w: f32[20, 31]\nin i: i32[31, 5]\ny = matmul(x, w)\nz = matmul(y, i)\nout z\n"},
      {"integers that wrap",
       "in x: i32[20, 33]\nin w: i32[33, 10]\na = mul(x, 123456789)\nb = mul(w, 987654321)\ny = matmul(a, "
       "b)\nout y\n"},
      {"truth values", "in x: bool[20, 33]\nin w: bool[33, 10]\ny = matmul(x, w)\nout y\n"},
      {"batch folded into rows",
       "in x: f16[3, 5, 32]\nin w: f16[32, 40]\nin b: f16[40]\ny = matmul(x, w)\nz = add(y, b)\nout z\n",
       0.3},
      {"epilogue with rows",
       "in x: f16[20, 32]\nin w: f16[32, 40]\ny = matmul(x, w)\nz = softmax(y)\nt = transpose(y)\nout z, t\n",
       0.3},
      {"nothing to sum", "in x: f16[4, 0]\nin w: f16[0, 6]\ny = matmul(x, w)\nz = add(y, 1)\nout z\n"},
  });
}

std::vector<EmulatedCase> movement_cases() {
  return cases_of({
      {"outputs that are inputs, and repeated",
       "in x: f16[7, 3]\nin y: i32[2]\na = neg(x)\nout x, a, a, x, y\n"},
      {"a number",
       "in x: f32[3]\na = add(1, 2.5)\nb = broadcast(a, shape=[4])\nc = cast(7, dtype=f16)\nout a, b, c\n"},
      {"deep reshapes",
       "in x: f32[6, 35]\na = reshape(x, shape=[5, 42])\nb = transpose(a)\nc = reshape(b, shape=[7, 30])\n"
       "d = transpose(c)\ne = reshape(d, shape=[2, 3, 35])\nf = reshape(e, shape=[6, 35])\ng = add(f, "
       "x)\nout g\n"},
      {"the last vector is shorter",
       "in x: f32[65539]\nin y: f32[65539]\nin t: bool[65539]\na = mul(x, 3)\nb = add(a, y)\nc = where(t, b, "
       "x)\n"
       "out b, c\n"},
      {"the last vector is shorter, two elements",
       "in x: f16[3, 10923]\nin y: f16[3, 10923]\na = exp(x)\nb = gelu(y)\nc = tanh(a)\nd = gelu(c)\ne = "
       "gelu(d)\n"
       "f = add(e, b)\nout f\n"},
      {"the last vector is shorter, and its elements lie apart",
       "in l: i32[311]\nin x: f32[257, 261]\nin y: f16[1027, 131]\nin b: f16[131]\nr = reshape(l, "
       "shape=[311, 1])\n"
       "e = eq(r, l)\nt = transpose(x)\nu = exp(t)\nz = add(y, b)\nv = gelu(z)\nout e, u, v\n"},
      {"whole vectors of a concat",
       "in x: f16[2048, 64]\nin c: f16[2048, 64]\nin s: f16[2048, 64]\na = slice(x, start=[0, 0], "
       "stop=[2048, 32])\n"
       "b = slice(x, start=[0, 32], stop=[2048, 64])\nn = neg(b)\nr = concat(n, a, axis=1)\np = mul(x, c)\n"
       "q = mul(r, s)\no = add(p, q)\nout o\n"},
      {"neighbours that are rotated",
       "in q: bf16[6, 5, 16]\nin c: f32[6, 1, 8]\nin s: f32[6, 1, 8]\nf = cast(q, dtype=f32)\n"
       "p = reshape(f, shape=[6, 5, 8, 2])\na1 = slice(p, start=[0, 0, 0, 0], stop=[6, 5, 8, 1])\n"
       "b1 = slice(p, start=[0, 0, 0, 1], stop=[6, 5, 8, 2])\na = reshape(a1, shape=[6, 5, 8])\n"
       "b = reshape(b1, shape=[6, 5, 8])\nac = mul(a, c)\nbs = mul(b, s)\nas = mul(a, s)\nbc = mul(b, c)\n"
       "x = sub(ac, bs)\ny = add(as, bc)\nx1 = reshape(x, shape=[6, 5, 8, 1])\n"
       "y1 = reshape(y, shape=[6, 5, 8, 1])\nz = concat(x1, y1, axis=-1)\nr = reshape(z, shape=[6, 5, 16])\n"
       "o = cast(r, dtype=bf16)\nout o\n"},
      {"concats within concats, of vectors and not",
       "in x: f32[4096, 12]\nin y: f32[4096, 4]\nin z: f32[4096, 2]\na = concat(x, y, axis=1)\n"
       "b = concat(y, a, axis=1)\nc = concat(b, z, z, axis=1)\nd = concat(c, z, z, axis=1)\nout b, d\n"},
      {"nested concats",
       "in x: f16[4, 3]\nin y: f16[4, 5]\na = concat(x, y, axis=1)\nb = concat(y, x, axis=1)\nc = concat(a, "
       "b, axis=0)\n"
       "d = slice(c, start=[1, 2], stop=[7, 7])\ne = concat(d, d, axis=1)\nf = sum(e, axis=1)\nout e, f\n"},
      {"shifted sums",
       "in x: f32[64]\na = slice(x, start=[1], stop=[64])\nb = slice(x, start=[0], stop=[63])\nc = add(a, "
       "b)\n"
       "d = slice(c, start=[1], stop=[63])\ne = slice(c, start=[0], stop=[62])\nf = mul(d, e)\nout f\n"},
      {"rank 8",
       "in x: f16[2, 1, 3, 1, 2, 2, 1, 3]\nin y: f16[3, 1, 1, 2, 1, 1]\nz = mul(x, y)\n"
       "t = transpose(z)\ns = sum(t, axis=[0, 3, 5])\nout t, s\n"},
      {"index numbers",
       "i = iota(shape=[5, 7], axis=1)\nj = iota(shape=[5, 7], axis=0)\nm = le(i, j)\nx = where(m, i, -1)\n"
       "y = cast(i, dtype=f16)\nout x, y\n"},
      {"masked softmax",
       "in s: f16[16, 16]\ni = iota(shape=[16, 16], axis=0)\nj = iota(shape=[16, 16], axis=1)\nm = le(j, i)\n"
       "w = where(m, s, -1e30)\np = softmax(w)\nout p\n"},
      {"rounding in the middle",
       "in x: f32[50]\na = cast(x, dtype=bf16)\nb = sub(x, a)\nc = cast(b, dtype=f16)\nd = mul(c, 256)\nout "
       "d\n"},
  });
}

}  // namespace quern
