#!/usr/bin/env python3
"""The blocks of docs/tutorial.md, run one after the other in an empty directory as its reader would, and the commands of README.md with what it says
that they print. QUERN_UPDATE_GOLDEN=1 writes what they print into README.md."""
import os
import re
import subprocess
import unittest

from box import BUILD, SOURCE, Box, needs_compiler


def box_for_readers(**more):
    box = Box(PYTHONPATH=str(SOURCE / "bindings/python"), QUERN_LIBRARY=str(BUILD / "capi/libquern.so.0"),
              PKG_CONFIG_PATH=str(BUILD / "meson-uninstalled"), LD_LIBRARY_PATH=str(BUILD / "capi"), QUERN_DAEMON=str(BUILD / "daemon/quernd"), **more)
    box.env["PATH"] = f"{BUILD / 'tools'}:{box.env['PATH']}"
    return box


def run_in(box, folder, command):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=box.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=100)


@needs_compiler
class Tutorial(unittest.TestCase):
    def test_every_block_works(self):
        blocks = re.findall(r"^```sh\n(.*?)^```$", (SOURCE / "docs/tutorial.md").read_text(), re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 8)
        box = box_for_readers(QUERN_SEARCHERS="0")
        self.addCleanup(box.close)
        folder = box.path / "empty"
        folder.mkdir()
        for block in blocks:
            done = run_in(box, folder, block)
            self.assertEqual(done.returncode, 0, f"{block}\n{done.stdout}")


@needs_compiler
class Readme(unittest.TestCase):
    """Times differ, and keys where the compiler is another one; `...` stands for any lines."""

    def test_commands_print_what_it_says(self):
        readme = (SOURCE / "README.md").read_text()
        shown = re.findall(r"^\$ (.*)\n((?:(?!```|\$ ).*\n)*)", readme, re.MULTILINE)
        self.assertGreaterEqual(len(shown), 10)
        compiler = re.search(r"^toolchain +(.*)$", readme, re.MULTILINE)[1]
        first, box = box_for_readers(), box_for_readers()
        self.addCleanup(first.close)
        self.addCleanup(box.close)
        (box.path / "examples").symlink_to(SOURCE / "examples")
        same = compiler in run_in(first, SOURCE, "quern get examples/lora_b1.qg -t sm_90a && quern explain examples/lora_b1.qg -t sm_90a").stdout
        plain = (lambda text: self.without_times(text)) if same else (lambda text: self.without_keys(self.without_times(text)))
        renamed = {}
        for command, wanted in shown:
            if not same and re.search(r"\b(show|explain) ", command):
                continue
            if os.environ.get("QUERN_UPDATE_GOLDEN"):
                readme = self.updated(readme, command, wanted, renamed, lambda text: run_in(box, box.path, text).stdout, plain)
                continue
            done = run_in(box, box.path, command)
            pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(plain(line)) + r"\n" for line in wanted.splitlines())
            self.assertTrue(done.returncode == 0 and re.fullmatch(pattern, plain(done.stdout)), f"{command}\n{wanted}\nprints\n{done.stdout}")
        if os.environ.get("QUERN_UPDATE_GOLDEN"):
            (SOURCE / "README.md").write_text(readme)

    def updated(self, readme, command, wanted, renamed, run, plain):
        """The text with what a command prints now: keys that changed do so everywhere, and lines are left out where `...` stood."""
        def renew(text):
            return re.sub(r"\b[0-9a-f]{4}\b|\b[0-9a-f]{32}\b", lambda key: renamed.get(key[0], key[0]), text)

        left, lines = run(renew(command)).splitlines(), []
        pieces = re.split(r"^ *\.\.\.\n", wanted, flags=re.MULTILINE)
        for i, piece in enumerate(piece.splitlines() for piece in pieces):
            if i == len(pieces) - 1:
                left = left[len(left) - len(piece):] if len(pieces) > 1 else left
                piece += [""] * (len(left) - len(piece)) if len(pieces) == 1 else []
            elif i:
                left = left[[line.split()[:2] for line in left].index(piece[0].split()[:2]):]
                lines.append("...")
            for old, new in zip(piece, left):
                for was, now in zip(*(re.findall(r"\b[0-9a-f]{32}\b", text) for text in (old, new))):
                    renamed.update({was: now, was[:4]: now[:4]})
                lines.append(old if plain(old) == plain(new) else new)
            left = left[len(piece):]
        if len(pieces) > 1 and not pieces[-1]:
            lines.append("...")
        elif len(pieces) > 1:
            lines.insert(len(lines) - len(pieces[-1].splitlines()), re.findall(r"^ *\.\.\.$", wanted, re.MULTILINE)[-1])
        return readme.replace(f"$ {command}\n{wanted}", "\n".join([f"$ {renew(command)}", *lines, ""]))

    @staticmethod
    def without_times(text):
        return re.sub(r"\d+(\.\d+)? (ns|us|ms|s)\b", "T", re.sub(r"(no usable CUDA driver: ).*", r"\1", text))

    @staticmethod
    def without_keys(text):
        return re.sub(r"\b[0-9a-f]{32}\b|[\d.]+ (bytes|KiB)", "K", text)


if __name__ == "__main__":
    unittest.main()
