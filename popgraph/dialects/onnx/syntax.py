"""Text form of ONNX nodes: `%y = onnx.Conv.v11(%x, %w, -) {group = 1} -> ["y"] : ...`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    NoneAttr,
    StringAttr,
    f32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import Parser
from xdsl.printer import Printer

from popgraph.dialects.onnx.attributes import (
    FloatsAttr,
    RefAttr,
    floats_text,
    parse_floats,
)
from popgraph.dialects.onnx.types import NamesAttr, parse_names, print_names
from popgraph.dialects.program import BytesAttr
from popgraph.dialects.program.attributes import parse_quoted, quoted

_T = TypeVar("_T")

SINGLE, OPTIONAL, VARIADIC = "single", "optional", "variadic"


@dataclass(frozen=True)
class Slot:
    """A formal input or output of a schema: its accessor, and its number of values."""

    field: str
    arity: str


def spread(op: Operation, slots: Sequence[Slot]) -> list[SSAValue | None]:
    """The values of all slots, in order; None for absent optional ones."""
    values: list[SSAValue | None] = []
    for slot in slots:
        held: Any = getattr(op, slot.field)
        if slot.arity == VARIADIC:
            values.extend(held)
        else:
            values.append(held)
    return values


def gather(slots: Sequence[Slot], values: Sequence[_T | None]) -> tuple[list[_T], list[int]]:
    """The values that are present, and their number in each slot; ValueError if one is missing."""
    rest = iter(values)
    there: list[_T] = []
    sizes: list[int] = []
    for slot in slots:
        listed = list(rest) if slot.arity == VARIADIC else [next(rest, None)]
        found = [value for value in listed if value is not None]
        if len(found) < len(listed) and slot.arity != OPTIONAL:
            raise ValueError(f"the operand or result {slot.field!r} is missing")
        there += found
        sizes.append(len(found))
    return there, sizes


def present_outputs(slots: Sequence[Slot], names: Sequence[str]) -> list[bool]:
    """Marks entries of a node's output list that are values: all but unnamed optional ones."""
    fixed = [slot for slot in slots if slot.arity != VARIADIC]
    return [
        bool(name) or place >= len(fixed) or fixed[place].arity != OPTIONAL
        for place, name in enumerate(names)
    ]


def print_operands(printer: Printer, op: Operation, slots: Sequence[Slot]) -> None:
    """Prints `(%x, -, %z)` without trailing absent operands."""
    values = spread(op, slots)
    while values and values[-1] is None:
        values.pop()
    print_values(printer, values)


def print_values(printer: Printer, values: Sequence[SSAValue | None]) -> None:
    def one(value: SSAValue | None) -> None:
        if value is None:
            printer.print_string("-")
        else:
            printer.print_ssa_value(value)

    with printer.in_parens():
        printer.print_list(values, one)


def parse_operands(parser: Parser, slots: Sequence[Slot]) -> list[SSAValue | None]:
    values = parse_values(parser)
    single = sum(slot.arity == SINGLE for slot in slots)
    fixed = [slot for slot in slots if slot.arity != VARIADIC]
    if len(values) < single or (len(values) > len(fixed) and len(fixed) == len(slots)):
        parser.raise_error(f"{len(values)} operands, but the schema has {len(slots)}")
    return values


def parse_values(parser: Parser) -> list[SSAValue | None]:
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_value(parser))


def _parse_value(parser: Parser) -> SSAValue | None:
    """Parses a value that is already defined, with its type from there, or `-`."""
    if parser.parse_optional_punctuation("-"):
        return None
    named = parser.parse_unresolved_operand()
    found = parser.ssa_values.get(named.operand_name, ())
    if named.index >= len(found):
        parser.raise_error("the value is used before it is defined", named.span)
    return found[named.index]


def print_properties(printer: Printer, properties: Mapping[str, Attribute]) -> None:
    """Prints ` {axis = 1, alpha = 0.5, mode = "linear"}`."""
    if not properties:
        return

    def one(item: tuple[str, Attribute]) -> None:
        printer.print_string(f"{item[0]} = ")
        _print_property(printer, item[1])

    printer.print_string(" ")
    with printer.in_braces():
        printer.print_list(properties.items(), one)


