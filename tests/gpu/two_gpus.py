#!/usr/bin/env python3
"""Whether GPUs of one machine measure side by side, and find the same.

usage: two_gpus.py [--bundle DIR] [--budget TIME] [GRAPH.qg...]

Needs a bundle (tools/dev bundle) and a machine of several GPUs. The plans of the graphs (those of examples/, unless some are named) are
made first; then the daemon measures all of them on the first GPU, and all of them again on all GPUs. Prints what each way took, how often
each GPU was seen at work, and each graph's times; exits with 1 unless two GPUs were at work at once and took less time than one."""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import bundle as bundles


class Watch:
    """Which GPUs are at work, several times a second."""

    def __enter__(self):
        self.seen, self.over, self.began = [], False, time.monotonic()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.over:
            text = subprocess.run("nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits", shell=True, capture_output=True,
                                  text=True).stdout
            self.seen.append([int(line) > 0 for line in text.split() if line.isdigit()])
            time.sleep(0.2)

    def __exit__(self, *_):
        self.seconds, self.over = time.monotonic() - self.began, True
        self.thread.join()

    def row(self, name):
        both = sum(sum(busy) > 1 for busy in self.seen)
        of = [sum(column) for column in zip(*self.seen)]
        return f"| {name} | {self.seconds:.1f} | {len(self.seen)} | {', '.join(map(str, of))} | {both} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--budget", default="15s")
    parser.add_argument("graphs", nargs="*")
    options = parser.parse_args()
    bundle = os.path.abspath(options.bundle)
    bundles.use(bundle, tempfile.mkdtemp(prefix="quern-gpus-"))
    # Only what is asked for is measured.
    graphs = options.graphs or sorted(glob.glob(f"{bundle}/examples/*.qg"))

    def command(*words):
        done = subprocess.run([f"{bundle}/bin/quern", *words, "--json"], capture_output=True, text=True)
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            sys.exit(f"quern {words[0]}: exit {done.returncode}: {done.stdout}{done.stderr}")

    # Where no GPU is seen: nothing is measured meanwhile.
    with_gpus = os.environ.get("QUERN_LIBCUDA")
    os.environ["QUERN_LIBCUDA"] = "/nonexistent/libcuda.so"
    print(json.dumps(command("prewarm", *graphs, "--target", "sm_90a", "--wait-tier", "modelled", "--timeout", "300")))
    command("stop")
    del os.environ["QUERN_LIBCUDA"]
    if with_gpus:
        os.environ["QUERN_LIBCUDA"] = with_gpus

    gpus = []
    for _ in range(100):  # until the daemon has found them
        facts = command("stats")["facts"]
        gpus = [text for name, text in sorted(facts.items()) if name.startswith("gpu ") and not text.startswith("none")]
        if gpus and "starting" not in gpus:
            break
        time.sleep(0.2)
    print("\n".join(gpus))
    tuned, watches = [], []
    for more in (["--device", "0"], []):
        with Watch() as watch:
            plans = command("tune", "--all", "--budget", options.budget, *more)["plans"]
        tuned.append({plan["name"]: plan for plan in plans})
        watches.append(watch)
    print("\n| measured on | s | looks | at work, each GPU | more than one at work |\n|---|---|---|---|---|")
    print("\n".join(watch.row(name) for watch, name in zip(watches, ("the first GPU", "all GPUs"))))
    print("\n| plan | best us, the first GPU | best us, all GPUs | programs timed |\n|---|---|---|---|")
    good = len(gpus) > 1 and any(sum(busy) > 1 for busy in watches[1].seen) and watches[1].seconds < watches[0].seconds
    for name, alone in tuned[0].items():
        beside = tuned[1][name]
        good &= all(plan.get("tier") == "measured" for plan in (alone, beside))
        print(f"| {name} | {alone.get('best_us', alone)} | {beside.get('best_us', beside)} | {alone.get('timed')}, {beside.get('timed')} |")
    command("stop")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
