"""
Resize and Upsample, axis by axis: repetitions, slices, gathers and weighted sums.

Sampling positions and weights are computed at compile time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import along
from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import BytesAttr
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.complaints import axes_of, differ, listed, wrong_sizes
from popgraph.operators.movement import sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, chooses, lowers, requires
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

CROP = "tf_crop_and_resize"
MOST_TAPS = 16
"""Most taps that are unrolled into gathers (cubic interpolation: 4); more become a reduction."""

# Requirements

chooses(
    "Resize",
    coordinate_transformation_mode=(
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_half_pixel_for_nn",
        CROP,
    ),
    keep_aspect_ratio_policy=("stretch", "not_larger", "not_smaller"),
    mode=("nearest", "linear", "cubic"),
    nearest_mode=("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "pytorch"),
)
chooses("Upsample", mode=("nearest", "linear"))

_EACH = "give one per axis"


@requires("Resize")
def require_resize(node: NodeView) -> Conflicts:
    yield from axes_of(node, "axes", None, node.rank_of(0))
    resized = node.given_integers("axes") or _all(node.rank_of(0))
    yield from _way(node)
    if node.version < 11:
        yield from _scaled(node, 1, resized, 0.0)
        return
    yield from listed(node, 1, 2, 3)
    yield from _one_of(node)
    yield from _scaled(node, 2, resized, 0.0)
    yield from _sized(node, resized)
    if node.text("coordinate_transformation_mode") == CROP:
        yield from _region(node, resized)


@requires("Upsample")
def require_upsample(node: NodeView) -> Conflicts:
    yield from _way(node)
    if node.version < 9:
        yield from _numbers(node, node.reals("scales") or [], _all(node.rank_of(0)), 1.0)
    else:
        yield from _scaled(node, 1, _all(node.rank_of(0)), 1.0)


def _all(rank: int | None) -> Sequence[int] | None:
    return None if rank is None else range(rank)


def _way(node: NodeView) -> Conflicts:
    """The mode exists in the node's version, and allows `antialias`."""
    mode = node.text("mode")
    if mode == "cubic" and node.version < 11:
        yield TypeConflict("`mode` is 'cubic'", "use nearest or linear before version 11")
    if mode == "nearest" and node.integer("antialias"):
        yield TypeConflict("`antialias` is set for `mode` 'nearest'", "use linear or cubic")


def _one_of(node: NodeView) -> Conflicts:
    """Either scales or sizes; an empty list counts as absent."""
    lists = [node.shape_of(index) for index in (2, 3) if node.has(index)]
    some = [shape for shape in lists if shape is None or shape != (0,)]
    if not some and node.rank_of(0) != 0:
        yield TypeConflict("neither `scales` nor `sizes` is given", "give one of them")
    if len(some) > 1 and all(shape is not None for shape in some):
        yield TypeConflict("both `scales` and `sizes` are given", "give one of them")


def _scaled(node: NodeView, index: int, axes: Sequence[int] | None, least: float) -> Conflicts:
    array = node.elements_of(index)
    if array is not None and array.size:
        yield from _numbers(node, array.reshape(-1).tolist(), axes, least)


def _numbers(
    node: NodeView, scales: Sequence[float], axes: Sequence[int] | None, least: float
) -> Conflicts:
    if axes is not None and len(scales) != len(axes):
        yield TypeConflict(f"`scales` has {len(scales)} elements for {len(axes)} axes", _EACH)
    for scale in scales:
        if not math.isfinite(scale) or scale < least or scale == 0:
            wanted = "1 or more" if least else "larger than 0"
            yield TypeConflict(f"a scale is {scale:g}", f"scales must be {wanted}")
    shape = node.shape_of(0)
    for axis, scale in zip(axes or (), scales, strict=False):
        if shape is not None and isinstance(size := shape[axis], int):
            yield from wrong_sizes([int(size * scale)])


def _sized(node: NodeView, axes: Sequence[int] | None) -> Conflicts:
    sizes, shape = node.integers_of(3), node.shape_of(0)
    if not sizes or shape is None or axes is None:
        return
    if len(sizes) != len(axes):
        yield TypeConflict(f"`sizes` has {len(sizes)} elements for {len(axes)} axes", _EACH)
    yield from wrong_sizes(sizes)
    for axis, size in zip(axes, sizes, strict=True):
        if shape[axis] == 0 and size > 0:
            yield TypeConflict(f"an empty axis is resized to {size}", "resize it to 0")


