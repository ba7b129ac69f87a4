"""Tests second derivatives: autodiff of every operation's gradient against finite differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.program import ConstantOp, DataAttr, YieldOp
from popgraph.passes.graphcore.training.autodiff import differentiate
from popgraph.support.arrays import Array
from tests.dialects.graphcore_run import Sample, build, is_float, run
from tests.dialects.test_op_contract import NO_GRADIENT, SMOOTH, cases, naming

STEP = 1e-5


def mixed(block: Block, values: Sequence[SSAValue], generator: np.random.Generator) -> SSAValue:
    """A random weighted sum of all elements of some values, emitted to a block."""
    terms: list[Operand] = []
    with ImplicitBuilder(block):
        for value in values:
            shape = shape_of(value)
            numbers = generator.uniform(0.5, 1.5, shape)
            product = gc.MulOp(value, ConstantOp(DataAttr.of(numbers)))
            terms.append(gc.ReduceSumOp(product, axes=range(len(shape)), keepdims=False))
        total = terms[0]
        for term in terms[1:]:
            total = gc.AddOp(total, term)
    return SSAValue.get(total)


def gradients(block: Block, target: SSAValue, sources: Sequence[SSAValue]) -> list[SSAValue]:
    end = YieldOp([target])
    block.add_op(end)
    found = differentiate(block, sources)
    Rewriter.erase_op(end)
    return found


def slopes(sample: Sample) -> tuple[list[float], list[float]]:
    """
    Second derivatives in some directions: by autodiff twice, and by differences of autodiff.

    The first derivative mixes all operands, so that mixed derivatives are covered.
    """
    generator = np.random.default_rng(3)
    built = build(sample)
    block, arrays = built.block, built.arrays
    results = [value for value in built.op.results if dtype_of(value).name == "f64"]
    sources = [block.args[at] for at, array in enumerate(arrays) if array.dtype == np.float64]
    first = mixed(block, gradients(block, mixed(block, results, generator), sources), generator)
    second = gradients(block, first, sources)
    at_hand = run(block, arrays)
    found, wanted = [], []
    for source, gradient in zip(sources, second, strict=True):
        direction = generator.uniform(-1, 1, shape_of(source))
        ends = []
        for sign in (1, -1):
            moved: list[Array] = list(arrays)
            moved[source.index] = moved[source.index] + sign * STEP * direction
            ends.append(float(run(block, moved)[first]))
        found.append(float(np.sum(at_hand[gradient] * direction)))
        wanted.append((ends[0] - ends[1]) / (2 * STEP))
    return found, wanted


TRIED = [each for each in SMOOTH if each.op not in NO_GRADIENT and any(map(is_float, each.arrays))]


@pytest.mark.parametrize("samples", cases(TRIED))
def test_second_derivatives_are_slopes_of_the_first(samples: Sequence[Sample]) -> None:
    for sample in samples:
        with naming(sample):
            found, wanted = slopes(sample)
            np.testing.assert_allclose(found, wanted, 2e-5, 2e-5)


def test_every_operation_with_a_gradient_has_a_second_one() -> None:
    """Composites without a gradient have the second derivatives of their expansion."""
    with_gradient = {op for op in gc.OPERATIONS if op.is_differentiable()} - NO_GRADIENT
    assert with_gradient <= {sample.op for sample in TRIED}


def test_second_derivatives_of_products_with_zeros() -> None:
    """Second derivatives of x * y * z with one or two zeros: the third factor, or zero."""
    for zeros, wanted in (((0,), [[0, 5, 3], [5, 0, 0], [3, 0, 0]]), ((0, 1), None)):
        x = np.array([2.0, 3.0, 5.0])
        x[list(zeros)] = 0
        expected = [[0, x[2], x[1]], [x[2], 0, x[0]], [x[1], x[0], 0]]
        assert wanted is None or expected == wanted
        for row in range(3):
            built = build(Sample(gc.ReduceProdOp, [x], {"axes": [0], "keepdims": False}))
            (first,) = gradients(built.block, built.op.results[0], built.block.args)
            with ImplicitBuilder(built.block):
                one = gc.SliceOp(first, starts=[row], sizes=[1], steps=[1]).result
            (second,) = gradients(built.block, one, built.block.args)
            np.testing.assert_allclose(run(built.block, [x])[second], expected[row])
