"""Graphs: values, the operators on them, and the text form."""
from __future__ import annotations

import ctypes as c
import functools
import numbers
import operator
import re
from typing import Any, Callable, Iterable, NamedTuple, NoReturn, Sequence, Union

from . import _library as lib
from ._dtypes import NAMES, NUMBERS, dtype_name
from ._handle import Owner, made
from ._library import QuernError


class TensorInfo(NamedTuple):
    """A tensor of a graph, or a buffer that a plan takes: extents and strides in elements, outermost first; `bytes` is what the
    buffer must hold."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int


def described(name: str, *arguments: Any) -> TensorInfo:
    tensor = lib.Tensor()
    lib.call(name, *arguments, c.byref(tensor))
    return TensorInfo(tensor.name.decode(), NAMES[tensor.dtype], tuple(tensor.shape[: tensor.rank]),
                      tuple(tensor.strides[: tensor.rank]), tensor.bytes)


def _is_number(what: Any) -> bool:
    """Python's numbers, and scalars of numpy and PyTorch."""
    return isinstance(what, numbers.Real) or (not isinstance(what, Value) and getattr(what, "shape", None) == () and hasattr(what, "item"))


def _plain(number: Any) -> Any:
    return number.item() if hasattr(number, "item") and getattr(number, "shape", None) == () else number


def _ints(values: Iterable[Any], what: str) -> c.Array:
    try:
        integers = [operator.index(value) for value in values]
    except TypeError:
        raise QuernError("INVALID_ARGUMENT", f"{what} is {values!r}, which is no list of integers") from None
    return (c.c_int64 * len(integers))(*integers)


def _attr(name: str, value: Any) -> lib.Attr:
    attr, value = lib.Attr(name=name.encode()), _plain(value)
    if isinstance(value, bool):
        attr.kind, attr.integer = 5, value
    elif isinstance(value, int):
        attr.kind, attr.integer = 1, value
    elif isinstance(value, float):
        attr.kind, attr.number = 3, value
    elif name == "dtype":
        attr.kind, attr.integer = 4, NUMBERS[dtype_name(value)]
    else:
        attr.ints = _ints(value, f"attribute {name}")
        attr.kind, attr.count = 2, len(value)
    return attr


# Those that are methods of values, with the value as first operand: x.softmax(axis=-1). concat and iota are made by Graph.op.
METHODS = frozenset(
    "neg abs exp log sqrt rsqrt square reciprocal relu gelu gelu_tanh silu sigmoid tanh erf add sub mul div max min pow lt le eq "
    "where matmul sum mean softmax rms_norm layer_norm reshape transpose slice broadcast cast".split())


