"""The gradient of a branch: a branch under the same predicate."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Region, SSAValue
from xdsl.transforms.dead_code_elimination import region_dce

from popgraph.dialects.graphcore import CondOp
from popgraph.dialects.graphcore.control import yield_of
from popgraph.dialects.program import YieldOp
from popgraph.passes.graphcore.training.dependence import dependent, expand_on_path, needed
from popgraph.passes.graphcore.training.loop_draft import used_operands
from popgraph.passes.graphcore.training.reverse_mode import Gradients, ReverseMode, zeros


def reverse_cond(outer: ReverseMode, cond: CondOp, arriving: Gradients) -> Gradients:
    """
    Differentiates a branch: each new body recomputes the forward body and reverses it.

    Both bodies take the captured values and the arriving gradients. Recomputing avoids results
    that only one of the two forward bodies could yield.
    """
    wanted = [at for at, value in enumerate(cond.captured) if value in outer.dependent]
    given = {at: SSAValue.get(one) for at, one in enumerate(arriving) if one is not None}
    then, otherwise = (_backwards(outer, region, wanted, given) for region in cond.regions)
    bodies = [then.block, otherwise.block]
    captured = used_operands(bodies, [*cond.captured, *given.values()])
    with outer.building():
        made = CondOp(cond.predicate, captured, then, otherwise)
    leaving: list[SSAValue | None] = [None] * len(cond.operands)
    for at, gradient in zip(wanted, made.results, strict=True):
        leaving[1 + at] = gradient
    return leaving


def _backwards(
    outer: ReverseMode, region: Region, wanted: Sequence[int], given: dict[int, SSAValue]
) -> Region:
    """A copy of a body that yields the gradients of its wanted arguments."""
    region = region.clone()
    block = region.block
    sources = [block.args[at] for at in wanted]
    expand_on_path(block, lambda: yield_of(block).values, lambda: dependent(block, sources))
    inner = outer.of(block, dependent(block, sources))
    end = yield_of(block)
    with inner.building():
        for at, gradient in given.items():
            argument = block.insert_arg(gradient.type, len(block.args))
            inner.add(end.values[at], argument)
    inner.walk(needed(end.values))
    with inner.building():
        found = [inner.gradients.get(source) or zeros(source) for source in sources]
    block.erase_op(end)
    block.add_op(YieldOp([SSAValue.get(value) for value in found]))
    region_dce(region)
    return region
