"""Libraries that compute attention, each on operands in the layout that it wants, which is made outside of what is timed.

A Way is (prepare, run, result): what becomes of the graph's inputs before timing, what is timed, and the graph's outputs from what it returns."""

import contextlib
import functools
import importlib
from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F

from attention import axis_of
from torch_graph import DTYPES
from torch_source import is_causal, mask_text, program

PAGE = 64  # keys of a page of a cache


class Way(NamedTuple):
    prepare: Callable
    run: Callable
    result: Callable


def operands(subject, extra=()):
    """inputs -> q, k, v, dense as [batch, heads, rows, dimension], and the values of `extra`."""
    attention = subject.attention
    take = program(subject.graph, wanted=[attention.q, attention.k, attention.v, *extra], device=subject.device)
    batch, heads, few = attention.heads

    def prepare(tensors):
        q, k, v, *rest = take(*tensors)
        return [t.reshape(batch, n, *t.shape[-2:]).contiguous() for t, n in ((q, heads), (k, few), (v, few))] + rest
    return prepare


def outputs(subject, order=None):
    """An attention's result, dense as [batch, heads, rows, dimension] after `order`, -> the graph's outputs."""
    name = subject.attention.result
    finish = program(subject.graph, given=[name], device=subject.device)
    shape = subject.attention.values.shapes[name]
    return lambda o: finish((order(o) if order else o).reshape(shape))


# PyTorch's


def sdpa(backend=None):
    def make(subject):
        attention = subject.attention
        causal, mask = is_causal(attention), mask_text(attention)
        prepare = operands(subject, [mask] if mask and not causal else [])

        def run(q, k, v, mask=None):
            mask = mask if mask is None else mask[(None,) * (4 - mask.dim())]
            with chosen(backend):
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=attention.scale,
                                                      enable_gqa=q.shape[1] != k.shape[1])
        return Way(prepare, run, outputs(subject))
    return make


def chosen(backend):
    """The context in which scaled_dot_product_attention uses one backend alone."""
    if backend is None:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(getattr(SDPBackend, backend))


def of_positions(subject, base, wanted):
    """An expression of the graph as a function of (the value `base`, batch, head, query, key, *inputs), which FlexAttention calls for one score."""
    graph, places = subject.graph, ("batch_", "head_", "query_", "key_")
    calls = {result: places[axis_of(attributes, 0) - len(attributes["shape"])] for result, op, _, attributes in graph.ops if op == "iota"}
    first = [f"{name} = {name}_all[{', '.join('0' if n == 1 else place for n, place in zip(shape, places[-len(shape):]))}]"
             for name, _, shape, _ in graph.inputs if 0 < len(shape) <= 4]
    given = [base, *places, *(f"{name}_all" for name, *_ in graph.inputs)]
    function = program(graph, given, [wanted], calls, subject.device, first)
    return lambda *values: function(*values)[0]


