"""
The tile mapping of an index space: on which tile of an IPU each element is.

The attribute belongs to the dialect, so that IR that names tiles parses and verifies in every
process. All else about mappings is in `popgraph/ipu`, which no compilation for a CPU imports.
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
