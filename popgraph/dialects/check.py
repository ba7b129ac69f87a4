"""
IR checks beyond `verify()`: dominance, uses, print and parse.

xDSL's `verify()` checks none of these: a use before its definition passes, prints and parses.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.registry import IRContext
from popgraph.dialects.text import check_order


class IllFormedError(AssertionError):
    """A pass broke the IR: our mistake, never the user's."""


def check_ir(module: ModuleOp, *, text: bool = True) -> None:
    """
    Raises IllFormedError unless all of this holds:

    1. every operation verifies;
    2. every operand is defined before it is used, in the same or an enclosing region;
    3. the use lists and the operands agree, and parents know their children;
    4. the printed module parses back to an equal one that prints the same (`text`).
    """
    try:
        module.verify()
    except Exception as error:
        raise IllFormedError(f"does not verify: {error}") from error
    try:
        check_order(module)
    except VerifyException as error:
        raise IllFormedError(str(error)) from error
    _check_operation(module)
    if text:
        _check_text(module)


def _check_operation(op: Operation) -> None:
    for index, operand in enumerate(op.operands):
        if not any(use.operation is op and use.index == index for use in operand.uses):
            raise IllFormedError(f"{op.name} is missing from the uses of its operand {index}")
    for result in op.results:
        for use in result.uses:
            if use.operation.operands[use.index] is not result:
                raise IllFormedError(f"a use of {op.name}'s result does not point back")
    for region in op.regions:
        _check_region(op, region)


def _check_region(op: Operation, region: Region) -> None:
    if region.parent is not op:
        raise IllFormedError(f"a region of {op.name} has another parent")
    for block in region.blocks:
        _check_block(region, block)


def _check_block(region: Region, block: Block) -> None:
    if block.parent is not region:
        raise IllFormedError("a block has another parent than its region")
    for op in block.ops:
        if op.parent is not block:
            raise IllFormedError(f"{op.name} has another parent than its block")
        _check_operation(op)


def _check_text(module: ModuleOp) -> None:
    printed = str(module)
    context = IRContext()
    try:
        parsed = Parser(context, printed).parse_module()
    except Exception as error:
        raise IllFormedError(f"the printed module does not parse: {error}") from error
    if not parsed.is_structurally_equivalent(module):
        raise IllFormedError("the printed module parses to another one")
    if str(parsed) != printed:
        raise IllFormedError("the parsed module prints differently")
