"""Recomputation (gradient checkpointing): the backward pass recomputes forward values."""

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
from popgraph.dialects.values import backward_slice
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import GRADIENT, Options
from popgraph.support.shapes import prod

NORMS = (gc.BatchNormOp, gc.BatchNormTrainOp, gc.LayerNormOp, gc.LrnOp)
HEADS = (gc.SoftmaxOp, gc.LogSoftmaxOp, gc.NllLossOp)
"""Operations before the loss that are never recomputed: their gradients are fused with the loss."""


@dataclass(frozen=True)
class Recompute(Pass):
    """
    y = f x; dx = g(y)  ->  y = f x; y' = f (later x); dx = g(y'): y is freed and recomputed.

    Only for operations that `mode` selects. `standard` cuts the forward pass into segments and
    keeps only values that leave them; it minimizes the bytes of these and of one segment.
    `norms` selects normalizations and the elementwise operations after them. `nodes` selects the
    operations in `named`.
    """

    name = "recompute"
    AFTER = ("autodiff",)
    BEFORE = ("spread-replicas", "add-optimizer")

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
            chosen = MODES[self.mode](_Forward(graph, forward), self.named)
            copies = Copies(graph.block, forward, chosen)
            for op in list(graph.block.ops):
                if op not in forward and not isinstance(op, ReturnOp | UpdateOp):
                    copies.feed(op)


def _forward(graph: GraphOp) -> dict[Operation, None]:
    """The forward pass: operations that outputs and updates depend on, in order."""
    outputs = [value for name, value in graph.outputs.items() if not name.startswith(GRADIENT)]
    needed = backward_slice([*outputs, *(op.value for op in graph.updates())])
    return {op: None for op in graph.block.ops if any(result in needed for result in op.results)}


def _bytes(value: SSAValue) -> int:
    return prod(shape_of(value)) * dtype_of(value).numpy.itemsize


@dataclass
class _Forward:
    """The forward pass: operations that may be recomputed, in order, and reads of their results."""

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
        """The position of the last forward operation that reads a value; -1 without one."""
        return max(
            (places.get(use.operation, -1) for use in value.uses if use.operation in self.forward),
            default=-1,
        )


Chosen = set[Operation]


def _standard(forward: _Forward, named: Sequence[str]) -> Chosen:
    """
    Operations whose results stay inside their segment, for the best number of segments.

    For n equal layers in a chain, that is about sqrt(n) segments (Chen et al., 2016).
    """
    kept = sum(_bytes(v) for op in forward.ops for v in op.results if forward.is_read_later(v))
    best, least = set[Operation](), float(kept)
    # About sqrt(n) is best for equal layers; the doubled range leaves room for unequal ones.
    for count in range(2, 2 * isqrt(len(forward.ops)) + 1):
        chosen, size = _cut(forward, count)
        if size < least:
            best, least = chosen, size
    return best


def _cut(forward: _Forward, count: int) -> tuple[Chosen, float]:
    """
    Operations to recompute with `count` segments of similar size, and the peak of bytes held.

    The last segment is kept: the backward pass starts with it.
    """
    sizes = [sum(map(_bytes, op.results)) for op in forward.ops]
    ends, done, total = [0], 0, sum(sizes) or 1
    for place, size in enumerate(sizes, 1):
        done += size
        if done * count >= len(ends) * total and ends[-1] < place:
            ends.append(place)
    places = {op: place for place, op in enumerate(forward.ops)}
    chosen, kept, largest = set[Operation](), 0, 0
    for number, (begin, end) in enumerate(pairwise(ends), 1):
        last, inside = number == len(ends) - 1, 0
        for op in forward.ops[begin:end]:
            leaves = any(forward.last_reader(result, places) >= end for result in op.results)
            size = sum(_bytes(result) for result in op.results if forward.is_read_later(result))
            if leaves or last:
                kept += sum(map(_bytes, op.results)) if leaves else size
            else:
                chosen.add(op)
                inside += size
                kept += _packed(op)
        largest = max(largest, inside)
    return chosen, float(kept + largest)


def _packed(op: Operation) -> int:
    """The bytes of a contraction's packed weights: its second run needs them again."""
    weights = (v for v in op.operands if isinstance(v.owner, VariableOp))
    return sum(map(_bytes, weights)) if isinstance(op, Contraction) else 0


def _norms(forward: _Forward, named: Sequence[str]) -> Chosen:
    found: Chosen = set()
    for op in forward.ops:
        follows = isinstance(op, Elementwise) and any(v.owner in found for v in op.operands)
        if isinstance(op, NORMS) or follows:
            found.add(op)
    return found


def _named(forward: _Forward, named: Sequence[str]) -> Chosen:
    return {op for op in forward.ops if _name(op) in named}


def _name(op: Operation) -> str:
    return op.location.desc.data if isinstance(op.location, NameLoc) else ""


MODES: Mapping[str, Callable[[_Forward, Sequence[str]], Chosen]] = {
    "standard": _standard,
    "norms": _norms,
    "nodes": _named,
}


@dataclass
class Copies:
    """Recomputed values so far, in the order of the backward pass."""

    block: Block
    forward: Mapping[Operation, None]
    chosen: Chosen
    copies: dict[SSAValue, SSAValue] = field(default_factory=dict)
    _latest: SSAValue | None = None

    def feed(self, op: Operation) -> None:
        """Replaces operands of a backward operation by recomputed values."""
        after = next((v for v in op.operands if self._is_gradient(v)), self._latest)
        for index, value in enumerate(op.operands):
            if after is not None and value.owner in self.chosen:
                op.operands[index] = self._copy(value, after, op)
        self._latest = next(iter(op.results), self._latest)

    def _is_gradient(self, value: SSAValue) -> bool:
        owner = value.owner
        return isinstance(owner, GraphcoreOp) and bool(owner.operands) and owner not in self.forward

    def _copy(self, value: SSAValue, after: SSAValue, before: Operation) -> SSAValue:
        """A recomputed value; recomputes chosen operations that it depends on first."""
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
        """
        An operand of a recomputed operation: recomputed itself, or kept and read by a `LaterOp`.

        CSE does not merge its readers with the forward pass; they wait for the gradient `after`.
        """
        if value.owner in self.chosen:
            return self.copies[value]
        if value not in self.copies:
            later = gc.LaterOp(value, after)
            Rewriter.insert_op(later, InsertPoint.before(before))
            self.copies[value] = later.result
        return self.copies[value]


def _needed(owner: Operation, chosen: Chosen) -> Iterator[SSAValue]:
    return (value for value in owner.operands if value.owner in chosen)
