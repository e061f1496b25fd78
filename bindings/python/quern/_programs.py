"""What a wheel brings beside the module: programs, as commands of its environment, and what programs in C are compiled with."""
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


def pkg_config_path() -> str:
    """The folder for $PKG_CONFIG_PATH with which `pkg-config --cflags --libs quern` finds the header and the library of an installed wheel."""
    folder = pathlib.Path(__file__).resolve().parent / "lib/pkgconfig"
    if not (folder / "quern.pc").exists():
        raise FileNotFoundError(f"{folder} is not there: only an installed wheel has it; a build folder has meson-uninstalled")
    return str(folder)
