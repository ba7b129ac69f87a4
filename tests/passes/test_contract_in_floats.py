"""Tests sums of integer products that are computed in floats: exact, split, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from popgraph.compiler import load, lower
from popgraph.dialects import tile
from popgraph.dialects.graphcore import ConvOp, MatMulOp
from popgraph.dialects.graphcore.base import dtype_of
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from tests.one_node import model, of_both

LONGEST = (1 << 24) // (255 * 128)
"""Number of products of the largest bytes whose sum f32 holds exactly."""


def full(value: int, kind: type, *shape: int) -> Array:
    return np.full(shape, value, kind)


def contractions(proto: ModelProto) -> list[str]:
    """Element types of all matmuls and convolutions."""
    module, compilation = load(proto)
    without = Options(disabled=frozenset({"contract-in-words"}))
    lower(module, compilation, without, level="graphcore")
    found = (op for op in module.walk() if isinstance(op, MatMulOp | ConvOp))
    return [dtype_of(op.results[0]).name for op in found]


@pytest.mark.parametrize(
    ("terms", "parts"),
    [(LONGEST, 1), (LONGEST + 1, 2), (3 * (LONGEST - LONGEST % 16), 3), (9000, 0)],
)
def test_integer_matmuls_are_split_where_floats_would_round(terms: int, parts: int) -> None:
    inputs = {"a": full(255, np.uint8, 2, terms), "b": full(-128, np.int8, terms, 3)}
    inputs["b"][0, 1] = 127  # An odd sum, which floats would round beyond 2^24.
    proto = model("MatMulInteger", inputs)
    assert contractions(proto) == (["f32"] * parts or ["i32"])
    wanted = inputs["a"].astype(np.int64) @ inputs["b"].astype(np.int64)
    assert np.array_equal(of_both(proto, inputs)["y"], wanted)


def test_constant_weights_bound_the_sums() -> None:
    """The bound of each result is the sum of its own weights, not of the largest one."""
    inputs = {"a": full(255, np.uint8, 2, 8192), "b": full(8, np.int8, 8192, 3)}
    inputs["b"][::3, 1] = -8
    wanted = inputs["a"].astype(np.int64) @ inputs["b"].astype(np.int64)
    for scale, parts in ((1, 1), (4, 4)):
        given = {"a": inputs["a"], "b": inputs["b"] * np.int8(scale)}
        proto = model("MatMulInteger", given, constants=["b"])
        assert contractions(proto) == ["f32"] * parts
        assert np.array_equal(of_both(proto, given)["y"], wanted * scale)


def test_unbounded_integers_are_not_contracted_in_floats() -> None:
    wide = {"a": full(1 << 20, np.int32, 2, 4), "b": full(3, np.int32, 4, 2)}
    proto = model("MatMul", wide)
    assert contractions(proto) == ["i32"]
    assert np.array_equal(of_both(proto, wide)["y"], wide["a"] @ wide["b"])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("disabled", [frozenset[str](), frozenset({"fuse-epilogue"})])
def test_integer_convolutions_are_exact(groups: int, disabled: frozenset[str]) -> None:
    """Winograd transforms would round; they are used for the same convolution of floats."""
    random = np.random.default_rng(groups)
    images = random.integers(0, 256, (1, 32, 12, 12)).astype(np.uint8)
    filters = random.integers(-128, 128, (32, 32 // groups, 3, 3)).astype(np.int8)
    whole = {"x": images, "w": filters}
    real = {name: array.astype(np.float32) for name, array in whole.items()}
    attributes = {"pads": [1, 1, 1, 1], "group": groups}
    options = Options(disabled=disabled)
    kinds = []
    for operator, inputs in (("ConvInteger", whole), ("Conv", real)):
        proto = model(operator, inputs, constants=["w"], **attributes)
        module, compilation = load(proto)
        lower(module, compilation, options, level="structured")
        kinds.append(any(isinstance(op, tile.TransformTilesOp) for op in module.walk()))
    assert kinds == [False, groups == 1]
    proto = model("ConvInteger", whole, constants=["w"], **attributes)
    found = of_both(proto, whole)["y"]
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1))).astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    halves = [
        np.einsum("nchwij,mcij->nmhw", part, weights.astype(np.int64))
        for part, weights in zip(
            np.split(windows, groups, axis=1), np.split(filters, groups), strict=True
        )
    ]
    assert np.array_equal(found, np.concatenate(halves, axis=1))
