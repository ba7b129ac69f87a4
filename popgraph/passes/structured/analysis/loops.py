"""The loops of a structured operation, and strides of its tensors along them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from xdsl.dialects.builtin import (
    Float32Type,
    Float64Type,
    TensorType,
    i32,
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
    """Whether a layout has padding inside the tensor, not only a halo around it."""
    return halo_of(tensor(value)) is None and prod(physical_shape(tensor(value))) != prod(
        tensor(value).get_shape()
    )


@dataclass(frozen=True)
class Group:
    """Adjacent dimensions that run as one loop."""

    dims: tuple[int, ...]
    extent: int
    running: Extent | None = None
    """The end in a call, if it differs from the extent."""
    together: int = 1
    """Steps up to `running` per step of the loop; the last one may have fewer."""

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
    The loops over `dims`, outermost first, without loops of size 1.

    Neighbours are joined if every form has an even stride over both and neither is `separate`. A
    `running` dimension is the outermost one of its loop.
    """
    # A size of the call scales the outermost dimension: 0 <= d0 * 4 + d1 < size * 4.
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
    """The common float type of vectorized sums, if all types are equal."""
    kinds = set(types)
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    return kind if isinstance(kind, Float32Type | Float64Type) else None


def sum_type(op: tile.ReduceOp, *, scalar: bool = False) -> Attribute | None:
    """
    The type of vectorized sums; None if a contraction cannot be vectorized.

    Register tiles of a `scalar` machine hold sums of 32-bit integers, too.
    """
    if op.words is not None or (scalar and op.sum_type == i32):
        return op.sum_type
    return lane_type([op.sum_type])


def has_identity_epilogue(op: tile.ReduceOp) -> bool:
    """Whether the epilogue of a contraction is the identity."""
    return is_identity(op.epilogue.block)


def part_stride(
    value: SSAValue, map_: AffineMap, sizes: Shape, along: int, step: int
) -> int | None:
    """The stride between parts of a value for `step` indices of a loop; None if uneven."""
    divided = split_sizes(sizes, along, step)
    return offset(tensor(value), split_map(map_, along, step), divided).stride(along)


def has_even_strides(
    mapped: Iterable[tuple[SSAValue, AffineMap]], sizes: Shape, parts: Mapping[int, int]
) -> bool:
    """Whether parts of `{loop: step}` have even distances in all values."""
    return all(
        part_stride(value, map_, sizes, loop, step) is not None
        for value, map_ in mapped
        for loop, step in parts.items()
    )
