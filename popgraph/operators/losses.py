"""Lowers PopART's losses and Detach to graphcore."""

from __future__ import annotations

from popgraph.dialects import graphcore as gc
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowers
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
