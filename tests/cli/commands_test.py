#!/usr/bin/env python3
"""Every command of the table: each of its options does something, --json is one JSON object whether it succeeds or fails, what is wrong is said with an
exit code, and an interrupt ends it at once, leaves no half file, and leaves the daemon well. A command or an option without a row here fails."""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from box import BUILD, EXAMPLES, SOURCE, Box

COMMON = {"socket", "no-start", "timeout", "json", "help"}
# Options of several commands that say what a search may find: they are part of a plan's key.
CONSTRAINTS = {"griddims": "4,1,1", "blockdims": "64,1,1", "imaps": "0,-1,-1", "omaps": "0,-1,-1", "fmaps": "1", "franges": "16"}
SMALL = "graph small\nin x: f32[8, 16]\nin w: f32[16, 8]\nz = matmul(x, w)\nout z\n"
MUGRAPH = SOURCE / "tests/golden/mugraph/gqa_b1-cluster.qmu"
GQA = EXAMPLES / "gqa_b1.qg"
SCHEDULE = "kernel warps=[1, 1, 2] stages=2\n"
DEVICE = "NVIDIA H200, driver 580.1"


class Row:
    """How a command is tried. `base`: operands and options with which it works, and its exit code. `options`: for each option its value, or "" for a flag, and
    what is looked at in the JSON of base + option (or in its text). `bad`: operands that it must refuse, with the exit code. `slow`: with what it is
    interrupted, if not `base`; "FIFO" is a file that never comes."""

    def __init__(self, base, options=None, code=0, bad=None, slow=None, makes=None):
        self.base, self.code, self.options, self.bad, self.slow, self.makes = base, code, options or {}, bad, slow, makes


def constrained(field):
    """The plan of a constrained request has another key."""
    return {name: (value, lambda plain, given: field(plain) != field(given)) for name, value in CONSTRAINTS.items()}


def text_has(*marks):
    return lambda _, given: all(mark in given["text"] for mark in marks)


