#!/usr/bin/env python3
"""Searched plans through the commands, with the real compiler: waiting for them, their parts, what was found, constraints."""
import subprocess
import unittest

from box import BUILD, EXAMPLES, Box, needs_compiler


@needs_compiler
class Searched(unittest.TestCase):
    """What the background search leaves behind, through the commands."""

    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.graph = EXAMPLES / "ntrans_b1.qg"
        cls.got = cls.box.json("get", cls.graph, "-t", "sm_90a", "--wait-tier", "modelled")
        cls.key = cls.got["key"]

    @classmethod
    def tearDownClass(cls):
        cls.box.close()

    def test_get_waits_for_the_tier(self):
        self.assertEqual(self.got["plan"]["tier"], "modelled")
        self.assertEqual(self.got["generation"], 2)
        done = self.box.run("get", self.graph, "-t", "sm_90a", "--wait-tier", "measured", code=1)
        self.assertIn("no plan of tier measured", done.stderr)
        warmed = self.box.json("prewarm", self.graph, "-t", "sm_90a", "-t", "sm_80", "--wait-tier", "modelled")
        self.assertEqual([plan["tier"] for plan in warmed["plans"]], ["modelled", "modelled"])
        self.assertEqual(warmed["below"], 0)

    def test_the_parts_of_a_searched_plan_make_it_again(self):
        parts = {part: self.box.run("show", self.key, "--" + part).stdout for part in ("graph", "mugraph", "schedule", "cuda")}
        files = {part: self.box.write("again." + part, text) for part, text in parts.items()}
        words = ["emit", files["graph"], files["mugraph"], "-s", files["schedule"], "-t", "sm_90a"]
        self.assertEqual(self.box.run(*words).stdout, parts["cuda"])
        self.assertEqual(self.box.json(*words)["plan"]["launches"], self.got["plan"]["launches"])
        judged = self.box.json("verify-mugraph", files["graph"], files["mugraph"], "--schedule", files["schedule"])["mugraphs"][0]
        self.assertEqual([judged[name] for name in ("verdict", "field", "arithmetic")], ["accepted"] * 3)
        self.assertIn("arithmetic: accepted\n", self.box.run("show", self.key, "--certificate").stdout)

    def test_the_certificate_is_made_again(self):
        certificate = self.box.run("show", self.key, "--certificate").stdout
        facts = dict(line.split(": ", 1) for line in certificate.splitlines())
        files = {part: self.box.write("certified." + part, self.box.run("show", self.key, "--" + part).stdout) for part in ("graph", "mugraph")}
        again, = self.box.json("verify-mugraph", files["graph"], files["mugraph"], "--seed", facts["seed"])["mugraphs"]
        self.assertEqual(again["verdict"], "accepted")
        for line in again["certificate"].splitlines():
            self.assertIn(line, certificate.splitlines())

    def test_show_and_explain_say_what_the_search_came_to(self):
        shown = self.box.json("show", self.key)
        self.assertTrue(shown["mugraph"].startswith("mugraph ") and shown["schedule"].startswith("kernel "))
        self.assertEqual(self.box.run("show", self.key, "--report").stdout, shown["report"])
        self.assertIn(shown["schedule"], self.box.run("show", self.key).stdout)
        explained = self.box.json("explain", self.graph, "-t", "sm_90a")
        self.assertEqual((explained["tier"], explained["search"]), ("modelled", "it made generation 2"))
        self.assertEqual(explained["report"], shown["report"])
        self.assertRegex(self.box.run("explain", self.graph, "-t", "sm_90a").stdout, r"(?m)^candidate \d+ .*: taken, ")

    def test_constraints_are_part_of_the_key(self):
        free = self.box.json("explain", self.graph, "-t", "sm_90a")
        options = ["--griddims", "7777", "--franges", "4", "--franges", "2"]
        constrained = self.box.json("get", self.graph, "-t", "sm_90a", *options)
        self.assertNotEqual(constrained["key"], free["key"])
        done = self.box.run("get", self.graph, "-t", "sm_90a", *options, "--wait-tier", "modelled", code=1)
        self.assertIn("within the constraints", done.stderr)
        self.assertIn("constraints  griddims 7777,1,1; franges 2 4\n", self.box.run("show", constrained["key"]).stdout)
        explained = self.box.json("explain", self.graph, "-t", "sm_90a", *options[4:], *options[:4])
        self.assertEqual((explained["key"], explained["tier"]), (constrained["key"], "baseline"))
        self.assertIn("within the constraints", explained["search"])
        for part in ("--mugraph", "--schedule"):
            self.assertIn("a baseline plan is made without search", self.box.run("show", constrained["key"], part, code=1).stderr)
        self.assertIn("__global__", self.box.run("show", constrained["key"], "--cuda").stdout)

    def test_tf32_is_for_who_allows_it(self):
        graph = self.box.write("layer.qg", "graph layer\nin x: f32[64, 512]\nin w: f32[512, 1024]\ny = matmul(x, w)\nz = silu(y)\nout z\n")
        keys = set()
        for options in ([], ["--tf32"]):
            got = self.box.json("get", graph, "-t", "sm_90a", "--wait-tier", "modelled", *options)
            keys.add(got["key"])
            schedule = self.box.run("show", got["key"], "--schedule").stdout
            self.assertEqual("tf32=1" in schedule, bool(options), schedule)
            self.assertEqual(self.box.json("show", got["key"])["tf32"], bool(options))
        self.assertEqual(len(keys), 2)

    def test_sass_comes_from_a_disassembler(self):
        tools = self.box.path / "tools"
        tools.mkdir()
        box_env = self.box.env
        try:
            self.box.env = dict(box_env, PATH=str(tools), CUDA_HOME="/nonexistent")
            self.assertIn("cuda-nvdisasm", self.box.run("show", self.key, "--sass", code=5).stderr)
            self.box.write("tools/cuobjdump", '#!/bin/sh\necho "$1"\nhead -c 4 "$2"\n')
            (tools / "cuobjdump").chmod(0o755)
            self.box.env = dict(box_env, PATH=f"{tools}:/usr/bin:/bin")
            self.assertEqual(self.box.run("show", self.key, "--sass").stdout, "-sass\n\\x7fELF\n")  # shown, not sent to the terminal
            self.box.write("tools/nvdisasm", "#!/bin/sh\necho no such architecture >&2\nexit 1\n")
            (tools / "nvdisasm").chmod(0o755)
            self.assertIn("nvdisasm refused the cubin: no such architecture", self.box.run("show", self.key, "--sass", code=5).stderr)
        finally:
            self.box.env = box_env


