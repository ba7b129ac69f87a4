"""The attribute of parallel loops: the division of a kernel into chunks for threads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.dialects.builtin import BoolAttr
from xdsl.ir import Attribute, Operation, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.support.shapes import prod

NAME = "cut"


@dataclass(frozen=True)
class Part:
    """Loop number `loop` in `count` parts of `size` iterations; the last may be shorter."""

    loop: int
    count: int
    size: int

    def share(self, number: int, extent: int) -> float:
        """The fraction of the loop in one of its parts."""
        return (min(extent, (number + 1) * self.size) - number * self.size) / extent


@irdl_attr_definition
class CutAttr(ParametrizedAttribute):
    """
    Divides a kernel into chunks for threads: one for each combination of parts of these loops.

    Loops are numbered outermost first. Consecutive chunks differ in the last loop. In text:
    `#tile.cut<loop 0 in 3 of 1, loop 1 in 2 of 7>`, six chunks. Chunks of an `alternating` cut run
    in reverse order in every other iteration of the loop around the kernel (boustrophedon order).
    """

    name = "tile.cut"
    numbers: IntsAttr
    """Loop, count and size of each part, flattened."""
    alternates: BoolAttr

    @staticmethod
    def of(parts: Iterable[Part], *, alternating: bool = False) -> CutAttr:
        numbers = [number for part in parts for number in (part.loop, part.count, part.size)]
        return CutAttr(IntsAttr.of(numbers), BoolAttr.from_bool(alternating))

    @property
    def alternating(self) -> bool:
        return bool(self.alternates.value.data)

    @property
    def parts(self) -> tuple[Part, ...]:
        numbers = iter(self.numbers)
        return tuple(Part(*three) for three in zip(numbers, numbers, numbers, strict=True))

    @property
    def count(self) -> int:
        """The number of chunks."""
        return prod(part.count for part in self.parts)

    @property
    def only(self) -> Part:
        """The parts of a cut that divides a single loop."""
        (part,) = self.parts
        return part

    def of_loop(self, loop: int) -> Part | None:
        """The parts of one loop, if it is cut."""
        return next((part for part in self.parts if part.loop == loop), None)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            loops = [f"loop {part.loop} in {part.count} of {part.size}" for part in self.parts]
            printer.print_string(
                ", ".join([*loops, *(["alternating"] if self.alternating else [])])
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        def part() -> tuple[int, ...]:
            if parser.parse_optional_keyword("alternating"):
                return ()
            numbers = []
            for keyword in ("loop", "in", "of"):
                parser.parse_keyword(keyword)
                numbers.append(parser.parse_integer())
            return tuple(numbers)

        parts = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, part)
        numbers = IntsAttr.of([number for numbers in parts for number in numbers])
        return [numbers, BoolAttr.from_bool(() in parts)]

    def verify(self) -> None:
        parts = self.parts
        if not parts or len({part.loop for part in parts}) != len(parts):
            raise VerifyException("a cut needs at least one loop, and each loop at most once")
        if any(part.loop < 0 or part.count < 2 or part.size < 1 for part in parts):
            raise VerifyException("a cut needs at least two parts of at least one iteration each")


def chunks_of(cut: CutAttr | None) -> int:
    """The number of chunks; 1 without a cut."""
    return 1 if cut is None else cut.count


def cut_of(op: Operation) -> CutAttr | None:
    """The cut of an operation, if it has one."""
    found = op.attributes.get(NAME)
    if found is None:
        return None
    assert isinstance(found, CutAttr)
    return found
