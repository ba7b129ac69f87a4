"""Tests graphcore operations on values computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects.builtin import i1, i32

from popgraph.dialects import graphcore as gc
from tests.dialects.graphcore_run import Sample, analytic, build, expanded, run


def value(op: Any, *operands: Any, **properties: Any) -> Any:
    """The first result, as nested lists."""
    built = build(Sample(op, operands, properties))
    return built.op.evaluate(*built.arrays)[0].tolist()


def floats(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def whole(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


NAN, INF = float("nan"), float("inf")


def test_integer_division_truncates_toward_zero() -> None:
    assert value(gc.DivOp, whole(7, -7, 7, -7, 0), whole(2, 2, -2, -2, 3)) == [3, -3, -3, 3, 0]


def test_integer_division_by_zero_and_overflow() -> None:
    least = -(2**31)
    assert value(gc.DivOp, whole(5, least), whole(0, -1)) == [0, least]


def test_integer_powers() -> None:
    powers = value(gc.PowOp, whole(2, -3, 2, 1, -1, -1, 0), whole(10, 3, -1, -5, -3, -2, 0))
    assert powers == [1024, -27, 0, 1, -1, 1, 1]


def test_integers_wrap() -> None:
    assert value(gc.AddOp, whole(2**31 - 1), whole(1)) == [-(2**31)]
    assert value(gc.MulOp, whole(2**30), whole(4)) == [0]
    assert value(gc.AbsOp, whole(-(2**31))) == [-(2**31)]


def test_round_ties_to_even() -> None:
    assert value(gc.RoundOp, floats(0.5, 1.5, 2.5, -0.5, -1.5, 2.4)) == [0, 2, 2, 0, -2, 2]


def test_extremes_propagate_nan() -> None:
    np.testing.assert_array_equal(value(gc.MaxOp, floats(NAN, 1), floats(0, NAN)), [NAN, NAN])
    np.testing.assert_array_equal(value(gc.MinOp, floats(NAN, 1), floats(0, NAN)), [NAN, NAN])
    np.testing.assert_array_equal(value(gc.ReluOp, floats(NAN, -1, 2)), [NAN, 0, 2])
    pool = {"kernel": (2,), "strides": (1,), "dilations": (1,), "pads": (0, 0), "sizes": (2,)}
    np.testing.assert_array_equal(
        value(gc.MaxPoolOp, floats(1, 2, NAN).reshape(1, 1, 3), **pool), [[[2, NAN]]]
    )


def test_arg_max_with_ties_and_nans() -> None:
    options: dict[str, Any] = {"axis": 0, "keepdims": False}
    assert value(gc.ArgMaxOp, floats(1, 3, 3), **options) == 1
    assert value(gc.ArgMaxOp, floats(1, 3, 3), last=True, **options) == 2
    assert value(gc.ArgMinOp, floats(1, NAN, 0), **options) == 1
    assert value(gc.ArgMaxOp, floats(-INF, -INF), last=True, **options) == 1


def test_casts() -> None:
    assert value(gc.CastOp, floats(1.9, -1.9, 0.5), to=i32) == [1, -1, 0]
    assert value(gc.CastOp, floats(1.9, 0, NAN), to=i1) == [True, False, True]
    assert value(gc.CastOp, np.array([2**32 + 5]), to=i32) == [5]


def test_gather_clamps_and_wraps_indices() -> None:
    data = floats(10, 20, 30)
    assert value(gc.GatherOp, data, np.array([0, -1, -3, 2]), axis=0) == [10, 30, 10, 30]
    assert value(gc.GatherOp, data, np.array([3, 99, -4, -99]), axis=0) == [30, 30, 10, 10]


def test_gather_grad_adds_duplicates() -> None:
    indices = np.array([1, 1, -1])
    assert value(gc.GatherGradOp, floats(1, 2, 4), indices, axis=0, size=3) == [0, 3, 4]


def test_pad_interior() -> None:
    padded = value(gc.PadOp, floats(1, 2), low=(1,), high=(2,), interior=(1,), value=9.0)
    assert padded == [9, 1, 9, 2, 9, 9]


def test_slice_with_negative_steps() -> None:
    assert value(gc.SliceOp, floats(0, 1, 2, 3, 4), starts=(4,), sizes=(3,), steps=(-2,)) == [
        4,
        2,
        0,
    ]


def test_average_pool_divides_by_the_window_inside_the_input() -> None:
    options: dict[str, Any] = {"strides": (2,), "dilations": (1,), "pads": (1, 0), "sizes": (3,)}
    x = floats(6, 12, 18, 24).reshape(1, 1, 4)
    seen = value(gc.AveragePoolOp, x, kernel=(3,), include_pad=False, **options)
    padded = value(gc.AveragePoolOp, x, kernel=(3,), include_pad=True, **options)
    # The last window holds one element; positions past the padding never count.
    assert seen == [[[9, 18, 24]]]
    assert padded == [[[6, 18, 24]]]


def test_max_pool_grad_goes_to_the_first_maximum() -> None:
    options: dict[str, Any] = {
        "kernel": (2, 2),
        "strides": (2, 2),
        "dilations": (1, 1),
        "pads": (0,) * 4,
        "sizes": (1, 1),
    }
    x = floats(1, 5, 5, 5).reshape(1, 1, 2, 2)
    dy = floats(7).reshape(1, 1, 1, 1)
    assert value(gc.MaxPoolGradOp, x, dy, **options) == [[[[0, 7], [0, 0]]]]


def test_nll_clamps_as_popart_does() -> None:
    options: dict[str, Any] = {"reduction": "none", "log_probabilities": False}
    sure = np.array([[0, 1], [0.5, 0.5]], np.float32)
    losses = value(gc.NllLossOp, sure, whole(0, 1), **options)
    np.testing.assert_allclose(losses, [-np.log(1e-7), np.log(2)], rtol=1e-6)
    slopes = value(gc.NllLossGradOp, sure, whole(0, 1), floats(1, 1), **options)
    np.testing.assert_allclose(slopes, [[-1e10, 0], [0, -2]], rtol=1e-6)
    half = value(gc.NllLossOp, sure.astype(np.float16), whole(0, 1), **options)
    np.testing.assert_allclose(half, [-np.log(6.104e-5), np.log(2)], rtol=1e-3)


def test_nll_leaves_ignored_samples_out_of_the_mean() -> None:
    rows = np.array([[0.5, 0.5], [0.25, 0.75], [0.1, 0.9]], np.float32)
    options: dict[str, Any] = {"reduction": "mean", "log_probabilities": False, "ignore_index": 9}
    loss = value(gc.NllLossOp, rows, whole(0, 9, 0), **options)
    np.testing.assert_allclose(loss, (np.log(2) + np.log(10)) / 2, rtol=1e-6)
    assert value(gc.NllLossOp, rows, whole(9, 9, 9), **options) == 0


def test_means_in_f16_divide_by_counts_beyond_its_range() -> None:
    count = 70000
    x, one, share = np.ones(count, np.float16), np.ones((), np.float16), np.float16(1 / count)
    for op, options in (
        (gc.ReduceMeanOp, {"axes": (0,), "keepdims": False}),
        # all elements tie, so each gets 1 / count
        (gc.ReduceMaxOp, {"axes": (0,), "keepdims": False}),
        (gc.L1LossOp, {"scale": 1.0, "reduction": "mean"}),
        (gc.IdentityLossOp, {"reduction": "mean"}),
    ):
        (gradient,) = analytic(build(Sample(op, [x], options)), [one])
        assert gradient is not None
        assert (gradient == share).all()
    nll = {"reduction": "mean", "log_probabilities": True}
    rows = [-2 * x[:, None], np.zeros(count, np.int32)]
    for more in ({}, {"ignore_index": 1}):
        loss = build(Sample(gc.NllLossOp, rows, nll | more))
        (mean,) = expanded(loss)
        assert run(loss.block, loss.arrays)[mean] == 2
        slope = build(Sample(gc.NllLossGradOp, [*rows, one], nll | more))
        (slopes,) = expanded(slope)
        assert (run(slope.block, slope.arrays)[slopes] == -share).all()


def test_ties_share_the_gradient() -> None:
    """Max and Min give half to each tied operand, ReduceMax an equal share, Abs nothing at 0."""

    def gradients(op: Any, *operands: Any, **properties: Any) -> list[Any]:
        built = build(Sample(op, operands, properties))
        shape = built.op.infer()[0].get_shape()
        return [None if g is None else g.tolist() for g in analytic(built, [np.ones(shape)])]

    def doubles(*numbers: float) -> Any:
        return np.array(numbers, np.float64)

    assert gradients(gc.MaxOp, doubles(1, 2), doubles(1, 0)) == [[0.5, 1], [0.5, 0]]
    assert gradients(gc.MinOp, doubles(1, 2), doubles(1, 0)) == [[0.5, 0], [0.5, 1]]
    tied = gradients(gc.ReduceMaxOp, doubles(3, 1, 3), axes=(0,), keepdims=False)
    assert tied == [[0.5, 0, 0.5]]
    assert gradients(gc.AbsOp, doubles(-2, 0, 2)) == [[-1, 0, 1]]
    assert gradients(gc.ReluOp, doubles(-2, 0, 2)) == [[0, 0, 1]]
    loss = gradients(gc.L1LossOp, doubles(-2, 0, 2, 4), scale=2.0, reduction="mean")
    assert loss == [[-0.5, 0, 0.5, 0.5]]
    powers = gradients(gc.PowOp, doubles(0, 0, 2), doubles(0, 2, 3))
    assert powers[0] == [0, 0, 12]
    np.testing.assert_allclose(powers[1], [0, 0, 8 * np.log(2)])


def test_dropout_keeps_the_mean() -> None:
    x = np.ones(20000, np.float32)
    built = build(Sample(gc.DropoutOp, [x, np.array([4, 0])], {"ratio": 0.25, "stream": 3}))
    y, mask = built.op.evaluate(*built.arrays)
    assert abs(mask.mean() - 0.75) < 0.02
    np.testing.assert_allclose(y, np.where(mask, np.float32(4 / 3), 0), rtol=1e-6)
