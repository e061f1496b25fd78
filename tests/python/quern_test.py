#!/usr/bin/env python3
"""The Python package against the daemon that $QUERN_DAEMON names, with the fake libcuda as driver. No GPU is needed."""
import ctypes
import os
import re
import select
import sys
import unittest

ROOT = sys.argv.pop(1)
sys.path.insert(0, os.path.join(ROOT, "bindings/python"))

import quern  # noqa: E402
from quern import _library as lib  # noqa: E402

TEXT = "graph small\nin x: f16[4, 8]\nin w: f16[8, 16] const\ny = rms_norm(x, axis=-1, eps=1e-5)\nz = matmul(y, w)\nout z\n"


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = quern.Client()

    def assert_fails(self, status, text, call, *arguments, **named):
        with self.assertRaises(quern.QuernError) as raised:
            call(*arguments, **named)
        self.assertEqual(raised.exception.status, status)
        self.assertIn(text, str(raised.exception))

    def test_builds_a_graph(self):
        graph = quern.Graph("built")
        x = graph.input("x", "f16", [4, 8])
        w = graph.input("w", "f16", [8, 16], strides=[1, 8], const=True)
        n = graph.op("rms_norm", x, axis=-1, eps=1e-5)
        z = graph.op("mul", graph.op("matmul", n, w), graph.constant(2), name="z")
        s = graph.op("sum", z, axis=[0, 1], keepdims=True)
        graph.output(z)
        graph.output(graph.op("cast", s, dtype="f32"))
        self.assertEqual(graph.describe(z)[:4], ("z", "f16", (4, 16), (16, 1)))
        self.assertEqual(graph.describe(w).strides, (1, 8))
        self.assertIn("keepdims=true", graph.text)
        self.assertEqual(quern.Graph.parse(graph.text).text, graph.text)

    def test_numbers_are_constants(self):
        graph = quern.Graph("numbers")
        x = graph.input("x", "f32", [3])
        y = graph.input("y", "f32", [3])
        one = graph.op("mul", x, 1, name="one")  # y, if 1 meant a value
        half = graph.op("mul", 0.5, y, name="half")
        flag = graph.op("add", one, True, name="flag")
        for value in (one, half, flag):
            graph.output(value)
        self.assertIn("one = mul(x, 1)", graph.text)
        self.assertIn("half = mul(0.5, y)", graph.text)
        self.assertIn("flag = add(one, 1)", graph.text)
        self.assertNotIsInstance(x, int)
        self.assertEqual(graph.value(0), x)
        self.assertNotEqual(x, 0)
        self.assert_fails("INVALID_ARGUMENT", "is 'x', which is no value", graph.op, "neg", "x")
        self.assert_fails("INVALID_ARGUMENT", "operand 1 of mul is a value of another graph", graph.op, "mul", x,
                          quern.Graph().input("x", "f32", [3]))
        self.assert_fails("INVALID_ARGUMENT", "the output is 1", graph.output, 1)
        self.assert_fails("NOT_FOUND", "99", graph.value, 99)
        self.assert_fails("NOT_FOUND", "-1", graph.value, -1)

    def test_numbers_of_numpy_are_constants(self):
        class Scalar:  # as numpy's are: neither int nor float
            shape = ()

            def __init__(self, number):
                self.number = number

            def item(self):
                return self.number

        scalars = [Scalar(2), Scalar(0.25), Scalar(True)]
        try:
            import numpy
            scalars += [numpy.int64(2), numpy.float16(0.25), numpy.bool_(True)]
        except ImportError:
            pass
        for two, quarter, true in zip(scalars[::3], scalars[1::3], scalars[2::3]):
            graph = quern.Graph("scalars")
            x = graph.input("x", "f32", [3])
            y = graph.op("add", graph.op("mul", x, quarter, name="a"), true, name="b")
            graph.output(graph.op("sum", graph.op("pow", y, two, name="c"), axis=Scalar(0), name="d"))
            self.assertIn("a = mul(x, 0.25)\nb = add(a, 1)\nc = pow(b, 2)\nd = sum(c, axis=[0]", graph.text)

    def test_says_what_is_wrong(self):
        self.assert_fails("INVALID_GRAPH", "2:", quern.Graph.parse, "graph g\nin x: f17[4]\nout x\n")
        graph = quern.Graph()
        x = graph.input("x", "f32", [3])
        self.assert_fails("INVALID_GRAPH", "no operator", graph.op, "nonsense", x)
        self.assert_fails("INVALID_GRAPH", "axis takes", graph.op, "softmax", x, axis=True)
        self.assert_fails("INVALID_ARGUMENT", "no dtype", graph.input, "y", "f17", [3])
        self.assert_fails("UNSUPPORTED", "sm_none", self.client.get, quern.Graph.parse(TEXT), "sm_none")

    def test_gets_a_plan(self):
        plan = self.client.get(quern.Graph.parse(TEXT), "sm_90a")
        self.assertRegex(plan.info.key, "^[0-9a-f]{32}$")
        self.assertEqual((plan.info.target, plan.info.tier, plan.info.generation), ("sm_90a", "baseline", 1))
        self.assertEqual([tensor.shape for tensor in plan.inputs], [(4, 8), (8, 16)])
        self.assertEqual(plan.outputs[0].bytes, 128)
        self.assertGreater(len(plan.cubin), 4)
        self.assertTrue(plan.launches[0].kernel and plan.launches[0].args)
        self.assertFalse(plan.launches[0].overlaps)
        self.assertEqual(plan.tensor_maps, [])
        again = self.client.get(quern.Graph.parse(TEXT), "sm_90a")
        self.assertEqual(again._handle.value, plan._handle.value)
        self.assertFalse(self.client.outdated(plan))

    def test_need_not_wait(self):
        graph = quern.Graph.parse("graph n\nin x: f32[5]\ny = tanh(x)\nout y\n")
        self.assert_fails("NOT_FOUND", "", self.client.get, graph, "sm_90a", compile=False)
        self.assertIsNone(self.client.get(graph, "sm_90a", wait=False))
        self.assertIsNotNone(self.client.get(graph, "sm_90a"))
        # There is no GPU: what stands is the answer, once nothing is under way.
        self.assertIsNotNone(self.client.get(graph, "sm_90a", min_tier="measured"))
        with self.assertRaises(ValueError):
            self.client.get(graph, "sm_90a", min_tier="best")

    def test_constraints_make_another_plan(self):
        graph = quern.Graph.parse(TEXT)
        plan = self.client.get(graph, "sm_90a")
        constrained = self.client.get(graph, "sm_90a", constraints="franges 8 4; griddims 16")
        self.assertNotEqual(constrained.info.key, plan.info.key)
        self.assertEqual(self.client.get(graph, "sm_90a", constraints="griddims 16,1,1; franges 4 8").info.key, constrained.info.key)
        self.assertEqual(self.client.get(graph, "sm_90a").info.key, plan.info.key)
        self.assert_fails("INVALID_ARGUMENT", '"16,x"', self.client.get, graph, "sm_90a", constraints="griddims 16,x")

    def test_statistics_and_polling(self):
        stats = self.client.stats()
        self.assertIsInstance(stats["hits"], int)
        self.assertIn("quernd", stats["software"])
        self.client.process()  # of plans that were pending in other tests
        self.assertEqual(self.client.process(), 0)
        self.assertEqual(select.select([self.client], [], [], 0)[0], [])

    def test_launches(self):
        self.assertEqual(quern.device_target(), "sm_90a")
        plan = self.client.get(quern.Graph.parse(TEXT))
        cuda = ctypes.CDLL(os.environ["QUERN_LIBCUDA"])
        cuda.fake_cuda_log.restype = ctypes.c_char_p
        context, memory = ctypes.c_void_p(), ctypes.c_uint64()
        self.assertEqual(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.assertEqual(cuda.cuCtxSetCurrent(context), 0)
        self.assertEqual(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)), 0)
        at = memory.value
        plan.prepare()
        plan.launch([at, at + 4096], [at + 8192], at + 65536)
        self.assertEqual(cuda.fake_cuda_log().count(b"launch "), len(plan.launches))
        self.assert_fails("INVALID_ARGUMENT", "2 inputs", plan.launch, [at], [at])
        self.assert_fails("INVALID_ARGUMENT", "aligned", plan.launch, [at + 1, at], [at], at)

    def test_structs_are_those_of_the_header(self):
        with open(os.path.join(ROOT, "capi/quern.h"), encoding="utf-8") as file:
            header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
        names = {"quern_error": lib.Error, "quern_tensor": lib.Tensor, "quern_attr": lib.Attr,
                 "quern_open_options": lib.OpenOptions, "quern_get_options": lib.GetOptions, "quern_plan_info": lib.PlanInfo,
                 "quern_launch_arg": lib.LaunchArg, "quern_launch_info": lib.LaunchInfo, "quern_stat": lib.Stat,
                 "quern_tensor_map": lib.TensorMap}
        for name, struct in names.items():
            body = re.search(r"typedef struct " + name + r" \{(.*?)\}", header, re.DOTALL).group(1)
            fields = re.findall(r"(\w+)(?:\[\d+\])?;", body)
            self.assertEqual(fields, [field[0] for field in struct._fields_], name)


if __name__ == "__main__":
    unittest.main()
