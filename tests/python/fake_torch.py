"""As much of PyTorch as the package asks for, with the fake driver's memory: importing this makes `import torch` find it.

A tensor here costs in Python what one of PyTorch costs in C++, so that calls of plans can be timed with them."""
import ctypes
import math
import os
import sys
import types

_cuda = ctypes.CDLL(os.environ["QUERN_LIBCUDA"])
_cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
_context = ctypes.c_void_p()
assert _cuda.cuDevicePrimaryCtxRetain(ctypes.byref(_context), 0) == 0
assert _cuda.cuCtxSetCurrent(_context) == 0


class _Dtype:
    def __init__(self, name, size):
        self.name, self.size = name, size

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


class Tensor:
    __slots__ = ("dtype", "shape", "_strides", "_device", "_address", "_memory")

    def __init__(self, shape, dtype, strides, device, memory, offset=0):
        self.dtype, self.shape, self._strides, self._device, self._memory = dtype, Size(shape), strides, device, memory
        self._address = memory.address + offset

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
    strides = tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))
    return Tensor(shape, dtype, strides, device, _Memory(math.prod(shape) * dtype.size))


class _Stream:
    def __init__(self, number):
        self.cuda_stream = number


torch = types.ModuleType("torch")
for _name, _size in (("float16", 2), ("bfloat16", 2), ("float32", 4), ("float64", 8), ("int32", 4), ("uint8", 1), ("bool", 1)):
    setattr(torch, _name, _Dtype(_name, _size))
torch.Tensor, torch.Size, torch.empty = Tensor, Size, empty
torch.cuda = types.SimpleNamespace(device_count=lambda: 1, current_stream=lambda device: _Stream(torch.stream), current_device=lambda: 0)
torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: torch.stream)
torch.stream = 0  # CUstream that is current
sys.modules["torch"] = torch
