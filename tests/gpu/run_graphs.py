#!/usr/bin/env python3
"""Runs graphs on a GPU through a real daemon and the C API, and compares every element with a f64 reference in PyTorch.

usage: run_graphs.py [--bundle DIR] [--random N] [--tier modelled] [--out FILE]

Needs a bundle (tools/dev bundle), a GPU and PyTorch. A graph of examples/ passes when its error is at most twice that of eager
PyTorch in the graph's dtypes; a random graph when it is at most twice that of the unfused program, whose intermediates are moved by
their rounding errors. With --tier it waits first for plans of that tier, as far as the daemon finds them. Prints a table in Markdown,
and exits with 1 when a graph fails."""

import argparse
import glob
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import bundle as bundles
from torch_graph import DTYPES, UNIT, Evaluator, Graph, random_inputs

TIERS = ("baseline", "modelled", "measured")


class Buffers:
    """What one launch needs; outputs hold NaN, or a pattern that no result has, before it."""

    def __init__(self, plan, inputs):
        self.inputs = [buffer if buffer.numel() else torch.zeros(16, device="cuda", dtype=buffer.dtype) for buffer, _ in inputs]
        self.shapes = [output.shape for output in plan.outputs]
        self.outputs = [torch.empty(max(16, torch.Size(output.shape).numel()), device="cuda", dtype=DTYPES[output.dtype])
                        for output in plan.outputs]
        self.workspace = torch.empty(max(256, plan.info.workspace_bytes), device="cuda", dtype=torch.uint8)
        self.poison()

    def poison(self):
        for output in self.outputs:
            output.view(torch.uint8).fill_(0xFF)
        self.workspace.fill_(0xFF)

    def launch(self, plan):
        plan.launch([b.data_ptr() for b in self.inputs], [b.data_ptr() for b in self.outputs], self.workspace.data_ptr(),
                    torch.cuda.current_stream())

    def results(self):
        return [o[:torch.Size(shape).numel()].reshape(shape).clone() for o, shape in zip(self.outputs, self.shapes)]


def error_of(actual, reference):
    """Root mean square of the error over that of the reference; infinite when a special value is missed or an integer is wrong."""
    a, r = actual.double(), reference.double()
    if actual.dtype in (torch.int32, torch.bool):
        return 0.0 if torch.equal(a, r) else float("inf")
    rounded = reference.to(actual.dtype)
    special = ~torch.isfinite(rounded)
    same = (a == rounded.double()) | (torch.isnan(a) & torch.isnan(rounded.double()))
    if not bool(same[special].all()) or not bool(torch.isfinite(a[~special]).all()):
        return float("inf")
    difference, norm = (a - r)[~special].norm().item(), r[~special].norm().item()
    return difference / norm if norm else difference


def microseconds(run, repeats=20, rounds=9):
    """Median time of one run, captured into a CUDA graph; inputs are in the L2 cache."""
    run()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / repeats)
    return statistics.median(times)


def check(quern, client, text, is_random, seed):
    graph = Graph(text)
    began = time.perf_counter()
    plan = client.get(quern.Graph.parse(text))
    miss = time.perf_counter() - began
    began = time.perf_counter()
    client.get(quern.Graph.parse(text))
    hit = time.perf_counter() - began
    generator = torch.Generator(device="cuda").manual_seed(seed)
    inputs = random_inputs(graph, generator)
    buffers = Buffers(plan, inputs)
    buffers.launch(plan)
    torch.cuda.synchronize()
    results = buffers.results()

    # Once more inside a CUDA graph: the same bits.
    buffers.poison()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        buffers.launch(plan)
    captured.replay()
    torch.cuda.synchronize()
    repeated = all(torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))
                   for a, b in zip(results, buffers.results()))

    tensors = [view for _, view in inputs]
    reference, eager = Evaluator(graph, True).run(tensors), Evaluator(graph, False)
    if is_random:  # few elements, which rounding to nearest may treat kindly: the unluckiest of several unfused programs
        others = [Evaluator(graph, True, generator).run(tensors) for _ in range(4)]
    else:
        others = [eager.run(tensors)]
    passed, worst, bound = repeated, 0.0, 0.0
    for i, (actual, expected) in enumerate(zip(results, reference)):
        error = error_of(actual, expected)
        limit = 2 * max(error_of(other[i].to(actual.dtype), expected) for other in others)
        if is_random:
            limit += 2 * UNIT.get({v: k for k, v in DTYPES.items()}[actual.dtype], 0)
        passed &= error <= limit
        if error >= worst:
            worst, bound = error, limit
    row = {"name": graph.name, "tier": plan.info.tier, "launches": len(plan.launches), "miss": miss * 1e3, "compile": plan.info.compile_ns / 1e6,
           "hit": hit * 1e6, "error": worst, "bound": bound, "passed": passed, "repeated": repeated}
    if not is_random:
        row["quern"] = microseconds(lambda: buffers.launch(plan))
        row["eager"] = microseconds(lambda: eager.run(tensors))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--bundle", default=os.path.join(here, "..", ".."))
    parser.add_argument("--random", type=int, default=30)
    parser.add_argument("--tier", choices=TIERS, default="baseline")
    parser.add_argument("--out")
    options = parser.parse_args()
    bundle = os.path.abspath(options.bundle)
    scratch = tempfile.mkdtemp(prefix="quern-gpu-")
    quern = bundles.use(bundle, scratch)
    examples = sorted(glob.glob(f"{bundle}/examples/*.qg"))
    subprocess.run([f"{bundle}/tests/gpu/random_graphs", scratch, str(options.random)], check=True)
    graphs = examples + sorted(glob.glob(f"{scratch}/*.qg"))
    if options.tier != "baseline":
        for path in graphs:
            subprocess.run([f"{bundle}/bin/quern", "get", path, "--wait-tier", options.tier, "--timeout", "40"], capture_output=True)
    texts = [(open(path).read(), path not in examples) for path in graphs]
    torch.zeros(1, device="cuda")
    client = quern.Client()
    rows = []
    for seed, (text, is_random) in enumerate(texts):
        try:
            rows.append(check(quern, client, text, is_random, seed))
        except (quern.QuernError, RuntimeError) as problem:
            print(problem, file=sys.stderr)
            rows.append({"name": Graph(text).name, "tier": "", "launches": 0, "miss": 0, "compile": 0, "hit": 0, "error": float("inf"),
                         "bound": 0, "passed": False, "repeated": False})
    client.close()
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                            text=True).stdout.split("\n")[0]
    lines = [f"{time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name()}, driver {driver}, PyTorch {torch.__version__}", "",
             "| graph | tier | launches | first call ms | NVRTC ms | second call us | error | allowed | same in a CUDA graph | Quern us | eager us | passed |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        times = f"{r['quern']:.1f} | {r['eager']:.1f}" if "quern" in r else " | "
        lines.append(f"| {r['name']} | {r['tier']} | {r['launches']} | {r['miss']:.1f} | {r['compile']:.1f} | {r['hit']:.1f} | {r['error']:.2e} | "
                     f"{r['bound']:.2e} | {'yes' if r['repeated'] else 'NO'} | {times} | {'yes' if r['passed'] else 'NO'} |")
    failed = [r["name"] for r in rows if not r["passed"]]
    lines += ["", f"{len(rows) - len(failed)} passed, {len(failed)} failed" + (": " + ", ".join(failed) if failed else "")]
    report = "\n".join(lines)
    print(report)
    if options.out:
        with open(options.out, "w") as out:
            out.write(report + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
