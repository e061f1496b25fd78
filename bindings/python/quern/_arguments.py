"""From the tensors that a plan is called with to what quern_launch takes."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from ._graph import TensorInfo
from ._library import QuernError
from ._tensors import check, device_of, framework_of, look, stream_number, wrong

if TYPE_CHECKING:
    from ._plan import Plan

_WORKSPACE_ALIGNMENT = 256  # bytes (quern_launch)


class Arguments(NamedTuple):
    """Addresses of what a launch reads and writes. `filled` are the outputs as tensors, `kept` must live until the launch."""

    stream: int
    inputs: list[int]
    outputs: list[int]
    workspace: int
    filled: Sequence[Any]
    kept: Any


def arguments(plan: Plan, inputs: Sequence[Any], out: Any, workspace: Any, stream: Any) -> Arguments:
    """Looks at each tensor. INVALID_ARGUMENT names the one that does not fit, and how."""
    outputs = None if out is None else out if isinstance(out, (tuple, list)) else (out,)
    for kind, held in (("input", inputs), ("output", outputs)):
        if held is not None and len(held) != len(plan.infos(kind)):
            raise wrong_count(plan, kind, len(held))
    if stream is not None and (outputs is None or (plan.info.workspace_bytes and workspace is None)):
        raise QuernError("INVALID_ARGUMENT", "with stream=, pass out= and workspace= too: what a framework allocates belongs to its "
                         "current stream")
    device = _device(plan, inputs, outputs)
    framework = framework_of(inputs[0] if inputs else outputs[0]) if inputs or outputs else None
    if framework is None:
        return _gathered(plan, inputs, outputs, workspace, None, device, stream_number(stream or 0))
    about = plan._about
    if inputs and type(inputs[0]) not in about.callers:
        about.quick[type(inputs[0])] = framework.quick_caller(type(inputs[0]), about)
        about.callers[type(inputs[0])] = framework.caller(about.inputs, about.outputs, about.info.workspace_bytes)
    number = framework.stream(device) if stream is None else stream_number(stream)
    if number or framework.is_current(device):
        return _gathered(plan, inputs, outputs, workspace, framework, device, number)
    with framework.on(device):
        return _gathered(plan, inputs, outputs, workspace, framework, device, number)


def _device(plan: Plan, inputs: Sequence[Any], outputs: Sequence[Any] | None) -> int:
    for kind, tensors in (("input", inputs), ("output", outputs)):
        if tensors:
            return device_of(tensors[0], _what(kind, 0, plan.infos(kind)[0]))
    raise QuernError("INVALID_ARGUMENT", "the plan takes no inputs, so that nothing says where it should run: pass out=")


def _gathered(plan: Plan, inputs: Sequence[Any], outputs: Any, workspace: Any, framework: Any, device: int, stream: int) -> Arguments:
    read = _looked_at(plan, "input", inputs, device, stream)
    if outputs is None:
        if framework is None:
            raise QuernError("INVALID_ARGUMENT", "only PyTorch and CuPy are asked to allocate: pass out=")
        outputs = [framework.empty(info, device) for info in plan.infos("output")]
    written = _looked_at(plan, "output", outputs, device, stream)
    _check_apart(plan, read, written)
    scratch, at = _workspace(plan, workspace, framework, device, stream)
    return Arguments(stream, [seen.address for seen in read], [seen.address for seen in written], at, outputs, (inputs, read, written, scratch))


def _looked_at(plan: Plan, kind: str, tensors: Sequence[Any], device: int, stream: int) -> list[Any]:
    found = []
    for index, (tensor, info) in enumerate(zip(tensors, plan.infos(kind))):
        what = _what(kind, index, info)
        found.append(look(tensor, what, stream, written=kind == "output"))
        check(found[-1], info, what, device)
    return found


def wrong_count(plan: Plan, kind: str, count: int) -> QuernError:
    names = ", ".join(info.name for info in plan.infos(kind))
    return QuernError("INVALID_ARGUMENT", f"the plan takes {len(plan.infos(kind))} {kind}s ({names}), not {count}")


def _what(kind: str, index: int, info: TensorInfo) -> str:
    return f"{kind} {index} ({info.name})"


def _check_apart(plan: Plan, read: Sequence[Any], written: Sequence[Any]) -> None:
    for o, (output, filled) in enumerate(zip(plan.infos("output"), written)):
        for i, (info, seen) in enumerate(zip(plan.infos("input"), read)):
            if seen.address == filled.address and output.bytes and info.bytes:
                raise wrong(_what("output", o, output), f"is the same buffer as {_what('input', i, info)}")


def _workspace(plan: Plan, workspace: Any, framework: Any, device: int, stream: int) -> tuple[Any, int]:
    """The workspace and its address."""
    needed = plan.info.workspace_bytes
    if isinstance(workspace, int):
        return None, workspace
    if workspace is not None:
        seen = look(workspace, "the workspace", stream, written=True)
        if seen.bytes < needed or seen.device != device or seen.address % _WORKSPACE_ALIGNMENT:
            raise wrong("the workspace", f"holds {seen.bytes} bytes at {seen.address:#x} on device {seen.device}; the plan needs "
                                   f"{needed}, aligned to {_WORKSPACE_ALIGNMENT}, on device {device}")
        return seen, seen.address
    if not needed:
        return None, 0
    if framework is None:
        raise QuernError("INVALID_ARGUMENT", f"the plan needs a workspace of {needed} bytes, and only PyTorch and CuPy are asked to allocate: "
                         "pass workspace=")
    return framework.scratch(needed, device)
