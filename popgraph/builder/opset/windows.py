"""What PopART's builder checks of the windows of convolutions and pools, when a node is added."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from popgraph.builder.opset.checks.node import spaced
from popgraph.support.errors import CallError
from popgraph.support.shapes import Shape

WINDOWED = ("AveragePool", "Conv", "MaxPool")
_PER_AXIS = ("strides", "dilations", "inDilations")
"""Attributes with a number for each spatial axis."""


def check_window(
    op_type: str,
    inputs: Sequence[str],
    shapes: Sequence[Shape | None],
    attributes: Mapping[str, object],
) -> None:
    """Raises PopART's error for a window that does not fit its input, if shapes are known."""
    pads = _numbers(attributes, "pads")
    shape = shapes[0] if shapes else None
    is_pad = op_type == "Pad" and "pads" in attributes
    if is_pad and shape is not None and len(pads) != 2 * len(shape):
        raise CallError(
            f"Padding vector (length {len(pads)}) doesn't contain 2 entries per input "
            f"dimension {len(shape)}"
        )
    if op_type not in WINDOWED:
        return
    kernel = _numbers(attributes, "kernel_shape")
    if op_type == "Conv":
        kernel = _kernel_of_weights(inputs, shapes, kernel)
    if shape is not None:
        _check_axes(len(shape) - 2, pads, attributes)
        _check_room(shape[2:], kernel, pads, attributes)


def _numbers(attributes: Mapping[str, object], name: str) -> Sequence[int]:
    value = attributes.get(name)
    return value if isinstance(value, list | tuple) else ()


def _pairs(pads: Sequence[int], axes: int) -> Iterable[tuple[int, int]]:
    """What is added before and behind each axis."""
    return zip(pads[:axes], pads[axes:], strict=True) if pads else [(0, 0)] * axes


def _kernel_of_weights(
    inputs: Sequence[str], shapes: Sequence[Shape | None], kernel: Sequence[int]
) -> Sequence[int]:
    if len(inputs) < 2:
        raise CallError(
            f"Conv requires at least two inputs: data, and weights. {len(inputs)} inputs provided."
        )
    weights = shapes[1]
    if weights is None:
        return ()
    if kernel and list(kernel) != list(weights[2:]):
        raise CallError(
            f"kernel_shape, {spaced(kernel)}, does not match inferred shape from weight input "
            f"'{inputs[1]}', {spaced(weights[2:])}"
        )
    return weights[2:]


def _check_axes(axes: int, pads: Sequence[int], attributes: Mapping[str, object]) -> None:
    if axes < 1:
        raise CallError("Input tensor has no spatial dimensions")
    for name in _PER_AXIS:
        given = _numbers(attributes, name)
        if given and len(given) != axes:
            raise CallError(
                f"Length of {name} vector {len(given)} != number of spatial dimensions {axes}"
            )
    for one in (pads, _numbers(attributes, "outPads")):
        if one and len(one) != 2 * axes:
            raise CallError(
                f"Padding vector (length {len(one)}) does not have 2 values for each spatial "
                f"dimension {axes}"
            )


def _check_room(
    sizes: Shape, kernel: Sequence[int], pads: Sequence[int], attributes: Mapping[str, object]
) -> None:
    """Whether the window fits into the padded input at all."""
    axes = len(sizes)
    if len(kernel) != axes or attributes.get("auto_pad", "NOTSET") not in ("", "NOTSET"):
        return
    ends = [low + high for low, high in _pairs(pads, axes)]
    behind = [low + high for low, high in _pairs(_numbers(attributes, "outPads"), axes)]
    strides, dilations, spreads = (_numbers(attributes, name) or [1] * axes for name in _PER_AXIS)
    rounded = math.ceil if attributes.get("ceil_mode") else math.floor
    found = []
    for k, size in enumerate(sizes):
        room = (size - 1) * spreads[k] + ends[k] - dilations[k] * (kernel[k] - 1)
        found += [1 + rounded(room / strides[k]) + behind[k]] if strides[k] > 0 else []
    if any(size < 0 for size in found):
        raise CallError(
            f"Window parameter values combine to give invalid spatial output shape: {spaced(found)}"
        )
