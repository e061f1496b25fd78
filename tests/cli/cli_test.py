#!/usr/bin/env python3
"""Drives quern, quernd and libquern as a user would: every subcommand, what it prints, its JSON and its exit codes."""
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import time
import unittest

from box import BUILD, EXAMPLES, SOURCE, Box, needs_compiler

SMALL = "graph small\nin x: f16[5, 33]\nin w: f16[33, 7]\ny = rms_norm(x)\nz = matmul(y, w)\ns = silu(z)\nout s\n"
CHAIN = "graph chain\nin x: f32[100]\ny = exp(x)\nz = mul(y, 2.0)\nout z\n"
WRONG = "graph wrong\nin x: f16[4, 8]\nin w: f16[9, 2]\nz = matmul(x, w)\nout z\n"


def without_names(plan):
    return dict(plan, **{kind: [dict(tensor, name="") for tensor in plan[kind]] for kind in ("inputs", "outputs")})


class CommandLine(unittest.TestCase):
    """What needs no daemon."""

    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.commands = re.findall(r"^  ([\w-]+) ", cls.box.run("help").stdout.split("exit codes:")[0], re.MULTILINE)

    @classmethod
    def tearDownClass(cls):
        cls.box.close()

    def test_the_overview_names_every_command(self):
        expected = "get run prewarm tune ls show explain report rm gc pin unpin export import stats top verify verify-mugraph search emit doctor reload stop version help".split()
        self.assertEqual(self.commands, expected)

    def test_every_command_explains_itself(self):
        for command in self.commands:
            text = self.box.run("help", command).stdout
            self.assertTrue(text.startswith(f"usage: quern {command}"), text)
            self.assertIn("--json", text)
            self.assertEqual(text, self.box.run(command, "--help").stdout)
            self.assertEqual(self.box.json("help", command)["text"], text)

    def test_no_command_prints_the_overview_as_an_error(self):
        self.assertIn("usage: quern COMMAND", self.box.run(code=2).stderr)

    def test_topics(self):
        self.assertIn("sm_90a", self.box.run("help", "targets").stdout)
        self.assertIn("QUERN_SOCKET", self.box.run("help", "environment").stdout)
        self.assertIn("rms_norm", self.box.run("help", "ops").stdout)
        self.assertEqual(len(self.box.run("help", "exit-codes").stdout.splitlines()), 7)
        self.assertIn("did you mean targets?", self.box.run("help", "target", code=2).stderr)
        self.box.run("help", "get", "--markdown", code=2)

    def test_version(self):
        self.assertRegex(self.box.run("version").stdout, r"^quern \d+\.\d+\.\d+, protocol version \d+\n$")
        self.assertEqual(self.box.run("--version").stdout, self.box.run("version").stdout)
        self.assertEqual(self.box.json("version")["protocol"], 1)

    def test_what_is_wrong_in_arithmetic_is_rejected(self):
        path = SOURCE / "tests/golden/wrong/var-E2"
        words = ["verify-mugraph", f"{path}.qg", f"{path}.qmu"]
        judged = self.box.json(*words, code=1)["mugraphs"][0]
        self.assertEqual([judged[name] for name in ("verdict", "field", "arithmetic")], ["rejected", "accepted", "rejected"])
        self.assertRegex(judged["reason"], r"^in arithmetic: class \w+, seed \d+: output 0 \[")
        self.assertIn(judged["reason"], self.box.run(*words, code=1).stdout)

    def test_slips_get_suggestions(self):
        for words, hint in [(["gte"], "did you mean get?"), (["prewram"], "did you mean prewarm?"), (["sho", "x"], "did you mean show?"),
                            (["get", "--targte", "x"], "did you mean --target?"), (["get", "x", "--target"], "needs a value"),
                            (["ls", "--json=1"], "takes no value"), (["get"], 'needs FILE'), (["ls", "x"], 'takes no operand "x"'),
                            (["get", "-x", "f"], "has no option -x"), (["--json", "ls"], "options stand behind the command")]:
            done = self.box.run(*words, code=2)
            self.assertIn(hint, done.stderr, words)
            self.assertEqual(done.stdout == "", "--json" not in words)

    def test_bad_values_are_named(self):
        graph = self.box.write("small.qg", SMALL)
        for words, hint in [(["ls", "--limit", "0"], "from 1 to"), (["ls", "--limit", "ten"], '"ten"'), (["ls", "--after", "zz"], '"zz"'),
                            (["get", graph, "--wait-tier", "best"], '"best"'), (["run", graph, "--gpu", "--emulate"], "exclude"),
                            (["rm"], "--all"), (["rm", "--all", "abcd"], "not both"), (["show", "x", "--graph", "--dot"], "one part"),
                            (["search", graph, "--griddims", "4,x"], 'griddims takes up to three numbers as "16,1,4", not "4,x"'),
                            (["search", graph, "--griddims", "0,1"], "griddims takes numbers from 1 on"),
                            (["get", graph, "-t", "sm_90a", "--franges", "many"], 'franges takes a number, not "many"'),
                            (["prewarm", graph, "-t", "sm_90a", "--omaps", "1,2,3,4"], "omaps takes"),
                            (["prewarm"], "name graph files"), (["get", graph], "no GPU")]:
            self.assertIn(hint, self.box.run(*words, code=2).stderr, words)

    def test_filters_that_nothing_could_pass(self):
        self.assertIn('not "best"', self.box.run("ls", "--tier", "best", code=2).stderr)
        self.assertIn('unknown target "sm_1"', self.box.run("ls", "-t", "sm_1", code=2).stderr)

    def test_escapes_are_shown_and_not_sent(self):
        done = self.box.run("get", "\x1b[31mred\x07\u009b.qg", "-t", "sm_90a", code=1)
        self.assertIn("\\x1b[31mred\\x07\\xc2\\x9b.qg: No such file", done.stderr)
        self.assertIn("\\x1b", self.box.run("\x1b]0;title", code=2).stderr)

    def test_errors_are_json_too(self):
        self.assertIn("did you mean get?", self.box.json("gte", code=2)["error"]["message"])
        self.assertEqual(json.loads(self.box.run("--json", "ls", code=2).stdout)["error"]["code"], "INVALID_ARGUMENT")
        error = self.box.json("get", "--nonsense", code=2)["error"]
        self.assertEqual(error["code"], "INVALID_ARGUMENT")
        self.assertIn("--nonsense", error["message"])

    def test_files_that_are_no_graphs(self):
        wrong = self.box.write("wrong.qg", WRONG)
        done = self.box.run("get", wrong, "-t", "sm_90a", code=4)
        self.assertIn("wrong.qg:4:5: ", done.stderr)
        self.assertIn("the inner extents differ: 8 and 9", done.stderr)
        self.assertEqual(self.box.json("get", wrong, "-t", "sm_90a", code=4)["error"]["code"], "INVALID_GRAPH")
        self.assertIn("No such file", self.box.run("get", "missing.qg", "-t", "sm_90a", code=1).stderr)
        self.assertIn("Is a directory", self.box.run("get", "/", "-t", "sm_90a", code=5).stderr)

    def test_a_muGraph_is_emitted(self):
        graph, mugraph = EXAMPLES / "gqa_b1.qg", SOURCE / "tests/golden/mugraph/gqa_b1-cluster.qmu"
        self.assertIn("q0_block", self.box.run("emit", graph, mugraph, "-t", "sm_90a").stdout)
        schedule = self.box.write("one.sched", "kernel warps=[1, 1, 2] stages=2\n")
        emitted = self.box.json("emit", graph, mugraph, "-t", "sm_90a", "-s", schedule)
        self.assertIn("__global__", emitted["cuda"])
        self.assertEqual(emitted["plan"]["launches"][0]["block"], [64, 1, 1])
        self.assertIn("BLOCK", self.box.run("emit", graph, mugraph, "-t", "sm_90a", "--launches").stdout)
        self.assertRegex(self.box.run("emit", graph, mugraph, "-t", "sm_90a", "--prove").stdout, r"q0_block: proved in [0-9.]+ s")
        ir = self.box.run("emit", graph, mugraph, "-t", "sm_90a", "--ir").stdout
        self.assertRegex(ir, r"(?m)^kernel q0_block: \d+ threads")
        self.assertNotIn("__global__", ir)
        passes = self.box.run("emit", graph, mugraph, "-t", "sm_90a", "-s", schedule, "--passes").stdout
        for mark in ["==== lowered", "---- order_steps", "---- stage_loads", "ring of 2 stages", "the loop"]:
            self.assertIn(mark, passes)
        self.assertRegex(self.box.run("emit", graph, "-t", "sm_90a", "--ir").stdout, r"(?m)^kernel q0_\w+: ")  # the baseline
        self.assertIn("schedule", self.box.run("emit", graph, "-t", "sm_90a", "-s", schedule, code=2).stderr)
        wrong = self.box.write("wrong.sched", "kernel tile=[3, 1, 16] tile_k=x\n")
        self.assertRegex(self.box.run("emit", graph, mugraph, "-t", "sm_90a", "-s", wrong, code=2).stderr, r"wrong\.sched:.*1")
        self.assertIn("gqa_b1.qg:2:1: ", self.box.run("emit", graph, graph, "-t", "sm_90a", code=4).stderr)
        self.assertIn("clusters of 8 blocks", self.box.run("emit", graph, mugraph, "-t", "sm_80", code=4).stderr)

    def test_without_a_daemon(self):
        for words in [["ls"], ["stats"], ["verify"], ["show", "0" * 32]]:
            done = self.box.run(*words, "--no-start", code=3)
            self.assertIn("no daemon listens", done.stderr)
        self.assertEqual(self.box.json("stop"), {"stopped": False})

    def test_a_daemon_that_cannot_be_started(self):
        box = Box(QUERN_DAEMON="/nonexistent/quernd")
        try:
            self.assertIn("/nonexistent/quernd", box.run("ls", code=3).stderr)
        finally:
            box.close()

    def test_operators_page_is_current(self):
        page = (SOURCE / "docs/OPERATORS.md").read_text()
        self.assertEqual(page, self.box.run("help", "ops", "--markdown").stdout, "run: quern help ops --markdown > docs/OPERATORS.md")

    def test_schedule_table_is_current(self):
        page = (SOURCE / "docs/mugraphs.md").read_text()
        self.assertIn(self.box.run("help", "schedule").stdout, page, "docs/mugraphs.md: take the table from quern help schedule")

    def test_readme_names_what_exists(self):
        readme = (SOURCE / "README.md").read_text()
        for line in re.findall(r"^\$ quern (\S+)", readme, re.MULTILINE):
            self.assertIn(line, self.commands)
        for command in self.commands:
            self.assertRegex(readme, rf"quern {command}\b")
        codes = [line.split(None, 1) for line in self.box.run("help", "exit-codes").stdout.splitlines()]
        for code, meaning in codes:
            self.assertIn(f"| {code} | {meaning} |", readme)
        self.assertIn((EXAMPLES / "hello.c").read_text(), readme, "README.md shows another hello.c than examples/")
        for path in re.findall(r"\]\(([^)#:]+)\)", readme):
            self.assertTrue((SOURCE / path).exists(), path)


