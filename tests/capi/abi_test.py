#!/usr/bin/env python3
"""The library still is what programs were linked with: libabigail's description of it is the one in tests/golden/abi.

Arguments: the header, the library, the description. Sizes, members, numbers of enumerations and signatures stay as they
are. Where functions were only added, QUERN_WRITE_GOLDEN in the environment writes the description anew.
"""
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HEADER, LIBRARY, DESCRIPTION = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
SKIPPED = 77


def describe():
    with tempfile.TemporaryDirectory() as headers:
        shutil.copy(HEADER, headers)  # alone: what the library is made of is its own affair
        text = subprocess.run(
            ["abidw", "--headers-dir", headers, "--drop-private-types", "--exported-interfaces-only", "--no-show-locs",
             "--no-comp-dir-path", "--no-corpus-path", "--no-architecture", "--type-id-style", "hash", LIBRARY],
            capture_output=True, text=True, check=True).stdout
    return re.sub(r" path='[^']*'", "", text)  # of the sources, as the build folder sees them


def declarations(text):
    """One line for each, sorted, types by their names: the order of sources, and with it libabigail's numbers, depend on how
    the library was linked."""
    joined = re.sub(r"\n *<(?=/|parameter|return|data-member|var-decl|enumerator|underlying-type|subrange|member)", " <", text)
    lines = [line.strip() for line in joined.splitlines()]
    by_id = {found.group(1): line for line in lines if (found := re.search(r"^<[^>]* id='([^']*)'", line))}

    def spell(number):
        line = by_id.get(number, number)
        name = re.search(r"^<[^>]* name='([^']*)'", line)
        if name:
            return name.group(1)
        return re.sub(r" id='[^']*'", "", re.sub(r"type-id='([^']*)'", lambda of: "of '" + spell(of.group(1)) + "'", line))

    named = (re.sub(r"type-id='([^']*)'", lambda of: "type '" + spell(of.group(1)) + "'", line) for line in lines if "abi-instr" not in line)
    return sorted({re.sub(r" id='[^']*'", "", line) + "\n" for line in named})


def main():
    if not shutil.which("abidw"):
        print("there is no abidw here (Debian's abigail-tools)")
        return SKIPPED
    described = describe()
    if os.environ.get("QUERN_WRITE_GOLDEN"):
        DESCRIPTION.write_text(described, encoding="utf-8")
    known = declarations(DESCRIPTION.read_text(encoding="utf-8"))
    built = declarations(described)
    sys.stdout.writelines(difflib.unified_diff(known, built, "committed", "built", n=1))
    return 0 if built == known else 1


sys.exit(main())
