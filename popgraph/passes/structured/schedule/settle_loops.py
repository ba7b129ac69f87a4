"""Loop collapsing and splitting: gives contractions the loops that their schedules are about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.constants import Constants
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.size_flow import SizeFlow
from popgraph.passes.structured.schedule.collapse_loops import collapse_loops
from popgraph.passes.structured.schedule.contraction_loops import ContractionLoops, set_loops
from popgraph.passes.structured.schedule.split_gemv import split_gemv
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class SettleLoops(Pass):
    """
    Collapse loops of contractions that are one in disguise, and read large matrices in strips.

    y[h, w, n] = sum k: x[h, w, k] * w[k, n]  ->  y[p, n] = sum k: x[p, k] * w[k, n]

    y[n] = sum k: x[k] * w[k, n]  ->  y[p, n] = sum k: x[k] * w[k, p, n]

    The former only when every operand and result walks both loops as one, the latter only when `w`
    is a constant that comes from memory: it is then read as several streams. Operands and results
    become views. Schedules, and texts of contractions (see `contraction_text`), number the loops
    that there are afterwards.
    """

    name = "settle-loops"
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> SettleLoops:
        return cls(options.target)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        constants, flow = Constants(), SizeFlow.of_module(module)
        for op in list(module.walk()):
            if tile.is_contraction(op) and op.schedule is None:
                running = flow.loops.get(op, {})
                settle_loops(op, constants.factors(op), self.target, running)
            constants.note(op)


def settle_loops(
    op: tile.ReduceOp, fixed: tuple[bool, bool], target: Target, running: Iterable[int] = ()
) -> None:
    """
    Gives a contraction the loops that its schedule is about.

    `fixed` factors are constants, `running` loops end at a size of the call.
    """
    if op.numbers_loops:
        return
    now = ContractionLoops.of(op, running)
    streamed = [
        is_fixed and _comes_from_memory(value, target)
        for is_fixed, value in zip(fixed, (op.lhs, op.rhs), strict=True)
    ]
    settled = split_gemv(collapse_loops(now), streamed, target.tuning)
    if settled.sizes != now.sizes:
        set_loops(op, settled)


def _comes_from_memory(value: SSAValue, target: Target) -> bool:
    """Whether L2 is too small to keep a factor from one run to the next."""
    size = prod(tensor(value).get_shape()) * element_bytes(value.type)
    return size >= target.l2(target.tuning.streamed_l2)
