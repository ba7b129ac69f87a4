"""What ranges and other made-up tensors ask of the numbers that size them."""

from __future__ import annotations

import math

import numpy as np

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.typeproto import MAX_ELEMENTS
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import (
    at_least,
    in_range,
    of_rank,
    one_element,
    wrong_sizes,
)
from popgraph.operators.record import requires


@requires("Range")
def range_(node: NodeView) -> Complaints:
    for index in range(3):
        yield from one_element(node, index)
    bounds = [node.elements_of(index) for index in range(3)]
    if all(bound is not None and bound.size == 1 for bound in bounds):
        start, limit, step = (bound.reshape(-1)[0] for bound in bounds if bound is not None)
        yield from wrong_range(start, limit, step)


def wrong_range(start: np.generic, limit: np.generic, step: np.generic) -> Complaints:
    """What is wrong with the bounds of a range."""
    bounds = [number.item() for number in (start, limit, step)]
    shown = ", ".join(map(str, bounds))
    if not all(map(math.isfinite, bounds)) or bounds[2] == 0:
        yield TypeConflict(
            f"no tensor holds the range ({shown})", "its bounds are finite, its step is not 0"
        )
    elif (bounds[1] - bounds[0]) / bounds[2] > MAX_ELEMENTS:
        yield TypeConflict(f"no memory holds the range ({shown})", "look at its step")


@requires("Constant")
def constant(node: NodeView) -> Complaints:
    names = sorted(node.op.onnx_attributes())
    if len(names) != 1:
        yield TypeConflict(f"it has {len(names)} values: {', '.join(names)}", "it has one")


@requires("ConstantOfShape")
def constant_of_shape(node: NodeView) -> Complaints:
    yield from of_rank(node, 0, 1)
    yield from wrong_sizes(node.integers_of(0) or [])
    held = node.op.attribute_values().get("value")
    if isinstance(held, np.ndarray) and held.size != 1:
        yield TypeConflict(f"`value` has {held.size} elements", "it has one")


@requires("RandomNormal", "RandomUniform")
def random(node: NodeView) -> Complaints:
    yield from wrong_sizes(node.given_integers("shape") or [])


@requires("EyeLike")
def eye_like(node: NodeView) -> Complaints:
    yield from of_rank(node, 0, 2)


@requires("Trilu")
def trilu(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 2)
    yield from one_element(node, 1)


@requires("CumProd", "CumSum")
def running(node: NodeView) -> Complaints:
    yield from one_element(node, 1)
    yield from in_range("axis", node.integers_of(1) or [], node.rank_of(0))
