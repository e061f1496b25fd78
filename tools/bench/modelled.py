#!/usr/bin/env python3
"""How long the background takes from a graph to its modelled plan: modelled.py BUILD_FOLDER GRAPH.qg...

Starts a daemon with an empty cache of its own and asks it for one graph after another, as `quern get --wait-tier modelled` does.
Prints a table in Markdown: seconds that a client waits, processor seconds of the process that searches, what it did, and what the cost
model says of the baseline and of the plan, in microseconds. Exit code 1 if a plan is not modelled, or took longer than --limit.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import json

TICKS = os.sysconf("SC_CLK_TCK")


class Daemon:
    def __init__(self, build, folder):
        self.quern = build / "tools/quern"
        self.log = pathlib.Path(folder) / "log"
        self.env = dict(os.environ, QUERN_SOCKET=f"{folder}/s", QUERN_CACHE_DIR=f"{folder}/cache", QUERN_CONFIG="/dev/null",
                        QUERN_DAEMON=str(build / "daemon/quernd"), QUERN_LOG_FILE=str(self.log))
        self.pid = int(self.json("stats")["facts"]["pid"])

    def json(self, *arguments, check=True):
        """What the command prints; None if it failed and need not have done otherwise."""
        done = subprocess.run([self.quern, *arguments, "--json"], env=self.env, stdout=subprocess.PIPE, check=check)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def searcher_seconds(self):
        """Processor time of the workers at the lowest priority."""
        ticks = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it ended
            if int(fields[1]) == self.pid and int(fields[16]) == 19:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS

    def stop(self):
        subprocess.run([self.quern, "stop"], env=self.env, stdout=subprocess.DEVNULL)


def measure(daemon, graph, target):
    before, start = daemon.searcher_seconds(), time.monotonic()
    got = daemon.json("get", graph, "--target", target, "--wait-tier", "modelled", "--timeout", "120", check=False)
    seconds = time.monotonic() - start
    got = got or daemon.json("get", graph, "--target", target)  # the baseline stays
    row = {"graph": graph.stem, "tier": got["plan"]["tier"], "seconds": seconds, "cpu": daemon.searcher_seconds() - before}
    done = re.findall(rf"event=search_done key={got['key']} (.*)", daemon.log.read_text())[-1]
    for step in ("search", "emit", "compile"):
        row[step] = int(re.search(rf"\b{step}_us=(\d+)", done)[1]) / 1e6
    report = daemon.json("show", got["key"])["report"]
    row["candidates"] = int(re.search(r"search: (\d+) candidates", report)[1])
    compiled = re.search(r"programs compiled: (\d+), median ([\d.]+) ms, ([\d.]+) ms of processor time", report)
    row["programs"], row["nvrtc"], row["nvrtc_cpu"] = (float(text) for text in compiled.groups()) if compiled else (0, 0, 0)
    taken = re.search(r"\btaken, ([\d.]+) us", report)
    row["baseline"] = float(re.search(r"^baseline: ([\d.]+) us", report, re.MULTILINE)[1])
    row["plan"] = float(taken[1]) if taken else row["baseline"]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("graphs", type=pathlib.Path, nargs="+")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--limit", type=float, default=30, help="seconds (30)")
    options = parser.parse_args()
    print("| graph | tier | seconds | CPU seconds | search | emit | NVRTC | candidates | programs | ms each | CPU ms each | baseline us | plan us |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="quern-") as folder:
        daemon = Daemon(options.build.resolve(), folder)
        try:
            rows = []
            for graph in options.graphs:
                row = measure(daemon, graph, options.target)
                rows.append(row)
                print("| {graph} | {tier} | {seconds:.2f} | {cpu:.2f} | {search:.2f} | {emit:.2f} | {compile:.2f} | {candidates} | {programs:.0f} "
                      "| {nvrtc:.0f} | {nvrtc_cpu:.0f} | {baseline:.2f} | {plan:.2f} |".format(**row), flush=True)
        finally:
            daemon.stop()
    late = [row["graph"] for row in rows if row["seconds"] > options.limit or row["tier"] != "modelled"]
    print(f"\nMost: {max(row['seconds'] for row in rows):.2f} s, {max(row['cpu'] for row in rows):.2f} CPU seconds. NVRTC of a program, median "
          f"over graphs: {statistics.median(row['nvrtc'] for row in rows):.0f} ms, {statistics.median(row['nvrtc_cpu'] for row in rows):.0f} ms "
          f"of processor time." + (f" Late or not modelled: {', '.join(late)}." if late else ""))
    return 1 if late else 0


if __name__ == "__main__":
    raise SystemExit(main())
