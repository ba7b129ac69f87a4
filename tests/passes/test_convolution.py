"""Tests DeformConv: sums over displaced window elements, and gradients."""

from __future__ import annotations

from itertools import product
from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from popgraph.support.arrays import Array
from tests.one_node import TOLERANCE, close, found, model, normal, of_both
from tests.passes.test_onnx_gradients import check

Given = dict[str, Array | None]


def interpolated(image: Array, at: list[float]) -> float:
    """Linear interpolation of an image at fractional indices, with zeros outside."""
    total = 0.0
    for corner in product((0, 1), repeat=len(at)):
        place = [floor(one) + step for one, step in zip(at, corner, strict=True)]
        if all(0 <= one < size for one, size in zip(place, image.shape, strict=True)):
            weights = [1 - abs(one - near) for one, near in zip(at, place, strict=True)]
            total += float(image[tuple(place)]) * float(np.prod(weights))
    return total


def by_definition(inputs: Given, attributes: dict[str, Any]) -> Array:
    """DeformConv by its definition, one product at a time."""
    x, w, offset = (inputs[name] for name in ("x", "w", "offset"))
    bias, mask = inputs.get("b"), inputs.get("mask")
    assert x is not None and w is not None and offset is not None
    kernel, windows, rank = w.shape[2:], offset.shape[2:], w.ndim - 2
    groups, shared = attributes["group"], attributes["offset_group"]
    low = attributes["pads"][:rank]
    moved = offset.reshape(x.shape[0], shared, *kernel, rank, *windows)
    factor = np.ones((x.shape[0], shared, *kernel, *windows))
    if mask is not None:
        factor = mask.reshape(factor.shape)
    y = np.zeros((x.shape[0], w.shape[0], *windows))
    for n, m, window in product(range(x.shape[0]), range(w.shape[0]), np.ndindex(*windows)):
        total = 0.0 if bias is None else float(bias[m])
        for c, element in product(range(w.shape[1]), np.ndindex(*kernel)):
            channel = m // (w.shape[0] // groups) * w.shape[1] + c
            group = channel // (x.shape[1] // shared)
            at = [
                window[axis] * attributes["strides"][axis]
                - low[axis]
                + element[axis] * attributes["dilations"][axis]
                + float(moved[(n, group, *element, axis, *window)])
                for axis in range(rank)
            ]
            weight = float(w[(m, c, *element)]) * float(factor[(n, group, *element, *window)])
            total += weight * interpolated(x[n, channel], at)
        y[(n, m, *window)] = total
    return y


@st.composite
def convolutions(draw: st.DrawFn, dtype: str = "float64") -> tuple[Given, dict[str, Any]]:
    rank = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 2 if rank > 1 else 3)) for _ in range(rank)]
    space = [draw(st.integers(2, 4)) for _ in range(rank)]
    group, shared = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (4, 2)]))
    attributes = {
        "group": group,
        "offset_group": shared,
        "strides": [draw(st.integers(1, 2)) for _ in range(rank)],
        "dilations": [draw(st.integers(1, 2)) for _ in range(rank)],
        "pads": [draw(st.integers(1, 2)) for _ in range(2 * rank)],
    }
    return arrays(kernel, space, attributes, draw(st.integers(0, 3)), dtype), attributes


def arrays(
    kernel: list[int], space: list[int], attributes: dict[str, Any], extras: int, dtype: str
) -> Given:
    rank, shared = len(kernel), attributes["offset_group"]
    pads, batch = attributes["pads"], 2 if rank < 3 else 1
    windows = [
        (space[axis] + pads[axis] + pads[rank + axis] - dilation * (kernel[axis] - 1) - 1) // stride
        + 1
        for axis, (dilation, stride) in enumerate(
            zip(attributes["dilations"], attributes["strides"], strict=True)
        )
    ]
    elements = shared * int(np.prod(kernel))
    return {
        "x": normal((batch, 4, *space), dtype, 0),
        "w": normal((4, 4 // attributes["group"], *kernel), dtype, 1),
        "offset": normal((batch, elements * rank, *windows), dtype, 2),
        "b": normal((4,), dtype, 3) if extras % 2 else None,
        "mask": normal((batch, elements, *windows), dtype, 4) if extras > 1 else None,
    }


@given(convolutions())
def test_deform_conv_values(case: tuple[Given, dict[str, Any]]) -> None:
    inputs, attributes = case
    close(found(model("DeformConv", inputs, **attributes), inputs)["y"], by_definition(*case))


@given(convolutions())
def test_deform_conv_gradients_are_slopes(case: tuple[Given, dict[str, Any]]) -> None:
    inputs, attributes = case
    proto = model("DeformConv", inputs, **attributes)
    some = [array for array in inputs.values() if array is not None]
    assert check(proto, some, [found(proto, inputs)["y"]])


@pytest.mark.parametrize(
    ("opset", "dtype"), [(19, "float32"), (19, "float16"), (22, "bfloat16"), (22, "float64")]
)
def test_deform_conv_versions_and_types(opset: int, dtype: str) -> None:
    attributes = {
        "group": 2,
        "offset_group": 2,
        "strides": [1, 2],
        "dilations": [1, 1],
        "pads": [1, 0, 1, 1],
    }
    inputs = arrays([3, 2], [5, 6], attributes, 3, dtype)
    y = of_both(model("DeformConv", inputs, opset=opset, **attributes), inputs)["y"]
    wide: Given = {
        name: None if array is None else array.astype(np.float64) for name, array in inputs.items()
    }
    wanted = by_definition(wide, attributes)
    margin = TOLERANCE[dtype] * np.abs(wanted).max()
    np.testing.assert_allclose(y.astype(np.float64), wanted, rtol=0, atol=margin)


def test_deform_conv_without_offsets_is_a_convolution() -> None:
    attributes = {"strides": [2, 1], "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    inputs: Given = {"x": normal((2, 4, 6, 6)), "w": normal((3, 4, 3, 3))}
    wanted = found(model("Conv", inputs, **attributes), inputs)["y"]
    moved = {**inputs, "offset": np.zeros((2, 18, *wanted.shape[2:]), np.float32)}
    close(found(model("DeformConv", moved, **attributes), moved)["y"], wanted)
