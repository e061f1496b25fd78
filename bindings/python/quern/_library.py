"""libquern by ctypes: where it is found, the structs of quern.h, and the prototypes of the functions used here."""
from __future__ import annotations

import _thread
import ctypes as c
import importlib.machinery
import importlib.util
import os
import pathlib
import threading
from typing import Any, Callable

OK, PENDING = 0, 1
NO_START = 1  # of quern_open
NO_WAIT, NO_COMPILE, REFRESH, NO_REQUEST = 1, 2, 4, 8  # of quern_get


class Error(c.Structure):
    _fields_ = [("status", c.c_int32), ("message", c.c_char * 2044)]


class Sized(c.Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(type(self)), **fields)


class Tensor(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("dtype", c.c_int32), ("rank", c.c_int32),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("bytes", c.c_uint64)]


class Attr(c.Structure):
    _fields_ = [("name", c.c_char_p), ("kind", c.c_int32), ("reserved", c.c_int32), ("integer", c.c_int64),
                ("number", c.c_double), ("ints", c.POINTER(c.c_int64)), ("count", c.c_size_t)]


class OpenOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("flags", c.c_uint32), ("timeout_ms", c.c_uint32), ("socket", c.c_char_p),
                ("daemon", c.c_char_p), ("max_plans", c.c_uint32), ("look_every_ms", c.c_uint32)]


class GetOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("flags", c.c_uint32), ("numerics", c.c_uint32), ("timeout_ms", c.c_uint32),
                ("priority", c.c_uint32), ("constraints", c.c_char_p), ("min_tier", c.c_int32)]


class PlanInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("key", c.c_char_p), ("target", c.c_char_p), ("tier", c.c_int32),
                ("origin", c.c_int32), ("generation", c.c_uint64), ("cubin", c.c_void_p), ("cubin_size", c.c_size_t),
                ("workspace_bytes", c.c_uint64), ("input_count", c.c_size_t), ("output_count", c.c_size_t),
                ("launch_count", c.c_size_t), ("certificate", c.c_char_p), ("warning", c.c_char_p),
                ("daemon_ns", c.c_uint64), ("queue_ns", c.c_uint64), ("emit_ns", c.c_uint64), ("compile_ns", c.c_uint64)]


class LaunchArg(c.Structure):
    _fields_ = [("kind", c.c_int32), ("reserved", c.c_int32), ("value", c.c_int64)]


class LaunchInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("kernel", c.c_char_p), ("grid", c.c_uint32 * 3), ("block", c.c_uint32 * 3),
                ("cluster", c.c_uint32 * 3), ("shared_bytes", c.c_uint32), ("args", c.POINTER(LaunchArg)),
                ("arg_count", c.c_size_t), ("overlaps", c.c_uint32)]


class TensorMap(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("buffer", LaunchArg), ("dtype", c.c_int32), ("rank", c.c_int32),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("box", c.POINTER(c.c_int64)),
                ("swizzle", c.c_uint32)]


class Stat(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("text", c.c_char_p), ("value", c.c_uint64)]


def _load():
    """$QUERN_LIBRARY, else the library of the wheel, build folder or bundle that holds this package, else the loader's search."""
    named = os.environ.get("QUERN_LIBRARY")
    if named:
        return c.CDLL(named)
    here = pathlib.Path(__file__).resolve().parent
    places = [here / "lib", *(here.parents[2] / folder for folder in ("build/capi", "lib"))]
    for place in places:
        if (place / "libquern.so.0").exists():
            return c.CDLL(str(place / "libquern.so.0"))
    try:
        return c.CDLL("libquern.so.0")
    except OSError as problem:
        raise ImportError(f"libquern.so.0 was found neither in {', '.join(map(str, places))} nor by the loader ({problem}); "
                          "build Quern, install it, or set QUERN_LIBRARY to the file") from None


library = _load()


def _load_caller():
    """calls.cc, which is in a wheel, or in the build folder that the library is in. Without it calls of plans take some microseconds more."""
    try:
        from ._calls import Caller  # type: ignore[import-not-found]
        return Caller
    except ImportError:
        pass
    place = pathlib.Path(library._name).parent.parent / "bindings/python/_calls.abi3.so"
    try:
        loader = importlib.machinery.ExtensionFileLoader("quern._calls", str(place))
        module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("quern._calls", loader, origin=str(place)))
        loader.exec_module(module)
        return module.Caller
    except ImportError:
        return None


Caller = _load_caller()
_handle, _out, _error = c.c_void_p, c.POINTER(c.c_void_p), c.POINTER(Error)
_ints, _value = c.POINTER(c.c_int64), c.POINTER(c.c_int32)

