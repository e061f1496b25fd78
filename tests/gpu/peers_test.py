#!/usr/bin/env python3
"""What a graph is timed beside: which attention it is said to be, which peers apply, how many bytes it moves. Where PyTorch is installed, also that
each peer computes the graph, FlashInfer and FlashAttention-3 by stand-ins with their interfaces.

usage: peers_test.py SOURCE_ROOT"""

import glob
import math
import os
import sys
import types
import unittest
from unittest import mock

ROOT = sys.argv.pop(1) if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(ROOT, "tools", "bench", "gpu"), os.path.join(ROOT, "tests", "gpu")]
try:
    import torch
    HAS_TORCH = True
except ImportError:
    for name in ("torch", "torch.nn", "torch.nn.functional"):
        sys.modules[name] = mock.MagicMock()
    sys.modules["torch"].configure_mock(**{name: "torch." + name for name in ("float16", "bfloat16", "float32", "int32", "bool")})
    HAS_TORCH = False

from attention import Positions, Values, attentions  # noqa: E402
from floors import Floors, moved  # noqa: E402
from peers import PEERS, Subject, peers_of  # noqa: E402
from tables import table  # noqa: E402
from torch_graph import DTYPES, Evaluator, Graph, random_inputs  # noqa: E402
from torch_source import program  # noqa: E402

POSITIONS = "i = iota(shape=[{q}, {k}], axis=0)\nj = iota(shape=[{q}, {k}], axis=1)\n"
CAUSAL = POSITIONS + "c = le(j, i)\nw = where(c, t, -inf)\n"


def attention(q="f16[4, 96, 64]", k="f16[4, 96, 64]", v=None, change="", scores="t", inputs="", tail="", out="o"):
    """softmax(change of t) @ v with t = q @ k^T / 8, in the text of the language."""
    dims = [int(n) for n in k[k.index("[") + 1:-1].split(",")]
    perm = [*range(len(dims) - 2), len(dims) - 1, len(dims) - 2]
    rows = [int(n) for n in q[q.index("[") + 1:-1].split(",")][-2]
    change = change.format(q=rows, k=dims[-2])
    return Graph(f"graph a\nin q: {q}\nin k: {k}\nin v: {v or k}\n{inputs}kt = transpose(k, perm={perm})\ns = matmul(q, kt)\nt = mul(s, 0.125)\n{change}"
                 f"p = softmax({scores}, axis=-1)\no = matmul(p, v)\n{tail}out {out}\n")


def causal(q="f16[4, 96, 64]", k="f16[4, 96, 64]", **more):
    return attention(q, k, change=CAUSAL, scores="w", **more)


def names(graph):
    return {peer.name for peer in peers_of(Subject(graph))}


