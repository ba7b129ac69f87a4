"""Transitive operands of values."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue


def backward_slice(values: Iterable[SSAValue], *, nested: bool = False) -> set[SSAValue]:
    """
    The values and all values that they are computed from, up to block arguments.

    If `nested`, an operation also uses the operands of operations in its regions.
    """
    found: set[SSAValue] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in found:
            continue
        found.add(value)
        if isinstance(value.owner, Operation):
            for op in value.owner.walk() if nested else (value.owner,):
                waiting.extend(op.operands)
    return found
