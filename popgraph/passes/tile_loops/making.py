"""How are the operations made that kernels hold thousands of? Unchecked, of parts that fit."""

from __future__ import annotations

from typing import TypeVar

from xdsl.ir import Attribute, Operation, SSAValue

Made = TypeVar("Made", bound=Operation)


def made(kind: type[Made], *operands: SSAValue, types: tuple[Attribute, ...] = ()) -> Made:
    """
    What the constructor of `kind` makes of these operands, with all properties as usual.

    Constructors look at every part again, which takes three times as long as all the rest.
    """
    return kind.create(operands=operands, result_types=types)


def alike(kind: type[Made], *operands: SSAValue) -> Made:
    """An operation whose result is of the type of its first operand."""
    return kind.create(operands=operands, result_types=(operands[0].type,))
