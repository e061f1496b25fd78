"""The connection to the daemon."""
from __future__ import annotations

import ctypes as c
import math
import os
import weakref
from typing import Any, Literal, Sequence, overload

from . import _library as lib
from ._graph import Graph
from ._handle import Owner
from ._library import QuernError
from ._description import TIERS, Description
from ._plan import Plan

_TIER_NUMBERS = {name: number for number, name in TIERS.items()}
_NO_LIMIT = 2**32 - 1


def _milliseconds(timeout: float | None) -> int:
    """As quern.h has it: 0 is its default."""
    if timeout is None:
        return 0
    if not timeout > 0:
        raise QuernError("INVALID_ARGUMENT", f"a timeout of {timeout} seconds; it must be above 0")
    return _NO_LIMIT if math.isinf(timeout) else max(1, min(_NO_LIMIT - 1, round(timeout * 1000)))


class Client(Owner):
    """A connection to the daemon, which is started if none runs. Any number of threads may use it at once.

        with quern.Client() as client:
            plan = client.get(graph)
    """

    _end = "quern_close"
    _advice = "open a client where it is needed; a daemon has room for many"

    def __init__(self, socket: str | os.PathLike[str] | None = None, start: bool = True, timeout: float | None = None):
        """`socket` is its path, by default $QUERN_SOCKET or the user's; `start` says whether a daemon may be started; `timeout` is
        for connecting, in seconds, 10 by default. NO_DAEMON, with all that was tried."""
        options = lib.OpenOptions(flags=0 if start else lib.NO_START, timeout_ms=_milliseconds(timeout),
                                  socket=os.fsencode(socket) if socket is not None else None)
        handle = c.c_void_p()
        lib.call_interruptibly(None, "quern_open", c.byref(options), c.byref(handle))
        super().__init__(handle)
        self._socket = socket
        # Of the plans that are in use. The handle is the same for the same plan.
        self._descriptions: weakref.WeakValueDictionary[int, Description] = weakref.WeakValueDictionary()

    def _cancel(self) -> None:
        lib.library.quern_cancel(self._handle)

    @overload
    def get(self, graph: Graph, target: str | None = None, *, wait: Literal[True] = True, **options: Any) -> Plan: ...

    @overload
    def get(self, graph: Graph, target: str | None = None, *, wait: bool, **options: Any) -> Plan | None: ...

    def get(self, graph: Graph, target: str | None = None, *, wait: bool = True, compile: bool = True,  # type: ignore[misc]
            refresh: bool = False, allow_tf32: bool = False, timeout: float | None = None, priority: int = 0, constraints: str = "",
            min_tier: str | None = None) -> Plan | None:
        """The plan of `graph` for `target` ("sm_90a"; None means that of CUDA device 0), made now if it is not in the cache. None only
        if `wait` is false and the plan is not ready yet.

        compile=False: NOT_FOUND rather than make it. refresh: ask the daemon even if this client has the plan. `timeout` is in
        seconds, 60 by default, math.inf is none: TIMEOUT, and the daemon goes on. min_tier="measured" waits for a plan of that tier, as
        long as something is under way that would make one. Constraints say what the search for a better plan may find:
        "griddims 96,1,1 64,1,1; franges 16". Of waiting jobs the daemon takes that of the highest `priority`, 0 to 255, first."""
        options = _get_options(wait, compile, refresh, allow_tf32, timeout, priority, constraints, min_tier)
        handle = c.c_void_p()
        arguments = (self._handle, graph._handle, target.encode() if target is not None else None, c.byref(options), c.byref(handle))
        if not refresh:
            options.flags |= lib.NO_REQUEST
            if self._at_hand(arguments):
                return self._plan(handle, graph)
            options.flags &= ~lib.NO_REQUEST
        status = lib.call_interruptibly(self._cancel, "quern_get", *arguments)
        return self._plan(handle, graph) if status == lib.OK else None

    @staticmethod
    def _at_hand(arguments: tuple[Any, ...]) -> bool:
        try:
            return lib.call("quern_get", *arguments) == lib.OK
        except QuernError as error:
            if error.status != "NOT_FOUND":
                raise
            return False

    def _plan(self, handle: c.c_void_p, graph: Graph) -> Plan:
        assert handle.value is not None
        plan = Plan(handle, graph, self._descriptions.get(handle.value))
        self._descriptions[handle.value] = plan._about
        return plan

    def prewarm(self, graphs: Sequence[Graph], target: str | None = None, *, wait: bool = True, allow_tf32: bool = False,
                timeout: float | None = None, priority: int = 0, min_tier: str | None = None) -> list[str]:
        """Has the plans of many graphs made side by side, and keeps them for get(). A status for each graph: "OK", or "PENDING" if
        `wait` is false. When some fail the others are made all the same; then the error of the first is raised, with all
        statuses in its `statuses`."""
        options = _get_options(wait, True, False, allow_tf32, timeout, priority, "", min_tier)
        handles = (c.c_void_p * len(graphs))(*[graph._handle.value for graph in graphs])
        statuses = (c.c_int32 * len(graphs))()
        try:
            lib.call_interruptibly(self._cancel, "quern_prewarm", self._handle, handles, len(graphs),
                                   target.encode() if target is not None else None, c.byref(options), statuses)
        except QuernError as error:
            error.statuses = [lib.library.quern_status_name(status).decode() for status in statuses]
            raise
        return ["PENDING" if status == lib.PENDING else "OK" for status in statuses]

    def outdated(self, plan: Plan) -> bool:
        """Whether the client knows of a better plan for the same key, which get() would fetch."""
        return bool(lib.library.quern_plan_outdated(self._handle, plan._handle))

    def fileno(self) -> int:
        """For select: readable when process() has something to do."""
        return lib.library.quern_fd(self._handle)

    def process(self) -> int:
        """The number of plans for which a better one was announced since the last call, and of those that were pending and are
        ready, or could not be made. Never blocks."""
        better = c.c_uint64()
        lib.call("quern_process", self._handle, c.byref(better))
        return better.value

    def stats(self, timeout: float | None = None) -> dict[str, int | str]:
        """The daemon's counters as integers and facts as texts, by name."""
        stats = c.c_void_p()
        lib.call_interruptibly(self._cancel, "quern_stats_get", self._handle, _milliseconds(timeout), c.byref(stats))
        try:
            result: dict[str, int | str] = {}
            for i in range(lib.library.quern_stats_count(stats)):
                stat = lib.Stat()
                lib.call("quern_stats_at", stats, i, c.byref(stat))
                result[stat.name.decode()] = stat.value if stat.text is None else stat.text.decode()
            return result
        finally:
            lib.library.quern_stats_free(stats)

    def __repr__(self) -> str:
        where = f" at {os.fspath(self._socket)}" if self._socket is not None else ""
        return f"<quern.Client{where}{', closed' if self._open_handle is None else ''}>"


def _get_options(wait: bool, compile: bool, refresh: bool, allow_tf32: bool, timeout: float | None, priority: int, constraints: str,
                 min_tier: str | None) -> Any:
    if min_tier is not None and min_tier not in _TIER_NUMBERS:
        raise QuernError("INVALID_ARGUMENT", f"there is no tier {min_tier!r}; there are {', '.join(_TIER_NUMBERS)}")
    flags = (0 if wait else lib.NO_WAIT) | (0 if compile else lib.NO_COMPILE) | (lib.REFRESH if refresh else 0)
    return lib.GetOptions(flags=flags, numerics=int(allow_tf32), timeout_ms=_milliseconds(timeout), priority=priority,
                          constraints=constraints.encode(), min_tier=_TIER_NUMBERS[min_tier] if min_tier else 0)


def device_target(device: int = 0) -> str:
    """ "sm_90a": the target of a CUDA device."""
    target = c.c_char_p()
    lib.call("quern_device_target", device, c.byref(target))
    return (target.value or b"").decode()
