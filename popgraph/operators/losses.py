"""Lowers PopART's losses and Detach to graphcore."""

from __future__ import annotations

from collections.abc import Iterator

from popgraph.dialects import graphcore as gc
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.node import Node
from popgraph.operators.record import (
    DETACHED,
    GRAPHCORE,
    Bounds,
    Lowered,
    bounds,
    lowers,
    without_gradient,
)
from popgraph.support.errors import TypeMismatchError

REDUCTIONS = {"mean": "mean", "sum": "sum", "none": "none", "noreduction": "none"}


def reduction(node: Node) -> str:
    given = node.text("reduction", "mean")
    if given.lower() not in REDUCTIONS:
        raise TypeMismatchError(f"there is no reduction {given!r}", hint="Mean, Sum or NoReduction")
    return REDUCTIONS[given.lower()]


@lowers("Nll", domain=GRAPHCORE)
def nll_loss(node: Node) -> Lowered:
    return gc.NllLossOp(
        node[0],
        node[1],
        reduction=reduction(node),
        ignore_index=node.integer("ignoreIndex") if node.has("ignoreIndex") else None,
        log_probabilities=bool(node.integer("inputIsLogProbability")),
    )


@lowers("L1", domain=GRAPHCORE)
def l1_loss(node: Node) -> Lowered:
    return gc.L1LossOp(node[0], scale=node.real("lambda", 1.0), reduction=reduction(node))


@lowers("IdentityLoss", domain=GRAPHCORE)
def identity_loss(node: Node) -> Lowered:
    how = reduction(node)
    if node.dtype.is_float:
        return gc.IdentityLossOp(node[0], reduction=how)
    if how == "none":
        return node[0]
    reduce = gc.ReduceMeanOp if how == "mean" else gc.ReduceSumOp
    return reduce(node[0], axes=range(node.rank), keepdims=False)


@lowers("Detach", domain=GRAPHCORE)
def detach(node: Node) -> Lowered:
    return gc.DetachOp(node[0])


ANY_LABEL = "any_label"
"""The attribute of a loss for which labels that are no class mean something, too."""


@bounds("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def labels(node: NodeView) -> Iterator[Bounds]:
    yield from _labels(node, 1, "ignore_index")


@bounds("Nll", domain=GRAPHCORE)
def labels_of_popart(node: NodeView) -> Iterator[Bounds]:
    if not node.integer(ANY_LABEL):
        yield from _labels(node, -1, "ignoreIndex")


def _labels(node: NodeView, axis: int, ignored: str) -> Iterator[Bounds]:
    """Labels of classes that lie along an axis of the first input."""
    scores = node.static_shape_of(0)
    if scores is not None and len(scores) > max(axis, 0):
        skipped = node.integer(ignored) if node.has(ignored) else None
        yield Bounds(1, "label", (0,), (scores[axis] - 1,), skipped)


without_gradient("Detach", DETACHED, domain=GRAPHCORE)
