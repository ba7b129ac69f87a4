"""Gradients of the one value that a block yields."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

from popgraph.dialects.graphcore import BroadcastOp
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.graphcore.control import yield_of
from popgraph.passes.graphcore.training.autodiff import RULES
from popgraph.passes.graphcore.training.dependence import dependent, expand_on_the_way, needed
from popgraph.passes.graphcore.training.reverse_mode import ReverseMode, zeros


def differentiate(block: Block, sources: Sequence[SSAValue]) -> list[SSAValue]:
    """
    Appends to a block d sum(y) / d source for each source, where y is its one yielded value.

    Sources that y does not depend on get zeros.
    """
    expand_on_the_way(block, lambda: yield_of(block).values, lambda: dependent(block, sources))
    (target,) = yield_of(block).values
    backwards = ReverseMode(block, dependent(block, sources), RULES)
    with backwards.building():
        one = scalar(1, target)
        shape = shape_of(target)
        seed = BroadcastOp(one, shape=shape) if shape else one
        backwards.add(target, SSAValue.get(seed))
    backwards.walk(needed([target]))
    with backwards.building():
        found = [backwards.gradients.get(source) or zeros(source) for source in sources]
    return [SSAValue.get(value) for value in found]
