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


def main():
    if not shutil.which("abidw"):
        print("there is no abidw here (Debian's abigail-tools)")
        return SKIPPED
    described = describe()
    if os.environ.get("QUERN_WRITE_GOLDEN"):
        DESCRIPTION.write_text(described, encoding="utf-8")
    known = DESCRIPTION.read_text(encoding="utf-8")
    sys.stdout.writelines(difflib.unified_diff(known.splitlines(True), described.splitlines(True), "committed", "built", n=1))
    return 0 if described == known else 1


sys.exit(main())
