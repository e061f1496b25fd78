#!/usr/bin/env python3
"""Plans on tensors: of PyTorch (tests/python/fake_torch.py), by DLPack and by __cuda_array_interface__, with the fake driver. What the
fake driver is told to launch shows which addresses arrived."""
import contextlib
import ctypes
import gc
import os
import re
import sys
import threading
import types
import unittest

ROOT = sys.argv.pop(1)
sys.path[:0] = [os.path.join(ROOT, "bindings/python"), os.path.dirname(os.path.abspath(__file__))]

from fake_torch import Parameter, Tensor, _context, torch  # noqa: E402

import quern  # noqa: E402
from quern import _tensors  # noqa: E402

TEXT = "graph small\nin x: f16[4, 8]\nin w: f16[8, 16] const\ny = rms_norm(x, axis=-1, eps=1e-5)\nz = matmul(y, w)\nout z\n"
cuda = ctypes.CDLL(os.environ["QUERN_LIBCUDA"])
cuda.fake_cuda_log.restype = ctypes.c_char_p


def log():
    lines = cuda.fake_cuda_log().decode()
    cuda.fake_cuda_clear_log()
    return lines


LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64),
                          ctypes.c_void_p, ctypes.c_void_p)


@contextlib.contextmanager
def launches_of(plan):
    """What quern_launch is called with, in place of launching: a list of (stream, inputs, outputs, workspace)."""
    given, count = [], [len(plan.inputs), len(plan.outputs)]
    about, real = plan._about, quern._plan._quern_launch

    @LAUNCH
    def instead(_, stream, inputs, outputs, workspace, __):
        given.append((stream or 0, inputs[:count[0]], outputs[:count[1]], workspace or 0))
        return 0

    def packed(handle, stream, inputs, outputs, *more):
        lists = [ctypes.cast(bytes, ctypes.POINTER(ctypes.c_uint64)) for bytes in (inputs, outputs)]
        return instead(handle.value, stream, *lists, more[0], None)

    def forget():
        about.quick.clear()
        about.callers.clear()

    forget()
    quern._plan._quern_launch, _tensors.library = packed, types.SimpleNamespace(quern_launch=instead)
    try:
        yield given
    finally:
        quern._plan._quern_launch, _tensors.library = real, quern._library.library
        forget()


class DLPack:
    """A tensor of some other framework. `kind` is a DLDeviceType."""

    def __init__(self, shape, code=2, bits=16, strides=None, kind=2, device=0, offset=0):
        self.memory, self.told = torch.empty(4096, dtype=torch.uint8), []
        self.kind, self.device = kind, device
        self.held = _tensors._DLTensor(self.memory.data_ptr(), kind, device, len(shape), code, bits, 1, (ctypes.c_int64 * len(shape))(*shape),
                                       (ctypes.c_int64 * len(shape))(*strides) if strides else None, offset)

    def __dlpack_device__(self):
        return self.kind, self.device

    def __dlpack__(self, stream=None):
        self.told.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        return new(ctypes.addressof(self.held), b"dltensor", None)


class Cuda:
    """The interface of Numba."""

    def __init__(self, shape, typestr="<f2", strides=None, stream=None, read_only=False):
        self.memory = torch.empty(4096, dtype=torch.uint8)
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "strides": strides, "stream": stream, "version": 3,
                                         "data": (self.memory.data_ptr(), read_only)}


def tensor(shape, dtype=torch.float16, kind=Tensor, strides=None, device=0, offset=0):
    dense = torch.empty(shape, dtype=dtype)
    return kind(shape, dtype, strides or dense.stride(), device, dense._memory, offset)


