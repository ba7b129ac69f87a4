"""Lowers Resize and Upsample, axis by axis, to repetitions, slices, lookups and weighted sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import along
from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.program import BytesAttr
from popgraph.operators.arithmetic import cast
from popgraph.operators.movement import sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, chooses, lowers
from popgraph.operators.sampling import Filter, Numbers, Places, Stretch, Taps, taps
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

CROP = "tf_crop_and_resize"
MOST_TAPS = 16
"""Taps that are unrolled into lookups (cubic interpolation: 4); more become a reduction."""


def _structure(op: OnnxOp) -> Sequence[int]:
    """Scales and sizes; the region of interest where there is one."""
    if op.since_version < 11:
        return (1,)
    mode = op.onnx_attributes().get("coordinate_transformation_mode")
    return (1, 2, 3) if isinstance(mode, BytesAttr) and mode.text == CROP else (2, 3)


@lowers("Upsample", structural=[1])
@lowers("Resize", structural=_structure)
def resize(node: Node) -> Lowered:
    old = node.version < 11
    mode = node.text("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    axes = {axis: one for axis, one in _stretches(node, mode).items() if not one.is_nothing}
    if node.text("mode") == "nearest":
        rounding = node.text("nearest_mode", "simple" if old else "round_prefer_floor")
        places = {axis: one.nearest(mode, rounding) for axis, one in _least_first(axes)}
        value = taken(node, node[0], places)
    else:
        value = _interpolated(node, axes, mode)
    return _extrapolated(node, value, axes) if mode == CROP else value


# What the node says of each axis


def _stretches(node: Node, mode: str) -> dict[int, Stretch]:
    """How each axis is resized that the node names."""
    axes = node.axes(node.integers("axes") or range(node.rank))
    before = [node.shape[axis] for axis in axes]
    given = _given(node, 3, "the sizes") if node.version >= 11 else None
    if given is None:
        rows = _by_scales(before, _scales(node))
    else:
        rows = _by_sizes(before, given.tolist(), node.text("keep_aspect_ratio_policy", "stretch"))
    region = _given(node, 1, "the region of interest") if mode == CROP else None
    region = np.repeat([0.0, 1.0], len(axes)) if region is None else region
    if not len(rows) == len(axes) == len(region) // 2:
        raise TypeMismatchError(
            f"{len(axes)} axes with {len(rows)} sizes or scales and a region of {len(region)}",
            hint="one number for each axis, of the region of interest two",
        )
    ends = region.reshape(2, -1).T
    return {axis: Stretch(*row, *end) for axis, row, end in zip(axes, rows, ends, strict=True)}


def _given(node: Node, index: int, what: str) -> Array | None:
    """The elements of an operand, for whose absence an empty one stands as well."""
    if node.optional(index) is None:
        return None
    found = node.array(index, what).reshape(-1)
    return found if found.size or not node.rank else None


def _scales(node: Node) -> list[float]:
    if node.has("scales"):  # an attribute of Upsample-7
        return list(node.reals("scales"))
    if node.has("height_scale"):  # attributes of Upsample-1
        return [1.0, 1.0, node.real("height_scale"), node.real("width_scale")]
    found = _given(node, 2 if node.version >= 11 else 1, "the scales")
    if found is None:
        raise TypeMismatchError("neither scales nor sizes are given", hint="give one of them")
    numbers: list[float] = found.tolist()
    return numbers


Row = tuple[int, int, float, float]
"""The size before and after, the scale, and the size after that the scale gives."""


def _by_scales(before: Sequence[int], scales: Sequence[float]) -> list[Row]:
    """Sizes are computed in single precision, as ONNX's inference does."""
    return [
        (size, math.floor(np.float32(size) * np.float32(scale)), scale, size * scale)
        for size, scale in zip(before, scales, strict=False)
    ]


def _by_sizes(before: Sequence[int], sizes: Sequence[int], policy: str) -> list[Row]:
    scales = [after / size if size else 1.0 for size, after in zip(before, sizes, strict=False)]
    if policy == "stretch":
        return [(*row, float(row[1])) for row in zip(before, sizes, scales, strict=False)]
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [(size, math.floor(scale * size + 0.5), scale, scale * size) for size in before]


def _least_first(axes: Mapping[int, Stretch]) -> list[tuple[int, Stretch]]:
    """
    The axes in the order in which least is computed, and least of it along rows.

    Those that shrink come first, rows last of them; of those that grow, rows come first: there,
    places differ from lane to lane.
    """
    return sorted(
        axes.items(), key=lambda item: (item[1].growth, item[0] * (-1 if item[1].growth > 1 else 1))
    )


# Elements as they are


def taken(node: Node, value: SSAValue, places: Mapping[int, Places]) -> SSAValue:
    """The elements at these places of each axis: of runs of equal ones the first, repeated."""
    times: dict[int, int] = {}
    for axis, wanted in places.items():
        times[axis] = _run(wanted)
        value = _picked(node, value, axis, wanted[:: times[axis]])
    return _repeated(value, times)


def _run(places: Places) -> int:
    """How often each place stands there before the next one comes; 1 if that differs."""
    changes = np.flatnonzero(np.diff(places)) + 1
    times = int(changes[0]) if changes.size else max(1, len(places))
    is_even = len(places) % times == 0
    return times if is_even and (places.reshape(-1, times) == places[::times, None]).all() else 1