def _region(node: NodeView, axes: Sequence[int] | None) -> Conflicts:
    shape = node.shape_of(1)
    if not node.has(1) or shape == (0,):
        yield TypeConflict("`roi` is missing", "tf_crop_and_resize requires a region of interest")
    elif shape and axes and differ(shape[0], 2 * len(axes)):
        yield TypeConflict(
            f"`roi` has {shape[0]} elements for {len(axes)} axes", "give two per axis"
        )


# Sampling

Numbers: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Stretch:
    """The resizing of one axis: sizes, scale and region of interest."""

    before: int
    after: int
    scale: float
    width: float
    """The real-valued output size, before it is rounded to `after`."""
    start: float | np.floating = 0.0
    end: float | np.floating = 1.0
    """
    The region of interest, from 0 (the first element) to 1 (the last one).

    It keeps the model's precision, since ONNX's reference computes in it.
    """

    @property
    def is_nothing(self) -> bool:
        """Whether the axis is unchanged, by the criterion of ONNX's reference."""
        whole = math.isclose(self.start, 0.0) and math.isclose(self.end, 1.0)
        return whole and self.before == self.after and math.isclose(self.scale, 1.0)

    @property
    def growth(self) -> float:
        """The ratio of output to input size."""
        return self.after / max(1, self.before)

    def coordinates(self, mode: str) -> Numbers:
        """The source coordinate of each element, in f64, as in ONNX's reference."""
        last, places = self.before - 1, np.arange(self.after, dtype=np.float64)
        match mode:
            case "half_pixel":
                return (places + 0.5) / self.scale - 0.5
            case "half_pixel_symmetric":
                offset = self.before / 2 * (1 - self.after / self.width)
                return offset + (places + 0.5) / self.scale - 0.5
            case "pytorch_half_pixel":
                # For one element, ONNX's text says 0; its reference computes -0.5.
                return (places + 0.5) / self.scale - 0.5 if self.width > 1 else 0 * places
            case "align_corners":
                return places * last / (self.width - 1) if self.width > 1 else 0 * places
            case "asymmetric":
                return places / self.scale
            case "tf_half_pixel_for_nn":
                return (places + 0.5) / self.scale
            case _:
                assert mode == CROP
                span = self.end - self.start
                if self.width > 1:
                    return self.start * last + places * span * last / (self.width - 1)
                return self.start * last + (0 * places + span * last / 2)

    def outside(self) -> NDArray[np.bool_]:
        """The mask of elements whose source is outside the tensor; they are extrapolated."""
        at = self.coordinates(CROP)
        return (at < 0) | (at > self.before - 1)

    def nearest(self, mode: str, rounding: str) -> Places:
        """The source index of each element, for nearest-neighbor interpolation."""
        at = self.coordinates(mode)
        if rounding in ("simple", "pytorch"):
            # Version 10 defines no rounding; ONNX's tests of that time and onnxruntime do this.
            at = (np.arange(self.after, dtype=np.float32) / np.float32(self.scale)).astype(float)
            rounding = "ceil" if self.scale < 1 and rounding == "simple" else "floor"
        whole = np.floor(at)
        part = at - whole
        up = {
            "floor": part >= 1,
            "ceil": part > 0,
            "round_prefer_floor": part > 0.5,
            "round_prefer_ceil": part >= 0.5,
        }[rounding]
        places: Places = np.clip(whole + up, 0, self.before - 1).astype(np.int64)
        return places


@dataclass(frozen=True)
class Filter:
    """An interpolation filter: the weight of a sample by its distance to the source coordinate."""

    cubic: bool
    antialias: bool
    a: float
    exclude_outside: bool

    def __call__(self, distance: Numbers) -> Numbers:
        x, a = np.abs(distance), self.a
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        linear: Numbers = np.maximum(1 - x, 0)
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0)) if self.cubic else linear


