"""Loop collapsing and splitting: gives contractions the loops that schedules refer to."""

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
    Collapse contiguous loops of contractions, and split large matrix-vector products into strips.

    y[h, w, n] = sum k: x[h, w, k] * w[k, n]  ->  y[p, n] = sum k: x[p, k] * w[k, n]

    y[n] = sum k: x[k] * w[k, n]  ->  y[p, n] = sum k: x[k] * w[k, p, n]

    The former only when both loops are contiguous in every operand and result. The latter only
    when `w` is a constant that L2 cannot keep (`streamed_l2`), which is then read as several
    streams. Operands and results become views. Schedules and `contraction_text` number the
    resulting loops.
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
    Collapses and splits the loops of one contraction.

    `fixed` states which operands are constants; `running` loops end at a size of the call.
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
    """Whether L2 is too small to keep an operand from one run to the next."""
    # With least-recently-used replacement, twice L2 leaves nothing for the next run.
    size = prod(tensor(value).get_shape()) * element_bytes(value.type)
    return size >= target.l2(target.tuning.streamed_l2)
