#!/usr/bin/env python3
"""Times the workloads of examples/ in PyTorch: eager, attention backends, torch.compile, max-autotune; with inputs in the L2
cache (hot) and with inputs that rotate over more than four times of it (cold), each inside one CUDA graph.

usage: torch_variants.py [--only FAMILY,...] [--sizes 1,8,16] [--budget SECONDS] --out FILE.json

Writes {graph: [{variant, hot_us, cold_us, error}]}: medians in microseconds, and the error against f64 relative to the norm of the
result. What fails is left out with a line on standard error. Needs a GPU and PyTorch."""

import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def half(*shape, scale=1.0):
    return (torch.randn(*shape, device="cuda") * scale).half()


def rms(x):
    return F.rms_norm(x, (x.shape[-1],), eps=1e-5)


def attention_inputs(batch):
    return [half(2 * batch, 256, 64, scale=0.3), half(2 * batch, 64, 4096, scale=0.3), half(2 * batch, 4096, 64)]


def attention(q, k, v):
    return torch.softmax(q @ k, -1) @ v


# The attention libraries want the keys as (kv, d): they get them so, which the other variants do not.
def library_inputs(q, k, v):
    return q, k.transpose(1, 2).contiguous(), v


def library_attention(q, k, v):
    return F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), scale=1.0).squeeze(1)


def normalised(inner):
    return lambda q, k, v: inner(rms(q), k, rms(v))


# Per family: inputs of a batch size, the program as one writes it, and the same through the attention library.
FAMILIES = {
    "gqa": (attention_inputs, attention, library_attention),
    "qknorm": (attention_inputs, normalised(attention), normalised(library_attention)),
    "rmsnorm": (lambda b: [half(2 * b, 4096), half(4096, 6144, scale=1 / 64)], lambda x, w: rms(x) @ w, None),
    "lora": (lambda b: [half(2 * b, 256), half(256, 4096, scale=1 / 16), half(256, 16, scale=1 / 16), half(16, 4096, scale=1 / 4)],
             lambda x, w, a, b: x @ w + (x @ a) @ b, None),
    "gatedmlp": (lambda b: [half(b, 4096), half(4096, 4096, scale=1 / 64), half(4096, 4096, scale=1 / 64)],
                 lambda x, a, b: F.silu(x @ a) * (x @ b), None),
    "ntrans": (lambda b: [half(b, 4096) for _ in range(3)], lambda h, x, alpha: rms(x + alpha * (rms(h) + x)), None),
}


def with_backend(function, backend):
    def run(*inputs):
        with sdpa_kernel(backend):
            return function(*inputs)
    return run


# Name, function, and what is done with its inputs beforehand.
def variants_of(program, library):
    yield "eager", program, None
    if library:
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
            yield name.lower() + ", keys as (kv, d)", with_backend(library, getattr(SDPBackend, name)), library_inputs
    yield "compile", torch.compile(program, dynamic=False, fullgraph=True), None
    yield "max-autotune", torch.compile(program, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs"), None


def median_us(run, launches):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            run(i)
    times = []
    for round_ in range(14):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if round_ >= 3:
            times.append(begin.elapsed_time(end) * 1e3 / launches)
    return statistics.median(times)


def time_variant(variant, sets):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(3):
            variant(*sets[i % len(sets)])
    torch.cuda.synchronize()
    return median_us(lambda i: variant(*sets[0]), 40), median_us(lambda i: variant(*sets[i % len(sets)]), len(sets))


def time_workload(family, batch, over):
    make, program, library = FAMILIES[family]
    torch.manual_seed(0)
    first = make(batch)
    wanted = program(*(x.double() for x in first))
    size = sum(x.numel() * x.element_size() for x in first)
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    sets = [first] + [make(batch) for _ in range(min(200, 4 * cache // size + 2))]
    torch._dynamo.reset()
    rows = []
    for name, variant, prepare in variants_of(program, library):
        if over():
            break
        own = [prepare(*inputs) for inputs in sets] if prepare else sets
        try:
            error = ((variant(*own[0]).double() - wanted).norm() / wanted.norm()).item()
            hot, cold = time_variant(variant, own)
        except Exception as failure:  # a backend that does not take these shapes
            print(f"{family}_b{batch} {name}: {type(failure).__name__}: {str(failure)[:160]}", file=sys.stderr)
            continue
        rows.append({"variant": name, "hot_us": hot, "cold_us": cold, "error": error})
        print(f"{family}_b{batch:<3} {name:36} hot {hot:8.2f} cold {cold:8.2f} error {error:.1e}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(FAMILIES))
    parser.add_argument("--sizes", default="1,8,16")
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - set(FAMILIES)
    if unknown:
        parser.error(f"no family {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    began = time.monotonic()
    table = {}
    with torch.no_grad():
        for batch in map(int, options.sizes.split(",")):
            for family in options.only.split(","):
                table[f"{family}_b{batch}"] = time_workload(family, batch, lambda: time.monotonic() - began > options.budget)
                with open(options.out, "w") as out:
                    json.dump(table, out, indent=1)


if __name__ == "__main__":
    main()
