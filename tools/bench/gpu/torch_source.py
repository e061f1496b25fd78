"""A .qg graph as the PyTorch program that a user would write: one line an operator, or with attention handed to
F.scaled_dot_product_attention wherever the graph has softmax(scores) between two products."""

import math
import re

import torch
import torch.nn.functional as F

from torch_graph import DTYPES

UNARY = {"neg": "-{0}", "square": "({0} * {0})", "reciprocal": "1 / {0}", "relu": "F.relu({0})", "gelu": "F.gelu({0})",
         "gelu_tanh": "F.gelu({0}, approximate='tanh')", "silu": "F.silu({0})"}
UNARY.update({op: "torch.%s({0})" % op for op in ("abs", "exp", "log", "sqrt", "rsqrt", "sigmoid", "tanh", "erf")})
BINARY = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "pow": "{0} ** {1}", "lt": "{0} < {1}",
          "le": "{0} <= {1}", "eq": "{0} == {1}", "matmul": "torch.matmul({0}, {1})"}


def is_number(operand):
    try:
        float(operand)
        return True
    except ValueError:
        return False


def axes(attributes, default=None):
    axis = attributes.get("axis", default)
    return axis if axis is None or isinstance(axis, list) else [int(axis)]


def extreme(op, operands, attributes):
    if len(operands) == 1:
        axis = axes(attributes)
        keep = attributes.get("keepdims", False)
        return f"torch.a{op}({operands[0]}, {tuple(axis) if axis else ()}, keepdim={keep})"
    numbers = [o for o in operands if is_number(o)]
    if numbers:
        tensor = next(o for o in operands if not is_number(o))
        return f"torch.clamp({tensor}, {'min' if op == 'max' else 'max'}={numbers[0]})"
    return f"torch.{op}imum({operands[0]}, {operands[1]})"


def sliced(tensor, attributes):
    rank = len(attributes.get("start") or attributes.get("stop") or attributes.get("step"))
    part = [":".join(str(attributes[name][d]) if name in attributes else "" for name in ("start", "stop", "step")) for d in range(rank)]
    return f"{tensor}[{', '.join(part)}]"


def iota(attributes):
    shape, axis = attributes["shape"], axes(attributes, 0)[0]
    view = [extent if d == axis else 1 for d, extent in enumerate(shape)]
    dtype = DTYPES[attributes.get("dtype", "i32")]
    return f"torch.arange({shape[axis]}, device='cuda', dtype={dtype}).view({view}).broadcast_to({shape})"


def norm(op, operands, attributes):
    if axes(attributes, -1) != [-1]:
        raise NotImplementedError(f"{op} over {axes(attributes, -1)}")
    weights = ", ".join(operands[1:] + ["None"] * (3 - len(operands)))
    if op == "rms_norm":
        weights = weights.split(", ")[0]
    return f"F.{op}({operands[0]}, ({operands[0]}.shape[-1],), {weights}, eps={attributes.get('eps', 1e-5)})"


def held(operand, other):
    """A number as `other`'s dtype holds it: PyTorch refuses -1e30 beside f16, where the language makes it -inf."""
    return f"in_range({operand}, {other}.dtype)" if is_number(operand) and not is_number(other) else operand


def in_range(number, dtype):
    return number if not dtype.is_floating_point or abs(number) <= torch.finfo(dtype).max else math.copysign(math.inf, number)


def expression(op, operands, attributes):
    operands = [f"float('{o}')" if o.lstrip("+-") in ("inf", "nan") else o for o in operands]
    x = operands[0] if operands else None
    if op in UNARY or op in BINARY:
        return (UNARY.get(op) or BINARY[op]).format(*operands)
    if op in ("max", "min"):
        return extreme(op, operands, attributes)
    if op in ("sum", "mean"):
        return f"{x}.{op}({axes(attributes)}, keepdim={attributes.get('keepdims', False)})"
    if op == "softmax":
        return f"torch.softmax({x}, {axes(attributes, -1)[0]})"
    if op in ("rms_norm", "layer_norm"):
        return norm(op, operands, attributes)
    table = {
        "where": lambda: f"torch.where({x}, {held(operands[1], operands[2])}, {held(operands[2], operands[1])})",
        "reshape": lambda: f"{x}.reshape({attributes['shape']})",
        "transpose": lambda: f"{x}.permute({[int(p) for p in attributes['perm']]})" if "perm" in attributes
        else f"{x}.permute(*reversed(range({x}.dim())))",
        "slice": lambda: sliced(x, attributes),
        "concat": lambda: f"torch.cat([{', '.join(operands)}], {axes(attributes, 0)[0]})",
        "broadcast": lambda: f"{x}.broadcast_to({attributes['shape']})",
        "cast": lambda: f"{x}.to({DTYPES[attributes['dtype']]})",
        "iota": lambda: iota(attributes),
    }
    return table[op]()


