"""
Gives a kernel each tensor once, however often its operation reads it.

No pass of its own: structured-to-loops writes one kernel for all equal operations, and must know
which operands it has in the end before it launches that for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

Pairs = Sequence[tuple[int, int]]
"""An input and a result, by number, that may share memory."""


def merge_equal_inputs(
    body: Block, inputs: Sequence[SSAValue], inplace: Pairs
) -> tuple[list[SSAValue], Pairs]:
    """
    Inputs that are one tensor become one memory of the kernel.

    Then compilers of C see which of its loads are neighbours. Of the pairs in `inplace`, those stay
    that all of the merged inputs have.
    """
    merged = list(dict.fromkeys(inputs))
    if len(merged) == len(inputs):
        return merged, inplace
    memories = body.args[1 : 1 + len(inputs)]
    numbers = {value: number for number, value in reversed([*enumerate(inputs)])}
    for value, memory in reversed([*zip(inputs, memories, strict=True)]):
        first = memories[numbers[value]]
        if memory is not first:
            memory.replace_all_uses_with(first)
            body.erase_arg(memory)
    pairs, results = set(inplace), len(body.args) - 1 - len(merged)
    kept = [
        (number, result)
        for number, value in enumerate(merged)
        for result in range(results)
        if all((at, result) in pairs for at, same in enumerate(inputs) if same is value)
    ]
    return merged, kept
