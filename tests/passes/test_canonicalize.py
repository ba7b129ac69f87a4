"""Tests `canonicalize`: every rule, its conditions, and its accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import SSAValue

from popgraph.backends.reference import evaluate
from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.graphcore.batch_norm import factor_and_shift
from popgraph.dialects.graphcore.runs import Run, runs_of
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.canonicalize import RULES, Canonicalize, arithmetic, powers, scaling
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import PassError
from tests.checking import check_ir

SPECIAL = np.array([[0.0, -0.0, np.nan], [np.inf, -np.inf, -1.5]], np.float32)
Literal = Callable[[object], SSAValue]


def canonicalized(
    build: Callable[[SSAValue, Literal], Operand], x: Array = SPECIAL
) -> tuple[list[str], Array, Array]:
    """Names of the remaining operations, and the values before and after."""
    compilation = Compilation()
    graph = GraphOp(
        "main", ["x"], [TensorType(element_types.to_ir(dtypes.from_numpy(x.dtype)), x.shape)]
    )

    def literal(value: object) -> SSAValue:
        array = np.asarray(value, None if isinstance(value, np.ndarray) else x.dtype)
        return ConstantOp(compilation.weights.attribute(array)).result

    with ImplicitBuilder(graph.block):
        result = SSAValue.get(build(graph.block.args[0], literal))
        ReturnOp([result], ["y"])
    module = ModuleOp([graph])
    before, _ = evaluate(module, {"x": x}, compilation.weights)
    Canonicalize().run(compilation, module)
    check_ir(module)
    text = str(module)
    Canonicalize().run(compilation, module)
    assert str(module) == text, "a second run changes something"
    after, _ = evaluate(module, {"x": x}, compilation.weights)
    names = [op.name.removeprefix("graphcore.") for op in graph.block.ops]
    left = [name for name in names if not name.startswith("pg.")]
    return left, before["y"], after["y"]


def assert_same_bits(left: Array, right: Array) -> None:
    np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(np.signbit(left), np.signbit(right))


def cases() -> dict[str, tuple[Callable[[SSAValue, Literal], Operand], list[str]]]:
    axes = {"axes": (0,), "keepdims": True}
    return {
        "x + -0": (lambda x, c: gc.AddOp(x, c(-0.0)), []),
        "-0 + x": (lambda x, c: gc.AddOp(c(-0.0), x), []),
        "x + 0 changes -0": (lambda x, c: gc.AddOp(x, c(0.0)), ["add"]),
        "x - 0": (lambda x, c: gc.SubOp(x, c(0.0)), []),
        "x - -0 changes -0": (lambda x, c: gc.SubOp(x, c(-0.0)), ["sub"]),
        "0 - x is not x": (lambda x, c: gc.SubOp(c(0.0), x), ["sub"]),
        "x * 1": (lambda x, c: gc.MulOp(x, c([[1.0]])), []),
        "1 * x": (lambda x, c: gc.MulOp(c(1.0), x), []),
        "x * 0 is not 0": (lambda x, c: gc.MulOp(x, c(0.0)), ["mul"]),
        "x / 1": (lambda x, c: gc.DivOp(x, c(1.0)), []),
        "1 / x is not x": (lambda x, c: gc.DivOp(c(1.0), x), ["div"]),
        "x ^ 1": (lambda x, c: gc.PowOp(x, c(1.0)), []),
        "x ^ 2": (lambda x, c: gc.PowOp(x, c(2.0)), ["mul"]),
        "x ^ 3": (lambda x, c: gc.PowOp(x, c(3.0)), ["mul", "mul"]),
        "x ^ -1": (lambda x, c: gc.PowOp(x, c(-1.0)), ["reciprocal"]),
        "x ^ 4 would lose bits": (lambda x, c: gc.PowOp(x, c(4.0)), ["pow"]),
        "x ^ 0.5 has no sign at -0 and -inf": (lambda x, c: gc.PowOp(x, c(0.5)), ["pow"]),
        "relu keeps -0": (lambda x, c: gc.PowOp(gc.ReluOp(x), c(0.5)), ["relu", "pow"]),
        "a square has a root": (
            lambda x, c: gc.PowOp(gc.AddOp(gc.MulOp(x, x), c(1.0)), c(0.5)),
            ["mul", "add", "sqrt"],
        ),
        "a square with -0 has no root": (
            lambda x, c: gc.PowOp(gc.MulOp(gc.MulOp(x, x), c(-0.0)), c(0.5)),
            ["mul", "mul", "pow"],
        ),
        "|x| ^ 0.5": (lambda x, c: gc.PowOp(gc.AbsOp(x), c(0.5)), ["abs", "sqrt"]),
        "|x| ^ -1.5 overflows later": (
            lambda x, c: gc.PowOp(gc.AbsOp(x), c(-1.5)),
            ["abs", "pow"],
        ),
        "x + -0 that broadcasts": (
            lambda x, c: gc.AddOp(x, c(np.full((2, 2, 3), -0.0, np.float32))),
            ["broadcast"],
        ),
        "-(-x)": (lambda x, c: gc.NegOp(gc.NegOp(x)), []),
        "relu relu": (lambda x, c: gc.ReluOp(gc.ReluOp(x)), ["relu"]),
        "x / 4": (lambda x, c: gc.DivOp(x, c(4.0)), ["mul"]),
        "x / 3": (lambda x, c: gc.DivOp(x, c(3.0)), ["div"]),
        "x / 2^-127, whose reciprocal is infinite": (
            lambda x, c: gc.DivOp(x, c(2.0**-149)),
            ["div"],
        ),
        "max max": (lambda x, c: gc.MaxOp(gc.MaxOp(x, c(-1.0)), c(0.5)), ["max"]),
        "min min": (lambda x, c: gc.MinOp(gc.MinOp(x, c(-1.0)), c(np.nan)), ["min"]),
        "min max": (lambda x, c: gc.MinOp(gc.MaxOp(x, c(-1.0)), c(0.5)), ["max", "min"]),
        "where true": (lambda x, c: gc.WhereOp(c(np.ones(3, bool)), x, c(7.0)), []),
        "where false": (lambda x, c: gc.WhereOp(c(np.zeros(3, bool)), c(7.0), x), []),
        "where mixed": (
            lambda x, c: gc.WhereOp(c(np.array([True, False, True])), x, c(7.0)),
            ["where"],
        ),
        "cast to itself": (lambda x, c: gc.CastOp(x, to=element_types.BY_NAME["f32"]), []),
        "cast away": (lambda x, c: gc.CastOp(x, to=element_types.BY_NAME["f64"]), ["cast"]),
        "reshape to itself": (lambda x, c: gc.ReshapeOp(x, shape=(2, 3)), []),
        "reshape reshape": (
            lambda x, c: gc.ReshapeOp(gc.ReshapeOp(x, shape=(6,)), shape=(3, 2)),
            ["reshape"],
        ),
        "reshape there and back": (
            lambda x, c: gc.ReshapeOp(gc.ReshapeOp(x, shape=(6,)), shape=(2, 3)),
            [],
        ),
        "transpose by nothing": (lambda x, c: gc.TransposeOp(x, perm=(0, 1)), []),
        "transpose there and back": (
            lambda x, c: gc.TransposeOp(gc.TransposeOp(x, perm=(1, 0)), perm=(1, 0)),
            [],
        ),
        "transpose twice": (
            lambda x, c: gc.TransposeOp(
                gc.TransposeOp(gc.BroadcastOp(x, shape=(4, 2, 3)), perm=(2, 0, 1)), perm=(1, 0, 2)
            ),
            ["broadcast", "transpose"],
        ),
        "transpose of a unit axis": (
            lambda x, c: gc.TransposeOp(gc.ReshapeOp(x, shape=(2, 1, 3)), perm=(0, 2, 1)),
            ["reshape"],
        ),
        "broadcast to itself": (lambda x, c: gc.BroadcastOp(x, shape=(2, 3)), []),
        "broadcast twice": (
            lambda x, c: gc.BroadcastOp(gc.BroadcastOp(x, shape=(1, 2, 3)), shape=(4, 2, 3)),
            ["broadcast"],
        ),
        "operand broadcast": (
            lambda x, c: gc.MulOp(gc.BroadcastOp(c(3.0), shape=(2, 3)), x),
            ["mul"],
        ),
        "operand broadcast that matters": (
            lambda x, c: gc.MulOp(gc.BroadcastOp(x, shape=(4, 2, 3)), c(3.0)),
            ["broadcast", "mul"],
        ),
        "slice all": (
            lambda x, c: gc.SliceOp(x, starts=(0, 0), sizes=(2, 3), steps=(1, 1)),
            [],
        ),
        "slice backwards": (
            lambda x, c: gc.SliceOp(x, starts=(0, 2), sizes=(2, 3), steps=(1, -1)),
            ["slice"],
        ),
        "pad nothing": (
            lambda x, c: gc.PadOp(x, low=(0, 0), high=(0, 0), interior=(0, 0), value=1.0),
            [],
        ),
        "pad inside": (
            lambda x, c: gc.PadOp(x, low=(0, 0), high=(0, 0), interior=(1, 0), value=1.0),
            ["pad"],
        ),
        "concat of one": (lambda x, c: gc.ConcatOp([x], axis=0), []),
        "concat of two": (lambda x, c: gc.ConcatOp([x, x], axis=0), ["concat"]),
        "concat with nothing": (
            lambda x, c: gc.ConcatOp([c(np.zeros((0, 3), np.float32)), x], axis=0),
            [],
        ),
        "concat of concat": (
            lambda x, c: gc.ConcatOp([gc.ConcatOp([x, x], axis=0), x], axis=0),
            ["concat"],
        ),
        "concat of concat along another axis": (
            lambda x, c: gc.ConcatOp([gc.ConcatOp([x, x], axis=1)] * 2, axis=0),
            ["concat", "concat"],
        ),
        "pieces that overlap": (
            lambda x, c: gc.AddOp(padded(x, 0, 2), padded(x, 1, 1)),
            ["pad", "pad", "add"],
        ),
        "pieces apart": (
            lambda x, c: gc.AddOp(padded(x, 0, 4), padded(x, 4, 0)),
            ["pad", "pad", "add"],
        ),
        "pieces among ones": (
            lambda x, c: gc.AddOp(padded(x, 0, 3, 1.0), padded(x, 3, 0, 1.0)),
            ["pad", "pad", "add"],
        ),
        "sum of one": (
            lambda x, c: gc.ReduceSumOp(gc.ReshapeOp(x, shape=(1, 6)), **axes),
            ["reshape", "add"],
        ),
        "largest of one": (
            lambda x, c: gc.ReduceMaxOp(gc.ReshapeOp(x, shape=(1, 6)), **axes),
            ["reshape"],
        ),
        "sum of two": (lambda x, c: gc.ReduceSumOp(x, **axes), ["reduce_sum"]),
    }


def padded(x: SSAValue, low: int, high: int, value: float = 0.0) -> Operand:
    """Pads columns with a number at both ends."""
    return gc.PadOp(x, low=(0, low), high=(0, high), interior=(0, 0), value=value)


@pytest.mark.parametrize("name", cases())
def test_canonicalize_rule(name: str) -> None:
    build, expected = cases()[name]
    left, before, after = canonicalized(build)
    assert left == expected
    assert_same_bits(after, before)


IMAGE = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32)
KERNEL = np.random.default_rng(1).normal(size=(4, 3, 3, 3)).astype(np.float32)
OPTIONS = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1, 1, 1), "groups": 1}
EXTREMES = np.array([1e-45, 1e-38, 3e-20, 0.7, 1.9, 4e19, 3e38, np.inf, 0, np.nan], np.float32)


@pytest.mark.parametrize("exponent", [*powers.FROM_ZERO, *powers.EVERYWHERE])
def test_powers_keep_their_accuracy(exponent: float) -> None:
    """Against the correctly rounded result, over the whole range of f32."""
    drawn = np.exp2(np.random.default_rng(0).uniform(-126, 128, 100_000)).astype(np.float32)
    x = np.concatenate([EXTREMES, drawn])
    left, _, after = canonicalized(lambda x, c: gc.PowOp(gc.AbsOp(x), c(exponent)), x)
    assert "pow" not in left
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), exponent)
        wanted = exact.astype(np.float32)
        normal = np.isfinite(wanted) & (wanted > np.finfo(np.float32).tiny)
        error = np.abs(after - exact)[normal] / np.spacing(wanted[normal])
    assert error.max() < 3.8
    np.testing.assert_array_equal(np.isinf(after), np.isinf(wanted))
    np.testing.assert_array_equal(np.isnan(after), np.isnan(wanted))


def test_powers_of_maybe_negative_numbers_are_unchanged() -> None:
    def build(x: SSAValue, c: Literal) -> Operand:
        return gc.PowOp(gc.AddOp(gc.MulOp(x, x), x), c(0.5))

    assert canonicalized(build)[0] == ["mul", "add", "pow"]


def test_powers_of_half_precision_are_unchanged() -> None:
    """Each operation of a chain would round to half precision."""
    x = np.ones(3, np.float16)
    assert canonicalized(lambda x, c: gc.PowOp(gc.AbsOp(x), c(0.75)), x)[0] == ["abs", "pow"]


NUMBERS = [np.random.default_rng(seed).uniform(0.5, 2, 4).astype(np.float32) for seed in range(4)]


def conv(x: SSAValue, c: Literal) -> Operand:
    return gc.ConvOp(x, c(KERNEL), **OPTIONS)


def channels(numbers: Array) -> Array:
    return numbers.reshape(1, 4, 1, 1)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x, c: gc.MulOp(conv(x, c), c(channels(NUMBERS[0]))), ["conv"]),
        (lambda x, c: gc.MulOp(c(2.5), conv(x, c)), ["conv"]),
        (
            lambda x, c: gc.MulOp(
                gc.AddOp(conv(x, c), c(channels(NUMBERS[0]))), c(channels(NUMBERS[1]))
            ),
            ["conv", "add"],
        ),
        (
            lambda x, c: gc.BatchNormOp(conv(x, c), *map(c, NUMBERS), epsilon=1e-3),
            ["conv", "add"],
        ),
        (
            lambda x, c: gc.BatchNormOp(
                gc.AddOp(c(channels(NUMBERS[2])), conv(x, c)), *map(c, NUMBERS), epsilon=1e-3
            ),
            ["conv", "add"],
        ),
    ],
)
def test_scales_are_folded_into_convolutions(
    build: Callable[[SSAValue, Literal], Operand], expected: list[str]
) -> None:
    left, before, after = canonicalized(build, IMAGE)
    assert left == expected
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


def twice(value: Operand) -> Operand:
    return gc.AddOp(value, gc.NegOp(value))


@pytest.mark.parametrize(
    "build",
    [
        lambda x, c: gc.MulOp(conv(x, c), c(np.ones((1, 1, 5, 1), np.float32) * 2)),
        lambda x, c: gc.MulOp(gc.ConvOp(x, x, **OPTIONS), c(2.0)),
        lambda x, c: gc.AddOp(gc.MulOp(p := conv(x, c), c(2.0)), p),
        lambda x, c: gc.BatchNormOp(x, *(c(n[:3]) for n in NUMBERS), epsilon=1e-3),
    ],
)
def test_other_scales_are_not_folded_into_convolutions(
    build: Callable[[SSAValue, Literal], Operand],
) -> None:
    """A scale per row, weights that are computed, another reader of the result, no conv."""
    left, before, after = canonicalized(build, IMAGE)
    assert "mul" in left or "batch_norm" in left
    np.testing.assert_array_equal(after, before)


def test_scales_are_folded_into_matmuls() -> None:
    x = np.random.default_rng(5).normal(size=(2, 3)).astype(np.float32)
    w = np.random.default_rng(6).normal(size=(3, 4)).astype(np.float32)

    def build(x: SSAValue, c: Literal) -> Operand:
        total = gc.AddOp(gc.MatMulOp(x, c(w)), c(NUMBERS[0]))
        return gc.MulOp(total, c(NUMBERS[1]))

    left, before, after = canonicalized(build, x)
    assert left == ["mat_mul", "add"]
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after, (x @ w + NUMBERS[0]) * NUMBERS[1], rtol=1e-5, atol=1e-6)


def test_a_convolution_of_one_channel_is_not_widened() -> None:
    """Scaling one channel by four numbers gives four channels, which the weights cannot express."""

    def build(x: SSAValue, c: Literal) -> Operand:
        return gc.MulOp(gc.ConvOp(x, c(KERNEL[:1]), **OPTIONS), c(channels(NUMBERS[0])))

    left, before, after = canonicalized(build, IMAGE)
    assert left == ["conv", "mul"]
    np.testing.assert_array_equal(after, before)


def test_neutral_integers() -> None:
    x = np.array([3, -4], np.int32)
    assert canonicalized(lambda x, c: gc.AddOp(x, c(0)), x)[0] == []
    assert canonicalized(lambda x, c: gc.DivOp(x, c(4)), x)[0] == ["div"]


def test_a_wrong_canonicalize_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the tests can fail: a dropped x + 0, and a batch norm without its mean."""
    monkeypatch.setattr(
        arithmetic.DropNeutral,
        "is_all",
        lambda self, value, number: (
            (array := self.array(value)) is not None and bool(np.all(array == number))
        ),
    )
    left, before, after = canonicalized(lambda x, c: gc.AddOp(x, c(0.0)))
    assert left == []
    with pytest.raises(AssertionError):
        assert_same_bits(after, before)
    monkeypatch.setattr(
        scaling,
        "factor_and_shift",
        lambda scale, bias, mean, *others: factor_and_shift(scale, bias, 0 * mean, *others),
    )
    build = lambda x, c: gc.BatchNormOp(conv(x, c), *map(c, NUMBERS), epsilon=1e-3)  # noqa: E731
    _, before, after = canonicalized(build, IMAGE)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


