"""One table of samples of every graphcore operation, for all of its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import bf16, f16, f32, f64, i1, i32, i64

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore import GRAPHCORE
from popgraph.dialects.graphcore.base import INTEGERS, Array, GraphcoreOp, shape_of
from popgraph.support import casts, dtypes
from popgraph.support.shapes import prod
from popgraph.support.words import IN_PAIRS, WORDS, WordFormat
from tests.dialects.graphcore_run import Operands, Sample, build, has_floats

_random = np.random.default_rng(20)


def normal(*shape: int) -> Array:
    return _random.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return _random.uniform(0.3, 2.0, shape).astype(np.float32)


def apart(*shape: int) -> Array:
    """Distinct numbers of both signs, none near zero, at least 0.25 from their neighbours."""
    count = int(np.prod(shape))
    values = _random.permutation(np.arange(count) - count // 2) * 0.25 + 0.1
    return np.asarray(values.reshape(shape), np.float32)


def whole(*shape: int, dtype: Any = np.int64, low: int = -9, high: int = 10) -> Array:
    return _random.integers(low, high, shape).astype(dtype)


def truths(*shape: int) -> Array:
    return _random.integers(0, 2, shape).astype(bool)


def probabilities(*shape: int) -> Array:
    values = _random.uniform(0.1, 1, shape)
    return np.asarray(values / values.sum(-1, keepdims=True), np.float32)


def state(seed: int, step: int = 0) -> Array:
    return np.array([seed, step], np.int64)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 3e38, 1e-40], "f4")
"""Floats where functions have poles, jumps or no value."""
SPECIAL_PAIRS = (np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL)))
WHOLE_PAIRS = tuple(
    np.array(column, np.int32)
    for column in zip(*((a, b) for a in (-7, -1, 0, 1, 2, 7) for b in (-3, -1, 0, 2)), strict=True)
)


def smooth_operands(op: type[GraphcoreOp], count: int) -> Callable[..., Array]:
    """A generator of operands at which the function and its gradients are finite."""
    for make in (apart, positive, lambda *shape: 1 + positive(*shape)):
        arrays = [make(2, 3).astype(np.float64) for _ in range(count)]
        if np.isfinite(build(Sample(op, arrays)).op.evaluate(*arrays)[0]).all():
            return make
    raise AssertionError(f"{op.name} is finite nowhere: give it numbers here")


def elementwise(op: type[gc.Unary] | type[gc.Binary]) -> Iterator[Sample]:
    """Samples in every kind of element, with shapes that broadcast, and with special floats."""
    names, count = op.ELEMENTS.names, 1 if issubclass(op, gc.Unary) else 2
    if "f32" in names:
        make = smooth_operands(op, count)
        for shapes in SHAPES if count == 2 else ((shape,) for shape in ((2, 3), (), (0, 3))):
            # An offset per operand: no two operands share a number, or have an integer ratio.
            drawn = [make(*shape) + np.float32(0.0731 * at) for at, shape in enumerate(shapes)]
            yield Sample(op, [np.asarray(array) for array in drawn])
        yield Sample(op, SPECIAL_PAIRS if count == 2 else [SPECIAL], smooth=False)
    if "i32" in names:
        yield Sample(op, [whole(2, 3), whole(3)][:count])
        yield Sample(op, [whole(2, 3, dtype=np.int8) for _ in range(count)])
        yield Sample(op, [whole(3, dtype=np.uint8, low=0) for _ in range(count)])
        yield Sample(op, WHOLE_PAIRS[:count])
    if "bool" in names:
        yield Sample(op, [truths(2, 3) for _ in range(count)])


SHAPES = (
    ((2, 3), (2, 3)),
    ((2, 1, 3), (4, 1)),
    ((2, 3), ()),
    ((), (2,)),
    ((0, 3), (1, 3)),
)
"""Shapes of two operands that broadcast."""


def reductions(
    op: type[GraphcoreOp], *, empty: bool, make: Callable[..., Array]
) -> Iterator[Sample]:
    for axes, keepdims in (((1,), False), ((0, 2), True), ((2, 1), False), ((), False)):
        yield Sample(op, [make(2, 3, 4)], {"axes": axes, "keepdims": keepdims})
    yield Sample(op, [make(2, 3)], {"axes": (0, 1), "keepdims": False})
    yield Sample(op, [make()], {"axes": (), "keepdims": True})
    yield Sample(op, [make(0, 3)], {"axes": (1,), "keepdims": True})
    if empty:
        yield Sample(op, [make(0, 3)], {"axes": (0,), "keepdims": False})
    yield Sample(op, [whole(2, 3)], {"axes": (1,), "keepdims": False})
    yield Sample(op, [whole(2, 3, dtype=np.int32)], {"axes": (0,), "keepdims": True})


def positions(op: type[GraphcoreOp]) -> Iterator[Sample]:
    ties = np.array([[1, 3, 3, 0], [2, 2, 2, 2], [0, -1, 5, -1]], np.float32)
    holes = np.array([[1, np.nan, 3], [np.inf, 2, -np.inf]], np.float32)
    for array in (ties, holes, whole(2, 3), whole(2, 3, dtype=np.int32)):
        for axis, keepdims, last in ((1, False, False), (0, True, False), (1, True, True)):
            yield Sample(op, [array], {"axis": axis, "keepdims": keepdims, "last": last})


def top_k() -> Iterator[Sample]:
    ties = np.array([[1, 3, 3, 0], [2, 2, 2, 2], [0, -1, 5, -1]], np.float32)
    holes = np.array([[1, np.nan, np.inf, np.nan], [np.inf, 2, -np.inf, 0]], np.float32)
    for array in (ties, holes, whole(2, 3), truths(3, 4), whole(2, 40, low=-3, dtype=np.int32)):
        for axis, count in ((0, 1), (0, 2), (1, 0), (1, 3), (1, array.shape[1])):
            for largest in (False, True):
                yield Sample(
                    gc.ArgTopKOp, [array], {"axis": axis, "count": count, "largest": largest}
                )
    yield Sample(gc.ArgTopKOp, [normal(0, 2)], {"axis": 1, "count": 1, "largest": True})


def selections() -> Iterator[Sample]:
    """Operations whose output sizes are bounds of data-dependent sizes."""
    for mask in (truths(7), np.zeros(5, bool), np.ones(3, bool), np.zeros(0, bool)):
        yield Sample(gc.CompressOp, [mask])
    for columns in (1, 3, 40):
        data = np.arange(6 * columns, dtype=np.float32).reshape(2, 3, columns)
        for axis, length in ((0, 1), (0, 2), (1, 0), (1, 2), (2, 1), (2, columns)):
            # Everything is selected, as elements after the last selected one are arbitrary.
            yield Sample(gc.CompressOp, [np.ones(length, bool), data], {"axis": axis})
    keys = np.array([3, 1, 3, 0, 2**40, 1], np.uint64)
    for bits, array in ((64, keys), (8, keys % 7), (16, keys[:0]), (24, keys[:1] * 90000)):
        yield Sample(gc.ArgSortOp, [array], {"bits": bits})
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    starts, ends = np.array([0, 2, 2, 5], np.int64), np.array([2, 6, 2, 3], np.int64)
    for array in (rows, rows.astype(np.int64), np.tile(rows, 9), rows[:, :0]):
        for combine in ("add", "max"):
            yield Sample(gc.ReduceSegmentsOp, [array, starts, ends], {"combine": combine})
    yield from suppressed()


def suppressed() -> Iterator[Sample]:
    """Boxes on a grid, so that overlaps are exact, with many, few and no candidates."""
    draw = np.random.default_rng(3)
    low = draw.integers(0, 9, (2, 40, 2))
    boxes = np.concatenate([low, low + draw.integers(-1, 6, (2, 40, 2))], 2).astype(np.float32)
    keys = (draw.integers(0, 5, (2, 3, 40)) << 29).astype(np.uint32)
    keys[1, 2] = 0
    limit, threshold = np.array(40), np.float32(0.3)
    for count, most, by in ((40, limit, threshold), (5, limit, threshold), (40, np.array(17), 0.7)):
        for centered in (False, True):
            given = [boxes, keys, np.array(most, np.int64), np.array(by, np.float32)]
            yield Sample(gc.SuppressOp, given, {"count": count, "centered": centered})


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 5, 4), (4, 3, 3, 2), {"strides": (1, 1), "pads": (0, 0, 0, 0)}),
    ((1, 2, 5, 5), (2, 2, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((1, 4, 4, 4), (4, 1, 3, 3), {"strides": (1, 1), "pads": (1, 1, 1, 1), "groups": 4}),
    ((2, 4, 6), (6, 2, 2), {"strides": (3,), "pads": (0, 2), "groups": 2}),
    ((1, 2, 6, 5), (3, 2, 2, 2), {"dilations": (2, 3), "pads": (1, 0, 0, 2)}),
    ((1, 1, 3, 3, 4), (2, 1, 2, 2, 2), {"strides": (1, 2, 2)}),
    ((1, 2, 4, 4), (3, 2, 1, 1), {"strides": (2, 2)}),
    ((0, 2, 4, 4), (3, 2, 2, 2), {}),
]
"""Shapes of x and w, and options that differ from the defaults."""


def convolutions() -> Iterator[tuple[Array, Array, Array, dict[str, Any]]]:
    """x, w, a gradient of y, and all options."""
    for x_shape, w_shape, given in CONVOLUTIONS:
        rank = len(x_shape) - 2
        plain = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads": (0,) * 2 * rank}
        options = {**plain, "groups": 1, **given}
        x, w = normal(*x_shape), normal(*w_shape)
        y = build(Sample(gc.ConvOp, [x, w], options)).op.results[0]
        yield x, w, normal(*shape_of(y)), options


def conv() -> Iterator[Sample]:
    for x, w, _, options in convolutions():
        yield Sample(gc.ConvOp, [x, w], options)
    yield Sample(
        gc.ConvOp,
        [whole(1, 2, 4, dtype=np.int32), whole(2, 2, 3, dtype=np.int32)],
        {"strides": (1,), "dilations": (1,), "pads": (1, 1), "groups": 1},
    )


def conv_input_grad() -> Iterator[Sample]:
    for x, w, dy, options in convolutions():
        yield Sample(gc.ConvInputGradOp, [dy, w], {"shape": x.shape, **options})


def conv_weight_grad() -> Iterator[Sample]:
    for x, w, dy, options in convolutions():
        yield Sample(gc.ConvWeightGradOp, [x, dy], {"shape": w.shape, **options})


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    (
        (2, 2, 4, 5),
        {
            "kernel": (2, 2),
            "strides": (2, 2),
            "dilations": (1, 1),
            "pads": (0,) * 4,
            "sizes": (2, 2),
        },
    ),
    (
        (1, 2, 5, 4),
        {
            "kernel": (3, 2),
            "strides": (1, 2),
            "dilations": (1, 1),
            "pads": (1, 0, 1, 1),
            "sizes": (5, 2),
        },
    ),
    (
        (1, 1, 7, 6),
        {
            "kernel": (2, 2),
            "strides": (2, 1),
            "dilations": (2, 3),
            "pads": (0, 1, 1, 0),
            "sizes": (3, 4),
        },
    ),
    # With ceil_mode, the last window reaches past the padding.
    (
        (1, 2, 6),
        {"kernel": (3,), "strides": (2,), "dilations": (1,), "pads": (0, 0), "sizes": (3,)},
    ),
    (
        (2, 1, 6),
        {"kernel": (4,), "strides": (3,), "dilations": (1,), "pads": (1, 1), "sizes": (3,)},
    ),
    (
        (1, 1, 3, 3, 3),
        {
            "kernel": (3, 3, 3),
            "strides": (1, 1, 1),
            "dilations": (1, 1, 1),
            "pads": (0,) * 6,
            "sizes": (1, 1, 1),
        },
    ),
]
"""Shape of x, and options."""


def pools(op: type[GraphcoreOp], **more: Any) -> Iterator[Sample]:
    for shape, options in POOLS:
        yield Sample(op, [apart(*shape)], {**options, **more})


def max_pool() -> Iterator[Sample]:
    yield from pools(gc.MaxPoolOp)
    shape, options = POOLS[1]
    yield Sample(gc.MaxPoolOp, [whole(*shape, dtype=np.int32)], options)
    holes = np.where(normal(*shape) > 1, np.nan, -np.inf).astype(np.float32)
    yield Sample(gc.MaxPoolOp, [holes], options, smooth=False)


def max_pool_grad() -> Iterator[Sample]:
    for shape, options in POOLS:
        dy = normal(*shape[:2], *options["sizes"])
        yield Sample(gc.MaxPoolGradOp, [apart(*shape), dy], options)
        yield Sample(gc.MaxPoolGradOp, [np.zeros(shape, np.float32), dy], options, smooth=False)


def average_pool() -> Iterator[Sample]:
    yield from pools(gc.AveragePoolOp, include_pad=False)
    yield from pools(gc.AveragePoolOp, include_pad=True)


def average_pool_grad() -> Iterator[Sample]:
    for shape, options in POOLS:
        for include in (False, True):
            dy = normal(*shape[:2], *options["sizes"])
            properties = {**options, "include_pad": include, "shape": shape}
            yield Sample(gc.AveragePoolGradOp, [dy], properties)


def compare() -> Iterator[Sample]:
    for predicate in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield Sample(gc.CompareOp, SPECIAL_PAIRS, {"predicate": predicate})
        yield Sample(gc.CompareOp, [whole(2, 3), whole(3)], {"predicate": predicate})
        yield Sample(gc.CompareOp, [truths(2, 3), truths(2, 1)], {"predicate": predicate})


def where() -> Iterator[Sample]:
    yield Sample(gc.WhereOp, [truths(2, 3), normal(2, 3), normal(2, 3)])
    yield Sample(gc.WhereOp, [truths(2, 1), normal(3), normal()])
    yield Sample(gc.WhereOp, [truths(), normal(2, 3), normal(2, 1)])
    yield Sample(gc.WhereOp, [truths(3), whole(3), whole(3)])
    yield Sample(gc.WhereOp, [truths(3), truths(3), truths(1)])


def cast() -> Iterator[Sample]:
    eight_bits = element_types.BY_NAME["u8"], element_types.BY_NAME["i8"]
    for to in (f32, f64, f16, bf16, i32, i64, i1, *eight_bits):
        floats = to in (f32, f64, f16, bf16)
        yield Sample(gc.CastOp, [np.abs(apart(2, 3))], {"to": to}, smooth=to == f64)
        yield Sample(gc.CastOp, [whole(2, 3)], {"to": to})
        yield Sample(gc.CastOp, [truths(2, 3)], {"to": to})
        if floats:
            yield Sample(gc.CastOp, [SPECIAL], {"to": to}, smooth=False)


def shifts() -> Iterator[Sample]:
    for direction in ("left", "right"):
        for name in sorted(INTEGERS.names):
            dtype = dtypes.BY_NAME[name].numpy
            ends = ml_dtypes.iinfo(dtype)
            x = np.array([ends.min, ends.max, 5, ends.min // 3], dtype)
            places = np.array([0, 1, 3, ends.bits - 1, ends.bits, ends.bits + 1], dtype)
            yield Sample(gc.ShiftOp, [x, places[:, None]], {"direction": direction})
        back = np.array([-1, -9, -128], np.int8)[:, None]
        yield Sample(gc.ShiftOp, [whole(3, dtype=np.int8), back], {"direction": direction})


def bitcast() -> Iterator[Sample]:
    for names in (
        ("f64", "i64", "u64"),
        ("f32", "i32", "u32"),
        ("f16", "bf16", "i16", "u16"),
        ("i8", "u8", "f8e4m3fn", "f8e5m2", "f8e8m0"),
        ("i4", "u4", "f4e2m1"),
        ("i2", "u2"),
    ):
        for source, target in product(names, repeat=2):
            bits = dtypes.BY_NAME[source].bits
            count = min(bits, 8)
            pattern = np.arange(2**count, dtype=np.uint64) << np.uint64(bits - count)
            held = pattern.astype(f"u{dtypes.BY_NAME[source].numpy.itemsize}")
            array = held.view(dtypes.BY_NAME[source].numpy)
            yield Sample(gc.BitcastOp, [array], {"to": element_types.BY_NAME[target]}, smooth=False)


def concat() -> Iterator[Sample]:
    yield Sample(gc.ConcatOp, [[normal(2, 3), normal(2, 1), normal(2, 0)]], {"axis": 1})
    yield Sample(gc.ConcatOp, [[normal(2, 3), normal(1, 3)]], {"axis": 0})
    yield Sample(gc.ConcatOp, [[normal(4)]], {"axis": 0})
    yield Sample(gc.ConcatOp, [[whole(2), whole(3)]], {"axis": 0})
    yield Sample(gc.ConcatOp, [[truths(2, 1, 2), truths(2, 3, 2)]], {"axis": 1})


def slices() -> Iterator[Sample]:
    for array in (normal(5, 6), whole(5, 6), truths(5, 6)):
        for starts, sizes, steps in (
            ((0, 0), (5, 6), (1, 1)),
            ((1, 2), (2, 3), (3, 1)),
            ((4, 0), (5, 3), (-1, 2)),
            ((3, 5), (2, 2), (-2, -4)),
            ((2, 5), (0, 1), (1, 1)),
        ):
            yield Sample(gc.SliceOp, [array], {"starts": starts, "sizes": sizes, "steps": steps})
    yield Sample(gc.SliceOp, [normal()], {"starts": (), "sizes": (), "steps": ()})


def insertions() -> Iterator[Sample]:
    for piece, starts in (
        ((2, 6), (3, 0)),
        ((5, 6), (0, 0)),
        ((3, 2), (1, 4)),
        ((5, 1), (0, 2)),
        ((0, 3), (5, 1)),
    ):
        for arrays in ((normal(5, 6), normal(*piece)), (truths(5, 6), truths(*piece))):
            yield Sample(gc.InsertOp, [*arrays], {"starts": starts})
    yield Sample(gc.InsertOp, [whole(2, 3, 2), whole(1, 2, 2)], {"starts": (1, 1, 0)})
    yield Sample(gc.InsertOp, [normal(), normal()], {"starts": ()})


def pads() -> Iterator[Sample]:
    for low, high, interior in (
        ((0, 0), (0, 0), (0, 0)),
        ((1, 0), (2, 3), (0, 0)),
        ((0, 1), (1, 0), (2, 1)),
    ):
        options = {"low": low, "high": high, "interior": interior}
        for value in (0.0, 2.5, -np.inf):
            properties = {**options, "value": value}
            yield Sample(gc.PadOp, [normal(2, 3)], properties, smooth=bool(np.isfinite(value)))
        yield Sample(gc.PadOp, [normal(0, 3)], {**options, "value": np.nan})
        yield Sample(gc.PadOp, [whole(2, 3)], {**options, "value": 2**62 + 1})
        yield Sample(gc.PadOp, [truths(2, 3)], {**options, "value": True})


def gather() -> Iterator[Sample]:
    for axis, indices in (
        (0, np.array([2, 0, -1, 0])),
        (1, np.array([[1, -4], [3, 0]], np.int32)),
        (1, np.array(2)),
        (0, np.array([7, -9, 1])),
        (1, np.zeros((0, 2), np.int64)),
        (0, np.array([2, 3, 2**63, 2**64 - 1], np.uint64)),
    ):
        yield Sample(gc.GatherOp, [normal(3, 4), indices], {"axis": axis})
        yield Sample(gc.GatherOp, [whole(3, 4, 2), indices], {"axis": axis})


def check_indices() -> Iterator[Sample]:
    one = {"low": [-4], "last": [3]}
    for dtype in (np.int64, np.int32, np.uint8):
        yield Sample(gc.CheckIndicesOp, [np.array([2, 0, 3], dtype)], one)
    yield Sample(gc.CheckIndicesOp, [np.array(-100)], {**one, "ignored": -100, "what": "label"})
    two = {"low": [-4, 0], "last": [3, 9], "place": "node 'y' (GatherND)"}
    yield Sample(gc.CheckIndicesOp, [np.array([[1, 2], [-4, 9], [0, 0]])], two)


def gather_grad() -> Iterator[Sample]:
    for axis, shape, indices in (
        (0, (4, 2), np.array([2, 0, -1, 0])),
        (1, (3, 2, 2, 2), np.array([[1, -4], [3, 0]], np.int32)),
        (1, (3,), np.array(2)),
        (0, (3, 2), np.array([7, -9, 1])),
        (0, (3, 2), np.array([7, 2**64 - 1, 1], np.uint64)),
    ):
        yield Sample(gc.GatherGradOp, [normal(*shape), indices], {"axis": axis, "size": 4})


def scatter() -> Iterator[Sample]:
    for axis, shape, indices in (
        (0, (4, 2), np.array([2, 0, -1, 0])),
        (1, (3, 2, 2, 2), np.array([[1, -4], [3, 0]], np.int32)),
        (1, (3,), np.array(2)),
        (0, (3, 2), np.array([7, -9, 1])),
        (0, (3, 2), np.array([7, 2**64 - 1, 1], np.uint64)),
        (1, (3, 0), np.zeros(0, np.int64)),
    ):
        data = (4, 2) if axis == 0 else (3, 4, *shape[1 + indices.ndim :])
        for reduction in ("none", "add", "mul", "max", "min"):
            options = {"axis": axis, "reduction": reduction}
            both = apart(int(np.prod(data) + np.prod(shape)))
            first, second = both[: np.prod(data)], both[int(np.prod(data)) :]
            arrays = [first.reshape(data), second.reshape(shape), indices]
            yield Sample(gc.ScatterOp, arrays, options)
            yield Sample(gc.ScatterOp, [whole(*data), whole(*shape), indices], options)
            small = {"dtype": np.uint8, "low": 0, "high": 200}
            yield Sample(
                gc.ScatterOp, [whole(*data, **small), whole(*shape, **small), indices], options
            )
        for reduction in ("none", "max", "min"):
            options = {"axis": axis, "reduction": reduction}
            yield Sample(gc.ScatterOp, [truths(*data), truths(*shape), indices], options)
    zeros = [np.array([0, 2, 0, 3], np.float32), np.array([0, 5, 0, 7, 2], np.float32)]
    places = np.array([0, 0, 1, 3, 2])
    yield Sample(gc.ScatterOp, [*zeros, places], {"axis": 0, "reduction": "mul"})
    special = [np.array([np.nan, 1, 1], np.float32), np.array([1, np.nan, np.inf], np.float32)]
    for reduction in ("none", "add", "mul", "max", "min"):
        options = {"axis": 0, "reduction": reduction}
        yield Sample(gc.ScatterOp, [*special, np.array([0, 1, 2])], options, smooth=False)


def iota() -> Iterator[Sample]:
    for dtype in (f32, f64, i32, i64):
        for shape, axis in (((4,), 0), ((2, 3), 0), ((2, 3), 1), ((0, 3), 1)):
            yield Sample(gc.IotaOp, [], {"shape": shape, "axis": axis, "dtype": dtype})


def random_uniform() -> Iterator[Sample]:
    for dtype in (f32, f64):
        for number, stream in ((0, 0), (1, 0), (-5, 3), (2**62, 2**40)):
            properties = {"shape": (3, 5), "dtype": dtype, "stream": stream}
            yield Sample(gc.RandomUniformOp, [state(number, 2**33 + stream)], properties)
        for shape in ((2, 3, 37), (130,)):
            properties = {"shape": shape, "dtype": dtype, "stream": 1}
            yield Sample(gc.RandomUniformOp, [state(1, 2)], properties)
    yield Sample(gc.RandomUniformOp, [state(1)], {"shape": (), "dtype": f32, "stream": 1})


def softmaxes(op: type[GraphcoreOp], count: int) -> Iterator[Sample]:
    for shape, axis in (((2, 3), 1), ((2, 3), 0), ((2, 3, 4), 1), ((4,), 0), ((0, 3), 1)):
        yield Sample(op, [normal(*shape) for _ in range(count)], {"axis": axis})
    large = np.array([[1000, 999, -1000], [-np.inf, 0, 1], [np.nan, 0, 0]], np.float32)
    yield Sample(op, [large] * count, {"axis": 1}, smooth=False)
    if count == 2:  # Invalid probabilities at rows with zero gradient must give zero slopes.
        nothing = np.array([[np.nan] * 3, [np.inf, 0, 1], [0.5, 0.25, 0.25]], np.float32)
        yield Sample(op, [nothing, np.zeros((3, 3), np.float32)], {"axis": 1}, smooth=False)


def layer_norm() -> Iterator[Sample]:
    for axis, scale in ((1, (3, 4)), (2, (4,)), (0, (2, 3, 4)), (1, (1, 4))):
        properties = {"axis": axis, "epsilon": 1e-5}
        yield Sample(gc.LayerNormOp, [normal(2, 3, 4), normal(*scale), normal(*scale)], properties)
        yield Sample(gc.LayerNormOp, [normal(2, 3, 4), normal(*scale), None], properties)


BATCHES = ((4, 3), (2, 3, 2, 2), (2, 3, 5), (3, 1, 2))
"""Shapes of x for batch normalization."""


def batch_norm() -> Iterator[Sample]:
    for shape in BATCHES:
        scale, bias, mean = (normal(shape[1]) for _ in range(3))
        operands = [normal(*shape), scale, bias, mean, positive(shape[1])]
        yield Sample(gc.BatchNormOp, operands, {"epsilon": 1e-5})


def batch_norm_train() -> Iterator[Sample]:
    for shape in BATCHES:
        operands = [normal(*shape), normal(shape[1]), normal(shape[1])]
        yield Sample(gc.BatchNormTrainOp, operands, {"epsilon": 1e-3})


def lrn() -> Iterator[Sample]:
    few = (((2, 5, 3), 3), ((1, 4, 2, 2), 2), ((2, 3), 5), ((1, 3), 1))
    for shape, size in (*few, ((1, 25, 2), 19), ((2, 10), 2**31)):
        properties = {"size": size, "alpha": 0.3, "beta": 0.75, "bias": 1.5}
        yield Sample(gc.LrnOp, [normal(*shape)], properties)


def nll() -> Iterator[tuple[Array, Array, tuple[int, ...], dict[str, Any]]]:
    """Probabilities, labels, the shape of the loss, and options."""
    for shape in ((4, 3), (2, 3, 4), (5,)):
        for reduction in ("mean", "sum", "none"):
            for ignore in (None, 1, -100):
                labels = whole(*shape[:-1], dtype=np.int32, low=0, high=shape[-1])
                if ignore is not None and labels.ndim:
                    labels[0] = ignore
                options: dict[str, Any] = {"reduction": reduction}
                if ignore is not None:
                    options["ignore_index"] = ignore
                loss = shape[:-1] if reduction == "none" else ()
                yield probabilities(*shape), labels.astype(np.int32), loss, options


def nll_loss() -> Iterator[Sample]:
    for values, labels, _, options in nll():
        yield Sample(gc.NllLossOp, [values, labels], {**options, "log_probabilities": False})
        logs = np.log(values)
        yield Sample(gc.NllLossOp, [logs, labels], {**options, "log_probabilities": True})
    certain = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
    options = {"reduction": "none", "log_probabilities": False}
    yield Sample(gc.NllLossOp, [certain, np.array([1, 1])], options, smooth=False)
    # Every label ignored; a label out of range.
    options = {"reduction": "mean", "ignore_index": 1, "log_probabilities": False}
    yield Sample(gc.NllLossOp, [probabilities(2, 3), np.array([1, 1])], options)
    yield Sample(gc.NllLossOp, [probabilities(2, 3), np.array([7, 2])], options)
    for ignored in ({}, {"ignore_index": 1}):
        for reduction in ("mean", "sum", "none"):
            options = {"reduction": reduction, "log_probabilities": False, **ignored}
            yield Sample(gc.NllLossOp, [probabilities(0, 3), np.zeros(0, np.int64)], options)


def nll_loss_grad() -> Iterator[Sample]:
    for values, labels, loss, options in nll():
        for log in (False, True):
            properties = {**options, "log_probabilities": log}
            yield Sample(gc.NllLossGradOp, [values, labels, normal(*loss)], properties)


def simple_losses(op: type[GraphcoreOp], **more: Any) -> Iterator[Sample]:
    for reduction in ("mean", "sum", "none"):
        for shape in ((2, 3), (4,), (), (0, 3)):
            yield Sample(op, [apart(*shape)], {**more, "reduction": reduction})


def dropout() -> Iterator[Sample]:
    for shape, ratio, stream in (((4, 5), 0.5, 0), ((3,), 0.1, 7), ((2, 2, 2), 0.0, 1)):
        yield Sample(gc.DropoutOp, [normal(*shape), state(3)], {"ratio": ratio, "stream": stream})


def roundings() -> Iterator[Sample]:
    sizes = (1.0, 2.0**-14, 2.0**-24, 2.0**-40, 65504.0)
    rows = np.float32([[size * share for share in (0.3, -0.7, 1, 1.0001)] for size in sizes])
    for array in (rows, SPECIAL, normal(130), normal()):
        for stream in (0, 2**56 + 3):
            operands = [np.asarray(array, np.float32), state(5)]
            yield Sample(gc.RoundStochasticallyOp, operands, {"stream": stream}, smooth=False)


def simple(op: type[GraphcoreOp], operands: Operands, *choices: dict[str, Any]) -> Iterator[Sample]:
    for properties in choices:
        yield Sample(op, operands, properties)


def mat_mul() -> Iterator[Sample]:
    for left, right in (
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((2, 1, 2, 3), (4, 3, 2)),
        ((0, 3), (3, 4)),
        ((2, 0), (0, 4)),
    ):
        yield Sample(gc.MatMulOp, [normal(*left), normal(*right)])
    yield Sample(gc.MatMulOp, [whole(2, 3, dtype=np.int32), whole(3, 2, dtype=np.int32)])


def words_of(words: WordFormat, *shapes: tuple[int, ...]) -> list[Array]:
    """Packed words with numbers over the whole range of each factor."""
    made = []
    extremes = words.ranges if words.is_integer else ((-99, 128), (-128, 99))
    for shape, held, ends in zip(shapes, (words.lhs, words.rhs), extremes, strict=True):
        numbers = np.linspace(*ends, num=prod(shape) * words.count).round().astype(held)
        made.append(numbers.view(np.int32).reshape(shape))
    return made


def dot_products() -> Iterator[Sample]:
    plain = {"strides": (1,), "dilations": (1,), "pads": (1, 0), "groups": 1}
    for name, words in WORDS.items():
        if words.in_pairs:
            continue
        for shapes in (((2, 3), (3, 9)), ((4, 2, 3), (3, 4)), ((2, 0), (0, 3))):
            yield Sample(gc.DotMatMulOp, words_of(words, *shapes), {"words": name})
        x, w = words_of(words, (1, 4, 5), (6, 4, 3))
        yield Sample(gc.DotConvOp, [x, w], {**plain, "words": name})
        x, w = words_of(words, (1, 4, 5), (6, 2, 3))
        yield Sample(gc.DotConvOp, [x, w], {**plain, "groups": 2, "words": name})
        for groups, strides in ((1, (1,)), (2, (1,)), (1, (2,))):
            options = {**plain, "groups": groups, "strides": strides, "words": name}
            windows = 4 if strides == (1,) else 2
            dy, w = words_of(words, (1, 6, windows), (6, 4 // groups, 3))
            yield Sample(gc.DotConvInputGradOp, [dy, w], {**options, "shape": (1, 4, 5)})
            x, dy = words_of(words, (3, 4, 5), (3, 6, windows))
            options["shape"] = (6, 4 // groups, 3)
            yield Sample(gc.DotConvWeightGradOp, [x, dy], options)


def sums_in_pairs() -> Iterator[Sample]:
    """Weights up to 64, whose neighbouring products do not saturate; totals of a block wrap."""
    words = replace(IN_PAIRS, max_rhs=64)
    for block in (1, 2, 3):
        a, b = words_of(words, (2, 3, 6), (6, 5))
        offset = whole(6 // block, 5, dtype=np.int32) * 70001
        yield Sample(gc.MatMulInPairsOp, [a, b, offset], {"block": block})
        yield Sample(gc.MatMulInPairsOp, [a, b], {"block": block})
        x, w = words_of(words, (2, 6, 5), (4, 6, 3))
        offset = whole(3, 6 // block, 4, dtype=np.int32) * 70001
        options = {"strides": (2,), "dilations": (1,), "pads": (1, 0), "groups": 1}
        yield Sample(gc.ConvInPairsOp, [x, w, offset], {**options, "block": block})


def parts() -> Iterator[Sample]:
    x = np.array([[0x76543210, -1], [0x0FEDCBA9, 17]], np.int32)
    for axis, count, bits, mask in ((0, 2, 4, 0x0F0F0F0F), (1, 8, 4, 15), (1, 1, 8, 255)):
        options = {"axis": axis, "count": count, "bits": bits, "mask": mask}
        yield Sample(gc.PartsOp, [x], options)


def quantizations() -> Iterator[Sample]:
    """
    Every type that ONNX quantizes to, and f32; scales and zero points per tensor and per axis.
    """
    x = np.concatenate([SPECIAL, normal(13) * 99]).reshape(4, 6)
    for name in ("u8", "i8", "u16", "i16", "u4", "i4", "u2", "i2"):
        row = dtypes.BY_NAME[name]
        bounds = gc.QuantizeOp.bounds_of(row)
        for shape, to in (((), row), ((6,), row), ((4, 1), dtypes.BY_NAME["f32"])):
            zero = np.asarray(casts.cast(whole(*shape), row.numpy))
            kind = {"to": element_types.to_ir(to)}
            yield Sample(gc.QuantizeOp, [x, positive(*shape), zero], kind | bounds, smooth=False)
            stored = np.asarray(casts.cast(whole(4, 6), row.numpy))
            operands = [stored, positive(*shape), zero]
            yield Sample(gc.DequantizeOp, operands, {"to": f32}, smooth=False)
            yield Sample(gc.DequantizeOp, operands, {"to": bf16}, smooth=False)
    for name in ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1"):
        row = dtypes.BY_NAME[name]
        for number, saturates in product((-0.0, 2.0), (True, False)):
            bounds = gc.QuantizeOp.bounds_of(row, saturates=saturates)
            zero = np.asarray(casts.cast(np.float32(number), row.numpy))
            kind = {"to": element_types.to_ir(row)}
            yield Sample(gc.QuantizeOp, [x, positive(6), zero], kind | bounds, smooth=False)
            operands = [np.asarray(casts.cast(x, row.numpy)), positive(6), zero]
            yield Sample(gc.DequantizeOp, operands, {"to": f32}, smooth=False)


def table() -> Iterator[Sample]:
    for op in GRAPHCORE.operations:
        if issubclass(op, gc.Unary | gc.Binary):
            yield from elementwise(op)
    far = [np.float32([1e10, -3e7, 6, 2.5e7]), np.float32([3, 7, -3, 0.3])]
    yield Sample(gc.RemOp, far, smooth=False)
    yield from compare()
    yield from where()
    yield from cast()
    yield from shifts()
    yield from bitcast()
    for array in (apart(2, 3), apart(), normal(0, 3), whole(2, 3), whole(4, dtype=np.int8)):
        yield Sample(gc.DetachOp, [array])
    yield Sample(gc.DetachOp, [SPECIAL], smooth=False)
    for array, after in ((normal(2, 3), normal(4)), (whole(2), normal()), (normal(0, 3), SPECIAL)):
        yield Sample(gc.LaterOp, [array, after])
    yield from reductions(gc.ReduceSumOp, empty=True, make=normal)
    yield from reductions(gc.ReduceProdOp, empty=True, make=normal)
    yield from reductions(gc.ReduceMeanOp, empty=True, make=normal)
    for op in (gc.ReduceMaxOp, gc.ReduceMinOp):
        yield from reductions(op, empty=False, make=apart)
        yield Sample(op, [SPECIAL], {"axes": (0,), "keepdims": False}, smooth=False)
        yield Sample(op, [truths(2, 3)], {"axes": (0,), "keepdims": False})
    with_zeros = np.array([[2, 0, 3], [0, 0, 4], [1, 2, 3]], np.float32)
    yield Sample(gc.ReduceProdOp, [with_zeros], {"axes": (1,), "keepdims": False})
    for op in (gc.ArgMaxOp, gc.ArgMinOp):
        yield from positions(op)
    yield from top_k()
    yield from selections()
    yield from mat_mul()
    yield from dot_products()
    yield from sums_in_pairs()
    yield from parts()
    yield from conv()
    yield from conv_input_grad()
    yield from conv_weight_grad()
    yield from max_pool()
    yield from max_pool_grad()
    yield from average_pool()
    yield from average_pool_grad()
    for array in (normal(2, 6), whole(2, 6), truths(2, 6)):
        yield from simple(gc.ReshapeOp, [array], {"shape": (3, 4)}, {"shape": (12,)})
        yield from simple(gc.TransposeOp, [array], {"perm": (1, 0)}, {"perm": (0, 1)})
        yield from simple(gc.BroadcastOp, [array], {"shape": (2, 6)}, {"shape": (3, 2, 6)})
    yield from simple(gc.ReshapeOp, [normal(1, 1)], {"shape": ()})
    yield from simple(gc.ReshapeOp, [normal(0, 3)], {"shape": (3, 0, 2)})
    yield from simple(gc.TransposeOp, [normal(2, 3, 4)], {"perm": (2, 0, 1)}, {"perm": (1, 2, 0)})
    yield from simple(gc.BroadcastOp, [normal(2, 1)], {"shape": (2, 3)}, {"shape": (2, 2, 4)})
    yield from simple(gc.BroadcastOp, [normal()], {"shape": ()}, {"shape": (2, 0)})
    yield from concat()
    yield from slices()
    yield from insertions()
    yield from pads()
    yield from gather()
    yield from check_indices()
    yield from gather_grad()
    yield from scatter()
    yield from iota()
    yield from random_uniform()
    for op in (gc.SoftmaxOp, gc.LogSoftmaxOp):
        yield from softmaxes(op, 1)
    for op in (gc.SoftmaxGradOp, gc.LogSoftmaxGradOp):
        yield from softmaxes(op, 2)
    yield from layer_norm()
    yield from batch_norm()
    yield from batch_norm_train()
    yield from lrn()
    for approximate in (False, True):
        for array in (normal(2, 3), apart(), SPECIAL[:8]):
            smooth = array is not SPECIAL and array.size < 8
            yield Sample(gc.GeluOp, [array], {"approximate": approximate}, smooth=smooth)
    for alpha in (0.01, 0.0, 2.0):
        yield Sample(gc.LeakyReluOp, [apart(2, 3)], {"alpha": alpha})
        yield Sample(gc.LeakyReluOp, [SPECIAL], {"alpha": alpha}, smooth=False)
    yield from nll_loss()
    yield from nll_loss_grad()
    yield from simple_losses(gc.L1LossOp, scale=0.3)
    yield from simple_losses(gc.IdentityLossOp)
    yield from dropout()
    yield from roundings()
    yield from quantizations()
    yield Sample(gc.FmaOp, [normal(2, 3), normal(3), normal(2, 1)])
    yield Sample(gc.FmaOp, [*SPECIAL_PAIRS, np.float32(0.3) * SPECIAL_PAIRS[1]])


SAMPLES: list[Sample] = list(table())
ONE_TYPE = (gc.BitcastOp, gc.FmaOp, gc.SuppressOp)
"""Operations restricted to one float type."""


def each_float_type(samples: Sequence[Sample]) -> list[Sample]:
    """The samples, and a copy in every other float type of each sample that holds floats."""
    wider = [
        sample.with_floats(name)
        for sample in samples
        if has_floats(sample) and sample.op not in ONE_TYPE
        for name in ("f64", "f16", "bf16")
    ]
    return [*samples, *wider]
