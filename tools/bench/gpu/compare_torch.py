#!/usr/bin/env python3
"""Quern's plans beside PyTorch and other libraries, on the same buffers, in one run: any graph files, through the daemon and the C API.

usage: compare_torch.py --out DIR [--bundle DIR] [--cache DIR] [--tune SECONDS] [--jobs N] [--without PEER]... [--budget S] GRAPH.qg...

Starts a daemon with an empty cache of its own, which searches for all graphs while N processes compile PyTorch's programs; or, with --cache, with
a copy of a cache that `quern prewarm --wait-tier modelled` has filled, where there need be no GPU. Then, for each graph,
tunes for --tune seconds, or for its share of what is left of --budget, and times the baseline, the plan that the model chose, the tuned one, and
the peers that apply to it (peers.py) interleaved, each captured in a CUDA graph, with inputs that rotate over more than four times the L2 cache
(cold) and with the same inputs again and again (hot). Writes DIR/compare.json, compare.md and compare.svg; in compare.json is, too, what each
kernel of the plans takes, and why programs that tuning tried were refused. compare.md says, too, how long each
graph takes at least if it reads what it needs and writes its outputs once (floors.py)."""

import argparse
import collections
import concurrent.futures
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS, HOT_LAUNCHES = 9, 20
WRONG = 0.02  # the error from which a peer is wrong, whatever eager's
TIMING_SECONDS, LEAST_TUNE_SECONDS = 10, 5  # of a graph


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", default=os.path.join(HERE, "..", "..", ".."), help="what tools/dev bundle made")
    parser.add_argument("--out", required=True)
    parser.add_argument("--cache", help="a prewarmed cache folder, which is copied")
    parser.add_argument("--tune", type=float, default=30, help="seconds a graph")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--without", action="append", default=[], metavar="PEER", help="leaves a peer out; a name of peers.py")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds in all: tuning gets less where they are short; graphs that are left are named")
    parser.add_argument("--only-compile", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("graphs", nargs="+")
    return parser.parse_args()


OPTIONS = parse_arguments()
BUNDLE = os.path.abspath(OPTIONS.bundle)
sys.path[:0] = [HERE, os.path.join(BUNDLE, "tests", "gpu")]

import torch  # noqa: E402

import bundle as bundles  # noqa: E402
from attention import Values  # noqa: E402
from floors import Floors, moved  # noqa: E402
from peers import Subject, peers_of  # noqa: E402
from tables import figure, table  # noqa: E402
from torch_graph import DTYPES, Evaluator, Graph, random_inputs  # noqa: E402

package = None  # quern, once the bundle is in use


def make_inputs(graph, generator):
    """Random numbers of sizes that real programs have: weights are scaled by the length of their sums, second moments are positive, lengths at
    least half of what they end."""
    limits = Values(graph).lengths()
    tensors = []
    for (name, dtype, shape, _), (_, view) in zip(graph.inputs, random_inputs(graph, generator)):
        if dtype in ("f16", "bf16", "f32"):
            scale = 1 / math.sqrt(shape[-2]) if len(shape) >= 2 and (name.startswith("w") or name.endswith("weight")) else 1
            view.mul_(scale)
            if any(op in ("sqrt", "log") for _, op, *_ in graph.ops):
                view.abs_()
        elif name in limits:
            view.random_(limits[name] // 2, limits[name] + 1, generator=generator)
        tensors.append(view)
    return tensors


def failure(graph, name, error):
    lines = str(error).strip().splitlines()
    print(f"  {graph.name}: {name}: {type(error).__name__}: {lines[0][:150] if lines else ''}", file=sys.stderr, flush=True)


def compile_only(paths):
    """Fills the cache of compiled programs, so that the timing process finds them."""
    for path in paths:
        subject = Subject(Graph(open(path).read()))
        inputs = make_inputs(subject.graph, torch.Generator(device="cuda").manual_seed(1))
        for peer in peers_of(subject, OPTIONS.without):
            try:
                if peer.compiles:
                    way = peer.make(subject)
                    with torch.no_grad():
                        way.run(*way.prepare(inputs))
            except Exception:  # the timing run says so
                pass
        torch._dynamo.reset()


def compile_all(paths):
    # Searches have limits in seconds, which compilers on all processors would use up.
    arguments = [sys.executable, __file__, "--only-compile", "--bundle", BUNDLE, "--out", OPTIONS.out]
    arguments += [word for name in OPTIONS.without for word in ("--without", name)]
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


class Prepared:
    """A peer's way, with what it makes of each set of inputs."""

    def __init__(self, way, sets):
        self.way, self.prepared = way, [way.prepare(tensors) for tensors in sets]

    def __call__(self, index):
        return self.way.run(*self.prepared[index])


def captured(run, sets, launches):
    """`launches` runs over so many sets of inputs, one behind the other, as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(2):
            run(i % sets)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            run(i % sets)
    return graph


def time_all(graph, runs, sets):
    """{name: (cold us, hot us)}: medians of interleaved rounds; what fails is left out."""
    graphs = {}
    for name, run in runs.items():
        try:
            graphs[name] = captured(run, sets, sets), captured(run, 1, HOT_LAUNCHES)
        except Exception as error:
            failure(graph, name, error)
    samples = {name: ([], []) for name in graphs}
    for round_number in range(ROUNDS + 1):
        for name, pair in graphs.items():
            for replayed, times, launches in zip(pair, samples[name], (sets, HOT_LAUNCHES)):
                start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                replayed.replay()
                stop.record()
                torch.cuda.synchronize()
                if round_number:
                    times.append(start.elapsed_time(stop) * 1e3 / launches)
    return {name: tuple(statistics.median(times) for times in pair) for name, pair in samples.items()}


def error_of(actual, wanted):
    """Norm of the difference over that of the result, where that is well inside the range of its dtype: sums of f16 may leave it."""
    largest = torch.finfo(actual.dtype).max if actual.dtype.is_floating_point else math.inf
    actual, wanted = actual.double().flatten(), wanted.double().flatten()
    finite = wanted.abs() < largest / 2
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
    if OPTIONS.cache:
        quern("stop")
        shutil.rmtree(os.environ["QUERN_CACHE_DIR"])
        shutil.copytree(OPTIONS.cache, os.environ["QUERN_CACHE_DIR"])
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


def program_of(plan):
    """The muGraph and schedule that the plan was made from; empty of a baseline."""
    return {part: quern("show", plan.info.key, f"--{part}").stdout.decode() for part in ("mugraph", "schedule")}


def refusals(plan):
    """Why programs of the plan's graph are refused on the GPU: how many for each reason."""
    devices = json.loads(quern("show", plan.info.key, "--timings", "--json").stdout or "{}").get("timings", [])
    return dict(collections.Counter(program["refusal"] for device in devices for program in device["programs"] if program.get("refusal")))


def kernel_us(run, sets):
    """[kernel, microseconds] of each launch of the plan, one after the other; the L2 cache holds what the one before has left."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for index in range(min(8, len(sets))):
            run(sets[index], index)
            torch.cuda.synchronize()
    names = [launch.kernel for launch in run.plan.launches]
    events = sorted((event for event in profile.events() if event.name in names), key=lambda event: event.time_range.start)
    rounds = [events[at:at + len(names)] for at in range(0, len(events) - len(names) + 1, len(names))]
    return [[name, statistics.median(events[number].time_range.elapsed_us() for events in rounds)] for number, name in enumerate(names) if rounds]


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


def right_peers(subject, sets, exact):
    """{name: peer} of those that run and come as near to the exact outputs as a library may, and their errors."""
    peers, errors = {}, {}
    for row in peers_of(subject, OPTIONS.without):
        try:
            peer = Prepared(row.make(subject), sets)
            errors[row.name] = max(error_of(a, e) for a, e in zip(peer.way.result(peer(0)), exact))
            if not errors[row.name] <= max(WRONG, 10 * errors.get("eager", 0)):
                raise ValueError(f"is wrong, error {errors[row.name]:.1e}")
            peers[row.name] = peer
        except Exception as error:
            failure(subject.graph, row.name, error)
    return peers, errors


def measure(path, plans, tune_seconds, floors):
    subject = Subject(Graph(open(path).read()))
    graph = subject.graph
    plans["quern"], seconds = tuned(path, tune_seconds)
    generator = torch.Generator(device="cuda").manual_seed(1)
    inputs = make_inputs(graph, generator)
    size = sum(t.numel() * t.element_size() for t in inputs)
    count = max(2, min(200, 4 * torch.cuda.get_device_properties(0).L2_cache_size // max(1, size) + 2))
    sets = [inputs] + [make_inputs(graph, generator) for _ in range(count - 1)]
    with torch.no_grad():
        exact = Evaluator(graph, real=True).run(inputs)
        quern_runs = {name: QuernPlan(plan, count) for name, plan in plans.items()}
        peers, errors = right_peers(subject, sets, exact)
        errors.update({name: max(error_of(a, e) for a, e in zip(run(inputs, 0), exact)) for name, run in quern_runs.items()})
        runs = {name: lambda index, run=run: run(sets[index], index) for name, run in quern_runs.items()}
        times = time_all(graph, runs | peers, count)
    torch._dynamo.reset()
    best = min(times.keys() - plans.keys(), key=lambda name: times[name][0])
    quern = times["quern"][0]
    read, written = bytes_of(path, plans)
    return {"graph": graph.name, "tiers": {name: plan.info.tier for name, plan in plans.items()}, "seconds": seconds,
            "launches": {name: len(plan.launches) for name, plan in plans.items()}, "program": program_of(plans["quern"]), "errors": errors,
            "first_overlaps": {name: plan.launches[0].overlaps for name, plan in plans.items()}, "times": times, "best": best,
            "kernels": {name: kernel_us(run, sets) for name, run in quern_runs.items()}, "refused": refusals(plans["quern"]),
            "launch_us": launch_us(quern_runs["quern"], inputs), "ratio": times[best][0] / quern, "ratio_hot": times[best][1] / times["quern"][1],
            "over_baseline": {name: times["baseline"][0] / times[name][0] for name in ("modelled", "quern")}, "bytes": (read, written),
            "floors": floors and {"speed": floors.at_full_speed(read, written), "kernel": floors.kernel(read, written)}}


def bytes_of(path, plans):
    return moved(Graph(open(path).read()), [(o.shape, o.dtype) for o in plans["baseline"].outputs])


def floors_of(plans, scratch):
    try:
        floors = Floors([bytes_of(path, own) for path, own in plans.items()], scratch)
        print(f"The device: {floors}", flush=True)
        return floors
    except Exception as error:
        print(f"no floors: {type(error).__name__}: {error}", flush=True)
        return None


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
    floors = floors_of(plans, scratch)
    for number, path in enumerate(plans):
        left = OPTIONS.budget - (time.time() - began)
        if left < TIMING_SECONDS:
            print(f"no time is left for {path}", flush=True)
            continue
        share = left / (len(plans) - number) - TIMING_SECONDS
        try:
            row = measure(path, plans[path], min(OPTIONS.tune, max(LEAST_TUNE_SECONDS, share)), floors)
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
