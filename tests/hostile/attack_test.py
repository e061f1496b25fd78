#!/usr/bin/env python3
"""tools/bench/attack: batches that are done are not done again, and the table counts those of all runs."""
import pathlib
import subprocess
import sys
import tempfile
import time


def attack(program, report, *more):
    done = subprocess.run([program, "--what", "texts", "--mutants", "2", "--report", report, *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return report.read_text()


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "r.md"
        batches = pathlib.Path(f"{report}.batches")
        first = attack(program, report, "--graphs", "4", "--jobs", "2")
        assert " 1 batches in all" in first, first
        assert "| wrong mutants that were accepted | 0 | 0 |" in first, first
        written = (batches / "1").stat().st_mtime_ns
        both = attack(program, report, "--graphs", "6", "--jobs", "2")
        assert " 2 batches in all" in both, both
        assert (batches / "1").stat().st_mtime_ns == written, "a batch was done again"
        (batches / "1").write_text("count 3 programs\nfind wrong wrong-1-0.case: of this batch\n")
        start = time.monotonic()
        done = subprocess.run([program, "--graphs", "6", "--minutes", "5", "--report", report], capture_output=True, text=True)
        assert done.returncode == 1 and time.monotonic() - start < 30, done.stdout
        assert "| programs | 3 |" in done.stdout and "wrong: wrong-1-0.case: of this batch" in done.stdout, done.stdout
    refused = subprocess.run([program, "--what", "all of it"], capture_output=True, text=True)
    assert refused.returncode == 2 and "--what is" in refused.stderr, refused.stderr


main()
