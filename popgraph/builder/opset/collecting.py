"""What PopART checks of the arguments of `scatterreduce`."""

from __future__ import annotations

from popgraph.builder.opset.exceptions import popart_exception
from popgraph.support import shapes
from popgraph.support.shapes import Shape


def check_scattering(
    data: Shape | None,
    indices: Shape | None,
    axis: int,
    axis_size: int,
    broadcast: int,
    group_size: int,
) -> None:
    """Errors in PopART's words, as far as shapes are known."""
    for name, size in (("axis_size", axis_size), ("group_size", group_size)):
        if size < 1:
            raise popart_exception(f"ScatterReduceOp {name} = {size} is not valid: must be > 0.")
    if data is None:
        return
    if not -len(data) <= axis < len(data):
        raise popart_exception(
            f"ScatterReduceOp::setup axis = {axis} is outside the acceptable range "
            f"[{-len(data)}, {len(data) - 1}]"
        )
    if indices is not None and len(indices) > len(data):
        raise popart_exception(
            "Invalid rank for indices input. "
            f"Indices rank {len(indices)} must be <= data input rank {len(data)}."
        )
    if indices is not None and broadcast:
        _check_stretching(data, indices, axis, group_size)


def _check_stretching(data: Shape, indices: Shape, axis: int, group_size: int) -> None:
    grouped = group_size > 1
    place = axis % len(data)
    stretched = shapes.beside_data(indices, len(data), place, grouped)
    if any(one > other for one, other in zip(stretched, data, strict=True)):
        raise popart_exception(
            f"Failed to expand 'indices' shape {list(indices)} to match 'src' shape {list(data)} "
            f"using reduction axis = {axis}."
        )
    others = [size for at, size in enumerate(stretched) if at != place and at >= int(grouped)]
    if stretched != data and any(size != 1 for size in others):
        raise popart_exception(
            "Partial broadcasting of indices is not currently supported.",
            hint="indices have the shape of the data, or are a vector along the axis",
        )
