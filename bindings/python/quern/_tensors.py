"""Device tensors of any framework: what they hold and where, by DLPack or __cuda_array_interface__, and directly for PyTorch."""
from __future__ import annotations

import ctypes as c
import functools
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from ._dtypes import FRAMEWORK_NAMES
from ._graph import TensorInfo
from ._library import Caller, QuernError, library

if TYPE_CHECKING:
    from ._description import Description

_ALIGNMENT = 16  # bytes, of every buffer (quern_launch)
_SIZES = {"f16": 2, "bf16": 2, "f32": 4, "i32": 4, "bool": 1}


class Seen(NamedTuple):
    """What a tensor says of itself: strides in elements, the CUDA device, the address; `owner` keeps it alive."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int
    address: int
    owner: Any

    @property
    def bytes(self) -> int:
        spans = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides)]
        return 0 if 0 in self.shape else (1 + sum(spans)) * _SIZES.get(self.dtype, 1)


def wrong(what: str, problem: str) -> QuernError:
    return QuernError("INVALID_ARGUMENT", f"{what} {problem}")


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(extent, 1))
    return tuple(strides[: len(shape)])


# ---- DLPack: https://dmlc.github.io/dlpack/latest/c_api.html


class _DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device", c.c_int32), ("rank", c.c_int32), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("offset", c.c_uint64)]  # a DLManagedTensor begins with one


_DL_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DL_DTYPES = {(2, 16): "f16", (4, 16): "bf16", (2, 32): "f32", (0, 32): "i32", (6, 8): "bool"}  # by DLDataTypeCode and bits
_DL_CODES = {dtype: code for code, dtype in _DL_DTYPES.items()}
_capsule_pointer = c.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [c.py_object, c.c_char_p], c.c_void_p


def _cuda_device(kind: int, device: int, what: str) -> int:
    if kind not in _DL_CUDA:
        raise wrong(what, f"is not in the memory of a CUDA device (DLPack device type {kind})")
    return device


def _by_dlpack(tensor: Any, what: str, stream: int) -> Seen:
    kind, device = tensor.__dlpack_device__()
    _cuda_device(int(kind), device, what)
    # The producer orders its work before that of `stream`. 1 means the default stream there.
    capsule = tensor.__dlpack__(stream=stream or 1)
    held = c.cast(_capsule_pointer(capsule, b"dltensor"), c.POINTER(_DLTensor)).contents
    dtype = _DL_DTYPES.get((held.code, held.bits)) if held.lanes == 1 else None
    if dtype is None:
        raise wrong(what, f"holds elements of DLPack type {held.code} with {held.bits} bits and {held.lanes} lanes")
    shape = tuple(held.shape[: held.rank])
    strides = tuple(held.strides[: held.rank]) if held.strides else dense(shape)
    return Seen(dtype, shape, strides, device, (held.data or 0) + held.offset, capsule)


# ---- https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html

_TYPESTRS = {"<f2": "f16", "<f4": "f32", "<i4": "i32", "|b1": "bool"}


@functools.cache
def _driver() -> c.CDLL:
    driver = c.CDLL(os.environ.get("QUERN_LIBCUDA") or "libcuda.so.1")
    driver.cuEventRecord.argtypes = [c.c_void_p, c.c_void_p]
    driver.cuStreamWaitEvent.argtypes = [c.c_void_p, c.c_void_p, c.c_uint]
    driver.cuEventDestroy_v2.argtypes = [c.c_void_p]
    driver.cuPointerGetAttribute.argtypes = [c.c_void_p, c.c_int, c.c_uint64]
    return driver


def _order(producer: int, stream: int, what: str) -> None:
    """Makes `stream` wait for what the producer's stream has been given. 1 is the default stream, as 0 is."""
    if producer == (stream or 1):
        return
    event = c.c_void_p()
    status = _driver().cuEventCreate(c.byref(event), 2)  # without timing
    if status == 0:
        status = _driver().cuEventRecord(event, producer) or _driver().cuStreamWaitEvent(stream, event, 0)
        _driver().cuEventDestroy_v2(event)
    if status:
        raise QuernError("CUDA", f"{what}: waiting for its stream failed with {status}")


def _device_at(address: int, what: str) -> int:
    device = c.c_int()
    if address and _driver().cuPointerGetAttribute(c.byref(device), 9, address) != 0:  # DEVICE_ORDINAL
        raise wrong(what, f"is at {address:#x}, which the CUDA driver does not know")
    return device.value


