#!/usr/bin/env python3
"""docs/walk.sh: every step works, and the page that shows its output has the same steps."""
import os
import re
import shutil
import subprocess
import unittest

from box import BUILD, SOURCE, needs_compiler


@needs_compiler
class Walk(unittest.TestCase):
    def test_every_step_works(self):
        done = subprocess.run([SOURCE / "docs/walk.sh", BUILD], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        page = (SOURCE / "docs/results/walk.md").read_text()
        titles = re.findall("^## (.*)$", done.stdout, re.MULTILINE)
        self.assertEqual(titles, [title for title in re.findall("^## (.*)$", page, re.MULTILINE) if title not in ("A clone", "One command")])
        self.assertEqual(len(re.findall(r"(?m)^\d+\.\d{3} s$", done.stdout)), len(titles))
        for line, times in (("    miss: 1 kernels", 2), ("    hit: 1 kernels", 2), ("<quern.Plan ", 2), ("2 stored, 0 were there", 1)):
            self.assertEqual(done.stdout.count(line), times, line)
        if shutil.which("valkey-server") or shutil.which("redis-server"):
            self.assertEqual(sum(map(int, re.findall(r"(?m)^    \w+: 6 plans, of which (\d+) compiled here$", done.stdout))), 6)
        if os.geteuid() == 0:
            self.assertIn("Shutdown is for the user that runs the daemon", done.stdout)


if __name__ == "__main__":
    unittest.main()
