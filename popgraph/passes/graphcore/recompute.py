"""Recomputation: gradients compute again what the way to the loss need not keep for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isqrt

from xdsl.dialects.builtin import ModuleOp, NameLoc
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import (
    Contraction,
    Elementwise,
    GraphcoreOp,
    dtype_of,
    shape_of,
)
from popgraph.dialects.program import GraphOp, ReturnOp, UpdateOp, VariableOp, graphs_of
from popgraph.dialects.values import values_behind
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import GRADIENT, Options
from popgraph.support.shapes import prod

NORMS = (gc.BatchNormOp, gc.BatchNormTrainOp, gc.LayerNormOp, gc.LrnOp)
HEADS = (gc.SoftmaxOp, gc.LogSoftmaxOp, gc.NllLossOp)
"""What stands before the loss, where its gradient is fused with it."""


@dataclass(frozen=True)
class Recompute(Pass):
    """
    Gradients read values that are computed again, instead of those that would be kept for them.

    `mode` says what: `standard` cuts the way to the loss into segments, of which only what leaves
    them is kept, so that the largest sum of what is kept and of one segment is small; `norms`,
    normalizations and what follows them element by element; `nodes`, only those `named`.
    """

    name = "recompute"

    mode: str
    named: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Options) -> Recompute | None:
        if options.training is None or not options.recompute:
            return None
        return cls(options.recompute, options.recomputed)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            if any(isinstance(op, gc.LaterOp) for op in graph.block.ops):
                continue
            forward = _forward(graph)
            chosen = MODES[self.mode](_Way(graph, forward), self.named)
            copies = Copies(graph.block, forward, chosen)
            for op in list(graph.block.ops):
                if op not in forward and not isinstance(op, ReturnOp | UpdateOp):
                    copies.feed(op)


def _forward(graph: GraphOp) -> dict[Operation, None]:
    """The operations that the loss and other results need, in order."""
    outputs = [value for name, value in graph.outputs.items() if not name.startswith(GRADIENT)]
    needed = values_behind([*outputs, *(op.value for op in graph.updates())])
    return {op: None for op in graph.block.ops if any(result in needed for result in op.results)}


def _bytes(value: SSAValue) -> int:
    return prod(shape_of(value)) * dtype_of(value).numpy.itemsize


@dataclass
class _Way:
    """The way to the loss: its operations in order, and what gradients read of them."""

    graph: GraphOp
    forward: Mapping[Operation, None]
    ops: list[Operation] = field(init=False)

    def __post_init__(self) -> None:
        kept = set(self.graph.return_op.operands)
        kept |= {op.value for op in self.graph.updates()}
        self.ops = [
            op
            for op in self.forward
            if isinstance(op, GraphcoreOp)
            and op.operands
            and not op.regions
            and not isinstance(op, HEADS)
            and kept.isdisjoint(op.results)
        ]

    def is_read_later(self, value: SSAValue) -> bool:
        return any(use.operation not in self.forward for use in value.uses)

    def last_reader(self, value: SSAValue, places: Mapping[Operation, int]) -> int:
        """The place of the last operation on the way that reads a value."""
        return max(
            (places.get(use.operation, -1) for use in value.uses if use.operation in self.forward),
            default=-1,
        )


Chosen = set[Operation]


def _standard(way: _Way, named: Sequence[str]) -> Chosen:
    """
    All but what leaves its segment; as many segments as make the largest sum smallest.

    In a chain of like layers that is the root of their number.
    """
    kept = sum(_bytes(v) for op in way.ops for v in op.results if way.is_read_later(v))
    best, least = set[Operation](), float(kept)
    for count in range(2, 2 * isqrt(len(way.ops)) + 1):
        chosen, size = _cut(way, count)
        if size < least:
            best, least = chosen, size
    return best


def _cut(way: _Way, count: int) -> tuple[Chosen, float]:
    """
    What is computed again with so many segments of like size, and how many bytes are held at most.

    Of the last segment all is kept: gradients begin there.
    """
    sizes = [sum(map(_bytes, op.results)) for op in way.ops]
    ends, done, total = [0], 0, sum(sizes) or 1
    for place, size in enumerate(sizes, 1):
        done += size
        if done * count >= len(ends) * total and ends[-1] < place:
            ends.append(place)
    places = {op: place for place, op in enumerate(way.ops)}
    chosen, kept, largest = set[Operation](), 0, 0
    for number, (begin, end) in enumerate(pairwise(ends), 1):
        last, inside = number == len(ends) - 1, 0
        for op in way.ops[begin:end]:
            leaves = any(way.last_reader(result, places) >= end for result in op.results)
            size = sum(_bytes(result) for result in op.results if way.is_read_later(result))
            if leaves or last:
                kept += sum(map(_bytes, op.results)) if leaves else size
            else:
                chosen.add(op)
                inside += size
                kept += _packed(op)
        largest = max(largest, inside)
    return chosen, float(kept + largest)


def _packed(op: Operation) -> int:
    """The bytes of weights in the order of a contraction, which its second run needs as well."""
    weights = (v for v in op.operands if isinstance(v.owner, VariableOp))
    return sum(map(_bytes, weights)) if isinstance(op, Contraction) else 0


def _norms(way: _Way, named: Sequence[str]) -> Chosen:
    found: Chosen = set()
    for op in way.ops:
        follows = isinstance(op, Elementwise) and any(v.owner in found for v in op.operands)
        if isinstance(op, NORMS) or follows:
            found.add(op)
    return found


def _named(way: _Way, named: Sequence[str]) -> Chosen:
    return {op for op in way.ops if _name(op) in named}


def _name(op: Operation) -> str:
    return op.location.desc.data if isinstance(op.location, NameLoc) else ""


MODES: Mapping[str, Callable[[_Way, Sequence[str]], Chosen]] = {
    "standard": _standard,
    "norms": _norms,
    "nodes": _named,
}


@dataclass
class Copies:
    """What has been computed again so far, for the gradients that are next in order."""

    block: Block
    forward: Mapping[Operation, None]
    chosen: Chosen
    copies: dict[SSAValue, SSAValue] = field(default_factory=dict)
    _latest: SSAValue | None = None

    def feed(self, op: Operation) -> None:
        """Gives an operation of gradients what it reads."""
        after = next((v for v in op.operands if self._is_gradient(v)), self._latest)
        for index, value in enumerate(op.operands):
            if after is not None and value.owner in self.chosen:
                op.operands[index] = self._copy(value, after, op)
        self._latest = next(iter(op.results), self._latest)

    def _is_gradient(self, value: SSAValue) -> bool:
        owner = value.owner
        return isinstance(owner, GraphcoreOp) and bool(owner.operands) and owner not in self.forward

    def _copy(self, value: SSAValue, after: SSAValue, before: Operation) -> SSAValue:
        """A value that is computed again, with all that was chosen before it."""
        waiting = [value]
        while waiting:
            owner = waiting[-1].owner
            assert isinstance(owner, Operation), "arguments are not computed"
            missing = [one for one in _needed(owner, self.chosen) if one not in self.copies]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if owner.results[0] not in self.copies:
                self._clone(owner, after, before)
        return self.copies[value]

    def _clone(self, owner: Operation, after: SSAValue, before: Operation) -> None:
        operands = {value: self.later(value, after, before) for value in owner.operands}
        made = owner.clone(operands)
        made.location = owner.location
        Rewriter.insert_op(made, InsertPoint.before(before))
        self.copies |= dict(zip(owner.results, made.results, strict=True))

    def later(self, value: SSAValue, after: SSAValue, before: Operation) -> SSAValue:
        """A value as what is computed again reads it."""
        if value.owner in self.chosen:
            return self.copies[value]
        if value not in self.copies:
            later = gc.LaterOp(value, after)
            Rewriter.insert_op(later, InsertPoint.before(before))
            self.copies[value] = later.result
        return self.copies[value]


def _needed(owner: Operation, chosen: Chosen) -> Iterator[SSAValue]:
    return (value for value in owner.operands if value.owner in chosen)
