"""Layout and schedule attributes, and the halos and memory spans that layouts define."""

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
    The position of a tensor's elements in memory; the `encoding` of its type.

    `map` takes a logical index to a physical one in a dense row-major array of shape `physical`.
    Channels in blocks of 16 with a halo of one pixel is
    `#tile.layout<(n, c, y, x) -> (n, c floordiv 16, y + 1, x + 1, c mod 16), [1, 4, 58, 58, 16]>`.
    Physical elements that no logical index reaches hold zero. A type without encoding is dense
    row-major.

    A layout that only adds constants to indices gives the tensor a halo: reads outside the shape
    may fall there, and give zero. With a `part`, the memory belongs to a larger tensor, and this
    one is a slice of it along that dimension; it does not own the elements next to the slice.
    Operations that compute or read a slice get the memory from its first index on, so their loops
    do not depend on its position in the larger tensor.
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
        """The layout that puts index 0 at `low` in memory of shape `physical`."""
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
            raise VerifyException("a layout's map must have one result per physical dimension")
        if self.part.data >= len(self.physical):
            raise VerifyException("a part must be along one of the physical dimensions")


class NamedNumbers(ParametrizedAttribute):
    """
    Named integers, written `name number, name number`.

    A class declares its fields as parameters of type `IntAttr` and lists their names: `FIELDS` are
    always printed, `RARE` ones only if they differ from their defaults.
    """

    FIELDS: ClassVar[tuple[str, ...]]
    RARE: ClassVar[Mapping[str, int]] = {}

    @classmethod
    def of(cls, **numbers: int) -> Self:
        """The attribute with these fields; rare fields have defaults."""
        numbers = {**cls.RARE, **numbers}
        return cls.new([integer(numbers[name]) for name in (*cls.FIELDS, *cls.RARE)])

    @property
    def numbers(self) -> dict[str, int]:
        """The fields, by name."""
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
                    parser.raise_error(f"unknown field; optional fields: {others}")
                numbers[rare] = parser.parse_integer()
        return list(cls.of(**numbers).parameters)


