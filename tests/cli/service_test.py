#!/usr/bin/env python3
"""quernd as a service: the socket that systemd hands over, and the units that are installed."""
import configparser
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import unittest

from box import BUILD, SOURCE, Box, needs_compiler

CHAIN = "graph chain\nin x: f32[100]\ny = exp(x)\nout y\n"


class Activated(unittest.TestCase):
    def setUp(self):
        self.box = Box(QUERN_SEARCHERS="0", QUERN_NO_START="1")
        self.addCleanup(self.box.close)
        self.path = self.box.path / "own" / "s"
        self.path.parent.mkdir(mode=0o700)
        self.box.env["QUERN_SOCKET"] = str(self.box.path / "another")  # what is handed over wins
        self.listening = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.listening.close)

    def serve(self, *arguments, count="1"):
        """As systemd does it: descriptor 3, and the number of the process that it is meant for."""
        number = self.listening.fileno()
        command = f"exec 3<&{number}; LISTEN_FDS={count} LISTEN_PID=$$ exec {BUILD}/daemon/quernd {' '.join(arguments)}"
        return subprocess.Popen(["bash", "-c", command], env=self.box.env, pass_fds=[number], stderr=subprocess.PIPE, text=True)

    @needs_compiler
    def test_clients_that_came_first_are_served_and_the_socket_stays(self):
        self.listening.bind(str(self.path))
        self.listening.listen()
        graph = self.box.write("c.qg", CHAIN)
        client = subprocess.Popen([BUILD / "tools/quern", "get", graph, "-t", "sm_90a", "--json", "--socket", self.path], env=self.box.env,
                                  stdout=subprocess.PIPE, text=True)
        time.sleep(0.2)  # it waits in the queue of the socket
        daemon = self.serve("--idle-seconds=1")
        self.assertIn('"origin": "compiled"', client.communicate(timeout=30)[0])
        self.assertEqual(daemon.wait(timeout=30), 0)  # nobody is left
        self.assertTrue(self.path.is_socket())
        self.assertIn("event=idle_exit", daemon.communicate()[1])
        daemon = self.serve()
        self.assertEqual(self.box.json("get", graph, "-t", "sm_90a", "--socket", self.path)["origin"], "hit")
        self.assertEqual(self.box.json("stats", "--socket", self.path)["facts"]["socket"], str(self.path))
        self.box.run("stop", "--socket", self.path)
        self.assertEqual(daemon.wait(timeout=30), 0)
        self.assertTrue(self.path.is_socket())
        daemon.stderr.close()

    def test_what_is_no_such_socket_is_refused(self):
        self.listening.bind(str(self.path))  # and does not listen
        daemon = self.serve()
        self.assertIn("no Unix socket that listens", daemon.communicate(timeout=30)[1])
        self.assertEqual(daemon.returncode, 1)
        self.listening.listen()
        daemon = self.serve(count="2")
        self.assertIn("2 sockets", daemon.communicate(timeout=30)[1])
        self.assertEqual(daemon.returncode, 1)