LIBRARIES = {peer.name for peer in PEERS} - {"eager", "compile", "max-autotune", "cublaslt", "library", "library, cudnn", "library, compiled"}
PREFILL = {"flashinfer, fa2", "flashinfer, fa3"}
BATCH = {"flashinfer, batch fa2", "flashinfer, batch fa3"}
DECODE = {name for name in LIBRARIES if "decode" in name or "pages" in name or "xqa" in name}
SDPA = {"sdpa", "sdpa, cudnn", "sdpa, flash"}
FA3 = "flash attention 3"
WINDOW = POSITIONS + "c = le(j, i)\nd = sub(i, j)\nn = lt(d, 32)\nb = mul(c, n)\nw = where(b, t, -1e30)\n"
ALIBI = POSITIONS + "d = sub(j, i)\nf = cast(d, dtype=f16)\nb = mul(f, slope)\nu = add(t, b)\nc = le(j, i)\nw = where(c, u, -1e30)\n"
SOFT_CAP = "h = mul(t, 0.02)\ng = tanh(h)\nu = mul(g, 50.0)\n"
PADDING = "j = iota(shape=[1, 1, {k}], axis=2)\nc = lt(j, n)\nw = where(c, t, -inf)\n"
SQUARED = "u = square(t)\n"
GRAPHS = {
    "full": (attention(), SDPA | PREFILL | BATCH | {FA3}),
    "causal": (causal(), SDPA | PREFILL | BATCH | {FA3, "flex"}),
    "more keys than queries": (attention(k="f16[4, 160, 64]", change=POSITIONS + "z = sub(j, 64)\nc = le(z, i)\nw = where(c, t, -inf)\n", scores="w"),
                               {"sdpa", "sdpa, cudnn", "flex", FA3} | PREFILL | BATCH),
    "window": (attention(change=WINDOW, scores="w"), {"sdpa", "sdpa, cudnn", "flex", FA3} | PREFILL),
    "both sides": (attention(change=POSITIONS + "d = sub(i, j)\na = abs(d)\nc = lt(a, 32)\nw = where(c, t, -inf)\n", scores="w"),
                   {"sdpa", "sdpa, cudnn", "flex", FA3}),
    "additive mask": (attention(change=POSITIONS + "c = le(j, i)\nm = where(c, 0.0, -1e30)\nh = cast(m, dtype=f16)\nw = add(t, h)\n", scores="w"),
                      SDPA | PREFILL | BATCH | {FA3, "flex"}),
    "itself masked": (attention(change=POSITIONS + "c = lt(j, i)\nw = where(c, t, -inf)\n", scores="w"), {"sdpa", "sdpa, cudnn", "flex"}),
    "prefix": (attention(change=POSITIONS + "a = lt(j, 20)\nb = le(j, i)\nx = add(a, b)\nc = lt(0, x)\nw = where(c, t, -inf)\n", scores="w"),
               {"sdpa", "sdpa, cudnn", "flex"}),
    "alibi": (attention(change=ALIBI, scores="w", inputs="in slope: f16[4, 1, 1]\n"), {"sdpa", "sdpa, cudnn", "flex"}),
    "bias": (attention(change="u = add(t, b)\n", scores="u", inputs="in b: f16[4, 96, 96]\n"), {"sdpa", "sdpa, cudnn", "flex"}),
    "soft cap": (attention(change=SOFT_CAP, scores="u"), PREFILL | BATCH | {FA3, "flex"}),
    "squared scores": (attention(change=SQUARED, scores="u"), {"flex"}),
    "lengths": (attention(change=PADDING, scores="w", inputs="in n: i32[4, 1, 1]\n"), {"sdpa", "sdpa, cudnn", "flex"}),
    "grouped": (causal("bf16[2, 4, 96, 64]", "bf16[2, 1, 96, 64]"), SDPA | PREFILL | BATCH | {FA3, "flex"}),
    "views behind it": (attention("f16[2, 4, 96, 64]", "f16[2, 4, 96, 64]", tail="x = transpose(o, perm=[0, 2, 1, 3])\ny = reshape(x, shape=[2, 96, 256])\n",
                                  out="y"), SDPA | PREFILL | BATCH | {FA3}),
    "decode": (attention("f16[6, 4, 64]", "f16[6, 200, 64]"), SDPA | DECODE | {FA3}),
    "64 rows": (attention("f16[6, 64, 64]", "f16[6, 600, 64]"), SDPA | DECODE | PREFILL | BATCH | {FA3}),
    "the last query": (attention("bf16[6, 1, 64]", "bf16[6, 200, 64]", change=POSITIONS + "l = add(i, 199)\nc = le(j, l)\nw = where(c, t, -inf)\n",
                                 scores="w"), {"sdpa", "sdpa, cudnn", "flex", FA3} | DECODE),
    "scaled queries": (Graph("graph q\nin x: f16[4, 96, 64]\nin k: f16[4, 64, 96]\nin v: f16[4, 96, 64]\nq = mul(x, 0.125)\ns = matmul(q, k)\n"
                             "p = softmax(s, axis=-1)\no = matmul(p, v)\nout o\n"), SDPA | PREFILL | BATCH | {FA3}),
    "f32": (attention("f32[4, 96, 64]", "f32[4, 96, 64]"), SDPA),
}
REPEATED = Graph("""graph repeated
in q: bf16[1, 8, 1, 64]
in k: bf16[1, 2, 300, 64]
in v: bf16[1, 2, 300, 64]
k5 = reshape(k, shape=[1, 2, 1, 300, 64])
kb = broadcast(k5, shape=[1, 2, 4, 300, 64])
kr = reshape(kb, shape=[1, 8, 300, 64])
v5 = reshape(v, shape=[1, 2, 1, 300, 64])
vb = broadcast(v5, shape=[1, 2, 4, 300, 64])
vr = reshape(vb, shape=[1, 8, 300, 64])
kt = transpose(kr, perm=[0, 1, 3, 2])
s = matmul(q, kt)
t = mul(s, 0.125)
f = cast(t, dtype=f32)
p = softmax(f, axis=-1)
h = cast(p, dtype=bf16)
o = matmul(h, vr)
out o
""")
GRAPHS["repeated keys"] = (REPEATED, SDPA | DECODE | {FA3})
NOT_ALONE = Graph("""graph projected
in x: f16[64, 128]
in w: f16[128, 128] const
in k: f16[128, 64]
in v: f16[64, 128]
q = matmul(x, w)
s = matmul(q, k)
p = softmax(s, axis=-1)
o = matmul(p, v)
out o
""")