class Emulated(unittest.TestCase):
    """quern run without a GPU: needs a C++ compiler and no daemon."""

    @classmethod
    def setUpClass(cls):
        cls.box = Box(QUERN_DAEMON="/nonexistent/quernd")

    @classmethod
    def tearDownClass(cls):
        cls.box.close()

    def test_a_graph_is_run_and_right(self):
        result = self.box.json("run", self.box.write("small.qg", SMALL), "--seed", 3)
        self.assertEqual((result["device"], result["target"], result["seed"]), ("emulator", "sm_90a", 3))
        self.assertFalse(result["shrunk"])
        self.assertEqual([(o["name"], o["dtype"], o["shape"]) for o in result["outputs"]], [("s", "f16", [5, 7])])
        self.assertTrue(result["acceptable"])
        self.assertTrue(0 < result["outputs"][0]["error"] <= result["outputs"][0]["bound"] < 0.05)

    def test_large_graphs_become_small_instances(self):
        done = self.box.run("run", EXAMPLES / "gqa_b16.qg", "--emulate", "--shrink", 32, "-t", "sm_80")
        self.assertIn("as a small instance", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^random +o +f16\[32, \d+, \d+\] +\S+ +\S+ +\S+ +ok$")
        self.assertNotIn("4096", done.stdout)

    def test_hostile_inputs(self):
        graph = self.box.write("small.qg", SMALL)
        result = self.box.json("run", graph, "--inputs", "huge")
        self.assertEqual([o["inputs"] for o in result["outputs"]], ["huge"])
        result = self.box.json("run", graph, "--inputs", "all")
        classes = [o["inputs"] for o in result["outputs"]]
        self.assertEqual((classes[0], len(classes)), ("random", 9))
        self.assertTrue(result["acceptable"])
        self.assertTrue(all(o["worst"] <= 1 for o in result["outputs"]))
        readme = (SOURCE / "README.md").read_text()
        for name in classes[1:]:
            self.assertIn(f"| `{name}` |", readme)
        self.assertIn("there are random, masked", self.box.run("run", graph, "--inputs", "friendly", code=2).stderr)

    def test_an_interrupt_leaves_no_folder(self):
        folder = self.box.path / "tmp"
        folder.mkdir()
        graph = self.box.write("wide.qg", SMALL.replace("5, 33", "64, 33"))
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([str(BUILD / "tools/quern"), "run", graph, "--emulate", "--inputs", "all"], start_new_session=True,
                                       env=dict(self.box.env, TMPDIR=str(folder)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(3000):
                if list(folder.glob("quern-emulator-*")) or process.poll() is not None:
                    break
                time.sleep(0.01)
            self.assertEqual(len(list(folder.glob("quern-emulator-*"))), 1)
            os.killpg(process.pid, number)
            self.assertEqual(process.wait(), -number)
            self.assertEqual(list(folder.glob("quern-emulator-*")), [])

    def test_no_gpu_is_said(self):
        self.assertIn("/nonexistent/libcuda.so", self.box.run("run", self.box.write("c.qg", CHAIN), "--gpu", code=5).stderr)


@needs_compiler
class Cached(unittest.TestCase):
    """The cache and its daemon, through the commands."""

    @classmethod
    def setUpClass(cls):
        cls.box = Box(QUERN_SEARCHERS="0")
        cls.small = cls.box.write("small.qg", SMALL)
        cls.chain = cls.box.write("chain.qg", CHAIN)
        cls.first = cls.box.json("get", cls.small, "-t", "sm_90a")
        cls.key = cls.first["key"]

    @classmethod
    def tearDownClass(cls):
        cls.box.close()

    def test_a_miss_then_hits(self):
        self.assertEqual((self.first["origin"], self.first["generation"], self.first["stored"]), ("compiled", 1, True))
        again = self.box.json("get", self.small, "-t", "sm_90a")
        self.assertEqual((again["key"], again["origin"]), (self.key, "hit"))
        self.assertEqual(again["plan"], self.first["plan"])
        self.assertLess(again["daemon_ns"], self.first["daemon_ns"])
        renamed = self.box.write("renamed.qg", SMALL.replace("x", "input").replace("# ", "#"))
        self.assertEqual(self.box.json("get", renamed, "-t", "sm_90a")["key"], self.key)
        text = self.box.run("get", self.small, "-t", "sm_90a").stdout
        self.assertRegex(text, rf"(?m)^key +{self.key}$")
        self.assertRegex(text, r"(?m)^answer +hit")
        self.assertRegex(text, r"(?m)^KERNEL +GRID +BLOCK")

    def test_standard_input_and_files(self):
        cubin, launches = self.box.path / "k.cubin", self.box.path / "k.json"
        done = self.box.run("get", "-", "-t", "sm_90a", "-o", cubin, "-l", launches, stdin=SMALL)
        self.assertIn(self.key, done.stdout)
        self.assertEqual(cubin.read_bytes()[:4], b"\x7fELF")
        self.assertEqual(json.loads(launches.read_text()), self.first["plan"])
        self.assertIn("No such file", self.box.run("get", self.small, "-t", "sm_90a", "-o", "/nonexistent/k", code=5).stderr)
        piped = self.box.run("get", self.small, "-t", "sm_90a", "-l", "-")
        self.assertEqual(json.loads(piped.stdout), self.first["plan"])
        self.assertIn(self.key, piped.stderr)
        raw = subprocess.run([str(BUILD / "tools/quern"), "show", self.key, "--cubin", "-"], env=self.box.env, stdout=subprocess.PIPE, check=True)
        self.assertEqual(raw.stdout, cubin.read_bytes())

    def test_flags_of_get(self):
        missing = self.box.write("missing.qg", CHAIN.replace("100", "101"))
        self.assertEqual(self.box.json("get", missing, "-t", "sm_80", "--no-compile", code=1)["error"]["code"], "NOT_FOUND")
        pending = self.box.json("get", missing, "-t", "sm_80", "--no-wait", code=6)
        self.assertTrue(pending["pending"] and pending["job"] in ("queued", "running"))
        self.assertEqual(self.box.json("get", missing, "-t", "sm_80")["key"], pending["key"])
        self.assertEqual(self.box.json("get", self.small, "-t", "sm_90a", "--wait-tier", "baseline")["key"], self.key)
        tf32 = self.box.json("explain", self.small, "-t", "sm_90a", "--tf32")
        self.assertNotEqual(tf32["key"], self.key)
        self.assertIn('unknown target "sm_1"', self.box.run("get", self.small, "-t", "sm_1", code=4).stderr)

    def test_ls_filters_and_pages(self):
        self.box.run("prewarm", self.chain, "-t", "sm_80", "-t", "sm_86")
        everything = self.box.json("ls")
        keys = [row["key"] for row in everything["plans"]]
        self.assertEqual(keys, sorted(keys))
        self.assertIn(self.key, keys)
        self.assertFalse(everything["more"])
        self.assertEqual({row["target"] for row in self.box.json("ls", "-t", "sm_86")["plans"]}, {"sm_86"})
        self.assertEqual(self.box.json("ls", "--tier", "measured")["plans"], [])
        page = self.box.json("ls", "-n", 1)
        self.assertEqual([row["key"] for row in page["plans"]], keys[:1])
        self.assertTrue(page["more"])
        self.assertEqual([row["key"] for row in self.box.json("ls", "--after", keys[0])["plans"]], keys[1:])
        text = self.box.run("ls", "-n", 1).stdout
        self.assertEqual(text.splitlines()[-1], f"more: quern ls --after {keys[0]}")

    def test_show_and_its_parts(self):
        shown = self.box.json("show", self.key)
        self.assertEqual(without_names(shown["plan"]), without_names(self.first["plan"]))  # other graphs with this plan have others
        self.assertIn("nvrtc", shown["toolchain"])
        prefix = self.key[:12]
        for part, expected in [("--graph", "rms_norm(i0, axis="), ("--dot", "digraph"), ("--key", "target, 6 bytes:\n  sm_90a\n"),
                               ("--plan", "input 0"), ("--launches", "KERNEL"), ("--cuda", "__global__")]:
            self.assertIn(expected, self.box.run("show", prefix, part).stdout, part)
            self.assertTrue(self.box.json("show", prefix, part), part)
        self.assertEqual(self.box.json("show", prefix, "--launches")["launches"], self.first["plan"]["launches"])
        self.assertEqual(self.box.json("show", prefix, "--certificate")["certificate"], self.first["plan"]["certificate"])
        cubin = self.box.path / "shown.cubin"
        self.box.run("show", prefix, "--cubin", cubin)
        self.assertEqual(cubin.stat().st_size, self.first["plan"]["cubin_bytes"])
        self.assertIn(self.key, self.box.run("show", prefix).stdout)

    def test_keys_that_are_none(self):
        absent = "0" * 8 if not self.key.startswith("0" * 8) else "f" * 8
        self.box.run("show", absent, code=1)
        self.box.run("show", absent * 4, code=1)
        self.assertEqual(self.box.json("show", "xyz", code=2)["error"]["code"], "INVALID_ARGUMENT")

    def test_explain(self):
        hit = self.box.json("explain", self.small, "-t", "sm_90a")
        self.assertEqual((hit["key"], hit["hit"], hit["tier"], hit["front_index"]), (self.key, True, "baseline", True))
        other = self.box.write("other.qg", SMALL.replace("33", "34"))
        miss = self.box.json("explain", other, "-t", "sm_90a")
        self.assertFalse(miss["hit"])
        self.assertTrue(miss["reason"])
        self.assertNotIn(miss["key"], [row["key"] for row in self.box.json("ls")["plans"]])
        text = self.box.run("explain", self.small, "-t", "sm_90a", "--key").stdout
        self.assertEqual(text, hit["key_text"])
        self.assertEqual(text, self.box.run("show", self.key, "--key").stdout)
        self.assertEqual(self.box.run("explain", self.small, "-t", "sm_90a", "--diff", self.key).stdout, "the keys are the same\n")
        diff = self.box.run("explain", self.small, "-t", "sm_90a", "--diff", other, code=1).stdout
        self.assertIn("-  in i0: f16[5, 33]\n", diff)
        self.assertIn("+  in i0: f16[5, 34]\n", diff)
        self.assertFalse(self.box.json("explain", self.key, "-t", "sm_90a", "--diff", other, code=1)["same"])

    def test_prewarm_manifest(self):
        self.box.write("a.qg", CHAIN.replace("100", "102"))
        manifest = self.box.write("list", "# what to warm\na.qg sm_80 sm_89\n\nchain.qg  # targets of the command line\n")
        result = self.box.json("prewarm", "-m", manifest, "-t", "sm_80")
        self.assertEqual([(pathlib.Path(p["file"]).name, p["target"]) for p in result["plans"]],
                         [("a.qg", "sm_80"), ("a.qg", "sm_89"), ("chain.qg", "sm_80")])
        self.assertEqual(result["failed"], 0)
        self.assertGreaterEqual(result["compiled"], 2)
        self.assertEqual(self.box.json("prewarm", "-m", manifest, "-t", "sm_80")["hits"], 3)
        self.assertRegex(self.box.run("prewarm", "-m", manifest, "-t", "sm_80").stdout, r"(?m)^3 plans: 3 were there, 0 compiled, 0 failed; ")
        self.assertIn("list:4", self.box.run("prewarm", "-m", manifest, code=2).stderr)

    def test_long_work_shows_a_bar_on_a_terminal_only(self):
        command = [str(BUILD / "tools/quern"), "prewarm", self.chain, "-t", "sm_80", "-t", "sm_86"]
        plain = subprocess.run(command, env=self.box.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        self.assertEqual(plain.stderr, b"")
        terminal, other_end = pty.openpty()
        subprocess.run(command, env=self.box.env, stdout=subprocess.DEVNULL, stderr=other_end, check=True)
        os.close(other_end)
        shown = b""
        try:
            while chunk := os.read(terminal, 65536):
                shown += chunk
        except OSError:  # how the end of a terminal shows
            pass
        shown = shown.decode()
        os.close(terminal)
        self.assertRegex(shown, r"prewarming \[[# ]{30}\] \d/2")
        self.assertTrue(shown.endswith("\r\x1b[K"), "the bar is wiped when the work is done")

    def test_stats(self):
        stats = self.box.json("stats")
        self.assertEqual(stats["facts"]["store"], "read-write")
        self.assertEqual(stats["facts"]["cache_dir"], str(self.box.cache))
        self.assertGreaterEqual(stats["counters"]["plans"], 1)
        self.assertRegex(self.box.run("stats").stdout, r"(?m)^hit rate +\d+ %$")

    def test_doctor_is_content(self):
        report = self.box.json("doctor")
        self.assertTrue(report["healthy"])
        findings = {finding["name"]: finding for finding in report["findings"]}
        for name in ["socket", "daemon program", "daemon", "store", "store write", "cache", "NVRTC", "open files"]:
            self.assertEqual(findings[name]["verdict"], "ok", findings[name])
        self.assertEqual(findings["GPU"]["verdict"], "warn")
        self.assertTrue(findings["GPU"]["fix"])
        self.assertRegex(self.box.run("doctor").stdout, r"(?m)^ok +cache ")


class Sick(unittest.TestCase):
    """Doctor and verify where something is wrong."""

    def setUp(self):
        self.box = Box()

    def tearDown(self):
        self.box.close()

    def test_doctor_names_the_socket_that_others_can_replace(self):
        open_directory = self.box.path / "open"
        open_directory.mkdir()
        open_directory.chmod(0o777)
        report = self.box.json("doctor", "--socket", open_directory / "q.sock", code=1)
        findings = {finding["name"]: finding for finding in report["findings"]}
        self.assertEqual(findings["socket"]["verdict"], "fail")
        self.assertIn("chmod 700", findings["socket"]["what"])
        self.assertEqual(findings["daemon"]["verdict"], "fail")

    def test_doctor_tells_of_a_file_that_was_damaged(self):
        self.box.json("stats")
        self.assertEqual(self.box.json("stop"), {"stopped": True})
        store = next(self.box.cache.glob("store-*.mdb"))
        os.truncate(store, 10000)
        for verdict in ["warn", "ok"]:
            done = subprocess.run([str(BUILD / "tools/quern"), "doctor", "--json"], env=self.box.env, stdout=subprocess.PIPE, text=True)
            findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
            self.assertEqual(findings["store"]["verdict"], "ok")
            self.assertEqual(findings["store write"]["verdict"], "ok")
            self.assertEqual(findings["store damage"]["verdict"], verdict)
            self.assertIn("the cache was rebuilt with", findings["store damage"]["what"])
            for aside in self.box.cache.glob("*.damaged-*"):
                aside.unlink()

    def test_doctor_compares_itself_with_the_daemon(self):
        pid = self.box.json("stats")["facts"]["pid"]
        self.assertTrue(pid)
        self.box.env["QUERN_CACHE_DIR"] = str(self.box.path / "elsewhere")
        findings = {finding["name"]: finding for finding in self.box.json("doctor", code=None)["findings"]}
        self.assertIn("elsewhere", findings["daemon's cache"]["what"])
        self.assertEqual(findings["daemon's cache"]["verdict"], "warn")
        self.assertEqual(findings["log"]["what"], str(self.box.cache / "quernd.log"))

    def test_a_relative_cache_directory_lies_where_it_was_named(self):
        self.box.env["QUERN_CACHE_DIR"] = "relcache"
        self.assertEqual(self.box.json("stats")["facts"]["cache_dir"], str(self.box.path / "relcache"))
        self.assertTrue((self.box.path / "relcache" / "quernd.log").exists())

    def test_doctor_without_compiler(self):
        self.box.env["QUERN_NVRTC"] = "/nonexistent/libnvrtc.so"
        report = self.box.json("doctor", code=1)
        findings = {finding["name"]: finding for finding in report["findings"]}
        self.assertEqual(findings["NVRTC"]["verdict"], "fail")
        self.assertIn("QUERN_NVRTC", findings["NVRTC"]["fix"])
        small = self.box.write("small.qg", SMALL)
        self.assertEqual(self.box.json("get", small, "-t", "sm_90a", code=5)["error"]["code"], "NO_COMPILER")

    @needs_compiler
    def test_verify_finds_damage_and_the_next_get_mends_it(self):
        small = self.box.write("small.qg", SMALL)
        first = self.box.json("get", small, "-t", "sm_90a")
        whole = self.box.json("verify")
        self.assertEqual(whole["damaged"], 0)
        self.assertGreater(whole["checked"], 0)
        self.assertIn(" 0 damaged", self.box.run("verify").stdout)
        self.assertEqual(self.box.json("stop"), {"stopped": True})
        store = next(self.box.cache.glob("store-*.mdb"))
        data = bytearray(store.read_bytes())
        at = data.index(b"\x7fELF") + 64
        data[at] ^= 0x10
        store.write_bytes(data)
        damaged = self.box.json("verify", code=1)
        self.assertEqual(damaged["damaged"], 1)
        self.assertIn(first["key"], damaged["problems"][0])
        again = self.box.json("get", small, "-t", "sm_90a")
        self.assertEqual((again["key"], again["origin"]), (first["key"], "compiled"))
        self.assertEqual(self.box.json("verify")["damaged"], 0)

    @needs_compiler
    def test_rm_and_stop(self):
        small, chain = self.box.write("small.qg", SMALL), self.box.write("chain.qg", CHAIN)
        key = self.box.json("get", small, "-t", "sm_90a")["key"]
        self.box.run("get", chain, "-t", "sm_90a")
        self.assertEqual(self.box.run("rm", key[:10]).stdout, "1 plan removed\n")
        self.box.run("show", key, code=1)
        self.assertEqual(self.box.json("rm", "--all"), {"removed": 1})
        self.assertEqual(self.box.json("ls")["plans"], [])
        pid = int(self.box.json("stats")["facts"]["pid"])
        self.assertEqual(self.box.run("stop").stdout, "the daemon has stopped\n")
        state = pathlib.Path(f"/proc/{pid}/stat")  # a zombie has ended; whose child it is may take it away later
        self.assertTrue(not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z")

    @needs_compiler
    def test_hello_links_with_pkg_config_alone(self):
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "quern"], stdout=subprocess.PIPE, text=True, check=True,
                               env=dict(os.environ, PKG_CONFIG_PATH=str(BUILD / "meson-uninstalled"))).stdout.split()
        hello = self.box.path / "hello"
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", str(EXAMPLES / "hello.c"), *flags, "-o", str(hello)], check=True)
        env = dict(self.box.env, LD_LIBRARY_PATH=str(BUILD / "capi"))
        answers = [subprocess.run([str(hello), self.box.write("small.qg", SMALL), "sm_90a"], env=env, stdout=subprocess.PIPE, text=True,
                                  check=True).stdout for _ in range(2)]
        self.assertRegex(answers[0], r"^miss: key [0-9a-f]{32}, \d+ kernels, \d+ bytes of code, \d+\.\d{3} ms in the daemon\n$")
        self.assertTrue(answers[1].startswith("hit: "), answers[1])


if __name__ == "__main__":
    unittest.main()
