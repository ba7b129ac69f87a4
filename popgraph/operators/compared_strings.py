"""Lowers Equal, and inputs of strings: each string is a row of code points, padded with 0."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.onnx.open_containers import STRINGS
from popgraph.operators.arithmetic import cast, compare
from popgraph.operators.elements import codes_of, is_strings, strings
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, follows_data_sizes, lowers
from popgraph.support import dtypes
from popgraph.support.arrays import Array

U64, I64 = dtypes.BY_NAME["u64"], dtypes.BY_NAME["i64"]
FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)
"""Odd multipliers of polynomial hashes; the first one without a collision is used."""


@lowers(STRINGS[1], domain=STRINGS[0])
def of_code_points(node: Node) -> Lowered:
    """An input of strings, passed to the program as code points."""
    return strings(node[0])


@lowers("Equal")
def equal(node: Node) -> Lowered:
    """Compares elements; strings are equal if all their code points are."""
    if not is_strings(node[0]):
        return compare(node)
    one, other = (codes_of(node[index]) for index in range(2))
    width = max(shape_of(one)[-1], shape_of(other)[-1])
    return all_equal(node, _as_wide(node, one, width), _as_wide(node, other, width))


def hashes_of(table: Array) -> tuple[Array, Array]:
    """Collision-free hashes sum(code[i] * factor^(i + 1)) of distinct rows, and the powers."""
    for factor in FACTORS:
        powers = np.array([pow(factor, 1 + at, 1 << 64) for at in range(table.shape[1])], np.uint64)
        hashes = (table.astype(np.uint64) * powers).sum(axis=1, dtype=np.uint64)
        if len(np.unique(hashes)) == len(hashes):
            return hashes, powers
    raise AssertionError("four independent 64-bit hashes do not all collide")


def _as_wide(node: Node, codes: SSAValue, width: int) -> SSAValue:
    shape = shape_of(codes)
    if shape[-1] == width:
        return codes
    zeros = node.literal(np.zeros((*shape[:-1], width - shape[-1]), np.int32))
    return gc.ConcatOp([codes, zeros], axis=len(shape) - 1).result


def all_equal(node: Node, one: Operand, other: Operand) -> SSAValue:
    """Whether two tensors are equal along the whole last axis."""
    different = cast(gc.CompareOp(one, other, predicate="ne"), I64)
    count = gc.ReduceSumOp(different, axes=[len(shape_of(different)) - 1], keepdims=False)
    return gc.CompareOp(count, node.literal(np.array(0)), predicate="eq").result


follows_data_sizes("Equal")