def test_every_rule_documents_before_and_after() -> None:
    rules: Sequence[type] = RULES
    assert all("->" in (rule.__doc__ or "") for rule in rules)


@pytest.mark.parametrize("op", [gc.MulOp, gc.AddOp, gc.MaxOp, gc.PowOp])
def test_the_same_broadcast_on_both_sides(op: Callable[[Operand, Operand], Operand]) -> None:
    def build(x: SSAValue, literal: Literal) -> Operand:
        wide = gc.BroadcastOp(x, shape=(2, 2, 3))
        return op(wide, wide)

    left, before, after = canonicalized(build)
    assert len(left) == 2  # One of the two broadcasts is removed.
    np.testing.assert_array_equal(before, after)


def test_padded_pieces_in_a_sum_become_a_concatenation() -> None:
    """Four rows sliced out of a tensor, and a number that was not."""

    def build(x: SSAValue, literal: Literal) -> Operand:
        def row(number: int) -> Operand:
            return gc.PadOp(x, low=[number, 0], high=[5 - number, 0], interior=[0, 0], value=0.0)

        rows = gc.AddOp(gc.AddOp(row(3), row(0)), gc.AddOp(row(1), row(2)))
        return gc.AddOp(gc.AddOp(rows, literal(np.float32(2))), row(4))

    left, before, after = canonicalized(build, np.array([[1, 2, 3]], np.float32))
    assert sorted(left) == ["add", "add", "concat", "pad", "pad"]
    np.testing.assert_array_equal(before, after)


