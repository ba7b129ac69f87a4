"""Tests `graphcore-to-structured`: every operation keeps its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import (
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    TensorType,
    f32,
)

from popgraph.backends.reference import evaluate
from popgraph.dialects import graphcore as gc
from popgraph.dialects import tile
from popgraph.dialects.graphcore.base import Array, GraphcoreOp
from popgraph.dialects.graphcore.logic import PREDICATES
from popgraph.dialects.program import ConstantOp, DataAttr, GraphOp, ReturnOp
from popgraph.passes.analysis.repeats import Repeats
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore import to_structured
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.support import dtypes
from popgraph.support.tuning import Tuning
from tests.checking import check_ir
from tests.dialects.graphcore_run import Sample, build, twins
from tests.dialects.graphcore_samples import SAMPLES
from tests.sampling import share

EXACT: tuple[type[GraphcoreOp], ...] = (
    gc.Movement,
    gc.GatherOp,
    gc.IotaOp,
    gc.RandomUniformOp,
    gc.CastOp,
    gc.CompareOp,
    gc.WhereOp,
    gc.IsNanOp,
    gc.NegOp,
    gc.AbsOp,
    gc.SignOp,
    gc.FloorOp,
    gc.CeilOp,
    gc.RoundOp,
    gc.ReluOp,
    gc.SqrtOp,
    gc.ReciprocalOp,
    gc.AddOp,
    gc.SubOp,
    gc.MulOp,
    gc.DivOp,
    gc.MaxOp,
    gc.MinOp,
    gc.ReduceMaxOp,
    gc.ReduceMinOp,
    gc.ArgMaxOp,
    gc.ArgMinOp,
    gc.ArgTopKOp,
    gc.CompressOp,
    gc.ArgSortOp,
    gc.SuppressOp,
    gc.MaxPoolOp,
)
"""Operations with one rounding at most, whose results are compared bit by bit."""
TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 2e-2}


def conv_input_grad(pads: Sequence[int], size: int) -> Sample:
    """A gradient whose padding exceeds the kernel, so no window begins at the first elements."""
    dy, w = np.arange(12, dtype=np.float32).reshape(1, 2, -1), np.ones((2, 3, 2), np.float32)
    w[:, :, 1] = 3
    options = {"strides": [2], "dilations": [1], "pads": pads, "groups": 1}
    return Sample(gc.ConvInputGradOp, [dy, w], {"shape": [1, 3, size], **options})


def max_pool_grad(*row: float) -> Sample:
    """A gradient whose windows hold mostly padding."""
    count = len(row) + 2
    options = {"kernel": [3], "strides": [1], "dilations": [1], "pads": [2, 2], "sizes": [count]}
    x = np.array([[row]], np.float32)
    dy = np.arange(1, count + 1, dtype=np.float32).reshape(1, 1, count)
    return Sample(gc.MaxPoolGradOp, [x, dy], options)


TRUTHS = np.array([[False, False], [True, False], [False, True], [True, True]])
INFINITY, NAN = float("inf"), float("nan")
EDGES = [
    conv_input_grad([3, 3], 6),
    conv_input_grad([5, 0], 7),
    max_pool_grad(-INFINITY, -INFINITY, -INFINITY),
    max_pool_grad(-INFINITY),
    max_pool_grad(1, NAN, NAN, 2),
    max_pool_grad(NAN, -INFINITY),
    max_pool_grad(2, 2, 2, 1, 2),
    Sample(gc.ReduceMaxOp, [TRUTHS], {"axes": [1], "keepdims": False}),
    Sample(gc.ReduceMinOp, [TRUTHS], {"axes": [1], "keepdims": False}),
    Sample(gc.ArgMaxOp, [TRUTHS], {"axis": 1, "keepdims": False}),
    Sample(gc.ArgMinOp, [TRUTHS], {"axis": 1, "keepdims": False, "last": True}),
    *(Sample(op, [TRUTHS[:, :1], TRUTHS[:, 1:]]) for op in (gc.MaxOp, gc.MinOp)),
    *(
        Sample(gc.CompareOp, [TRUTHS[:, 0], TRUTHS[:, 1]], {"predicate": each})
        for each in PREDICATES
    ),
]
PRIMITIVE = [
    *(sample for sample in SAMPLES if not issubclass(sample.op, gc.Composite)),
    *EDGES,
]


def in_floats(name: str) -> list[Sample]:
    fixed = (gc.FmaOp, gc.SuppressOp)
    return [sample.with_floats(name) for sample in PRIMITIVE if sample.op not in fixed]


def in_integers(name: str, samples: Sequence[Sample]) -> list[Sample]:
    """Samples of i32 operands, converted to another integer type."""
    dtype = dtypes.BY_NAME[name].numpy

    def cast(array: Array) -> Array:
        return array.astype(dtype) if array.dtype == np.int32 else array

    found = []
    for sample in samples:
        arrays = all(isinstance(each, np.ndarray) for each in sample.operands)
        # Bitcasts keep the number of bits, and packed words have 32.
        packed = (gc.BitcastOp, gc.PartsOp, gc.MatMulInPairsOp, gc.ConvInPairsOp)
        fits = sample.op not in packed and "words" not in sample.properties
        if fits and arrays and any(each.dtype == np.int32 for each in sample.arrays):
            operands = [cast(each) for each in sample.arrays]
            found.append(Sample(sample.op, operands, sample.properties))
    return found


ALL = [
    *PRIMITIVE,
    *in_floats("f64"),
    *in_floats("f16"),
    *in_floats("bf16"),
    *in_integers("u8", PRIMITIVE),
    *in_integers("i8", PRIMITIVE),
    *in_integers("u64", PRIMITIVE),
]


def lowered(module: ModuleOp) -> ModuleOp:
    compilation = Compilation()
    GraphcoreToStructured().run(compilation, module)
    check_ir(module)
    left = [op.name for op in module.walk() if isinstance(op, GraphcoreOp)]
    assert not left, f"still there: {left}"
    return module


def assert_same(sample: Sample, actual: Array, expected: Array) -> None:
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    name = dtypes.from_numpy(expected.dtype).name
    if sample.op is gc.BitcastOp:
        assert actual.tobytes() == expected.tobytes()
        return
    if name not in TOLERANCE:
        np.testing.assert_array_equal(actual, expected)
        return
    wide, wanted = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = min(float(finite.max()), 1e6) if finite.size else 0.0
    tolerance = 0 if issubclass(sample.op, EXACT) else TOLERANCE[name]
    np.testing.assert_allclose(wide, wanted, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("sample", ALL, ids=[f"{n}-{each}"[:100] for n, each in enumerate(ALL)])
def test_lowered_operation_means_the_same(sample: Sample) -> None:
    built = build(sample)
    (expected,) = built.op.evaluate(*built.arrays)
    module = lowered(built.module())
    inputs = {f"x{at}": array for at, array in enumerate(built.arrays)}
    outputs, _ = evaluate(module, inputs, Compilation().weights)
    assert_same(sample, outputs["y0"], expected)


@st.composite
def axes(draw: st.DrawFn) -> tuple[int, ...]:
    """One axis: elements, kernel, stride, dilation, padding and number of windows."""
    size, kernel, stride = draw(st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 5)))
    dilation, low = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    windows = draw(st.integers(1, (size - 1 + low) // stride + 1))
    starts = [number * stride - low for number in range(windows)]
    places = [[start + tap * dilation for tap in range(kernel)] for start in starts]
    assume(all(any(0 <= place < size for place in window) for window in places))
    return size, kernel, stride, dilation, low, windows


@given(st.lists(axes(), min_size=1, max_size=2), st.integers(0, 99))
def test_max_pool_gradients_find_their_windows(rows: list[tuple[int, ...]], seed: int) -> None:
    """Windows with gaps, overlap or overhang; the first of tied maxima gets the gradient."""
    space, kernel, strides, dilations, low, sizes = zip(*rows, strict=True)
    high = (
        max(0, (count - 1) * stride + (taps - 1) * dilation + 1 - size - before)
        for size, taps, stride, dilation, before, count in rows
    )
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (1, 2, *space)).astype(np.float32)
    dy = rng.integers(1, 9, (1, 2, *sizes)).astype(np.float32)
    pads = [*low, *high]
    options = {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    built = build(Sample(gc.MaxPoolGradOp, [x, dy], {**options, "sizes": sizes}))
    (expected,) = built.op.evaluate(*built.arrays)
    outputs, _ = evaluate(lowered(built.module()), {"x0": x, "x1": dy}, Compilation().weights)
    np.testing.assert_array_equal(outputs["y0"], expected)


def test_every_primitive_operation_is_lowered() -> None:
    tried = {sample.op for sample in ALL}
    wanted = {op for op in gc.OPERATIONS if not issubclass(op, gc.Composite)}
    assert wanted == tried


def test_lowered_operations_keep_their_location() -> None:
    built = build(next(each for each in PRIMITIVE if each.op is gc.MaxPoolGradOp))
    location = NameLoc(StringAttr("pool"), NoneAttr())
    built.op.location = location
    module = lowered(built.module())
    made = [op for op in module.walk() if op.name.startswith(("tile.", "arith."))]
    assert {op.location for op in made} == {location}


def test_constants_of_one_element_are_inlined() -> None:
    graph = GraphOp("main", ["x"], [TensorType(f32, [2, 3])])
    with ImplicitBuilder(graph.block):
        half = ConstantOp(DataAttr.of(np.array([[0.5]], np.float32)))
        product = gc.MulOp(graph.block.args[0], half)
        ReturnOp([product.result], ["y"])
    module = lowered(ModuleOp([graph]))
    (made,) = (op for op in module.walk() if isinstance(op, tile.MapOp))
    assert list(made.inputs) == [graph.block.args[0]]


def test_a_broadcast_constant_is_inlined() -> None:
    graph = GraphOp("main", [], [])
    with ImplicitBuilder(graph.block):
        half = ConstantOp(DataAttr.of(np.array(0.5, np.float16)))
        ReturnOp([gc.BroadcastOp(half, shape=[2, 3]).result], ["y"])
    module = lowered(ModuleOp([graph]))
    (made,) = (op for op in module.walk() if isinstance(op, tile.MapOp))
    assert not made.inputs
    outputs, _ = evaluate(module, {}, Compilation().weights)
    np.testing.assert_array_equal(outputs["y"], np.full((2, 3), 0.5, np.float16))


def test_a_repeated_operand_is_read_once() -> None:
    graph = GraphOp("main", ["x"], [TensorType(f32, [2])])
    (x,) = graph.block.args
    with ImplicitBuilder(graph.block):
        ReturnOp([gc.MulOp(x, x).result], ["y"])
    module = lowered(ModuleOp([graph]))
    (made,) = (op for op in module.walk() if isinstance(op, tile.MapOp))
    assert list(made.inputs) == [x]


def test_only_padded_convolutions_assemble_their_input() -> None:
    """Without padding nothing is assembled; with padding the contraction has no border code."""
    plain: dict[str, Any] = {"strides": [1], "dilations": [1], "groups": 1}
    for pads, assemblies in (([0, 0], 0), ([1, 1], 1)):
        x, w = TensorType(f32, [1, 2, 5]), TensorType(f32, [3, 2, 3])
        graph = GraphOp("main", ["x", "w"], [x, w])
        with ImplicitBuilder(graph.block):
            y = gc.ConvOp(*graph.block.args, **plain, pads=pads)
            ReturnOp([y.result], ["y"])
        module = lowered(ModuleOp([graph]))
        made = [op for op in module.walk() if isinstance(op, tile.AssembleOp)]
        assert len(made) == assemblies


def test_composites_are_not_lowered() -> None:
    sample = next(each for each in SAMPLES if each.op is gc.SoftmaxOp)
    module = build(sample).module()
    before = str(module)
    GraphcoreToStructured().run(Compilation(), module)
    assert str(module) == before


REPEATABLE = [each for each in SAMPLES if issubclass(each.op, to_structured.REPEATED)]


def test_copies_are_what_equal_operations_lower_to() -> None:
    for sample in share("copies", REPEATABLE, 8, lambda sample: sample.op):
        module = twins(sample)
        for op in [op for op in module.walk() if isinstance(op, GraphcoreOp)]:
            to_structured.lower(op, Tuning(), Repeats(()))
        assert module.is_structurally_equivalent(lowered(twins(sample))), f"{sample}"


def test_a_value_read_twice_is_not_copied_as_two_values() -> None:
    graph = GraphOp("main", ["x", "y"], [TensorType(f32, [2])] * 2)
    x, y = graph.block.args
    pairs = [(x, x), (x, y), (y, x), (y, y)]
    with ImplicitBuilder(graph.block):
        found = [gc.SubOp(*pair) for pair in pairs]
        ReturnOp([one.result for one in found], list("abcd"))
    inputs = {"x": np.full(2, 5, np.float32), "y": np.full(2, 3, np.float32)}
    results, _ = evaluate(lowered(ModuleOp([graph])), inputs, Compilation().weights)
    assert [results[name].tolist() for name in "abcd"] == [[0, 0], [2, 2], [-2, -2], [0, 0]]


def test_operations_with_other_constants_are_not_copies() -> None:
    """A map has constants of one element in its body."""
    graph = GraphOp("main", ["x"], [TensorType(f32, [2])])
    (x,) = graph.block.args
    numbers = [np.full((), number, np.float32) for number in (1, 2, 1)]
    with ImplicitBuilder(graph.block):
        sums = [gc.AddOp(x, ConstantOp(DataAttr.of(one))) for one in numbers]
        ReturnOp([one.result for one in sums], ["a", "b", "c"])
    module = lowered(ModuleOp([graph]))
    results, _ = evaluate(module, {"x": np.zeros(2, np.float32)}, Compilation().weights)
    assert [results[name].tolist() for name in "abc"] == [[1, 1], [2, 2], [1, 1]]
