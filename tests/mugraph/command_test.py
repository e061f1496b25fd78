#!/usr/bin/env python3
"""quern verify-mugraph: verdicts, exit codes and JSON. argv[1] is the program."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("QUERN_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
FILES = ROOT / "tests" / "golden" / "mugraph"
QUERN = sys.argv.pop(1)


def quern(*arguments):
    return subprocess.run([QUERN, "verify-mugraph", *map(str, arguments)], capture_output=True, text=True, check=False)


class VerifyMuGraph(unittest.TestCase):
    def test_accepts(self):
        done = quern(FILES / "gqa_small.qg", FILES / "gqa_small-split.qmu", "--certificate")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("gqa_small_split  accepted", done.stdout)
        self.assertIn("error bound: ", done.stdout)

    def test_a_seed_makes_the_same_certificate_again(self):
        words = FILES / "gqa_small.qg", FILES / "gqa_small-online.qmu", "--json"
        drawn, = json.loads(quern(*words).stdout)["mugraphs"]
        facts = dict(line.split(": ", 1) for line in drawn["certificate"].splitlines())
        self.assertEqual(facts["verdict"], "accepted")
        again, = json.loads(quern(*words, "--seed", facts["seed"]).stdout)["mugraphs"]
        self.assertEqual(again["certificate"], drawn["certificate"])
        other, = json.loads(quern(*words, "--seed", int(facts["seed"]) ^ 1).stdout)["mugraphs"]
        self.assertNotEqual(other["certificate"], drawn["certificate"])

    def test_rejects_with_the_first_element_that_differs(self):
        text = (FILES / "gqa_small-online.qmu").read_text()
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder) / "wrong.qmu"
            wrong.write_text(text.replace("accumulate_rescaled(r, m)", "accumulate_sum(r)"))
            done = quern(FILES / "gqa_small.qg", wrong, "--json")
        self.assertEqual(done.returncode, 1)
        only, = json.loads(done.stdout)["mugraphs"]
        self.assertEqual(only["verdict"], "rejected")
        self.assertRegex(only["reason"], r"^output 0 \[\d, \d, 0\] differs: \S+ instead of \S+ \(\w+ inputs\)$")

    def test_reads_mirage_files(self):
        done = quern(FILES / "rmsnorm_small.qg", FILES / "rmsnorm_small.json")
        self.assertEqual(done.returncode, 1)  # its norm has no epsilon
        self.assertIn("mirage0  rejected", done.stdout)

    def test_prints_what_it_has_read(self):
        done = quern(FILES / "gqa_small.qg", FILES / "gqa_small-online.qmu", "--print")
        self.assertEqual(done.stdout, "".join(
            line for line in (FILES / "gqa_small-online.qmu").read_text().splitlines(True) if not line.startswith("#")))

    def test_names_file_line_and_column(self):
        done = quern(FILES / "gqa_small.qg", FILES / "gqa_small.qg")
        self.assertEqual(done.returncode, 4)
        self.assertIn("gqa_small.qg:1:1: expected \"mugraph NAME\"", done.stderr)


if __name__ == "__main__":
    unittest.main()