def test_overlapping_padded_pieces_are_not_joined() -> None:
    def build(x: SSAValue, literal: Literal) -> Operand:
        def at(number: int) -> Operand:
            return gc.PadOp(x, low=[number, 0], high=[6 - number, 0], interior=[0, 0], value=0.0)

        return gc.AddOp(gc.AddOp(at(0), at(0)), gc.AddOp(at(2), at(3)))

    left, before, after = canonicalized(build, np.array([[1, 2, 3]], np.float32))
    assert left.count("add") == 2
    np.testing.assert_array_equal(before, after)


def test_rules_that_do_not_terminate_are_named() -> None:
    class Again(Rule[gc.NegOp]):
        ROOTS = (gc.NegOp,)

        def rewrite(self, op: gc.NegOp) -> Operand | None:
            return gc.NegOp(op.x)

    compilation, graph = Compilation(), GraphOp("main", ["x"], [TensorType(f32, [2])])
    with ImplicitBuilder(graph.block):
        ReturnOp([gc.NegOp(graph.block.args[0]).result], ["y"])
    with pytest.raises(PassError, match=r"does not terminate: .* applied: Again \(\d"):
        apply_rules(ModuleOp([graph]), [Again(compilation.weights)])


def test_deep_sums_and_concatenations() -> None:
    """Only the outermost of nested sums and concatenations is rewritten, in linear time."""

    def build(x: SSAValue, literal: Literal) -> Operand:
        total, joined = x, x
        for _ in range(2000):
            total = gc.AddOp(total, x).result
            joined = gc.ConcatOp([joined, x], axis=0).result
        return gc.AddOp(total, gc.ReduceSumOp(joined, axes=[0], keepdims=True))

    left, before, after = canonicalized(build, np.ones((1, 2), np.float32))
    assert left.count("concat") == 1
    np.testing.assert_array_equal(before, after)