class Recognition(unittest.TestCase):
    def test_peers(self):
        for name, (graph, wanted) in GRAPHS.items():
            with self.subTest(name):
                self.assertEqual(names(graph) & LIBRARIES, wanted)
                self.assertLessEqual({"eager", "compile", "max-autotune"}, names(graph))
                self.assertNotIn("cublaslt", names(graph))

    def test_attention_in_a_larger_graph(self):
        self.assertEqual(names(NOT_ALONE) - {"eager", "compile", "max-autotune"}, {"library", "library, cudnn", "library, compiled"})

    def test_products(self):
        product = Graph("graph m\nin x: f16[64, 64]\nin w: f16[64, 64]\ny = matmul(x, w)\nz = gelu(y)\nout z\n")
        pointwise = Graph("graph r\nin x: f16[64, 64]\ny = relu(x)\nout y\n")
        self.assertEqual(names(product), {"eager", "compile", "max-autotune", "cublaslt"})
        self.assertEqual(names(pointwise), {"eager", "compile", "max-autotune"})

    def test_left_out(self):
        self.assertNotIn("flex", {peer.name for peer in peers_of(Subject(causal()), ["flex"])})

    def test_no_attention(self):
        for text in ("p = softmax(s, axis=-1)\no = matmul(p, v)\nout o\nout p\n",   # numerators are read elsewhere
                     "p = softmax(s, axis=1)\no = matmul(p, v)\nout o\n",           # over queries
                     "u = mul(s, s2)\np = softmax(u, axis=-1)\no = matmul(p, v)\nout o\n"):  # of two products
            graph = Graph("graph n\nin q: f16[2, 64, 64]\nin k: f16[2, 64, 64]\nin v: f16[2, 64, 64]\ns = matmul(q, k)\ns2 = matmul(k, q)\n" + text)
            self.assertEqual(attentions(graph), {}, text)

    def test_windows(self):
        for condition, queries, keys, wanted in (
                ("c = le(j, i)", 96, 96, (None, 0)), ("c = lt(j, i)", 96, 96, (None, -1)), ("x = add(i, 64)\nc = le(j, x)", 96, 160, (None, 0)),
                ("d = sub(i, j)\nc = le(d, 10)", 96, 96, (10, None)), ("n = neg(j)\nd = add(i, n)\nc = lt(d, 10)", 96, 96, (9, None)),
                ("d = sub(i, j)\na = abs(d)\nc = le(a, 7)", 96, 96, (7, 7)), ("c = le(j, 200)", 96, 96, "none"),
                ("d = sub(i, j)\nf = mul(d, 0.5)\nc = le(f, 8)", 96, 96, (16, None)), ("x = add(i, 500)\nc = le(j, x)", 96, 96, (None, None)),
                ("d = mul(i, j)\nc = le(d, 8)", 96, 96, "none"), ("x = mul(i, 2)\nc = le(j, x)", 96, 96, "none"),
                ("d = sub(i, j)\nf = cast(d, dtype=f16)\nc = le(f, 8)", 96, 96, "none")):
            graph = attention(f"f16[4, {queries}, 64]", f"f16[4, {keys}, 64]", change=POSITIONS + condition + "\nw = where(c, t, -inf)\n", scores="w")
            found = Subject(graph).attention
            self.assertEqual(found.window if wanted != "none" else found.window or "none", wanted, condition)
            self.assertTrue(found.positional)

    def test_band_is_where_the_condition_holds(self):
        """Against all pairs of positions."""
        graph = Graph("graph b\nin q: f16[9, 9]\ni = iota(shape=[9, 9], axis=0)\nj = iota(shape=[9, 9], axis=1)\nd = sub(i, j)\nd3 = mul(d, -3)\na = abs(d3)\n"
                      "c0 = le(d, 2)\nc1 = lt(d, 2)\nc2 = le(d3, 4)\nc3 = lt(d3, 3)\nc4 = lt(a, 6)\nc5 = mul(c0, c2)\nc6 = lt(2.5, d)\nout q\n")
        holds = {"c0": lambda d: d <= 2, "c1": lambda d: d < 2, "c2": lambda d: -3 * d <= 4, "c3": lambda d: -3 * d < 3, "c4": lambda d: abs(3 * d) < 6,
                 "c5": lambda d: d <= 2 and -3 * d <= 4, "c6": lambda d: 2.5 < d}
        positions = Positions(Values(graph))
        for name, condition in holds.items():
            low, high = positions.band(name)
            for d in range(-8, 9):
                self.assertEqual(low <= d <= high, condition(d), (name, d))

    def test_grouping(self):
        self.assertEqual(Subject(REPEATED).attention.heads, (1, 8, 2))
        self.assertEqual(Subject(REPEATED).attention.decode_rows, 4)
        self.assertEqual(Subject(GRAPHS["grouped"][0]).attention.heads, (2, 4, 1))
        self.assertEqual(Subject(GRAPHS["soft cap"][0]).attention.soft_cap, 50)
        self.assertEqual(Values(GRAPHS["lengths"][0]).lengths(), {"n": 96})


