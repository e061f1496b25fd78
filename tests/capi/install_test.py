#!/usr/bin/env python3
"""What `meson install` lays down must be enough: a C and a C++ program are built against it through pkg-config and CMake, find the daemon
by themselves, and get a kernel. Programs are stripped.

Arguments: the build folder, the root of the sources. Needs what with_daemon.py sets, but not $QUERN_DAEMON.
"""
import json
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


CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(quern 0.1 REQUIRED)
add_executable(hello %s)
target_link_libraries(hello quern::quern)
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

    def test_a_cmake_project_gets_a_kernel(self):
        project = self.root / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(CMAKE % (ROOT / "examples/hello.c"))
        config = next((self.root / "stage").rglob("quern-config.cmake"))
        run("cmake", "-S", project, "-B", project / "build", f"-Dquern_DIR={config.parent}", env=self.environment)
        run("cmake", "--build", project / "build", env=self.environment)
        output = run(project / "build/hello", ROOT / "examples/ntrans_b1.qg", "sm_90a", env=self.environment)
        self.assertRegex(output, "^(hit|miss): key [0-9a-f]{32}, [1-9]")

    def test_debian_packages_hold_all_of_it(self):
        out = self.root / "packages"
        run(ROOT / "tools/build/deb.sh", self.root / "stage", "0.1.0", out)
        programs, development = sorted(out.glob("*.deb"), key=lambda path: not path.name.startswith("quern_"))
        depends = run("dpkg-deb", "-f", programs, "Depends")
        for library in ("libuv1", "liblmdb0", "libz3-4", "libsodium23", "libc6"):
            self.assertIn(library, depends)
        self.assertEqual(run("dpkg-deb", "-f", development, "Depends"), "quern (= 0.1.0)\n")
        for package in (programs, development):
            run("dpkg-deb", "-x", package, self.root / "unpacked")
        staged, unpacked = ({str(path.relative_to(self.root / folder)) for path in (self.root / folder).rglob("*") if not path.is_dir()}
                            for folder in ("stage", "unpacked"))
        self.assertEqual(staged - unpacked, set())
        self.assertEqual({path for path in unpacked - staged if not path.startswith("usr/share/doc/")}, set())
        quern = next((self.root / "unpacked").rglob("bin/quern"))
        self.assertIn("quern 0.1.0", run(quern, "version"))

    def test_programs_are_stripped(self):
        """Unless this build folder was told otherwise; what holds without a word is what meson.build says."""
        def strip(place):
            options = json.loads(run("meson", "introspect", "--buildoptions", place))
            return next(option["value"] for option in options if option["name"] == "strip")
        self.assertTrue(strip(ROOT / "meson.build"))
        for name in ("quern", "quernd", "quern-worker"):
            program = next(path for path in (self.root / "stage").rglob(name) if path.is_file())
            debug = ".debug_info" in run("readelf", "-S", "--wide", program)
            self.assertEqual(debug, not strip(BUILD), program)
            if not debug:
                self.assertLess(program.stat().st_size, 16 << 20, program)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
