"""Common subexpression elimination, for any level."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from xdsl.ir import Block, Operation
from xdsl.rewriter import Rewriter
from xdsl.traits import IsolatedFromAbove, IsTerminator, is_side_effect_free

from popgraph.passes.analysis.structural_hash import StructuralHasher

Meaning = Callable[[Operation], Hashable | None]
"""Maps operations that compute the same to equal keys; None for operations not to be shared."""


def share_equal(block: Block, meaning: Meaning) -> None:
    """
    `a = f(x); b = f(x)`  ->  `a = f(x)`, in a block and in the regions inside it.

    A region sees the operations before it, unless it is isolated from above.
    """
    _share(block, meaning, {})


def _share(block: Block, meaning: Meaning, first: dict[Hashable, Operation]) -> None:
    for op in block.ops:
        for region in op.regions:
            seen = {} if op.has_trait(IsolatedFromAbove) else dict(first)
            for inner in region.blocks:
                _share(inner, meaning, seen)
        key = meaning(op)
        if key is None:
            continue
        same = first.setdefault(key, op)
        if same is not op:
            for result, kept in zip(op.results, same.results, strict=True):
                result.replace_all_uses_with(kept)
            Rewriter.erase_op(op)


class PureMeaning:
    """Keys of operations without side effects: class, operands, attributes and result types."""

    def __init__(self) -> None:
        self._regions = StructuralHasher()

    def __call__(self, op: Operation) -> Hashable | None:
        if op.has_trait(IsTerminator) or not is_side_effect_free(op):
            return None
        return (
            type(op),
            tuple(op.operands),
            frozenset(op.properties.items()),
            frozenset(op.attributes.items()),
            tuple(result.type for result in op.results),
            tuple(map(self._regions.of_region, op.regions)),
        )
