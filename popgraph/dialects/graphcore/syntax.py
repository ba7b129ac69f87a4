"""Text form of graphcore operations: `graphcore.pad %x {low = [1]} : (..) -> ..`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
from xdsl.dialects.builtin import FloatAttr, FunctionType, IntegerAttr, StringAttr, f64, i1, i64
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.printer import Printer

from popgraph.dialects.program.attributes import IntsAttr

OperationT = TypeVar("OperationT", bound=IRDLOperation)


def to_attribute(value: object) -> Attribute | None:
    """The attribute of a Python bool, int, float, str or sequence of ints."""
    match value:
        case None | Attribute():
            return value
        case np.generic():
            return to_attribute(value.item())
        case bool():
            return IntegerAttr(int(value), i1)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
        case str():
            return StringAttr(value)
        case Iterable():
            return IntsAttr.of(value)
    raise AssertionError(f"no property holds {value!r}")


def print_property(printer: Printer, value: Attribute) -> None:
    """Prints `3`, `true`, `1.0e-05`, `"eq"`, `[1, 2]` or `f32`; omits the types i64 and f64."""
    if isinstance(value, IntsAttr):
        value.print_parameter(printer)
        return
    text = str(value)
    if isinstance(value, IntegerAttr) and value.type == i64:
        text = text.removesuffix(" : i64")
    elif isinstance(value, FloatAttr) and value.type == f64 and "." in text:
        text = text.removesuffix(" : f64")
    printer.print_string(text)


def parse_property(parser: Parser) -> Attribute:
    """Parses the text of `print_property`."""
    numbers = parser.parse_optional_comma_separated_list(
        parser.Delimiter.SQUARE, parser.parse_integer
    )
    return parser.parse_attribute() if numbers is None else IntsAttr.of(numbers)


def _parse_named_property(parser: Parser) -> tuple[str, Attribute]:
    name = parser.parse_identifier()
    parser.parse_punctuation("=")
    return name, parse_property(parser)


def print_operation(
    printer: Printer, op: IRDLOperation, properties: Mapping[str, Attribute]
) -> None:
    """Prints operands, properties in order of definition, discardable attributes and types."""
    if op.operands:
        printer.print_string(" ")
        printer.print_list(op.operands, printer.print_operand)
    if properties:
        printer.print_string(" {")
        separator = ""
        for name, value in properties.items():
            printer.print_string(f"{separator}{name} = ")
            print_property(printer, value)
            separator = ", "
        printer.print_string("}")
    printer.print_op_attributes(op.attributes, print_keyword=True)
    printer.print_string(" : ")
    printer.print_operation_type(op)


def parse_operation(parser: Parser, kind: type[OperationT]) -> OperationT:
    """Parses the text of `print_operation`."""
    place = parser.pos
    operands = (
        parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        or []
    )
    properties = parser.parse_optional_comma_separated_list(
        parser.Delimiter.BRACES, lambda: _parse_named_property(parser)
    )
    attributes = parser.parse_optional_attr_dict_with_keyword()
    parser.parse_punctuation(":")
    type_: FunctionType = parser.parse_function_type()
    return kind.create(
        operands=parser.resolve_operands(operands, type_.inputs.data, place),
        result_types=type_.outputs.data,
        properties=dict(properties or []),
        attributes=dict(attributes.data) if attributes else {},
    )
