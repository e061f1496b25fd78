#!/usr/bin/env python3
"""Packs: what one cache exports another imports, once, whole, and only from signers that it trusts."""
import unittest

from box import Box, needs_compiler

CHAIN = "graph chain{0}\nin x: f32[{0}]\ny = exp(x)\nz = mul(y, 2.0)\nout z\n"


@needs_compiler
class Packs(unittest.TestCase):
    def setUp(self):
        self.source, self.sink = Box(QUERN_SEARCHERS="0"), Box(QUERN_SEARCHERS="0")
        for box in (self.source, self.sink):
            self.addCleanup(box.close)
        self.graphs = [self.source.write(f"{size}.qg", CHAIN.format(size)) for size in (3, 4)]
        self.source.run("prewarm", *self.graphs, "-t", "sm_90a", "-t", "sm_80")
        self.pack = self.source.path / "plans.pack"
        self.exported = self.source.json("export", self.pack)
        self.signer = self.exported["public_key"]

    def test_what_was_exported_is_hit_elsewhere(self):
        self.assertEqual(self.exported["plans"], 4)
        result = self.sink.json("import", self.pack, "--trust", self.signer)
        self.assertEqual((result["plans"], result["stored"], result["kept"], result["other_toolchain"]), (4, 4, 0, 0))
        rows = self.sink.json("ls")["plans"]
        kept = ("key", "name", "inputs", "outputs", "target", "tier")
        self.assertEqual([[row[name] for name in kept] for row in rows],
                         [[row[name] for name in kept] for row in self.source.json("ls")["plans"]])
        self.assertEqual((rows[0]["inputs"], rows[0]["outputs"]), (["x"], ["z"]))
        for graph in self.graphs:
            here, there = (box.json("get", graph, "-t", "sm_90a", "--no-compile") for box in (self.sink, self.source))
            self.assertEqual((here["origin"], here["plan"]), ("hit", there["plan"]))
        self.assertEqual(self.sink.json("verify")["damaged"], 0)
        # Again, it changes nothing.
        result = self.sink.json("import", self.pack, "--trust", self.signer)
        self.assertEqual((result["stored"], result["kept"]), (0, 4))
        self.assertEqual(self.sink.json("ls")["plans"][0]["generation"], 1)
        self.assertIn("0 stored, 4 were there as good or better", self.sink.run("import", self.pack, "--trust", self.signer).stdout)
        # One's own packs are trusted.
        self.assertEqual(self.source.json("import", self.pack)["kept"], 4)

    def test_filters(self):
        some = self.source.path / "some.pack"
        key = self.source.json("ls")["plans"][0]["key"]
        for options, plans in [(["-t", "sm_80"], 2), (["--graph", "chain3"], 2), (["--graph", "chain3", "-t", "sm_80"], 1), (["--tier", "measured"], 0),
                               (["--used-within", "1h"], 4), ([key[:8]], 1)]:
            self.assertEqual(self.source.json("export", some, *options)["plans"], plans, options)
        self.source.run("export", some, "--tier", "best", code=2)
        self.source.run("export", some, "--used-within", "x", code=2)
        self.source.run("export", "/nonexistent/pack", code=5)

    def test_nothing_of_a_pack_that_was_changed_is_stored(self):
        whole = self.pack.read_bytes()
        trust = ["--trust", self.signer]
        changed = self.sink.path / "changed.pack"
        for at in (0, 5, 10, 50, 110, 400, len(whole) // 2, len(whole) - 1):
            data = bytearray(whole)
            data[at] ^= 1
            changed.write_bytes(data)
            error = self.sink.json("import", changed, *trust, code=None)["error"]
            self.assertIn(error["code"], {"CORRUPT", "PERMISSION", "UNSUPPORTED"}, at)
        for size in (0, 3, 103, 104, 116, len(whole) - 1):
            changed.write_bytes(whole[:size])
            self.assertEqual(self.sink.json("import", changed, *trust, code=1)["error"]["code"], "CORRUPT")
        changed.write_bytes(whole + b"x")
        self.assertIn("signature", self.sink.json("import", changed, *trust, code=1)["error"]["message"])
        self.assertEqual(self.sink.json("ls")["plans"], [])

    def test_signers_must_be_trusted(self):
        refused = self.sink.json("import", self.pack, code=3)["error"]
        self.assertEqual(refused["code"], "PERMISSION")
        self.assertIn(self.signer, refused["message"])
        self.assertEqual(self.sink.json("ls")["plans"], [])
        trusted = self.sink.path / ".config/quern/trusted-keys"
        trusted.parent.mkdir(parents=True)
        trusted.write_text(f"# machines that build\n{self.signer}  # the first\n")
        self.assertEqual(self.sink.json("import", self.pack, "--dry-run")["stored"], 0)
        self.assertEqual(self.sink.json("ls")["plans"], [])
        self.assertEqual(self.sink.json("import", self.pack)["stored"], 4)
        self.assertIn("neither a public key", self.sink.run("import", self.pack, "--trust", "abcd", code=2).stderr)
        trusted.write_text("abcd\n")
        self.assertIn('"abcd" is no public key', self.sink.run("import", self.pack, code=2).stderr)

    def test_the_key_is_private(self):
        key = self.source.path / ".config/quern/pack.key"
        self.assertEqual(key.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.source.json("export", self.pack)["public_key"], self.signer)
        key.chmod(0o666)
        self.assertEqual(self.source.json("export", self.pack, code=3)["error"]["code"], "PERMISSION")
        key.chmod(0o600)
        other = self.source.json("export", self.pack, "--key-file", self.source.path / "other.key")
        self.assertNotEqual(other["public_key"], self.signer)

    def test_a_better_plan_stays(self):
        self.sink.run("import", self.pack, "--trust", self.signer)
        key = self.sink.json("ls", "-t", "sm_90a")["plans"][0]["key"]
        self.sink.run("rm", key)
        again = self.sink.json("import", self.pack, "--trust", self.signer)
        self.assertEqual((again["stored"], again["kept"]), (1, 3))
        self.assertGreater(next(row for row in self.sink.json("ls")["plans"] if row["key"] == key)["generation"], 1)


if __name__ == "__main__":
    unittest.main()
