"""What PopART checks of the arguments of `multiconv`, and the shapes of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popgraph.builder.opset.windows import check_window
from popgraph.support.errors import CallError
from popgraph.support.shapes import Shape

PER_END = ("pads", "outPads")
"""Parameters that have a number for both ends of every axis."""

Parameters = Mapping[str, Sequence[Sequence[int]]]


def check_sets(
    args: Sequence[Sequence[str]], given: Mapping[str, Sequence[object]], name: str
) -> None:
    """Each convolution has its operands, and a set of every parameter; errors are PopART's."""
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
    """The parameters of all convolutions, whose operands have shapes, one after the other."""
    for place, (ids, found) in enumerate(zip(args, of, strict=True)):
        own = {name: sets[place] for name, sets in given.items() if sets}
        check_window("Conv", ids, found, own)
    return {name: [one for set_ in sets for one in set_] or None for name, sets in given.items()}


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
