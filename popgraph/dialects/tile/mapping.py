"""The tile mapping of an index space: on which tile of an IPU each of its elements is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np
from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.boxes import Boxes, Pieces, interval_boxes
from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape, prod


@dataclass(frozen=True)
class Digit:
    """One of the numbers that tell the runs of a block apart: of so many, so many tiles apart."""

    count: int
    stride: int


@irdl_attr_definition
class MappingAttr(ParametrizedAttribute):
    """
    On which tile each index of a space is: every one is on exactly one.

    The space `shape` falls into blocks of `block` indices along each dimension; neighbours along
    dimension d are `strides[d]` tiles apart. The indices of a block, in row-major order, fall into
    runs of `run`. Where there are several, `digits` (a count and a stride each) tell them apart as
    the digits of a number do, the last one counting fastest. The first run of the first block is on
    tile `first`. In text:
    `#tile.mapping<[64, 512] in [16, 128] at [4, 1], runs of 1024 at [2, 16], from 8>`, 32 tiles.
    """

    name = "tile.mapping"
    shape: IntsAttr
    block: IntsAttr
    strides: IntsAttr
    run: IntAttr
    digit_numbers: IntsAttr
    first: IntAttr

    @staticmethod
    def of(
        shape: Iterable[int],
        block: Iterable[int],
        strides: Iterable[int],
        run: int = 0,
        digits: Iterable[Digit] = (),
        first: int = 0,
    ) -> MappingAttr:
        """The mapping with these fields; without digits, a block is one run."""
        numbers = [number for digit in digits for number in (digit.count, digit.stride)]
        of = IntsAttr.of
        return MappingAttr(
            of(shape), of(block), of(strides), IntAttr(run), of(numbers), IntAttr(first)
        )

    @staticmethod
    def grid(shape: Shape, parts: Sequence[int], first: int = 0) -> MappingAttr:
        """Blocks of equal size: so many along each dimension, on tiles one behind the other."""
        block = [max(1, ceil(size / count)) for size, count in zip(shape, parts, strict=True)]
        counts = [max(1, ceil(size / each)) for size, each in zip(shape, block, strict=True)]
        strides = [prod(counts[dim + 1 :]) if count > 1 else 0 for dim, count in enumerate(counts)]
        return MappingAttr.of(shape, block, strides, first=first)

    @staticmethod
    def linear(shape: Shape, run: int, first: int = 0) -> MappingAttr:
        """One block of runs of so many elements, on tiles one behind the other."""
        whole = [max(1, size) for size in shape]
        count = max(1, ceil(prod(shape) / run))
        digits = [Digit(count, 1)] if count > 1 else []
        return MappingAttr.of(shape, whole, [0] * len(whole), run if digits else 0, digits, first)

    @property
    def sizes(self) -> Shape:
        """The extent of the space."""
        return self.shape.data

    @property
    def parts(self) -> Shape:
        """How many blocks there are along each dimension."""
        pairs = zip(self.shape.data, self.block.data, strict=True)
        return tuple(max(1, -(-size // each)) for size, each in pairs)

    @property
    def digits(self) -> tuple[Digit, ...]:
        numbers = iter(self.digit_numbers)
        return tuple(Digit(*two) for two in zip(numbers, numbers, strict=True))

    @property
    def tile_count(self) -> int:
        """How many tiles have a piece, which may be empty at the ends."""
        return prod(self.parts) * prod(digit.count for digit in self.digits)

    @property
    def is_linear(self) -> bool:
        """Whether it goes by the row-major number of an index alone."""
        return prod(self.parts) == 1

    def pieces(self) -> Pieces:
        return pieces_of(self)

    def tile_of(self, index: Sequence[int]) -> int:
        """The tile of one index."""
        tile = self.first.data
        within, number = 0, 0
        for place, size, each, stride in zip(
            index, self.shape.data, self.block.data, self.strides.data, strict=True
        ):
            tile += place // each * stride
            start = place // each * each
            within = within * min(each, size - start) + place - start
        if self.digits:
            number = within // self.run.data
        for digit in reversed(self.digits):
            tile += number % digit.count * digit.stride
            number //= digit.count
        return tile

    def counts(self, tiles: int) -> Array:
        """How many elements each of the first so many tiles has."""
        pieces, found = self.pieces(), np.zeros(tiles, np.int64)
        np.add.at(found, pieces.tiles, pieces.volumes)
        return found

    def intervals(self, tiles: int) -> list[list[tuple[int, int]]]:
        """For each tile the row-major numbers of its elements, as intervals in order."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(tiles)]
        pieces = self.pieces()
        for piece, tile in enumerate(pieces.tiles.tolist()):
            rows = [row for box in pieces.boxes for row in self._rows(box.window(piece))]
            found[tile] += _joined(sorted(rows))
        return found

    def _rows(self, window: tuple[slice, ...]) -> Iterator[tuple[int, int]]:
        """The intervals of numbers that a box is made of."""
        shape = self.sizes
        if any(side.start >= side.stop for side in window):
            return
        inner = len(shape)
        while inner and window[inner - 1] == slice(0, shape[inner - 1]):
            inner -= 1
        outer, step = window[: max(0, inner - 1)], prod(shape[inner:])
        along = window[inner - 1] if inner else slice(0, 1)
        for place in np.ndindex(*(side.stop - side.start for side in outer)):
            at = 0
            for offset, side, size in zip(place, outer, shape, strict=False):
                at = at * size + side.start + offset
            at = at * shape[inner - 1] if inner else 0
            yield (at + along.start) * step, (at + along.stop) * step

    # derived mappings

    def moved(self, first: int) -> MappingAttr:
        """The same from another tile on."""
        return MappingAttr.of(
            self.shape, self.block, self.strides, self.run.data, self.digits, first
        )

    def of_leading(self, dims: int, grain: int) -> MappingAttr:
        """
        Of the first `dims` dimensions, where the parts along the others hold sums of one place.

        Each of the tiles that hold sums of a block gets a run of it, of a multiple of `grain`.
        """
        shape, block = self.shape.data[:dims], self.block.data[:dims]
        digits = [
            Digit(count, stride)
            for count, stride in zip(self.parts[dims:], self.strides.data[dims:], strict=True)
            if count > 1
        ]
        assert not self.digits, "loops that reduce are cut into blocks"
        strides = self.strides.data[:dims]
        return _in_runs(shape, block, strides, digits, grain, self.first.data)

    def of_dims(self, dims: Sequence[int | None], shape: Shape, grain: int) -> MappingAttr:
        """
        Of a tensor whose dimension i is read along loop `dims[i]` (None: as a whole by all).

        What several tiles read is shared out among them in runs.
        """
        block = [
            max(1, size) if dim is None else self.block.data[dim]
            for dim, size in zip(dims, shape, strict=True)
        ]
        strides = [0 if dim is None else self.strides.data[dim] for dim in dims]
        digits = [
            Digit(count, stride)
            for dim, (count, stride) in enumerate(zip(self.parts, self.strides.data, strict=True))
            if dim not in dims and count > 1
        ]
        return _in_runs(shape, block, strides, digits, grain, self.first.data)

    def of_loops(self, dims: Sequence[int | None], sizes: Shape) -> MappingAttr | None:
        """
        Of loops of which number `dims[i]` goes along dimension i (None: none does).

        None where runs would break, or where a loop goes along two dimensions.
        """
        along = [dim for dim in dims if dim is not None]
        if self.digits or len(set(along)) < len(along):
            return None
        block, strides = [max(1, size) for size in sizes], [0] * len(sizes)
        for dim, each, stride in zip(dims, self.block.data, self.strides.data, strict=True):
            if dim is not None:
                block[dim], strides[dim] = each, stride
        return MappingAttr.of(sizes, block, strides, first=self.first.data)

    def reshaped(self, shape: Shape) -> MappingAttr | None:
        """The same under another shape, row-major on both sides; None if no mapping says that."""
        if shape == self.sizes:
            return self
        if self.is_linear:
            whole = [max(1, size) for size in shape]
            return MappingAttr.of(
                shape, whole, [0] * len(whole), self.run.data, self.digits, self.first.data
            )
        found = _regrouped(self, shape)
        if found is None:
            return None
        block, strides = found
        return MappingAttr.of(shape, block, strides, self.run.data, self.digits, self.first.data)

    # text

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            self.shape.print_parameter(printer)
            printer.print_string(" in ")
            self.block.print_parameter(printer)
            printer.print_string(" at ")
            self.strides.print_parameter(printer)
            if self.digits:
                printer.print_string(f", runs of {self.run.data} at ")
                self.digit_numbers.print_parameter(printer)
            if self.first.data:
                printer.print_string(f", from {self.first.data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        ints, run, digits, first = IntsAttr.parse_parameter, 0, IntsAttr(()), 0
        with parser.in_angle_brackets():
            shape = IntsAttr(ints(parser))
            parser.parse_keyword("in")
            block = IntsAttr(ints(parser))
            parser.parse_keyword("at")
            strides = IntsAttr(ints(parser))
            while parser.parse_optional_punctuation(",") is not None:
                if parser.parse_optional_keyword("from"):
                    first = parser.parse_integer()
                    continue
                parser.parse_keyword("runs")
                parser.parse_keyword("of")
                run = parser.parse_integer()
                parser.parse_keyword("at")
                digits = IntsAttr(ints(parser))
        return [shape, block, strides, IntAttr(run), digits, IntAttr(first)]

    def verify(self) -> None:
        if not len(self.shape) == len(self.block) == len(self.strides):
            raise VerifyException("a block and a stride for each dimension")
        if len(self.digit_numbers) % 2 or min(self.block.data, default=1) < 1:
            raise VerifyException("blocks have indices, and digits a count and a stride")
        if self.digits and self.run.data * prod(d.count for d in self.digits) < prod(
            min(size, each) for size, each in zip(self.shape, self.block, strict=True)
        ):
            raise VerifyException("the runs of a block are all of it")
        apart = [*zip(self.parts, self.strides.data, strict=True)]
        apart += [(digit.count, digit.stride) for digit in self.digits]
        reached = 1
        for count, stride in sorted((pair for pair in apart if pair[0] > 1), key=lambda p: p[1]):
            if stride < reached:
                raise VerifyException("two blocks would be on one tile")
            reached = stride * count


def _in_runs(
    shape: Sequence[int],
    block: Sequence[int],
    strides: Sequence[int],
    digits: Sequence[Digit],
    grain: int,
    first: int,
) -> MappingAttr:
    """Blocks shared out in runs of equal length, but on one tile where one run is all of it."""
    elements = prod(block)
    each = ceil(elements / prod(digit.count for digit in digits))
    run = max(1, ceil(each / grain) * grain)
    if run >= elements:
        return MappingAttr.of(shape, block, strides, first=first)
    return MappingAttr.of(shape, block, strides, run, digits, first)


def _joined(rows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring intervals as one."""
    found: list[tuple[int, int]] = []
    for start, end in rows:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


@lru_cache(maxsize=256)
def pieces_of(mapping: MappingAttr) -> Pieces:
    """What each tile of a mapping has; remembered, since many values have one."""
    parts, digits = mapping.parts, mapping.digits
    counts = [*parts, *(digit.count for digit in digits)]
    strides = [*mapping.strides.data, *(digit.stride for digit in digits)]
    places = np.indices(counts).reshape(len(counts), -1) if counts else np.zeros((0, 1), np.int64)
    tiles = mapping.first.data + np.array(strides, np.int64) @ places
    block, shape = np.array(mapping.block.data, np.int64), np.array(mapping.sizes, np.int64)
    low = places[: len(parts)].T * block
    high = np.minimum(low + block, shape)
    whole = Boxes(low, np.maximum(high, low))
    if not digits:
        return Pieces(tiles, (whole,))
    numbers = np.zeros(tiles.size, np.int64)
    for place, digit in zip(places[len(parts) :], digits, strict=True):
        numbers = numbers * digit.count + place
    elements = whole.volumes
    start = np.minimum(numbers * mapping.run.data, elements)
    end = np.minimum(start + mapping.run.data, elements)
    return Pieces(tiles, tuple(interval_boxes(start, end, whole)))


def _regrouped(mapping: MappingAttr, shape: Shape) -> tuple[list[int], list[int]] | None:
    """Blocks and strides under another shape; None where a block is none there."""
    block: list[int] = []
    strides: list[int] = []
    old, new = 0, 0
    sizes = mapping.sizes
    if 0 in shape:
        return None
    while old < len(sizes) or new < len(shape):
        old_end, new_end, left, right = old, new, 1, 1
        while old_end == old or left != right:
            if old_end < len(sizes) and (left <= right or new_end == len(shape)):
                left *= sizes[old_end]
                old_end += 1
            elif new_end < len(shape):
                right *= shape[new_end]
                new_end += 1
            else:
                break
            if old_end > old and new_end > new and left == right:
                break
        found = _group(mapping, range(old, old_end), shape[new:new_end])
        if left != right or found is None:
            return None
        block += found[0]
        strides += found[1]
        old, new = old_end, new_end
    return block, strides


def _group(
    mapping: MappingAttr, dims: range, shape: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """The same for dimensions that become others as a group: one of them alone may be cut."""
    parts = mapping.parts
    cut = [dim for dim in dims if parts[dim] > 1]
    whole = list(map(int, shape))
    if not cut:
        return whole, [0] * len(whole)
    sizes = [mapping.sizes[dim] for dim in dims]
    (outer, *others) = cut
    if others or prod(sizes[: outer - dims.start]) != 1:
        return None
    # Rows of the group that a block has, as a number of its elements.
    elements = mapping.block.data[outer] * prod(sizes[outer - dims.start + 1 :])
    for at in range(len(whole)):
        inner = prod(whole[at + 1 :])
        if prod(whole[:at]) == 1 and elements % inner == 0 and elements <= inner * whole[at]:
            block = [*whole[:at], elements // inner, *whole[at + 1 :]]
            return block, [mapping.strides.data[outer] if i == at else 0 for i in range(len(whole))]
    return None


NAME = "mapping"
"""The attribute of an operation: of its loops, or of its result where it has none."""
