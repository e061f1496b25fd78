// Mirage's stored muGraphs, which are not part of the repository: they may lie in shared/mirage_mugraphs
// beside the source tree.
#pragma once

#include "core/verify/certificate.h"
#include "tests/support/test.h"

namespace quern {

inline std::filesystem::path published_folder() {
  return test_root().parent_path() / "shared" / "mirage_mugraphs";
}

// The programs of Mirage's benchmark: norms without epsilon, at the shapes of the files.
struct Published {
  const char *file, *graph;
  size_t count;
  Verdict verdict;
};
inline const Published kPublished[] = {
    {"gqa_bs1.json",
     "graph gqa\nin q: f16[2, 256, 64]\nin k: f16[2, 64, 4096]\nin v: f16[2, 4096, 64]\ns = matmul(q, k)\np "
     "= "
     "softmax(s)\no = matmul(p, v)\nout o\n",
     28, Verdict::accepted},
    {"rmsnorm_bs1.json",
     "graph rmsnorm\nin x: f16[2, 4096]\nin w: f16[4096, 6144]\ny = rms_norm(x, eps=0)\nz = matmul(y, "
     "w)\nout z\n",
     18, Verdict::accepted},
    {"lora_bs1.json",
     "graph lora\nin x: f16[16, 256]\nin w: f16[256, 4096]\nin a: f16[256, 16]\nin b: f16[16, 4096]\nd = "
     "matmul(x, "
     "a)\ne = matmul(d, b)\nc = matmul(x, w)\no = add(c, e)\nout o\n",
     4, Verdict::accepted},
    {"gated_mlp_bs1.json",
     "graph gatedmlp\nin x: f16[8, 4096]\nin w1: f16[4096, 4096]\nin w2: f16[4096, 4096]\ng = matmul(x, "
     "w1)\nu = "
     "matmul(x, w2)\ns = silu(g)\no = mul(s, u)\nout o\n",
     32, Verdict::accepted},
    {"norm_transformer_bs1.json",
     "graph ntrans\nin h: f16[1, 4096]\nin x: f16[1, 4096]\nin alpha: f16[1, 4096]\nn = rms_norm(h, "
     "eps=0)\nd = add(n, "
     "x)\ns = mul(alpha, d)\nc = add(x, s)\no = rms_norm(c, eps=0)\nout o\n",
     9, Verdict::accepted},
    {"qknorm_gqa_bs1.json",
     "graph qknorm\nin q: f16[2, 256, 64]\nin k: f16[2, 64, 4096]\nin v: f16[2, 4096, 64]\nnq = rms_norm(q, "
     "eps=0)\nnv "
     "= rms_norm(v, eps=0)\ns = matmul(nq, k)\np = softmax(s)\no = matmul(p, nv)\nout o\n",
     190, Verdict::rejected},
};

}  // namespace quern
