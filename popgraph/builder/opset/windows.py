"""PopART's builder checks of convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

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
        _check_kernel_fits(shape[2:], kernel, pads, attributes)


def _numbers(attributes: Mapping[str, object], name: str) -> Sequence[int]:
    value = attributes.get(name)
    return value if isinstance(value, list | tuple) else ()


def _added(pads: Sequence[int], axes: int) -> Sequence[int]:
    """The total padding of each axis."""
    return [low + high for low, high in zip(pads[:axes], pads[axes:], strict=True)] or [0] * axes


def _outputs(axis: tuple[int, ...], rounded: Callable[[float], int] = math.floor) -> int:
    """The output size of a window along an axis."""
    size, kernel, stride, dilation, spread, padded, output_padding = axis
    room = (size - 1) * spread + padded - dilation * (kernel - 1)
    return 1 + rounded(room / stride) + output_padding


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


def _check_kernel_fits(
    sizes: Shape, kernel: Sequence[int], pads: Sequence[int], attributes: Mapping[str, object]
) -> None:
    """Checks that the window fits into the padded input."""
    axes = len(sizes)
    if len(kernel) != axes or attributes.get("auto_pad", "NOTSET") not in ("", "NOTSET"):
        return
    strides, dilations, spreads = (_numbers(attributes, name) or [1] * axes for name in _PER_AXIS)
    rounded = math.ceil if attributes.get("ceil_mode") else math.floor
    added = _added(pads, axes), _added(_numbers(attributes, "outPads"), axes)
    parameters = zip(sizes, kernel, strides, dilations, spreads, *added, strict=True)
    found = [_outputs(one, rounded) for one in parameters if one[2] > 0]
    if any(size < 0 for size in found):
        raise CallError(
            f"Window parameter values combine to give invalid spatial output shape: {spaced(found)}"
        )


PER_END = ("pads", "outPads")
"""Parameters with a number for both ends of every axis."""

Parameters = Mapping[str, Sequence[Sequence[int]]]


def check_sets(
    args: Sequence[Sequence[str]], given: Mapping[str, Sequence[object]], name: str
) -> None:
    """Checks the operands and parameter sets of each convolution, with PopART's errors."""
    for ids in args:
        if len(ids) < 2:
            raise CallError(
                f"Each convolution of MultiConvOp '{name}' must have at least two inputs - "
                "data and weights"
            )
        if len(ids) > 3:
            raise CallError(
                f"Each convolution of MultiConvOp '{name}' can have at most three inputs - "
                "data, weights, and bias"
            )
    for one, sets in given.items():
        if sets and len(sets) != len(args):
            raise CallError(
                f"For MultiConvOp '{name}', number of {one} parameter sets ({len(sets)}) does not "
                f"match the number of input sets ({len(args)})"
            )


def checked_parameters(
    args: Sequence[Sequence[str]], of: Sequence[Sequence[Shape | None]], given: Parameters
) -> dict[str, list[int] | None]:
    """Flattens the parameters of all convolutions."""
    for index, (ids, found) in enumerate(zip(args, of, strict=True)):
        own = {name: sets[index] for name, sets in given.items() if sets}
        check_window("Conv", ids, found, own)
    return {name: [one for set_ in sets for one in set_] or None for name, sets in given.items()}


def convolved_shape(
    data: Shape | None, weights: Shape | None, index: int, given: Parameters
) -> Shape | None:
    """The shape of one of the results."""
    if data is None or weights is None:
        return None
    rank = len(weights) - 2

    def of(name: str, default: int) -> Sequence[int]:
        wanted = rank * (2 if name in PER_END else 1)
        return given[name][index] if given[name] else [default] * wanted

    ones = (of(name, 1) for name in ("strides", "dilations", "inDilations"))
    added = (_added(of(name, 0), rank) for name in ("pads", "outPads"))
    axes = zip(data[2:], weights[2:], *ones, *added, strict=True)
    return (data[0], weights[0], *(_outputs(one) for one in axes))
