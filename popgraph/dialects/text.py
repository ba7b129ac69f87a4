"""Reads IR text of any level: the only entry point for text from users."""

from __future__ import annotations

import re

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError as IRParseError
from xdsl.utils.exceptions import VerifyException

from popgraph.support.errors import ParseError, PopgraphError

DEEPEST = 80
"""
Levels of nesting.

Parsing, verifying and printing recurse over them. Measured: xDSL raises RecursionError from 200
to 400 nested regions.
"""

_TOKENS = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|->|[<>=]='  # tokens that do not nest
    r"|(?P<open>[(\[{<])|(?P<close>[)\]}>])|(?P<apart>[,:=])"
    r"|(?P<operator>[-+*]|\b(?:floordiv|ceildiv|mod)\b)"
)

_CLOSED = re.compile(
    r'(?:[^"/]++|//[^\n]*+|/|"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+")*+'
)
"""
Text in which every string literal ends, as xDSL's lexer defines one.

The lexer's own pattern nests a repetition in a repetition: an unclosed literal takes exponential
time. Possessive repetitions (`++`) never backtrack, so this one is linear.
"""


def parse(context: Context, text: str, name: str = "<text>") -> ModuleOp:
    """The verified module of a text; ParseError for any text that is not one."""
    _check_strings(text, name)
    depth, line = deepest(text)
    if depth > DEEPEST:
        raise _too_deep(f"{name}, line {line}")
    parser = Parser(context, text, name)
    try:
        module = parser.parse_module()
        module.verify()
        check_order(module)
    except RecursionError as error:
        raise _too_deep(name) from error
    except (IRParseError, VerifyException, ValueError) as error:
        raise ParseError(f"not valid IR: {error}", name) from error
    except PopgraphError as error:
        raise ParseError(f"not valid IR: {error.what}", name, error.hint) from error
    except Exception as error:
        # Parsers and verifiers of dialects, xDSL's too, index and convert text without checks.
        line = text.count("\n", 0, parser.pos) + 1
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ParseError(f"not valid IR: {reason}", f"{name}, line {line} or before") from error
    return module


def check_order(module: ModuleOp) -> None:
    """Raises VerifyException unless every operand is defined earlier, in its or an outer block."""
    _check_order(module, set())


def _check_order(op: Operation, visible: set[SSAValue]) -> None:
    for index, operand in enumerate(op.operands):
        if operand not in visible:
            raise VerifyException(f"{op.name} uses operand {index} before it is defined")
    for block in (block for region in op.regions for block in region.blocks):
        added: list[SSAValue] = list(block.args)
        visible.update(added)
        for one in block.ops:
            _check_order(one, visible)
            added.extend(one.results)
            visible.update(one.results)
        visible.difference_update(added)


def deepest(text: str) -> tuple[int, int]:
    """
    The maximum nesting depth of an IR text, and its line.

    Each bracket adds a level, and so does each operator of a sum or product, as the parser nests
    them to the left.
    """
    level = most = place = 0
    opened = [0]
    for token in _TOKENS.finditer(text):
        match token.lastgroup:
            case "open":
                level += 1
                opened.append(level)
            case "close" if len(opened) > 1:
                level = opened.pop() - 1
            case "apart":
                level = opened[-1]
            case "operator":
                level += 1
        if level > most:
            most, place = level, token.start()
    return most, text.count("\n", 0, place) + 1


def _check_strings(text: str, name: str) -> None:
    found = _CLOSED.match(text)
    end = found.end() if found else 0
    if end == len(text):
        return
    line, column = text.count("\n", 0, end) + 1, end - text.rfind("\n", 0, end)
    raise ParseError(
        "not valid IR: a string literal does not end on its line or has an unknown escape",
        f"{name}, line {line}, column {column}",
        r'close it with ", and write \" \\ \n \t or two hexadecimal digits after a backslash',
    )


def _too_deep(where: str) -> ParseError:
    return ParseError(
        f"this IR is nested more than {DEEPEST} levels deep",
        where,
        "regions, attributes, types and affine expressions count together: split them",
    )
