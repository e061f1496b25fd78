#!/usr/bin/env python3
"""The blocks of docs/tutorial.md, run one after the other in an empty directory as its reader would."""
import re
import subprocess
import unittest

from box import BUILD, SOURCE, Box, needs_compiler


@needs_compiler
class Tutorial(unittest.TestCase):
    def test_every_block_works(self):
        blocks = re.findall(r"^```sh\n(.*?)^```$", (SOURCE / "docs/tutorial.md").read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 8)
        box = Box(PYTHONPATH=str(SOURCE / "bindings/python"), QUERN_LIBRARY=str(BUILD / "capi/libquern.so.0"), QUERN_SEARCHERS="0",
                  PKG_CONFIG_PATH=str(BUILD / "meson-uninstalled"), LD_LIBRARY_PATH=str(BUILD / "capi"), QUERN_DAEMON=str(BUILD / "daemon/quernd"))
        self.addCleanup(box.close)
        box.env["PATH"] = f"{BUILD / 'tools'}:{box.env['PATH']}"
        folder = box.path / "empty"
        folder.mkdir()
        for block in blocks:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=folder, env=box.env, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, f"{block}\n{done.stdout}")


if __name__ == "__main__":
    unittest.main()
