"""As much of PyTorch as the package asks for, with the fake driver's memory: importing this makes `import torch` find it.

A tensor here costs in Python what one of PyTorch costs in C++, so that calls of plans can be timed with them."""
import ctypes
import math
import os
import sys
import types

_cuda = ctypes.CDLL(os.environ["QUERN_LIBCUDA"])
_cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
if "FAKE_TORCH_EXCHANGE" in os.environ:  # as PyTorch from 2.10 on
    import importlib.machinery
    import importlib.util
    _loader = importlib.machinery.ExtensionFileLoader("fake_exchange", os.environ["FAKE_TORCH_EXCHANGE"])
    _exchange = importlib.util.module_from_spec(importlib.util.spec_from_loader("fake_exchange", _loader))
    _loader.exec_module(_exchange)
else:
    _exchange = None
_context = ctypes.c_void_p()
assert _cuda.cuDevicePrimaryCtxRetain(ctypes.byref(_context), 0) == 0
assert _cuda.cuCtxSetCurrent(_context) == 0


class _Dtype:
    def __init__(self, name, size, code):
        self.name, self.size, self.code = name, size, code

    def __repr__(self):
        return f"torch.{self.name}"


class _Device:
    def __init__(self, type, index):
        self.type, self.index = type, index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Size(tuple):
    pass


class _Memory:
    def __init__(self, count):
        address = ctypes.c_uint64()
        assert _cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(count, 1))) == 0
        self.address = address.value

    def __del__(self):
        _cuda.cuMemFree_v2(self.address)


class _Described(ctypes.Structure):  # a DLTensor
    _fields_ = [("data", ctypes.c_uint64), ("kind", ctypes.c_int32), ("device", ctypes.c_int32), ("rank", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


class Tensor:
    __slots__ = ("dtype", "shape", "_strides", "_device", "_address", "_memory", "_dl", "_described")
    if _exchange:
        __dlpack_c_exchange_api__ = _exchange.api

    def __init__(self, shape, dtype, strides, device, memory, offset=0):
        self.dtype, self.shape, self._strides, self._device, self._memory = dtype, Size(shape), strides, device, memory
        self._address = memory.address + offset
        if _exchange:
            lists = [(ctypes.c_int64 * len(shape))(*values) for values in (shape, strides)]
            described = _Described(memory.address, 2 if device >= 0 else 1, max(device, 0), len(shape), dtype.code, 8 * dtype.size, 1,
                                   *map(ctypes.addressof, lists), offset)
            self._described, self._dl = (described, lists), ctypes.addressof(described)

    def stride(self):
        return self._strides

    def get_device(self):
        return self._device

    def data_ptr(self):
        return self._address

    @property
    def device(self):
        return _Device("cuda", self._device) if self._device >= 0 else _Device("cpu", None)


class Parameter(Tensor):
    __slots__ = ()


def empty(shape, dtype=None, device=0):
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return empty_strided(shape, tuple(math.prod(shape[i + 1:]) for i in range(len(shape))), dtype, device)


def empty_strided(shape, strides, dtype=None, device=0):
    return Tensor(shape, dtype, strides, getattr(device, "index", device), _Memory(math.prod(shape) * dtype.size))


class _Stream:
    def __init__(self, number):
        self.cuda_stream = number


torch = types.ModuleType("torch")
for _name, _size, _code in (("float16", 2, 2), ("bfloat16", 2, 4), ("float32", 4, 2), ("float64", 8, 2), ("int32", 4, 0), ("uint8", 1, 1), ("bool", 1, 6)):
    setattr(torch, _name, _Dtype(_name, _size, _code))
torch.Tensor, torch.Size, torch.empty, torch.empty_strided, torch.device = Tensor, Size, empty, empty_strided, _Device
torch.cuda = types.SimpleNamespace(device_count=lambda: 1, current_stream=lambda device: _Stream(torch.stream), current_device=lambda: 0)
torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: torch.stream)
torch.stream = 0  # CUstream that is current
sys.modules["torch"] = torch
