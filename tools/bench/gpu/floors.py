"""How long a graph takes at least, if it reads what it needs and writes its outputs once."""

import json
import math
import os
import shutil
import subprocess

from attention import Values

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "i32": 4, "bool": 1}
LARGE = 1 << 30


def elements(shape, strides):
    """Those that lie apart in memory."""
    return math.prod(extent for extent, stride in zip(shape, strides) if stride or not extent)


def moved(graph, outputs):
    """(bytes that must be read, bytes that must be written); outputs as (shape, dtype)."""
    needed = Values(graph).sources_of(graph.outputs)
    read = sum(elements(shape, strides) * BYTES[dtype] for name, dtype, shape, strides in graph.inputs if name in needed)
    return read, sum(math.prod(shape) * BYTES[dtype] for shape, dtype in outputs)


class Floors:
    """Of all graphs of a run: {(read, written): us} of a kernel that does nothing else, and what follows of the speed of large copies."""

    def __init__(self, pairs, scratch):
        large = [(LARGE, 0), (LARGE // 2, LARGE // 2), (0, LARGE)]
        program = os.path.join(scratch, "memory_floor")
        compiler = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        subprocess.run([compiler, "-O3", "-arch=native", "-o", program, os.path.join(HERE, "memory_floor.cu")], check=True)
        names = [f"{read}:{written}" for read, written in [*large, *dict.fromkeys(pairs)]]
        self.kernels = json.loads(subprocess.run([program, *names], check=True, capture_output=True, text=True).stdout)
        self.read, self.copy, self.write = (LARGE / self.kernels[name] for name in names[:3])  # bytes a us

    def kernel(self, read, written):
        return self.kernels[f"{read}:{written}"]

    def at_full_speed(self, read, written):
        both = min(read, written)
        return 2 * both / self.copy + (read - both) / self.read + (written - both) / self.write

    def __str__(self):
        return f"{self.read / 1e3:.0f} GB/s read, {self.copy / 1e3:.0f} copied (read and written), {self.write / 1e3:.0f} written"
