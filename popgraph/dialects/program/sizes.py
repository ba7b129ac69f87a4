"""The module attribute that lists the dynamic sizes of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType
from xdsl.ir import Attribute, Data, Operation, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.program.attributes import parse_quoted, quoted
from popgraph.support.sizes import Size, SizedAxis

NAME = "sizes"


@irdl_attr_definition
class SizeAttr(Data[Size]):
    """
    A dynamic size: `#pg.size<"N" 1 to 64 inputs ("x" axis 0 times 1) outputs ()>`.

    Tensor types hold its upper bound.
    """

    name = "pg.size"

    def print_parameter(self, printer: Printer) -> None:
        size = self.data
        with printer.in_angle_brackets():
            printer.print_string(
                f"{quoted(size.name.encode())} {size.least} to {size.bound} "
                f"inputs ({_listed(size.inputs)}) outputs ({_listed(size.outputs)})"
            )

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Size:
        with parser.in_angle_brackets():
            name = parse_quoted(parser).decode()
            least = parser.parse_integer()
            parser.parse_keyword("to")
            bound = parser.parse_integer()
            parser.parse_keyword("inputs")
            inputs = parser.parse_comma_separated_list(
                parser.Delimiter.PAREN, lambda: _place(parser)
            )
            parser.parse_keyword("outputs")
            outputs = parser.parse_comma_separated_list(
                parser.Delimiter.PAREN, lambda: _place(parser)
            )
        return Size(name, bound, tuple(inputs), tuple(outputs), least)

    def verify(self) -> None:
        size = self.data
        if not 1 <= size.least <= size.bound:
            raise VerifyException(
                f"size {size.name!r} cannot range from {size.least} to {size.bound}"
            )
        if not size.inputs:
            raise VerifyException(f"size {size.name!r} must be an axis of an input")
        if any(place.factor < 1 or place.axis < 0 for place in (*size.inputs, *size.outputs)):
            raise VerifyException(
                f"size {size.name!r} needs a factor of at least 1 and an axis of at least 0"
            )


def _listed(places: Sequence[SizedAxis]) -> str:
    return ", ".join(
        f"{quoted(place.tensor.encode())} axis {place.axis} times {place.factor}"
        for place in places
    )


def _place(parser: AttrParser) -> SizedAxis:
    tensor = parse_quoted(parser).decode()
    parser.parse_keyword("axis")
    axis = parser.parse_integer()
    parser.parse_keyword("times")
    return SizedAxis(tensor, axis, parser.parse_integer())


def sizes_of(module: ModuleOp) -> tuple[Size, ...]:
    """The dynamic sizes of a module: each call determines them from its inputs."""
    found: Attribute | None = module.attributes.get(NAME)
    if found is None:
        return ()
    if not isinstance(found, ArrayAttr) or not all(isinstance(one, SizeAttr) for one in found):
        raise VerifyException(f"{NAME} of a module must be an array of #{SizeAttr.name}")
    return tuple(one.data for one in found if isinstance(one, SizeAttr))


def has_sizes(op: Operation) -> bool:
    """Whether the module of an operation has dynamic sizes."""
    while (outer := op.parent_op()) is not None:
        op = outer
    return NAME in op.attributes


def check_places(
    sizes: Sequence[Size], inputs: Mapping[str, SSAValue], outputs: Mapping[str, SSAValue]
) -> None:
    """Checks that size names are unique, and that listed axes exist and have their bounds."""
    if len({size.name for size in sizes}) != len(sizes):
        raise VerifyException("duplicate size name")
    taken = set[tuple[str, int]]()
    for size in sizes:
        for kind, tensors, places in (
            ("input", inputs, size.inputs),
            ("output", outputs, size.outputs),
        ):
            for place in places:
                where = f"axis {place.axis} of {kind} {place.tensor!r}"
                value = tensors.get(place.tensor)
                if value is None:
                    raise VerifyException(
                        f"size {size.name!r} is {where}, but the graph has no such {kind}"
                    )
                shape = value.type.get_shape() if isinstance(value.type, TensorType) else ()
                bound = place.factor * size.bound
                if shape[place.axis : place.axis + 1] != (bound,):
                    raise VerifyException(
                        f"size {size.name!r} is {bound} at its bound, "
                        f"but {where} is not: {value.type}"
                    )
                if (f"{kind} {place.tensor}", place.axis) in taken:
                    raise VerifyException(
                        f"{where} is listed for more than one size, or twice for one"
                    )
                taken.add((f"{kind} {place.tensor}", place.axis))


def set_sizes(module: ModuleOp, sizes: Sequence[Size]) -> None:
    """Sets the dynamic sizes of a module."""
    module.attributes[NAME] = ArrayAttr([SizeAttr(size) for size in sizes])
