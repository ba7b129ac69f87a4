"""The loops of a structured operation, and what its tensors take in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from xdsl.dialects.builtin import (
    Float32Type,
    Float64Type,
    TensorType,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import (
    AffineMap,
)

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.attributes import halo_of, physical_shape
from popgraph.dialects.tile.running import Extent
from popgraph.dialects.tile.structured.ops import is_identity
from popgraph.passes.structured.analysis.panels import (
    split_map,
    split_sizes,
)
from popgraph.support.shapes import Shape, prod


def tensor(value: SSAValue) -> TensorType[Attribute]:
    assert isinstance(value.type, TensorType)
    return value.type


def has_gaps(value: SSAValue) -> bool:
    """Whether a layout leaves elements out here and there, not only around the tensor."""
    return halo_of(tensor(value)) is None and prod(physical_shape(tensor(value))) != prod(
        tensor(value).get_shape()
    )


@dataclass(frozen=True)
class Group:
    """Neighbouring dimensions that run as one loop."""

    dims: tuple[int, ...]
    extent: int
    running: Extent | None = None
    """The end in a call, if it is not the extent."""
    together: int = 1
    """The steps up to `running` in one step of the loop; the last one may have fewer."""

    @property
    def last(self) -> int:
        return self.dims[-1]


def group_loops(
    dims: Iterable[int],
    sizes: Shape,
    forms: Sequence[Linear],
    separate: frozenset[int] = frozenset(),
    running: Mapping[int, Extent] = MappingProxyType({}),
) -> list[Group]:
    """
    The loops over `dims`, outermost first; those of size 1 vanish.

    Neighbours are joined where every form steps over them evenly, unless one of them is `separate`.
    A `running` dimension is the outermost one of its loop.
    """
    groups: list[Group] = []
    for dim in dims:
        if sizes[dim] == 1:
            continue
        if (
            groups
            and dim not in running
            and not {dim, groups[-1].last} & separate
            and _even(groups[-1].last, dim, sizes, forms)
        ):
            before = groups[-1]
            end = before.running and before.running.scaled(sizes[dim])
            groups[-1] = Group((*before.dims, dim), before.extent * sizes[dim], end)
        else:
            groups.append(Group((dim,), sizes[dim], running.get(dim)))
    return groups


def _even(outer: int, inner: int, sizes: Shape, forms: Sequence[Linear]) -> bool:
    for form in forms:
        far, near = form.stride(outer), form.stride(inner)
        if far is None or near is None or far != near * sizes[inner]:
            return False
    return True


def lane_type(types: Sequence[Attribute]) -> Attribute | None:
    """The one float type that sums of products on vectors are made of, if there is one."""
    kinds = set(types)
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    return kind if isinstance(kind, Float32Type | Float64Type) else None


def sum_type(op: tile.ReduceOp) -> Attribute | None:
    """The type of the sums that vectors hold; None for a contraction that is not for vectors."""
    return op.sum_type if op.words is not None else lane_type([op.sum_type])


def has_identity_epilogue(op: tile.ReduceOp) -> bool:
    """Whether the epilogue of a contraction does nothing."""
    return is_identity(op.epilogue.block)


def part_stride(
    value: SSAValue, map_: AffineMap, sizes: Shape, along: int, step: int
) -> int | None:
    """How far apart in memory are the parts of a value for so many indices of a loop?"""
    divided = split_sizes(sizes, along, step)
    return offset(tensor(value), split_map(map_, along, step), divided).stride(along)


def is_cut_evenly(
    mapped: Iterable[tuple[SSAValue, AffineMap]], sizes: Shape, parts: Mapping[int, int]
) -> bool:
    """Whether parts of so many indices of these loops are evenly apart in all values."""
    return all(
        part_stride(value, map_, sizes, loop, step) is not None
        for value, map_ in mapped
        for loop, step in parts.items()
    )
