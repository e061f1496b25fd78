"""What the GPU checks need of libquern, through ctypes."""

import ctypes as c


class Error(c.Structure):
    _fields_ = [("status", c.c_int32), ("message", c.c_char * 2044)]


class Tensor(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("dtype", c.c_int32), ("rank", c.c_int32),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("bytes", c.c_uint64)]


class PlanInfo(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("key", c.c_char_p), ("target", c.c_char_p), ("tier", c.c_int32),
                ("origin", c.c_int32), ("generation", c.c_uint64), ("cubin", c.c_void_p), ("cubin_size", c.c_size_t),
                ("workspace_bytes", c.c_uint64), ("input_count", c.c_size_t), ("output_count", c.c_size_t),
                ("launch_count", c.c_size_t), ("certificate", c.c_char_p), ("warning", c.c_char_p),
                ("daemon_ns", c.c_uint64), ("queue_ns", c.c_uint64), ("emit_ns", c.c_uint64),
                ("compile_ns", c.c_uint64)]


class Client:
    """One connection; raises RuntimeError with Quern's message."""

    def __init__(self, library):
        self.lib = c.CDLL(library)
        self.client = c.c_void_p()
        self._call("quern_open", None, c.byref(self.client))

    def _call(self, name, *arguments):
        error = Error()
        status = getattr(self.lib, name)(*arguments, c.byref(error))
        if status != 0:
            raise RuntimeError(f"{name}: {error.message.decode()}")

    def plan(self, text, target=None):
        graph, plan, data = c.c_void_p(), c.c_void_p(), text.encode()
        self._call("quern_graph_parse", data, c.c_size_t(len(data)), c.byref(graph))
        try:
            self._call("quern_get", self.client, graph, target, None, c.byref(plan))
        finally:
            self.lib.quern_graph_free(graph)
        return Plan(self, plan)

    def close(self):
        self.lib.quern_close(self.client)


class Plan:
    def __init__(self, client, handle):
        self.client, self.handle = client, handle
        self.info = PlanInfo(struct_size=c.sizeof(PlanInfo))
        client._call("quern_plan_describe", handle, c.byref(self.info))

    def output(self, index):
        """(dtype number, shape)"""
        tensor = Tensor(struct_size=c.sizeof(Tensor))
        self.client._call("quern_plan_output", self.handle, c.c_size_t(index), c.byref(tensor))
        return tensor.dtype, [tensor.shape[i] for i in range(tensor.rank)]

    def launch(self, stream, inputs, outputs, workspace):
        """Device pointers as integers; empty buffers need some valid pointer too."""
        def pointers(values):
            return (c.c_void_p * max(1, len(values)))(*values)
        self.client._call("quern_launch", self.handle, c.c_void_p(stream), pointers(inputs), pointers(outputs),
                          c.c_void_p(workspace))

    def prepared(self, stream, inputs, outputs, workspace):
        """launch() as a function without arguments: what it costs is what quern_launch costs, and a call through ctypes."""
        def pointers(values):
            return (c.c_void_p * max(1, len(values)))(*values)
        function, error = self.client.lib.quern_launch, Error()
        arguments = self.handle, c.c_void_p(stream), pointers(inputs), pointers(outputs), c.c_void_p(workspace), c.byref(error)
        return lambda: function(*arguments)
