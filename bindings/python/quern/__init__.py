"""GPU kernels for tensor graphs, from the local kernel cache daemon.

    client = quern.Client()
    plan = client.get(quern.Graph.parse(text), "sm_90a")
    plan.launch([x.data_ptr(), w.data_ptr()], [z.data_ptr()], workspace.data_ptr(), torch.cuda.current_stream().cuda_stream)

A thin layer over libquern: quern.h says what may block, what threads may do, and what happens in a forked child.
"""
import collections
import ctypes as c
import numbers

from . import _library as lib
from ._library import QuernError

__all__ = ["Client", "Graph", "Plan", "QuernError", "TensorInfo", "Value", "device_target"]

_DTYPES = {"f16": 1, "bf16": 2, "f32": 3, "i32": 4, "bool": 5}
_DTYPE_NAMES = {number: name for name, number in _DTYPES.items()}
_TIERS = {1: "baseline", 2: "modelled", 3: "measured"}
_ORIGINS = {1: "hit", 2: "compiled", 3: "shared"}
_ARGS = {1: "input", 2: "output", 3: "workspace", 4: "integer", 5: "tensor_map"}

TensorInfo = collections.namedtuple("TensorInfo", "name dtype shape strides bytes")
PlanInfo = collections.namedtuple(
    "PlanInfo", "key target tier origin generation workspace_bytes certificate warning daemon_ns queue_ns emit_ns compile_ns")
Launch = collections.namedtuple("Launch", "kernel grid block cluster shared_bytes args overlaps")
TensorMap = collections.namedtuple("TensorMap", "buffer dtype shape strides box swizzle")


class _Owner:
    """Holds a handle of libquern and ends it when the object goes."""

    _end = None  # name of the function that ends it

    def __init__(self, handle):
        self._handle = handle

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle and lib:
            getattr(lib.library, self._end)(handle)


def _made(name, *arguments):
    handle = c.c_void_p()
    lib.call(name, *arguments, c.byref(handle))
    return handle


def _ints(values):
    return (c.c_int64 * len(values))(*values)


def _tensor(name, *arguments):
    tensor = lib.Tensor()
    lib.call(name, *arguments, c.byref(tensor))
    return TensorInfo(tensor.name.decode(), _DTYPE_NAMES[tensor.dtype], tuple(tensor.shape[: tensor.rank]),
                      tuple(tensor.strides[: tensor.rank]), tensor.bytes)


def _plain(number):
    """A Python number for one of numpy."""
    return number.item() if getattr(number, "shape", None) == () else number


def _attr(name, value):
    attr = lib.Attr(name=name.encode())
    value = _plain(value)
    if isinstance(value, bool):
        attr.kind, attr.integer = 5, value
    elif isinstance(value, int):
        attr.kind, attr.integer = 1, value
    elif isinstance(value, float):
        attr.kind, attr.number = 3, value
    elif isinstance(value, str):
        attr.kind, attr.integer = 4, _dtype(value)
    else:
        attr.kind, attr.ints, attr.count = 2, _ints(value), len(value)
    return attr


def _dtype(name):
    if name not in _DTYPES:
        raise QuernError("INVALID_ARGUMENT", f"there is no dtype {name!r}; there are {', '.join(_DTYPES)}")
    return _DTYPES[name]


class Value:
    """A tensor or a number in a graph: what input(), constant() and op() return. `id` is what quern.h calls it."""

    __slots__ = ("graph", "id")

    def __init__(self, graph, id):
        self.graph, self.id = graph, id

    def __eq__(self, other):
        return isinstance(other, Value) and self.graph is other.graph and self.id == other.id

    def __hash__(self):
        return hash((id(self.graph), self.id))

    def __repr__(self):
        return f"<value {self.id} of a graph>"


