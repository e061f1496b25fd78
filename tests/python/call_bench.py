#!/usr/bin/env python3
"""What a call of a plan with 8 tensors costs on the CPU: the package's part, and that of ctypes and libquern, which plan.bind() leaves.

usage: call_bench.py SOURCES [--torch]

Without --torch a driver that does nothing is under it, and a stand-in for PyTorch. With it, PyTorch and its GPU: then the result is checked, the driver's
own launch of the same kernel is timed beside it, and it exits with 1 if a call takes more than 4 us beyond that."""
import ctypes
import os
import sys
import time

ROOT = sys.argv[1]
sys.path[:0] = [os.path.join(ROOT, "bindings/python"), os.path.dirname(os.path.abspath(__file__))]

REAL = "--torch" in sys.argv[2:]
if REAL:
    import torch
else:
    from fake_torch import torch  # noqa: E402

import quern  # noqa: E402

TEXT = "graph eight\n" + "".join(f"in x{i}: f16[16, 64]\n" for i in range(7)) + \
    "s0 = add(x0, x1)\n" + "".join(f"s{i} = add(s{i - 1}, x{i + 1})\n" for i in range(1, 6)) + "out s5\n"
CALLS, ROUNDS = (500, 21) if REAL else (2000, 15)  # fewer calls than fit the queue of a stream
LIMIT_US = 4


def microseconds(call):
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - began)
        if REAL:
            torch.cuda.synchronize()
    return best * 1e6 / CALLS


def driver_launch(plan, inputs, out):
    """What the same launch takes by cuLaunchKernel through ctypes, and what of that is ctypes'."""
    driver = ctypes.CDLL("libcuda.so.1")
    launch, = plan.launches
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    if driver.cuModuleLoadData(ctypes.byref(module), plan.cubin) or \
            driver.cuModuleGetFunction(ctypes.byref(function), module, launch.kernel.encode()):
        raise RuntimeError("the driver does not load the plan's kernel")
    addresses = {"input": [tensor.data_ptr() for tensor in inputs], "output": [out.data_ptr()]}
    values = [ctypes.c_uint64(addresses[kind][index]) for kind, index in launch.args]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    numbers = [ctypes.c_uint(number) for number in (*launch.grid, *launch.block, launch.shared_bytes)]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if driver.cuLaunchKernel(function, *numbers, stream, pointers, None):
        raise RuntimeError("the driver does not launch the plan's kernel")
    # The driver refuses a grid of nothing at once: that is what eleven arguments cost by ctypes.
    refused = [ctypes.c_uint(0), *numbers[1:]]
    return [microseconds(lambda: driver.cuLaunchKernel(function, *those, stream, pointers, None)) for those in (numbers, refused)]


def main():
    place = {"device": "cuda"} if REAL else {}
    with quern.Client() as client:
        graph = quern.Graph.parse(TEXT)
        plan = client.get(graph, None if REAL else "sm_90a")
        inputs = [torch.empty((16, 64), dtype=torch.float16, **place) for _ in range(7)]
        out = torch.empty((16, 64), dtype=torch.float16, **place)
        scratch = torch.empty(max(plan.info.workspace_bytes, 256), dtype=torch.uint8, **place)
        at = scratch.data_ptr()
        if REAL:
            for tensor in inputs:
                tensor.uniform_(-1, 1)
            error = (plan(*inputs).double() - sum(tensor.double() for tensor in inputs)).abs().max().item()
            if error > 4e-3:
                sys.exit(f"WRONG: the sum is off by {error}")
        bound = plan.bind(*inputs, out=out, workspace=at)
        times = {"with out=": lambda: plan(*inputs, out=out, workspace=at), "allocating": lambda: plan(*inputs), "bound": bound,
                 "get() of the same graph": lambda: client.get(graph, None if REAL else "sm_90a")}
        took = {name: microseconds(call) for name, call in times.items()}
        print(f"{len(plan.launches)} launches; " + ", ".join(f"{name} {us:.2f} us" for name, us in took.items()))
        if not REAL:
            return 0
        launched, refused = driver_launch(plan, inputs, out)
        driver = launched - refused
        beyond = took["with out="] - driver
        print(f"the driver's launch: {launched:.2f} us by ctypes, {refused:.2f} us of them for the arguments: {driver:.2f} us")
        print(f"a call takes {beyond:.2f} us beyond the driver's launch with out=, {took['allocating'] - driver:.2f} us allocating (limit: {LIMIT_US})")
        return 0 if beyond <= LIMIT_US else 1


sys.exit(main())