def _by_array_interface(tensor: Any, what: str, stream: int, written: bool) -> Seen:
    said = tensor.__cuda_array_interface__
    dtype = _TYPESTRS.get(said["typestr"])
    if dtype is None:
        raise wrong(what, f"holds elements of type {said['typestr']!r}")
    address, read_only = said["data"]
    if read_only and written:
        raise wrong(what, "is read-only")
    if said.get("stream") is not None:
        _order(said["stream"], stream, what)
    shape = tuple(said["shape"])
    strides = said.get("strides")
    strides = tuple(stride // _SIZES[dtype] for stride in strides) if strides else dense(shape)
    return Seen(dtype, shape, strides, _device_at(address or 0, what), address or 0, tensor)


def _is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def device_of(tensor: Any, what: str) -> int:
    """The CUDA device that holds the tensor. INVALID_ARGUMENT."""
    if not _is_torch(tensor) and hasattr(tensor, "__dlpack_device__"):
        kind, device = tensor.__dlpack_device__()
        return _cuda_device(int(kind), device, what)
    return look(tensor, what, 0).device


def look(tensor: Any, what: str, stream: int, written: bool = False) -> Seen:
    """What `tensor` is, ready for work on `stream`. INVALID_ARGUMENT for what is no tensor on a CUDA device."""
    if _is_torch(tensor):
        if tensor.device.type != "cuda":
            raise wrong(what, f"is on the device {tensor.device}, not on a CUDA device")
        name = str(tensor.dtype).rpartition(".")[2]
        known = {other: name for name, other in FRAMEWORK_NAMES.items()}
        return Seen(known.get(name, name), tuple(tensor.shape), tuple(tensor.stride()), tensor.get_device(), tensor.data_ptr(), tensor)
    if hasattr(tensor, "__dlpack__"):
        return _by_dlpack(tensor, what, stream)
    if hasattr(tensor, "__cuda_array_interface__"):
        return _by_array_interface(tensor, what, stream, written)
    raise wrong(what, f"is a {type(tensor).__name__}, which offers neither DLPack nor __cuda_array_interface__")


def check(seen: Seen, info: TensorInfo, what: str, device: int) -> None:
    """That the tensor is what the plan takes. INVALID_ARGUMENT."""
    if seen.dtype != info.dtype:
        raise wrong(what, f"has the dtype {seen.dtype}, the plan takes {info.dtype}")
    if seen.shape != info.shape:
        raise wrong(what, f"has the shape {seen.shape}, the plan takes {info.shape}")
    # The stride of a dimension with one element means nothing.
    steps = [(own, wanted) for own, wanted, extent in zip(seen.strides, info.strides, info.shape) if extent > 1]
    if 0 not in info.shape and any(own != wanted for own, wanted in steps):
        raise wrong(what, f"has the strides {seen.strides}, the plan takes {info.strides}, in elements: copy it, or declare "
                    "the input of the graph with these strides")
    if seen.device != device:
        raise wrong(what, f"is on CUDA device {seen.device}, others on device {device}")
    if info.bytes and not seen.address:
        raise wrong(what, "is a null pointer")
    if seen.address % _ALIGNMENT:
        raise wrong(what, f"begins at {seen.address:#x}, which is not aligned to {_ALIGNMENT} bytes: copy it")


# ---- frameworks, which allocate outputs and workspaces


class Torch:
    """PyTorch."""

    def __init__(self, module: Any):
        self._torch = module
        self.several_devices = module.cuda.device_count() > 1
        raw = getattr(module._C, "_cuda_getCurrentRawStream", None)
        self.stream = raw or (lambda device: module.cuda.current_stream(device).cuda_stream)

    def signature(self, infos: list[TensorInfo], device: int) -> list[Any]:
        """What caller() finds in tensors that fit."""
        return [(getattr(self._torch, FRAMEWORK_NAMES[info.dtype]), info.shape, info.strides, device) for info in infos]

    def empties(self, infos: list[TensorInfo], device: int) -> list[Any]:
        """A function for each of these tensors that allocates it."""
        place = self._torch.device("cuda", device)
        return [functools.partial(self._torch.empty_strided, info.shape, info.strides, dtype=getattr(self._torch, FRAMEWORK_NAMES[info.dtype]),
                                  device=place) for info in infos]

    def quick_caller(self, kind: type, about: Description) -> Any:
        """A function (inputs, out, workspace) that calls the plan and returns its outputs, or None where that is not for it to do. None where
        this PyTorch, or this installation, cannot do that."""
        if Caller is None:
            return None
        inputs, outputs = ([(*_DL_CODES[info.dtype], info.shape, info.strides) for info in infos] for infos in (about.inputs, about.outputs))
        try:
            return Caller(kind, c.cast(library.quern_launch, c.c_void_p).value, about._handle.value, inputs, outputs, about.info.workspace_bytes,
                          functools.partial(self.empties, about.outputs), self._torch.cuda.current_device if self.several_devices else None).call
        except ValueError:
            return None

    def caller(self, inputs: list[TensorInfo], outputs: list[TensorInfo], workspace_bytes: int) -> Any:
        """The same in Python, for what has no quick_caller(): it returns (stream, addresses of the inputs,
        those of the outputs, workspace, outputs, what must live until the launch), or None where each tensor must be looked at."""
        signatures: dict[int, Any] = {}
        empty, scratch, stream, empties = self.empty, self.scratch, self.stream, range(len(outputs))
        one = len(outputs) == 1

        def call(tensors: Any, out: Any, workspace: Any) -> Any:
            seen = [(t.dtype, t.shape, t.stride(), t.get_device()) for t in tensors]
            device = seen[0][3]
            wanted = signatures.get(device)
            if wanted is None:
                wanted = signatures[device] = self.signature(inputs, device), self.signature(outputs, device)
            if seen != wanted[0] or device < 0 or (self.several_devices and not self.is_current(device)):
                return None
            read = [t.data_ptr() for t in tensors]
            if out is None:
                filled = [empty(outputs[i], device) for i in empties]
                written = [t.data_ptr() for t in filled]
            else:
                filled = (out,) if one else out
                if [(t.dtype, t.shape, t.stride(), t.get_device()) for t in filled] != wanted[1]:
                    return None
                written = [t.data_ptr() for t in filled]
                for address in written:
                    if address in read:
                        return None
            kept = None
            if workspace is None and workspace_bytes:
                kept, workspace = scratch(workspace_bytes, device)
            elif workspace is None:
                workspace = 0
            elif type(workspace) is not int:
                return None
            return stream(device), read, written, workspace, filled, kept

        return call

    def empty(self, info: TensorInfo, device: int) -> Any:
        return self._torch.empty(info.shape, dtype=getattr(self._torch, FRAMEWORK_NAMES[info.dtype]), device=device)

    def scratch(self, count: int, device: int) -> tuple[Any, int]:
        buffer = self._torch.empty(count, dtype=self._torch.uint8, device=device)
        return buffer, buffer.data_ptr()

    def on(self, device: int) -> Any:
        return self._torch.cuda.device(device)

    def is_current(self, device: int) -> bool:
        return not self.several_devices or self._torch.cuda.current_device() == device


class Cupy:
    """CuPy. Tensors are looked at by DLPack."""

    def quick_caller(self, *_: Any) -> Any:
        return None

    def caller(self, *_: Any) -> Any:
        return lambda *_: None

    def __init__(self, module: Any):
        self._cupy = module

    def stream(self, device: int) -> int:
        with self.on(device):
            return self._cupy.cuda.get_current_stream().ptr

    def empty(self, info: TensorInfo, device: int) -> Any:
        if info.dtype == "bf16":
            raise QuernError("UNSUPPORTED", f"CuPy has no bf16 for output {info.name}; pass out=")
        with self.on(device):
            return self._cupy.empty(info.shape, dtype=FRAMEWORK_NAMES[info.dtype])

    def scratch(self, count: int, device: int) -> tuple[Any, int]:
        with self.on(device):
            buffer = self._cupy.empty(count, dtype="uint8")
        return buffer, buffer.data.ptr

    def on(self, device: int) -> Any:
        return self._cupy.cuda.Device(device)

    def is_current(self, device: int) -> bool:
        return self._cupy.cuda.runtime.getDevice() == device


_FRAMEWORKS = (("torch", "Tensor", Torch), ("cupy", "ndarray", Cupy))


@functools.cache
def _framework_of_type(kind: type) -> Any:
    for name, tensor, framework in _FRAMEWORKS:
        module = sys.modules.get(name)
        if module is not None and issubclass(kind, getattr(module, tensor)):
            return _made(framework, module)
    return None


@functools.cache
def _made(framework: Any, module: Any) -> Any:
    return framework(module)


def framework_of(tensor: Any) -> Any:
    """Torch, Cupy, or None for a tensor of something that is not asked to allocate."""
    return _framework_of_type(type(tensor))


def stream_number(stream: Any) -> int:
    """A CUstream as a number: an integer, a stream of PyTorch or CuPy, or what has __cuda_stream__."""
    if hasattr(stream, "__cuda_stream__"):
        said = stream.__cuda_stream__
        return (said() if callable(said) else said)[1]
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if not isinstance(stream, int):
        raise wrong("the stream", f"is {stream!r}, which is neither a number nor a CUDA stream")
    return stream