def flex(subject):
    """Masks are blocks, made for the first inputs: positions decide them, or lengths, which take the same time for all."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    attention, take, blocks = subject.attention, operands(subject), []
    holds = of_positions(subject, "score_", " & ".join(f"({name} != 0)" for name in attention.masks)) if attention.masks else None
    changed = of_positions(subject, attention.base, attention.top) if attention.changes else None

    def attend(q, k, v, mask, *inputs):
        def score(s, b, h, i, j):
            return changed(s, b, h, i, j, *inputs).to(s.dtype)
        return flex_attention(q, k, v, score_mod=score if changed else None, block_mask=mask, scale=attention.scale,
                              enable_gqa=q.shape[1] != k.shape[1])

    def prepare(tensors):
        if holds and not blocks:
            batch, heads = (None, None) if attention.positional else attention.heads[:2]
            blocks.append(create_block_mask(lambda b, h, i, j: holds(None, b, h, i, j, *tensors), batch, heads, attention.q_shape[-2],
                                            attention.k_shape[-2], device=subject.device))
        return [*take(tensors), blocks[0] if blocks else None, *tensors]
    return Way(prepare, torch.compile(attend, dynamic=False), outputs(subject))


# FlashAttention-3, FlashInfer


def softening(attention):
    """(scale, soft cap or 0) as libraries take them: cap * tanh(scale * scores / cap)."""
    cap = attention.soft_cap or 0
    return attention.scale * (cap or 1), cap


def flash_attention(subject):
    attention = subject.attention
    module = first_of("flash_attn_interface", "fa3_fwd_interface")
    scale, cap = softening(attention)
    left, right = (-1 if bound is None else bound for bound in attention.window)
    bounds = {"causal": True} if (left, right) == (-1, 0) else {"window_size": (left, right)}
    take = operands(subject)

    def prepare(tensors):
        q, k, v = take(tensors)
        q, k, v = sharing(attention, q, k, v) if attention.decode_rows else (q, k, v)
        return [t.transpose(1, 2).contiguous() for t in (q, k, v)]

    def run(q, k, v):
        out = module.flash_attn_func(q, k, v, softmax_scale=scale, softcap=cap, num_splits=0, **bounds)
        return out[0] if isinstance(out, tuple) else out
    return Way(prepare, run, outputs(subject, lambda o: o.transpose(1, 2)))


def first_of(*modules):
    for name in modules[:-1]:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return importlib.import_module(modules[-1])


def sharing(attention, q, k, v):
    """Rows that read the same keys as heads of one row, of sequences with one head of keys: [sequences, rows, 1, d], [sequences, 1, keys, d]."""
    return q.reshape(-1, attention.decode_rows, 1, q.shape[-1]), k.reshape(-1, 1, *k.shape[-2:]), v.reshape(-1, 1, *v.shape[-2:])


@functools.cache
def scratch(device):
    return torch.empty(256 << 20, dtype=torch.uint8, device=device)


def starts(count, step, device):
    """Where each of `count` pieces of `step` begins, and the last one ends."""
    return torch.arange(count + 1, dtype=torch.int32, device=device) * step


def flashinfer_single(backend):
    """Heads of all sequences as heads of one."""
    def make(subject):
        import flashinfer
        attention, take = subject.attention, operands(subject)
        (scale, cap), (left, right) = softening(attention), attention.window
        batch, heads, _ = attention.heads

        def run(q, k, v):
            return flashinfer.single_prefill_with_kv_cache(q, k, v, causal=right == 0, window_left=-1 if left is None else left, sm_scale=scale,
                                                           logits_soft_cap=cap or None, backend=backend)
        return Way(lambda tensors: [t.flatten(0, 1).transpose(0, 1).contiguous() for t in take(tensors)], run,
                   outputs(subject, lambda o: o.transpose(0, 1).reshape(batch, heads, o.shape[0], o.shape[-1])))
    return make


def flashinfer_batch(backend):
    def make(subject):
        import flashinfer
        attention, take, device = subject.attention, operands(subject), subject.device
        (scale, cap), (left, right) = softening(attention), attention.window
        (batch, heads, few), queries, keys = attention.heads, attention.q_shape[-2], attention.k_shape[-2]
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(scratch(device), "NHD", backend=backend)
        wrapper.plan(starts(batch, queries, device), starts(batch, keys, device), heads, few, attention.q_shape[-1], attention.v_shape[-1],
                     causal=right == 0, window_left=-1 if left is None else left, sm_scale=scale, logits_soft_cap=cap or None,
                     q_data_type=DTYPES[attention.dtype])
        return Way(lambda tensors: [t.transpose(1, 2).reshape(-1, t.shape[1], t.shape[3]).contiguous() for t in take(tensors)], wrapper.run,
                   outputs(subject, lambda o: o.reshape(batch, queries, heads, -1).transpose(1, 2)))
    return make


def flashinfer_decode(tensor_cores):
    """One sequence whose heads are those of all."""
    def make(subject):
        import flashinfer
        attention, take = subject.attention, operands(subject)

        def prepare(tensors):
            q, k, v = sharing(attention, *take(tensors))
            return q.flatten(0, 2), k.flatten(0, 1), v.flatten(0, 1)

        def run(q, k, v):
            return flashinfer.single_decode_with_kv_cache(q, k, v, kv_layout="HND", use_tensor_cores=tensor_cores, sm_scale=attention.scale)
        return Way(prepare, run, outputs(subject))
    return make


def pages_of(subject):
    """(inputs -> q, cache of keys, cache of values; pages of a sequence): sequences with caches in pages that lie one behind the other."""
    attention, take = subject.attention, operands(subject)
    keys = attention.k_shape[-2]
    pages = -(-keys // PAGE)

    def paged(t):
        return F.pad(t, (0, 0, 0, pages * PAGE - keys)).reshape(-1, 1, PAGE, t.shape[-1])

    def prepare(tensors):
        q, k, v = sharing(attention, *take(tensors))
        return q.squeeze(2), (paged(k), paged(v))
    return prepare, pages


def flashinfer_paged(tensor_cores):
    def make(subject):
        import flashinfer
        attention, device, (prepare, pages) = subject.attention, subject.device, pages_of(subject)
        count = attention.heads[0] * attention.heads[2]
        last = torch.full((count,), attention.k_shape[-2] - (pages - 1) * PAGE, dtype=torch.int32, device=device)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(scratch(device), "HND", use_tensor_cores=tensor_cores)
        wrapper.plan(starts(count, pages, device), starts(count * pages - 1, 1, device), last, attention.decode_rows, 1, attention.q_shape[-1], PAGE,
                     q_data_type=DTYPES[attention.dtype], sm_scale=attention.scale)
        return Way(prepare, wrapper.run, outputs(subject))
    return make


def flashinfer_xqa(subject):
    from flashinfer.decode import trtllm_batch_decode_with_kv_cache
    attention, device, (prepare, pages) = subject.attention, subject.device, pages_of(subject)
    count, keys = attention.heads[0] * attention.heads[2], attention.k_shape[-2]
    tables = starts(count * pages - 1, 1, device).reshape(count, pages)
    lengths = torch.full((count,), keys, dtype=torch.int32, device=device)
    workspace = torch.zeros(256 << 20, dtype=torch.uint8, device=device)  # its semaphores begin at 0

    def run(q, caches):
        return trtllm_batch_decode_with_kv_cache(q, caches, workspace, tables, lengths, keys, bmm1_scale=attention.scale, kv_layout="HND", backend="xqa")
    return Way(prepare, run, outputs(subject))
