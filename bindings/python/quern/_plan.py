"""Plans: what they are made of, and running them on tensors."""
from __future__ import annotations

import ctypes as c
from typing import Any, Callable, NamedTuple, Sequence

from . import _library as lib
from ._arguments import arguments, wrong_count
from ._description import Description, PlanInfo
from ._dtypes import NAMES
from ._graph import Graph, TensorInfo
from ._handle import Owner
from ._library import QuernError
from ._tensors import stream_number

_ARGS = {1: "input", 2: "output", 3: "workspace", 4: "integer", 5: "tensor_map"}

_quern_launch = lib.library.quern_launch


class Launch(NamedTuple):
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    shared_bytes: int
    args: list[tuple[str, int]]
    overlaps: bool


class TensorMap(NamedTuple):
    buffer: tuple[str, int]
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


class Plan(Owner):
    """What is launched: one cubin with an ordered list of kernel launches. Never changes. `plan(x, w)` runs it on tensors."""

    _end = "quern_plan_release"
    _advice = "ask the client for it again"

    def __init__(self, handle: c.c_void_p, graph: Graph, description: Description | None = None):
        super().__init__(handle)
        self._description: Description | None = description or Description(handle)
        self._graph = graph  # for the names
        self._infos: dict[str, list[TensorInfo]] = {}

    def close(self) -> None:
        super().close()
        self._description = None

    @property
    def _about(self) -> Description:
        if self._description is None:
            raise QuernError("INVALID_ARGUMENT", "the plan is closed")
        return self._description

    @property
    def info(self) -> PlanInfo:
        return self._about.info

    def infos(self, kind: str) -> list[TensorInfo]:
        """The inputs ("input") or outputs, named as in the graph that the plan was got for, unless that is closed."""
        if kind not in self._infos:
            infos = self._about.inputs if kind == "input" else self._about.outputs
            if self._graph._open_handle is not None:
                names = self._graph.input_names if kind == "input" else self._graph.output_names
                infos = [info._replace(name=name) for info, name in zip(infos, names)]
            self._infos[kind] = infos
        return self._infos[kind]

    @property
    def inputs(self) -> list[TensorInfo]:
        return list(self.infos("input"))

    @property
    def outputs(self) -> list[TensorInfo]:
        return list(self.infos("output"))

    @property
    def cubin(self) -> bytes:
        info = lib.PlanInfo()
        lib.call("quern_plan_describe", self._handle, c.byref(info))
        return c.string_at(info.cubin, info.cubin_size)

    @property
    def launches(self) -> list[Launch]:
        result = []
        for i in range(self._about.launch_count):
            launch = lib.LaunchInfo()
            lib.call("quern_plan_launch", self._handle, i, c.byref(launch))
            args = [(_ARGS[arg.kind], arg.value) for arg in launch.args[: launch.arg_count]]
            result.append(Launch(launch.kernel.decode(), tuple(launch.grid), tuple(launch.block), tuple(launch.cluster),
                                 launch.shared_bytes, args, bool(launch.overlaps)))
        return result

    @property
    def tensor_maps(self) -> list[TensorMap]:
        """What launches take as ("tensor_map", i), for callers who launch the cubin themselves."""
        result: list[TensorMap] = []
        while True:
            held = lib.TensorMap()
            try:
                lib.call("quern_plan_tensor_map", self._handle, len(result), c.byref(held))
            except QuernError as error:
                if error.status != "NOT_FOUND":
                    raise
                return result
            lists = [tuple(values[: held.rank]) for values in (held.shape, held.strides, held.box)]
            result.append(TensorMap((_ARGS[held.buffer.kind], held.buffer.value), NAMES[held.dtype], *lists, held.swizzle))

    def prepare(self, stream: Any = 0) -> None:
        """Loads the plan into the CUDA context of `stream`, as the first launch there would."""
        lib.call("quern_plan_prepare", self._handle, stream_number(stream))

    def __call__(self, *inputs: Any, out: Any = None, workspace: Any = None, stream: Any = None) -> Any:
        """Launches the plan on device tensors, in the order of the graph's inputs, and returns its output, or a tuple of them, before
        the kernels have run. Tensors are PyTorch's, or offer DLPack or __cuda_array_interface__; dtype, shape, strides, device and
        alignment must be those of the plan.

        `out` takes a tensor, or a sequence of them, to fill; `workspace` a tensor of info.workspace_bytes, or its address. What is not
        given is allocated by PyTorch or CuPy, whichever the first tensor belongs to. The launch is on that framework's current
        stream, for other tensors on the default stream. Outputs and workspace must be given with a `stream` of your own, since what a
        framework allocates belongs to its current one."""
        about, given = self._description or self._about, None
        if stream is None and inputs:
            quick = about.quick.get(type(inputs[0]))
            if quick is not None:
                result = quick(inputs, out, workspace)
                if result is not None:
                    return result
        caller = about.callers.get(type(inputs[0])) if inputs and stream is None else None
        if caller is not None:
            try:
                given = caller(inputs, out, workspace)
            except AttributeError:
                pass  # one of them is not the framework's
        if given is None:
            given = arguments(self, inputs, out, workspace, stream)
        number, read, written, at, filled, _ = given
        status = _quern_launch(self._open_handle, number, about.pack_inputs(*read), about.pack_outputs(*written), at, lib.errors.reference)
        if status:
            arguments(self, inputs, out, workspace, stream)  # knows better what is wrong, if it is a tensor
            lib.checked(status)
        return filled[0] if len(filled) == 1 else tuple(filled)

    def bind(self, *inputs: Any, out: Any = None, workspace: Any = None, stream: Any = None) -> Callable[[], Any]:
        """The call of the plan on these tensors, checked and allocated once: a function that launches and returns the outputs. It keeps
        the tensors, and its launches share outputs and workspace."""
        about = self._about
        given = arguments(self, inputs, out, workspace, stream)
        read, written = about.pack_inputs(*given.inputs), about.pack_outputs(*given.outputs)
        result = given.filled[0] if len(given.filled) == 1 else tuple(given.filled)

        def launch() -> Any:
            lib.checked(_quern_launch(self._handle, given.stream, read, written, given.workspace, lib.errors.reference))
            return result

        launch.kept = given  # type: ignore[attr-defined]
        return launch

    def launch(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int = 0, stream: Any = 0) -> None:
        """The same by device addresses, of which only null and alignment are checked."""
        about = self._about
        for kind, given in (("input", inputs), ("output", outputs)):
            if len(given) != len(self.infos(kind)):
                raise wrong_count(self, kind, len(given))
        lib.checked(_quern_launch(self._handle, stream_number(stream), about.pack_inputs(*inputs), about.pack_outputs(*outputs), workspace,
                                  lib.errors.reference))

    def __repr__(self) -> str:
        if self._description is None:
            return "<quern.Plan, closed>"
        info, about = self.info, self._description
        ins, outs = (", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in tensors) for tensors in (self.inputs, self.outputs))
        return f"<quern.Plan {info.key[:8]} ({ins}) -> ({outs}), {info.target}, {info.tier}, {about.launch_count} launches>"
