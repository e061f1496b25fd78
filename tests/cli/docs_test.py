#!/usr/bin/env python3
"""The documentation: its site builds without a broken link, and what its blocks show exists and is accepted. The tutorial and the walk are run by tests of
their own."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from box import BUILD, SOURCE, Box

PAGES = sorted((SOURCE / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks():
    for page in [*PAGES, SOURCE / "README.md"]:
        for kind, text in BLOCK.findall(page.read_text()):
            yield page.relative_to(SOURCE), kind, text


def find_mkdocs():
    private = SOURCE / ".quern/mkdocs/bin/mkdocs"
    return str(private) if private.exists() else shutil.which("mkdocs")


class Site(unittest.TestCase):
    @unittest.skipUnless(find_mkdocs(), "needs mkdocs: tools/dev site installs it in a private folder")
    def test_it_builds_and_no_link_is_broken(self):
        folder = tempfile.mkdtemp(prefix="quern-site-", dir="/tmp")
        self.addCleanup(shutil.rmtree, folder)
        done = subprocess.run([find_mkdocs(), "build", "--strict", "-f", SOURCE / "mkdocs.yml", "-d", folder], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout)
        for page in PAGES:
            self.assertTrue((pathlib.Path(folder) / page.relative_to(SOURCE / "docs").with_suffix(".html")).exists(), page)

    def test_every_page_is_in_the_table_of_contents(self):
        listed = re.findall(r": ([\w/-]+\.md)$", (SOURCE / "mkdocs.yml").read_text(), re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(str(page.relative_to(SOURCE / "docs")) for page in PAGES))


class Blocks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.commands = {command["name"]: command for command in cls.box.json("help")["commands"]}

    @classmethod
    def tearDownClass(cls):
        cls.box.close()

    def test_graphs_are_valid(self):
        graphs = [(page, text) for page, _, text in blocks() if re.match(r"(#.*\n)*graph \w+\nin ", text) and "..." not in text]
        self.assertGreaterEqual(len(graphs), 2)
        for page, text in graphs:
            done = self.box.run("emit", self.box.write("g.qg", text), "-t", "sm_90a", "--json", code=None)
            self.assertEqual(done.returncode, 0, f"{page}:\n{text}\n{done.stderr}")

    def test_configurations_are_accepted(self):
        texts = [(page, text) for page, _, text in blocks() if text.startswith("[quernd]")]
        self.assertGreaterEqual(len(texts), 1)
        for page, text in texts:
            done = subprocess.run([BUILD / "daemon/quernd", "--config", self.box.write("c.conf", text), "--version"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, f"{page}: {done.stdout}")

    def test_commands_and_their_options_exist(self):
        lines = [(page, line) for page, _, text in blocks() for line in re.findall(r"^(?:\$ )?(quern [a-z-]+.*?)(?:  +#.*)?$", text, re.MULTILINE)]
        self.assertGreaterEqual(len(lines), 20)
        for page, line in lines:
            words = line.split("|")[0].split("#")[0].split()
            self.assertIn(words[1], self.commands, f"{page}: {line}")
            options = {f"--{option['name']}" for option in self.commands[words[1]]["options"]}
            for word in words[2:]:
                if word.startswith("--"):
                    self.assertIn(word.split("=")[0], options | {"--json", "--help", "--timeout", "--socket", "--no-start"}, f"{page}: {line}")

    def test_settings_that_pages_name_exist(self):
        known = set(re.findall(r"^  --([a-z-]+)", subprocess.run([BUILD / "daemon/quernd", "--help"], stdout=subprocess.PIPE, text=True).stdout, re.MULTILINE))
        page = (SOURCE / "docs/operations.md").read_text()
        named = set(re.findall(r"`(fleet-[a-z-]+|log-[a-z]+|max-[a-z-]+|[a-z]+-seconds|cache-size|allow-uids|request-log)\b", page))
        self.assertGreater(len(named), 10)
        self.assertLessEqual(named, known)


if __name__ == "__main__":
    unittest.main()