class Shapes(unittest.TestCase):
    def test_shapes(self):
        graph = Graph("graph s\nin x: f16[4, 6, 8]\nin y: f16[8]\na = sum(x, axis=[0, 2])\nb = sum(x, axis=1, keepdims=true)\nc = max(x)\n"
                      "d = slice(x, start=[1, 0, 0], stop=[4, 6, 8], step=[2, 1, 1])\ne = concat(d, x, axis=0)\nf = add(x, y)\ng = transpose(x)\n"
                      "h = matmul(x, g2)\nout f\n".replace("h = matmul(x, g2)\n", "t = transpose(x, perm=[0, 2, 1])\nh = matmul(x, t)\n"))
        shapes = Values(graph).shapes
        self.assertEqual([shapes[n] for n in "abcdefgh"], [[6], [4, 1, 8], [], [2, 6, 8], [6, 6, 8], [4, 6, 8], [8, 6, 4], [4, 6, 6]])

    def test_files(self):
        """Every graph of the folder: peers are found, and where PyTorch is, shapes are those of its program."""
        for path in sorted(glob.glob(os.path.join(ROOT, "tools", "bench", "gpu", "graphs", "**", "*.qg"), recursive=True)):
            with open(path) as file:
                graph = Graph(file.read())
            with self.subTest(graph.name):
                self.assertIn("eager", names(graph))
                self.assertGreater(moved(graph, [])[0], 0)
                if HAS_TORCH:
                    results = [result for result, *_ in graph.ops]
                    run = program(graph, wanted=results, device="meta")
                    values = run(*[torch.empty(shape, dtype=DTYPES[dtype], device="meta") for _, dtype, shape, _ in graph.inputs])
                    self.assertEqual({name: list(value.shape) for name, value in zip(results, values)},
                                     {name: Values(graph).shapes[name] for name in results})

    def test_bytes(self):
        graph = Graph("graph m\nin x: f16[64, 32]\nin r: f32[64, 32] strides[0, 1]\nin unused: f32[1000]\nz = add(x, r)\nout z\n")
        self.assertEqual(moved(graph, [([64, 32], "f32")]), (64 * 32 * 2 + 32 * 4, 64 * 32 * 4))

    def test_floor(self):
        floors = Floors.__new__(Floors)
        floors.read, floors.copy, floors.write = 4e6, 3e6, 2e6
        self.assertAlmostEqual(floors.at_full_speed(10e6, 4e6), 8 / 3 + 6 / 4)
        self.assertAlmostEqual(floors.at_full_speed(1e6, 5e6), 2 / 3 + 4 / 2)

    def test_tables(self):
        row = {"graph": "g", "tiers": {n: "measured" for n in ("baseline", "modelled", "quern")}, "seconds": 1, "launches": {"quern": 1}, "launch_us": 3,
               "times": {"baseline": (9, 9), "modelled": (5, 5), "quern": (4, 4), "eager": (8, 8), "sdpa": (6, 6)}, "best": "sdpa", "ratio": 1.5,
               "ratio_hot": 1.5, "errors": {"quern": 0, "eager": 0}, "over_baseline": {"modelled": 1, "quern": 1}, "bytes": (8e6, 4e6),
               "floors": {"speed": 3.2, "kernel": 3.6}}
        text = table([row, {**row, "graph": "h", "floors": None, "errors": {"quern": 0}}])
        self.assertIn("sdpa 6.0 (1.50); eager 8.0 (2.00)", text)
        self.assertIn("| g | 8.00 | 4.00 | 3.2 | 3.6 | 4.0 | 1.25 | 1.11 | 1.67 |", text)
        self.assertNotIn("| h | 8.00", text)


