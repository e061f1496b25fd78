"""Evaluates .qg graphs with PyTorch: in f64 as a reference that is independent of Quern's own, and eagerly in the
graph's dtypes as the unfused program that a kernel is compared with."""

import keyword
import re

import torch

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "bool": torch.bool}
TOKEN = re.compile(r"\s*(#.*|[A-Za-z_][\w.]*|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+](?:inf|nan)|.)")


def tokens(line):
    """Names that are words of Python's get an underscore, and dots become two: programs are made of them."""
    words = [t for t in TOKEN.findall(line) if t and not t.startswith("#")]
    statement = words[:1] if words[1:2] != ["="] else []
    return statement + [named(word) for word in words[len(statement):]]


def named(word):
    if keyword.iskeyword(word):
        return word + "_"
    return word.replace(".", "__") if word[0].isalpha() or word[0] == "_" else word


class Graph:
    """name, inputs [(name, dtype, shape, strides)], ops [(result, op, operands, attributes)], outputs [name]."""

    def __init__(self, text):
        self.inputs, self.ops, self.outputs, self.name = [], [], [], ""
        for line in text.splitlines():
            words = tokens(line)
            if not words:
                continue
            if words[0] == "graph" and words[1] != "=":
                self.name = words[1]
            elif words[0] == "in" and words[1] != "=":
                self._input(words)
            elif words[0] == "out" and words[1] != "=":
                self.outputs += [w for w in words[1:] if w != ","]
            else:
                self._op(words)

    def _input(self, words):
        shape, at = self._value(words, 4)
        strides = []
        for extent in reversed(shape):
            strides.insert(0, strides[0] * max(1, last) if strides else 1)
            last = extent
        if "strides" in words[at:]:
            strides, _ = self._value(words, words.index("strides", at) + 1)
        self.inputs.append((words[1], words[3], shape, strides))

    def _op(self, words):
        operands, attributes, at = [], {}, 4
        while words[at] != ")":
            if words[at] == ",":
                at += 1
            elif words[at + 1] == "=":
                attributes[words[at]], at = self._value(words, at + 2)
            else:
                operands.append(words[at])
                at += 1
        self.ops.append((words[0], words[2], operands, attributes))

    @staticmethod
    def _value(words, at):
        if words[at] == "[":
            end = words.index("]", at)
            return [int(w) for w in words[at + 1:end] if w != ","], end + 1
        word = words[at]
        if word in ("true", "false"):
            return word == "true", at + 1
        return (word if word in DTYPES else float(word)), at + 1


def span(shape, strides):
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))


def random_inputs(graph, generator, device="cuda"):
    """One flat buffer an input, floats in [-1, 1], and the tensor view of it that the graph sees."""
    tensors = []
    for _, dtype, shape, strides in graph.inputs:
        count = span(shape, strides)
        if dtype == "i32":
            buffer = torch.randint(-8, 9, (count,), generator=generator, device=device, dtype=torch.int32)
        elif dtype == "bool":
            buffer = torch.randint(0, 2, (count,), generator=generator, device=device).bool()
        else:
            buffer = (torch.rand(count, generator=generator, device=device) * 2 - 1).to(DTYPES[dtype])
        tensors.append((buffer, torch.as_strided(buffer, shape, strides) if count else buffer.reshape(shape)))
    return tensors


UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}


def accumulation_noise(squares, terms, tensor_cores=False):
    """Deviation of a sum in f32, of so many terms whose squares add up to `squares`: each step, of four terms or more, rounds a partial
    sum; tensor cores cut off what f32 has no room for, always in the same direction (core/verify/noise.h)."""
    rounding, truncation = 2.0**-24 * (max(terms, 4) / 4) ** 0.5, 2.0**-27 / 3 * terms if tensor_cores else 0
    return torch.nan_to_num((rounding**2 + truncation**2) ** 0.5 * squares.sqrt(), nan=0.0, posinf=0.0)


