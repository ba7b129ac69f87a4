"""How is a decision about memory or loops written down? As a layout or a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import AffineMapAttr, IntAttr, TensorType
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.ir.affine import AffineMap
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.support.shapes import Shape


@irdl_attr_definition
class LayoutAttr(ParametrizedAttribute):
    """
    Where the elements of a tensor stand in memory; the `encoding` of its type.

    `map` takes a logical index to a physical one in a dense row-major array of shape `physical`.
    Channels in blocks of 16 with a halo of one pixel is
    `#tile.layout<(n, c, y, x) -> (n, c floordiv 16, y + 1, x + 1, c mod 16), [1, 4, 58, 58, 16]>`.
    Physical elements that no logical index reaches hold zero. A type without encoding is dense
    row-major.
    """

    name = "tile.layout"
    map: AffineMapAttr
    physical: IntsAttr

    @staticmethod
    def of(map_: AffineMap, physical: Sequence[int]) -> LayoutAttr:
        return LayoutAttr(AffineMapAttr(map_), IntsAttr.of(physical))

    def verify(self) -> None:
        if len(self.map.data.results) != len(self.physical):
            raise VerifyException("a layout's map has one result per physical dimension")


@irdl_attr_definition
class ScheduleAttr(ParametrizedAttribute):
    """
    How a contraction is blocked in registers.

    `vector` is the parallel dimension that runs along vector lanes, `vectors` how many vectors of
    it a micro-kernel holds, `rows` the parallel dimension that is blocked beside it (-1: none),
    `block` how many of its indices a micro-kernel holds, `chunk` how many reduction terms are
    summed before the sum joins the total (0: all of them), `width` the lanes of one vector.
    In text: `#tile.schedule<vector 1, vectors 2, rows 3, block 14, chunk 256, width 16>`.
    """

    name = "tile.schedule"
    vector: IntAttr
    vectors: IntAttr
    rows: IntAttr
    block: IntAttr
    chunk: IntAttr
    width: IntAttr

    FIELDS: ClassVar = ("vector", "vectors", "rows", "block", "chunk", "width")

    @staticmethod
    def of(
        *, vector: int, vectors: int, rows: int, block: int, chunk: int, width: int
    ) -> ScheduleAttr:
        numbers = (vector, vectors, rows, block, chunk, width)
        return ScheduleAttr(*(IntAttr(number) for number in numbers))

    @property
    def lanes(self) -> int:
        """The lanes of all vectors together: one panel of the vector dimension."""
        return self.vectors.data * self.width.data

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            fields = zip(self.FIELDS, self.parameters, strict=True)
            texts = (f"{name} {number.data}" for name, number in fields)  # type: ignore[attr-defined]
            printer.print_string(", ".join(texts))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        numbers: list[Attribute] = []
        with parser.in_angle_brackets():
            for name in cls.FIELDS:
                if numbers:
                    parser.parse_punctuation(",")
                parser.parse_keyword(name)
                numbers.append(IntAttr(parser.parse_integer()))
        return numbers

    def verify(self) -> None:
        if self.vectors.data < 1 or self.block.data < 1 or self.width.data < 1:
            raise VerifyException("a micro-kernel holds at least one vector")


def layout_of(type_: TensorType[Attribute]) -> LayoutAttr | None:
    """The layout of a tensor type; None is dense row-major."""
    return type_.encoding if isinstance(type_.encoding, LayoutAttr) else None


def physical_shape(type_: TensorType[Attribute]) -> Shape:
    """The shape of the memory behind a tensor."""
    layout = layout_of(type_)
    return layout.physical.data if layout else type_.get_shape()
