"""Transitive operands of values."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue


def backward_slice(values: Iterable[SSAValue]) -> set[SSAValue]:
    """The values and all values that they are computed from, up to block arguments."""
    found: set[SSAValue] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in found:
            continue
        found.add(value)
        if isinstance(value.owner, Operation):
            waiting.extend(value.owner.operands)
    return found
