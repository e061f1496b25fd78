"""What never changes about a plan."""
from __future__ import annotations

import ctypes as c
import struct
from typing import Any, NamedTuple

from . import _library as lib
from ._graph import described
from ._handle import Owner

TIERS = {1: "baseline", 2: "modelled", 3: "measured"}
_ORIGINS = {1: "hit", 2: "compiled", 3: "shared"}


class PlanInfo(NamedTuple):
    """quern_plan_info of quern.h; times are in nanoseconds."""

    key: str
    target: str
    tier: str
    origin: str
    generation: int
    workspace_bytes: int
    certificate: str
    warning: str
    daemon_ns: int
    queue_ns: int
    emit_ns: int
    compile_ns: int


class Description(Owner):
    """What never changes about a plan. Every Plan of one handle has the same, which holds a reference of its own: as long as it
    lives, no other plan has this handle."""

    _end = "quern_plan_release"

    def __init__(self, handle: c.c_void_p):
        super().__init__(c.c_void_p(lib.library.quern_plan_retain(handle)))
        info = lib.PlanInfo()
        lib.call("quern_plan_describe", handle, c.byref(info))
        self.info = PlanInfo(info.key.decode(), info.target.decode(), TIERS[info.tier], _ORIGINS[info.origin], info.generation,
                             info.workspace_bytes, info.certificate.decode(), info.warning.decode(), info.daemon_ns,
                             info.queue_ns, info.emit_ns, info.compile_ns)
        # Named as in the canonical form of the graph.
        self.inputs = [described("quern_plan_input", handle, i) for i in range(info.input_count)]
        self.outputs = [described("quern_plan_output", handle, i) for i in range(info.output_count)]
        self.launch_count = info.launch_count
        self.pack_inputs = struct.Struct(f"{info.input_count}P").pack
        self.pack_outputs = struct.Struct(f"{info.output_count}P").pack
        # Of frameworks, by the type of the first tensor: see Torch.quick_caller and Torch.caller.
        self.quick: dict[type, Any] = {}
        self.callers: dict[type, Any] = {}
