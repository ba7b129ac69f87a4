"""Compiles blocks of scalar operations to lists of Python closures."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

from xdsl.ir import Block, Operation

from popgraph.backends.reference.scalars import function_of

Frame: TypeAlias = list[Any]
"""The values of a running body, by slot."""
Step: TypeAlias = Callable[[Frame], None]
"""One operation, ready to run: reads and writes slots of the frame."""


class Scope:
    """The assignment of slots to the values of a body."""

    def __init__(self) -> None:
        self._slots: dict[Hashable, int] = {}

    def slot(self, value: Hashable) -> int:
        return self._slots.setdefault(value, len(self._slots))

    def frame(self) -> Frame:
        return [None] * len(self._slots)


Maker: TypeAlias = Callable[[Any, Scope], Step]
"""Creates the step of one operation."""
Vocabulary: TypeAlias = Mapping[type[Operation], Maker]
"""The non-scalar operations that a body may contain."""


def scalar_step(op: Operation, scope: Scope) -> Step:
    """The step of an operation in the table of scalar functions."""
    function = function_of(op)
    result = scope.slot(op.results[0])
    operands = [scope.slot(operand) for operand in op.operands]
    match operands:
        case []:

            def step(frame: Frame) -> None:
                frame[result] = function()

        case [x]:

            def step(frame: Frame) -> None:
                frame[result] = function(frame[x])

        case [x, y]:

            def step(frame: Frame) -> None:
                frame[result] = function(frame[x], frame[y])

        case _:

            def step(frame: Frame) -> None:
                frame[result] = function(*[frame[operand] for operand in operands])

    return step


def steps_of(block: Block, scope: Scope, vocabulary: Vocabulary) -> list[Step]:
    """The steps of a block in order, without its terminator."""
    return [vocabulary.get(type(op), scalar_step)(op, scope) for op in block.ops if not is_end(op)]


def is_end(op: Operation) -> bool:
    return op.name in {"tile.yield", "scf.yield", "func.return"}


def yielded(block: Block, scope: Scope) -> list[int]:
    """The slots of the values that a block yields."""
    last = block.last_op
    return [scope.slot(value) for value in last.operands] if last and is_end(last) else []
