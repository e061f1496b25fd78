#!/usr/bin/env python3
"""Runs plans on a GPU, through a real daemon and the C API, on random and on hostile inputs; every element has its own bound.

usage: run_hostile.py [--bundle DIR] [--masks] [--random N] [--classes A,B] [--tier modelled] [--searchers N] [--wait S] [--budget S] [--out FILE] [GRAPH.qg...]

--masks adds attention under eight kinds of masks (attention_masks.py), --random N graphs of the seeded generator. Plans of the given
tier are waited for first, all at once, as far as the daemon finds them. A table in Markdown; exits with 1 when an output is wrong."""

import argparse
import concurrent.futures
import glob
import os
import subprocess
import sys
import tempfile
import time

import torch

import bundle as bundles
from hostile_inputs import CLASSES, Hostile, Judge
from run_graphs import TIERS, Buffers
from torch_graph import Graph


def prewarm(bundle, paths, tier, jobs, wait, deadline):
    """Waits for plans until the deadline; plans that are not there then are the baseline's."""
    def one(path):
        seconds = int(min(wait, deadline - time.time()))
        if seconds <= 0:
            return
        done = subprocess.run([f"{bundle}/bin/quern", "get", path, "--wait-tier", tier, "--timeout", str(seconds)], capture_output=True, text=True)
        if done.returncode and "no plan" not in done.stderr:
            raise SystemExit(f"{path}: {done.stderr.strip()}")
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, paths))


def check(quern, client, text, fixed, classes, seed):
    """One row: what every class came to."""
    graph = Graph(text)
    plan = client.get(quern.Graph.parse(text))
    row = {"name": graph.name, "tier": plan.info.tier, "launches": len(plan.launches), "classes": {}}
    for name in classes:
        hostile = Hostile(graph, name, seed).inputs()
        for index, (declared, _, _, _) in enumerate(graph.inputs):
            if declared in fixed:
                hostile[index] = (fixed[declared].flatten().contiguous(), fixed[declared])
        buffers = Buffers(plan, hostile)
        buffers.launch(plan)
        torch.cuda.synchronize()
        judge = Judge(graph, [view for _, view in hostile], seed)
        worst, wrong = 0.0, ""
        for output, actual in enumerate(buffers.results()):
            ratio, what = judge.judge(output, actual)
            worst, wrong = max(worst, ratio), wrong or (f"output {output}: {what}" if what else "")
        row["classes"][name] = (worst, wrong)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--bundle", default=os.path.join(here, "..", ".."))
    parser.add_argument("--masks", action="store_true")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--classes", default=",".join(CLASSES))
    parser.add_argument("--tier", choices=TIERS, default="modelled")
    parser.add_argument("--searchers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--wait", type=int, default=90, help="seconds for the plan of one graph; what has none is run with the baseline's")
    parser.add_argument("--budget", type=float, default=500, help="seconds in all, half of them at most for waiting")
    parser.add_argument("--out")
    parser.add_argument("graphs", nargs="*")
    options = parser.parse_args()
    began = time.time()
    bundle = os.path.abspath(options.bundle)
    scratch = tempfile.mkdtemp(prefix="quern-hostile-")
    os.environ.update(QUERN_SEARCHERS=str(options.searchers), QUERN_WORKERS="4")
    quern = bundles.use(bundle, scratch)
    texts = [(open(path).read(), {}) for path in options.graphs]
    if options.masks:
        from attention_masks import graphs as masked_graphs
        texts += [(text, fixed) for _, text, fixed in masked_graphs()]
    if options.random:
        folder = tempfile.mkdtemp(dir=scratch)
        subprocess.run([f"{bundle}/tests/gpu/random_graphs", folder, str(options.random)], check=True)
        texts += [(open(path).read(), {}) for path in sorted(glob.glob(f"{folder}/*.qg"))]
    paths = []
    for number, (text, _) in enumerate(texts):
        paths.append(f"{scratch}/{number}.qg")
        with open(paths[-1], "w") as to:
            to.write(text)
    if options.tier != "baseline":
        prewarm(bundle, paths, options.tier, options.searchers, options.wait, began + options.budget / 2)
    waited = time.time() - began
    torch.zeros(1, device="cuda")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    client = quern.Client()
    classes, rows, left_out = options.classes.split(","), [], 0
    for seed, (text, fixed) in enumerate(texts):
        if time.time() - began > options.budget:
            left_out += 1
            continue
        try:
            rows.append(check(quern, client, text, fixed, classes, seed))
        except (quern.QuernError, RuntimeError) as problem:
            rows.append({"name": Graph(text).name, "tier": "", "launches": 0, "classes": {}, "failed": str(problem).split("\n")[0]})
            if "CUDA" in str(problem):  # nothing that follows would say anything
                break
        torch.cuda.empty_cache()
    client.close()
    lines = [f"{time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name()}, PyTorch {torch.__version__}; {waited:.0f} s until the plans were there. "
             "Largest error over its bound, by class; 1 would be too much.", "",
             "| graph | tier | launches | " + " | ".join(classes) + " |", "|" + "---|" * (3 + len(classes))]
    wrong = []
    for row in rows:
        cells = []
        for name in classes:
            ratio, what = row["classes"].get(name, (float("nan"), "not run"))
            cells.append("NO" if what else f"{ratio:.2f}")
            if what:
                wrong.append(f"{row['name']}, {name}: {row.get('failed', what)}")
        lines.append(f"| {row['name']} | {row['tier']} | {row['launches']} | " + " | ".join(cells) + " |")
    runs = sum(len(row["classes"]) for row in rows)
    searched = sum(row["tier"] not in ("", "baseline") for row in rows)
    lines += ["", f"{len(rows)} graphs, {searched} with a searched plan; {runs} runs, {len(wrong)} wrong; {left_out} graphs left out for lack of time.", ""] + \
        [f"- {what}" for what in wrong]
    if options.out:
        with open(options.out, "w") as out:
            out.write("\n".join(lines) + "\n")
    summary = lines[-len(wrong) - 2:] if wrong else lines[-2:]
    print("\n".join(summary))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
