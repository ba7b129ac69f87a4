"""The values on which a value depends."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue


def values_behind(values: Iterable[SSAValue]) -> set[SSAValue]:
    """These values, and all of their block that they are computed from."""
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