LOOKED_UP = np.arange(21, dtype=np.float32).reshape(3, 7)


@pytest.mark.parametrize(
    ("indices", "left"),
    [
        ([2, 1, 0, 1, 2, 3, 4, 5, 6, 5], ["gather"]),
        ([4, 4, 4], ["slice", "broadcast"]),
        ([0, 2, 4, 6], ["slice"]),
        ([9, -2, -3], ["slice"]),
        ([3], ["slice"]),
        (3, ["slice", "reshape"]),
        ([[1, 2], [3, 4]], ["slice", "reshape"]),
        ([0, 3, 1, 4, 2, 6, 6, 0, 1], ["gather"]),
        ([0, 1, 2, 3, 4, 5, 6], []),
        ([], ["gather"]),
    ],
)
def test_gathers_with_constant_indices(indices: object, left: list[str]) -> None:
    def build(x: SSAValue, literal: Literal) -> Operand:
        return gc.GatherOp(x, literal(np.array(indices, np.int64)), axis=1)

    found, before, after = canonicalized(build, LOOKED_UP)
    assert found == left
    np.testing.assert_array_equal(before, after)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=14), st.integers(1, 4))
def test_runs_cover_all_indices_in_order(places: list[int], most: int) -> None:
    runs = runs_of(np.array(places), most)
    if runs is not None:
        assert [run.start + run.step * at for run in runs for at in range(run.count)] == places
        assert len(runs) <= most


def test_the_longest_run_takes_elements_of_both() -> None:
    """With reflected or repeated edges, the longest run is the whole row, which needs no slice."""
    for mode in ("reflect", "edge", "wrap"):
        places = np.pad(np.arange(6), (2, 3), mode=mode)  # type: ignore[call-overload]
        runs = runs_of(places, 4)
        assert runs is not None and runs[1] == Run(0, 1, 6)