class Attention:
    """Finds softmax(scale * (q @ k) with a mask) @ v behind each product and writes it as one call. `keys` are the inputs that are k:
    libraries want them as (key, dimension) in memory."""

    def __init__(self, graph):
        self.inputs, self.keys = {name for name, *_ in graph.inputs}, set()
        self.made = {result: (op, operands, attributes) for result, op, operands, attributes in graph.ops}
        self.uses = [o for _, _, operands, _ in graph.ops for o in operands] + list(graph.outputs)

    def source(self, op, operands):
        if op != "matmul" or self._op(operands[0]) != "softmax" or self.uses.count(operands[0]) != 1:
            return None
        scores, scale, mask = self.made[operands[0]][1][0], 1.0, None
        while self._op(scores) in ("mul", "div", "where", "add"):
            name, parts, _ = self.made[scores]
            if name == "where" and mask is None and is_number(parts[2]) and float(parts[2]) < -1e3:
                mask, scores = parts[0], parts[1]
            elif name == "add" and mask is None and scale == 1.0:
                mask, scores = parts[1], parts[0]
            elif name in ("mul", "div") and is_number(parts[1]):
                scale, scores = scale * (float(parts[1]) if name == "mul" else 1 / float(parts[1])), parts[0]
            else:
                return None
        if self._op(scores) != "matmul":
            return None
        q, k = self.made[scores][1]
        self.keys |= {k} & self.inputs
        causal = mask is not None and self._is_causal(mask)
        mask_text = "" if mask is None or causal else f", attn_mask={self._four(mask)}"
        call = (f"F.scaled_dot_product_attention({self._four(q)}, {self._four(f'{k}.transpose(-1, -2)')}, {self._four(operands[1])}"
                f"{mask_text}, is_causal={causal}, scale={scale})")
        return f"{call}.reshape({q}.shape[:-1] + {operands[1]}.shape[-1:])"

    @staticmethod
    def _four(tensor):
        return f"({tensor})[(None,) * (4 - ({tensor}).dim())]"

    def _op(self, name):
        return self.made.get(name, (None,))[0]

    def _is_causal(self, mask):
        op, operands, _ = self.made.get(mask, (None, [], {}))
        if op != "le" or any(self._op(o) != "iota" for o in operands):
            return False
        column, row = (self.made[o][2] for o in operands)
        shape = row["shape"]
        return len(shape) == 2 and shape[0] == shape[1] and axes(column, 0) == [1] and axes(row, 0) == [0]


def source(graph, attention=None):
    """The program's text; with `attention`, None when there is none to hand over."""
    library = attention is not None
    lines, handed = [], False
    for result, op, operands, attributes in graph.ops:
        call = attention.source(op, operands) if library else None
        handed |= call is not None
        lines.append(f"    {result} = {call or expression(op, operands, attributes)}")
    if library and not handed:
        return None
    if library:
        lines = without_unused(lines, graph.outputs)
    names = ", ".join(name for name, *_ in graph.inputs)
    return f"def program({names}):\n" + "\n".join(lines) + f"\n    return [{', '.join(graph.outputs)}]\n"


def without_unused(lines, outputs):
    """Eager mode would compute the scores that the library call does not need."""
    kept, needed = [], set(outputs)
    for line in reversed(lines):
        result, text = line.strip().split(" = ", 1)
        if result in needed:
            kept.insert(0, line)
            needed |= set(re.findall(r"[A-Za-z_]\w*", text))
    return kept


def program(graph, attention=None):
    """A function of the graph's inputs that returns the list of its outputs, or None."""
    text = source(graph, attention)
    if text is None:
        return None
    scope = {"torch": torch, "F": F, "in_range": in_range}
    exec(compile(text, graph.name, "exec"), scope)
    return scope["program"]
