#!/usr/bin/env python3
"""Runs a test program with a daemon of its own: with_daemon.py DAEMON PROGRAM [ARGUMENT...]

The program finds no daemon, and starts DAEMON by itself. Socket, cache and configuration are in a temporary folder; whatever was
started there is ended afterwards.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time


def daemons_at(socket):
    """Processes that were started with this $QUERN_SOCKET, the program itself excluded."""
    entry = f"QUERN_SOCKET={socket}".encode()
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and int(process.name) != os.getpid():
                if entry in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        except OSError:
            pass  # ended, or not ours
    return found


def end(socket):
    for number in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(100):
            pids = daemons_at(socket)
            if not pids:
                return
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)


def main():
    with tempfile.TemporaryDirectory(prefix="quern-") as folder:
        socket = f"{folder}/run/quernd.sock"
        pathlib.Path(folder, "quern.conf").touch()
        environment = dict(os.environ, QUERN_DAEMON=sys.argv[1], QUERN_SOCKET=socket, QUERN_CACHE_DIR=f"{folder}/cache",
                           QUERN_CONFIG=f"{folder}/quern.conf")
        try:
            result = subprocess.run(sys.argv[2:], env=environment)
        finally:
            end(socket)
        return 0 if result.returncode == 0 else 1


sys.exit(main())
