"""Tests that long sums and normalizations are as accurate as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import popgraph
from popgraph.compiler import build as build_program
from popgraph.dialects import graphcore as gc
from popgraph.passes.base import Compilation
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import Options, Training
from popgraph.passes.structured.to_loops.emit import chunks
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod
from tests.dialects.graphcore_run import Sample, build
from tests.sampling import WHOLE

torch = pytest.importorskip("torch")
functional = torch.nn.functional

MOST = 1 << 22
"""Maximal number of elements of an example."""

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def some(divisor: int) -> settings:
    """Fewer examples than usual, since each is compiled."""
    return settings(max_examples=max(4 if WHOLE else 2, settings.default.max_examples // divisor))


def numbers(*shape: int, mean: float = 1.0, seed: int = 0) -> Array:
    made = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return np.asarray(made + np.float32(mean))


def to_torch(array: Array) -> Any:
    kind = TYPES.get(dtypes.from_numpy(array.dtype).name)
    return torch.from_numpy(array.astype(np.float32)).to(kind)


def of_torch(tensor: Any) -> Array:
    return np.asarray(tensor.detach().to(torch.float64).numpy())


def error(found: Array, exact: Array) -> float:
    """max|found - exact| / max|exact|; infinite for NaN."""
    far = np.abs(found.astype(np.float64) - exact)
    scale = np.abs(exact).max(initial=0)
    return float(np.where(np.isfinite(far), far, np.inf).max(initial=0) / (scale or 1))


def last_digit(kind: str) -> float:
    """Error of rounding a result once, with one digit of margin."""
    return {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[kind]


def as_good_as_torch(
    sample: Sample, theirs: Callable[..., Any], kind: str, arrays: list[Array]
) -> None:
    """Checks that our error is at most twice PyTorch's, plus the last digit."""
    built = build(sample)
    (exact, *_) = built.op.evaluate(*(array.astype(np.float64) for array in arrays))
    program = build_program(built.module(), Compilation())
    found = program.run({f"x{at}": array for at, array in enumerate(built.arrays)})["y0"]
    ours = error(found, exact)
    peer = error(of_torch(theirs(*map(to_torch, arrays))), exact)
    assert ours <= 2 * peer + last_digit(kind), f"off by {ours:.1e}, PyTorch by {peer:.1e}"


@dataclass(frozen=True)
class Sum:
    """A mean over some axes, or a sum in f32."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    kind: str = "f32"
    mean: bool = False


@st.composite
def sums(draw: st.DrawFn) -> Sum:
    """Sums of any rank over any axes, where summed axes may be long."""
    rank = draw(st.integers(1, 4))
    axes = sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1)))
    long = st.sampled_from([3, 28, 100, 999, 4096, 50_000, 200_000, 1_000_000])
    short = st.sampled_from([1, 2, 3, 4, 16, 17, 40])
    shape = tuple(draw(long if axis in axes else short) for axis in range(rank))
    assume(prod(shape) <= MOST)
    kind = draw(st.sampled_from(list(TYPES)))
    return Sum(shape, tuple(axes), kind, draw(st.booleans()) or kind != "f32")


@some(1)
@given(sums())
@example(Sum((200_000, 16), (0,)))
@example(Sum((1000, 1000, 4), (0, 1)))
@example(Sum((1_000_000, 3), (0,), "bf16", mean=True))
@example(Sum((2, 1_000_000), (1,), "f16", mean=True))
@example(Sum((50, 16, 28, 28), (0, 2, 3)))
@example(Sum((1_000_003,), (0,)))
def test_accuracy_of_sums(case: Sum) -> None:
    check_sum(case)


def check_sum(case: Sum) -> None:
    x = numbers(*case.shape).astype(dtypes.BY_NAME[case.kind].numpy)
    op = gc.ReduceMeanOp if case.mean else gc.ReduceSumOp
    theirs = torch.mean if case.mean else torch.sum
    sample = Sample(op, [x], {"axes": case.axes, "keepdims": False})
    as_good_as_torch(sample, lambda x: theirs(x, case.axes), case.kind, [x])


def test_sequential_sums_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above fails if sums are not chunked."""
    monkeypatch.setattr(chunks, "chunked_reduction", lambda *_, **__: None)
    with pytest.raises(AssertionError, match="PyTorch by"):
        check_sum(Sum((200_000, 16), (0,)))


