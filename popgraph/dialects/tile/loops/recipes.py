"""Recipes: attributes of loops that say how passes of the loops level are to transform them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import DenseArrayBase, IntAttr, UnitAttr, i64
from xdsl.ir import Attribute, Operation, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.attributes import NamedNumbers

Recipes: TypeAlias = Mapping[str, Attribute]
"""Attributes of one loop, by their names."""

UNROLL = "unroll"
"""Replace the loop by a copy of its body for each iteration."""
UNROLLED: Recipes = {UNROLL: UnitAttr()}


def is_unrolled(op: Operation) -> bool:
    """Whether a loop is to be unrolled."""
    return UNROLL in op.attributes


INTERCHANGE = "interchange"
"""Move the loop into the loops inside it; its iterations are independent of each other."""
INTERCHANGED: Recipes = {INTERCHANGE: UnitAttr()}

VECTORIZE = "vectorize"
"""The lanes of the vectors that replace the iterations of a loop: `array<i64: 16, 16, 4, 1>`."""


def vectorized(widths: Sequence[int]) -> Recipes:
    """Vectors of these widths, one after the other, replace the iterations of a loop."""
    return {VECTORIZE: DenseArrayBase.from_list(i64, widths)}


def widths_of(loop: Operation) -> tuple[int, ...]:
    """The widths of the vectors that a loop is to become; none if it is not marked."""
    marked = loop.attributes.get(VECTORIZE)
    return tuple(map(int, marked.get_values())) if isinstance(marked, DenseArrayBase) else ()


def check_vectorized(loop: scf.ForOp, trips: int | None) -> None:
    """VerifyException unless the vectors of a loop are its `trips` iterations; None: unknown."""
    if VECTORIZE not in loop.attributes:
        return
    widths = widths_of(loop)
    if not widths or min(widths) < 1 or sum(widths) != trips:
        raise VerifyException(
            f"{VECTORIZE} gives each of the {trips} iterations of a loop to one vector, not "
            f"{loop.attributes[VECTORIZE]}"
        )


PREFETCH = "prefetch"
"""The attribute of a loop that holds a recipe."""


@irdl_attr_definition
class PrefetchAheadAttr(NamedNumbers):
    """
    Prefetch whatever the loop accesses in one argument of the kernel, `by` elements ahead.

    For memory that is read once, in the order in which it is stored, and for stores to distant
    lines. In text: `#tile.prefetch_ahead<argument 2, by 640>`.
    """

    name = "tile.prefetch_ahead"
    argument: IntAttr
    by: IntAttr

    FIELDS: ClassVar = ("argument", "by")

    def verify(self) -> None:
        if self.argument.data < 0 or self.by.data < 1:
            raise VerifyException("a prefetch is for an argument, an element ahead or more")


@irdl_attr_definition
class PrefetchNextAttr(ParametrizedAttribute):
    """
    Prefetch the next section of a packed panel while blocks of rows read the current one.

    A section has `elements`, which the `loops` innermost loops read in order, `lanes` in a step.
    Several blocks of rows read it: each step of one prefetches `share` elements, the first `lines`
    cache lines of them. Each block skips the shares of other blocks: `first` elements, and for each
    step of the loops around `again` elements (one number a loop, innermost first). Where chunks
    share the rows, it skips `chunk` elements for each chunk before it, or for each step of the
    digit `number // divisor % modulo` of the chunk's number.

    In text: `#tile.prefetch_next<argument 2, elements 4096, lanes 32, share 3, lines 1, loops 1,
    chunk 512, again [32]>`.
    """

    name = "tile.prefetch_next"
    numbers: IntsAttr
    again: IntsAttr

    FIELDS: ClassVar = ("argument", "elements", "lanes", "share", "lines", "loops")
    RARE: ClassVar = {"first": 0, "chunk": 0, "divisor": 1, "modulo": 0}

    @classmethod
    def of(cls, again: Iterable[int] = (), **numbers: int) -> PrefetchNextAttr:
        numbers = {**cls.RARE, **numbers}
        names = (*cls.FIELDS, *cls.RARE)
        return cls(IntsAttr.of(numbers[name] for name in names), IntsAttr.of(again))

    def __getitem__(self, name: str) -> int:
        return self.numbers.data[(*self.FIELDS, *self.RARE).index(name)]

    def print_parameters(self, printer: Printer) -> None:
        numbers = {name: self[name] for name in (*self.FIELDS, *self.RARE)}
        texts = [f"{name} {it}" for name, it in numbers.items() if it != self.RARE.get(name)]
        again = [f"again {list(self.again)}"] if self.again.data else []
        with printer.in_angle_brackets():
            printer.print_string(", ".join([*texts, *again]))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        numbers, again = dict(cls.RARE), list[int]()

        def one() -> None:
            name = parser.parse_identifier()
            if name == "again":
                again.extend(IntsAttr.parse_parameter(parser))
            elif name in cls.FIELDS or name in cls.RARE:
                numbers[name] = parser.parse_integer()
            else:
                parser.raise_error(f"a prefetch has no {name}")

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, one)
        if missing := [name for name in cls.FIELDS if name not in numbers]:
            parser.raise_error(f"a prefetch needs {missing[0]}")
        return [*cls.of(again, **numbers).parameters]

    def verify(self) -> None:
        if min(*self.numbers, *self.again) < 0:
            raise VerifyException("the numbers of a prefetch are not negative")
        if 0 in (self["loops"], self["elements"], self["lines"], self["divisor"]):
            raise VerifyException("a section has elements in lines, which a loop reads")
        if not 1 <= self["share"] <= self["lanes"]:
            raise VerifyException("a step prefetches at most as many elements as it reads")


PrefetchAttr: TypeAlias = PrefetchAheadAttr | PrefetchNextAttr


def argument_of(recipe: PrefetchAttr) -> int:
    """The number of the argument whose lines a recipe requests."""
    return recipe["argument"] if isinstance(recipe, PrefetchNextAttr) else recipe.argument.data


def check_prefetch(loop: Operation, memories: int) -> None:
    """VerifyException if a loop has a recipe that does not fit it, or the kernel's `memories`."""
    recipe = loop.attributes.get(PREFETCH)
    if recipe is None:
        return
    if not isinstance(recipe, PrefetchAttr):
        raise VerifyException(f"{PREFETCH} is a recipe for prefetches, not {recipe}")
    if not 1 <= argument_of(recipe) <= memories:
        raise VerifyException(f"{recipe} is for none of the kernel's {memories} memories")
    around: Operation | None = loop
    for _ in range(recipe["loops"] if isinstance(recipe, PrefetchNextAttr) else 1):
        if not isinstance(around, scf.ForOp):
            raise VerifyException(f"{recipe} needs more loops around it")
        around = around.parent_op()
