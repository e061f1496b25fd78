"""Attention under masks: kinds of masks x dtype x masked number x {condition, addend}, with the masks themselves."""

import torch

from torch_graph import DTYPES

KINDS = ["causal", "window", "blocks", "prefix", "left_padding", "right_padding", "elements", "rows"]
BY_POSITION = KINDS[:4]  # these the graph computes from indices; the others are inputs
NUMBERS = {"inf": ("-inf", "-inf"), "1e30": ("-1e30", "-1e30"), "lowest": ("-65504", "-3.3895313892515355e38")}
HEADS, QUERIES, KEYS, DIM = 4, 192, 1024, 64


def seen(kind, device="cuda"):
    """True where a query sees a key: [QUERIES, KEYS] or [HEADS, 1, KEYS]."""
    generator = torch.Generator(device=device).manual_seed(KINDS.index(kind))
    i = torch.arange(QUERIES, device=device)[:, None]
    j = torch.arange(KEYS, device=device)[None, :]
    head = torch.arange(HEADS, device=device)[:, None, None]
    random = torch.rand((QUERIES, KEYS), generator=generator, device=device)
    return {"causal": lambda: j <= i + KEYS // 2, "window": lambda: (i - j).abs() < 96, "blocks": lambda: i // 64 == j // 256,
            "prefix": lambda: (j < 300) | (j <= i), "left_padding": lambda: j[None] >= head * 300,
            "right_padding": lambda: j[None] < 1000 - head * 320, "elements": lambda: random < 0.3,
            "rows": lambda: (random < 0.5) & (i % 7 != 3)}[kind]()


STATEMENTS = {
    "causal": f"at = add(i, {KEYS // 2})\nc = le(j, at)\n",
    "window": "a = sub(i, j)\nb = abs(a)\nc = lt(b, 96)\n",
    "blocks": "fi = mul(i, 0.015625)\nfj = mul(j, 0.00390625)\nci = cast(fi, dtype=i32)\ncj = cast(fj, dtype=i32)\nc = eq(ci, cj)\n",
    "prefix": "p0 = lt(j, 300)\np1 = le(j, i)\np2 = add(p0, p1)\nc = lt(0, p2)\n",
}


def graphs():
    """(name, text, {input: tensor}) of all of them."""
    for kind in KINDS:
        shape = list(seen(kind, "cpu").shape)
        for at, dtype in enumerate(("f16", "bf16")):
            for number, texts in NUMBERS.items():
                for additive in (False, True):
                    name = f"{kind}_{dtype}_{number}_{'add' if additive else 'where'}"
                    inputs = f"in q: {dtype}[{HEADS}, {QUERIES}, {DIM}]\nin k: {dtype}[{HEADS}, {DIM}, {KEYS}]\n" \
                             f"in v: {dtype}[{HEADS}, {KEYS}, {DIM}]\n"
                    fixed, mask = {}, ""
                    if additive:
                        inputs += f"in m: {dtype}{shape}\n"
                        low = torch.where(seen(kind), 0.0, float(texts[at])).to(DTYPES[dtype])
                        fixed, masked = {"m": low}, "w = add(t, m)\n"
                    else:
                        masked = f"w = where(c, t, {texts[at]})\n"
                        if kind in BY_POSITION:
                            mask = f"i = iota(shape={shape}, axis=0)\nj = iota(shape={shape}, axis=1)\n{STATEMENTS[kind]}"
                        else:
                            inputs += f"in c: bool{shape}\n"
                            fixed = {"c": seen(kind)}
                    yield name, f"graph {name}\n{inputs}{mask}s = matmul(q, k)\nt = mul(s, 0.125)\n{masked}p = softmax(w)\n" \
                        "o = matmul(p, v)\nout o\n", fixed
