"""A place of its own for quern and its daemon, and whether there is a compiler: what the tests of the command line share."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["QUERN_BUILD_ROOT"])
SOURCE = pathlib.Path(os.environ["QUERN_SOURCE_ROOT"])
EXAMPLES = SOURCE / "examples"


class Box:
    """A home of its own for the daemon: socket, cache and configuration in one temporary directory."""

    def __init__(self, **more):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="quern-cli-", dir="/tmp"))
        self.cache = self.path / "cache"
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("QUERN_", "XDG_"))}
        if "QUERN_NVRTC" in os.environ:
            self.env["QUERN_NVRTC"] = os.environ["QUERN_NVRTC"]
        self.env.update(QUERN_SOCKET=str(self.path / "q.sock"), QUERN_CACHE_DIR=str(self.cache), HOME=str(self.path),
                        QUERN_LIBCUDA="/nonexistent/libcuda.so", **more)

    def write(self, name, text):
        (self.path / name).write_text(text)
        return str(self.path / name)

    def run(self, *arguments, code=0, cwd=None, stdin=None):
        done = subprocess.run([str(BUILD / "tools/quern"), *map(str, arguments)], env=self.env, cwd=cwd or self.path, input=stdin,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        assert code in (None, done.returncode), f"quern {arguments}: exit {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments, code=0):
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def close(self):
        subprocess.run([str(BUILD / "tools/quern"), "stop"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.path, ignore_errors=True)


def compiler_is_missing():
    box = Box()
    try:
        done = subprocess.run([str(BUILD / "tools/quern"), "doctor", "--json", "--no-start"], env=box.env, stdout=subprocess.PIPE, text=True)
        findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
        return findings["NVRTC"]["what"] if findings["NVRTC"]["verdict"] != "ok" else None
    finally:
        box.close()


NO_COMPILER = compiler_is_missing()
needs_compiler = unittest.skipIf(NO_COMPILER, f"needs NVRTC: {NO_COMPILER}")
