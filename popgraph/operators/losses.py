"""
Losses: the checks of ONNX's, which are lowered by their function bodies, and PopART's.

PopART's Ctc sums the probabilities of all alignments of a sequence with its labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import reshaped
from popgraph.dialects.onnx.custom import ANY_LABEL
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import YieldOp
from popgraph.dialects.program.control_signatures import NUMBER, row_type
from popgraph.operators.arithmetic import as_i64, cast, computing
from popgraph.operators.bodies import close
from popgraph.operators.complaints import at_least, of_shape
from popgraph.operators.lookups import i64_scalar, taken_along, within
from popgraph.operators.movement import I64
from popgraph.operators.node import Node
from popgraph.operators.record import (
    DETACHED,
    GRAPHCORE,
    Bounds,
    Lowered,
    bounds,
    chooses,
    follows_data_sizes,
    lowers,
    requires,
    without_gradient,
)
from popgraph.support import dtypes
from popgraph.support.errors import TypeMismatchError

REDUCTIONS = {"mean": "mean", "sum": "sum", "none": "none", "noreduction": "none"}

IMPOSSIBLE = -1e30
"""log 0, made finite so that the difference of two such logarithms is not NaN."""


@requires("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def cross_entropy(node: NodeView) -> Conflicts:
    yield from at_least(node, 0, 2)
    scores = node.shape_of(0)
    if scores is not None:
        yield from of_shape(node, 1, scores[0], *scores[2:])
        yield from of_shape(node, 2, scores[1])


chooses("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", reduction=("none", "mean", "sum"))


@bounds("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
@bounds("Nll", domain=GRAPHCORE)
def labels(node: NodeView) -> Iterator[Bounds]:
    """Labels are indices into axis 1 of the scores; in PopART's Nll, into the last axis."""
    scores = node.static_shape_of(0)
    axis, name = (-1, "ignoreIndex") if node.op.domain == GRAPHCORE else (1, "ignore_index")
    if scores and len(scores) > axis and not node.integer(ANY_LABEL):
        ignored = node.integer(name) if node.has(name) else None
        yield Bounds(1, "label", (0,), (scores[axis] - 1,), ignored)


def _reduction(node: Node) -> str:
    given = node.text("reduction", "mean")
    if given.lower() not in REDUCTIONS:
        raise TypeMismatchError(f"unknown reduction {given!r}", hint="use Mean, Sum or NoReduction")
    return REDUCTIONS[given.lower()]


@lowers("Nll", domain=GRAPHCORE)
def nll_loss(node: Node) -> Lowered:
    return gc.NllLossOp(
        node[0],
        node[1],
        reduction=_reduction(node),
        ignore_index=node.integer("ignoreIndex") if node.has("ignoreIndex") else None,
        log_probabilities=bool(node.integer("inputIsLogProbability")),
    )


@lowers("L1", domain=GRAPHCORE)
def l1_loss(node: Node) -> Lowered:
    return gc.L1LossOp(node[0], scale=node.real("lambda", 1.0), reduction=_reduction(node))


@lowers("IdentityLoss", domain=GRAPHCORE)
def identity_loss(node: Node) -> Lowered:
    how = _reduction(node)
    if node.dtype.is_float:
        return gc.IdentityLossOp(node[0], reduction=how)
    if how == "none":
        return node[0]
    reduced = gc.ReduceMeanOp if how == "mean" else gc.ReduceSumOp
    return reduced(node[0], axes=range(node.rank), keepdims=False)


lowers("Detach", domain=GRAPHCORE)(lambda node: gc.DetachOp(node[0]))
without_gradient("Detach", DETACHED, domain=GRAPHCORE)