def _print_property(printer: Printer, value: Attribute) -> None:
    match value:
        case IntegerAttr():
            printer.print_string(str(value.value.data))
        case DenseArrayBase():
            printer.print_string(f"[{', '.join(map(str, value.get_values()))}]")
        case FloatAttr():
            printer.print_string(_float_text(value.value.data))
        case FloatsAttr():
            printer.print_string(f'"{floats_text(value)}"')
        case BytesAttr():
            printer.print_string(quoted(value.data))
        case NamesAttr():
            print_names(printer, value)
        case RefAttr():
            printer.print_string(f"ref {quoted(value.attribute.data)}")
        case _:
            printer.print_attribute(value)


def _float_text(value: float) -> str:
    """The shortest decimal that the lexer accepts and that parses back to the same f32."""
    text = floats_text(FloatsAttr.of([value]))
    if not re.fullmatch(r"-?[0-9.]+(e[-+]?[0-9]+)?", text):
        return f'"{text}"'
    mantissa, e, exponent = text.partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent


def parse_properties(parser: Parser, kinds: Mapping[str, str]) -> dict[str, Attribute]:
    if not parser.parse_optional_punctuation("{"):
        return {}
    properties: dict[str, Attribute] = {}

    def one() -> None:
        name = parser.parse_identifier()
        if name not in kinds:
            parser.raise_error(
                f"unknown attribute {name}; known attributes: {', '.join(kinds) or 'none'}"
            )
        parser.parse_punctuation("=")
        properties[name] = _parse_property(parser, kinds[name])

    parser.parse_comma_separated_list(parser.Delimiter.NONE, one)
    parser.parse_punctuation("}")
    return properties


def _parse_property(parser: Parser, kind: str) -> Attribute:
    if parser.parse_optional_keyword("ref"):
        return RefAttr(BytesAttr(parse_quoted(parser)), StringAttr(kind))
    match kind:
        case "INT":
            return IntegerAttr(parser.parse_integer(), i64)
        case "INTS":
            values = parser.parse_comma_separated_list(
                parser.Delimiter.SQUARE, parser.parse_integer
            )
            return DenseArrayBase.from_list(i64, values)
        case "FLOAT":
            number = parser.parse_optional_number()
            if number is not None:
                return FloatAttr(float(number), f32)
            numbers = parse_floats(parser).values
            if len(numbers) != 1:
                parser.raise_error(f"expected one number, not {len(numbers)}")
            return FloatAttr(numbers[0], f32)
        case "FLOATS":
            return parse_floats(parser)
        case "STRING":
            return BytesAttr(parse_quoted(parser))
        case "STRINGS":
            return parse_names(parser)
        case _:
            return parser.parse_attribute()


def print_results(printer: Printer, op: Operation) -> None:
    """Prints ` -> ["y"] named "conv1" : tensor<...> attributes {...}`."""
    printer.print_string(" -> ")
    names, label = op.attributes.get("outputs"), op.attributes.get("name")
    assert isinstance(names, NamesAttr), "a node has the list of its output names"
    print_names(printer, names)
    if isinstance(label, BytesAttr):
        printer.print_string(f" named {quoted(label.data)}")
    if op.results:
        printer.print_string(" : ")
        printer.print_list(op.result_types, printer.print_attribute)
    printer.print_op_attributes(
        op.attributes, reserved_attr_names=("outputs", "name"), print_keyword=True
    )


def parse_results(parser: Parser) -> tuple[NamesAttr, list[Attribute], dict[str, Attribute]]:
    """Parses output names, result types and the rest of the attribute dictionary."""
    parser.parse_punctuation("->")
    names = parse_names(parser)
    extra: dict[str, Attribute] = {}
    if parser.parse_optional_keyword("named"):
        extra["name"] = BytesAttr(parse_quoted(parser))
    types: list[Attribute] = []
    if parser.parse_optional_punctuation(":"):
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
    attributes = parser.parse_optional_attr_dict_with_keyword()
    return names, types, extra | (dict(attributes.data) if attributes else {})


def type_per_output(
    parser: Parser, types: Sequence[Attribute], present: Sequence[bool]
) -> list[Attribute]:
    """The parsed types of present outputs, NoneAttr for absent ones."""
    if len(types) != sum(present):
        parser.raise_error(f"{len(types)} result types for {sum(present)} named outputs")
    rest = iter(types)
    return [next(rest) if here else NoneAttr() for here in present]


def parse_attributes(parser: Parser, op: Operation) -> None:
    attributes = parser.parse_optional_attr_dict_with_keyword()
    if attributes is not None:
        op.attributes |= attributes.data
