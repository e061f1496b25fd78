#!/usr/bin/env python3
"""The gated MLP and the attention of fused.c with PyTorch: a plan is called with tensors like a function, and compared with PyTorch's own result in
double precision; without a GPU, or without PyTorch, it runs on the emulator. Needs the package quern, as by `pip install .`"""
import math
import shutil
import subprocess
import sys

import quern

try:
    import torch
    HAS_GPU = torch.cuda.is_available()
except ImportError:
    HAS_GPU = False

ROWS, WIDTH, HIDDEN, HEADS, QUERIES, KEYS, DEPTH = 16, 128, 256, 2, 32, 64, 64


def mlp_graph():
    graph = quern.Graph("mlp")
    x = graph.input("x", "f16", [ROWS, WIDTH])
    w1, w3 = (graph.input(name, "f16", [WIDTH, HIDDEN], const=True) for name in ("w1", "w3"))
    w2 = graph.input("w2", "f16", [HIDDEN, WIDTH], const=True)
    graph.output(((x @ w1).silu() * (x @ w3)) @ w2)
    return graph


def mlp_reference(x, w1, w3, w2):
    return (torch.nn.functional.silu(x @ w1) * (x @ w3)) @ w2


def attention_graph():
    graph = quern.Graph("attention")
    q = graph.input("q", "f16", [HEADS, QUERIES, DEPTH])
    k, v = (graph.input(name, "f16", [HEADS, KEYS, DEPTH]) for name in ("k", "v"))
    scores = (q @ k.transpose(perm=[0, 2, 1])) * (1 / math.sqrt(DEPTH))
    graph.output(scores.softmax(axis=-1) @ v)
    return graph


def attention_reference(q, k, v):
    return torch.softmax(q @ k.transpose(1, 2) / math.sqrt(DEPTH), -1) @ v


def run(name, plan, reference):
    inputs = [torch.rand(tensor.shape, dtype=torch.float16, device="cuda") - 0.5 for tensor in plan.inputs]
    got = plan(*inputs).double()
    want = reference(*(tensor.double() for tensor in inputs))
    error = ((got - want).norm() / want.norm()).item()
    print(f"{name} on the GPU: relative error {error:.2g}, {'ok' if error < 2e-3 else 'WRONG'}")
    return error < 2e-3


def run_emulated(graph):
    command = [shutil.which("quern"), "run", "-", "--emulate", "--target", "sm_90a"]
    return subprocess.run(command, input=graph.text, text=True).returncode == 0


def main():
    right = True
    with quern.Client() as client:
        for name, graph, reference in [("mlp", mlp_graph(), mlp_reference), ("attention", attention_graph(), attention_reference)]:
            plan = client.get(graph, None if HAS_GPU else "sm_90a")
            right = (run(name, plan, reference) if HAS_GPU else run_emulated(graph)) and right
    return 0 if right else 1


sys.exit(main())
