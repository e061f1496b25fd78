#!/usr/bin/env python3
"""The examples that run a gated MLP and attention: right on the emulator where there is no GPU, and on a driver whose kernels do nothing they notice that
the results are wrong.

Arguments: the build folder, the root of the sources, a fake CUDA driver. Needs what with_daemon.py sets.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, ROOT, FAKE_CUDA = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="quern-examples-", dir="/tmp")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.env = dict(os.environ, PKG_CONFIG_PATH=str(BUILD / "meson-uninstalled"), LD_LIBRARY_PATH=str(BUILD / "capi"),
                       PYTHONPATH=str(ROOT / "bindings/python"), QUERN_LIBRARY=str(BUILD / "capi/libquern.so.0"),
                       PATH=f"{BUILD / 'tools'}:{os.environ['PATH']}")
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "quern"], env=cls.env, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        strict = ["-Wall", "-Wextra", "-Werror"]
        c, cc = pathlib.Path(cls.folder.name, "c"), pathlib.Path(cls.folder.name, "cc")
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", *strict, ROOT / "examples/fused.c", *flags, "-ldl", "-lm", "-o", c], check=True)
        subprocess.run(["c++", "-std=c++17", *strict, ROOT / "examples/fused.cc", *flags, "-ldl", "-o", cc], check=True)
        cls.programs = {"C": [c], "C++": [cc], "Python": [sys.executable, ROOT / "examples/fused.py"]}

    def run_all(self, names, driver):
        for name in names:
            with self.subTest(name):
                done = subprocess.run(self.programs[name], env=dict(self.env, QUERN_LIBCUDA=driver), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True, timeout=100)
                yield done.returncode, done.stdout

    def test_without_a_gpu_they_run_on_the_emulator(self):
        for code, text in self.run_all(self.programs, "/nonexistent/libcuda.so"):
            self.assertEqual(code, 0, text)
            self.assertEqual(text.count("run on the emulator"), 2, text)
            self.assertEqual(text.count("  ok\n"), 2, text)

    def test_wrong_results_are_noticed(self):
        for code, text in self.run_all(["C", "C++"], FAKE_CUDA):
            self.assertEqual(code, 1, text)
            self.assertRegex(text, r"mlp on the GPU: relative error \S+, WRONG\nattention on the GPU: relative error \S+, WRONG\n")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