@dataclass(frozen=True)
class Product:
    """A matmul with a long inner dimension."""

    rows: int
    terms: int
    columns: int
    kind: str = "f32"


@st.composite
def products(draw: st.DrawFn) -> Product:
    few = st.sampled_from([1, 2, 4, 8, 17, 64, 256])
    terms = draw(st.sampled_from([300, 4096, 9999, 40_000, 300_000]))
    rows, columns = draw(few), draw(few)
    assume(terms * max(rows, columns) <= MOST and rows * terms * columns <= 1 << 28)
    return Product(rows, terms, columns, draw(st.sampled_from(list(TYPES))))


@some(2)
@given(products())
@example(Product(4, 300_000, 8))
@example(Product(1, 65_537, 64))
@example(Product(64, 50_000, 64))
@example(Product(8, 40_000, 100, "bf16"))
def test_accuracy_of_matmul(case: Product) -> None:
    dtype = dtypes.BY_NAME[case.kind].numpy
    mean = 1.0 if case.kind != "f16" else 0.0  # A sum of that many ones overflows f16.
    shapes = (case.rows, case.terms), (case.terms, case.columns)
    arrays = [numbers(*shape, mean=mean, seed=at).astype(dtype) for at, shape in enumerate(shapes)]
    as_good_as_torch(Sample(gc.MatMulOp, arrays), torch.matmul, case.kind, arrays)


@pytest.mark.parametrize(
    ("batch", "before", "behind", "side"), [(50, 16, 16, 28), (32, 128, 64, 28), (8, 3, 20, 64)]
)
def test_accuracy_of_conv_weight_gradients(batch: int, before: int, behind: int, side: int) -> None:
    """Weight gradients of Conv: sums over all pixels and images, with and without Winograd."""
    arrays = [numbers(batch, before, side, side), numbers(batch, behind, side, side, seed=1)]
    shape = (behind, before, 3, 3)
    window = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "groups": 1}
    sample = Sample(gc.ConvWeightGradOp, arrays, {"shape": shape, **window})

    def theirs(x: Any, slope: Any) -> Any:
        return torch.nn.grad.conv2d_weight(x, shape, slope, padding=1)

    as_good_as_torch(sample, theirs, "f32", arrays)


# Normalizations


def deviation(x: Any, axes: tuple[int, ...]) -> Any:
    return (x - x.mean(axes, keepdim=True)) / (x.var(axes, correction=0, keepdim=True) + 0).sqrt()


def root_mean_square(x: Any, scale: Any) -> Any:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * scale


@dataclass(frozen=True)
class Normalization:
    """An ONNX normalization with operands per channel or row, and PyTorch's function."""

    op: str
    theirs: Callable[..., Any]
    inputs: str = "sb"
    attributes: Mapping[str, Any] | None = None
    outputs: int = 1
    along_rows: bool = False


NORMALIZATIONS = [
    Normalization(
        "BatchNormalization",
        lambda x, s, b: functional.batch_norm(x, None, None, s, b, training=True),
        "sbmv",
        {"training_mode": 1},
        3,
    ),
    Normalization(
        "InstanceNormalization", lambda x, s, b: functional.instance_norm(x, None, None, s, b)
    ),
    Normalization(
        "GroupNormalization",
        lambda x, s, b: functional.group_norm(x, 2, s, b),
        attributes={"num_groups": 2},
    ),
    Normalization(
        "LayerNormalization",
        lambda x, s, b: functional.layer_norm(x, x.shape[-1:], s, b),
        along_rows=True,
    ),
    Normalization("RMSNormalization", root_mean_square, "s", along_rows=True),
    Normalization("MeanVarianceNormalization", lambda x: deviation(x, (0, 2, 3)), ""),
    Normalization("LpNormalization", lambda x: functional.normalize(x, dim=-1), ""),
    Normalization("ReduceLogSumExp", lambda x: torch.logsumexp(x, (1, 2, 3), keepdim=True), "a"),
]


