"""Memory accesses of kernels: loop indices, chunk bounds, offsets, in-place operands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from xdsl.dialects import arith
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
)

from popgraph.dialects.tile.affine import Linear, linear, offset, reads_whole
from popgraph.dialects.tile.cut import CutAttr
from popgraph.passes.structured.analysis.loops import Group, has_gaps, tensor
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer
from popgraph.support.shapes import Shape, prod

FIRST = Index()


@dataclass(frozen=True)
class Access:
    """The elements of a tensor in memory: that of domain index `i` is at `start + form(i)`."""

    memory: SSAValue
    form: Linear
    start: Index = field(default_factory=Index)


def argument_number(memory: SSAValue) -> int | None:
    """The number of a memory among the kernel's arguments; None for local memory."""
    return memory.index if isinstance(memory, BlockArgument) else None


@dataclass
class Register:
    """A scalar without memory; holds the value written last."""

    value: SSAValue | None = None


Source = Access | Register
"""The source of a body's operand, or the target of its result."""


def accesses(
    memories: Sequence[SSAValue],
    values: Sequence[SSAValue],
    maps: Sequence[AffineMap],
    sizes: Shape,
) -> list[Access]:
    """The accesses to these values in their memories."""
    return [
        Access(memory, offset(tensor(value), map_, sizes))
        for memory, value, map_ in zip(memories, values, maps, strict=True)
    ]


class IterationPoint:
    """The current index of each loop of a domain; loops that are not open yet are at 0."""

    def __init__(self, writer: Writer, sizes: Shape) -> None:
        self.writer = writer
        self.sizes = sizes
        self.indices: dict[int, Index] = {dim: Index() for dim in range(len(sizes))}

    def bind(self, group: Group, index: Index) -> None:
        """Sets the index of the loop of `group`."""
        # Joined dimensions have one counter, in steps of the last: (i, j) is i * size(j) + j.
        self.indices[group.last] = index

    def new_dim(self) -> int:
        """Adds a dimension to the domain, for a loop that no access depends on."""
        dim = max(self.indices, default=-1) + 1
        self.indices[dim] = Index()
        return dim

    @contextmanager
    def shifted(self, dim: int, by: int) -> Iterator[None]:
        """Adds `by` to the index of `dim` inside the context."""
        before = dict(self.indices)
        if by:
            self.indices[dim] = self.indices[dim] + by
        yield
        self.indices = before

    def index(self, form: Linear) -> Index:
        """The offset of a form at the current indices."""
        return _index_of(self.writer, form, self.indices, self.sizes)

    def of(self, access: Access) -> tuple[SSAValue, Index]:
        return access.memory, access.start + self.index(access.form)


def _index_of(writer: Writer, form: Linear, indices: Mapping[int, Index], sizes: Shape) -> Index:
    return Index.sum(
        form.constant,
        (
            (
                indices[atom.position]
                if isinstance(atom, AffineDimExpr)
                else _digit(writer, atom, indices, sizes),
                factor,
            )
            for atom, factor in form.terms.items()
        ),
    )


