#!/usr/bin/env python3
"""A cache that is filled before it is used, and kept small: prewarm from files, folders and recorded manifests, gc, names, and what
operators watch."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from box import BUILD, SOURCE, Box, needs_compiler

CHAIN = "graph chain{0}\nin x: f32[{0}]\ny = exp(x)\nz = mul(y, 2.0)\nout z\n"

PROGRAM = """
import sys
import quern
with quern.Client() as client:
    for line in sys.argv[1:]:
        name, size, times = line.split(":")
        with quern.Graph(name) as graph:
            graph.output(graph.input("x", "f32", [int(size)]).exp() * 2.0)
            for _ in range(int(times)):
                try:
                    print(client.get(graph, "sm_90a").info.tier)
                except quern.QuernError as error:
                    print(error.status)
"""


@needs_compiler
class Warm(unittest.TestCase):
    def setUp(self):
        self.box = Box(QUERN_SEARCHERS="0")
        self.addCleanup(self.box.close)

    def program(self, *lines, **more):
        env = dict(self.box.env, PYTHONPATH=str(SOURCE / "bindings/python"), QUERN_LIBRARY=str(BUILD / "capi/libquern.so.0"),
                   QUERN_DAEMON=str(BUILD / "daemon/quernd"), **more)
        return subprocess.run([sys.executable, "-c", PROGRAM, *lines], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout.split()

    def test_folders_quotes_and_bad_files(self):
        folder = self.box.path / "my graphs"
        folder.mkdir()
        (folder / "a \"b\".qg").write_text(CHAIN.format(7))
        (folder / "c.qg").write_text("\ufeff" + CHAIN.format(8), encoding="utf-8")
        (folder / "bad.qg").write_text("graph bad\nout x\n")
        result = self.box.json("prewarm", folder, "-t", "sm_80", code=4)
        self.assertEqual((result["compiled"], result["failed"]), (2, 1))
        self.assertIn("bad.qg:2:5", next(row for row in result["plans"] if row["outcome"] == "failed")["error"]["message"])
        (folder / "list.manifest").write_text('"a \\"b\\".qg" sm_80 sm_90a\nc.qg sm_80 tf32 # a comment\n"c.qg sm_80\nc.qg sm_80 tf32\nnone.qg sm_80\nc.qg sm_1\n')
        result = self.box.json("prewarm", folder, code=2)
        self.assertEqual((result["hits"], result["compiled"], result["failed"]), (1, 2, 3))
        messages = [row["error"]["message"] for row in result["plans"] if row["outcome"] == "failed"]
        self.assertTrue(all(f"list.manifest:{n}: " in message for n, message in zip((3, 5, 6), messages)), messages)
        text = self.box.run("prewarm", folder, code=2).stdout
        self.assertRegex(text, r'(?m)^\S.*a "b"\.qg +sm_90a +baseline +hit$')
        self.assertRegex(text, r"(?m)^6 plans: 3 were there, 0 compiled, 3 failed; ")
        empty = self.box.path / "empty"
        empty.mkdir()
        self.assertIn("holds neither", self.box.run("prewarm", empty, code=1).stderr)

    def test_what_a_program_asks_for_is_recorded_and_warmed_elsewhere(self):
        records = self.box.path / "records"
        self.assertEqual(self.program("first:5:3", "second:6:1", QUERN_RECORD=str(records)), ["baseline"] * 4)
        manifest, = records.glob("asked-*.manifest")
        lines = manifest.read_text().splitlines()[1:]
        self.assertEqual(len(lines), 2)
        first = next(line for line in lines if line.startswith("first-"))
        self.assertRegex(first, r"^first-[0-9a-f]{12}\.qg sm_90a  # asked 3 times, baseline$")
        self.assertTrue((records / first.split()[0]).read_text().startswith("graph first\n"))
        self.box.run("rm", "--all")
        result = self.box.json("prewarm", records)
        self.assertEqual((result["compiled"], result["failed"]), (2, 0))
        self.assertEqual(self.box.json("prewarm", records)["hits"], 2)
        # In strict mode what is warm is served, and what is not is neither compiled nor forgotten.
        missing = self.box.path / "missing"
        self.assertEqual(self.program("first:5:2", "third:9:2", QUERN_STRICT=str(missing)), ["baseline"] * 2 + ["NOT_FOUND"] * 2)
        manifest, = missing.glob("missing-*.manifest")
        self.assertRegex(manifest.read_text(), r"(?m)\A#.*\nthird-[0-9a-f]{12}\.qg sm_90a  # asked 2 times, missing\n\Z")
        self.assertEqual(self.box.json("stats")["counters"]["plans"], 2)
        self.assertEqual(self.box.json("prewarm", missing)["compiled"], 1)
        self.assertEqual(self.program("third:9:1", QUERN_STRICT=str(missing)), ["baseline"])
        with self.assertRaises(subprocess.CalledProcessError):
            self.program("first:5:1", QUERN_RECORD="/proc/nowhere")

    def test_an_interrupt_drops_what_is_queued(self):
        graphs = self.box.path / "many"
        graphs.mkdir()
        for size in range(1, 61):
            (graphs / f"{size}.qg").write_text(CHAIN.format(size * 64))
        self.box.env["QUERN_WORKERS"] = "1"
        self.box.json("stats")  # starts the daemon
        process = subprocess.Popen([str(BUILD / "tools/quern"), "prewarm", str(graphs), "--json", "-t", "sm_80", "-t", "sm_90a"], env=self.box.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        while self.box.json("stats")["counters"]["jobs_queued"] == 0:
            self.assertIsNone(process.poll(), "it was too quick")
        process.send_signal(signal.SIGINT)
        result = json.loads(process.communicate()[0])
        self.assertEqual(process.returncode, 5)
        cancelled = [row for row in result["plans"] if row["outcome"] == "failed"]
        self.assertGreater(len(cancelled), 0)
        self.assertEqual({row["error"]["code"] for row in cancelled}, {"CANCELLED"})
        counters = self.box.json("stats")["counters"]
        self.assertEqual(counters["jobs_queued"], 0)
        self.assertLess(counters["plans"], 120)

    def test_names_are_listed(self):
        self.box.run("get", self.box.write("a.qg", "# a comment\n\n" + CHAIN.format(3)), "-t", "sm_90a")
        row, = self.box.json("ls")["plans"]
        self.assertEqual(row["name"], "chain3")
        self.assertRegex(self.box.run("ls").stdout, r"(?m)^[0-9a-f]{32} +chain3\(x\) +sm_90a ")

    def test_inputs_and_outputs_have_their_names(self):
        many = "".join(f"in input_{i}:f32[4] # in y: {i}\n" for i in range(6))
        text = f"# graph old\n\ngraph many\n{many}a = add(input_0, input_5)\n  b = exp(input_1)\nout a, b\n"
        got = self.box.json("get", self.box.write("many.qg", text), "-t", "sm_90a")
        shown, row = self.box.json("show", got["key"]), self.box.json("ls")["plans"][0]
        self.assertEqual((row["name"], row["inputs"], row["outputs"]), ("many", [f"input_{i}" for i in range(6)], ["a", "b"]))
        for plan in (got["plan"], shown["plan"]):
            self.assertEqual([tensor["name"] for tensor in plan["inputs"] + plan["outputs"]], row["inputs"] + row["outputs"])
        self.assertEqual(shown["name"], "many")
        self.assertIn("input_0", self.box.run("show", got["key"], "--launches").stdout)
        self.assertIn(" many(input_0, input_1, input_2, input_3, ...) ", self.box.run("ls").stdout)
        # Another who names them otherwise has the same plan, under other names.
        other = self.box.json("get", self.box.write("other.qg", text.replace("input_", "x").replace("many", "other")), "-t", "sm_90a")
        self.assertEqual((other["key"], other["plan"]["inputs"][5]["name"]), (got["key"], "x5"))

    def test_pinned_plans_stay(self):
        graphs = [self.box.write(f"pin{size}.qg", f"graph pin{size}\nin x: f32[{size}]\ny = exp(x)\nout y\n") for size in (5, 6)]
        keys = [self.box.json("get", graph, "-t", "sm_90a")["key"] for graph in graphs]
        self.assertEqual(self.box.run("pin", keys[0][:12]).stdout, "1 plan pinned\n")
        self.assertEqual(self.box.json("pin", *keys), {"pinned": 2})
        self.assertEqual(self.box.json("unpin", keys[1]), {"unpinned": 1})
        rows = {row["key"]: row["pinned"] for row in self.box.json("ls")["plans"]}
        self.assertEqual((rows[keys[0]], rows[keys[1]]), (True, False))
        self.assertIn("baseline, pinned", self.box.run("ls").stdout)
        self.assertNotIn(keys[0], self.box.json("gc", "--keep-mib", "0")["keys"])
        self.assertEqual([row["key"] for row in self.box.json("ls")["plans"]], [keys[0]])
        self.box.run("pin", keys[1], code=None)
        self.assertEqual(self.box.json("pin", "0" * 32, code=1), {"pinned": 0})
        self.box.run("pin", code=2)
        self.box.run("rm", keys[0])
        self.box.run("get", graphs[0], "-t", "sm_90a")
        self.assertFalse(self.box.json("ls")["plans"][0]["pinned"])

    def test_gc(self):
        for size in (3, 4):
            self.box.run("get", self.box.write(f"{size}.qg", CHAIN.format(size)), "-t", "sm_90a")
            time.sleep(0.05)
        self.box.run("get", self.box.path / "3.qg", "-t", "sm_90a")
        self.box.run("gc", code=2)
        self.assertIn("12h or 30d", self.box.run("gc", "--unused", "soon", code=2).stderr)
        self.assertIn('not "best"', self.box.run("gc", "--unused", "1d", "--tier", "best", code=2).stderr)
        self.assertEqual(self.box.json("gc", "--unused", "1h")["removed"], 0)
        self.assertEqual(self.box.json("gc", "--keep-mib", "1")["removed"], 0)
        self.assertEqual(self.box.json("gc", "--keep-mib", "0", "--target", "sm_80")["chosen"], 0)
        dry = self.box.json("gc", "--keep-mib", "0", "--dry-run")
        self.assertEqual((dry["removed"], dry["chosen"]), (0, 2))
        self.assertEqual(len(self.box.json("ls")["plans"]), 2)
        time.sleep(1.2)
        self.box.run("get", self.box.path / "3.qg", "-t", "sm_90a")
        self.assertRegex(self.box.run("gc", "--unused", "1s").stdout, r"^1 plan removed, ")
        row, = self.box.json("ls")["plans"]
        self.assertEqual(row["name"], "chain3")

    def test_metrics_are_the_statistics(self):
        for _ in range(4):
            self.box.run("get", self.box.write("a.qg", CHAIN.format(3)), "-t", "sm_90a")
        text = self.box.run("stats", "--prometheus").stdout
        metrics = dict(re.findall(r"^quern_(\w+) (\d+)$", text, re.MULTILINE))
        counters = self.box.json("stats")["counters"]
        self.assertEqual(set(metrics) - {"hit_seconds_count", "miss_seconds_count"}, {name for name in counters if "_us_le_" not in name})
        self.assertIn('store="read-write"', text)
        self.assertRegex(text, r"(?m)^# TYPE quern_hits untyped$")
        for name, count in (("hit", 3), ("miss", 1)):
            buckets = [int(n) for n in re.findall(rf'(?m)^quern_{name}_seconds_bucket{{le="[^"]+"}} (\d+)$', text)]
            self.assertEqual(buckets, sorted(buckets))
            self.assertEqual((len(buckets), buckets[-1]), (12, count))
            self.assertRegex(text, rf"(?m)^quern_{name}_seconds_count {count}$")
            self.assertRegex(text, rf"(?m)^quern_{name}_seconds_sum 0\.\d*[1-9]\d*$")
        self.assertRegex(self.box.run("stats").stdout, r"(?m)^hit latency +p50 up to \S+ \ws, p99 up to \S+ \ws$")
        self.box.run("stats", "--prometheus", "--json", code=2)

    def test_top(self):
        self.box.run("get", self.box.write("a.qg", CHAIN.format(3)), "-t", "sm_90a")
        shown = self.box.json("top", "--every", "100ms")
        self.assertGreaterEqual(shown["seconds"], 0.1)
        self.assertEqual(shown["now"]["plans"], 1)
        self.assertGreater(shown["a_second"]["requests"], 0)  # this one's own
        text = self.box.run("top", "-e", "50ms", "-n", 2).stdout
        self.assertEqual(len(re.findall(r"(?m)^plans +1$", text)), 2)
        self.assertIn("takes a time", self.box.run("top", "--every", "x", code=2).stderr)

    def test_no_daemon_is_started_where_that_is_turned_off(self):
        self.box.env["QUERN_NO_START"] = "1"
        self.assertIn("QUERN_NO_START", self.box.run("ls", code=3).stderr)
        self.box.env["QUERN_NO_START"] = "0"
        self.box.run("ls")


if __name__ == "__main__":
    unittest.main()
