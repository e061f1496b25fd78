#!/usr/bin/env python3
"""What a call of a plan with 8 tensors costs on the CPU, with a driver that does nothing: the package's part, and that of ctypes and
libquern, which plan.bind() leaves. Argument: the root of the sources."""
import os
import sys
import time

ROOT = sys.argv[1]
sys.path[:0] = [os.path.join(ROOT, "bindings/python"), os.path.dirname(os.path.abspath(__file__))]

from fake_torch import torch  # noqa: E402

import quern  # noqa: E402

TEXT = "graph eight\n" + "".join(f"in x{i}: f16[16, 64]\n" for i in range(7)) + \
    "s0 = add(x0, x1)\n" + "".join(f"s{i} = add(s{i - 1}, x{i + 1})\n" for i in range(1, 6)) + "out s5\n"
CALLS, ROUNDS = 2000, 15


def microseconds(call):
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - began)
    return best * 1e6 / CALLS


def main():
    with quern.Client() as client:
        graph = quern.Graph.parse(TEXT)
        plan = client.get(graph, "sm_90a")
        inputs = [torch.empty((16, 64), dtype=torch.float16) for _ in range(7)]
        out = torch.empty((16, 64), dtype=torch.float16)
        scratch = torch.empty(max(plan.info.workspace_bytes, 256), dtype=torch.uint8)
        at = scratch.data_ptr()
        bound = plan.bind(*inputs, out=out, workspace=at)
        print(f"{len(plan.launches)} launches; with out= {microseconds(lambda: plan(*inputs, out=out, workspace=at)):.2f} us a call, "
              f"allocating {microseconds(lambda: plan(*inputs)):.2f} us, bound {microseconds(bound):.2f} us, "
              f"get() of the same graph {microseconds(lambda: client.get(graph, 'sm_90a')):.2f} us")


main()
