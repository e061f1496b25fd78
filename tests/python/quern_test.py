#!/usr/bin/env python3
"""The Python package against the daemon that $QUERN_DAEMON names, with the fake libcuda as driver. No GPU is needed."""
import copy
import ctypes
import gc
import os
import pathlib
import pickle
import re
import select
import signal
import sys
import threading
import time
import unittest

ROOT = sys.argv.pop(1)
sys.path.insert(0, os.path.join(ROOT, "bindings/python"))

import quern  # noqa: E402
from quern import _library as lib  # noqa: E402

TEXT = "graph small\nin x: f16[4, 8]\nin w: f16[8, 16] const\ny = rms_norm(x, axis=-1, eps=1e-5)\nz = matmul(y, w)\nout z\n"


def daemons():
    """The processes of the daemon that with_daemon.py cares for."""
    socket, found = f"QUERN_SOCKET={os.environ['QUERN_SOCKET']}".encode(), []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and b"quernd" in (process / "cmdline").read_bytes():
                if socket in (process / "environ").read_bytes().split(b"\0") and int(process.name) not in (os.getpid(), os.getppid()):
                    found.append(int(process.name))
        except OSError:
            pass  # ended, or not ours
    return found


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = quern.Client()

    def assert_fails(self, status, text, call, *arguments, **named):
        with self.assertRaises(quern.QuernError) as raised:
            call(*arguments, **named)
        self.assertEqual(raised.exception.status, status)
        self.assertIn(text, str(raised.exception))

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
        self.assertIs(again._about, plan._about)
        self.assertFalse(self.client.outdated(plan))

    def test_need_not_wait(self):
        graph = quern.Graph.parse("graph n\nin x: f32[5]\ny = tanh(x)\nout y\n")
        self.assert_fails("NOT_FOUND", "", self.client.get, graph, "sm_90a", compile=False)
        self.assertIsNone(self.client.get(graph, "sm_90a", wait=False))
        self.assertIsNotNone(self.client.get(graph, "sm_90a"))
        # There is no GPU: what stands is the answer, once nothing is under way.
        self.assertIsNotNone(self.client.get(graph, "sm_90a", min_tier="measured"))
        self.assert_fails("INVALID_ARGUMENT", "no tier 'best'", self.client.get, graph, "sm_90a", min_tier="best")
        self.assert_fails("INVALID_ARGUMENT", "-1 seconds", self.client.get, graph, "sm_90a", timeout=-1)

    def test_constraints_make_another_plan(self):
        graph = quern.Graph.parse(TEXT)
        plan = self.client.get(graph, "sm_90a")
        constrained = self.client.get(graph, "sm_90a", constraints="franges 8 4; griddims 16")
        self.assertNotEqual(constrained.info.key, plan.info.key)
        self.assertEqual(self.client.get(graph, "sm_90a", constraints="griddims 16,1,1; franges 4 8").info.key, constrained.info.key)
        self.assertEqual(self.client.get(graph, "sm_90a").info.key, plan.info.key)
        self.assert_fails("INVALID_ARGUMENT", '"16,x"', self.client.get, graph, "sm_90a", constraints="griddims 16,x")

    def test_prewarms(self):
        graphs = [quern.Graph.parse(f"graph p\nin x: f32[{n}]\ny = tanh(x)\nout y\n") for n in (21, 22, 23)]
        self.assertEqual(self.client.prewarm(graphs, "sm_90a"), ["OK"] * 3)
        self.assertEqual(self.client.get(graphs[1], "sm_90a", compile=False).inputs[0].shape, (22,))
        with self.assertRaises(quern.QuernError) as raised:
            self.client.prewarm([graphs[0], quern.Graph("empty"), graphs[2]], "sm_90a")
        self.assertEqual(raised.exception.statuses, ["OK", "INVALID_GRAPH", "OK"])

    def test_handles_end_once(self):
        with quern.Client() as client, client.get(quern.Graph.parse(TEXT), "sm_90a") as plan:
            self.assertIn(plan.info.key[:8], repr(plan))
            self.assertRegex(repr(plan), r"\(x: f16\[4, 8\], w: f16\[8, 16\]\) -> \(z: f16\[4, 16\]\), sm_90a, baseline, \d launches")
            other = client.get(quern.Graph.parse(TEXT), "sm_90a")
        self.assertEqual(repr(plan), "<quern.Plan, closed>")
        self.assertEqual(repr(client), "<quern.Client, closed>")
        plan.close()
        self.assert_fails("INVALID_ARGUMENT", "the plan is closed", lambda: plan.info)
        self.assert_fails("INVALID_ARGUMENT", "the plan is closed", plan.launch, [1, 1], [1])
        self.assert_fails("INVALID_ARGUMENT", "the client is closed", client.stats)
        self.assertEqual(other.info.target, "sm_90a")  # a handle of its own
        graph = quern.Graph.parse(TEXT)
        graph.close()
        self.assert_fails("INVALID_ARGUMENT", "the graph is closed", lambda: graph.text)

    def test_is_neither_copied_nor_pickled(self):
        plan = self.client.get(quern.Graph.parse(TEXT), "sm_90a")
        for what, advice in ((quern.Graph.parse(TEXT), "Graph.parse"), (plan, "ask the client"), (self.client, "open a client")):
            for function in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, advice):
                    function(what)
        del plan, what
        gc.collect()
        self.assertEqual(self.client.get(quern.Graph.parse(TEXT), "sm_90a").info.target, "sm_90a")
        error = pickle.loads(pickle.dumps(quern.QuernError("LIMIT", "too much")))
        self.assertEqual((error.status, str(error)), ("LIMIT", "LIMIT: too much"))

    def test_is_interrupted_at_once(self):
        """Ctrl-C while the daemon, which is stopped, does not answer."""
        graph = quern.Graph.parse("graph slow\nin x: f32[77]\ny = tanh(x)\nout y\n")
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        stopped = daemons()
        self.assertTrue(stopped)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            timer.start()
            began = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                self.client.get(graph, "sm_90a")
            self.assertLess(time.monotonic() - began, 5)
        finally:
            timer.join()
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        self.assertIsNotNone(self.client.get(graph, "sm_90a"))

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
        self.assertEqual(quern.__version__, re.search(r"version: '(.*?)'", (pathlib.Path(ROOT) / "meson.build").read_text()).group(1))
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
