#!/usr/bin/env python3
"""Checks the #includes of every source file against the arrows between the rooms.

A room may include itself and what its row names: rooms, or single headers of a room. Tests may include everything.
"""
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(os.environ.get("QUERN_SOURCE_ROOT", pathlib.Path(__file__).resolve().parents[2]))

GRAPH = ["core/base", "core/lang", "core/graph"]
MUGRAPH = GRAPH + ["core/mugraph"]
MAKERS = MUGRAPH + ["core/search", "core/verify", "core/schedule", "core/kernel", "core/kernel/passes", "core/prove", "core/codegen", "core/jit"]
CORE = MAKERS + ["core/optimize", "core/profile"]
ARROWS = {
    "core/base": [],
    "core/lang": ["core/base"],
    "core/graph": ["core/base", "core/lang"],
    "core/mugraph": GRAPH,
    "core/search": MUGRAPH + ["core/verify"],
    "core/verify": MUGRAPH,
    "core/schedule": MUGRAPH,
    "core/kernel": ["core/base", "core/lang"],
    "core/kernel/passes": MUGRAPH + ["core/schedule", "core/kernel"],
    "core/prove": ["core/base", "core/lang", "core/kernel"],
    "core/codegen": MUGRAPH + ["core/search", "core/verify", "core/schedule", "core/kernel", "core/kernel/passes"],
    # Of core/codegen only the text of the prelude.
    "core/emulator": ["core/base", "core/codegen/prelude.h"],
    "core/jit": ["core/base"],
    "core/optimize": MAKERS,
    "core/profile": MAKERS + ["core/optimize"],
    "cache": ["core/base"],
    "capi/wire": ["core/base"],
    # Of core/jit only what needs nothing but the driver: a client never loads NVRTC.
    "capi": ["capi/wire", "core/base", "core/lang", "core/graph", "core/jit/driver.h", "core/jit/launcher.h"],
    "daemon": ["capi/wire", "cache"] + CORE,
    "tools": ["capi", "capi/wire", "core/emulator", "tests/hostile", "tests/support/random_workload.h"] + CORE,
    # Fills a store before a daemon serves it.
    "tools/bench/serve": ["capi", "capi/wire", "cache"] + GRAPH,
    "bindings/python": ["capi"],
    "tests": None,
}
# System headers that belong to one room. Of the CUDA toolkit only a benchmark that nvcc compiles by itself includes any.
OWNED = {"lmdb.h": ["cache"], "uv.h": ["daemon"], "hiredis/hiredis.h": ["daemon"], "seccomp.h": ["core/base"], "cuda.h": [], "cuda_runtime.h": ["tools"], "nvrtc.h": []}

SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh", ".def"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def room_of(path):
    """The longest room that holds the path, or None."""
    rooms = [room for room in ARROWS if path == room or path.startswith(room + "/")]
    return max(rooms, key=len) if rooms else None


def violations(path, text, exists):
    """What is wrong with the includes of `text`, the file at `path`; exists(path) tells which files there are."""
    room = room_of(path)
    if room is None:
        return [f"{path}: lies in no known room: add a row to ARROWS"]
    found = []
    for bracket, name in INCLUDE.findall(text):
        if name in OWNED and room != "tests" and room not in OWNED[name]:
            found.append(f"{path}: includes <{name}>, which is for {OWNED[name] or 'nobody'}")
        if bracket == "<" or path == "capi/quern.hpp":  # an installed header, which finds quern.h beside it
            continue
        if not exists(name):
            found.append(f'{path}: includes "{name}", which is no file seen from the root of the sources')
            continue
        target, allowed = room_of(name), ARROWS[room]
        in_folder = any(name.startswith(row + "/") for row in allowed or [] if room_of(row) != row)  # of a room
        if allowed is not None and target != room and target not in allowed and name not in allowed and not in_folder:
            found.append(f'{path}: {room} may not include "{name}"')
    return found


def source_files():
    for top in sorted({room.split("/")[0] for room in ARROWS}):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path


class Arrows(unittest.TestCase):
    def test_every_source_follows_the_arrows(self):
        files = list(source_files())
        self.assertGreater(len(files), 20, f"too few sources under {ROOT}")
        found = []
        for path in files:
            text = path.read_text(encoding="utf-8")
            found += violations(path.relative_to(ROOT).as_posix(), text, lambda name: (ROOT / name).is_file())
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_there_is_no_cycle(self):
        def below(room, trail=()):
            self.assertNotIn(room, trail, " -> ".join(trail + (room,)))
            for other in ARROWS[room] or []:
                below(room_of(other), trail + (room,))

        for room in ARROWS:
            below(room)

    def test_violations_are_seen(self):
        def check(path, include):
            return bool(violations(path, f"// x\n#include {include}\n", lambda name: not name.startswith("..")))

        self.assertTrue(check("core/base/a.cc", '"core/lang/op.h"'))
        self.assertTrue(check("cache/store.cc", '"core/graph/graph.h"'))
        self.assertTrue(check("capi/client.cc", '"core/jit/compiler.h"'))
        self.assertTrue(check("core/lang/op.cc", "<lmdb.h>"))
        self.assertTrue(check("core/jit/driver.cc", "<cuda.h>"))
        self.assertTrue(check("core/graph/a.cc", '"../lang/op.h"'))
        self.assertTrue(check("elsewhere/a.cc", "<vector>"))
        self.assertFalse(check("capi/launch.cc", '"core/jit/launcher.h"'))
        self.assertFalse(check("cache/store.cc", "<lmdb.h>"))
        self.assertTrue(check("tools/run.cc", '"tests/support/test.h"'))
        self.assertFalse(check("tools/run.cc", '"core/emulator/emulator.h"'))
        self.assertFalse(check("tests/e2e/a.cc", '"daemon/service.h"'))

    def test_only_the_printer_writes_cuda(self):
        words = re.compile(r'"[^"\n]*(__global__|threadIdx|blockIdx|__syncthreads|\basm\b|__device__|__shared__|#pragma|__restrict__)')
        printers = ["core/kernel/print_cuda.cc", "core/kernel/expr.cc", "core/kernel/instructions.def", "core/kernel/functions.def",
                    "core/codegen/wgmma_text.cc", "core/codegen/device/", "core/emulator/", "core/profile/"]
        found, seen = [], set()
        for path in source_files():
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("core/"):
                continue
            for line in path.read_text(encoding="utf-8").splitlines():
                if not words.search(line) or line.lstrip().startswith("//") or "//" in line[:words.search(line).start()]:
                    continue
                printer = next((each for each in printers if name.startswith(each)), None)
                seen.add(printer)
                if printer is None:
                    found.append(f"{name}: {line.strip()}")
        self.assertFalse(found, "CUDA text outside of the printer:\n" + "\n".join(found))
        self.assertIn("core/kernel/print_cuda.cc", seen)

    def test_every_pass_is_a_file_with_a_test(self):
        names = re.findall(r"QUERN_PASS\((\w+), \"", (ROOT / "core/kernel/passes/passes.def").read_text(encoding="utf-8"))
        self.assertGreater(len(names), 5)
        test = "".join(each.read_text(encoding="utf-8") for each in sorted((ROOT / "tests/kernel").glob("*_test.cc")))
        for name in names:
            text = (ROOT / f"core/kernel/passes/{name}.cc").read_text(encoding="utf-8")
            self.assertTrue(text.startswith("// "), f"{name}.cc begins with what it does")
            others = [other for other in names if other != name and re.search(rf"\b{other}\(", text)]
            self.assertFalse(others, f"{name}.cc calls other passes")
            self.assertIn(f'"{name}"', test, "no test")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
