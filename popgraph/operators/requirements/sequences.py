"""What ranges, windows of signals and other made-up tensors ask of the numbers that size them."""

from __future__ import annotations

import math

import numpy as np

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.typeproto import MAX_ELEMENTS, cannot_exist
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import (
    at_least,
    axes_of,
    in_range,
    of_rank,
    of_shape,
    one_element,
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
    yield from _sizes(node, 0)
    held = node.op.attribute_values().get("value")
    if isinstance(held, np.ndarray) and held.size != 1:
        yield TypeConflict(f"`value` has {held.size} elements", "it has one")


def _sizes(node: NodeView, index: int) -> Complaints:
    sizes = node.integers_of(index) or []
    yield from wrong_sizes(sizes)


def wrong_sizes(sizes: list[int]) -> Complaints:
    """What is wrong with numbers that are to be a shape."""
    if cannot_exist(sizes):
        yield TypeConflict(f"no tensor has the shape {sizes}", "sizes are 0 or more")


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


@requires("BlackmanWindow", "HammingWindow", "HannWindow")
def window(node: NodeView) -> Complaints:
    yield from one_element(node, 0)
    yield from _sizes(node, 0)


@requires("AffineGrid")
def affine_grid(node: NodeView) -> Complaints:
    size = node.integers_of(1)
    if size is None:
        return
    if len(size) not in (4, 5) or min(size) < 1:
        yield TypeConflict(f"`size` is {size}", "it is [N, C, H, W] or [N, C, D, H, W]")
        return
    spatial = len(size) - 2
    yield from of_shape(node, 0, size[0], spatial, spatial + 1)


@requires("CenterCropPad")
def center_crop_pad(node: NodeView) -> Complaints:
    yield from axes_of(node, "axes", 99, node.rank_of(0))
    sizes = node.integers_of(1)
    if sizes is None:
        return
    yield from wrong_sizes(sizes)
    axes = node.given_integers("axes")
    count = node.rank_of(0) if axes is None else len(axes)
    if count is not None and len(sizes) != count:
        yield TypeConflict(f"`shape` has {len(sizes)} sizes for {count} axes", "one for each")
