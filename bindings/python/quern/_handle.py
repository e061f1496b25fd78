"""Handles of libquern as Python objects."""
from __future__ import annotations

import ctypes as c
from typing import Any, NoReturn

from . import _library as lib


def made(name: str, *arguments: Any) -> c.c_void_p:
    """The handle that a function of quern.h hands out as its last argument but the error."""
    handle = c.c_void_p()
    lib.call(name, *arguments, c.byref(handle))
    return handle


class Owner:
    """Holds a handle and ends it when it is closed, or when the object goes. Copies would end it twice, and another process
    cannot use it: neither copying nor pickling works."""

    _end = ""       # name of the function that ends the handle
    _advice = ""    # what to do instead of copying

    def __init__(self, handle: c.c_void_p):
        self._open_handle: c.c_void_p | None = handle

    @property
    def _handle(self) -> c.c_void_p:
        if self._open_handle is None:
            raise lib.QuernError("INVALID_ARGUMENT", f"the {type(self).__name__.lower()} is closed")
        return self._open_handle

    def close(self) -> None:
        """Ends the handle; a second time does nothing. No other thread may be using it."""
        handle, self._open_handle = getattr(self, "_open_handle", None), None
        if handle is not None and lib:  # the module may be gone when the interpreter ends
            getattr(lib.library, self._end)(handle)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> NoReturn:
        raise TypeError(f"a quern.{type(self).__name__} can be neither copied nor pickled; {self._advice}")

    def __deepcopy__(self, _: object) -> NoReturn:
        self.__copy__()

    def __reduce_ex__(self, _: object) -> NoReturn:
        self.__copy__()
