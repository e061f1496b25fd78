#!/usr/bin/env python3
"""What `meson install` lays down must be enough: a C and a C++ program are built against it through pkg-config, find the daemon by
themselves, and get a kernel.

Arguments: the build folder, the root of the sources. Needs what with_daemon.py sets, but not $QUERN_DAEMON.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])

CPP = r"""
#include <quern.hpp>
#include <cstdio>
int main() {
  quern::Client client;
  quern::Graph graph("g");
  graph.output(graph.op("exp", {graph.input("x", QUERN_F32, {4})}));
  const quern::Plan plan = client.get(graph, "sm_80");
  std::puts(plan.info().target);
}
"""


def run(*command, **more):
    result = subprocess.run(command, capture_output=True, text=True, **more)
    if result.returncode:
        raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="quern-")
        root = pathlib.Path(cls.folder.name)
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--tags", "devel,runtime", "--destdir", root / "stage")
        pc = next((root / "stage").rglob("quern.pc"))
        cls.environment = {name: value for name, value in os.environ.items() if name not in ("QUERN_DAEMON", "LD_LIBRARY_PATH")}
        cls.environment.update(PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=str(root / "stage"))
        cls.flags = run("pkg-config", "--cflags", "--libs", "quern", env=cls.environment).split()
        cls.environment["LD_LIBRARY_PATH"] = str(pc.parent.parent)
        cls.root = root

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_c_example_gets_a_kernel(self):
        program, cubin = self.root / "get_kernel", self.root / "kernel.cubin"
        run("cc", "-std=c11", "-Wall", "-Werror", ROOT / "examples/get_kernel.c", "-o", program, *self.flags)
        output = run(program, ROOT / "examples/rmsnorm_b8.qg", "sm_90a", cubin, env=self.environment)
        self.assertRegex(output, r"^[0-9a-f]{32}: tier 1, generation 1, [1-9]\d* launches, ")
        self.assertEqual(cubin.read_bytes()[:4], b"\x7fELF")

    def test_a_cpp_program_gets_a_kernel(self):
        source, program = self.root / "a.cc", self.root / "a"
        source.write_text(CPP)
        run("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", source, "-o", program, *self.flags)
        self.assertEqual(run(program, env=self.environment), "sm_80\n")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