def rows(box):
    key, name = box.key, lambda given: given["key"]
    one = lambda given: given["plans"][0]  # noqa: E731
    file = lambda name: (lambda _, __: (box.path / name).stat().st_size > 0)  # noqa: E731
    return {
        "get": Row([box.graph, "-t", "sm_90a"], {
            "target": ("sm_80", lambda plain, given: given["plan"]["target"] == "sm_80"),
            "output": ("o.cubin", file("o.cubin")), "launches": ("o.json", file("o.json")),
            "no-wait": ("", lambda _, given: given["key"] == key), "no-compile": ("", lambda _, given: given["origin"] == "hit"),
            "wait-tier": ("measured", lambda _, given: given["plan"]["tier"] == "measured"), "tf32": ("", lambda _, given: given["key"] != key),
            "priority": ("9", lambda _, given: given["key"] == key), **constrained(name)},
            bad=(["/nonexistent.qg", "-t", "sm_90a"], 1)),
        "run": Row([box.small], {
            "target": ("sm_80", lambda _, given: given["target"] == "sm_80"), "seed": ("5", lambda _, given: given["seed"] == 5),
            "inputs": ("huge", lambda _, given: given["outputs"][0]["inputs"] == "huge"), "gpu": ("", 5),
            "emulate": ("", lambda _, given: given["device"] == "emulator"),
            "shrink": ("4", lambda _, given: max(given["outputs"][0]["shape"]) <= 4), "full": ("", lambda _, given: given["outputs"][0]["shape"] == [8, 8]),
            "tf32": ("", lambda _, given: given["acceptable"])},
            bad=(["/nonexistent.qg"], 1), slow=["FIFO"]),
        "prewarm": Row([box.graph, "-t", "sm_90a"], {
            "target": ("sm_86", lambda plain, given: len(given["plans"]) > len(plain["plans"])),
            "manifest": ("one.manifest", lambda plain, given: len(given["plans"]) > len(plain["plans"])),
            "wait-tier": ("baseline", lambda _, given: given["failed"] == 0), "tf32": ("", lambda _, given: given["failed"] == 0),
            "priority": ("9", lambda _, given: given["failed"] == 0),
            **{name: (value, lambda _, given: given["failed"] == 0) for name, value in CONSTRAINTS.items()}},
            bad=(["/nonexistent"], 2)),
        "tune": Row([box.graph, "-t", "sm_90a"], {
            "all": (None, None), "budget": ("10s", lambda _, given: given["plans"]),
            "device": ("0", lambda _, given: one(given)["device"] == DEVICE), "target": ("sm_90a", lambda _, given: one(given)["key"] == key),
            "tf32": ("", lambda _, given: one(given)["key"] != key), **constrained(lambda given: one(given)["key"])},
            bad=(["/nonexistent.qg", "-t", "sm_90a"], 1)),
        "ls": Row([], {
            "target": ("sm_86", lambda plain, given: {row["target"] for row in given["plans"]} == {"sm_86"}),
            "tier": ("measured", lambda plain, given: {row["tier"] for row in given["plans"]} == {"measured"}),
            "limit": ("1", lambda _, given: len(given["plans"]) == 1 and given["more"]),
            "after": (key, lambda _, given: all(row["key"] > key for row in given["plans"]))}, bad=(["x"], 2)),
        "show": Row([key], {
            "graph": ("", text_has("graph ")), "dot": ("", text_has("digraph")), "plan": ("", text_has("input 0")), "launches": ("", text_has("KERNEL")),
            "certificate": ("", text_has(":")), "cuda": ("", 1), "sass": ("", None), "mugraph": ("", text_has("the muGraph")),
            "schedule": ("", text_has("schedule")), "report": ("", text_has("\n")), "timings": ("", text_has(DEVICE)), "key": ("", text_has("target, 6 bytes")),
            "cubin": ("s.cubin", file("s.cubin"))}, bad=(["0" * 32], 1)),
        "explain": Row([box.graph, "-t", "sm_90a"], {
            "target": ("sm_89", lambda plain, given: given["key"] != plain["key"]), "tf32": ("", lambda plain, given: given["key"] != plain["key"]),
            "key": ("", text_has("target, 6 bytes")), "diff": (key, lambda _, given: given["same"]), **constrained(name)},
            bad=(["/nonexistent.qg", "-t", "sm_90a"], 1)),
        "report": Row([box.path / "r.html"], bad=(["/nonexistent/r.html"], 5), makes="r.html"),
        "rm": Row([box.other], {"all": (None, text_has(" plans removed\n"))}, code=None, bad=(["0" * 8], 1)),
        "gc": Row(["--unused", "9d", "--dry-run"], {
            "unused": ("30d", lambda _, given: given["chosen"] == 0), "keep-mib": ("100", lambda _, given: given["chosen"] == 0),
            "target": ("sm_80", lambda _, given: given["chosen"] == 0), "tier": ("baseline", lambda _, given: given["chosen"] == 0),
            "dry-run": ("", lambda _, given: given["removed"] == 0)}, bad=([], 2)),
        "pin": Row([key], bad=(["0" * 8], 1)),
        "unpin": Row([key], bad=(["0" * 8], 1)),
        "export": Row([box.path / "p.pack"], {
            "target": ("sm_80", lambda plain, given: given["plans"] < plain["plans"]), "tier": ("measured", lambda plain, given: given["plans"] < plain["plans"]),
            "graph": ("small", lambda plain, given: 0 < given["plans"] < plain["plans"]),
            "used-within": ("1h", lambda plain, given: given["plans"] == plain["plans"]),
            "key-file": ("own.key", lambda plain, given: given["public_key"] != plain["public_key"])},
            bad=(["/nonexistent/p.pack"], 5), makes="p.pack"),
        "import": Row([box.pack], {
            "trust": ("ab" * 32, lambda _, given: given["plans"] > 0), "key-file": ("stranger.key", 3), "dry-run": ("", lambda _, given: given["stored"] == 0)},
            bad=(["/nonexistent.pack"], 1)),
        "stats": Row([], {"model": ("0", lambda plain, given: given["counters"]), "prometheus": ("", "# TYPE quern_")}, bad=(["x"], 2)),
        "top": Row(["--every", "100ms"], {"every": ("200ms", lambda _, given: given), "count": ("1", lambda _, given: given)}, bad=(["x"], 2),
                   slow=["--every", "50ms", "--count", "1000"]),
        "verify": Row([], {"quick": ("", lambda plain, given: given["checked"] == plain["checked"])}, code=None, bad=(["x"], 2)),
        "verify-mugraph": Row([GQA, MUGRAPH], {
            "certificate": ("", lambda _, given: given["mugraphs"][0]["certificate"]), "schedule": ("one.sched", lambda _, given: given["mugraphs"]),
            "trials": ("3", lambda _, given: given["mugraphs"]), "seed": ("7", lambda _, given: given["mugraphs"]),
            "no-samples": ("", lambda _, given: given["mugraphs"]), "print": ("", text_has("mugraph ")), "dot": ("", text_has("digraph"))},
            bad=([GQA, "/nonexistent.qmu"], 1), slow=["FIFO", MUGRAPH]),
        "search": Row([box.small, "--limit", "10", "--bound", "4"], {
            "target": ("sm_80", lambda _, given: given), "limit": ("9", lambda _, given: given), "bound": ("3", lambda _, given: given),
            "kernels": ("1", lambda _, given: given), "results": ("1", lambda _, given: len(given["mugraphs"]) == 1), "threads": ("1", lambda _, given: given),
            "seed": ("9", lambda _, given: given), "oracle": ("lookup", lambda _, given: given), "explain": ("", text_has("greedy")),
            "tf32": ("", lambda _, given: given), "all": ("", text_has("mugraph ")), "dot": ("", text_has("digraph")),
            "state": ("o.state", lambda _, __: (box.path / "o.state").exists()), "resume": ("o.state", None),
            **{name: (value, None) for name, value in CONSTRAINTS.items()}},
            bad=(["/nonexistent.qg"], 1), slow=["FIFO"]),
        "emit": Row([GQA, MUGRAPH, "-t", "sm_90a"], {
            "schedule": ("one.sched", lambda plain, given: given["cuda"] != plain["cuda"]), "target": ("sm_100a", lambda plain, given: given),
            "ir": ("", text_has("kernel q0_block: ")), "passes": ("", text_has("==== lowered")), "launches": ("", text_has("BLOCK")),
            "prove": ("", text_has("proved in"))}, bad=([GQA, "/nonexistent.qmu", "-t", "sm_90a"], 1), slow=["FIFO", "-t", "sm_90a"]),
        "doctor": Row([], code=None, bad=(["x"], 2)),
        "reload": Row([], bad=(["x"], 2)),
        "stop": Row([], bad=(["x"], 2)),
        "version": Row([], bad=(["x"], 2)),
        "help": Row(["get"], {"markdown": (["ops", "--markdown"], text_has("| "))}, bad=(["gett"], 2)),
    }


