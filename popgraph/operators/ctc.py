"""Lowers PopART's Ctc: the loss of all alignments of a sequence with its labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.program import YieldOp
from popgraph.dialects.program.control import NUMBER, row_type
from popgraph.operators.arithmetic import cast, computing, whole_numbers
from popgraph.operators.bodies import close
from popgraph.operators.lookups import taken_along, whole, within
from popgraph.operators.losses import reduction
from popgraph.operators.movement import I64, reshaped
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowers
from popgraph.support import dtypes
from popgraph.support.errors import TypeMismatchError

IMPOSSIBLE = -1e30
"""The logarithm of no probability: finite, so that differences of two of it are numbers."""


@lowers("Ctc", domain=GRAPHCORE)
def ctc(node: Node) -> Lowered:
    """
    -log of the probability of all alignments, by labels with blanks between them.

    A mean is that of losses per label, as PyTorch's. There is no second output: what PopART keeps
    there for its own gradient follows from the loss here.
    """
    _check(node)
    labels = _Labels.of(node)
    start = gc.WhereOp(
        gc.CompareOp(labels.places, whole(node, 0), predicate="eq"),
        node.scalar(0.0, labels.wide),
        labels.impossible,
    )
    chances = _chances(labels, gc.BroadcastOp(start, shape=labels.shape).result)
    return [_reduced(node, labels, _loss(node, labels, chances)), None]


def _check(node: Node) -> None:
    count = node.shape[1:2]
    fits = node.rank == 3 and len(shape_of(node[1])) == 2 and shape_of(node[1])[:1] == count
    if not fits or any(shape_of(node[index]) != count for index in (2, 3)):
        raise TypeMismatchError(
            "Ctc takes log probabilities [T, N, C], labels [N, S] and lengths [N] of both"
        )
    if not 0 <= node.integer("blank") < node.shape[2]:
        raise TypeMismatchError(f"blank {node.integer('blank')} is none of {node.shape[2]} classes")


@dataclass(frozen=True)
class _Labels:
    """The labels of every sequence, with a blank before, between and behind."""

    node: Node
    wide: dtypes.DType
    classes: SSAValue
    skips: SSAValue
    """Whether the blank before may be left out: it stands between two labels that differ."""
    times: SSAValue
    lengths: SSAValue

    @classmethod
    def of(cls, node: Node) -> _Labels:
        count, most = shape_of(node[1])
        labels, times, lengths = (whole_numbers(node, index) for index in (1, 2, 3))
        none = (0, 0)
        inside = within(node, labels, node.shape[2])
        blank = node.integer("blank")
        spread = gc.PadOp(inside, low=(0, 1), high=(0, 1), interior=(0, 1), value=blank).result
        if not most:
            spread = gc.BroadcastOp(whole(node, blank), shape=(count, 1)).result
        before = gc.SliceOp(spread, starts=none, sizes=(count, 2 * most - 1), steps=(1, 1))
        shifted = gc.PadOp(before, low=(0, 2), high=none, interior=none, value=-1) if most else None
        label = node.literal((np.arange(2 * most + 1) % 2 == 1)[None, :])
        differs = (
            gc.CompareOp(spread, shifted, predicate="ne")
            if shifted is not None
            else gc.BroadcastOp(node.literal(np.array(False)), shape=(count, 1))
        )
        skips = gc.AndOp(label, differs).result
        column = count, 1
        return cls(
            node,
            computing(node),
            spread,
            skips,
            SSAValue.get(reshaped(times, column)),
            SSAValue.get(reshaped(lengths, column)),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.classes)

    @property
    def places(self) -> Operand:
        return gc.IotaOp(shape=(1, self.shape[1]), axis=1, dtype=I64)

    @property
    def impossible(self) -> SSAValue:
        return self.node.scalar(IMPOSSIBLE, self.wide)


def _chances(labels: _Labels, start: SSAValue) -> SSAValue:
    """The logarithm of how likely a sequence ends at each label, after its last step."""
    node = labels.node
    wanted = gc.BroadcastOp(labels.classes, shape=(node.shape[0], *labels.shape))
    heard = gc.MaxOp(cast(taken_along(node, 2, wanted), labels.wide), labels.impossible).result
    if not node.shape[0]:
        return start
    block = Block(arg_types=[NUMBER, start.type, row_type(heard)])
    turn, before, row = block.args
    with ImplicitBuilder(block):
        after = gc.AddOp(row, _log_sum(labels, _ways(labels, before)))
        goes_on = gc.CompareOp(turn, labels.times, predicate="lt")
        YieldOp([gc.WhereOp(goes_on, after, before).result])
    captured = close([block])
    loop = gc.LoopOp(
        node.shape[0], Region(block), carried=[start], scanned=[heard], captured=captured
    )
    return loop.finals[0]


def _ways(labels: _Labels, before: SSAValue) -> list[Operand]:
    """From where a label is reached: itself, the one before, the one before that."""
    ways: list[Operand] = [before, _moved(before, 1)]
    return [*ways, gc.WhereOp(labels.skips, _moved(before, 2), labels.impossible)]


def _moved(values: SSAValue, by: int) -> Operand:
    count, size = shape_of(values)
    kept = gc.SliceOp(values, starts=(0, 0), sizes=(count, max(0, size - by)), steps=(1, 1))
    return gc.PadOp(kept, low=(0, min(by, size)), high=(0, 0), interior=(0, 0), value=IMPOSSIBLE)


def _log_sum(labels: _Labels, values: list[Operand]) -> Operand:
    peak = gc.DetachOp(reduce(gc.MaxOp, values))
    parts: list[Operand] = [gc.ExpOp(gc.SubOp(value, peak)) for value in values]
    return gc.AddOp(gc.LogOp(reduce(gc.AddOp, parts)), peak)


def _loss(node: Node, labels: _Labels, chances: SSAValue) -> Operand:
    """It ends with the last label, or the blank behind it."""
    last = gc.MulOp(labels.lengths, whole(node, 2))
    behind = gc.SubOp(last, labels.places)
    is_end = gc.OrOp(
        gc.CompareOp(behind, whole(node, 0), predicate="eq"),
        gc.CompareOp(behind, whole(node, 1), predicate="eq"),
    )
    ends = gc.WhereOp(is_end, chances, labels.impossible)
    peak = gc.DetachOp(gc.ReduceMaxOp(ends, axes=(1,), keepdims=True))
    total = gc.ReduceSumOp(gc.ExpOp(gc.SubOp(ends, peak)), axes=(1,), keepdims=True)
    loss = gc.NegOp(gc.AddOp(gc.LogOp(total), peak))
    is_impossible = gc.CompareOp(loss, node.scalar(-IMPOSSIBLE / 2, labels.wide), predicate="gt")
    instead = 0.0 if node.integer("zeroInfinity") else math.inf
    found = gc.WhereOp(is_impossible, node.scalar(instead, labels.wide), loss)
    return gc.ReshapeOp(found, shape=labels.shape[:1])


def _reduced(node: Node, labels: _Labels, loss: Operand) -> SSAValue:
    how = reduction(node)
    if how == "mean":
        lengths = gc.MaxOp(reshaped(labels.lengths, shape_of(loss)), whole(node, 1))
        loss = gc.ReduceMeanOp(
            gc.DivOp(loss, cast(lengths, dtype_of(loss))), axes=(0,), keepdims=False
        )
    elif how == "sum":
        loss = gc.ReduceSumOp(loss, axes=(0,), keepdims=False)
    return cast(loss, _result_type(node))


def _result_type(node: Node) -> dtypes.DType:
    """The type that the node asks for by ONNX's number, that of the input where there is none."""
    return dtypes.BY_ONNX.get(node.integer("outDataType"), node.dtype)