def _picked(node: Node, value: SSAValue, axis: int, places: Places) -> SSAValue:
    steps = set(np.diff(places).tolist()) or {1}
    if len(steps) > 1 or 0 in steps:
        indices = node.literal(places.astype(np.uint64))
        return gc.GatherOp(value, indices, axis=axis).result
    if np.array_equal(places, np.arange(shape_of(value)[axis])):
        return value
    start = int(places[0]) if places.size else 0
    return SSAValue.get(sliced(value, {axis: (start, len(places), steps.pop())}))


def _repeated(value: SSAValue, times: Mapping[int, int]) -> SSAValue:
    """Each element so many times along these axes."""
    if all(count == 1 for count in times.values()):
        return value
    counts = [times.get(axis, 1) for axis in range(len(shape_of(value)))]
    rows = [(size, count) for size, count in zip(shape_of(value), counts, strict=True)]
    apart = [one for size, count in rows for one in ((size,) if count == 1 else (size, 1))]
    wide = [one for size, count in rows for one in ((size,) if count == 1 else (size, count))]
    spread = gc.BroadcastOp(gc.ReshapeOp(value, shape=apart), shape=wide)
    return gc.ReshapeOp(spread, shape=[size * count for size, count in rows]).result


# Weighted sums


def _interpolated(node: Node, axes: Mapping[int, Stretch], mode: str) -> SSAValue:
    """
    Linear and cubic, in single precision for halves and in double precision for integers.

    Integers are rounded in the end, and keep the order of ONNX's reference.
    """
    if node.dtype.name == "bool":
        raise node.unsupported("interpolation between bools")
    filter_ = Filter(
        node.text("mode") == "cubic",
        bool(node.integer("antialias")),
        node.real("cubic_coeff_a", -0.75),
        bool(node.integer("exclude_outside")),
    )
    narrow = "f32" if node.dtype.name in ("f16", "bf16") else "f64"
    kind = node.dtype if node.dtype.name == "f32" else dtypes.BY_NAME[narrow]
    value = cast(node[0], kind)
    for axis, one in _least_first(axes) if node.dtype.is_float else axes.items():
        value = _summed(node, value, axis, taps(one, mode, filter_).within(one.before).condensed())
    return cast(value, node.dtype) if node.dtype.is_float else _whole(node, value)


def _summed(node: Node, value: SSAValue, axis: int, sums: Taps) -> SSAValue:
    """Along one axis, sums of elements with weights."""
    columns = zip(sums.places.T, sums.weights.T, strict=True)
    if sums.count > MOST_TAPS:
        return _reduced(node, value, axis, sums)
    terms: list[Operand] = []
    for places, weights in columns:
        part = taken(node, value, {axis: places})
        if not (weights == 1).all():
            part = gc.MulOp(part, _factors(node, part, axis, weights)).result
        terms.append(part)
    return SSAValue.get(reduce(gc.AddOp, terms))


def _reduced(node: Node, value: SSAValue, axis: int, sums: Taps) -> SSAValue:
    """The same when there are many: they are looked up first."""
    looked_up = gc.GatherOp(value, node.literal(sums.places.astype(np.uint64)), axis=axis).result
    weights = sums.weights.astype(dtype_of(value).numpy)
    rest = [1] * (len(shape_of(value)) - axis - 1)
    factors = gc.ReshapeOp(node.literal(weights), shape=[*weights.shape, *rest])
    product = gc.MulOp(looked_up, factors)
    return gc.ReduceSumOp(product, axes=[axis + 1], keepdims=False).result


def _factors(node: Node, value: SSAValue, axis: int, weights: Numbers) -> Operand:
    array = weights.astype(dtype_of(value).numpy)
    if array.size and (array == array[0]).all():
        return node.literal(array[0])
    return along(node.literal(array), axis, len(shape_of(value)))


def _whole(node: Node, value: SSAValue) -> SSAValue:
    """Numbers rounded to integers of the first input's type, as far as there are such."""
    info = np.iinfo(node.dtype.numpy.name)
    low, high = (node.literal(np.array(one, np.float64)) for one in (info.min, info.max))
    rounded = gc.RoundOp(value)
    whole = cast(gc.MinOp(gc.MaxOp(rounded, low), high), node.dtype)
    if float(info.max) == info.max:
        return whole
    # The largest number of 64 bits is none of double precision, but the one after it is.
    beyond = gc.CompareOp(rounded, high, predicate="ge")
    return gc.WhereOp(beyond, node.scalar(info.max), whole).result


# Elements from outside


def _extrapolated(node: Node, value: SSAValue, axes: Mapping[int, Stretch]) -> SSAValue:
    """Elements that come from outside the tensor are a number that the node gives."""
    number = np.array(node.real("extrapolation_value"))
    if not node.dtype.is_float and node.dtype.name != "bool":
        info = np.iinfo(node.dtype.numpy.name)
        number = np.array(min(max(round(number.item()), info.min), info.max))
    filling = node.literal(number.astype(node.dtype.numpy))
    for axis, one in axes.items():
        outside = one.outside(CROP)
        if outside.any():
            condition = along(node.literal(outside), axis, len(shape_of(value)))
            value = gc.WhereOp(condition, filling, value).result
    return value


chooses(
    "Resize",
    coordinate_transformation_mode=(
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_half_pixel_for_nn",
        "tf_crop_and_resize",
    ),
    keep_aspect_ratio_policy=("stretch", "not_larger", "not_smaller"),
    mode=("nearest", "linear", "cubic"),
    nearest_mode=("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "pytorch"),
)


chooses("Upsample", mode=("nearest", "linear"))
