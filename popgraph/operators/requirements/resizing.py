"""What Resize, Upsample, GridSample and RoiAlign ask of scales, sizes, regions, axes and grids."""

from __future__ import annotations

import math
from collections.abc import Sequence

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import (
    all_different,
    at_least,
    differ,
    in_range,
    listed,
    of_rank,
    of_shape,
    positive,
    shown,
    wrong_sizes,
)
from popgraph.operators.record import requires

_EACH = "one for each"


@requires("Resize")
def resize(node: NodeView) -> Complaints:
    axes, rank = node.given_integers("axes"), node.rank_of(0)
    if axes is not None:
        yield from in_range("axis", axes, rank)
        yield from all_different("`axes`", axes, rank)
    resized = axes or _all(rank)
    yield from _way(node)
    if node.version < 11:
        yield from _scaled(node, 1, resized, 0.0)
        return
    yield from listed(node, 1, 2, 3)
    yield from _one_of(node)
    yield from _scaled(node, 2, resized, 0.0)
    yield from _sized(node, resized)
    if node.text("coordinate_transformation_mode") == "tf_crop_and_resize":
        yield from _region(node, resized)


@requires("Upsample")
def upsample(node: NodeView) -> Complaints:
    yield from _way(node)
    if node.version < 9:
        yield from _numbers(node, node.reals("scales") or [], _all(node.rank_of(0)), 1.0)
    else:
        yield from _scaled(node, 1, _all(node.rank_of(0)), 1.0)


def _all(rank: int | None) -> Sequence[int] | None:
    return None if rank is None else range(rank)


def _way(node: NodeView) -> Complaints:
    """What goes with what."""
    mode = node.text("mode")
    if mode == "cubic" and node.version < 11:
        yield TypeConflict("`mode` is 'cubic'", "nearest and linear there are before version 11")
    if mode == "nearest" and node.integer("antialias"):
        yield TypeConflict("`antialias` with `mode` 'nearest'", "it is for linear and cubic")


def _one_of(node: NodeView) -> Complaints:
    """Either scales or sizes; an empty list stands for none."""
    lists = [node.shape_of(index) for index in (2, 3) if node.has(index)]
    some = [shape for shape in lists if shape is None or shape != (0,)]
    if not some and node.rank_of(0) != 0:
        yield TypeConflict("neither `scales` nor `sizes` are given", "give one of them")
    if len(some) > 1 and all(shape is not None for shape in some):
        yield TypeConflict("both `scales` and `sizes` are given", "give one of them")


def _scaled(node: NodeView, index: int, axes: Sequence[int] | None, least: float) -> Complaints:
    array = node.elements_of(index)
    if array is not None and array.size:
        yield from _numbers(node, array.reshape(-1).tolist(), axes, least)


def _numbers(
    node: NodeView, scales: Sequence[float], axes: Sequence[int] | None, least: float
) -> Complaints:
    if axes is not None and len(scales) != len(axes):
        yield TypeConflict(f"`scales` has {len(scales)} numbers for {len(axes)} axes", _EACH)
    for scale in scales:
        if not math.isfinite(scale) or scale < least or scale == 0:
            wanted = "1 or more" if least else "larger than 0"
            yield TypeConflict(f"a scale is {scale:g}", f"scales are {wanted}")
    shape = node.shape_of(0) or ()
    sizes = [shape[axis] for axis in axes or ()]
    for size, scale in zip(sizes, scales, strict=False):
        if isinstance(size, int):
            yield from wrong_sizes([int(size * scale)])


def _sized(node: NodeView, axes: Sequence[int] | None) -> Complaints:
    sizes, shape = node.integers_of(3), node.shape_of(0)
    if not sizes or shape is None or axes is None:
        return
    if len(sizes) != len(axes):
        yield TypeConflict(f"`sizes` has {len(sizes)} numbers for {len(axes)} axes", _EACH)
        return
    yield from wrong_sizes(sizes)
    for axis, size in zip(axes, sizes, strict=True):
        if shape[axis] == 0 and size > 0:
            yield TypeConflict(f"an empty axis is resized to {size}", "it has no elements")


def _region(node: NodeView, axes: Sequence[int] | None) -> Complaints:
    shape = node.shape_of(1)
    if not node.has(1) or shape == (0,):
        yield TypeConflict("there is no `roi`", "tf_crop_and_resize is about a region of interest")
    elif shape and axes and differ(shape[0], 2 * len(axes)):
        yield TypeConflict(f"`roi` has {shape[0]} numbers for {len(axes)} axes", "two for each")


@requires("GridSample")
def grid_sample(node: NodeView) -> Complaints:
    words = (
        {"bilinear", "nearest", "bicubic"} if node.version < 20 else {"linear", "nearest", "cubic"}
    )
    if (mode := node.text("mode", "nearest")) not in words:
        yield TypeConflict(f"`mode` is {mode!r}", f"it is one of {', '.join(sorted(words))}")
    yield from at_least(node, 0, 3)
    x, grid = node.shape_of(0), node.shape_of(1)
    if x is None or grid is None:
        return
    if len(x) != len(grid) or differ(x[0], grid[0]) or differ(grid[-1], len(x) - 2):
        yield TypeConflict(
            f"a grid of {shown(grid)} for a tensor of {shown(x)}",
            "it is [N, sizes..., number of spatial axes], with as many axes as the tensor",
        )
    elif 0 in x[2:] and 0 not in grid:
        yield TypeConflict(f"there is nothing to sample in {shown(x)}", "no spatial axis is empty")


@requires("MaxRoiPool")
def max_roi_pool(node: NodeView) -> Complaints:
    yield from of_rank(node, 0, 4)
    regions, bins = node.shape_of(1), node.given_integers("pooled_shape") or []
    if regions:
        yield from of_shape(node, 1, regions[0], 5)
    else:
        yield from of_rank(node, 1, 2)
    if len(bins) != 2 or min(bins) < 1:
        yield TypeConflict(f"`pooled_shape` is {list(bins)}", "it has a height and a width")


@requires("RoiAlign")
def roi_align(node: NodeView) -> Complaints:
    yield from of_rank(node, 0, 4)
    yield from of_rank(node, 1, 2)
    x, regions = node.shape_of(0), node.shape_of(1)
    if regions is not None:
        yield from of_shape(node, 1, regions[0], 4)
        yield from of_shape(node, 2, regions[0])
    yield from positive(node, "output_height", "output_width")
    if node.integer("sampling_ratio") < 0:
        yield TypeConflict("`sampling_ratio` is less than 0", "it is 0, for adaptive, or more")
    scale = node.real("spatial_scale", 1.0)
    if not 0 < scale < math.inf:
        yield TypeConflict(f"`spatial_scale` is {scale:g}", "it is larger than 0")
    if x is not None and regions is not None and 0 in (x[0], *x[2:]) and regions[0] != 0:
        yield TypeConflict(f"there is nothing to sample in {shown(x)}", "no image is empty")