@dataclass(frozen=True)
class Taps:
    """Weighted sums: indices and weights, [elements, taps]."""

    places: Places
    weights: Numbers

    def within(self, size: int) -> Taps:
        """The taps with indices clamped to an axis."""
        return Taps(np.clip(self.places, 0, size - 1), self.weights)

    def condensed(self) -> Taps:
        """
        Equal sums with fewer taps: duplicate indices are merged, weights of 0 are dropped.

        Dropping matters for infinite neighbors, since 0 * inf is NaN. Shorter sums are padded: the
        last index repeats, with its weight divided.
        """
        rows = [_joined(*row) for row in zip(self.places, self.weights, strict=True)]
        count = max((len(places) for places, _ in rows), default=1)
        filled = [_filled(*row, count) for row in rows]
        return Taps(
            np.array([places for places, _ in filled], np.int64).reshape(-1, count),
            np.array([weights for _, weights in filled], np.float64).reshape(-1, count),
        )


def _joined(places: Places, weights: Numbers) -> tuple[Places, Numbers]:
    kept, which = np.unique(places, return_inverse=True)
    sums = np.bincount(which, weights, len(kept))
    some = sums != 0 if sums.any() else kept == kept[0]
    return kept[some], sums[some]


def _filled(places: Places, weights: Numbers, count: int) -> tuple[Places, Numbers]:
    more = count - len(places)
    divided = np.append(weights[:-1], weights[-1] / (more + 1))
    return np.pad(places, (0, more), mode="edge"), np.pad(divided, (0, more), mode="edge")


def taps(axis: Stretch, mode: str, filter_: Filter) -> Taps:
    """The taps of each element; some indices may be outside the tensor."""
    at = axis.coordinates(mode)
    # Antialiasing widens the filter by 1 / scale if an axis shrinks.
    shrinking = min(axis.scale, 1.0) if filter_.antialias else 1.0
    reach = math.floor(-(2 if filter_.cubic else 1) / shrinking) + 1
    left = np.ceil(at) - 1  # the index before, even if `at` is an integer
    places = left.astype(np.int64)[:, None] + np.arange(reach, 2 - reach)
    weights = filter_(shrinking * (places - at[:, None]))
    if filter_.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    if filter_.exclude_outside:
        weights = np.where((places < 0) | (places >= axis.before), 0, weights)
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return Taps(places, weights)


# Lowering


def _structure(op: OnnxOp) -> Sequence[int]:
    """The structural inputs: scales and sizes, and the region of interest if it is used."""
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


def _stretches(node: Node, mode: str) -> dict[int, Stretch]:
    """The resizing of each axis in `axes`."""
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
            f"{len(axes)} axes have {len(rows)} sizes or scales and a `roi` of {len(region)}",
            hint="give one size or scale per axis, and two elements of `roi`",
        )
    ends = region.reshape(2, -1).T
    return {axis: Stretch(*row, *end) for axis, row, end in zip(axes, rows, ends, strict=True)}


def _given(node: Node, index: int, what: str) -> Array | None:
    """The elements of an operand; an empty one counts as absent."""
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
        raise TypeMismatchError("neither scales nor sizes is given", hint="give one of them")
    numbers: list[float] = found.tolist()
    return numbers


Row = tuple[int, int, float, float]
"""Input size, output size, scale, and real-valued output size."""


