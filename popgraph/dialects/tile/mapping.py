"""
The tile mapping of an index space: the IPU tile of each element.

The attribute is in the dialect so that IR with mappings parses and verifies in every process.
All other code for mappings is in `popgraph/ipu`, which CPU compilation never imports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.support.shapes import Shape, prod


@dataclass(frozen=True)
class Digit:
    """A digit of the run number in a block: `count` values, `stride` tiles between neighbours."""

    count: int
    stride: int


@irdl_attr_definition
class MappingAttr(ParametrizedAttribute):
    """
    The tile of each index of a space; each index is on exactly one tile.

    The space `shape` is divided into blocks of `block` indices along each dimension; neighbouring
    blocks along dimension d have a distance of `strides[d]` tiles. The indices of a block, in
    row-major order, are divided into runs of `run`. The number of a run in its block is written in
    `digits` (count and stride each, the last one fastest). The first run of the first block is on
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
        """The mapping with these fields; a block without digits is a single run."""
        numbers = [number for digit in digits for number in (digit.count, digit.stride)]
        of = IntsAttr.of
        return MappingAttr(
            of(shape), of(block), of(strides), IntAttr(run), of(numbers), IntAttr(first)
        )

    @property
    def sizes(self) -> Shape:
        """The extent of the space."""
        return self.shape.data

    @property
    def parts(self) -> Shape:
        """The number of blocks along each dimension."""
        pairs = zip(self.shape.data, self.block.data, strict=True)
        return tuple(max(1, -(-size // each)) for size, each in pairs)

    @property
    def digits(self) -> tuple[Digit, ...]:
        numbers = iter(self.digit_numbers)
        return tuple(Digit(*two) for two in zip(numbers, numbers, strict=True))

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
            raise VerifyException("a mapping needs one block size and one stride per dimension")
        if len(self.digit_numbers) % 2 or min(self.block.data, default=1) < 1:
            raise VerifyException("blocks need at least one index, and digits a count and a stride")
        if self.digits and self.run.data * prod(d.count for d in self.digits) < prod(
            min(size, each) for size, each in zip(self.shape, self.block, strict=True)
        ):
            raise VerifyException("the runs must cover the block")
        apart = [*zip(self.parts, self.strides.data, strict=True)]
        apart += [(digit.count, digit.stride) for digit in self.digits]
        reached = 1
        for count, stride in sorted((pair for pair in apart if pair[0] > 1), key=lambda p: p[1]):
            if stride < reached:
                raise VerifyException("two blocks or runs are on the same tile")
            reached = stride * count
