"""Selects Winograd's transforms for convolutions, and the size of their tiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue, Use

from popgraph.dialects import tile
from popgraph.dialects.program import IntsAttr
from popgraph.dialects.tile.loops.known import KnownKernels
from popgraph.dialects.tile.structured.schedule_override import Override
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.properties import DENSE, UNCUT, UNSCHEDULED
from popgraph.passes.structured.analysis.constants import Constants
from popgraph.passes.structured.analysis.convolutions import convolution, weight_gradient
from popgraph.passes.structured.analysis.decisions import Decisions, KnownDecisions
from popgraph.passes.structured.schedule.overrides import Overrides
from popgraph.passes.structured.schedule.schedule_contractions import candidates, plain_cycles
from popgraph.passes.structured.winograd.convolutions import WinogradCandidate, winograd_candidates
from popgraph.passes.structured.winograd.weight_gradients import (
    WinogradGradientCandidate,
    winograd_gradient_candidates,
)
from popgraph.support.errors import PassError
from popgraph.support.tuning import Target

AnyWinogradCandidate = WinogradCandidate | WinogradGradientCandidate


def best_schedule_cycles(target: Target, known: KnownKernels | None) -> Decisions[float]:
    """Estimated cycles of contractions with their best direct schedules."""

    def estimate(op: tile.ReduceOp, fixed: tuple[bool, bool]) -> float:
        found = [each.cycles for each in candidates(op, fixed, target)]
        return min([*found, plain_cycles(op, target)])

    return KnownDecisions(
        "best-schedule-cycles",
        target,
        known,
        decide=estimate,
        spell=lambda op, cycles: repr(cycles),
        read=lambda op, text: float(text),
    )


def transforms_pay(candidate: AnyWinogradCandidate, cycles: float, target: Target) -> bool:
    """Whether transforms beat the best direct schedule, which takes `cycles`, by the margin."""
    return candidate.cycles * target.tuning.winograd_gain <= cycles


def is_truncated(sum_: SSAValue) -> bool:
    """Whether readers only take the integer part of a sum, and so rely on exact sums."""
    # 4 - 1e-7 truncates to 3: a rounding error of transforms would become an error of 1.
    return all(_truncates(use) for use in sum_.uses)


def _truncates(use: Use) -> bool:
    op = use.operation
    match op:
        case arith.FPToSIOp() | arith.FPToUIOp():
            return True
        case tile.YieldOp() if tile.is_contraction(contraction := op.parent_op()):
            return is_truncated(contraction.results[use.index])
        case tile.MapOp():
            return is_truncated(op.body.block.args[use.index])
        case _:
            return False


@dataclass(frozen=True)
class UseWinograd(Pass):
    """
    Compute 3x3 and 2x2 convolutions with fewer multiplications.

    y = contract x, w  ->  u = G w G^T
                           y = fused { t = transform x; m = contract t, u; y = transform m }

    dw = contract x, dy  ->  dw = G^T (contract (B^T x B), (A dy A^T)) G

    3x3 windows need a quarter to a half of the multiplications, 2x2 windows 0.4 to 0.6 of them.
    Only when the stride is 1, channels are innermost, and the transforms cost less than they save,
    including transforms of weights that are not constant. The gradient of the image is a
    convolution of this kind, and so is each phase of a transposed 4x4 convolution of stride 2. The
    gradient of 3x3 weights has the same transforms, transposed, and sums over tiles.

    `schedules` are the user's overrides, `measured` come from measurements (see `Overrides`). The
    number of `threads` changes the tiles of a block, but not the results. In portable programs, a
    generic machine and the size of one image decide, as transforms round differently.
    """

    name = "use-winograd"
    TOLERANCE = 1e-5
    NEEDS = (UNSCHEDULED, UNCUT)
    LOSES = (UNSCHEDULED, DENSE)
    AFTER = ("assign-halos",)
    target: Target = Target()
    schedules: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    threads: int = 1

    @classmethod
    def of(cls, options: Options) -> UseWinograd | None:
        # Microcontrollers store transformed weights in ROM: four times as many. The bits of a
        # portable program depend on the transforms.
        saves = options.is_portable or not options.target.machine.is_scalar
        if options.winograd and saves:
            # Measurements of one machine must not change the bits of a portable program.
            measured = () if options.is_portable else options.measured or ()
            return cls(options.target, options.schedules, measured, options.threads)
        for text in options.schedules:
            if Override.of(text).spec.size:
                raise PassError(
                    "the schedule requires Winograd's transforms, which are off",
                    text,
                    "switch winograd on, or remove the schedule",
                )
        return None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        constants = Constants()
        overrides = Overrides(self.schedules, self.measured)
        costs = best_schedule_cycles(self.target.deciding, compilation.kernels)
        for op in list(module.walk()):
            if tile.is_contraction(op):
                fixed = constants.factors(op)
                candidate = self._chosen(op, fixed, overrides, costs)
                if candidate is not None:
                    candidate.replace(compilation)
            constants.note(op)
        overrides.check(winograd=True)

    def _chosen(
        self,
        op: tile.ReduceOp,
        fixed: tuple[bool, bool],
        overrides: Overrides,
        costs: Decisions[float],
    ) -> AnyWinogradCandidate | None:
        """The candidate of an override, else the cheapest; None for a direct schedule."""
        found = self.candidates(op, fixed, self.target)
        for status in overrides.about(op, fixed):
            spec = status.override.spec
            if not spec.size:
                return None
            fits = [candidate for candidate in found if candidate.fits(spec)]
            if fits:
                status.used = True
                return fits[0]
            specs = [str(candidate.spec) for candidate in found] or ["estimate"]
            status.refuse(op, "the contraction has no such tiles", specs)
        if not found:
            return None
        size = self._size(op, fixed, costs)
        # Another size of tiles would round differently: results must not depend on threads.
        same = [one for one in found if one.size == size]
        images = [one for one in same if isinstance(one, WinogradCandidate)]
        if self.threads < 2 or not images:
            return same[0] if same else None
        return min(images, key=lambda one: one.slowest(self.threads))

    def _size(
        self, op: tile.ReduceOp, fixed: tuple[bool, bool], costs: Decisions[float]
    ) -> int | None:
        """The size of the tiles of the best transforms; None if they do not pay."""
        target, one = self.target.deciding, op
        if target.portable and any(convolution(op, number) for number in (0, 1)):
            one = op.clone()
            one.properties["domain"] = IntsAttr.of((1, *op.sizes[1:]))
        best = min(self._possible(one, fixed, target), key=lambda candidate: candidate.cycles)
        pays = transforms_pay(best, costs.of(one, fixed), target)
        if one is not op:
            one.erase()
        return best.size if pays else None

    def candidates(
        self, op: tile.ReduceOp, fixed: tuple[bool, bool], target: Target
    ) -> Sequence[AnyWinogradCandidate]:
        """All candidates for a contraction, the cheapest by estimate first."""
        # Larger tiles save more products but have larger weights. Zen 5, 512 to 512 channels at
        # 7x7: 803 us direct, 797 us with 4x4 tiles, 561 us with 2x2 tiles.
        if op.uses_loop_numbers or is_truncated(op.epilogue.block.args[0]):
            return ()  # Integer sums are exact; transforms would round them.
        return sorted(self._possible(op, fixed, target), key=lambda candidate: candidate.cycles)

    def _possible(
        self, op: tile.ReduceOp, fixed: tuple[bool, bool], target: Target
    ) -> Iterable[AnyWinogradCandidate]:
        for number in (0, 1):
            slope = weight_gradient(op, number)
            if slope is not None:
                return winograd_gradient_candidates(slope, target)
        for number in sorted((0, 1), key=lambda number: not fixed[number]):
            found = convolution(op, number)
            if found is not None:
                found = replace(found, fixed=fixed[number])
                return winograd_candidates(found, target, self.threads)
        return ()
