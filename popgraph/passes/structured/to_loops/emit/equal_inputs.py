"""
Gives a kernel each tensor once, however often its operation reads it.

No pass of its own: structured-to-loops writes one kernel for all equal operations, and must know
which operands it has in the end before it launches that for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

Pairs = Sequence[tuple[int, int]]
"""An input and a result, by number, that may share memory."""


def pairs_of_distinct(inputs: Sequence[SSAValue], inplace: Pairs, results: int) -> Pairs:
    """
    The pairs for inputs that are given once each: those that all inputs of one tensor have.

    Compilers of C see which loads are neighbours where one tensor is one memory of the kernel.
    """
    distinct, pairs = list(dict.fromkeys(inputs)), set(inplace)
    if len(distinct) == len(inputs):
        return inplace
    return [
        (number, result)
        for number, value in enumerate(distinct)
        for result in range(results)
        if all((at, result) in pairs for at, same in enumerate(inputs) if same is value)
    ]
