"""Who a graph is timed beside: one row of PEERS each, with the graphs that it applies to, told from what a graph is."""

from typing import Callable, NamedTuple

import torch

import attention_peers as libraries
from attention import attentions
from attention_peers import Way
from torch_source import is_causal, library_program, mask_text, program


class Subject:
    """A graph as peers see it. `attention`: the one that it consists of, or None."""

    def __init__(self, graph, device="cuda"):
        self.graph, self.device, self.attentions = graph, device, attentions(graph)
        whole = [a for a in self.attentions.values() if a.whole]
        self.attention = whole[0] if whole else None
        self.products = any(op == "matmul" for _, op, *_ in graph.ops)


def plain(subject):
    return program(subject.graph, device=subject.device)


def with_library(subject):
    """The graph with its attention handed over; None if nothing can be."""
    return library_program(subject.graph, subject.attentions, subject.device)


def way(run):
    return Way(lambda tensors: tensors, lambda *tensors: run(*tensors), lambda outputs: outputs)


def compiled(make, **options):
    return lambda subject: way(torch.compile(make(subject), dynamic=False, **options))


def as_keys_want(subject):
    """As `way`, with keys that the graph has as (dimension, key) the other way around in memory, as libraries of attention want them."""
    keys = {name for attention in subject.attentions.values() for name in attention.keys}

    def prepare(tensors):
        return [t.transpose(-1, -2).contiguous().transpose(-1, -2) if name in keys else t for (name, *_), t in zip(subject.graph.inputs, tensors)]
    return lambda run: way(run)._replace(prepare=prepare)


def by_cublaslt(subject):
    run = plain(subject)

    def preferring(*tensors):
        before = torch.backends.cuda.preferred_blas_library()
        torch.backends.cuda.preferred_blas_library("cublaslt")
        try:
            return run(*tensors)
        finally:
            torch.backends.cuda.preferred_blas_library(before)
    return way(preferring)


def by_library(backend=None, compile=False):
    def make(subject):
        run = with_library(subject)
        run = torch.compile(run, dynamic=False) if compile else run

        def chosen(*tensors):
            with libraries.chosen(backend):
                return run(*tensors)
        return as_keys_want(subject)(chosen if backend else run)
    return make


# What graphs are.


def any_graph(_):
    return True


def products(subject):
    return subject.products and not subject.attentions


def attention_inside(subject):
    return subject.attention is None and with_library(subject) is not None


def masked_or_added(subject):
    return subject.attention is not None and (not subject.attention.changes or subject.attention.addend is not None)


def unmasked_or_causal(subject):
    return masked_or_added(subject) and (is_causal(subject.attention) or mask_text(subject.attention) is None)


def by_scores(subject):
    attention = subject.attention
    return attention is not None and bool(attention.masks or attention.changes)


def sliding(subject):
    """Attention in 16 bits that libraries take: within bounds that move with the query and hold its own key, with a soft cap at most."""
    attention = subject.attention
    return (attention is not None and attention.dtype in ("f16", "bf16") and attention.window is not None
            and all(bound is None or bound >= 0 for bound in attention.window) and (not attention.changes or attention.soft_cap is not None))


def prefill(subject):
    """Many rows for the same keys: from 17 on kernels for few rows are no match."""
    return sliding(subject) and not 0 < subject.attention.decode_rows <= 16 and subject.attention.window[1] in (None, 0)


def unbounded_prefill(subject):
    return prefill(subject) and subject.attention.window[0] is None


def decode(subject):
    return sliding(subject) and bool(subject.attention.decode_rows)


class Peer(NamedTuple):
    name: str
    applies: Callable[[Subject], bool]
    make: Callable[[Subject], Way]
    compiles: bool = False  # takes long the first time, and less with what an earlier process has stored


PEERS = (
    Peer("eager", any_graph, lambda subject: way(plain(subject))),
    Peer("compile", any_graph, compiled(plain), True),
    Peer("max-autotune", any_graph, compiled(plain, mode="max-autotune-no-cudagraphs"), True),
    Peer("cublaslt", products, by_cublaslt),
    Peer("library", attention_inside, by_library()),
    Peer("library, cudnn", attention_inside, by_library("CUDNN_ATTENTION")),
    Peer("library, compiled", attention_inside, by_library(compile=True), True),
    Peer("sdpa", masked_or_added, libraries.sdpa()),
    Peer("sdpa, cudnn", masked_or_added, libraries.sdpa("CUDNN_ATTENTION")),
    Peer("sdpa, flash", unmasked_or_causal, libraries.sdpa("FLASH_ATTENTION")),
    Peer("flex", by_scores, libraries.flex, True),
    Peer("flash attention 3", sliding, libraries.flash_attention),
    Peer("flashinfer, fa2", prefill, libraries.flashinfer_single("fa2"), True),
    Peer("flashinfer, fa3", prefill, libraries.flashinfer_single("fa3"), True),
    Peer("flashinfer, batch fa2", unbounded_prefill, libraries.flashinfer_batch("fa2"), True),
    Peer("flashinfer, batch fa3", unbounded_prefill, libraries.flashinfer_batch("fa3"), True),
    Peer("flashinfer, decode", decode, libraries.flashinfer_decode(False), True),
    Peer("flashinfer, decode by tensor cores", decode, libraries.flashinfer_decode(True), True),
    Peer("flashinfer, pages", decode, libraries.flashinfer_paged(False), True),
    Peer("flashinfer, pages by tensor cores", decode, libraries.flashinfer_paged(True), True),
    Peer("flashinfer, xqa", decode, libraries.flashinfer_xqa, True),
)


def peers_of(subject, without=()):
    return [peer for peer in PEERS if peer.name not in without and peer.applies(subject)]
