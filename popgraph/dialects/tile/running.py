"""The attribute of loops that end at a dynamic size instead of their static extent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import OpTrait
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.control_signatures import NUMBER
from popgraph.dialects.program.ops import GraphOp
from popgraph.dialects.program.sizes import sizes_of
from popgraph.support.shapes import Shape
from popgraph.support.sizes import Size

NAME = "running"


@dataclass(frozen=True)
class Extent:
    """`factor` times a dynamic size, given by its index in the module's sizes."""

    size: int
    factor: int

    def scaled(self, by: int) -> Extent:
        """The extent times `by`."""
        return Extent(self.size, self.factor * by)

    def divided(self, by: int) -> Extent | None:
        """The extent after `by` iterations are merged into one; None if it is not a multiple."""
        return None if self.factor % by else Extent(self.size, self.factor // by)

    def at(self, sizes: Mapping[int, int]) -> int:
        """The value of the extent for these sizes."""
        return self.factor * sizes[self.size]


@irdl_attr_definition
class RunningAttr(ParametrizedAttribute):
    """
    Loops of an operation that end at dynamic sizes.

    The domain holds their extents at the upper bounds of the sizes, and memory is allocated for
    these. Elements past the end are neither read nor written. In text:
    `#tile.running<loop 0 to 4 of size 1>`.
    """

    name = "tile.running"
    numbers: IntsAttr
    """Loop, factor and size of each, flattened."""

    @staticmethod
    def of(extents: Mapping[int, Extent]) -> RunningAttr:
        ordered = sorted(extents.items())
        return RunningAttr(
            IntsAttr.of(n for loop, one in ordered for n in (loop, one.factor, one.size))
        )

    @property
    def extents(self) -> dict[int, Extent]:
        """{loop: its extent}."""
        numbers = iter(self.numbers)
        return {
            loop: Extent(size, factor)
            for loop, factor, size in zip(numbers, numbers, numbers, strict=True)
        }

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(
                ", ".join(
                    f"loop {loop} to {one.factor} of size {one.size}"
                    for loop, one in self.extents.items()
                )
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        def one() -> tuple[int, int, int]:
            parser.parse_keyword("loop")
            loop = parser.parse_integer()
            parser.parse_keyword("to")
            factor = parser.parse_integer()
            parser.parse_keyword("of")
            parser.parse_keyword("size")
            return loop, factor, parser.parse_integer()

        found = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, one)
        return [IntsAttr.of(number for numbers in found for number in numbers)]

    def verify(self) -> None:
        extents = self.extents
        if 3 * len(extents) != len(self.numbers.data) or not extents:
            raise VerifyException(
                "each running loop must be listed once, and at least one must be listed"
            )
        if any(loop < 0 or one.size < 0 or one.factor < 1 for loop, one in extents.items()):
            raise VerifyException("a running loop must end at a size or at a multiple of one")


@dataclass(frozen=True)
class EndsAtSizes(OpTrait):
    """
    Verifies loops that end at dynamic sizes: sizes exist, and the domain holds their bounds.

    Loops are numbered as in `sizes`, or with `by_result` as the axes of the result.
    """

    by_result: bool = False

    def verify(self, op: Operation) -> None:
        if NAME not in op.attributes:
            return
        if not isinstance(op.attributes[NAME], RunningAttr):
            raise VerifyException(
                f"{NAME} must be a #{RunningAttr.name}, not {op.attributes[NAME]}"
            )
        sizes, loops = _sizes_around(op), self._loops(op)
        for loop, end in running_of(op).items():
            if loop >= len(loops):
                raise VerifyException(
                    f"loop {loop} ends at a size, but the operation has {len(loops)} loops"
                )
            if end.size >= len(sizes):
                raise VerifyException(
                    f"loop {loop} ends at size {end.size}, but the module has {len(sizes)}"
                )
            bound = end.factor * sizes[end.size].bound
            if bound != loops[loop]:
                raise VerifyException(
                    f"loop {loop} has {loops[loop]} iterations, but ends at {bound} where size "
                    f"{end.size} is at its bound"
                )
        graph = _graph_around(op)
        held = graph.block.args[-len(sizes) :] if graph is not None else ()
        if len(held) < len(sizes) or any(argument.type != NUMBER for argument in held):
            raise VerifyException(
                "the last inputs of the graph must be its sizes, each a scalar i64"
            )

    def _loops(self, op: Operation) -> Shape:
        if self.by_result:
            return op.results[0].type.get_shape()  # type: ignore[attr-defined,no-any-return]
        return op.sizes  # type: ignore[attr-defined,no-any-return]


def _graph_around(op: Operation) -> GraphOp | None:
    graph = op.parent_op()
    while graph is not None and not isinstance(graph, GraphOp):
        graph = graph.parent_op()
    return graph


def _sizes_around(op: Operation) -> tuple[Size, ...]:
    """The dynamic sizes of an operation's module."""
    graph = _graph_around(op)
    module = None if graph is None else graph.parent_op()
    return sizes_of(module) if isinstance(module, ModuleOp) else ()


def running_of(op: Operation) -> dict[int, Extent]:
    """{loop: extent} of the loops of an operation that end at dynamic sizes."""
    found = op.attributes.get(NAME)
    if found is None:
        return {}
    assert isinstance(found, RunningAttr)
    return found.extents


def set_running(op: Operation, loops: Mapping[int, Extent]) -> None:
    """Sets the loops of an operation that end at dynamic sizes."""
    op.attributes.pop(NAME, None)
    if loops:
        op.attributes[NAME] = RunningAttr.of(loops)


def ends_of(op: Operation) -> list[int]:
    """The indices of sizes at which loops of an operation, or of its body, end."""
    return sorted({one.size for inner in op.walk() for one in running_of(inner).values()})


def sizes_for(op: Operation) -> list[SSAValue]:
    """The graph inputs that hold the sizes at which loops of `op` end."""
    numbers = ends_of(op) if _sizes_around(op) else []
    if not numbers:
        return []
    graph = _graph_around(op)
    assert graph is not None, "sizes are inputs of a graph"
    sizes = graph.block.args[-len(_sizes_around(op)) :]
    return [sizes[number] for number in numbers]
