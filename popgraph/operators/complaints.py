"""Checks that many requirements share: axes, ranks, shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.typeproto import cannot_exist
from popgraph.dialects.onnx.types import Dim
from popgraph.dialects.onnx.view import NodeView, PartialShape

PADDING = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "")
"""The words of `auto_pad`."""

MOST = 2**31 - 1
"""The largest size, stride or length that a node may have."""


def differ(first: Dim, second: Dim) -> bool:
    """Whether two dimensions are known and different."""
    return isinstance(first, int) and isinstance(second, int) and first != second


def shown(shape: Sequence[Dim]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def in_range(what: str, axes: Iterable[int], rank: int | None, *, end: bool = False) -> Conflicts:
    """Axes are in [-rank, rank - 1]; with `end`, `rank` itself is allowed too."""
    if rank is None:
        return
    for axis in axes:
        if not -rank <= axis < rank + end:
            last = rank - 1 + end
            yield TypeConflict(
                f"{what} {axis} is out of range for {rank} axes", f"use {-rank} to {last}"
            )


def all_different(what: str, axes: Sequence[int], rank: int | None) -> Conflicts:
    if rank and len({axis % rank for axis in axes}) < len(axes):
        yield TypeConflict(f"duplicate axis in {what} {list(axes)}", "list every axis once")


def listed(node: NodeView, *indices: int) -> Conflicts:
    """Operands that hold lists are vectors or scalars."""
    for index in indices:
        yield from of_rank(node, index, 0, 1)


def axes_of(node: NodeView, name: str, index: int | None, rank: int | None) -> Conflicts:
    """A list of axes, as an attribute or an operand."""
    if index is not None:
        yield from listed(node, index)
    axes = node.given_integers(name, index)
    if axes is not None:
        yield from in_range("axis", axes, rank)
        yield from all_different(f"`{name}`", axes, rank)


def of_rank(node: NodeView, index: int, *ranks: int) -> Conflicts:
    """An operand has one of these ranks."""
    rank = node.rank_of(index)
    if rank is not None and rank not in ranks:
        wanted = " or ".join(map(str, ranks))
        yield TypeConflict(f"`{_name(node, index)}` has {rank} axes", f"it must have {wanted}")


def at_least(node: NodeView, index: int, least: int) -> Conflicts:
    """An operand has at least `least` axes."""
    rank = node.rank_of(index)
    if rank is not None and rank < least:
        yield TypeConflict(
            f"`{_name(node, index)}` has {rank} axes", f"it must have at least {least}"
        )


def of_shape(node: NodeView, index: int, *wanted: Dim) -> Conflicts:
    """An operand has this shape; unknown dimensions match any size."""
    shape = node.shape_of(index)
    if shape is None:
        return
    if len(shape) != len(wanted) or any(map(differ, shape, wanted)):
        yield TypeConflict(
            f"`{_name(node, index)}` is {shown(shape)}, not {shown(wanted)}",
            "its shape follows from the other inputs and the attributes",
        )


def one_element(node: NodeView, index: int) -> Conflicts:
    """An operand has one element. Some exporters write shape [1] where ONNX says scalar."""
    shape = node.shape_of(index)
    if shape is not None and any(differ(dim, 1) for dim in shape):
        yield TypeConflict(f"`{_name(node, index)}` is {shown(shape)}", "it must be a scalar")


def stretches(node: NodeView, index: int, to: PartialShape | None) -> Conflicts:
    """An operand broadcasts to a shape (unidirectionally)."""
    shape = node.shape_of(index)
    if shape is None or to is None:
        return
    pairs = zip(reversed(shape), reversed(to), strict=False)
    if len(shape) > len(to) or any(differ(a, b) and a != 1 for a, b in pairs):
        yield TypeConflict(
            f"`{_name(node, index)}` of shape {shown(shape)} does not broadcast to {shown(to)}",
            "its sizes, aligned at the last axis, must be equal to those or 1",
        )


def positive(node: NodeView, *names: str) -> Conflicts:
    """Integer attributes are at least 1."""
    for name in names:
        if name in node.op.properties and node.integer(name) < 1:
            yield TypeConflict(f"`{name}` is {node.integer(name)}", f"`{name}` must be 1 or more")


def wrong_sizes(sizes: Sequence[int]) -> Conflicts:
    """Sizes of a shape are 0 or more, and the number of elements is representable."""
    if cannot_exist(sizes):
        yield TypeConflict(f"no tensor has the shape {sizes}", "sizes must be 0 or more")


def _name(node: NodeView, index: int) -> str:
    assert isinstance(node.op, SchemaOp), "operators of ONNX have requirements"
    formals = node.op.SCHEMA.inputs
    return str(formals[min(index, len(formals) - 1)].name)
