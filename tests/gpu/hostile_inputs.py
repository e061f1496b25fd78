"""Inputs on which arithmetic goes wrong that is right in algebra, made on the GPU, and whether an output is acceptable for them.

The classes are those of core/verify/hostile.h, the rule is that of docs/language.md ("What a graph computes"), both written
again for PyTorch: full shapes, and an implementation that shares no code with Quern's own."""

import torch

from torch_graph import DTYPES, Evaluator, span

CLASSES = ["random", "masked", "lowest", "special", "logits", "offset", "constant", "tiny", "huge"]
BLOCKS = [1, 8, 16, 32, 64, 128]
NOISE_RUNS = 40
DEVIATIONS = 4  # of noise, of which the error of the unfused program is made


class Hostile:
    """Inputs of one graph in one class; the same seed gives the same inputs on the same device."""

    def __init__(self, graph, name, seed, device="cuda"):
        self.graph, self.name, self.device = graph, name, device
        self.generator = torch.Generator(device=device).manual_seed(seed * 1009 + CLASSES.index(name))
        floats = [i for i, (_, dtype, _, _) in enumerate(graph.inputs) if dtype in ("f16", "bf16", "f32")]
        self.victim = floats[self.pick(len(floats))] if floats else -1

    def pick(self, count):
        return int(torch.randint(0, max(1, count), (1,), generator=self.generator, device=self.device))

    def uniform(self, shape):
        return torch.rand(shape, generator=self.generator, device=self.device)

    def chance(self, shape, probability):
        return self.uniform(shape) < probability

    def blocks(self, shape):
        """True in blocks: single elements, tiles of several sizes, halves and quarters, whole rows and columns."""
        out = torch.zeros(shape, dtype=torch.bool, device=self.device)
        for dim, extent in enumerate(shape):
            if extent <= 1:
                continue
            size = (BLOCKS + [extent // 2, extent // 4])[self.pick(len(BLOCKS) + 2)]
            size = min(max(1, size), extent)
            coarse = [1] * len(shape)
            coarse[dim] = -(-extent // size)
            # Other dimensions: the same for all, or in blocks of their own.
            for other, count in enumerate(shape):
                if other != dim and self.pick(2):
                    coarse[other] = count
            mask = self.chance(coarse, 0.4).repeat_interleave(size, dim).narrow(dim, 0, extent)
            out |= mask.broadcast_to(shape)
        if len(shape) >= 1 and shape[-1] > 1:  # and some whole rows
            out |= self.chance(list(shape[:-1]) + [1], 0.03)
        return out

    def floats(self, index, dtype, shape):
        info = torch.finfo(DTYPES[dtype])
        x = self.uniform(shape) * 2 - 1
        if self.name == "masked" and index == self.victim:
            x = x.masked_fill(self.blocks(shape), -torch.inf)
        elif self.name == "lowest" and index == self.victim:
            number = max(info.min, -1e30) if self.pick(2) else info.min
            x = x.masked_fill(self.blocks(shape), number)
        elif self.name == "special" and index == self.victim:
            for number in (torch.nan, torch.inf, -torch.inf):
                x = x.masked_fill(self.chance(shape, 2e-4) if x.numel() > 5000 else self.chance(shape, 0.02), number)
        elif self.name == "logits":
            x = x * (10.0 ** (1 + self.pick(2)))
        elif self.name == "offset":
            x = x * 1e-2 + (1e3 if dtype == "f32" else 10.0) * (1 if self.pick(2) else -1)
        elif self.name == "constant" and len(shape) >= 1:
            rows = list(shape[:-1]) + [1]
            x = torch.where(self.chance(rows, 0.3), torch.zeros_like(x), torch.where(self.chance(rows, 0.5), x[..., :1], x))
        elif self.name == "tiny":
            x = x * (10.0 ** -(3 + self.pick(3))) if self.pick(2) else x * info.smallest_normal * 4
        elif self.name == "huge":
            x = torch.where(self.chance(shape, 0.01), torch.sign(x) * info.max, x) if self.pick(2) else x * info.max
        return x.to(DTYPES[dtype])

    def tensor(self, index, dtype, shape):
        if dtype == "bool":
            return ~self.blocks(shape)
        if dtype == "i32":
            x = torch.randint(-8, 9, shape, generator=self.generator, device=self.device, dtype=torch.int32)
            extremes = torch.randint(0, 2, shape, generator=self.generator, device=self.device, dtype=torch.int32)
            return torch.where(self.chance(shape, 0.1), extremes * -1 - (2**31 - 1) * (1 - extremes), x)
        return self.floats(index, dtype, shape)

    def inputs(self):
        """As torch_graph.random_inputs: (buffer, view of it) for each input."""
        out = []
        for index, (_, dtype, shape, strides) in enumerate(self.graph.inputs):
            count = span(shape, strides)
            buffer = self.tensor(index, dtype, [count])
            view = torch.as_strided(buffer, shape, strides) if count else buffer.reshape(shape)
            dense = self.tensor(index, dtype, shape)
            if count and view.numel() == count:  # a place each: blocks along the dimensions of the graph
                view.copy_(dense)
            out.append((buffer, view))
        return out


class Judge:
    """What outputs may be for these inputs: the reference in f64, the unfused program, and its rounding noise by element."""

    def __init__(self, graph, tensors, seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        self.finite_inputs = all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point()) and not any(
            "inf" in operand or "nan" in operand for _, _, operands, _ in graph.ops for operand in operands)
        self.reference = Evaluator(graph, True).run(tensors)
        self.unfused = Evaluator(graph, False).run(tensors)
        self.in_range = Evaluator(graph, True, range=True).run(tensors)
        self.noise = [torch.zeros(r.shape, dtype=torch.float64, device=r.device) for r in self.reference]
        for _ in range(NOISE_RUNS):
            for total, moved, exact in zip(self.noise, Evaluator(graph, True, generator).run(tensors), self.reference):
                if exact.is_floating_point():
                    total += torch.nan_to_num((moved - exact) ** 2, nan=0.0, posinf=0.0, neginf=0.0) / NOISE_RUNS
        self.decided = all(r.is_floating_point() for r in self.reference)

    def judge(self, output, actual):
        """(largest error over its bound, what is wrong or "") of one output."""
        r, u, v = self.reference[output], self.unfused[output], actual
        if not v.is_floating_point():
            wrong = v != u
            return (float("inf"), self.name(wrong, v, r, None)) if bool(wrong.any()) else (0.0, "")
        info = torch.finfo(v.dtype)
        r, u, v = r.double(), u.double(), v.double()
        rounded = r.to(actual.dtype).double()
        bound = 2 * torch.maximum((u - r).abs(), DEVIATIONS * self.noise[output].sqrt()) + 2 * r.abs() * info.eps / 2 + max(info.smallest_normal * info.eps, 2.0**-126)
        finite = torch.isfinite(r) & torch.isfinite(u)
        error = (v - r).abs()
        ratio = torch.where(error == 0, torch.zeros_like(error), error / bound)
        # What its dtype cannot hold is an infinity, not the largest number, but for what is within the noise of that.
        noise = 2 * DEVIATIONS * self.noise[output].sqrt() + r.abs() * info.eps
        overflows = torch.isfinite(r) & (~torch.isfinite(rounded) | (r.abs() + noise > info.max))
        wrong = finite & ~overflows & ~(ratio <= 1)
        wrong |= overflows & torch.isinf(u) & torch.isfinite(v) & ~(error <= noise)
        special = ~torch.isfinite(r) & ~torch.isfinite(u)
        wrong |= special & torch.isfinite(v)
        if self.finite_inputs:
            wrong |= special & torch.isinf(r) & (v != r)
        # Where an intermediate value of the unfused program overflows (the square of a norm, of which f32 makes 0), or a sum may in
        # another order, nothing is asked.
        asked = ~(torch.isfinite(r) & torch.isnan(self.in_range[output]))
        wrong &= asked
        worst = ratio[finite & ~overflows & asked]
        worst = float(torch.nan_to_num(worst, nan=torch.inf).max()) if worst.numel() else 0.0
        return worst, self.name(wrong, v, r, bound) if bool(wrong.any()) else ""

    @staticmethod
    def name(wrong, v, r, bound):
        at = int(wrong.flatten().to(torch.uint8).argmax())
        place = [int(i) for i in torch.unravel_index(torch.tensor(at), wrong.shape)] if wrong.dim() else []
        allowed = "" if bound is None else f", allowed {float(bound.flatten()[at]):.3g}"
        return (f"{int(wrong.sum())} of {wrong.numel()} elements, the first {place}: {float(v.flatten()[at]):.9g} instead of "
                f"{float(r.flatten()[at]):.9g}{allowed}")
