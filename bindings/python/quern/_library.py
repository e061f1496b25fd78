"""libquern by ctypes: where it is found, the structs of quern.h, and the prototypes of the functions used here."""
import ctypes as c
import os
import pathlib

OK, PENDING, INVALID_ARGUMENT = 0, 1, 2


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
    """$QUERN_LIBRARY, else the library of a build or installation that holds this package, else the loader's search."""
    named = os.environ.get("QUERN_LIBRARY")
    if named:
        return c.CDLL(named)
    here = pathlib.Path(__file__).resolve().parent
    for place in (here, here.parents[2] / "build/capi"):
        if (place / "libquern.so.0").exists():
            return c.CDLL(str(place / "libquern.so.0"))
    return c.CDLL("libquern.so.0")


library = _load()
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
    "quern_get": [_handle, _handle, c.c_char_p, c.POINTER(GetOptions), _out],
    "quern_plan_describe": [_handle, c.POINTER(PlanInfo)],
    "quern_plan_input": [_handle, c.c_size_t, c.POINTER(Tensor)],
    "quern_plan_output": [_handle, c.c_size_t, c.POINTER(Tensor)],
    "quern_plan_tensor_map": [_handle, c.c_size_t, c.POINTER(TensorMap)],
    "quern_plan_launch": [_handle, c.c_size_t, c.POINTER(LaunchInfo)],
    "quern_plan_prepare": [_handle, c.c_void_p],
    "quern_launch": [_handle, c.c_void_p, _out, _out, c.c_void_p],
    "quern_device_target": [c.c_int, c.POINTER(c.c_char_p)],
    "quern_stats_get": [_handle, c.c_uint32, _out],
    "quern_stats_at": [_handle, c.c_size_t, c.POINTER(Stat)],
}
for _name, _parameters in _CHECKED.items():
    _function = getattr(library, _name)
    _function.argtypes, _function.restype = _parameters + [_error], c.c_int32
for _name in ("quern_close", "quern_graph_free", "quern_plan_release", "quern_stats_free"):
    _function = getattr(library, _name)
    _function.argtypes, _function.restype = [_handle], None
library.quern_status_name.argtypes, library.quern_status_name.restype = [c.c_int32], c.c_char_p
library.quern_fd.argtypes, library.quern_fd.restype = [_handle], c.c_int
library.quern_plan_outdated.argtypes, library.quern_plan_outdated.restype = [_handle, _handle], c.c_int
library.quern_stats_count.argtypes, library.quern_stats_count.restype = [_handle], c.c_size_t
library.quern_version.argtypes, library.quern_version.restype = [], c.c_uint32


class QuernError(Exception):
    """What a call failed with: `status` is the name of the code ("INVALID_GRAPH"), the text says what to do."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


def call(name, *arguments):
    """The status, which is OK or PENDING; everything else is raised."""
    error = Error()
    status = getattr(library, name)(*arguments, c.byref(error))
    if status not in (OK, PENDING):
        raise QuernError(library.quern_status_name(status).decode(), error.message.decode(errors="replace"))
    return status
