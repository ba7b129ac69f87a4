"""
Constant, ConstantOfShape, Shape, Size, Range, EyeLike: operators with compile-time results.

Their results are literals, except that a Range of known length may start at a position that
depends on the iteration of a loop, and Shape and Size may depend on data in training.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.typeproto import MAX_ELEMENTS
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.complaints import of_rank, one_element, wrong_sizes
from popgraph.operators.linear_forms import computed, linear_form
from popgraph.operators.movement import I64
from popgraph.operators.node import Node
from popgraph.operators.record import (
    STRUCTURE,
    Lowered,
    computes,
    follows_data_sizes,
    lowers,
    requires,
    without_gradient,
)
from popgraph.operators.sized_by_data import shape_of_data
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod

KINDS: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}
"""Element types by the attributes that hold plain values."""


@requires("Constant")
def require_constant(node: NodeView) -> Conflicts:
    names = sorted(node.op.onnx_attributes())
    if len(names) != 1:
        yield TypeConflict(
            f"it has {len(names)} values: {', '.join(names)}", "set one value attribute"
        )


@lowers("Constant")
def constant(node: Node) -> Lowered:
    array = compute_constant(node)
    if array.dtype.kind in "OUS":
        raise node.unsupported("a tensor of strings" if node.has("value") else "a string")
    return node.literal(array)


@computes("Constant")
def compute_constant(node: NodeView) -> Array:
    for name, dtype in KINDS.items():
        found = node.attribute(name)
        if found is not None:
            return np.array(found, dtype)
    found = node.attribute("value", node.attribute("sparse_value"))
    assert isinstance(found, np.ndarray)
    return found


@requires("ConstantOfShape")
def require_constant_of_shape(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 1)
    yield from wrong_sizes(node.integers_of(0) or [])
    held = node.attribute("value")
    if isinstance(held, np.ndarray) and held.size != 1:
        yield TypeConflict(f"`value` has {held.size} elements", "it must have one")


@lowers("ConstantOfShape", structural=[0])
def constant_of_shape(node: Node) -> Lowered:
    value: Array = node.attribute("value", np.zeros(1, np.float32))
    return gc.BroadcastOp(node.literal(value.reshape(())), shape=node.numbers(0, "the shape"))


@lowers("Shape")
def shape(node: Node) -> Lowered:
    start, end = node.integer("start"), node.attribute("end")
    if sized := node.lowering.data_sizes.of(node[0]):
        return shape_of_data(node.lowering, node.shape, sized, start, end)
    return node.literal(np.array(node.shape[start:end], np.int64))


@computes("Shape")
def compute_shape(node: NodeView, x: Any) -> Array:
    """`start` and `end` clamp as Python's slices do."""
    return np.array(np.shape(x)[node.attribute("start", 0) : node.attribute("end")], np.int64)


@lowers("Size")
def size(node: Node) -> Lowered:
    if sized := node.lowering.data_sizes.of(node[0]):
        shape = shape_of_data(node.lowering, node.shape, sized)
        return gc.ReduceProdOp(shape, axes=[0], keepdims=False)
    return node.literal(np.array(prod(node.shape), np.int64))


@computes("Size")
def compute_size(node: NodeView, x: Any) -> Array:
    return np.array(np.prod(np.shape(x), dtype=np.int64))


@requires("Range")
def require_range(node: NodeView) -> Conflicts:
    for index in range(3):
        yield from one_element(node, index)
    bounds = [node.elements_of(index) for index in range(3)]
    if all(bound is not None and bound.size == 1 for bound in bounds):
        start, limit, step = (bound.reshape(-1)[0] for bound in bounds if bound is not None)
        yield from wrong_range(start, limit, step)


def wrong_range(start: np.generic, limit: np.generic, step: np.generic) -> Conflicts:
    """The bounds of a range are finite, its step is not 0, and memory holds it."""
    bounds = [number.item() for number in (start, limit, step)]
    shown = ", ".join(map(str, bounds))
    if not all(map(math.isfinite, bounds)) or bounds[2] == 0:
        yield TypeConflict(
            f"no tensor holds the range ({shown})", "use finite bounds and a step other than 0"
        )
    elif (bounds[1] - bounds[0]) / bounds[2] > MAX_ELEMENTS:
        yield TypeConflict(f"the range ({shown}) does not fit into memory", "check its step")


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
    """A Range of integers whose length is the same in every iteration: `iota * delta + start`."""
    known = [node.lowering.array(node[index]) for index in range(3)]
    if known[2] is None or all(one is not None for one in known) or not node.dtype.is_integer:
        return None
    start, limit = (linear_form(node[index], 0, node.lowering) for index in (0, 1))
    length, delta = limit.plus(start, -1).known(), int(known[2].item())
    if length is None or not delta or not start.is_of_scalars():
        return None
    counted = gc.IotaOp(shape=(max(0, -(-length // delta)),), axis=0, dtype=I64)
    steps = gc.MulOp(counted, node.literal(np.array(delta)))
    return cast(gc.AddOp(steps, computed(start, node.lowering)), node.dtype)


without_gradient("Range", STRUCTURE)


@requires("EyeLike")
def require_eye_like(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 2)


@lowers("EyeLike")
def eye_like(node: Node) -> Lowered:
    target = dtypes.BY_ONNX[node.integer("dtype")] if node.gives("dtype") else node.dtype
    rows, columns = node.shape
    diagonal = min(max(node.integer("k"), -rows), columns)  # all zeros beyond; k may be huge
    return node.literal(np.eye(rows, columns, diagonal).astype(target.numpy))


without_gradient("EyeLike", "it only reads the shape of its input")

follows_data_sizes("Shape Size")