class Plans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = quern.Client()
        cls.plan = cls.client.get(quern.Graph.parse(TEXT), "sm_90a")

    def setUp(self):
        torch.stream = 0
        gc.collect()
        log()

    def assert_fails(self, text, *inputs, status="INVALID_ARGUMENT", **named):
        for _ in range(2):  # slowly, and as a call that is known
            with self.assertRaises(quern.QuernError) as raised:
                self.plan(*inputs, **named)
            self.assertEqual(raised.exception.status, status)
            self.assertIn(text, str(raised.exception))
        self.assertEqual(log().count("launch "), 0)

    def assert_launched(self, result):
        self.assertEqual(log().count("launch "), len(self.plan.launches))
        return result

    def good(self, kind=Tensor):
        return tensor((4, 8), kind=kind), tensor((8, 16), kind=kind)

    def test_outputs_and_workspace_are_pytorchs(self):
        for _ in range(3):
            z = self.assert_launched(self.plan(*self.good()))
            self.assertIsInstance(z, Tensor)
            self.assertEqual((z.dtype, z.shape, z.get_device()), (torch.float16, (4, 16), 0))
        self.assert_launched(self.plan(*self.good(Parameter)))
        x, w = self.good()
        out, scratch = tensor((4, 16)), torch.empty(1 << 16, dtype=torch.uint8)
        for workspace in (scratch, scratch.data_ptr(), scratch):
            self.assertIs(self.assert_launched(self.plan(x, w, out=out, workspace=workspace)), out)
        self.assertEqual(self.assert_launched(self.plan(x, w, out=[out])), out)

    def test_quick_calls_pass_the_same_addresses(self):
        text = "graph s\nin x: f32[16, 32]\nin y: f32[16, 32]\na = add(x, y)\nb = sub(x, y)\nout a, b\n"
        plan = self.client.get(quern.Graph.parse(text), "sm_90a")
        x, y, a, b = (tensor((16, 32), torch.float32) for _ in range(4))
        scratch = torch.empty(max(plan.info.workspace_bytes, 256), dtype=torch.uint8)
        at = scratch.data_ptr()
        with launches_of(plan) as given:
            for _ in range(2):
                self.assertEqual(plan(x, y, out=(a, b), workspace=at), (a, b))
            self.assertEqual(plan._about.quick[Tensor] is not None, "FAKE_TORCH_EXCHANGE" in os.environ)
            self.assertEqual(plan.bind(x, y, out=(a, b), workspace=at)(), (a, b))
            plan.launch([x.data_ptr(), y.data_ptr()], [a.data_ptr(), b.data_ptr()], at)
            self.assertEqual(plan(x, y, out=(a, b), workspace=at, stream=7), (a, b))
            made = plan(x, y)
        addresses = [[t.data_ptr() for t in tensors] for tensors in ((x, y), (a, b))]
        self.assertEqual(given[:5], [(0, *addresses, at)] * 4 + [(7, *addresses, at)])
        self.assertEqual(given[5][:3], (0, addresses[0], [t.data_ptr() for t in made]))

    def test_memory_of_quick_calls_goes(self):
        x, w = self.good()
        self.plan(x, w)
        log()
        for _ in range(3):
            z = self.plan(x, w)
        self.assertEqual(log().count("free\n"), 5)  # three workspaces, two outputs
        del z
        self.assertEqual(log(), "free\n")

    def test_calls_from_threads(self):
        x, w = self.good()
        self.plan(x, w)
        log()
        failed = []

        def work():
            try:
                cuda.cuCtxSetCurrent(_context)
                for _ in range(200):
                    self.assertEqual(self.plan(x, w).shape, (4, 16))
            except BaseException as problem:
                failed.append(problem)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertEqual(log().count("launch "), 800 * len(self.plan.launches))

    def test_bound_calls(self):
        launch = self.plan.bind(*self.good())
        gc.collect()
        self.assertIs(self.assert_launched(launch()), self.assert_launched(launch()))

    def test_what_does_not_fit_is_named(self):
        x, w = self.good()
        self.plan(x, w)  # from now on calls are quick
        log()
        self.assert_fails("the plan takes 2 inputs (x, w), not 1", x)
        self.assert_fails("the plan takes 1 outputs (z), not 2", x, w, out=[x, w])
        self.assert_fails("input 0 (x) has the dtype f32, the plan takes f16", tensor((4, 8), torch.float32), w)
        self.assert_fails("input 0 (x) has the dtype float64", tensor((4, 8), torch.float64), w)
        self.assert_fails("input 1 (w) has the shape (8, 15), the plan takes (8, 16)", x, tensor((8, 15)))
        self.assert_fails("input 1 (w) has the strides (1, 8), the plan takes (16, 1)", x, tensor((8, 16), strides=(1, 8)))
        self.assert_fails("input 0 (x) is on the device cpu, not on a CUDA device", tensor((4, 8), device=-1), w)
        self.assert_fails("input 1 (w) is on the device cpu", x, tensor((8, 16), device=-1))
        self.assert_fails("input 1 (w) is on CUDA device 1, others on device 0", x, tensor((8, 16), device=1))
        self.assert_fails("output 0 (z) has the shape (4, 15)", x, w, out=tensor((4, 15)))
        self.assert_fails("input 1 (w) is a list, which offers neither DLPack nor", x, [1])
        self.assert_fails("input 0 (x) is a int", 1, w)
        self.assert_fails("pass out= and workspace= too", x, w, stream=4)
        self.assert_fails("the stream is 'a'", x, w, out=tensor((4, 16)), workspace=1 << 20, stream="a")
        self.assert_fails("the workspace holds 16 bytes", x, w, workspace=torch.empty(16, dtype=torch.uint8))
        if not self.plan.info.workspace_bytes:
            self.fail("a plan with a workspace is needed here")

    def test_misaligned_and_shared_buffers(self):
        x, w = self.good()
        for _ in range(2):
            with self.assertRaisesRegex(quern.QuernError, r"input 1 \(w\) begins at 0x\w+, which is not aligned to 16 bytes"):
                self.plan(x, tensor((8, 16), offset=2))
        square = self.client.get(quern.Graph.parse("graph q\nin x: f32[64]\ny = exp(x)\nout y\n"), "sm_90a")
        t = tensor((64,), torch.float32)
        for _ in range(2):
            with self.assertRaisesRegex(quern.QuernError, r"output 0 \(y\) is the same buffer as input 0 \(x\)"):
                square(t, out=t)
            square(t)

    def test_strides_of_single_elements_mean_nothing(self):
        plan = self.client.get(quern.Graph.parse("graph o\nin x: f32[1, 64]\ny = exp(x)\nout y\n"), "sm_90a")
        for strides in ((64, 1), (1, 1), (7, 1)):
            plan(tensor((1, 64), torch.float32, strides=strides))
        self.assertEqual(log().count("launch "), 3)

    def test_the_stream_is_the_current_one(self):
        stream = ctypes.c_void_p()
        self.assertEqual(cuda.cuStreamCreate(ctypes.byref(stream), 1), 0)
        torch.stream = stream.value
        with launches_of(self.plan) as given:
            for _ in range(3):
                self.plan(*self.good())
        self.assertEqual([launch[0] for launch in given], [stream.value] * 3)
        for _ in range(2):
            self.assert_launched(self.plan(*self.good()))

    def test_dlpack(self):
        x, w, z = DLPack((4, 8)), DLPack((8, 16), strides=(16, 1)), DLPack((4, 16))
        scratch = DLPack((1 << 12,), code=1, bits=8)
        self.assert_fails("DLPack type 1 with 8 bits", x, w, out=z, workspace=scratch)
        at = torch.empty(1 << 16, dtype=torch.uint8)
        x.told.clear()
        self.assertIs(self.assert_launched(self.plan(x, w, out=z, workspace=at)), z)
        self.assertEqual(x.told, [1])  # the default stream, as DLPack calls it
        self.assert_launched(self.plan(x, tensor((8, 16)), out=z, workspace=at))
        self.assert_launched(self.plan(tensor((4, 8)), w))
        self.assert_fails("only PyTorch and CuPy are asked to allocate: pass out=", x, w)
        self.assert_fails("input 0 (x) is not in the memory of a CUDA device (DLPack device type 1)", DLPack((4, 8), kind=1), w, out=z, workspace=at)
        self.assert_fails("input 1 (w) is on CUDA device 1", x, DLPack((8, 16), device=1), out=z, workspace=at)
        self.assert_fails("input 0 (x) has the dtype bf16", DLPack((4, 8), code=4), w, out=z, workspace=at)
        self.assert_fails("elements of DLPack type 2 with 64 bits", DLPack((4, 8), bits=64), w, out=z, workspace=at)
        self.assert_fails("which is not aligned to 16 bytes", DLPack((4, 8), offset=8), w, out=z, workspace=at)

    def test_cuda_array_interface(self):
        x, w, z = Cuda((4, 8)), Cuda((8, 16), strides=(32, 2), stream=1), Cuda((4, 16))
        at = torch.empty(1 << 16, dtype=torch.uint8).data_ptr()
        self.assert_launched(self.plan(x, w, out=z, workspace=at))
        stream = ctypes.c_void_p()
        self.assertEqual(cuda.cuStreamCreate(ctypes.byref(stream), 1), 0)
        self.plan(Cuda((4, 8), stream=stream.value), w, out=z, workspace=at)
        self.assertRegex(log(), "wait for an event(.|\n)*launch")
        self.assert_fails("output 0 (z) is read-only", x, w, out=Cuda((4, 16), read_only=True), workspace=at)
        self.assert_fails("input 0 (x) holds elements of type '<f8'", Cuda((4, 8), "<f8"), w, out=z, workspace=at)
        self.assert_fails("input 1 (w) has the strides (1, 8)", x, Cuda((8, 16), strides=(2, 16)), out=z, workspace=at)

    def test_plans_without_inputs_need_outputs(self):
        plan = self.client.get(quern.Graph.parse("graph i\ny = iota(shape=[8])\nout y\n"), "sm_90a")
        with self.assertRaisesRegex(quern.QuernError, "the plan takes no inputs.*pass out="):
            plan()
        plan(out=tensor((8,), torch.int32))
        self.assertEqual(log().count("launch "), len(plan.launches))

    def test_names_are_those_of_the_graph(self):
        other = self.client.get(quern.Graph.parse(re.sub(r"\bx\b", "tokens", TEXT)), "sm_90a")
        self.assertEqual(other.info.key, self.plan.info.key)
        self.assertEqual([[info.name for info in plan.inputs] for plan in (self.plan, other)], [["x", "w"], ["tokens", "w"]])


if __name__ == "__main__":
    unittest.main()
