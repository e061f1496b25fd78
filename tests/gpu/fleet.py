#!/usr/bin/env python3
"""Two daemons of one GPU, each with its own cache, that share a Redis server.

usage: fleet.py [--bundle DIR] [--redis PROGRAM] [--timeout SECONDS] [GRAPH.qg...]

Needs a bundle (tools/dev bundle), a GPU and redis-server. The first half of the graphs (two and two of examples/, unless
some are named) is asked on one daemon until it has measured them; the other one must then have each as a hit of tier measured, and nothing
to do for it. The second half is asked on both at once: together they compile, search and measure each graph once. Prints a table and one line
for each thing that must hold; exits with 1 if one does not."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

WORK = {"compiles": "jobs_done", "searches": "searches_done", "measurements": "measures_done"}


class Node:
    def __init__(self, bundle, scratch, name, timeout):
        self.name, self.program, self.timeout = name, f"{bundle}/bin/quern", timeout
        self.environment = {**os.environ, "QUERN_SOCKET": f"{scratch}/{name}.sock", "QUERN_CACHE_DIR": f"{scratch}/{name}",
                            "QUERN_DAEMON": f"{bundle}/bin/quernd", "QUERN_FLEET": f"unix:{scratch}/redis", "QUERN_FLEET_KEY": f"{scratch}/fleet.key",
                            "QUERN_FLEET_TRUST": f"{scratch}/none", "QUERN_SEARCHERS": "2", "QUERN_MEASURE": "always"}

    def begin(self, *words):
        return subprocess.Popen([self.program, *words, "--json"], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, process):
        out, problem = process.communicate(timeout=self.timeout + 30)
        if process.returncode:
            sys.exit(f"FAIL quern {process.args[1]} on {self.name}: exit {process.returncode}: {out}{problem}")
        return json.loads(out)

    def run(self, *words):
        return self.end(self.begin(*words))

    def prewarm(self, graphs):
        return self.begin("prewarm", *graphs, "--target", "sm_90a", "--wait-tier", "measured", "--timeout", str(self.timeout))

    def until(self, holds, seconds=None):
        over = time.monotonic() + (seconds or self.timeout)
        while not holds(self.run("stats")):
            if time.monotonic() > over:
                return False
            time.sleep(0.1)
        return True

    def rests(self):
        """A plan is published, and who waits for it is told, as soon as it is faster than what stood: the measuring goes on."""
        return self.until(lambda stats: not any(stats["counters"][f"{kind}_{state}"] for kind in ("jobs", "searches", "measures")
                                                for state in ("queued", "running")) and stats["counters"]["fleet_queued"] == 0)

    def work(self):
        counters = self.run("stats")["counters"]
        return {name: counters[counter] for name, counter in WORK.items()}


def gpu_of(stats):
    return stats["facts"].get("gpu 0", "starting")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--redis", default="redis-server")
    parser.add_argument("--timeout", type=int, default=60)
    parser.add_argument("graphs", nargs="*")
    options = parser.parse_args()
    bundle = os.path.abspath(options.bundle)
    graphs = options.graphs or [f"{bundle}/examples/{name}.qg" for name in ("ntrans_b1", "lora_b1", "ntrans_b8", "rmsnorm_b1")]
    apart, together = graphs[:len(graphs) // 2], graphs[len(graphs) // 2:]
    scratch = tempfile.mkdtemp(prefix="quern-fleet-")
    redis = subprocess.Popen([options.redis, "--port", "0", "--unixsocket", f"{scratch}/redis", "--save", "", "--appendonly", "no", "--dir", scratch],
                             stdout=subprocess.DEVNULL)
    nodes = [Node(bundle, scratch, name, options.timeout) for name in ("one", "two")]
    good = True

    def must(holds, what):
        nonlocal good
        good &= bool(holds)
        print(f"{'ok' if holds else 'FAIL'}: {what}", flush=True)

    def tiers(node, files):
        answers = [node.run("get", file, "--target", "sm_90a") for file in files]
        return [(answer["origin"], answer["plan"]["tier"]) for answer in answers]

    try:
        for node in nodes:
            up = node.until(lambda stats: stats["counters"]["fleet_up"] == 1 and gpu_of(stats) != "starting")
            must(up and not gpu_of(node.run("stats")).startswith("none"), f"{node.name} has its server and a GPU: {gpu_of(node.run('stats'))}")
        rows = []

        def note(what, began, before):
            now = [node.work() for node in nodes]
            done = [{name: after[name] - old[name] for name in WORK} for after, old in zip(now, before)]
            rows.append(f"| {what} | {time.monotonic() - began:.1f} | " + " | ".join(", ".join(str(each[name]) for each in done) for name in WORK) + " |")
            return done

        none = [dict.fromkeys(WORK, 0)] * 2
        began = time.monotonic()
        nodes[0].end(nodes[0].prewarm(apart))
        must(tiers(nodes[0], apart) == [("hit", "measured")] * len(apart), "what one daemon has measured are its hits of tier measured")
        must(nodes[0].rests(), "it has come to rest, and all of it is on the server")
        done = note(f"{len(apart)} graphs, on one only", began, none)
        must([done[0][name] for name in WORK] == [len(apart)] * 3, f"it compiled, searched and measured each once: {done[0]}")
        began, before = time.monotonic(), [node.work() for node in nodes]
        answers = tiers(nodes[1], apart)
        done = note("the same, on the other", began, before)
        must([tier for _, tier in answers] == ["measured"] * len(apart), f"the other daemon has them in tier measured at the first request: {answers}")
        must(tiers(nodes[1], apart) == [("hit", "measured")] * len(apart), "and as its own hits at the second")
        must(not any(done[1].values()), f"and did nothing for them: {done[1]}")
        began, before = time.monotonic(), [node.work() for node in nodes]
        for node, process in [(node, node.prewarm(together)) for node in nodes]:
            node.end(process)
        for node in nodes:
            got = [tier for _, tier in tiers(node, together)]
            must(got == ["measured"] * len(together), f"{node.name} has the graphs that both were asked for: {got}")
        must(all([node.rests() for node in nodes]), "both have come to rest")
        done = note(f"{len(together)} others, on both at once", began, before)
        for name in WORK:
            must(sum(each[name] for each in done) == len(together), f"{name} of both together: {[each[name] for each in done]}")
        for what in ("fleet_refused", "fleet_failures", "jobs_failed", "searches_failed", "measures_failed"):
            counted = [node.run("stats")["counters"][what] for node in nodes]
            must(not any(counted), f"{what}: {counted}")
        print(f"\n| asked | s | {' | '.join(f'{name}, each' for name in WORK)} |\n|---|---|---|---|---|\n" + "\n".join(rows))
    finally:
        for node in nodes:
            subprocess.run([node.program, "stop"], env=node.environment, capture_output=True)
        redis.terminate()
        redis.wait()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
