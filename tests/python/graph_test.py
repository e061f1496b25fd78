#!/usr/bin/env python3
"""Graphs as Python builds them. No daemon is needed."""
import os
import pathlib
import re
import sys
import unittest

ROOT = sys.argv.pop(1)
sys.path.insert(0, os.path.join(ROOT, "bindings/python"))

import quern  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None


class Scalar:  # as numpy's are: neither int nor float
    shape = ()

    def __init__(self, number):
        self.number = number

    def item(self):
        return self.number


class Graphs(unittest.TestCase):
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
        self.assertEqual((graph.value(0).id, graph.value(0).graph), (x.id, graph))
        self.assert_fails("INVALID_ARGUMENT", "is 'x', which is no value", graph.op, "neg", "x")
        self.assert_fails("INVALID_ARGUMENT", "operand 1 of mul is a value of another graph", graph.op, "mul", x,
                          quern.Graph().input("x", "f32", [3]))
        self.assert_fails("INVALID_ARGUMENT", "the output is 1", graph.output, 1)
        self.assert_fails("NOT_FOUND", "99", graph.value, 99)
        self.assert_fails("NOT_FOUND", "-1", graph.value, -1)

    def test_numbers_of_numpy_are_constants(self):
        scalars = [Scalar(2), Scalar(0.25), Scalar(True)]
        if numpy:
            scalars += [numpy.int64(2), numpy.float16(0.25), numpy.bool_(True)]
        for two, quarter, true in zip(scalars[::3], scalars[1::3], scalars[2::3]):
            graph = quern.Graph("scalars")
            x = graph.input("x", "f32", [3])
            y = graph.op("add", graph.op("mul", x, quarter, name="a"), true, name="b")
            graph.output(graph.op("sum", graph.op("pow", y, two, name="c"), axis=Scalar(0), name="d"))
            self.assertIn("a = mul(x, 0.25)\nb = add(a, 1)\nc = pow(b, 2)\nd = sum(c, axis=[0]", graph.text)

    def test_operators_of_python(self):
        graph = quern.Graph("operators")
        x, w = graph.input("x", "f32", [4, 8]), graph.input("w", "f32", [8, 4])
        h = x @ w
        results = {"add": h * 0.5 + h, "right": 1 - (2 / h) ** 2 + 2**h, "minus": -abs(h), "lt": h < 1, "gt": 1 > h, "le": h <= 0,
                   "ge": h >= 0, "eq": h == 0, "ne": h != 0, "method": h.softmax(axis=-1), "where": (h < 0).where(0, h), "T": x.T}
        for value in results.values():
            graph.output(value)
        text = graph.text
        for line in ("v2 = matmul(x, w)", "v4 = mul(v2, 0.5)", "v5 = add(v4, v2)", "= div(2, v2)", "= sub(1, ", "= pow(2, v2)", "= abs(v2)",
                     "= lt(v2, 1)", "= le(0, v2)", "= eq(v2, 0)", "= softmax(v2, axis=[1])", "= transpose(x, perm=[1, 0])"):
            self.assertIn(line, text)
        self.assertEqual(len(re.findall(r"= lt\(v2, 1\)", text)), 2)  # h < 1 and 1 > h
        self.assertRegex(text, r"(v\d+) = eq\(v2, 0\)\nv\d+ = eq\(v2, 0\)\nv\d+ = eq\(v\d+, 0\)")
        self.assertEqual((results["eq"].dtype, results["T"].shape), ("bool", (8, 4)))
        self.assertEqual(quern.Graph.parse(text).text, text)
        self.assertEqual(repr(h), "<quern.Value v2: f32[4, 4]>")
        self.assertEqual(repr(graph), f"<quern.Graph operators: 2 inputs, {len(re.findall(' = ', text))} operators, 12 outputs>")

    def test_operators_that_are_mistakes(self):
        graph = quern.Graph("mistakes")
        x = graph.input("x", "f32", [4])
        for mistake in (lambda: x + "1", lambda: x @ 2, lambda: bool(x < 0), lambda: list(x), lambda: x + None):
            with self.assertRaises((TypeError, quern.QuernError)):
                mistake()
        self.assertFalse(x == None)  # noqa: E711
        with self.assertRaises(AttributeError):
            x.sofmax()
        self.assertFalse(hasattr(x, "__cuda_array_interface__"))
        if numpy:
            self.assertIn("mul(2.0, x)", (graph.output(numpy.float32(2) * x), graph.text)[1])
            with self.assertRaises(TypeError):
                numpy.zeros(4) + x

    def test_slices(self):
        graph = quern.Graph("slices")
        x = graph.input("x", "f32", [4, 6, 8])
        for index, shape in ((slice(1, None), (3, 6, 8)), ((..., slice(None, None, 2)), (4, 6, 4)), ((0,), (6, 8)),
                             ((-1, slice(None), 2), (6,)), ((slice(3, 1),), (0, 6, 8)), ((1, 2, 3), ())):
            self.assertEqual(x[index].shape, shape, index)
        for index in (4, -5, (0, 0, 0, 0), slice(None, None, -1)):
            with self.assertRaises(IndexError, msg=str(index)):
                x[index]

    def test_dtypes_by_other_names(self):
        class Torch:
            def __str__(self):
                return "torch.bfloat16"

        class NumpyDtype:
            name = "float16"

        graph = quern.Graph("dtypes")
        given = [("f16", "f16"), ("float32", "f32"), ("torch.int32", "i32"), (Torch(), "bf16"), (NumpyDtype(), "f16"), (bool, "bool")]
        if numpy:
            given += [(numpy.float32, "f32"), (numpy.dtype("int32"), "i32"), (numpy.bool_, "bool")]
        for i, (dtype, name) in enumerate(given):
            self.assertEqual(graph.input(f"x{i}", dtype, [3]).dtype, name)
        self.assertEqual(graph.op("cast", graph.value(0), dtype=Torch()).dtype, "bf16")
        for wrong in ("float64", float, int, 3):
            self.assert_fails("INVALID_ARGUMENT", "there is no dtype", graph.input, "y", wrong, [3])

    def test_integers_of_any_kind(self):
        class Index:
            def __index__(self):
                return 5

        graph = quern.Graph("integers")
        x = graph.input("x", "f32", (Index(), 2), strides=[Index(), 1])
        self.assertEqual((x.shape, x.info.strides), ((5, 2), (5, 1)))
        self.assertEqual(x.reshape(shape=[2, Index()]).shape, (2, 5))
        if numpy:
            self.assertEqual(graph.input("z", "f32", numpy.array([2, 3])).shape, (2, 3))
        self.assert_fails("INVALID_ARGUMENT", "the shape of y is [2.5], which is no list of integers", graph.input, "y", "f32", [2.5])
        self.assert_fails("INVALID_ARGUMENT", "attribute shape is ['a']", x.reshape, shape=["a"])
        self.assert_fails("INVALID_ARGUMENT", "input y has 1 extents and 2 strides", graph.input, "y", "f32", [2], strides=[1, 1])

    def test_every_operator_with_an_operand_is_a_method(self):
        rows = (pathlib.Path(ROOT) / "core/lang/ops.def").read_text()
        listed = set(re.findall(r'^QUERN_(?:ELEMENTWISE|OPERATOR)\(\w+, "(\w+)"', rows, re.MULTILINE))
        listed |= set(re.findall(r"^QUERN_REDUCTION\((\w+),", rows, re.MULTILINE))
        self.assertGreater(len(listed), 30)
        self.assertEqual(set(dir(quern.Value)) & listed, set())  # no method of Python's hides one
        graph = quern.Graph("methods")
        self.assertEqual({name for name in listed if hasattr(graph.input("x", "f32", [1]) if not graph.text.count("in ") else graph.value(0), name)},
                         listed - {"concat", "iota"})


if __name__ == "__main__":
    unittest.main()