class Background(unittest.TestCase):
    def test_whoever_starts_it_is_let_go(self):
        """Its output ends when it has gone into the background: a pipe would stay open as long as anything that was started holds it."""
        box = Box(QUERN_SEARCHERS="0")
        self.addCleanup(box.close)
        started = subprocess.run([BUILD / "daemon/quernd"], env=box.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, timeout=20)
        self.assertEqual((started.returncode, started.stdout, started.stderr), (0, "", ""))
        again = subprocess.run([BUILD / "daemon/quernd"], env=box.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
        self.assertEqual(again.returncode, 3)
        self.assertIn("quernd: another daemon (process ", again.stderr)


class Metrics(unittest.TestCase):
    def setUp(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.box = Box(QUERN_SEARCHERS="0", QUERN_METRICS_PORT=str(self.port), QUERN_MEASURE="never")
        self.addCleanup(self.box.close)
        deadline = time.time() + 20
        while self.box.json("stats")["facts"]["compiler"] == "starting":
            self.assertLess(time.time(), deadline)

    def ask(self, text):
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(text)
            reply = b""
            while more := connection.recv(65536):
                reply += more
        head, _, body = reply.partition(b"\r\n\r\n")
        return head.decode(), body.decode()

    def test_they_are_those_of_quern_stats(self):
        def steady(text):  # without what the questions themselves change
            return re.sub(r"(?m)^(quern_(?:uptime_ns|requests|requests_open|clients|clients_total|client_bytes)) \d+$", r"\1 N", text).splitlines()

        deadline = time.time() + 20
        while True:  # the daemon may store something between two looks
            head, body = self.ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            printed = self.box.run("stats", "--prometheus").stdout
            if steady(body) == steady(printed) or time.time() > deadline:
                break
        self.assertTrue(head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), head)
        self.assertIn(f"Content-Length: {len(body)}", head)
        self.assertEqual(steady(body), steady(printed))

    def test_other_requests_are_refused_and_cost_nothing(self):
        for request, status in [(b"GET / HTTP/1.1\r\n\r\n", "404"), (b"POST /metrics HTTP/1.1\r\n\r\n", "405"), (b"\x16\x03\x01\n\n", "400"),
                                (b"GET /metrics HTTP/1.0\n\n", "200"), (b"x" * 9000, "400")]:
            self.assertEqual(self.ask(request)[0].split()[1], status, request[:30])
        # Whoever sends nothing holds no more than one of the places, and not for long.
        idle = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(40)]
        self.assertEqual(self.box.json("stats")["facts"]["pid"], self.box.json("stats")["facts"]["pid"])
        for one in idle:
            one.close()
        deadline = time.time() + 20
        while self.ask(b"GET /metrics HTTP/1.1\r\n\r\n")[0] == "":
            self.assertLess(time.time(), deadline)

    def test_a_port_that_is_taken_is_told(self):
        other = Box(QUERN_METRICS_PORT=str(self.port))
        self.addCleanup(other.close)
        done = subprocess.run([BUILD / "daemon/quernd", "--foreground"], env=other.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"metrics-port: cannot listen on 127.0.0.1:{self.port}: address already in use", done.stderr)