@irdl_attr_definition
class ScheduleAttr(NamedNumbers):
    """
    The register blocking of a contraction.

    `n_dim` is the vectorized parallel dimension; a micro-kernel holds `n_vectors` vectors of it, of
    `lanes` lanes each. `m_dim` is the other blocked parallel dimension (-1: none); a micro-kernel
    holds `mr` indices of it. `kc` reduction terms are accumulated in registers before they are
    added to the total (0: all terms). With `k_outer` 1, all results accumulate one chunk of `kc`
    terms before the next chunk: totals are in memory, and the epilogue is empty. If rows of `m_dim`
    are shorter than a block, a micro-kernel also holds several indices of `m_outer_dim` (-1: none).
    With `n_inner` 1, all panels are computed for one block of rows before the next block: for rows
    that stream from memory while panels stay in cache. `window_panels` (0: none) unrolls the
    innermost reduction of a depthwise convolution, so that values shared by its steps stay in
    registers. With `n_inner`, groups of this many panels run along the loop next to the rows,
    within a block of rows: as many as fit in L1. Without, vectors run along pixels, and it is 1.
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
    """Former names of fields: files of schedules with them are readable for one more version."""

    @classmethod
    def of_text(cls, text: str) -> ScheduleAttr:
        """Parses a printed schedule, with fields in any order; ValueError if it is malformed."""
        pairs = re.findall(r"(\w+) (-?\d+)", text)
        numbers = {cls.EARLIER.get(name, name): int(number) for name, number in pairs}
        missing = [name for name in cls.FIELDS if name not in numbers]
        unknown = numbers.keys() - {*cls.FIELDS, *cls.RARE}
        if missing or unknown:
            fault = (
                f"has no field {missing[0]}" if missing else f"has the unknown field {min(unknown)}"
            )
            raise ValueError(f"the schedule {fault}")
        try:
            made = cls.of(**numbers)
        except VerifyException as error:
            raise ValueError(str(error)) from error
        if any(name in cls.EARLIER for name, _ in pairs):
            message = f"fields of schedules have been renamed; write {made}"
            warnings.warn(message, FutureWarning, stacklevel=2)
        return made

    @property
    def nr(self) -> int:
        """The width of a panel: the lanes of all vectors of a micro-kernel."""
        return self.n_vectors.data * self.lanes.data

    def verify(self) -> None:
        if self.n_vectors.data < 1 or self.mr.data < 1 or self.lanes.data < 1:
            raise VerifyException("a micro-kernel needs at least one vector")
        if self.k_outer.data and not self.kc.data:
            raise VerifyException("k_outer needs a kc")
        if self.window_panels.data and self.m_dim.data < 0:
            raise VerifyException("window_panels needs an m_dim")
        if self.window_panels.data > 1 and not self.n_inner.data:
            raise VerifyException("window_panels above 1 needs n_inner")


def with_layout(type_: TensorType[Attribute], layout: LayoutAttr) -> TensorType[Attribute]:
    """The tensor type with another layout."""
    return tensor_type(type_.element_type, type_.get_shape(), layout)


def layout_of(type_: TensorType[Attribute]) -> LayoutAttr | None:
    """The layout of a tensor type; None for dense row-major."""
    return type_.encoding if isinstance(type_.encoding, LayoutAttr) else None


@dataclass(frozen=True)
class Halo:
    """The memory around the elements of a tensor, along each dimension."""

    low: Shape
    high: Shape
    part: int = -1
    """The dimension along which the adjacent memory belongs to other tensors; -1 for none."""

    @property
    def own(self) -> Iterator[tuple[int, int, int]]:
        """(dimension, low, high) of halos that this tensor must keep zero."""
        for dim, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if dim != self.part and (low or high):
                yield dim, low, high


def halo_of(type_: TensorType[Attribute]) -> Halo | None:
    """The halo of a tensor type; None if its layout does more than add constants to indices."""
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
    The image of index 0 under a map that only adds constants; None for other maps.

    Cached: a program has few different maps, and many passes query each of them.
    """
    origin = tuple(map_.eval((0,) * map_.num_dims, ()))
    moved = [AffineExpr.dimension(dim) + by for dim, by in enumerate(origin)]
    return origin if len(origin) == map_.num_dims and list(map_.results) == moved else None


def _halo_of_part(type_: TensorType[Attribute]) -> Halo | None:
    """The halo of a tensor that is a slice of a larger one; None for others."""
    layout = layout_of(type_)
    return None if layout is None or layout.part.data < 0 else halo_of(type_)


def physical_shape(type_: TensorType[Attribute]) -> Shape:
    """The shape of a tensor's memory."""
    layout = layout_of(type_)
    return layout.physical.data if layout else type_.get_shape()


def memory_span(type_: TensorType[Attribute]) -> tuple[int, int]:
    """
    The first physical element of the loops' view of a tensor, and the number of elements.

    The whole memory, or for a part the span from its first index along that dimension to its last.
    """
    physical, halo = physical_shape(type_), _halo_of_part(type_)
    if halo is None:
        return 0, prod(physical)
    step = prod(physical[halo.part + 1 :])
    low, high = halo.low[halo.part], halo.high[halo.part]
    if not prod(physical):
        return 0, 0  # An empty memory has no offsets.
    return low * step, prod(physical) - (low + high) * step


def moved_to_start(type_: Attribute) -> Attribute:
    """The type of the first slice of the larger tensor with the size of this one."""
    if not isinstance(type_, TensorType):
        return type_
    halo = _halo_of_part(type_)
    if halo is None or not halo.low[halo.part]:
        return type_
    low = [0 if dim == halo.part else at for dim, at in enumerate(halo.low)]
    first = LayoutAttr.moved(low, physical_shape(type_), halo.part)
    return tensor_type(type_.element_type, type_.get_shape(), first)
