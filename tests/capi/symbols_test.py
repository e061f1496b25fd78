#!/usr/bin/env python3
"""quern.h, quern.map, libquern.so and the C test must agree: what one has, all have.

Arguments: the header, the map, the C test, the library, errors.def.
"""
import re
import subprocess
import sys
import unittest

HEADER, MAP, C_TEST, LIBRARY, ERRORS = sys.argv[1:6]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def declared():
    return set(re.findall(r"QUERN_API\s[^;{]*?\b(quern_\w+)\s*\(", without_comments(read(HEADER))))


def inline():
    return set(re.findall(r"static inline [\w ]+\b(quern_\w+)\s*\(", without_comments(read(HEADER))))


def exported():
    lines = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    return {name.split("@")[0] for kind, name in re.findall(r"^\w+ (\w) (\S+)$", lines, re.MULTILINE) if kind != "A"}


class Symbols(unittest.TestCase):
    def test_the_map_lists_what_the_header_declares(self):
        mapped = re.findall(r"^\s*(quern_\w+);", read(MAP), re.MULTILINE)
        self.assertGreater(len(mapped), 20)
        self.assertEqual(sorted(declared()), sorted(mapped))

    def test_the_library_exports_that_and_nothing_else(self):
        self.assertEqual(declared(), exported())

    def test_the_c_test_calls_every_function(self):
        text = without_comments(read(C_TEST))
        missing = [name for name in sorted(declared() | inline()) if not re.search(name + r"\s*\(", text)]
        self.assertEqual(missing, [])
        self.assertEqual(len(inline()), 5)

    def test_the_statuses_are_those_of_the_table(self):
        table = re.findall(r'^QUERN_ERROR\((\w+), (\d+), "(.*)"\)$', read(ERRORS), re.MULTILINE)
        listed = re.search(r"enum \{\s*QUERN_OK(.*?)\};", read(HEADER), re.DOTALL).group(0)
        found = re.findall(r"QUERN_(\w+) = (\d+),?\s*(?:/\* (.*?) \*/)?", listed)
        self.assertGreater(len(table), 20)
        self.assertEqual([row[:2] for row in table], [row[:2] for row in found])
        self.assertEqual([row[2] for row in table[1:]], [row[2] for row in found[1:]])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