class RequestLog(unittest.TestCase):
    def setUp(self):
        self.box = Box(QUERN_SEARCHERS="0", QUERN_MEASURE="never", QUERN_LOG_FORMAT="json")
        self.box.env["QUERN_REQUEST_LOG"] = str(self.box.path / "requests.log")
        self.addCleanup(self.box.close)
        self.log = self.box.path / "requests.log"

    def lines(self, **fields):
        rows = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [row for row in rows if all(row.get(name) == value for name, value in fields.items())]

    @needs_compiler
    def test_each_request_has_a_line_with_its_end(self):
        graph, bad = self.box.write("c.qg", CHAIN), self.box.write("bad.qg", "graph bad\nin x: f32[2]\nout y\n")
        keys = [self.box.json("get", graph, "-t", "sm_90a")["key"] for _ in range(2)]
        self.box.run("get", graph, "-t", "sm_80", "--no-compile", code=1)
        self.box.run("rm", "0123456789abcdef0123456789abcdef", code=None)
        gets = self.lines(message="Get")
        self.assertEqual([(row["end"], row.get("origin"), row.get("tier")) for row in gets],
                         [("OK", "compiled", "baseline"), ("OK", "hit", "baseline"), ("NOT_FOUND", None, None)])
        self.assertEqual([row.get("key") for row in gets[:2]], keys)
        self.assertEqual({row["uid"] for row in gets}, {str(os.geteuid())})
        self.assertGreater(int(gets[0]["us"]), int(gets[1]["us"]))
        self.box.run("get", bad, "-t", "sm_90a", code=None)
        self.assertEqual(self.log.stat().st_mode & 0o777, 0o600)

    def test_no_line_is_left_out_and_it_is_opened_again(self):
        pid = int(self.box.json("stats")["facts"]["pid"])
        before = len(self.lines(message="Stats"))
        for _ in range(120):  # of one cause the daemon's own log has 100
            self.box.run("stats")
        self.assertEqual(len(self.lines(message="Stats")), before + 120)
        self.log.rename(self.box.path / "old.log")
        os.kill(pid, signal.SIGHUP)
        deadline = time.time() + 20
        while not self.log.exists():
            self.assertLess(time.time(), deadline)
            time.sleep(0.02)
        self.box.run("stats")
        self.assertEqual(len(self.lines(message="Stats")), 1)

    def test_a_file_that_cannot_be_written_is_refused(self):
        self.box.env["QUERN_REQUEST_LOG"] = "/nonexistent/requests.log"
        done = subprocess.run([BUILD / "daemon/quernd", "--foreground"], env=self.box.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/requests.log", done.stderr)


class Reload(unittest.TestCase):
    def setUp(self):
        self.box = Box(QUERN_SEARCHERS="0")
        self.addCleanup(self.box.close)
        self.configure("log-level = debug\n")

    def configure(self, settings):
        self.box.write("quern.conf", "[quernd]\n" + settings)
        self.box.env["QUERN_CONFIG"] = str(self.box.path / "quern.conf")

    def log(self):
        return (self.box.cache / "quernd.log").read_text()

    def test_settings_hold_at_once_or_are_said_to_wait(self):
        self.box.run("stats")
        self.assertIn(" debug event=client ", self.log())
        self.configure("log-format = json\nworkers = 3\n")
        self.assertEqual(self.box.json("reload"), {"changed": ["log-format", "log-level"], "restart": ["workers"]})
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]  # others may follow at any time
        said = [(line["changed"], line["need_a_restart"]) for line in lines if line["event"] == "reloaded"]
        self.assertEqual(said, [("log-format,log-level", "workers")])
        self.box.run("stats")
        self.assertNotIn('"level":"debug"', self.log())
        self.assertEqual(self.box.run("reload").stdout.split("\n")[0].split(), ["changed", "nothing"])

    def test_a_bad_setting_changes_nothing(self):
        self.box.run("stats")
        self.configure("log-level = info\nmax-clients = none\n")
        error = self.box.json("reload", code=2)["error"]
        self.assertEqual(error["code"], "INVALID_ARGUMENT")
        self.assertIn("quern.conf:3: max-clients", error["message"])
        before = self.log().count(" debug event=client ")
        self.box.run("stats")
        self.assertGreater(self.log().count(" debug event=client "), before)

    def test_sighup_does_the_same(self):
        pid = int(self.box.json("stats")["facts"]["pid"])
        self.configure("max-clients = 7\n")
        os.kill(pid, signal.SIGHUP)
        deadline = time.time() + 20
        while 'event=reloaded changed="log-level,max-clients"' not in self.log():
            self.assertLess(time.time(), deadline)
            time.sleep(0.02)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
    def test_a_user_who_may_not_connect_any_more_is_let_go(self):
        self.box.path.chmod(0o755)
        self.configure("allow-uids = 65534\n")
        self.box.run("stats")
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        connect = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('in', flush=True); s.recv(9) or print('out')"
        guest = subprocess.Popen([*nobody, "python3", "-c", connect, self.box.env["QUERN_SOCKET"]], stdout=subprocess.PIPE, text=True)
        self.addCleanup(guest.kill)
        self.assertEqual(guest.stdout.readline(), "in\n")
        self.configure("")
        self.assertIn("allow-uids", self.box.json("reload")["changed"])
        self.assertEqual(guest.communicate(timeout=8)[0], "out\n")
        self.assertEqual(os.stat(self.box.env["QUERN_SOCKET"]).st_mode & 0o777, 0o600)


class Units(unittest.TestCase):
    def test_they_name_settings_that_exist(self):
        text = subprocess.run([BUILD / "daemon/quernd", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        settings = set(re.findall(r"^  --([\w-]+)", text, re.MULTILINE))
        services = sorted((BUILD / "daemon").glob("*.service"))
        self.assertEqual([path.name for path in services], ["quern-system.service", "quernd.service"])
        for path in services:
            unit = configparser.RawConfigParser(strict=False)
            unit.optionxform = str
            unit.read(path)
            program, *arguments = unit["Service"]["ExecStart"].split()
            self.assertTrue(program.startswith("/") and program.endswith("/quernd"), program)
            for argument in arguments:
                self.assertIn(argument[2:].split("=")[0], settings)
            for name in re.findall(r"QUERN_(\w+)=", unit["Service"].get("Environment", "")):
                self.assertIn(name.lower().replace("_", "-"), settings)
            self.assertTrue(path.with_suffix(".socket").exists())


if __name__ == "__main__":
    unittest.main()
