"""What PopART checks of the arguments of `multiconv`, and the shapes of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popgraph.builder.opset.exceptions import popart_exception
from popgraph.support.shapes import Shape

PER_END = ("pads", "outPads")
"""Parameters that have a number for both ends of every axis."""

Parameters = Mapping[str, Sequence[Sequence[int]]]


def checked_parameters(
    args: Sequence[Sequence[str]],
    weights: Sequence[Shape | None],
    given: Parameters,
    name: str,
) -> dict[str, list[int] | None]:
    """The parameters of all convolutions one after the other; errors in PopART's words."""
    for ids in args:
        if len(ids) < 2:
            raise popart_exception(
                f"Each convolution of MultiConvOp '{name}' must have at least two inputs - "
                "data and weights"
            )
        if len(ids) > 3:
            raise popart_exception(
                f"Each convolution of MultiConvOp '{name}' can have at most three inputs - "
                "data, weights, and bias"
            )
    return {one: _flat(one, sets, weights, name) for one, sets in given.items()}


def _flat(
    name: str, sets: Sequence[Sequence[int]], weights: Sequence[Shape | None], of: str
) -> list[int] | None:
    if not sets:
        return None
    if len(sets) != len(weights):
        raise popart_exception(
            f"For MultiConvOp '{of}', number of {name} parameter sets ({len(sets)}) does not "
            f"match the number of input sets ({len(weights)})"
        )
    for one, shape in zip(sets, weights, strict=True):
        if shape is None:
            continue
        wanted = (len(shape) - 2) * (2 if name in PER_END else 1)
        if len(one) != wanted:
            times = " * 2" if name in PER_END else ""
            raise popart_exception(
                f"Length of {name} vector {len(one)} != number of spatial dimensions"
                f"{times} {len(shape) - 2}"
            )
    return [number for one in sets for number in one]


def convolved_shape(
    data: Shape | None, weights: Shape | None, place: int, given: Parameters
) -> Shape | None:
    """The shape of one of the results."""
    if data is None or weights is None:
        return None
    rank = len(weights) - 2

    def of(name: str, default: int) -> Sequence[int]:
        wanted = rank * (2 if name in PER_END else 1)
        return given[name][place] if given[name] else [default] * wanted

    ones = (of(name, 1) for name in ("strides", "dilations", "inDilations"))
    pads, behind = of("pads", 0), of("outPads", 0)
    spatial = []
    for axis, (stride, dilation, spread) in enumerate(zip(*ones, strict=True)):
        size = (data[2 + axis] - 1) * spread + 1 + pads[axis] + pads[rank + axis]
        room = size - dilation * (weights[2 + axis] - 1) - 1
        spatial.append(room // stride + 1 + behind[axis] + behind[rank + axis])
    return (data[0], weights[0], *spatial)