class Value:
    """A tensor or a number in a graph. Operators on it add to the graph, with numbers as constants: `h * 0.5 + x`, `a @ b`, `-x`,
    `x < y`, `x == 0` (so that `==` is not identity; `x is y` and `x.id == y.id` are), `x[1:, ::2]`. Every operator of the language
    with a first operand is a method, too: `x.softmax(axis=-1)`, `x.rms_norm(w, eps=1e-6)`."""

    __slots__ = ("graph", "id")

    def __init__(self, graph: Graph, id: int):
        self.graph, self.id = graph, id

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if name not in METHODS:
            raise AttributeError(f"a value has neither an attribute nor an operator {name!r}")
        return functools.partial(self.graph.op, name, self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *METHODS})

    @property
    def info(self) -> TensorInfo:
        return self.graph.describe(self)

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def dtype(self) -> str:
        return self.info.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    @property
    def T(self) -> Value:
        """Dimensions in reverse order."""
        return self.graph.op("transpose", self)

    def __add__(self, other: Operand) -> Value:
        return self._binary("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self._binary("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._binary("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self._binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._binary("div", other, self)

    def __pow__(self, other: Operand) -> Value:
        return self._binary("pow", self, other)

    def __rpow__(self, other: Operand) -> Value:
        return self._binary("pow", other, self)

    def __matmul__(self, other: Value) -> Value:
        return self._binary("matmul", self, other)

    def __lt__(self, other: Operand) -> Value:
        return self._binary("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return self._binary("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self._binary("lt", other, self)

    def __ge__(self, other: Operand) -> Value:
        return self._binary("le", other, self)

    def __eq__(self, other: Any) -> Any:
        return self._binary("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        equal = self._binary("eq", self, other)
        return equal if equal is NotImplemented else self.graph.op("eq", equal, 0)

    def __neg__(self) -> Value:
        return self.graph.op("neg", self)

    def __abs__(self) -> Value:
        return self.graph.op("abs", self)

    def __hash__(self) -> int:
        return hash((id(self.graph), self.id))

    def __bool__(self) -> NoReturn:
        raise TypeError("a quern.Value is neither true nor false: it is computed when a plan runs; `where` chooses between values")

    __array_ufunc__ = None  # numpy.float32(2) * value is the value's affair

    def _binary(self, op: str, left: Any, right: Any) -> Any:
        if all(isinstance(operand, Value) or _is_number(operand) for operand in (left, right)):
            return self.graph.op(op, left, right)
        return NotImplemented

    def __getitem__(self, index: Any) -> Value:
        """Slices with positive steps, integers and `...`, as in numpy."""
        shape, indices = self.shape, list(index) if isinstance(index, tuple) else [index]
        for at in [position for position, part in enumerate(indices) if part is Ellipsis]:
            indices[at: at + 1] = [slice(None)] * (len(shape) - len(indices) + 1)
        indices += [slice(None)] * (len(shape) - len(indices))
        if len(indices) > len(shape):
            raise IndexError(f"{len(indices)} indices for a value of {len(shape)} dimensions")
        ranges = []
        for dimension, (extent, at) in enumerate(zip(shape, indices)):
            if not isinstance(at, slice):
                position = operator.index(at)
                if not -extent <= position < extent:
                    raise IndexError(f"index {position} in dimension {dimension}, which has {extent} elements")
                at = slice(position % extent, position % extent + 1)
            start, stop, step = at.indices(extent)
            if step < 1:
                raise IndexError(f"step {step} in dimension {dimension}: only positive steps are supported")
            ranges.append((start, max(start, stop), step))
        taken = self.graph.op("slice", self, start=[r[0] for r in ranges], stop=[r[1] for r in ranges], step=[r[2] for r in ranges])
        kept = [extent for extent, at in zip(taken.shape, indices) if isinstance(at, slice)]
        return taken if len(kept) == len(shape) else self.graph.op("reshape", taken, shape=kept)

    def __iter__(self) -> NoReturn:
        raise TypeError("a quern.Value cannot be iterated over; take slices of it")

    def __repr__(self) -> str:
        try:
            info = self.info
        except QuernError as problem:
            return f"<quern.Value {self.id}: {problem.message}>"
        return f"<quern.Value {info.name}: {info.dtype}{list(info.shape)}>"


Operand = Union[Value, int, float]


class Graph(Owner):
    """A tensor program: inputs, operators, outputs. Built by one thread at a time.

        graph = quern.Graph("gated")
        x, w = graph.input("x", "f16", [16, 4096]), graph.input("w", "f16", [4096, 1024], const=True)
        graph.output((x @ w).silu() * 0.5)
    """

    _end = "quern_graph_free"
    _advice = "quern.Graph.parse(graph.text) makes another one of the same text"

    def __init__(self, name: str | None = None):
        """`name` is for people: letters, digits and _."""
        super().__init__(made("quern_graph_new", name.encode() if name is not None else None))

    @classmethod
    def parse(cls, text: str) -> Graph:
        """A graph from its text form. INVALID_GRAPH with line and column of the first mistake."""
        encoded = text.encode()
        graph = cls.__new__(cls)
        Owner.__init__(graph, made("quern_graph_parse", encoded, len(encoded)))
        return graph

    def _add(self, function: str, *arguments: Any) -> Value:
        value = c.c_int32()
        lib.call(function, self._handle, *arguments, c.byref(value))
        return Value(self, value.value)

    def _id(self, value: Any, what: str) -> int:
        if not isinstance(value, Value):
            raise QuernError("INVALID_ARGUMENT", f"{what} is {value!r}, which is no value of a graph")
        if value.graph is not self:
            raise QuernError("INVALID_ARGUMENT", f"{what} is a value of another graph")
        return value.id

    def value(self, id: int) -> Value:
        """The value that quern.h calls `id`, of a parsed graph for instance: values count up from 0."""
        value = Value(self, id)
        self.describe(value)
        return value

    def input(self, name: str, dtype: Any, shape: Sequence[int], strides: Sequence[int] | None = None, const: bool = False) -> Value:
        """The next buffer that a plan takes. `dtype` is a name ("f16"), or a dtype of numpy or PyTorch; `strides` are in elements, dense
        and row-major by default; `const` says that its contents stay the same from launch to launch, as weights do."""
        if strides is not None and len(strides) != len(shape):
            raise QuernError("INVALID_ARGUMENT", f"input {name} has {len(shape)} extents and {len(strides)} strides")
        return self._add("quern_graph_input", name.encode(), NUMBERS[dtype_name(dtype)], len(shape), _ints(shape, f"the shape of {name}"),
                         _ints(strides, f"the strides of {name}") if strides is not None else None, int(const))

    def constant(self, number: Any) -> Value:
        """A number takes the dtype of what it is combined with. Where nothing says which, an int or bool is an i32, a float an f32."""
        number = _plain(number)
        if not isinstance(number, numbers.Real):
            raise QuernError("INVALID_ARGUMENT", f"{number!r} is no number")
        return self._add("quern_graph_constant", float(number), NUMBERS["i32" if isinstance(number, numbers.Integral) else "f32"])

    def op(self, op: str, *operands: Operand, name: str | None = None, **attrs: Any) -> Value:
        """An operator by its name in the text form. Operands are values of this graph, or numbers, which become constants. Attributes by
        name: axis=-1, eps=1e-5, perm=[1, 0], dtype="f32", keepdims=True. `name` names the result."""
        given = [_attr(key, value) for key, value in attrs.items()]
        ids = [self._id(self.constant(operand) if _is_number(operand) else operand, f"operand {i} of {op}")
               for i, operand in enumerate(operands)]
        return self._add("quern_graph_op", op.encode(), (c.c_int32 * len(ids))(*ids), len(ids),
                         (lib.Attr * len(given))(*given), len(given), name.encode() if name is not None else None)

    def output(self, *values: Value) -> None:
        """The next buffers that a plan fills, dense and row-major."""
        for value in values:
            lib.call("quern_graph_output", self._handle, self._id(value, "the output"))

    def describe(self, value: Value) -> TensorInfo:
        return described("quern_graph_value", self._handle, self._id(value, "what is described"))

    @property
    def text(self) -> str:
        """The text form (.qg), which parses to the same graph."""
        text = c.c_char_p()
        lib.call("quern_graph_text", self._handle, c.byref(text), None)
        return (text.value or b"").decode()

    @property
    def input_names(self) -> list[str]:
        return [name for name, _ in self._declared("in")]

    @property
    def output_names(self) -> list[str]:
        return [name for listed, _ in self._declared("out") for name in listed.split(", ")]

    def _declared(self, word: str) -> list[tuple[str, str]]:
        """What stands behind `in` before the colon, or behind `out`."""
        return re.findall(rf"^{word} ([^:\n]+)(:|$)", self.text, re.MULTILINE)

    def __repr__(self) -> str:
        if self._open_handle is None:
            return "<quern.Graph, closed>"
        name = self.text.split("\n", 1)[0].removeprefix("graph ")
        count = len(re.findall(r"^\S+ = ", self.text, re.MULTILINE))
        return f"<quern.Graph {name}: {len(self.input_names)} inputs, {count} operators, {len(self.output_names)} outputs>"
