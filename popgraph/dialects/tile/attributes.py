"""Layout and schedule attributes, and the halos and memory spans that follow from layouts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Self

from xdsl.dialects.builtin import AffineMapAttr, IntAttr, TensorType
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import integer, tensor_type
from popgraph.support.shapes import Shape, prod


@irdl_attr_definition
class LayoutAttr(ParametrizedAttribute):
    """
    Where the elements of a tensor stand in memory; the `encoding` of its type.

    `map` takes a logical index to a physical one in a dense row-major array of shape `physical`.
    Channels in blocks of 16 with a halo of one pixel is
    `#tile.layout<(n, c, y, x) -> (n, c floordiv 16, y + 1, x + 1, c mod 16), [1, 4, 58, 58, 16]>`.
    Physical elements that no logical index reaches hold zero. A type without encoding is dense
    row-major.

    A layout that only moves indices by constants gives the tensor a halo: there, an index outside
    the shape may be read, and finds zero. With a `part`, the memory is that of a larger tensor,
    and this one is a part of it along that dimension: what stands beside it is not its own. What
    computes or reads a part gets the memory from the part's first index on, so that loops do not
    depend on where in the larger tensor it stands.
    """

    name = "tile.layout"
    map: AffineMapAttr
    physical: IntsAttr
    part: IntAttr

    @staticmethod
    def of(map_: AffineMap, physical: Sequence[int], part: int = -1) -> LayoutAttr:
        return LayoutAttr(AffineMapAttr(map_), IntsAttr.of(physical), integer(part))

    @staticmethod
    def moved(low: Sequence[int], physical: Sequence[int], part: int = -1) -> LayoutAttr:
        """The layout with index 0 at `low` of a memory of shape `physical`."""
        results = tuple(AffineExpr.dimension(dim) + by for dim, by in enumerate(low))
        return LayoutAttr.of(AffineMap(len(low), 0, results), physical, part)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.map)
            printer.print_string(", ")
            printer.print_attribute(self.physical)
            if self.part.data >= 0:
                printer.print_string(f", part {self.part.data}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            map_ = parser.parse_attribute()
            parser.parse_punctuation(",")
            physical = parser.parse_attribute()
            part = -1
            if parser.parse_optional_punctuation(",") is not None:
                parser.parse_keyword("part")
                part = parser.parse_integer()
        return [map_, physical, IntAttr(part)]

    def verify(self) -> None:
        if len(self.map.data.results) != len(self.physical):
            raise VerifyException("a layout's map has one result per physical dimension")
        if self.part.data >= len(self.physical):
            raise VerifyException("a part is along one of the dimensions")


class NamedNumbers(ParametrizedAttribute):
    """
    Whole numbers with names, written `name number, name number`.

    A class lists its fields as parameters of type `IntAttr`, and again by name: those that are
    always written, and the rare ones that are written only where they are not as usual.
    """

    FIELDS: ClassVar[tuple[str, ...]]
    RARE: ClassVar[Mapping[str, int]] = {}

    @classmethod
    def of(cls, **numbers: int) -> Self:
        """The attribute with these fields; the rare ones may be left out."""
        numbers = {**cls.RARE, **numbers}
        return cls.new([integer(numbers[name]) for name in (*cls.FIELDS, *cls.RARE)])

    @property
    def numbers(self) -> dict[str, int]:
        """The fields by name."""
        return {name: getattr(self, name).data for name in (*self.FIELDS, *self.RARE)}

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            texts = [
                f"{name} {number}"
                for name, number in self.numbers.items()
                if number != self.RARE.get(name)
            ]
            printer.print_string(", ".join(texts))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        numbers = dict(cls.RARE)
        with parser.in_angle_brackets():
            for name in cls.FIELDS:
                if name != cls.FIELDS[0]:
                    parser.parse_punctuation(",")
                parser.parse_keyword(name)
                numbers[name] = parser.parse_integer()
            while parser.parse_optional_punctuation(",") is not None:
                rare = next((name for name in cls.RARE if parser.parse_optional_keyword(name)), "")
                if not rare:
                    others = ", ".join(cls.RARE) or "none"
                    parser.raise_error(f"there is no such field here; what may follow: {others}")
                numbers[rare] = parser.parse_integer()
        return list(cls.of(**numbers).parameters)


@irdl_attr_definition
class ScheduleAttr(NamedNumbers):
    """
    How a contraction is blocked in registers.

    `n_dim` is the parallel dimension that runs along vector lanes, `n_vectors` how many vectors of
    it a micro-kernel holds, `m_dim` the parallel dimension that is blocked beside it (-1: none),
    `mr` how many of its indices a micro-kernel holds, `kc` how many reduction terms are
    summed before the sum joins the total (0: all of them), `lanes` the lanes of one vector. With
    `k_outer` 1, every result takes in one chunk before any takes in the next: results are totals in
    memory, and the epilogue does nothing. Where rows are shorter than a block, `m_outer_dim` is the
    dimension of which a micro-kernel holds several (-1: none). With `n_inner` 1, all panels are
    done for one block of rows before the next block: when rows come from afar, and panels do not.
    With `window_panels` (0: none; both factors run along vectors then), the innermost reduction is
    written out, and what its steps have in common stays in registers; so many panels at a time go
    along the loop next to rows, inside of a block of rows: what its steps share stays near.
    In text: `#tile.schedule<n_dim 1, n_vectors 2, m_dim 3, mr 14, kc 256, lanes 16>`.
    """

    name = "tile.schedule"
    n_dim: IntAttr
    n_vectors: IntAttr
    m_dim: IntAttr
    mr: IntAttr
    kc: IntAttr
    lanes: IntAttr
    k_outer: IntAttr
    m_outer_dim: IntAttr
    n_inner: IntAttr
    window_panels: IntAttr

    FIELDS: ClassVar = ("n_dim", "n_vectors", "m_dim", "mr", "kc", "lanes")
    RARE: ClassVar = {"k_outer": 0, "m_outer_dim": -1, "n_inner": 0, "window_panels": 0}
    EARLIER: ClassVar = {
        "vector": "n_dim",
        "vectors": "n_vectors",
        "rows": "m_dim",
        "block": "mr",
        "chunk": "kc",
        "width": "lanes",
        "sweep": "k_outer",
        "lines": "m_outer_dim",
        "inside": "n_inner",
        "window": "window_panels",
    }
    """Names that fields had before: files of schedules are understood for one version."""

    @classmethod
    def of_text(cls, text: str) -> ScheduleAttr:
        """The schedule that is printed like this, its fields in any order; else ValueError."""
        pairs = re.findall(r"(\w+) (-?\d+)", text)
        numbers = {cls.EARLIER.get(name, name): int(number) for name, number in pairs}
        missing = [name for name in cls.FIELDS if name not in numbers]
        unknown = numbers.keys() - {*cls.FIELDS, *cls.RARE}
        if missing or unknown:
            fault = f"has no {missing[0]}" if missing else f"cannot have {min(unknown)}"
            raise ValueError(f"a schedule of this form {fault}")
        try:
            made = cls.of(**numbers)
        except VerifyException as error:
            raise ValueError(str(error)) from error
        if any(name in cls.EARLIER for name, _ in pairs):
            message = f"the fields of a schedule have new names: this one is {made}"
            warnings.warn(message, FutureWarning, stacklevel=2)
        return made

    @property
    def nr(self) -> int:
        """The lanes of all vectors together: one panel of the vector dimension."""
        return self.n_vectors.data * self.lanes.data

    def verify(self) -> None:
        if self.n_vectors.data < 1 or self.mr.data < 1 or self.lanes.data < 1:
            raise VerifyException("a micro-kernel holds at least one vector")
        if self.k_outer.data and not self.kc.data:
            raise VerifyException("k_outer needs a kc")
        if self.window_panels.data and (self.m_dim.data < 0 or not self.n_inner.data):
            raise VerifyException("window_panels needs an m_dim and n_inner")


def with_layout(type_: TensorType[Attribute], layout: LayoutAttr) -> TensorType[Attribute]:
    """The same tensor, elsewhere in memory."""
    return tensor_type(type_.element_type, type_.get_shape(), layout)


def layout_of(type_: TensorType[Attribute]) -> LayoutAttr | None:
    """The layout of a tensor type; None is dense row-major."""
    return type_.encoding if isinstance(type_.encoding, LayoutAttr) else None


@dataclass(frozen=True)
class Halo:
    """How much memory a tensor has around its elements, along each dimension."""

    low: Shape
    high: Shape
    part: int = -1
    """The dimension along which the memory beside the elements belongs to other tensors."""

    @property
    def own(self) -> Iterator[tuple[int, int, int]]:
        """(dimension, low, high) of what this tensor has to keep zero."""
        for dim, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if dim != self.part and (low or high):
                yield dim, low, high


def halo_of(type_: TensorType[Attribute]) -> Halo | None:
    """The halo of a tensor type; None when its layout does more than move indices."""
    layout = layout_of(type_)
    shape = type_.get_shape()
    if layout is None:
        return Halo((0,) * len(shape), (0,) * len(shape))
    origin = _origin(layout.map.data)
    if origin is None:
        return None
    rows = zip(origin, shape, layout.physical.data, strict=True)
    return Halo(origin, tuple(whole - low - size for low, size, whole in rows), layout.part.data)


@lru_cache(maxsize=1 << 12)
def _origin(map_: AffineMap) -> Shape | None:
    """
    Where a map that only moves indices by constants has the first; None for another map.

    Remembered: few maps are those of many tensors, and each is asked about in many places.
    """
    origin = tuple(map_.eval((0,) * map_.num_dims, ()))
    moved = [AffineExpr.dimension(dim) + by for dim, by in enumerate(origin)]
    return origin if len(origin) == map_.num_dims and list(map_.results) == moved else None


def _halo_of_part(type_: TensorType[Attribute]) -> Halo | None:
    """The halo of a tensor that is a part of a larger one; None for others."""
    layout = layout_of(type_)
    return None if layout is None or layout.part.data < 0 else halo_of(type_)


def physical_shape(type_: TensorType[Attribute]) -> Shape:
    """The shape of the memory behind a tensor."""
    layout = layout_of(type_)
    return layout.physical.data if layout else type_.get_shape()


def memory_span(type_: TensorType[Attribute]) -> tuple[int, int]:
    """
    The first physical element of the memory that loops get for a tensor, and how many there are.

    All of them, but for a part: those from its first index along that dimension to its last.
    """
    physical, halo = physical_shape(type_), _halo_of_part(type_)
    if halo is None:
        return 0, prod(physical)
    step = prod(physical[halo.part + 1 :])
    low, high = halo.low[halo.part], halo.high[halo.part]
    if not prod(physical):
        return 0, 0  # Of nothing, there is no part at an offset.
    return low * step, prod(physical) - (low + high) * step


def moved_to_start(type_: Attribute) -> Attribute:
    """The type of the first part of the larger tensor that this is a part of, as large as this."""
    if not isinstance(type_, TensorType):
        return type_
    halo = _halo_of_part(type_)
    if halo is None or not halo.low[halo.part]:
        return type_
    low = [0 if dim == halo.part else at for dim, at in enumerate(halo.low)]
    first = LayoutAttr.moved(low, physical_shape(type_), halo.part)
    return tensor_type(type_.element_type, type_.get_shape(), first)
