#!/usr/bin/env python3
"""Manual pages and completions: made from the table of commands, and complete."""
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from box import BUILD, SOURCE, Box


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = Box()
        cls.table = cls.box.json("help")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="quern-manual-", dir="/tmp"))
        cls.files = [cls.folder / name for name in ("quern.1", "quernd.8", "quern.bash", "_quern", "quern.fish")]
        subprocess.run(["python3", str(SOURCE / "tools/build/manual.py"), str(BUILD / "tools/quern"), str(BUILD / "daemon/quernd"), *map(str, cls.files)],
                       check=True)

    @classmethod
    def tearDownClass(cls):
        cls.box.close()
        shutil.rmtree(cls.folder)

    def test_the_pages_name_every_command_option_and_setting(self):
        page = self.files[0].read_text().replace("\\-", "-")
        for command in self.table["commands"]:
            self.assertIn(f".SS quern {command['name']}", page)
            for option in command["options"]:
                self.assertIn(f"--{option['name']}", page)
                self.assertIn(option["help"].replace("\\", "\\e"), page)
        settings = re.findall(r"^  (--\S+)", subprocess.run([BUILD / "daemon/quernd", "--help"], stdout=subprocess.PIPE, text=True).stdout, re.MULTILINE)
        self.assertGreater(len(settings), 20)
        for setting in settings:
            self.assertIn(f".B {setting}", self.files[1].read_text().replace("\\-", "-"))

    def complete(self, *words):
        script = (f"quern() {{ '{BUILD}/tools/quern' \"$@\"; }}; source '{self.files[2]}'; COMP_WORDS=(quern {' '.join(words)}); "
                  f"COMP_CWORD={len(words)}; _quern; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        return subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout.split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertEqual(self.complete("pre"), ["prewarm"])
        self.assertEqual(sorted(self.complete("ve")), ["verify", "verify-mugraph", "version"])
        self.assertEqual(self.complete("get", "--no-c"), ["--no-compile"])
        self.assertEqual(self.complete("ls", "--tier", "me"), ["measured"])
        self.assertEqual(self.complete("get", "-t", "sm_90"), ["sm_90", "sm_90a"])
        self.assertEqual(self.complete("help", "targ"), ["targets"])

    def test_the_other_shells_know_every_option_too(self):
        zsh, fish = self.files[3].read_text(), self.files[4].read_text()
        for command in self.table["commands"]:
            self.assertIn(f"'{command['name']}:", zsh)
            for option in command["options"]:
                self.assertRegex(fish, rf"__fish_seen_subcommand_from {command['name']}' -l {option['name']} ")
                self.assertIn(f"'--{option['name']}[", zsh)


if __name__ == "__main__":
    unittest.main()