def _by_scales(before: Sequence[int], scales: Sequence[float]) -> list[Row]:
    """Output sizes from scales, in f32 like ONNX's shape inference."""
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
    The axes in the order of least work, and of least work along rows (the last axis).

    Shrinking axes come first, rows last among them. Among growing axes rows come first, while the
    tensor is small: indices along rows differ per lane, so they do not vectorize.
    """
    return sorted(
        axes.items(), key=lambda item: (item[1].growth, item[0] * (-1 if item[1].growth > 1 else 1))
    )


# Nearest elements


def taken(node: Node, value: SSAValue, places: Mapping[int, Places]) -> SSAValue:
    """The elements at these indices of each axis; runs of equal indices become a broadcast."""
    times: dict[int, int] = {}
    for axis, wanted in places.items():
        times[axis] = _run(wanted)
        value = _picked(node, value, axis, wanted[:: times[axis]])
    return _repeated(value, times)


def _run(places: Places) -> int:
    """The length of runs of equal indices; 1 if the lengths differ."""
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
    return sliced(value, {axis: (start, len(places), steps.pop())})


def _repeated(value: SSAValue, times: Mapping[int, int]) -> SSAValue:
    """Each element repeated along these axes."""
    if all(count == 1 for count in times.values()):
        return value
    rows = [(size, times.get(axis, 1)) for axis, size in enumerate(shape_of(value))]
    split = [one for size, count in rows for one in ((size,) if count == 1 else (size, 1))]
    wide = [one for size, count in rows for one in ((size,) if count == 1 else (size, count))]
    spread = gc.BroadcastOp(gc.ReshapeOp(value, shape=split), shape=wide)
    return gc.ReshapeOp(spread, shape=[size * count for size, count in rows]).result


# Weighted sums


def _interpolated(node: Node, axes: Mapping[int, Stretch], mode: str) -> SSAValue:
    """
    Linear and cubic interpolation, in f32 for f16 and bf16, in f64 for integers.

    Integers are rounded once at the end, and axes keep the order of ONNX's reference.
    """
    if node.dtype.name == "bool":
        raise node.unsupported("interpolation between bools")
    filter_ = Filter(
        node.text("mode") == "cubic",
        bool(node.integer("antialias")),
        node.real("cubic_coeff_a", -0.75),
        bool(node.integer("exclude_outside")),
    )
    value = cast(node[0], computing(node) if node.dtype.is_float else dtypes.BY_NAME["f64"])
    for axis, one in _least_first(axes) if node.dtype.is_float else axes.items():
        value = _summed(node, value, axis, taps(one, mode, filter_).within(one.before).condensed())
    return cast(value, node.dtype) if node.dtype.is_float else _whole(node, value)


def _summed(node: Node, value: SSAValue, axis: int, sums: Taps) -> SSAValue:
    """Weighted sums along one axis."""
    if sums.places.shape[1] > MOST_TAPS:
        return _reduced(node, value, axis, sums)
    terms: list[Operand] = []
    for places, weights in zip(sums.places.T, sums.weights.T, strict=True):
        part = taken(node, value, {axis: places})
        if not (weights == 1).all():
            part = gc.MulOp(part, _factors(node, part, axis, weights)).result
        terms.append(part)
    return SSAValue.get(reduce(gc.AddOp, terms))


def _reduced(node: Node, value: SSAValue, axis: int, sums: Taps) -> SSAValue:
    """Weighted sums of many taps: a gather, then a reduction."""
    looked_up = gc.GatherOp(value, node.literal(sums.places.astype(np.uint64)), axis=axis)
    weights = sums.weights.astype(dtype_of(value).numpy)
    rest = [1] * (len(shape_of(value)) - axis - 1)
    factors = gc.ReshapeOp(node.literal(weights), shape=[*weights.shape, *rest])
    return gc.ReduceSumOp(gc.MulOp(looked_up, factors), axes=[axis + 1], keepdims=False).result


def _factors(node: Node, value: SSAValue, axis: int, weights: Numbers) -> Operand:
    array = weights.astype(dtype_of(value).numpy)
    if array.size and (array == array[0]).all():
        return node.literal(array[0])
    return along(node.literal(array), axis, len(shape_of(value)))


def _whole(node: Node, value: SSAValue) -> SSAValue:
    """Values rounded to integers, saturated to the first input's type."""
    info = np.iinfo(node.dtype.numpy.name)
    low, high = (node.literal(np.array(one, np.float64)) for one in (info.min, info.max))
    rounded = gc.RoundOp(value)
    whole = cast(gc.MinOp(gc.MaxOp(rounded, low), high), node.dtype)
    if float(info.max) == info.max:
        return whole
    # f64 cannot represent 2^63 - 1 (2^64 - 1), and rounds it up by one.
    beyond = gc.CompareOp(rounded, high, predicate="ge")
    return gc.WhereOp(beyond, node.scalar(info.max), whole).result


# Extrapolation


def _extrapolated(node: Node, value: SSAValue, axes: Mapping[int, Stretch]) -> SSAValue:
    """Replaces elements whose source is outside the tensor by `extrapolation_value`."""
    number = np.array(node.real("extrapolation_value"))
    if not node.dtype.is_float and node.dtype.name != "bool":
        info = np.iinfo(node.dtype.numpy.name)
        number = np.array(min(max(round(number.item()), info.min), info.max))
    filling = node.literal(number.astype(node.dtype.numpy))
    for axis, one in axes.items():
        outside = one.outside()
        if outside.any():
            condition = along(node.literal(outside), axis, len(shape_of(value)))
            value = gc.WhereOp(condition, filling, value).result
    return value
