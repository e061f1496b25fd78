#!/usr/bin/env python3
"""The units under a real systemd, which runs in namespaces of its own. Needs root, systemd, and leave to make namespaces."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from box import BUILD, EXAMPLES, needs_compiler

HERE = pathlib.Path(__file__).parent
GUEST, SERVICE = 65534, "quern-system.service"
UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup", "--kill-child"]


def why_not():
    if os.geteuid() != 0:
        return "only root can start systemd"
    if not pathlib.Path("/lib/systemd/systemd").exists() or not shutil.which("systemctl"):
        return "there is no systemd"
    with tempfile.TemporaryDirectory() as folder:
        tried = "mount --make-rprivate / && mount -t tmpfs tmpfs $0 && mkdir $0/u $0/w $0/r && mount -t cgroup2 cgroup2 $0/r && " \
            "mount -t overlay overlay -o lowerdir=/,upperdir=$0/u,workdir=$0/w $0/r"
        done = subprocess.run([*UNSHARE, "bash", "-c", tried, folder], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return done.stderr.strip() or "no namespaces" if done.returncode else None


NO_SYSTEMD = why_not()


class Systemd(unittest.TestCase):
    """A machine that has come up, with the socket of the system's service."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="quern-systemd-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        (self.folder / "root").mkdir()
        (self.folder / "quern.conf").write_text(f"[quernd]\nsearchers = 0\nallow-uids = {GUEST}\n")
        nvrtc = os.environ.get("QUERN_NVRTC") or str(BUILD / "lib/quern/nvrtc")
        nvrtc = nvrtc if os.path.isdir(nvrtc) else ""
        self.outer = subprocess.Popen([*UNSHARE, HERE / "systemd_root.sh", self.folder / "root", BUILD, self.folder / "quern.conf", nvrtc])
        self.addCleanup(self.outer.wait)
        self.addCleanup(self.outer.kill)
        self.until(self.booted, "systemd has not come up")

    def until(self, holds, what, seconds=60):
        over = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), over, what)
            time.sleep(0.05)

    def booted(self):
        self.assertIsNone(self.outer.poll(), "systemd_root.sh has failed")
        children = pathlib.Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()
        self.init = children[0] if children else "0"
        return os.path.exists(f"/proc/{self.init}/root/run/quern/quernd.sock")

    def run_in(self, *command, code=0, user=None, **more):
        enter = ["nsenter", f"--target={self.init}", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--root", "--wd"]
        become = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "QUERN_NO_START": "1", **more}
        done = subprocess.run([*enter, *become, *map(str, command)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)
        if code is not None and done.returncode != code:
            self.fail(f"{command}: exit {done.returncode}, not {code}\n{done.stdout}\n{self.journal()}")
        return done.stdout

    def journal(self):
        return self.run_in("journalctl", "--no-pager", "-n", "100", code=None)

    def is_started_again(self, serves):
        """After a kill at once, after a stop by the next client."""
        first = self.shown("MainPID")
        self.run_in("kill", "-9", first)
        self.until(lambda: self.shown("MainPID") not in ("0", first), "it is not started again")
        self.assertIn("hit", serves())
        self.control("stop")
        self.assertEqual((self.shown("ActiveState"), self.shown("Result")), ("inactive", "success"))
        self.assertIn("hit", serves())
        self.assertEqual(self.shown("ActiveState"), "active")


@unittest.skipIf(NO_SYSTEMD, NO_SYSTEMD)
class SystemService(Systemd):
    def shown(self, name):
        return self.run_in("systemctl", "show", SERVICE, "--value", "-p", name).strip()

    def control(self, verb):
        self.run_in("systemctl", verb, SERVICE)

    def quern(self, *arguments, code=0):
        return self.run_in("quern", *arguments, user=GUEST, code=code, QUERN_SOCKET="/run/quern/quernd.sock", QUERN_TRUST_UIDS=self.owner)

    def get(self):
        return self.quern("get", EXAMPLES / "ntrans_b1.qg", "-t", "sm_90a")

    @needs_compiler
    def test_guests_are_served_and_it_starts_again(self):
        self.owner = self.run_in("id", "-u", "quern").strip()
        self.assertEqual(self.shown("ActiveState"), "inactive")
        self.assertIn("compiled for this request", self.get())  # the socket has started it
        self.assertEqual((self.shown("ActiveState"), self.shown("NRestarts")), ("active", "0"))
        findings = self.quern("doctor")  # exit 0: nothing that is needed fails
        self.assertRegex(findings, r"cache +/var/cache/quern, of the user that runs the daemon")
        for refused in (["rm", "--all"], ["stop"]):
            self.assertIn("is for the user that runs the daemon", self.quern(*refused, code=3))

        first = self.shown("MainPID")
        status = self.run_in("cat", f"/proc/{first}/status")
        self.assertRegex(status, rf"Uid:\t{self.owner}\t")
        self.assertRegex(status, r"NoNewPrivs:\t1")
        self.assertRegex(status, r"CapEff:\t0+\n")
        for folder in ("/var/cache/quern", "/var/log/quern"):
            self.assertEqual(self.run_in("stat", "-c", "%U %a", folder), "quern 700\n")

        self.control("reload")
        self.until(lambda: "event=reloaded" in self.run_in("cat", "/var/log/quern/quernd.log"), "it is not reloaded")
        self.assertEqual(self.shown("MainPID"), first)
        self.is_started_again(self.get)


@unittest.skipIf(NO_SYSTEMD, NO_SYSTEMD)
class UserService(Systemd):
    """The units of one user, under a systemd of the user's own."""

    USER, RUNTIME, HOME = "1234", "/run/user/1234", "/var/lib/home-1234"

    def as_user(self, *command, code=0):
        return self.run_in(*command, user=self.USER, code=code, HOME=self.HOME, XDG_RUNTIME_DIR=self.RUNTIME)

    def shown(self, name):
        return self.as_user("systemctl", "--user", "show", "quernd.service", "--value", "-p", name).strip()

    def control(self, verb):
        self.as_user("systemctl", "--user", verb, "quernd.service")

    def get(self):
        return self.as_user("quern", "get", EXAMPLES / "ntrans_b1.qg", "-t", "sm_90a")

    @needs_compiler
    def test_a_user_has_a_daemon(self):
        self.run_in("bash", "-c", f"echo someone:x:{self.USER}:{self.USER}::{self.HOME}:/bin/sh >> /etc/passwd")
        self.run_in("systemctl", "start", f"login@{self.USER}")
        self.assertIn("no daemon", self.as_user("quern", "get", EXAMPLES / "ntrans_b1.qg", "-t", "sm_90a", code=3))
        self.as_user("systemctl", "--user", "enable", "--now", "quernd.socket")
        self.assertEqual(self.run_in("stat", "-c", "%u %a", f"{self.RUNTIME}/quern", f"{self.RUNTIME}/quern/quernd.sock"),
                         f"{self.USER} 700\n{self.USER} 600\n")
        self.assertEqual(self.shown("ActiveState"), "inactive")
        self.assertIn("compiled for this request", self.get())  # clients find the socket by themselves, and it starts the daemon
        self.assertEqual((self.shown("ActiveState"), self.shown("NRestarts")), ("active", "0"))
        self.assertRegex(self.as_user("quern", "doctor"), rf"cache +{self.HOME}/.cache/quern")
        first = self.shown("MainPID")
        status = self.run_in("cat", f"/proc/{first}/status")
        self.assertRegex(status, rf"Uid:\t{self.USER}\t")
        self.assertRegex(status, r"NoNewPrivs:\t1")
        self.control("reload")
        self.until(lambda: "event=reloaded" in self.journal(), "it is not reloaded")
        self.assertEqual(self.shown("MainPID"), first)
        self.is_started_again(self.get)
        self.as_user("quern", "stop")  # a stop that the user asks the daemon for is none that systemd repairs
        self.until(lambda: self.shown("ActiveState") == "inactive", "it has not stopped")
        self.assertIn("hit", self.get())
        self.as_user("systemctl", "--user", "disable", "--now", "quernd.socket", "quernd.service")
        self.as_user("quern", "get", EXAMPLES / "ntrans_b1.qg", "-t", "sm_90a", code=3)


class Checked(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd")
    def test_systemd_understands_every_line(self):
        for folder, way in (("system", []), ("user", ["--user"])):
            units = [path for path in sorted((BUILD / "daemon").glob("*.service")) if ("system" in path.name) == (folder == "system")]
            with tempfile.TemporaryDirectory() as copies:
                for unit in units:
                    text = re.sub(r"ExecStart=\S+", f"ExecStart={BUILD}/daemon/quernd", unit.read_text())
                    pathlib.Path(copies, unit.name).write_text(text)
                    shutil.copy(unit.with_suffix(".socket"), copies)
                done = subprocess.run(["systemd-analyze", "verify", *way, "--man=no", *sorted(pathlib.Path(copies).iterdir())],
                                      env={**os.environ, "XDG_RUNTIME_DIR": copies}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
