#!/usr/bin/env python3
"""Measuring jobs with planted faults on a GPU, and a daemon beside them that must serve as always.

usage: faults.py [--bundle DIR] [--jobs N] [--parallel P] [--minutes M]

Needs a bundle (tools/dev bundle) and a GPU. While measure_graphs --faults has the GPU hang, fault and err, a daemon on the same GPU is
asked for plans that it has, for plans that it has not, and its plans are run and compared with a reference; behind it a graph is tuned.
Prints two tables in Markdown, and exits with 1 if anything faulty was published or anything of this failed."""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

import bundle as bundles


class Tally:
    """How often something was done, how often it failed, and how long it took."""

    def __init__(self, name):
        self.name, self.ms, self.failures = name, [], []

    def do(self, work):
        began = time.perf_counter()
        try:
            work()
            self.ms.append(1e3 * (time.perf_counter() - began))
        except Exception as problem:  # whatever it is, it is a finding
            self.failures.append(str(problem).strip().split("\n")[-1])

    def row(self):
        ms = sorted(self.ms) or [float("nan")]
        return f"| {self.name} | {len(self.ms) + len(self.failures)} | {len(self.failures)} | {ms[len(ms) // 2]:.1f} | {ms[-1]:.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--parallel", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=5)
    options = parser.parse_args()
    bundle = os.path.abspath(options.bundle)
    scratch = tempfile.mkdtemp(prefix="quern-faults-")
    os.environ["QUERN_SEARCHERS"] = "1"  # the processors are for the faults
    quern = bundles.use(bundle, scratch)
    subprocess.run([f"{bundle}/tests/gpu/random_graphs", scratch, "2000"], check=True, stdout=subprocess.DEVNULL)
    new = iter(sorted(glob.glob(f"{scratch}/*.qg")))
    known = f"{bundle}/examples/ntrans_b1.qg"

    def command(*words):
        done = subprocess.run([f"{bundle}/bin/quern", *words, "--json"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"quern {words[0]}: exit {done.returncode}: {done.stdout} {done.stderr}")
        return json.loads(done.stdout)

    def parse(path):
        with open(path) as file:
            return quern.Graph.parse(file.read())

    client = quern.Client()
    client.get(parse(known))
    hits, misses, runs = Tally("plans that it has"), Tally("plans that it has not"), Tally("plans run and compared")
    campaign = subprocess.Popen([f"{bundle}/bin/measure_graphs", "--faults", str(options.jobs), "--parallel", str(options.parallel),
                                 "--minutes", str(options.minutes)])
    while campaign.poll() is None:
        for _ in range(5):
            # Of a client of its own, which has nothing in its table.
            hits.do(lambda: quern.Client().get(parse(known)))
            time.sleep(0.2)
        misses.do(lambda: client.get(parse(next(new))))
        runs.do(lambda: command("run", known, "--gpu"))
    tuned = Tally("plans tuned behind it")
    for name in ("lora_b1", "ntrans_b8"):
        def tune(name=name):
            plan, = command("tune", f"{bundle}/examples/{name}.qg", "--budget", "10s")["plans"]
            if plan.get("tier") != "measured":
                raise RuntimeError(f"{name} is not measured: {plan}")
            print(f"{name}: {plan['baseline_us']:.2f} -> {plan['best_us']:.2f} us")
        tuned.do(tune)
    tallies = (hits, misses, runs, tuned)
    print("\n| asked of the daemon | times | failed | median ms | longest ms |\n|---|---|---|---|---|")
    print("\n".join(tally.row() for tally in tallies))
    for tally in tallies:
        for failure in sorted(set(tally.failures)):
            print(f"{tally.name}: {tally.failures.count(failure)} times: {failure}")
    client.close()
    subprocess.run([f"{bundle}/bin/quern", "stop"], capture_output=True)
    return 1 if campaign.returncode or any(tally.failures or not tally.ms for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