class Evaluator:
    """real=True: everything in f64, as the language defines it. real=False: every operator in the dtype it has, as eager
    PyTorch computes it (f32 accumulation inside a matmul, results rounded). With a generator as `noise` every result is moved, up
    or down, by a rounding error of its dtype and one of f32 functions: what an unlucky unfused program computes. With `range`
    an intermediate value in f64 that its dtype cannot hold becomes NaN, and a sum whose terms may overflow f32 in another order:
    what is NaN then comes of an overflow."""

    def __init__(self, graph, real, noise=None, range=False):
        self.graph, self.real, self.noise, self.range = graph, real, noise, range

    def run(self, tensors):
        self.values, self.dtypes, self.device = {}, {}, tensors[0].device if tensors else "cuda"
        for (name, dtype, _, _), tensor in zip(self.graph.inputs, tensors):
            self.values[name] = self.hold(tensor, dtype)
            self.dtypes[name] = dtype
        for result, op, operands, attributes in self.graph.ops:
            dtype = self.result_dtype(op, operands, attributes)
            value = getattr(self, "op_" + op, None)
            value = value(operands, attributes, dtype) if value else self.elementwise(op, operands, dtype)
            self.values[result] = self.moved(self.hold(value, dtype), dtype)
            if self.range and dtype in UNIT and result not in self.graph.outputs:
                self.values[result] = self.within_range(self.values[result], dtype)
            self.dtypes[result] = dtype
        return [self.values[name] for name in self.graph.outputs]

    def hold(self, tensor, dtype):
        if dtype in ("i32", "bool"):
            return tensor.to(DTYPES[dtype])
        return tensor.to(torch.float64 if self.real else DTYPES[dtype])

    def ordered(self, total, sizes):
        """A sum, of terms of which the sizes add up to `sizes`."""
        return total.masked_fill(torch.isfinite(total) & (sizes > torch.finfo(torch.float32).max), float("nan")) if self.range else total

    @staticmethod
    def within_range(tensor, dtype):
        return tensor.masked_fill(torch.isfinite(tensor) & (tensor.abs() > torch.finfo(DTYPES[dtype]).max), float("nan"))

    def moved(self, tensor, dtype):
        if self.noise is None or dtype not in UNIT:
            return tensor
        sign = torch.randint(0, 2, tensor.shape, generator=self.noise, device=tensor.device) * 2 - 1
        return tensor * (1 + sign * (UNIT[dtype] + 2.0**-22))

    # dtypes, by the rules of the language

    def is_number(self, operand):
        return operand not in self.values

    def promote(self, operands):
        known = [self.dtypes[o] for o in operands if not self.is_number(o)]
        numbers = [o for o in operands if self.is_number(o)]
        floats = {d for d in known if d in ("f16", "bf16", "f32")}
        if floats:
            return floats.pop() if len(floats) == 1 else "f32"
        if any(not re.fullmatch(r"[-+]?\d+", n) for n in numbers):
            return "f32"
        return "i32" if "i32" in known or numbers else "bool"

    def result_dtype(self, op, operands, attributes):
        if op in ("lt", "le", "eq"):
            return "bool"
        if op == "cast":
            return attributes["dtype"]
        if op == "iota":
            return attributes.get("dtype", "i32")
        if op == "where":
            return self.promote(operands[1:])
        dtype = self.promote(operands)
        if op in ("reshape", "transpose", "slice", "broadcast", "concat"):
            return dtype
        same = op in ("neg", "abs", "square", "relu", "add", "sub", "mul", "max", "min", "matmul", "sum")
        if same:
            return "i32" if dtype == "bool" else dtype
        return dtype if dtype in ("f16", "bf16", "f32") else "f32"

    # values

    def compute_type(self, dtype):
        if dtype in ("i32", "bool"):
            return torch.int64  # wraps when it is stored
        return torch.float64 if self.real else DTYPES[dtype]

    def value(self, operand, dtype):
        kind = self.compute_type(dtype)
        if self.is_number(operand):
            number = float(operand)
            if kind == torch.int64:
                return torch.tensor(int(number), dtype=kind, device=self.device)
            # A number takes the dtype of what it is combined with.
            return torch.tensor(number, dtype=torch.float64, device=self.device).to(DTYPES[dtype]).to(kind)
        return self.values[operand].to(kind)

    @staticmethod
    def wrap(tensor, dtype):
        return tensor.to(torch.int32) if dtype == "i32" else tensor

    def elementwise(self, op, operands, dtype):
        if op in ("lt", "le", "eq"):
            compute = self.promote(operands)
        else:
            compute = dtype
        if op == "where":
            condition = self.values[operands[0]] != 0
            return torch.where(condition, self.value(operands[1], dtype), self.value(operands[2], dtype))
        a = [self.value(o, compute) for o in operands]
        F = torch.nn.functional
        table = {
            "neg": lambda x: -x, "abs": torch.abs, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt,
            "rsqrt": torch.rsqrt, "square": lambda x: x * x, "reciprocal": torch.reciprocal,
            "relu": lambda x: torch.maximum(x, torch.zeros_like(x)), "gelu": F.gelu,
            # in f64 by its definition: PyTorch's 1 + tanh(u) cancels where u is below -18
            "gelu_tanh": lambda x: x / (1 + torch.exp(-1.5957691216057307118 * (x + 0.044715 * x**3))) if self.real
            else F.gelu(x, approximate="tanh"), "silu": F.silu, "sigmoid": torch.sigmoid,
            "tanh": torch.tanh, "erf": torch.erf, "add": torch.add, "sub": torch.sub, "mul": torch.mul,
            "div": torch.div, "max": torch.maximum, "min": torch.minimum, "pow": torch.pow, "lt": torch.lt,
            "le": torch.le, "eq": torch.eq,
        }
        return self.wrap(table[op](*a), dtype)

    def op_matmul(self, operands, attributes, dtype):
        a, b = (self.value(o, dtype) for o in operands)
        if dtype == "i32":  # exact in f64 for the small integers of the tests
            return torch.matmul(a.double(), b.double()).to(torch.int64)
        product = torch.matmul(a, b)
        if self.range:
            return self.ordered(product, torch.matmul(a.abs(), b.abs()))
        if self.noise is None:
            return product
        return self.shaken(product, accumulation_noise(torch.matmul(a * a, b * b), a.shape[-1], True))

    def shaken(self, tensor, deviation):
        return tensor + deviation * torch.randn(tensor.shape, generator=self.noise, device=tensor.device, dtype=tensor.dtype)

    def axes(self, operand, attributes, default):
        rank = self.values[operand].dim()
        axis = attributes.get("axis", default)
        axis = list(range(rank)) if axis is None else [axis] if not isinstance(axis, list) else axis
        return [int(a) % max(rank, 1) for a in axis]

    def op_sum(self, operands, attributes, dtype):
        x, axes = self.value(operands[0], dtype), self.axes(operands[0], attributes, None)
        if not axes:
            return self.wrap(x, dtype)
        keep = attributes.get("keepdims", False)
        total = x.sum(axes, keepdim=keep)
        if x.is_floating_point():
            total = self.ordered(total, x.abs().sum(axes, keepdim=keep))
        if self.noise is not None and x.is_floating_point():
            total = self.shaken(total, accumulation_noise((x * x).sum(axes, keepdim=keep), x.numel() // max(1, total.numel())))
        return self.wrap(total, dtype)

    def op_mean(self, operands, attributes, dtype):
        x, axes = self.value(operands[0], dtype), self.axes(operands[0], attributes, None)
        return self.mean(x, axes, attributes.get("keepdims", False)) if axes else x

    def mean(self, x, axes, keep=True):
        mean = self.ordered(x.mean(axes, keepdim=keep), x.abs().sum(axes, keepdim=keep))
        if self.noise is None:
            return mean
        count = x.numel() // max(1, mean.numel())
        return self.moved(self.shaken(mean, accumulation_noise((x * x).sum(axes, keepdim=keep), count) / max(1, count)), "f32")

    def op_max(self, operands, attributes, dtype):
        return self.extreme("max", torch.amax, -torch.inf, -(2**31), operands, attributes, dtype)

    def op_min(self, operands, attributes, dtype):
        return self.extreme("min", torch.amin, torch.inf, 2**31 - 1, operands, attributes, dtype)

    # `identity` and `integer`: the result over nothing.
    def extreme(self, op, reduce, identity, integer, operands, attributes, dtype):
        if len(operands) == 2:
            return self.elementwise(op, operands, dtype)
        x, axes = self.value(operands[0], dtype), self.axes(operands[0], attributes, None)
        if not axes:
            return x
        if any(x.shape[a] == 0 for a in axes):
            shape = [1 if i in axes else n for i, n in enumerate(x.shape)]
            if not attributes.get("keepdims", False):
                shape = [n for i, n in enumerate(x.shape) if i not in axes]
            return torch.full(shape, integer if dtype in ("i32", "bool") else identity, dtype=x.dtype, device=x.device)
        return reduce(x, axes, keepdim=attributes.get("keepdims", False))

    def op_softmax(self, operands, attributes, dtype):
        x, axes = self.value(operands[0], dtype), self.axes(operands[0], attributes, -1)
        if len(axes) == 1 or 0 in x.shape:
            return torch.softmax(x, axes[0])
        e = torch.exp(x - x.amax(axes, keepdim=True))
        return e / e.sum(axes, keepdim=True)

    def norm(self, operands, attributes, dtype, center):
        x, axes = self.value(operands[0], dtype), self.axes(operands[0], attributes, -1)
        kind = x.dtype
        x = x.double() if self.real else x.float()
        if center:
            x = self.moved(x - self.mean(x, axes), "f32")  # which may be all that is left of a row of equal elements
        squares = self.within_range(x * x, "f32") if self.range else x * x
        x = x / torch.sqrt(self.mean(squares, axes) + attributes.get("eps", 1e-5))
        shape = [n if i in axes else 1 for i, n in enumerate(x.shape)]
        if len(operands) > 1:
            x = x * self.value(operands[1], dtype).reshape(shape)
        if len(operands) > 2:
            x = x + self.value(operands[2], dtype).reshape(shape)
        return x.to(kind)

    def op_rms_norm(self, operands, attributes, dtype):
        return self.norm(operands, attributes, dtype, False)

    def op_layer_norm(self, operands, attributes, dtype):
        return self.norm(operands, attributes, dtype, True)

    def op_reshape(self, operands, attributes, dtype):
        return self.value(operands[0], dtype).reshape(attributes["shape"])

    def op_transpose(self, operands, attributes, dtype):
        x = self.value(operands[0], dtype)
        return x.permute(attributes.get("perm", list(range(x.dim()))[::-1]))

    def op_slice(self, operands, attributes, dtype):
        x = self.value(operands[0], dtype)
        for d in range(x.dim()):
            start = attributes.get("start", [0] * x.dim())[d]
            stop = attributes.get("stop", list(x.shape))[d]
            step = attributes.get("step", [1] * x.dim())[d]
            x = x[(slice(None),) * d + (slice(start, stop, step),)]
        return x

    def op_concat(self, operands, attributes, dtype):
        axis = attributes.get("axis", 0)
        axis = axis[0] if isinstance(axis, list) else axis
        return torch.cat([self.value(o, dtype) for o in operands], int(axis))

    def op_broadcast(self, operands, attributes, dtype):
        return self.value(operands[0], dtype).broadcast_to(attributes["shape"])

    def op_cast(self, operands, attributes, dtype):
        x = self.value(operands[0], self.promote(operands)) if self.is_number(operands[0]) else self.values[operands[0]]
        if dtype == "i32":
            x = torch.nan_to_num(x.double(), nan=0.0).trunc().clamp(-(2**31), 2**31 - 1)
        elif dtype == "bool":
            x = x != 0
        return x.to(DTYPES[dtype])  # an explicit cast rounds, in the reference too

    def op_iota(self, operands, attributes, dtype):
        axis = attributes.get("axis", 0)
        axis = int(axis[0] if isinstance(axis, list) else axis)
        shape = attributes["shape"]
        line = torch.arange(shape[axis], device=self.device).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return line.broadcast_to(shape).to(DTYPES[dtype])
