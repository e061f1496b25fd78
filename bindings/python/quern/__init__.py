"""GPU kernels for tensor graphs, from the local kernel cache daemon.

    graph = quern.Graph("gated")
    x, w = graph.input("x", torch.float16, [16, 4096]), graph.input("w", torch.float16, [4096, 1024], const=True)
    graph.output((x @ w).silu() * 0.5)

    with quern.Client() as client:
        plan = client.get(graph)      # compiled now, or from the cache
        y = plan(x_tensor, w_tensor)  # on PyTorch's current stream

A thin layer over libquern: quern.h says what may block, what threads may do, and what happens in a forked child.
"""
from ._client import Client, device_target
from ._graph import Graph, TensorInfo, Value
from ._library import QuernError, library
from ._description import PlanInfo
from ._plan import Launch, Plan, TensorMap
from ._programs import pkg_config_path

__all__ = ["Client", "Graph", "Launch", "Plan", "PlanInfo", "QuernError", "TensorInfo", "TensorMap", "Value", "device_target",
           "pkg_config_path"]

_version = library.quern_version()
__version__ = f"{_version // 1000000}.{_version // 1000 % 1000}.{_version % 1000}"
