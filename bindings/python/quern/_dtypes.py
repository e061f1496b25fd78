"""The dtypes of quern.h, and what numpy, PyTorch and others call them."""
from __future__ import annotations

from typing import Any

from ._library import QuernError

NUMBERS = {"f16": 1, "bf16": 2, "f32": 3, "i32": 4, "bool": 5}
NAMES = {number: name for name, number in NUMBERS.items()}
# What a framework calls each: an attribute of `torch` and of `cupy`.
FRAMEWORK_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "i32": "int32", "bool": "bool"}
_KNOWN = {**{name: name for name in NUMBERS}, **{other: name for name, other in FRAMEWORK_NAMES.items()}, "bool_": "bool"}


def dtype_name(dtype: Any) -> str:
    """"f16" for "f16", "float16", numpy.float16, numpy.dtype("float16") and torch.float16."""
    given = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = _KNOWN.get(given.rpartition(".")[2])
    if name is None:
        raise QuernError("INVALID_ARGUMENT", f"there is no dtype {dtype!r}; there are {', '.join(NUMBERS)}, by these names or as "
                         "numpy's and PyTorch's dtypes")
    return name