def _digit(writer: Writer, atom: AffineExpr, indices: Mapping[int, Index], sizes: Shape) -> Index:
    """The value of a `floordiv` or `mod`."""
    assert isinstance(atom, AffineBinaryOpExpr) and isinstance(atom.rhs, AffineConstantExpr)
    by = atom.rhs.value
    inner = linear(atom.lhs, sizes)
    # Affine maps round down, machines toward zero: -1 floordiv 4 is -1, -1 / 4 is 0. A multiple of
    # the divisor makes the dividend non-negative: (-1 + 4) / 4 - 1.
    shift = max(0, -(inner.bounds(sizes)[0] // by))
    index = _index_of(writer, inner, indices, sizes) + shift * by
    quotient = atom.kind == AffineBinaryOpKind.FloorDiv
    if not index.terms:
        return Index(index.constant // by - shift if quotient else index.constant % by)
    value, divisor = writer.value(index), writer.constant(by)
    if quotient:
        return Index.of(writer.once(arith.DivSIOp(value, divisor)), constant=-shift)
    return Index.of(writer.once(arith.RemSIOp(value, divisor)))


@dataclass(frozen=True)
class Span:
    """The range of a loop that one chunk runs: `base + (lower .. upper)`."""

    lower: Bound
    upper: Bound
    base: Index = field(default_factory=Index)

    @property
    def first(self) -> Index:
        return self.base + _index(self.lower)

    @property
    def end(self) -> Index:
        return self.base + _index(self.upper)

    @property
    def static_extent(self) -> int | None:
        """The number of iterations if all chunks have the same; None otherwise."""
        if isinstance(self.lower, int) and isinstance(self.upper, int):
            return self.upper - self.lower
        return None


def _index(bound: Bound) -> Index:
    return Index(bound) if isinstance(bound, int) else Index.of(bound)


def spans(
    writer: Writer,
    groups: Sequence[Group],
    cut: CutAttr | None,
    chunk: SSAValue | None,
    sizes: Mapping[int, SSAValue] = MappingProxyType({}),
) -> list[Span]:
    """The range of each loop that the current chunk runs; `sizes` end loops with a size."""
    result = [Span(0, _end(writer, group, sizes)) for group in groups]
    if cut is not None and chunk is not None:
        for part, number in zip(cut.parts, part_numbers(writer, cut, chunk), strict=True):
            running = groups[part.loop].running
            if running is not None:
                result[part.loop] = _running_part(
                    writer, groups[part.loop], part.count, number, sizes[running.size]
                )
                continue
            extent = groups[part.loop].extent
            start = number.scaled(part.size)
            # Equal parts keep constant bounds, so blocks of rows are balanced (12 rows: 6 + 6, not
            # 8 + 4) and need no code for a remainder.
            if part.count * part.size == extent:
                result[part.loop] = Span(0, part.size, start)
                continue
            # The last part is shorter: 10 iterations in 4 parts of 3 end at 3, 6, 9 and 10.
            end = writer.value(start + part.size)
            upper = writer.once(arith.MinSIOp(end, writer.constant(extent)))
            result[part.loop] = Span(writer.value(start), upper)
    return result


def whole(writer: Writer, group: Group, base: Index = FIRST) -> Span:
    """The full range of a loop, up to its size in this call, from `base` on."""
    return Span(0, _end(writer, group, writer.sizes), base)


def _end(writer: Writer, group: Group, sizes: Mapping[int, SSAValue]) -> Bound:
    """The end of a loop in this call."""
    running = group.running
    if running is None:
        return group.extent
    end = writer.times(sizes[running.size], running.factor)
    return end if group.together == 1 else ceiling(writer, end, group.together)


def ceiling(writer: Writer, number: SSAValue, by: int) -> SSAValue:
    """`number / by`, rounded up."""
    padded = writer.value(Index.of(number, constant=by - 1))
    return writer.once(arith.DivSIOp(padded, writer.constant(by)))


def _running_part(writer: Writer, group: Group, count: int, number: Index, size: SSAValue) -> Span:
    """
    One of `count` parts of a loop that ends at a size of the call.

    Each part has ceil(size / count) steps of the size, `factor` iterations each. The last parts are
    shorter, or empty.
    """
    assert group.running is not None
    factor = group.running.factor
    if group.together > 1:
        size, factor = ceiling(writer, writer.times(size, factor), group.together), 1
    steps = ceiling(writer, size, count)
    start = writer.once(arith.MuliOp(writer.value(number), steps))
    # 4 rows in 6 parts of 1: without the minima, the last two would be 4..5 and 5..6.
    lower = writer.once(arith.MinSIOp(start, size))
    upper = writer.once(arith.MinSIOp(writer.value(Index.of(start) + Index.of(steps)), size))
    return Span(writer.times(lower, factor), writer.times(upper, factor))


def part_numbers(writer: Writer, cut: CutAttr, chunk: SSAValue) -> list[Index]:
    """The number of a chunk's part in each cut loop: digits of its number, last loop fastest."""
    rest, numbers = Index.of(chunk), list[Index]()
    for part in reversed(cut.parts[1:]):
        rest, number = quotient_and_remainder(writer, rest, part.count)
        numbers.append(number)
    return [rest, *reversed(numbers)]


def quotient_and_remainder(writer: Writer, number: Index, base: int) -> tuple[Index, Index]:
    """The quotient and the remainder of a number by a base."""
    if base == 1:
        return number, Index()
    value, divisor = writer.value(number), writer.constant(base)
    return (
        Index.of(writer.once(arith.DivSIOp(value, divisor))),
        Index.of(writer.once(arith.RemSIOp(value, divisor))),
    )


def full_spans(point: IterationPoint, groups: Sequence[Group]) -> list[Span]:
    """The full range of each loop, from its index in `point` on."""
    return [whole(point.writer, group, point.indices[group.last]) for group in groups]


def volume(groups: Sequence[Group]) -> int:
    return prod(group.extent for group in groups)


def in_place(
    operands: Sequence[SSAValue],
    read: Iterable[tuple[SSAValue, AffineMap]],
    results: Sequence[SSAValue],
    sizes: Shape,
) -> list[tuple[int, int]]:
    """
    Pairs of an operand and a result, by number, that may share memory.

    The operand is read once, at the index that the result is then written to.
    """
    # Another read, or one at another index, could find a result: y = x + transpose(x). Gaps of a
    # result are zeroed before its loops, which would erase the operand.
    pairs = []
    for value, map_ in read:
        if operands.count(value) == 1 and reads_whole(tensor(value), map_, sizes):
            pairs += [
                (operands.index(value), number)
                for number, result in enumerate(results)
                if result.type == value.type and not has_gaps(result)
            ]
    return pairs


def element_index(
    writer: Writer, type_: TensorType[Attribute], indices: Sequence[SSAValue]
) -> Index:
    """The index in a tensor's memory of the element at computed indices."""
    shape = type_.get_shape()
    point = IterationPoint(writer, shape)
    for dim, index in enumerate(indices):
        point.indices[dim] = Index.of(index)
    return point.index(offset(type_, AffineMap.identity(len(shape)), shape))