# Functions that return a quern_status and take a quern_error last; `call` adds it.
_CHECKED = {
    "quern_open": [c.POINTER(OpenOptions), _out],
    "quern_process": [_handle, c.POINTER(c.c_uint64)],
    "quern_graph_new": [c.c_char_p, _out],
    "quern_graph_parse": [c.c_char_p, c.c_size_t, _out],
    "quern_graph_input": [_handle, c.c_char_p, c.c_int32, c.c_int32, _ints, _ints, c.c_uint32, _value],
    "quern_graph_constant": [_handle, c.c_double, c.c_int32, _value],
    "quern_graph_op": [_handle, c.c_char_p, _value, c.c_size_t, c.POINTER(Attr), c.c_size_t, c.c_char_p, _value],
    "quern_graph_output": [_handle, c.c_int32],
    "quern_graph_value": [_handle, c.c_int32, c.POINTER(Tensor)],
    "quern_graph_text": [_handle, c.POINTER(c.c_char_p), c.POINTER(c.c_size_t)],
    "quern_prewarm": [_handle, _out, c.c_size_t, c.c_char_p, c.POINTER(GetOptions), _value],
    "quern_get": [_handle, _handle, c.c_char_p, c.POINTER(GetOptions), _out],
    "quern_plan_describe": [_handle, c.POINTER(PlanInfo)],
    "quern_plan_input": [_handle, c.c_size_t, c.POINTER(Tensor)],
    "quern_plan_output": [_handle, c.c_size_t, c.POINTER(Tensor)],
    "quern_plan_tensor_map": [_handle, c.c_size_t, c.POINTER(TensorMap)],
    "quern_plan_launch": [_handle, c.c_size_t, c.POINTER(LaunchInfo)],
    "quern_plan_prepare": [_handle, c.c_void_p],
    "quern_launch": [_handle, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p],
    "quern_device_target": [c.c_int, c.POINTER(c.c_char_p)],
    "quern_stats_get": [_handle, c.c_uint32, _out],
    "quern_stats_at": [_handle, c.c_size_t, c.POINTER(Stat)],
}
for _name, _parameters in _CHECKED.items():
    _function = getattr(library, _name)
    _function.argtypes, _function.restype = _parameters + [_error], c.c_int32
for _name in ("quern_cancel", "quern_close", "quern_graph_free", "quern_plan_release", "quern_stats_free"):
    _function = getattr(library, _name)
    _function.argtypes, _function.restype = [_handle], None
library.quern_status_name.argtypes, library.quern_status_name.restype = [c.c_int32], c.c_char_p
library.quern_plan_retain.argtypes, library.quern_plan_retain.restype = [_handle], c.c_void_p
library.quern_fd.argtypes, library.quern_fd.restype = [_handle], c.c_int
library.quern_plan_outdated.argtypes, library.quern_plan_outdated.restype = [_handle, _handle], c.c_int
library.quern_stats_count.argtypes, library.quern_stats_count.restype = [_handle], c.c_size_t
library.quern_version.argtypes, library.quern_version.restype = [], c.c_uint32


class QuernError(Exception):
    """What a call failed with: `status` is the name of the code ("INVALID_GRAPH"), the text says what to do."""

    def __init__(self, status: str, message: str):
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message
        self.statuses: list[str] = []  # of Client.prewarm, one for each graph

    def __reduce__(self) -> tuple:
        return QuernError, (self.status, self.message)


class _Errors(threading.local):
    """One quern_error for each thread, which is written on failures only: making its 2 KiB anew costs more than most calls."""

    def __init__(self) -> None:
        self.error = Error()
        self.reference = c.byref(self.error)


errors = _Errors()


def checked(status: int) -> int:
    """The status of the call that this thread made last with errors.reference: OK or PENDING; everything else is raised."""
    if status not in (OK, PENDING):
        raise QuernError(library.quern_status_name(status).decode(), errors.error.message.decode(errors="replace"))
    return status


def call(name: str, *arguments: Any) -> int:
    return checked(getattr(library, name)(*arguments, errors.reference))


def call_interruptibly(cancel: Callable[[], object] | None, name: str, *arguments: Any) -> int:
    """call() for functions that wait. Signals are handled in the main thread, between its instructions: there the call is made by
    another thread, so that KeyboardInterrupt comes at once. `cancel` then ends the wait; without one it goes on unheard."""
    if threading.current_thread() is not threading.main_thread():
        return call(name, *arguments)
    outcome: list[Any] = []
    done = _thread.allocate_lock()
    done.acquire()

    def run() -> None:
        try:
            outcome.append(call(name, *arguments))
        except BaseException as problem:
            outcome.append(problem)
        done.release()

    _thread.start_new_thread(run, ())
    try:
        done.acquire()
    except BaseException:
        # Again and again: what is cancelled are calls under way, and this one may not have begun.
        while cancel and not done.acquire(timeout=0.02):
            cancel()
        raise
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
