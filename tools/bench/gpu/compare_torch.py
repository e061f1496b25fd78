#!/usr/bin/env python3
"""Quern's plans beside every PyTorch variant, on the same buffers, in one run: any graph files, through the daemon and the C API.

usage: compare_torch.py --out DIR [--bundle DIR] [--tune SECONDS] [--jobs N] [--no-autotune] [--budget S] GRAPH.qg...

Starts a daemon with an empty cache of its own, which searches for all graphs while N processes compile PyTorch's programs. Then, for each graph,
tunes for --tune seconds, or for its share of what is left of --budget, and times the baseline, the plan that the model chose, the tuned one, and PyTorch (eager, torch.compile, max-autotune, attention through its library) interleaved,
each captured in a CUDA graph, with inputs that rotate over more than four times the L2 cache (cold) and with the same inputs again and again (hot). Writes DIR/compare.json, compare.md and compare.svg."""

import argparse
import concurrent.futures
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS, HOT_LAUNCHES = 9, 20
TIMING_SECONDS, LEAST_TUNE_SECONDS = 8, 5  # of a graph


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", default=os.path.join(HERE, "..", "..", ".."), help="what tools/dev bundle made")
    parser.add_argument("--out", required=True)
    parser.add_argument("--tune", type=float, default=30, help="seconds a graph")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--no-autotune", action="store_true")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds in all: tuning gets less where they are short; graphs that are left are named")
    parser.add_argument("--only-compile", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("graphs", nargs="+")
    return parser.parse_args()


OPTIONS = parse_arguments()
BUNDLE = os.path.abspath(OPTIONS.bundle)
sys.path[:0] = [HERE, os.path.join(BUNDLE, "tests", "gpu")]

import torch  # noqa: E402

import bundle as bundles  # noqa: E402
from torch_graph import DTYPES, Graph, random_inputs  # noqa: E402
from torch_source import Attention, program  # noqa: E402

package = None  # quern, once the bundle is in use


def variants(graph):
    """PyTorch's ways to run the graph, by name."""
    plain, library = program(graph), program(graph, Attention(graph))
    out = {"eager": plain, "compile": torch.compile(plain, dynamic=False)}
    if not OPTIONS.no_autotune:
        out["max-autotune"] = torch.compile(plain, dynamic=False, mode="max-autotune-no-cudagraphs")
    if library:
        out["library"], out["library, compiled"] = library, torch.compile(library, dynamic=False)
    return out


def make_inputs(graph, generator):
    """Random numbers of sizes that real programs have: weights are scaled by the length of their sums, second moments are positive."""
    tensors = []
    for (name, dtype, shape, _), (_, view) in zip(graph.inputs, random_inputs(graph, generator)):
        if dtype in ("f16", "bf16", "f32"):
            scale = 1 / math.sqrt(shape[-2]) if len(shape) >= 2 and name.startswith("w") else 1
            view.mul_(scale)
            if any(op in ("sqrt", "log") for _, op, *_ in graph.ops):
                view.abs_()
        tensors.append(view)
    return tensors


def as_libraries_want(graph, tensors):
    """The same tensors, keys of an attention library with their dimensions side by side in memory, whatever that costs elsewhere."""
    attention = Attention(graph)
    program(graph, attention)
    return [t.transpose(-1, -2).contiguous().transpose(-1, -2) if name in attention.keys else t
            for (name, *_), t in zip(graph.inputs, tensors)]


def compile_only(paths):
    """Fills the cache of compiled programs, so that the timing process finds them."""
    for path in paths:
        graph = Graph(open(path).read())
        inputs = make_inputs(graph, torch.Generator(device="cuda").manual_seed(1))
        for name, run in variants(graph).items():
            try:
                with torch.no_grad():
                    run(*(as_libraries_want(graph, inputs) if "library" in name else inputs))
            except Exception as error:  # the timing run says so, too
                print(f"{graph.name}: {name}: {type(error).__name__}", file=sys.stderr)
        torch._dynamo.reset()


def compile_all(paths):
    # Searches have limits in seconds, which compilers on all processors would use up.
    arguments = [sys.executable, __file__, "--only-compile", "--bundle", BUNDLE, "--out", OPTIONS.out]
    arguments += ["--no-autotune"] if OPTIONS.no_autotune else []
    with concurrent.futures.ThreadPoolExecutor(OPTIONS.jobs) as pool:
        list(pool.map(lambda path: subprocess.run(arguments + [path], preexec_fn=lambda: os.nice(15)), paths))


class QuernPlan:
    def __init__(self, plan, sets):
        self.plan = plan
        self.workspace = torch.empty(max(256, plan.info.workspace_bytes), dtype=torch.uint8, device="cuda")
        self.outputs = [[torch.empty(o.shape, dtype=DTYPES[o.dtype], device="cuda") for o in plan.outputs] for _ in range(min(sets, 8))]

    def __call__(self, inputs, index):
        outputs = self.outputs[index % len(self.outputs)]
        self.plan.launch([t.data_ptr() for t in inputs], [t.data_ptr() for t in outputs], self.workspace.data_ptr(),
                         torch.cuda.current_stream())
        return outputs


def captured(run, sets, launches):
    """`launches` runs over the sets of inputs, one behind the other, as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(2):
            run(sets[i % len(sets)], i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            run(sets[i % len(sets)], i)
    return graph


def time_all(runs, sets):
    """{name: (cold us, hot us)}: medians of interleaved rounds; what fails is left out."""
    graphs = {}
    for name, run in runs.items():
        try:
            graphs[name] = captured(run, sets, len(sets)), captured(run, sets[:1], HOT_LAUNCHES)
        except Exception as error:
            print(f"  {name}: {type(error).__name__}: {str(error)[:150]}", file=sys.stderr)
    samples = {name: ([], []) for name in graphs}
    for round_number in range(ROUNDS + 1):
        for name, pair in graphs.items():
            for graph, times, launches in zip(pair, samples[name], (len(sets), HOT_LAUNCHES)):
                start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                graph.replay()
                stop.record()
                torch.cuda.synchronize()
                if round_number:
                    times.append(start.elapsed_time(stop) * 1e3 / launches)
    return {name: tuple(statistics.median(times) for times in pair) for name, pair in samples.items()}


def error_of(actual, wanted):
    """Norm of the difference over that of the result, where that is finite."""
    actual, wanted = actual.double().flatten(), wanted.double().flatten()
    finite = torch.isfinite(wanted)
    return ((actual - wanted)[finite].norm() / wanted[finite].norm().clamp_min(1e-300)).item()


def quern(*arguments):
    return subprocess.run([f"{BUNDLE}/bin/quern", *arguments], capture_output=True)


def plan_of(path):
    """The best plan that is stored, which a new client asks for."""
    with package.Client() as client:
        return client.get(package.Graph.parse(open(path).read()))


def search_all(paths):
    """{path: {"baseline": plan, "modelled": plan}}: nothing is measured while PyTorch's programs are compiled, as these use the GPU, too."""
    os.environ.update(QUERN_MEASURE="never", QUERN_SEARCHERS=str(max(1, (os.cpu_count() or 2) // 4)))
    plans = {}
    for path in paths:
        try:
            plans[path] = {"baseline": plan_of(path)}
        except Exception as error:
            print(f"{path}: {type(error).__name__}: {error}", flush=True)
    compile_all(plans)
    for path in plans:
        quern("get", path, "--wait-tier", "modelled", "--timeout", "60")
        plans[path]["modelled"] = plan_of(path)
    quern("stop")
    del os.environ["QUERN_MEASURE"]
    return plans


def tuned(path, seconds):
    """The plan that tuning comes to, and the seconds that it took."""
    began = time.time()
    quern("tune", path, "--budget", f"{max(1, round(seconds))}s", "--timeout", f"{seconds + 120:.0f}")
    return plan_of(path), time.time() - began


def launch_us(run, inputs):
    """Host time of one quern_launch, for each of its kernels."""
    count = 100
    times = []
    for _ in range(20):
        torch.cuda.synchronize()
        prepared = run.plan.bind(*inputs, out=run.outputs[0], workspace=run.workspace.data_ptr())
        began = time.perf_counter()
        for _ in range(count):
            prepared()
        times.append((time.perf_counter() - began) * 1e6 / count)
    torch.cuda.synchronize()
    return statistics.median(times) / max(1, len(run.plan.launches))


def measure(path, plans, tune_seconds):
    graph = Graph(open(path).read())
    plans["quern"], seconds = tuned(path, tune_seconds)
    generator = torch.Generator(device="cuda").manual_seed(1)
    inputs = make_inputs(graph, generator)
    size = sum(t.numel() * t.element_size() for t in inputs)
    count = max(2, min(200, 4 * torch.cuda.get_device_properties(0).L2_cache_size // max(1, size) + 2))
    sets = [inputs] + [make_inputs(graph, generator) for _ in range(count - 1)]
    with torch.no_grad():
        exact = program(graph)(*[t.double() if t.is_floating_point() else t for t in inputs])
        runs = {name: QuernPlan(plan, count) for name, plan in plans.items()}
        errors = {name: max(error_of(a, e) for a, e in zip(run(inputs, 0), exact)) for name, run in runs.items()}
        errors["eager"] = max(error_of(a, e) for a, e in zip(program(graph)(*inputs), exact))
        wanted = [as_libraries_want(graph, tensors) for tensors in sets]
        for name, run in variants(graph).items():
            runs[name] = lambda tensors, index, run=run, own=wanted if "library" in name else sets: run(*own[index % len(own)])
        times = time_all(runs, sets)
    torch._dynamo.reset()
    peers = {name: cold for name, (cold, _) in times.items() if name not in plans}
    best = min(peers, key=peers.get)
    quern = times["quern"][0]
    return {"graph": graph.name, "tiers": {name: plan.info.tier for name, plan in plans.items()}, "seconds": seconds,
            "launches": {name: len(plan.launches) for name, plan in plans.items()}, "errors": errors,
            "first_overlaps": {name: plan.launches[0].overlaps for name, plan in plans.items()}, "times": times, "best": best,
            "launch_us": launch_us(runs["quern"], inputs), "ratio": peers[best] / quern, "ratio_hot": times[best][1] / times["quern"][1],
            "over_baseline": {name: times["baseline"][0] / times[name][0] for name in ("modelled", "quern")}}


def slower(rows, name):
    return ", ".join(row["graph"] for row in rows if row["over_baseline"][name] < 0.97) or "none"


def table(rows):
    lines = ["| graph | tier | s | launches | baseline us | modelled us | quern us | hot | PyTorch's best us | hot | variant | ratio | hot | "
             "launch us a kernel | error (eager's) |", "|---" * 15 + "|"]
    for row in rows:
        times, best = row["times"], row["best"]
        cells = [row["graph"], row["tiers"]["quern"], f"{row['seconds']:.0f}", str(row["launches"]["quern"]), f"{times['baseline'][0]:.1f}",
                 f"{times['modelled'][0]:.1f}", f"{times['quern'][0]:.1f}", f"{times['quern'][1]:.1f}", f"{times[best][0]:.1f}",
                 f"{times[best][1]:.1f}", best, f"{row['ratio']:.2f}", f"{row['ratio_hot']:.2f}", f"{row['launch_us']:.1f}",
                 f"{row['errors']['quern']:.1e} ({row['errors']['eager']:.1e})"]
        lines.append("| " + " | ".join(cells) + " |")
    ratios = [row["ratio"] for row in rows]
    regret = [row["times"]["modelled"][0] / row["times"]["quern"][0] for row in rows]
    lines += ["", f"Geometric mean of the ratio: {statistics.geometric_mean(ratios):.2f} over {len(rows)} graphs, "
              f"{sum(ratio < 1 for ratio in ratios)} below 1. Slower than their baseline by more than 3 %: {slower(rows, 'quern')}; "
              f"of what the model chose: {slower(rows, 'modelled')}. What the model chose over the best: {statistics.geometric_mean(regret):.2f}."]
    return "\n".join(lines) + "\n"


def figure(rows):
    """Bars of PyTorch's best over Quern, on a logarithmic axis with 1 in the middle."""
    height, left, half = 18, 190, 260
    reach = max(2.0, *(max(row["ratio"], 1 / row["ratio"]) for row in rows))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 2 * half + 70}" height="{height * (len(rows) + 2)}" '
             'font-family="sans-serif" font-size="12">', f'<text x="{left + half}" y="13" text-anchor="middle">PyTorch\'s best / Quern, cold L2</text>']
    for i, row in enumerate(sorted(rows, key=lambda row: -row["ratio"])):
        y, length = height * (i + 1), half * math.log(row["ratio"]) / math.log(reach)
        x = left + half + min(0, length)
        parts.append(f'<text x="{left - 6}" y="{y + 13}" text-anchor="end">{row["graph"]}</text><rect x="{x:.1f}" y="{y + 3}" '
                     f'width="{abs(length):.1f}" height="{height - 5}" fill="{"#2a7" if length >= 0 else "#c53"}"/>'
                     f'<text x="{left + 2 * half + 8}" y="{y + 13}">{row["ratio"]:.2f}</text>')
    parts.append(f'<line x1="{left + half}" x2="{left + half}" y1="{height}" y2="{height * (len(rows) + 1)}" stroke="black"/></svg>')
    return "\n".join(parts)


def main():
    os.makedirs(OPTIONS.out, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), "quern-compare-inductor"))
    if OPTIONS.only_compile:
        return compile_only(OPTIONS.graphs)
    began, scratch = time.time(), tempfile.mkdtemp(prefix="quern-compare-")
    global package
    package, rows = bundles.use(BUNDLE, scratch), []
    plans = search_all(OPTIONS.graphs)
    print(f"PyTorch's programs compiled, graphs searched in {time.time() - began:.0f} s", flush=True)
    for number, path in enumerate(plans):
        left = OPTIONS.budget - (time.time() - began)
        if left < TIMING_SECONDS:
            print(f"no time is left for {path}", flush=True)
            continue
        share = left / (len(plans) - number) - TIMING_SECONDS
        try:
            row = measure(path, plans[path], min(OPTIONS.tune, max(LEAST_TUNE_SECONDS, share)))
        except Exception as error:
            print(f"{path}: {type(error).__name__}: {error}", flush=True)
            continue
        rows.append(row)
        print(f"{row['graph']:24s} {row['tiers']['quern']:9s} {row['seconds']:6.1f} s  " +
              "  ".join(f"{name} {cold:.1f}" for name, (cold, _) in row["times"].items()) + f"  ratio {row['ratio']:.2f}", flush=True)
        for name, text in (("compare.json", json.dumps(rows, indent=1)), ("compare.md", table(rows)), ("compare.svg", figure(rows))):
            with open(os.path.join(OPTIONS.out, name), "w") as file:
                file.write(text)
        torch.cuda.empty_cache()
    quern("stop")
    print(table(rows) if rows else "nothing was measured")


main()