def attend(q, k, v, scale, causal=False, window=(-1, -1), cap=0):
    """[batch, heads, rows, dimension] with the masks of the libraries, aligned at the ends of queries and keys; in f32."""
    q, k, v = (t.float() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = scale * q @ k.transpose(-1, -2)
    scores = cap * torch.tanh(scores / cap) if cap else scores
    ahead = torch.arange(k.shape[2])[None, :] - (torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2])
    right = 0 if causal else window[1]
    hidden = (ahead > right) & (right >= 0) | (-ahead > window[0]) & (window[0] >= 0)
    return torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ v


def stand_ins():
    """The modules of FlashInfer and FlashAttention-3, as far as they are called."""
    def flash_attn_func(q, k, v, softmax_scale, softcap, num_splits, causal=False, window_size=(-1, -1)):
        return attend(*(t.transpose(1, 2) for t in (q, k, v)), softmax_scale, causal, window_size, softcap).transpose(1, 2)

    def single_prefill(q, k, v, causal, window_left, sm_scale, logits_soft_cap, backend):
        out = attend(*(t.transpose(0, 1)[None] for t in (q, k, v)), sm_scale, causal, (window_left, -1), logits_soft_cap or 0)
        return out[0].transpose(0, 1)

    def single_decode(q, k, v, kv_layout, use_tensor_cores, sm_scale):
        assert kv_layout == "HND"
        return attend(q[None, :, None], k[None], v[None], sm_scale)[0, :, 0]

    class Ragged:
        def __init__(self, workspace, layout, backend):
            assert layout == "NHD"

        def plan(self, queries, keys, heads, few, dim_k, dim_v, causal, window_left, sm_scale, logits_soft_cap, q_data_type):
            self.starts, self.how = (queries.tolist(), keys.tolist()), (sm_scale, causal, (window_left, -1), logits_soft_cap or 0)
            self.want = [(heads, dim_k), (few, dim_k), (few, dim_v)]

        def run(self, q, k, v):
            assert [t.shape[1:] for t in (q, k, v)] == self.want
            q, k, v = ([t[a:b].transpose(0, 1)[None] for a, b in zip(s, s[1:])] for t, s in ((q, self.starts[0]), (k, self.starts[1]), (v, self.starts[1])))
            return torch.cat([attend(*one, *self.how)[0].transpose(0, 1) for one in zip(q, k, v)])

    class Paged:
        def __init__(self, workspace, layout, use_tensor_cores):
            assert layout == "HND"

        def plan(self, starts, pages, last, heads, few, dim, page, q_data_type, sm_scale):
            self.starts, self.pages, self.last, self.scale = starts.tolist(), pages, last.tolist(), sm_scale

        def run(self, q, caches):
            k, v = ([cache[self.pages[a:b].long()].transpose(0, 1).flatten(1, 2)[None] for a, b in zip(self.starts, self.starts[1:])]
                    for cache in caches)
            lengths = [k[0].shape[2] - caches[0].shape[2] + last for last in self.last]
            rows = zip(q, k, v, lengths)
            return torch.cat([attend(a[None, :, None], b[:, :, :n], c[:, :, :n], self.scale)[:, :, 0] for a, b, c, n in rows])

    def xqa(q, caches, workspace, tables, lengths, longest, bmm1_scale, kv_layout, backend):
        assert (kv_layout, backend) == ("HND", "xqa") and not workspace.any() and (lengths == longest).all()
        k, v = (cache[tables.flatten().long()].reshape(len(q), 1, -1, cache.shape[-1])[:, :, :longest] for cache in caches)
        return attend(q[:, :, None], k, v, bmm1_scale)[:, :, 0]

    flashinfer = types.SimpleNamespace(single_prefill_with_kv_cache=single_prefill, single_decode_with_kv_cache=single_decode,
                                       BatchPrefillWithRaggedKVCacheWrapper=Ragged, BatchDecodeWithPagedKVCacheWrapper=Paged)
    modules = {"flashinfer": flashinfer, "flashinfer.decode": types.SimpleNamespace(trtllm_batch_decode_with_kv_cache=xqa)}
    return modules | {"flash_attn_interface": types.SimpleNamespace(flash_attn_func=flash_attn_func)}


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Results(unittest.TestCase):
    def setUp(self):  # mock.patch.dict would forget what PyTorch imports meanwhile, which cannot be imported twice
        sys.modules.update(stand_ins())
        for name in stand_ins():
            self.addCleanup(sys.modules.pop, name)

    def test_every_peer(self):
        """The graph's outputs in the dtype of its inputs, of all that runs without a GPU."""
        with mock.patch("torch.compile", lambda run, **_: run):
            for name, (graph, _) in [*GRAPHS.items(), ("larger", (NOT_ALONE, None))]:
                generator = torch.Generator().manual_seed(1)
                sets = [[view.random_(48, 97, generator=generator) if dtype == "i32" else view for (_, view), (_, dtype, *_) in
                         zip(random_inputs(graph, generator, "cpu"), graph.inputs)] for _ in range(2)]
                if Values(graph).lengths():
                    sets[1][-1] = sets[0][-1]  # blocks of masks are made once
                exact = [Evaluator(graph, real=True).run(tensors) for tensors in sets]
                for row in peers_of(Subject(graph, "cpu")):
                    if row.name.endswith(("cudnn", "flash")):
                        continue
                    way = row.make(Subject(graph, "cpu"))
                    for tensors, wanted in zip(sets, exact):
                        for a, e in zip(way.result(way.run(*way.prepare(tensors))), wanted):
                            self.assertEqual(a.shape, e.shape, (name, row.name))
                            finite = torch.isfinite(e)  # not where a query sees nothing
                            self.assertLess(((a.double() - e)[finite].norm() / e[finite].norm()).item(), 0.02, (name, row.name))


if __name__ == "__main__":
    unittest.main()
