"""A .qg graph, or a part of it, as the PyTorch program that a user would write: one line an operator, or with attention handed to
F.scaled_dot_product_attention."""

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
    return f"torch.arange({shape[axis]}, device=DEVICE, dtype={dtype}).view({view}).broadcast_to({shape})"


def norm(op, operands, attributes):
    if axes(attributes, -1) != [-1]:
        raise NotImplementedError(f"{op} over {axes(attributes, -1)}")
    weights = ", ".join(operands[1:] + ["None"] * (3 - len(operands)))
    if op == "rms_norm":
        weights = weights.split(", ")[0]
    return f"F.{op}({operands[0]}, ({operands[0]}.shape[-1],), {weights}, eps={attributes.get('eps', 1e-5)})"


def held(operand, other):
    """A number as `other`'s dtype holds it: PyTorch refuses -1e30 beside f16, where the language makes it -inf."""
    is_literal = other.startswith("float(") or is_number(other)
    return f"in_range({operand}, {other}.dtype)" if is_number(operand) and not is_literal else operand


def in_range(number, dtype):
    return number if not dtype.is_floating_point or abs(number) <= torch.finfo(dtype).max else math.copysign(math.inf, number)


def cast(x, dtype):
    is_literal = is_number(x) or x.startswith("float(")
    return f"torch.full((), {x}, dtype={dtype}, device=DEVICE)" if is_literal else f"{x}.to({dtype})"


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
        "where": lambda: f"torch.where(({x}).bool(), {held(operands[1], operands[2])}, {held(operands[2], operands[1])})",
        "reshape": lambda: f"{x}.reshape({attributes['shape']})",
        "transpose": lambda: f"{x}.permute({[int(p) for p in attributes['perm']]})" if "perm" in attributes
        else f"{x}.permute(*reversed(range({x}.dim())))",
        "slice": lambda: sliced(x, attributes),
        "concat": lambda: f"torch.cat([{', '.join(operands)}], {axes(attributes, 0)[0]})",
        "broadcast": lambda: f"{x}.broadcast_to({attributes['shape']})",
        "cast": lambda: cast(x, DTYPES[attributes["dtype"]]),
        "iota": lambda: iota(attributes),
    }
    return table[op]()


def four(tensor):
    return f"({tensor})[(None,) * (4 - ({tensor}).dim())]"


def mask_text(attention):
    """The mask that scaled_dot_product_attention is given, as an expression; None if there is none."""
    conditions = " & ".join(f"({name} != 0)" for name in attention.masks)
    addend = attention.addend and f"{attention.addend}.to({attention.q}.dtype)"
    return f"torch.where({conditions}, {addend}, float('-inf'))" if addend and conditions else addend or conditions or None


def is_causal(attention):
    return attention.window == (None, 0) and attention.q_shape[-2] == attention.k_shape[-2] and not attention.addend


def library_call(attention):
    """The attention as one call, or None if there is no such call."""
    if attention.changes and not attention.addend:
        return None
    causal, mask = is_causal(attention), mask_text(attention)
    mask = "" if mask is None or causal else f", attn_mask={four(mask)}"
    return (f"F.scaled_dot_product_attention({four(attention.q)}, {four(attention.k)}, {four(attention.v)}{mask}, is_causal={causal}, "
            f"scale={attention.scale}, enable_gqa={attention.grouped}).reshape({attention.q}.shape[:-1] + ({attention.v}).shape[-1:])")


def without_unused(lines, wanted):
    """Without what nobody reads, such as the scores that a library call does not need."""
    kept, needed = [], names(" ".join(wanted))
    for line in reversed(lines):
        result, text = line.split(" = ", 1)
        if result in needed:
            kept.insert(0, line)
            needed |= names(text)
    return kept


def names(text):
    return set(re.findall(r"[A-Za-z_]\w*", text))


def program(graph, given=None, wanted=None, calls=None, device="cuda", first=()):
    """A function of the values `given` (the graph's inputs) that returns the list of the expressions `wanted` (its outputs, dense). `calls`: {result:
    expression} of what something else computes than the graph's operators; `first`: statements in front of them."""
    given = [name for name, *_ in graph.inputs] if given is None else given
    wanted = [f"{name}.contiguous()" for name in graph.outputs] if wanted is None else wanted
    lines = [f"{result} = {(calls or {}).get(result) or expression(op, operands, attributes)}" for result, op, operands, attributes in graph.ops
             if result not in given]
    lines = without_unused([*first, *lines], wanted) + [f"return [{', '.join(wanted)}]"]
    scope = {"torch": torch, "F": F, "in_range": in_range, "DEVICE": device}
    exec(compile(f"def program({', '.join(given)}):\n    " + "\n    ".join(lines), graph.name, "exec"), scope)
    return scope["program"]


def library_program(graph, attentions, device="cuda"):
    """The program with what of its attention libraries can compute handed to them; None if that is nothing."""
    calls = {result: library_call(attention) for result, attention in attentions.items()}
    return program(graph, calls=calls, device=device) if any(calls.values()) else None