class Graph(_Owner):
    """A tensor program."""

    _end = "quern_graph_free"

    def __init__(self, name=None):
        super().__init__(_made("quern_graph_new", name.encode() if name is not None else None))

    @classmethod
    def parse(cls, text):
        encoded = text.encode()
        graph = cls.__new__(cls)
        _Owner.__init__(graph, _made("quern_graph_parse", encoded, len(encoded)))
        return graph

    def _add(self, function, *arguments):
        value = c.c_int32()
        lib.call(function, self._handle, *arguments, c.byref(value))
        return Value(self, value.value)

    def _id(self, value, what):
        if not isinstance(value, Value):
            raise QuernError("INVALID_ARGUMENT", f"{what} is {value!r}, which is no value of a graph")
        if value.graph is not self:
            raise QuernError("INVALID_ARGUMENT", f"{what} is a value of another graph")
        return value.id

    def value(self, id):
        """The value that quern.h calls `id`, of a parsed graph for instance: values count up from 0."""
        value = Value(self, id)
        self.describe(value)
        return value

    def input(self, name, dtype, shape, strides=None, const=False):
        if strides is not None and len(strides) != len(shape):
            raise QuernError("INVALID_ARGUMENT", "as many strides as extents are needed")
        return self._add("quern_graph_input", name.encode(), _dtype(dtype), len(shape), _ints(shape),
                         _ints(strides) if strides is not None else None, int(const))

    def constant(self, number):
        """An int or bool is an integer where nothing else decides, a float is an f32."""
        number = _plain(number)
        if not isinstance(number, numbers.Real):
            raise QuernError("INVALID_ARGUMENT", f"{number!r} is no number")
        return self._add("quern_graph_constant", float(number), _DTYPES["i32" if isinstance(number, numbers.Integral) else "f32"])

    def op(self, op, *operands, name=None, **attrs):
        """Operands are values of this graph, or numbers, which become constants. Attributes by name: axis=-1, eps=1e-5,
        perm=[1, 0], dtype="f32", keepdims=True."""
        given = [_attr(key, value) for key, value in attrs.items()]
        ids = [self._id(self.constant(operand) if isinstance(_plain(operand), numbers.Real) else operand, f"operand {i} of {op}")
               for i, operand in enumerate(operands)]
        return self._add("quern_graph_op", op.encode(), (c.c_int32 * len(ids))(*ids), len(ids),
                         (lib.Attr * len(given))(*given), len(given), name.encode() if name is not None else None)

    def output(self, value):
        lib.call("quern_graph_output", self._handle, self._id(value, "the output"))

    def describe(self, value):
        return _tensor("quern_graph_value", self._handle, self._id(value, "what is described"))

    @property
    def text(self):
        text = c.c_char_p()
        lib.call("quern_graph_text", self._handle, c.byref(text), None)
        return text.value.decode()


class Plan(_Owner):
    """What is launched: one cubin with an ordered list of kernel launches."""

    _end = "quern_plan_release"

    def _describe(self):
        info = lib.PlanInfo()
        lib.call("quern_plan_describe", self._handle, c.byref(info))
        return info

    @property
    def info(self):
        info = self._describe()
        return PlanInfo(info.key.decode(), info.target.decode(), _TIERS[info.tier], _ORIGINS[info.origin], info.generation,
                        info.workspace_bytes, info.certificate.decode(), info.warning.decode(), info.daemon_ns,
                        info.queue_ns, info.emit_ns, info.compile_ns)

    @property
    def cubin(self):
        info = self._describe()
        return c.string_at(info.cubin, info.cubin_size)

    @property
    def inputs(self):
        return [_tensor("quern_plan_input", self._handle, i) for i in range(self._describe().input_count)]

    @property
    def outputs(self):
        return [_tensor("quern_plan_output", self._handle, i) for i in range(self._describe().output_count)]

    @property
    def launches(self):
        result = []
        for i in range(self._describe().launch_count):
            launch = lib.LaunchInfo()
            lib.call("quern_plan_launch", self._handle, i, c.byref(launch))
            args = [(_ARGS[arg.kind], arg.value) for arg in launch.args[: launch.arg_count]]
            result.append(Launch(launch.kernel.decode(), tuple(launch.grid), tuple(launch.block), tuple(launch.cluster),
                                 launch.shared_bytes, args, bool(launch.overlaps)))
        return result

    @property
    def tensor_maps(self):
        """What launches take as ("tensor_map", i), for callers who launch the cubin themselves."""
        result = []
        while True:
            described = lib.TensorMap()
            try:
                lib.call("quern_plan_tensor_map", self._handle, len(result), c.byref(described))
            except QuernError as error:
                if error.status != "NOT_FOUND":
                    raise
                return result
            lists = [tuple(values[: described.rank]) for values in (described.shape, described.strides, described.box)]
            result.append(TensorMap((_ARGS[described.buffer.kind], described.buffer.value), _DTYPE_NAMES[described.dtype], *lists,
                                    described.swizzle))

    def prepare(self, stream=0):
        lib.call("quern_plan_prepare", self._handle, stream)

    def launch(self, inputs, outputs, workspace=0, stream=0):
        """Device addresses as integers; `stream` is a CUstream as one. Returns before the kernels have run."""
        info = self._describe()
        if len(inputs) != info.input_count or len(outputs) != info.output_count:
            raise QuernError("INVALID_ARGUMENT", f"the plan takes {info.input_count} inputs and {info.output_count} outputs")
        lib.call("quern_launch", self._handle, stream, (c.c_void_p * len(inputs))(*inputs),
                 (c.c_void_p * len(outputs))(*outputs), workspace)


