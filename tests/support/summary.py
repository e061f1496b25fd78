#!/usr/bin/env python3
"""Counts what ran, from meson's testlog.json, and ends with a line "N passed, N failed".

CMocka and unittest programs count by their cases, any other by itself. A program that dies or hangs counts as failed even
if no case did. Exit status 1 when something failed or nothing passed.
"""
import collections
import json
import re
import sys

CMOCKA = {word: re.compile(r"\[\s*" + word.upper() + r"\s*\] (\d+) test\(s\)") for word in ("passed", "failed", "skipped")}
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
UNITTEST_COUNT = re.compile(r"(failures|errors|skipped)=(\d+)")


def count(test):
    """Passed, failed and skipped cases of one line of the log."""
    output = (test.get("stdout") or "") + (test.get("stderr") or "")
    passed, failed, skipped = (sum(map(int, pattern.findall(output))) for pattern in CMOCKA.values())
    ran = sum(map(int, UNITTEST_RAN.findall(output)))
    if ran:
        counts = [(kind, int(number)) for kind, number in UNITTEST_COUNT.findall(output)]
        bad = sum(number for kind, number in counts if kind != "skipped")
        left_out = sum(number for kind, number in counts if kind == "skipped")
        passed, failed, skipped = passed + ran - bad - left_out, failed + bad, skipped + left_out
    if test["result"] in ("OK", "SKIP", "EXPECTEDFAIL"):
        if passed + failed + skipped == 0:
            return (0, 0, 1) if test["result"] == "SKIP" else (1, 0, 0)
        return passed, failed, skipped
    return passed, max(failed, 1), skipped


def main():
    try:
        with open(sys.argv[1], encoding="utf-8") as log:
            tests = [json.loads(line) for line in log if line.strip()]
    except FileNotFoundError:  # meson found nothing to run
        tests = []
    passed, failed, skipped = (sum(column) for column in zip((0, 0, 0), *map(count, tests)))
    reasons = collections.Counter(
        (test["name"], reason)
        for test in tests
        for reason in re.findall(r"^skipped because (.*)", test.get("stdout") or "", re.MULTILINE)
    )
    for (name, reason), times in reasons.items():
        print(f"{name}: {times} skipped because {reason}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
