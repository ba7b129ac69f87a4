"""Lowers operators whose results are compile-time constants: literals, shapes, ranges."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.onnx.requirements.sequences import wrong_range
from popgraph.dialects.program import ConstantOp
from popgraph.passes.onnx.to_graphcore.arithmetic import cast as cast_to
from popgraph.passes.onnx.to_graphcore.linear_forms import computed, linear_form
from popgraph.passes.onnx.to_graphcore.movement import I64
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import Lowered, lowers
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod


@lowers("Constant")
def constant(node: Node) -> Lowered:
    for name in ("value_int", "value_ints", "value_float", "value_floats"):
        if node.has(name):
            dtype = np.int64 if name.startswith("value_int") else np.float32
            return node.literal(np.array(node.value(name), dtype))
    if node.has("value_string") or node.has("value_strings"):
        raise node.unsupported("a string")
    array = cast(Array, node.value("value" if node.has("value") else "sparse_value"))
    if array.dtype.kind in "OUS":
        raise node.unsupported("a tensor of strings")
    return ConstantOp(node.lowering.weights.attribute(np.ascontiguousarray(array)))


@lowers("ConstantOfShape", structural=[0])
def constant_of_shape(node: Node) -> Lowered:
    value: Array = np.zeros(1, np.float32)
    if "value" in node.op.onnx_attributes():
        value = cast(Array, node.value("value"))
    return gc.BroadcastOp(node.literal(value.reshape(())), shape=node.numbers(0, "the shape"))


@lowers("Shape")
def shape(node: Node) -> Lowered:
    attributes = node.op.onnx_attributes()
    end = node.integer("end") if "end" in attributes else None
    return node.literal(np.array(node.shape[node.integer("start") : end], np.int64))


@lowers("Size")
def size(node: Node) -> Lowered:
    return node.literal(np.array(prod(node.shape), np.int64))


@lowers("Range", structural=[0, 1, 2])
def range_(node: Node) -> Lowered:
    moving = _moving_range(node)
    if moving is not None:
        return moving
    start, limit, delta = (
        node.array(index, what).reshape(-1)[0]
        for index, what in enumerate(("the start", "the limit", "the step"))
    )
    for complaint in wrong_range(start, limit, delta):
        raise TypeMismatchError(complaint.what, hint=complaint.hint)
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    places = start + np.arange(count) * delta
    return node.literal(places.astype(node.dtype.numpy))


def _moving_range(node: Node) -> Operand | None:
    """Whole numbers, as many in every turn: `iota * delta + start`."""
    known = [node.lowering.array(node[index]) for index in range(3)]
    if known[2] is None or all(one is not None for one in known) or not node.dtype.is_integer:
        return None
    start, limit = (linear_form(node[index], 0, node.lowering) for index in (0, 1))
    length, delta = limit.plus(start, -1).known(), int(known[2].item())
    if length is None or not delta or not start.is_of_scalars():
        return None
    counted = gc.IotaOp(shape=(max(0, -(-length // delta)),), axis=0, dtype=I64)
    steps = gc.MulOp(counted, node.literal(np.array(delta)))
    return cast_to(gc.AddOp(steps, computed(start, node.lowering)), node.dtype)


@lowers("EyeLike")
def eye_like(node: Node) -> Lowered:
    target = node.dtype
    if "dtype" in node.op.onnx_attributes():
        target = dtypes.BY_ONNX[node.integer("dtype")]
    rows, columns = node.shape
    diagonal = min(max(node.integer("k"), -rows), columns)  # beyond both, there is none
    return node.literal(np.eye(rows, columns, diagonal).astype(target.numpy))