class Client(_Owner):
    """A connection to the daemon, which is started if none runs."""

    _end = "quern_close"

    def __init__(self, socket=None, start=True, timeout_ms=0):
        options = lib.OpenOptions(flags=0 if start else 1, timeout_ms=timeout_ms,
                                  socket=str(socket).encode() if socket is not None else None)
        super().__init__(_made("quern_open", c.byref(options)))

    def get(self, graph, target=None, wait=True, compile=True, refresh=False, allow_tf32=False, timeout_ms=0, priority=0,
            constraints="", min_tier=None):
        """The plan of `graph`; None if it is not ready and `wait` is false. target=None means CUDA device 0. Constraints say what
        the search for a better plan may find: "griddims 96,1,1 64,1,1; franges 16". min_tier="measured" waits, up to timeout_ms,
        for a plan of that tier, as long as something is under way that would make one."""
        if min_tier not in (None, *_TIERS.values()):
            raise ValueError(f"there is no tier {min_tier!r}")
        options = lib.GetOptions(flags=(0 if wait else 1) | (0 if compile else 2) | (4 if refresh else 0),
                                 numerics=int(allow_tf32), timeout_ms=timeout_ms, priority=priority,
                                 constraints=constraints.encode(),
                                 min_tier=next((number for number, name in _TIERS.items() if name == min_tier), 0))
        handle = c.c_void_p()
        status = lib.call("quern_get", self._handle, graph._handle, target.encode() if target is not None else None,
                          c.byref(options), c.byref(handle))
        return Plan(handle) if status == lib.OK else None

    def outdated(self, plan):
        return bool(lib.library.quern_plan_outdated(self._handle, plan._handle))

    def fileno(self):
        """For select: readable when process() has something to do."""
        return lib.library.quern_fd(self._handle)

    def process(self):
        """The number of plans for which a better one was announced since the last call, and of those that were pending and are
        ready, or could not be made."""
        better = c.c_uint64()
        lib.call("quern_process", self._handle, c.byref(better))
        return better.value

    def stats(self, timeout_ms=0):
        """Counters as integers and facts as texts, by name."""
        stats = _made("quern_stats_get", self._handle, timeout_ms)
        try:
            result = {}
            for i in range(lib.library.quern_stats_count(stats)):
                stat = lib.Stat()
                lib.call("quern_stats_at", stats, i, c.byref(stat))
                result[stat.name.decode()] = stat.value if stat.text is None else stat.text.decode()
            return result
        finally:
            lib.library.quern_stats_free(stats)


def device_target(device=0):
    """ "sm_90a": the target of a CUDA device."""
    target = c.c_char_p()
    lib.call("quern_device_target", device, c.byref(target))
    return target.value.decode()
