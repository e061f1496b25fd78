#!/usr/bin/env python3
"""What `pip install` lays down must be enough: a wheel is built by meson-python, as `tools/dev wheel` does it, and installed into an empty virtual
environment, whose module finds library, daemon, worker and NVRTC by itself. Of the machine it needs glibc and the C++ runtime.

Arguments: the root of the sources, a build folder that is complete, and an NVRTC, which stands in for that of the wheel nvidia-cuda-nvrtc.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE, BUILD, NVRTC = map(pathlib.Path, sys.argv[1:4])
LARGEST_WHEEL = 30 << 20
# What every machine has that runs Python: the list of manylinux, as far as programs here use it.
OF_THE_MACHINE = re.compile(r"(ld-linux-x86-64|linux-vdso|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so\.\d+")

PROGRAM = """
import os, quern
with quern.Graph("g") as graph, quern.Client() as client:
    x = graph.input("x", "f32", [4])
    graph.output(x.exp() * 2.0)
    plan = client.get(graph, "sm_90a")
    stats = client.stats()
    print(plan.info.key, quern.__version__, quern.__file__, os.readlink(f"/proc/{stats['pid']}/exe"), sep="\\n")
"""


def run(*command, **more):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **more)
    if result.returncode:
        raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="quern-wheel-", dir="/tmp"))
        cls.env = {name: value for name, value in os.environ.items() if not name.startswith(("QUERN_", "XDG_", "PYTHON", "LD_", "MESON"))}
        bin = cls.root / "venv/bin"
        run(sys.executable, "-m", "venv", cls.root / "venv", env=cls.env)
        run(SOURCE / "tools/build/wheel.sh", BUILD, cls.root, env=cls.env)
        cls.wheel = next(cls.root.glob("quern-*.whl"))
        run(bin / "pip", "install", "-q", "--no-index", cls.wheel, env=cls.env)
        cls.packages = next((cls.root / "venv/lib").glob("python*/site-packages"))
        (cls.packages / "nvidia/cu13/lib").mkdir(parents=True)
        (cls.packages / "nvidia/cu13/lib/libnvrtc.so.13").symlink_to(NVRTC)
        # Nothing of the build folder or of a user is within reach.
        cls.env.update(HOME=str(cls.root), PATH=f"{bin}:/usr/bin:/bin", QUERN_SOCKET=str(cls.root / "q.sock"), QUERN_MEASURE="never")
        cls.bin = bin

    @classmethod
    def tearDownClass(cls):
        subprocess.run([cls.bin / "quern", "stop"], env=cls.env, capture_output=True)
        shutil.rmtree(cls.root, ignore_errors=True)

    def test_a_program_gets_a_plan(self):
        key, version, module, daemon = run(self.bin / "python", "-c", PROGRAM, env=self.env, cwd=self.root).splitlines()
        self.assertRegex(key, "^[0-9a-f]{32}$")
        self.assertEqual(self.wheel.name.split("-")[1], version)
        self.assertRegex(self.wheel.name, r"-manylinux_2_\d+_x86_64\.whl$")
        self.assertEqual(pathlib.Path(module), self.packages / "quern/__init__.py")
        self.assertEqual(pathlib.Path(daemon), self.packages / "quern/bin/quernd")
        self.assertIn(key, run(self.bin / "quern", "ls", env=self.env))

    def test_the_commands_are_there(self):
        version = run(self.bin / "quern", "version", env=self.env)
        self.assertTrue(version.startswith("quern "), version)
        self.assertEqual(version, run(self.bin / "python", "-m", "quern", "version", env=self.env, cwd=self.root))
        self.assertIn("usage: quernd", run(self.bin / "quernd", "--help", env=self.env))

    def test_a_program_in_c_is_compiled_with_it(self):
        folder = run(self.bin / "python", "-c", "import quern; print(quern.pkg_config_path())", env=self.env, cwd=self.root).strip()
        flags = run("pkg-config", "--cflags", "--libs", "quern", env=dict(self.env, PKG_CONFIG_PATH=folder)).split()
        run("cc", SOURCE / "examples/hello.c", *flags, "-o", self.root / "hello")
        self.assertRegex(run(self.root / "hello", SOURCE / "examples/ntrans_b1.qg", "sm_90a", env=self.env), "^(hit|miss): key ")

    def test_libraries_come_from_the_wheel(self):
        """On a machine that has none of them installed the loader must find them, too."""
        checked = 0
        for file in sorted(path for path in self.packages.glob("quern*/**/*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"):
            lines = run("ldd", file, env=self.env).splitlines()
            for line in lines:
                name, _, place = line.strip().partition(" => ")
                if not OF_THE_MACHINE.fullmatch(pathlib.Path(name.split()[0]).name):
                    self.assertTrue(place.startswith(str(self.packages)), f"{file.name}: {line}")
            checked += 1
        self.assertGreaterEqual(checked, 10)

    def test_calls_are_quick_where_the_headers_of_python_were(self):
        if (BUILD / "bindings/python/_calls.abi3.so").exists():
            run(self.bin / "python", "-c", "import quern._calls, quern._library as l; assert l.Caller is quern._calls.Caller", env=self.env, cwd=self.root)

    def test_the_wheel_is_complete_and_small(self):
        names = zipfile.ZipFile(self.wheel).namelist()
        for source in (SOURCE / "bindings/python/quern").iterdir():
            if source.is_file():
                self.assertIn(f"quern/{source.name}", names)
        self.assertTrue([name for name in names if name.endswith("LICENSE")], names)
        self.assertLess(self.wheel.stat().st_size, LARGEST_WHEEL)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