@needs_compiler
class Tampered(unittest.TestCase):
    """quern verify where whole records hold what does not fit together."""

    def setUp(self):
        self.box = Box()
        self.key = self.box.json("get", EXAMPLES / "ntrans_b1.qg", "-t", "sm_90a", "--wait-tier", "modelled")["key"]
        self.box.json("get", EXAMPLES / "ntrans_b1.qg", "-t", "sm_80")

    def tearDown(self):
        self.box.close()

    def test_verify_names_the_plan_and_what_does_not_hold(self):
        whole = self.box.json("verify")
        self.assertEqual((whole["damaged"], whole["faults"]), (0, []))
        self.assertEqual((whole["plans"], whole["certificates"]), (2, 2))
        self.assertIn("2 certificates checked, 0 disagreements", self.box.run("verify", "--quick").stdout)
        for part, what in {"mugraph": "mugraph hash is", "schedule": "schedule hash is", "cuda": "cuda hash is",
                           "certificate": "seeds of trials is"}.items():
            with self.subTest(part):
                self.box.json("stop")
                subprocess.run([BUILD / "tests/cli/tamper", self.box.cache, self.key, part], check=True)
                found = self.box.json("verify", code=1)
                self.assertEqual(found["damaged"], 0)
                self.assertEqual({fault["key"] for fault in found["faults"]}, {self.key})
                self.assertTrue(any(fault["what"].startswith(what) for fault in found["faults"]), found)
                self.assertIn(self.key + ": " + what, self.box.run("verify", code=1).stdout)
                quick = self.box.json("verify", "--quick", code=0 if part == "certificate" else 1)
                self.assertEqual(bool(quick["faults"]), part != "certificate")
                self.box.run("rm", self.key)
                self.box.json("get", EXAMPLES / "ntrans_b1.qg", "-t", "sm_90a", "--wait-tier", "modelled")


if __name__ == "__main__":
    unittest.main()
