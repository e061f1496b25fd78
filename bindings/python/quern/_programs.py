"""The programs that a wheel brings, as commands of its environment."""
import os
import pathlib
import sys


def _become(name: str) -> None:
    program = pathlib.Path(__file__).resolve().parent / "bin" / name
    if not program.exists():
        sys.exit(f"{program} is not there: only an installed wheel has the programs; in a build folder they lie in tools/ and daemon/")
    os.execv(program, [str(program), *sys.argv[1:]])


def quern() -> None:
    _become("quern")


def quernd() -> None:
    _become("quernd")
