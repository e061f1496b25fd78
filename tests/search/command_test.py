#!/usr/bin/env python3
"""quern search: who prunes, exit codes and JSON. argv[1] is the program."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(os.environ.get("QUERN_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
QUERN = sys.argv.pop(1)


def search(graph, *arguments):
    return subprocess.run([QUERN, "search", ROOT / "examples" / f"{graph}.qg", *arguments], capture_output=True, text=True,
                          check=False)


class Search(unittest.TestCase):
    def test_asks_z3(self):
        done = search("lora_b1", "--oracle", "z3", "--json")
        if "this build has no Z3" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        piece, *_ = json.loads(done.stdout)["pieces"]
        oracle = piece["oracle"]
        self.assertEqual(oracle["yes"], piece["nodes"])
        self.assertGreater(oracle["no"], oracle["yes"])
        self.assertEqual((oracle["undecided"], oracle["finished"]), (0, True))
        by_lookup = json.loads(search("lora_b1", "--json").stdout)
        self.assertNotIn("oracle", by_lookup["pieces"][0])
        self.assertEqual(by_lookup["mugraphs"], json.loads(done.stdout)["mugraphs"])

    def test_explains_the_choices_of_blocks(self):
        done = search("lora_b1", "--explain")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("kernel grid=", done.stdout)
        if "this build has no libz3" in done.stdout:
            self.skipTest("without libz3 choices are greedy")
        for choice in ("layouts", "barriers", "shared memory"):
            self.assertRegex(done.stdout, f"block 0, {choice}: greedy .*, optimal ")

    def test_names_the_oracles(self):
        done = search("lora_b1", "--oracle", "delphi")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn('--oracle takes "lookup" or "z3", not "delphi"', done.stderr)


if __name__ == "__main__":
    unittest.main()
