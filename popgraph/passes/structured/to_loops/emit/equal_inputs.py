"""
Gives a kernel each tensor once, however often its operation reads it.

No pass of its own: structured-to-loops writes one kernel for all equal operations, and must know
which operands it has in the end before it launches that for the others.
"""

from __future__ import annotations

from popgraph.dialects import tile
from popgraph.dialects.program.attributes import IntsAttr


def merge_equal_inputs(kernel: tile.KernelOp) -> None:
    """
    Inputs that are one tensor become one memory of the kernel.

    Then compilers of C see which of its loads are neighbours. Of the pairs in `inplace`, those stay
    that all of the merged inputs have.
    """
    inputs = list(kernel.inputs)
    merged = list(dict.fromkeys(inputs))
    if len(merged) == len(inputs):
        return
    block = kernel.body.block
    memories = block.args[1 : 1 + len(inputs)]
    for value, memory in reversed([*zip(inputs, memories, strict=True)]):
        first = memories[inputs.index(value)]
        if memory is not first:
            memory.replace_all_uses_with(first)
            block.erase_arg(memory)
    numbers = kernel.inplace.data
    pairs = set(zip(numbers[::2], numbers[1::2], strict=True))
    kept = [
        (number, result)
        for number, value in enumerate(merged)
        for result in range(len(kernel.outputs))
        if all((at, result) in pairs for at, same in enumerate(inputs) if same is value)
    ]
    kernel.properties["inplace"] = IntsAttr.of([place for pair in kept for place in pair])
    kernel.operands = merged