class Stopped:
    """The daemon of a box stands still."""

    def __init__(self, box):
        self.pid = int(box.json("stats")["facts"]["pid"])

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


class Commands(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.box = box = Box(QUERN_WORKER=os.environ["FAKE_WORKER"])
        box.env["QUERN_FAKE_DIR"] = str(box.path / "fake")
        (box.path / "fake").mkdir()
        for name, text in {"search_finds": "1", "search_lists": "1", "gpu": DEVICE}.items():
            (box.path / "fake" / name).write_text(text)
        box.graph, box.small = EXAMPLES / "ntrans_b1.qg", box.write("small.qg", SMALL)
        box.write("one.manifest", f"{box.graph} sm_89\n")
        box.write("one.sched", SCHEDULE)
        os.mkfifo(box.path / "fifo")
        cls.wait_for(lambda: box.json("stats")["facts"].get("gpu 0", "starting") != "starting")
        box.key = box.json("tune", box.graph, "-t", "sm_90a")["plans"][0]["key"]
        box.other = box.json("get", box.small, "-t", "sm_86")["key"]
        box.pack = box.path / "all.pack"
        box.run("export", box.pack)
        cls.table = {command["name"]: command for command in box.json("help")["commands"]}
        cls.rows = rows(box)

    @classmethod
    def tearDownClass(cls):
        cls.box.close()

    @classmethod
    def wait_for(cls, condition):
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, "it does not happen"
            time.sleep(0.02)

    def options(self, command):
        return {option["name"]: option for option in self.table[command]["options"] if option["name"] not in COMMON}

    def asks_daemon(self, command):
        return any(option["name"] == "socket" for option in self.table[command]["options"])

    def refused(self, words, code):
        """As text and as JSON: nothing on standard output but the object."""
        text, said = self.box.run(*words, code=code), self.box.json(*words, code=code)
        self.assertTrue(text.stderr.startswith("quern: "), f"{words}: {text.stderr}")
        self.assertTrue(said["error"]["message"] and said["error"]["code"], words)
        return said["error"]

    def test_every_command_and_option_has_a_row(self):
        self.assertEqual(set(self.rows), set(self.table))
        for command, row in self.rows.items():
            self.assertEqual(set(row.options), set(self.options(command)), command)

    def test_with_each_option(self):
        last = ["rm", "stop"]  # what they end others need
        for command in sorted(self.rows, key=lambda name: last.index(name) if name in last else -1):
            row = self.rows[command]
            base = [command, *row.base]
            self.box.run(*base, code=row.code)
            plain = self.box.json(*base, code=row.code)
            for name, (value, expected) in row.options.items():
                words = [command, f"--{name}"] if value is None else [command, *value] if isinstance(value, list) else [*base, f"--{name}", *([value] if value else [])]
                with self.subTest(" ".join(map(str, words))):
                    if isinstance(expected, int):
                        self.refused(words, expected)
                        continue
                    if isinstance(expected, str):  # no JSON
                        self.assertIn(expected, self.box.run(*words).stdout)
                        self.assertIn("exclude", self.box.json(*words, code=2)["error"]["message"])
                        continue
                    anyhow = expected is None
                    done = self.box.run(*words, code=None if anyhow else row.code)
                    given = json.loads(self.box.run(*words, "--json", code=None).stdout)
                    if anyhow:
                        self.assertIn(done.returncode, (0, 1, 5), done.stderr)
                    else:
                        self.assertNotIn("error", given)
                        self.assertTrue(expected(plain, dict(given, text=done.stdout)), given)

    def test_values_that_make_no_sense(self):
        for command, row in self.rows.items():
            for name, option in self.options(command).items():
                if not option["value"] or option["value"] in ("FILE", "NAME", "FILE|KEY"):
                    continue
                with self.subTest(f"{command} --{name}"):
                    error = self.refused([command, *row.base, f"--{name}", "!?"], None)
                    self.assertIn("!?", error["message"])

    def test_slips(self):
        for command, row in self.rows.items():
            with self.subTest(command):
                self.assertIn("--nonsense", self.refused([command, *row.base, "--nonsense"], 2)["message"])
                operands, code = row.bad
                self.refused([command, *operands], code)

    def test_without_a_daemon(self):
        for command, row in self.rows.items():
            if self.asks_daemon(command) and command not in ("doctor", "stop", "run"):
                with self.subTest(command):
                    error = self.refused([command, *row.base, "--no-start", "--socket", self.box.path / "none"], 3)
                    self.assertEqual(error["code"], "NO_DAEMON")

    def slow(self, command):
        row = self.rows[command]
        return [command, *(str(word).replace("FIFO", str(self.box.path / "fifo")) for word in (row.slow or row.base))]

    def test_a_daemon_that_does_not_answer(self):
        with Stopped(self.box):
            started = {}
            for command, row in self.rows.items():
                if self.asks_daemon(command) and "FIFO" not in (row.slow or []) and command != "doctor":
                    for form in ([], ["--json"]):
                        started[(command, bool(form))] = self.start([*self.slow(command), "--timeout", "1", *form])
            for (command, is_json), process in started.items():
                with self.subTest(command):
                    out, said = process.communicate(timeout=10)
                    self.assertNotEqual(process.returncode, 0)
                    if is_json:
                        self.assertEqual(json.loads(out)["error"]["code"], "TIMEOUT")
                    else:
                        self.assertTrue(said.startswith("quern: "), said)
        self.assert_nothing_goes_on()

    def test_an_interrupt(self):
        before = self.box.json("stats")["counters"]["plans"]
        with Stopped(self.box):
            for command, row in self.rows.items():
                if command in ("version", "help"):
                    continue  # they wait for nothing
                for form in ([], ["--json"]):
                    with self.subTest(" ".join([command, *form])):
                        if row.makes:
                            (self.box.path / row.makes).unlink(missing_ok=True)
                        self.interrupt([*self.slow(command), *form])
                        if row.makes:
                            self.assertEqual(list(self.box.path.glob(row.makes + "*")), [])
        self.assert_nothing_goes_on()
        self.assertEqual(self.box.json("stats")["counters"]["plans"], before)

    def assert_nothing_goes_on(self):
        self.wait_for(lambda: self.box.json("stats")["counters"]["clients"] == 1)
        after = self.box.json("stats")["counters"]
        self.assertEqual([after[name] for name in ("jobs_queued", "measures_queued", "requests_open")], [0, 0, 1])

    def start(self, words):
        return subprocess.Popen([BUILD / "tools/quern", *words], env=self.box.env, cwd=self.box.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def interrupt(self, words):
        process = self.start(words)
        time.sleep(0.15)
        self.assertIsNone(process.poll(), f"{words} did not wait: {process.communicate() if process.poll() is not None else ''}")
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=5)
        self.assertIn(process.returncode, (-signal.SIGINT, 5), f"{words}: {out}{said}")
        if process.returncode == 5 and words[-1] == "--json":
            json.loads(out)


if __name__ == "__main__":
    unittest.main()