def model(x: Array, slope: Mapping[str, Array], arrays: Mapping[str, Array]) -> onnx.ModelProto:
    """A model of all normalizations; the loss is the sum of inner products with their slopes."""
    nodes, inputs, terms = [], [], []
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    for each in NORMALIZATIONS:
        name = each.op
        operands = [f"{name}.x", *(f"{name}.{letter}" for letter in each.inputs)]
        results = [f"{name}.y", *(f"{name}.y{at}" for at in range(1, each.outputs))]
        nodes.append(helper.make_node(name, operands, results, **(each.attributes or {})))
        nodes.append(helper.make_node("Mul", [f"{name}.y", f"{name}.slope"], [f"{name}.part"]))
        nodes.append(helper.make_node("ReduceSum", [f"{name}.part"], [f"{name}.sum"], keepdims=0))
        inputs.append(helper.make_tensor_value_info(f"{name}.x", kind, x.shape))
        terms.append(f"{name}.sum")
    nodes.append(helper.make_node("Sum", terms, ["loss"]))
    outputs = [helper.make_tensor_value_info("loss", kind, [])]
    outputs += [helper.make_tensor_value_info(f"{e.op}.y", kind, None) for e in NORMALIZATIONS]
    known = {**arrays, **{f"{name}.slope": value for name, value in slope.items()}}
    tensors = [numpy_helper.from_array(value, name) for name, value in known.items()]
    graph = helper.make_graph(nodes, "normalizations", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def numbers_of(each: Normalization, x: Array) -> dict[str, Array]:
    """The other operands of a normalization."""
    size = x.shape[-1] if each.along_rows else x.shape[1]
    made = {
        "s": numbers(size, seed=5) / 4 + 1,
        "b": numbers(size, seed=6),
        "m": np.zeros(size, np.float32),
        "v": np.ones(size, np.float32),
        "a": np.array([1, 2, 3]),
    }
    return {letter: made[letter] for letter in each.inputs}


shapes_of_images = st.tuples(
    st.sampled_from([1, 2, 9]),
    st.sampled_from([2, 4, 18]),
    st.sampled_from([4, 15, 33]),
    st.sampled_from([5, 16, 40]),
)
means = st.sampled_from([0.0, 1.0, -30.0, 100.0, 3000.0, 10_000.0])


@some(5)
@given(shapes_of_images, means)
@example((8, 4, 16, 16), 10_000.0)
@example((50, 16, 28, 28), 1.0)
@example((9, 18, 33, 40), -30.0)
@example((9, 2, 4, 5), 1.0)
def test_accuracy_of_normalizations(shape: tuple[int, int, int, int], mean: float) -> None:
    """Errors are at most twice PyTorch's, or the input's precision, for any mean of the input."""
    x = numbers(*shape, mean=mean)
    arrays = {
        f"{each.op}.{letter}": array
        for each in NORMALIZATIONS
        for letter, array in numbers_of(each, x).items()
    }
    slope = {
        each.op: numbers(*(shape if each.op != "ReduceLogSumExp" else (shape[0], 1, 1, 1)), seed=9)
        for each in NORMALIZATIONS
    }
    wanted = tuple(
        f"{each.op}.{letter}"
        for each in NORMALIZATIONS
        for letter in ("x", *each.inputs)
        if letter in "xsb"
    )
    options = Options(training=Training("loss", SGD(), gradients=wanted))
    step = popgraph.compile(model(x, slope, arrays), options=options)
    found = step({f"{each.op}.x": x for each in NORMALIZATIONS})
    digits = 4 * 2.0**-24 * (1 + abs(mean))
    for each in NORMALIZATIONS:
        letters = [letter for letter in each.inputs if letter in "sb"]
        given_ = [x, *(arrays[f"{each.op}.{letter}"] for letter in letters)]
        exact = by_torch(each, given_, slope[each.op], torch.float64)
        theirs = by_torch(each, given_, slope[each.op], torch.float32)
        ours = [f"{each.op}.y", *(f"Gradient___{each.op}.{letter}" for letter in ["x", *letters])]
        for name, right, peer in zip(ours, exact, theirs, strict=True):
            mine, other = error(found[name], right), error(peer, right)
            allowed = 2 * other + digits
            assert mine <= allowed, f"{name}: off by {mine:.1e}, PyTorch by {other:.1e}"


def by_torch(each: Normalization, arrays: list[Array], slope: Array, kind: Any) -> list[Array]:
    """The result, and the gradients of all operands, by PyTorch."""
    tensors = [torch.tensor(array, dtype=kind, requires_grad=True) for array in arrays]
    result = each.theirs(*tensors)
    result.backward(torch.tensor(slope, dtype=kind))
    return [of_torch(result), *(of_torch(tensor.grad) for tensor in tensors)]
