"""Tests that a tensor equal to another one keeps its own name, value and gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.support.arrays import Array
from tests.popart.stepping import one_step

AGAIN: dict[str, Callable[[popart.Builder, str], str]] = {
    "identity": lambda b, x: b.aiOnnx.identity([x]),
    "reshape": lambda b, x: b.aiOnnx.reshape([x, b.aiOnnx.constant(np.array([2]))]),
    "cast": lambda b, x: b.aiOnnx.cast([x], "FLOAT"),
    "transpose": lambda b, x: b.aiOnnx.transpose([x], [0]),
    "flatten of its kind": lambda b, x: b.aiOnnx.squeeze([b.aiOnnx.unsqueeze([x], [0])], [0]),
    "expand": lambda b, x: b.aiOnnx.expand([x, b.aiOnnx.constant(np.array([2]))]),
    "dropout of nothing": lambda b, x: b.aiOnnx.dropout([x], 1, 0.0)[0],
    "sum of one": lambda b, x: b.aiOnnx.sum([x]),
    "identity twice": lambda b, x: b.aiOnnx.identity([b.aiOnnx.identity([x])]),
    "detach": lambda b, x: b.aiGraphcore.detach([x]),
}
"""Operators that return their input unchanged."""


def anchored(
    again: Callable[[popart.Builder, str], str], names: Callable[[str, str], list[str]]
) -> list[Array]:
    """The anchors of one step with `loss = sum(x + 3 * again(x))`, where x is a weight."""
    builder = popart.Builder()
    x = builder.addInitializedInputTensor(np.array([1, 2], np.float32), "x")
    y = again(builder, x)
    tripled = builder.aiOnnx.mul([y, builder.aiOnnx.constant(np.array([3], np.float32))])
    total = builder.aiOnnx.add([x, tripled])
    loss = builder.aiGraphcore.identityloss([total], popart.ReductionType.Sum)
    wanted = names(x, y)
    anchors = one_step(builder, loss, wanted, {})
    return [anchors[name] for name in wanted]


@pytest.mark.parametrize("kind", AGAIN)
def test_gradients_count_the_readers_of_a_name(kind: str) -> None:
    prefix = popart.reservedGradientPrefix()
    of_x, of_y = anchored(AGAIN[kind], lambda x, y: [prefix + x, prefix + y])
    np.testing.assert_array_equal(of_y, [3, 3])
    np.testing.assert_array_equal(of_x, [1, 1] if kind == "detach" else [4, 4])


@pytest.mark.parametrize("kind", AGAIN)
def test_a_copy_keeps_its_value_while_the_weight_is_updated(kind: str) -> None:
    after, same = anchored(AGAIN[kind], lambda x, y: [x, y])
    np.testing.assert_array_equal(same, [1, 2])
    np.testing.assert_array_equal(after, [0.5, 1.5] if kind == "detach" else [-1, 0])