@lowers("Ctc", domain=GRAPHCORE)
def ctc(node: Node) -> Lowered:
    """
    -log(sum of the probabilities of all alignments), by the forward algorithm.

    The mean divides each loss by its number of labels, like PyTorch. The second output, a gradient
    that PopART keeps for its own backward pass, is absent: autodiff derives it from the loss.
    """
    _check(node)
    labels = _Labels.of(node)
    start = gc.WhereOp(
        gc.CompareOp(labels.places, i64_scalar(node, 0), predicate="eq"),
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
        raise TypeMismatchError(
            f"`blank` is {node.integer('blank')}, which is not one of {node.shape[2]} classes",
            hint="use a class from 0 on",
        )


@dataclass(frozen=True)
class _Labels:
    """The labels of every sequence, with a blank before, between and after them."""

    node: Node
    wide: dtypes.DType
    classes: SSAValue
    skips: SSAValue
    """Whether the blank before a label may be skipped: the labels around it differ."""
    times: SSAValue
    lengths: SSAValue

    @classmethod
    def of(cls, node: Node) -> _Labels:
        count, most = shape_of(node[1])
        labels, times, lengths = (as_i64(node, index) for index in (1, 2, 3))
        inside, blank = within(node, labels, node.shape[2]), node.integer("blank")
        if most:
            spread = gc.PadOp(inside, low=(0, 1), high=(0, 1), interior=(0, 1), value=blank).result
            before = gc.SliceOp(spread, starts=(0, 0), sizes=(count, 2 * most - 1), steps=(1, 1))
            shifted = gc.PadOp(before, low=(0, 2), high=(0, 0), interior=(0, 0), value=-1)
            is_label = node.literal((np.arange(2 * most + 1) % 2 == 1)[None, :])
            skips = gc.AndOp(is_label, gc.CompareOp(spread, shifted, predicate="ne")).result
        else:
            spread = gc.BroadcastOp(i64_scalar(node, blank), shape=(count, 1)).result
            skips = gc.BroadcastOp(node.literal(np.array(False)), shape=(count, 1)).result
        columns = (gc.ReshapeOp(one, shape=(count, 1)).result for one in (times, lengths))
        return cls(node, computing(node), spread, skips, *columns)

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
    """log of the probability that a sequence ends at each label, after its last step."""
    node = labels.node
    wanted = gc.BroadcastOp(labels.classes, shape=(node.shape[0], *labels.shape))
    heard = gc.MaxOp(cast(taken_along(node, 2, wanted), labels.wide), labels.impossible).result
    if not node.shape[0]:
        return start
    block = Block(arg_types=[NUMBER, start.type, row_type(heard)])
    step, before, row = block.args
    with ImplicitBuilder(block):
        ways: list[Operand] = [before, _moved(before, 1)]
        ways.append(gc.WhereOp(labels.skips, _moved(before, 2), labels.impossible))
        after = gc.AddOp(row, _log_sum(ways))
        continues = gc.CompareOp(step, labels.times, predicate="lt")
        YieldOp([gc.WhereOp(continues, after, before).result])
    captured = close([block])
    loop = gc.LoopOp(
        node.shape[0], Region(block), carried=[start], scanned=[heard], captured=captured
    )
    return loop.finals[0]


def _moved(values: SSAValue, by: int) -> Operand:
    """The values `by` labels earlier: the predecessors of each label."""
    count, size = shape_of(values)
    kept = gc.SliceOp(values, starts=(0, 0), sizes=(count, max(0, size - by)), steps=(1, 1))
    return gc.PadOp(kept, low=(0, min(by, size)), high=(0, 0), interior=(0, 0), value=IMPOSSIBLE)


def _log_sum(values: Sequence[Operand]) -> Operand:
    peak = gc.DetachOp(reduce(gc.MaxOp, values))
    parts: list[Operand] = [gc.ExpOp(gc.SubOp(value, peak)) for value in values]
    return gc.AddOp(gc.LogOp(reduce(gc.AddOp, parts)), peak)


def _loss(node: Node, labels: _Labels, chances: SSAValue) -> Operand:
    """The loss: an alignment ends with the last label, or with the blank after it."""
    last = gc.MulOp(labels.lengths, i64_scalar(node, 2))
    distance = gc.SubOp(last, labels.places)
    is_end = gc.OrOp(
        gc.CompareOp(distance, i64_scalar(node, 0), predicate="eq"),
        gc.CompareOp(distance, i64_scalar(node, 1), predicate="eq"),
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
    how = _reduction(node)
    if how == "mean":
        lengths = gc.MaxOp(reshaped(labels.lengths, shape_of(loss)), i64_scalar(node, 1))
        per_label = gc.DivOp(loss, cast(lengths, dtype_of(loss)))
        loss = gc.ReduceMeanOp(per_label, axes=(0,), keepdims=False)
    elif how == "sum":
        loss = gc.ReduceSumOp(loss, axes=(0,), keepdims=False)
    return cast(loss, dtypes.BY_ONNX.get(node.integer("outDataType"), node.dtype))


follows_data_sizes("Detach IdentityLoss L1 Nll", domain=GRAPHCORE)
