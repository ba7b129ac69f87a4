"""Recipes: attributes of loops that request transformations by passes of the loops level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import DenseArrayBase, IntAttr, MemRefType, UnitAttr, i64
from xdsl.ir import Attribute, Operation, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.attributes import NamedNumbers
from popgraph.support.shapes import prod

Recipes: TypeAlias = Mapping[str, Attribute]
"""{name: attribute} of one loop."""

UNROLL = "unroll"
"""The attribute of a loop to replace by one copy of its body per iteration."""
UNROLLED: Recipes = {UNROLL: UnitAttr()}


def is_unrolled(op: Operation) -> bool:
    """Whether a loop is marked for full unrolling."""
    return UNROLL in op.attributes


SPLIT = "split"
"""
The attribute of a loop over blocks, to replace by loops over blocks of constant, balanced sizes.

Its step is the size of the largest block; the body computes the size of the current one
(`block_size`). Blocks are independent, and local memory that the body allocates has an equal part
for each iteration of a block.
"""
IN_BLOCKS: Recipes = {SPLIT: UnitAttr()}


def check_split(loop: scf.ForOp, blocks: range | None) -> None:
    """Raises VerifyException unless a loop over blocks, and the memory of each, can be split."""
    if SPLIT not in loop.attributes:
        return
    inside = [op for op in loop.walk() if op is not loop]
    if blocks is None or loop.results or any(SPLIT in op.attributes for op in inside):
        raise VerifyException(
            f"a loop marked {SPLIT} needs constant bounds, may carry no values, and may hold no "
            f"other such loop"
        )
    for op in inside:
        type_ = op.memref.type if isinstance(op, memref.AllocaOp) else None
        if isinstance(type_, MemRefType) and prod(type_.get_shape()) % blocks.step:
            raise VerifyException(
                f"local memory in a loop marked {SPLIT} must have an equal part for each of "
                f"{blocks.step} iterations, not {type_}"
            )


INTERCHANGE = "interchange"
"""The attribute of a loop with independent iterations, to move into its inner loops."""
INTERCHANGED: Recipes = {INTERCHANGE: UnitAttr()}

VECTORIZE = "vectorize"
"""The lanes of the vectors that replace the iterations of a loop: `array<i64: 16, 16, 4, 1>`."""


def vectorized(widths: Sequence[int]) -> Recipes:
    """Requests vectors of these widths, in this order, instead of a loop's iterations."""
    return {VECTORIZE: DenseArrayBase.from_list(i64, widths)}


def widths_of(loop: Operation) -> tuple[int, ...]:
    """The widths of the vectors that replace a loop; empty if it is not marked."""
    marked = loop.attributes.get(VECTORIZE)
    return tuple(map(int, marked.get_values())) if isinstance(marked, DenseArrayBase) else ()


def check_vectorized(loop: scf.ForOp, trips: int | None) -> None:
    """Raises VerifyException unless vectors cover the `trips` iterations of a loop exactly."""
    if VECTORIZE not in loop.attributes:
        return
    widths = widths_of(loop)
    if not widths or min(widths) < 1 or sum(widths) != trips:
        raise VerifyException(
            f"{VECTORIZE} must cover the {trips} iterations of the loop exactly, not "
            f"{loop.attributes[VECTORIZE]}"
        )


def check_interchanged(loop: scf.ForOp) -> None:
    """Raises VerifyException unless loops to interchange are one nest, each directly in another."""
    if INTERCHANGE not in loop.attributes:
        return
    inner = [op for op in loop.walk() if INTERCHANGE in op.attributes and op is not loop]
    if sum(op.parent_op() is loop for op in inner) > 1 or any(
        INTERCHANGE not in getattr(op.parent_op(), "attributes", {}) for op in inner
    ):
        raise VerifyException(
            f"a loop marked {INTERCHANGE} may hold one other such loop, directly inside"
        )


PREFETCH = "prefetch"
"""The attribute of a loop with a prefetch recipe."""


@irdl_attr_definition
class PrefetchAheadAttr(NamedNumbers):
    """
    Prefetches each access of the loop to one argument of the kernel, `by` elements ahead.

    For memory that is read once, in storage order, and for stores to distant cache lines.
    In text: `#tile.prefetch_ahead<argument 2, by 640>`.
    """

    name = "tile.prefetch_ahead"
    argument: IntAttr
    by: IntAttr

    FIELDS: ClassVar = ("argument", "by")

    def verify(self) -> None:
        if self.argument.data < 0 or self.by.data < 1:
            raise VerifyException(
                "a prefetch needs an argument, and a distance of at least one element"
            )


@irdl_attr_definition
class PrefetchNextAttr(ParametrizedAttribute):
    """
    Prefetches the next section of a packed panel while blocks of rows read the current one.

    The `loops` innermost loops read a section of `elements` in order, `lanes` per step. Several
    blocks of rows read it: each step of a block prefetches `share` elements, and of these the first
    `lines` cache lines. Each block skips the shares of the others: `first` elements, plus `again`
    elements per step of the enclosing loops (one entry per loop, innermost first). If chunks divide
    the rows, it also skips `chunk` elements per preceding chunk, or per step of the digit
    `number // divisor % modulo` of the chunk number.

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

    def outside_of(self, number: int, at: int) -> PrefetchNextAttr:
        """The recipe without the outer loop `number`, innermost first, at its iteration `at`."""
        again, numbers = list(self.again), {name: self[name] for name in (*self.FIELDS, *self.RARE)}
        if 0 <= number < len(again):
            numbers["first"] += again.pop(number) * at
        # Trailing zeros are loops that share nothing: the text of a recipe has none.
        while again and not again[-1]:
            again.pop()
        return self.of(again, **numbers)

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
                parser.raise_error(f"a prefetch has no field {name}")

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, one)
        if missing := [name for name in cls.FIELDS if name not in numbers]:
            parser.raise_error(f"a prefetch needs the field {missing[0]}")
        return [*cls.of(again, **numbers).parameters]

    def verify(self) -> None:
        if min(*self.numbers, *self.again) < 0:
            raise VerifyException("fields of a prefetch must not be negative")
        if 0 in (self["loops"], self["elements"], self["lines"], self["divisor"]):
            raise VerifyException(
                "loops, elements, lines and divisor of a prefetch must be at least 1"
            )
        if not 1 <= self["share"] <= self["lanes"]:
            raise VerifyException("the share of a step must be between 1 and its lanes")


PrefetchAttr: TypeAlias = PrefetchAheadAttr | PrefetchNextAttr


def argument_of(recipe: PrefetchAttr) -> int:
    """The number of the kernel argument that a recipe prefetches."""
    return recipe["argument"] if isinstance(recipe, PrefetchNextAttr) else recipe.argument.data


def check_prefetch(loop: Operation, memories: int) -> None:
    """Raises VerifyException if a loop's recipe does not fit it or the kernel's `memories`."""
    recipe = loop.attributes.get(PREFETCH)
    if recipe is None:
        return
    if not isinstance(recipe, PrefetchAttr):
        raise VerifyException(f"{PREFETCH} must be a prefetch recipe, not {recipe}")
    if not 1 <= argument_of(recipe) <= memories:
        raise VerifyException(f"{recipe} must name one of the kernel's {memories} memories")
    around: Operation | None = loop
    for _ in range(recipe["loops"] if isinstance(recipe, PrefetchNextAttr) else 1):
        if not isinstance(around, scf.ForOp):
            raise VerifyException(f"{recipe} needs more enclosing loops")
        around = around.parent_op()
