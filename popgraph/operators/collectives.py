"""PopART's collectives between replicas: all-reduce, reduce-scatter, all-gather."""

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
"""The combining operators, in the order of PopART's `CollectiveOperator`."""


def _groups(node: Node) -> dict[str, Any]:
    """The replica grouping of a node; all replicas are one group unless the node says otherwise."""
    replicas = node.lowering.replicas
    if own := node.integers("__collectiveReplicaGrouping"):
        stride, size = own[1], own[2]
    else:
        kind, members = node.integers(GROUP) or (0, 0)
        stride, size = grouping(kind, max(members, 1), replicas)
    if min(stride, size) < 1 or replicas % (stride * size):
        raise TypeMismatchError(
            f"{replicas} replicas cannot form groups of size {size} with stride {stride}",
            hint="choose a size and a stride whose product divides the number of replicas",
        )
    return {"stride": stride, "size": size}


def _combined(node: Node) -> str:
    number = node.integer("__collectiveOperator")
    if not 0 <= number < len(COMBINED):
        raise TypeMismatchError(
            f"unknown collective operator {number}", hint=f"use 0 to {len(COMBINED) - 1}"
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
    """Whether a node exchanges data between replicas."""
    return lowering_of(op.domain, op.op_type) in _NODES
