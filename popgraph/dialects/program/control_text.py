"""The text form of branches and loops without their bodies: printed, and parsed back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import FunctionType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from popgraph.dialects.program.control_signatures import (
    GROUPS,
    UNBOUNDED,
    Branching,
    LoopArguments,
    Looping,
)

STEERING = ("while", "limit")
"""Keywords of operands that may end a loop early, in operand order."""


def print_branch(printer: Printer, op: Branching) -> None:
    """Prints a branch without its bodies."""
    printer.print_operand(op.predicate)
    _print_group(printer, "captured", op.captured)
    _print_end(printer, op)


def print_loop(printer: Printer, op: Looping) -> None:
    """Prints a loop without its body."""
    printer.print_string(f" trips {op.turns}" if op.turns != UNBOUNDED else "")
    printer.print_string(" reverse" if op.reverse else "")
    for word, value in zip(STEERING, (op.go, op.limit), strict=True):
        if value is not None:
            printer.print_string(f" {word} ")
            printer.print_operand(value)
    for word in GROUPS:
        _print_group(printer, word, getattr(op, word))
    _print_end(printer, op)


def _print_group(printer: Printer, word: str, values: Sequence[SSAValue]) -> None:
    if values:
        printer.print_string(f" {word} (")
        printer.print_list(values, printer.print_operand)
        printer.print_string(")")


def _print_end(printer: Printer, op: Operation) -> None:
    printer.print_op_attributes(op.attributes, print_keyword=True)
    printer.print_string(" : ")
    printer.print_operation_type(op)


ParsedTypes: TypeAlias = tuple[list[SSAValue], list[Attribute], dict[str, Attribute]]
"""Operands, result types and discardable attributes."""


def parse_branch(parser: Parser) -> ParsedTypes:
    """Parses the text of `print_branch`."""
    predicate = parser.parse_unresolved_operand()
    return _parse_end(parser, [predicate, *_parse_group(parser, "captured")])


def parse_loop(parser: Parser) -> tuple[LoopArguments, list[Attribute], dict[str, Attribute]]:
    """Parses the text of `print_loop` into constructor arguments, result types and attributes."""
    trips = parser.parse_integer() if parser.parse_optional_keyword("trips") else UNBOUNDED
    reverse = parser.parse_optional_keyword("reverse") is not None
    single = [
        [parser.parse_unresolved_operand()] if parser.parse_optional_keyword(word) else []
        for word in STEERING
    ]
    groups = [*single, *(_parse_group(parser, word) for word in GROUPS)]
    flat = [operand for group in groups for operand in group]
    operands, results, attributes = _parse_end(parser, flat)
    rest = iter(operands)
    go, limit, carried, scanned, captured = ([next(rest) for _ in group] for group in groups)
    arguments = LoopArguments(
        trips=trips,
        reverse=reverse,
        go=go[0] if go else None,
        limit=limit[0] if limit else None,
        carried=carried,
        scanned=scanned,
        captured=captured,
    )
    return arguments, results, attributes


def _parse_group(parser: Parser, word: str) -> list[UnresolvedOperand]:
    if parser.parse_optional_keyword(word) is None:
        return []
    return parser.parse_comma_separated_list(
        parser.Delimiter.PAREN, parser.parse_unresolved_operand
    )


def _parse_end(parser: Parser, operands: Sequence[UnresolvedOperand]) -> ParsedTypes:
    place = parser.pos
    attributes = parser.parse_optional_attr_dict_with_keyword()
    parser.parse_punctuation(":")
    type_: FunctionType = parser.parse_function_type()
    resolved = parser.resolve_operands(operands, type_.inputs.data, place)
    return list(resolved), list(type_.outputs.data), dict(attributes.data) if attributes else {}
