"""What PopART asks of operators that collect rows at indices: it has one class for all of them."""

from __future__ import annotations

from popgraph.builder.opset.checks.node import Node
from popgraph.builder.opset.checks.rules import Complaints, at_least, axis, flag
from popgraph.support import shapes
from popgraph.support.shapes import Shape

_RANGE = "ScatterReduceOp::setup axis = {axis} is outside the acceptable range [{least}, {most}]"

SCATTER_SIZES = (
    at_least("axis_size", 1, "ScatterReduceOp axis_size = {value} is not valid: must be > 0.", 1),
    at_least("group_size", 1, "ScatterReduceOp group_size = {value} is not valid: must be > 0.", 1),
    flag(
        "enable_index_broadcast",
        "ScatterReduceOp enable_index_broadcast = {value} is not valid: must be either 0 or 1.",
        default=1,
    ),
    axis(_RANGE),
)


def scattered_indices(node: Node) -> Complaints:
    """Indices lie beside the values that are collected: as they are, or stretched to them."""
    yield from beside_source(node, 0, axis=-1, partial=not node.number("enable_index_broadcast", 1))


def beside_source(node: Node, source: int, axis: int, partial: bool) -> Complaints:
    """
    Indices, the second operand, stretch to the shape of a source.

    `axis` is its place where the node does not say; `partial` lets them have sizes of their own.
    """
    data, indices = node.shape(source), node.shape(1)
    if data is None or indices is None or data == indices:
        return
    if len(indices) > len(data):
        yield (
            "Invalid rank for indices input. "
            f"Indices rank {len(indices)} must be <= data input rank {len(data)}."
        )
    elif data:
        yield from _stretching(node, data, indices, node.number("axis", axis), partial)


def _stretching(node: Node, data: Shape, indices: Shape, axis: int, partial: bool) -> Complaints:
    group = node.number("group_size", 1) > 1
    place = axis % len(data)
    stretched = shapes.beside_data(indices, len(data), place, group)
    if any(one > other for one, other in zip(stretched, data, strict=True)):
        yield (
            f"Failed to expand 'indices' shape {_listed(indices)} to match 'src' shape "
            f"{_listed(data)} using reduction axis = {place}."
        )
    others = [size for at, size in enumerate(stretched) if at != place and at >= int(group)]
    if not partial and stretched != data and any(size != 1 for size in others):
        yield "Partial broadcasting of indices is not currently supported."


def _listed(shape: Shape) -> str:
    """A shape as PopART's library of arrays writes it."""
    return f"({','.join(map(str, shape))})"


def scattered_updates(node: Node) -> Complaints:
    """ONNX's Scatter is asked about its updates, which come last."""
    yield from beside_source(node, 2, axis=0, partial=True)


SCATTERED = (axis(_RANGE, default=0, place=2), scattered_updates)
ROWS = {"Scatter": SCATTERED, "ScatterElements": SCATTERED}
