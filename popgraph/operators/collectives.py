"""PopART's collectives, by which the replicas of a model exchange tensors."""

from __future__ import annotations

from typing import Any

from popgraph.dialects import graphcore as gc
from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.annotations import GROUP
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowering_of, lowers
from popgraph.support.errors import TypeMismatchError
from popgraph.support.replicas import grouping

COMBINED = (*gc.COMBINED_BY, gc.LOCAL)
"""How tensors are combined, as PopART numbers it."""


def _groups(node: Node) -> dict[str, Any]:
    """The replicas that work together: all of them, unless the node says which."""
    replicas = node.lowering.replicas
    if own := node.integers("__collectiveReplicaGrouping"):
        stride, size = own[1], own[2]
    else:
        kind, members = node.integers(GROUP) or (0, 0)
        stride, size = grouping(kind, max(members, 1), replicas)
    if min(stride, size) < 1 or replicas % (stride * size):
        raise TypeMismatchError(
            f"{replicas} replicas cannot be taken in groups of {size} that are {stride} apart",
            hint="the size of a group divides the number of replicas",
        )
    return {"stride": stride, "size": size}


def _combined(node: Node) -> str:
    number = node.integer("__collectiveOperator")
    if not 0 <= number < len(COMBINED):
        raise TypeMismatchError(
            f"there is no collective operator {number}", hint=f"0 to {len(COMBINED) - 1}"
        )
    return COMBINED[number]


@lowers("ReplicatedAllReduce", domain=GRAPHCORE)
def replicated_all_reduce(node: Node) -> Lowered:
    return gc.AllReduceOp(node[0], combine=_combined(node), **_groups(node))


@lowers("ReplicatedReduceScatter", domain=GRAPHCORE)
def replicated_reduce_scatter(node: Node) -> Lowered:
    return gc.ReduceScatterOp(node[0], combine=_combined(node), **_groups(node))


@lowers("ReplicatedAllGather", domain=GRAPHCORE)
def replicated_all_gather(node: Node) -> Lowered:
    return gc.AllGatherOp(node[0], **_groups(node))


_NODES = (replicated_all_reduce, replicated_reduce_scatter, replicated_all_gather)


def is_collective(op: OnnxOp) -> bool:
    """Whether replicas tell each other something by a node."""
    return lowering_of(op.domain, op.op_type) in _NODES
