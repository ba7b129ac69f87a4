"""Rounds quotients by a known scale as products, where that gives the same integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp, f32

from popgraph.dialects.graphcore import FmaOp, MulOp, QuantizeOp
from popgraph.dialects.graphcore.base import Operand, tensor_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules
from popgraph.passes.options import Options
from popgraph.support.arrays import Array

_NEIGHBOURS = 8
"""So many floats on either side of where a quotient would be half a whole number are tried."""

_SMALLEST, _GREATEST = 2.0**-60, 2.0**60
"""Divisors in between leave room for products that neither vanish nor become infinite."""

_MOST = 4096
"""For more whole numbers than these it takes too long to try."""


@dataclass(frozen=True)
class Reciprocal:
    """
    1 / divisor as a sum of two floats, neither of them negative.

    Quotients x / divisor and fma (x, high, x * low) are rounded to the same whole numbers, as far
    as these lie between two bounds, below and above which both lie for the same x. Both grow with
    x, so that they are alike if they are at each step from one number to the next.
    """

    high: float
    low: float

    @staticmethod
    def of(divisor: float, first: int, last: int) -> Reciprocal | None:
        """For whole numbers from the first to the last; None if some would be others."""
        if not _SMALLEST < divisor < _GREATEST or not 0 < last - first <= _MOST:
            return None
        near = np.float32(1 / divisor)
        if float(near) * divisor > 1:
            near = np.nextafter(near, np.float32(0))
        rest = np.float32((1 - float(near) * divisor) / divisor)
        found = Reciprocal(float(near), float(rest))
        steps = np.arange(first, last, dtype=np.float64) + 0.5
        return found if found._agrees(np.float32(divisor), steps) else None

    def _agrees(self, divisor: np.float32, steps: Array) -> bool:
        """Whether the floats around each step are rounded alike, and the step lies among them."""
        middle = (steps * float(divisor)).astype(np.float32)
        numbers, up, down = [middle], middle, middle
        for _ in range(_NEIGHBOURS):
            up = np.nextafter(up, np.float32(np.inf))
            down = np.nextafter(down, np.float32(-np.inf))
            numbers = [down, *numbers, up]
        tried = np.array(numbers)
        products = self._products(tried)
        if products is None:
            return False
        wanted, found = np.rint(tried / divisor), np.rint(products)
        below, above = np.floor(steps), np.ceil(steps)
        enclosed = np.all(wanted[0] <= below) and np.all(wanted[-1] >= above)
        return bool(enclosed and np.array_equal(wanted, found))

    def _products(self, tried: Array) -> Array | None:
        """fma (x, high, x * low); None where f64 does not tell how it is rounded."""
        rest = tried * np.float32(self.low)
        exact = tried.astype(np.float64) * self.high
        total = exact + rest
        lost = (exact - (total - (total - exact))) + (rest - (total - exact))
        rounded = total.astype(np.float32)
        spacing = np.abs(np.spacing(rounded).astype(np.float64))
        is_tie = np.abs(total - rounded) * 2 == spacing
        if np.any(is_tie & (lost != 0)):
            return None
        return rounded


class MultiplyByHalves(Rule[QuantizeOp]):
    """
    quantize x, s, z  ->  quantize (fma x, high, x * low), 1, z

    Only when s and z are known, and the sum of high and low stands for 1 / s at all bounds between
    two integers. A division takes longer than all else that quantizes a number.
    """

    ROOTS = (QuantizeOp,)

    def rewrite(self, op: QuantizeOp) -> Operand | None:
        scale, zero = self.array(op.scale), self.array(op.zero)
        if scale is None or zero is None or scale.size * zero.size != 1 or np.all(scale == 1):
            return None
        if not op.rounds or op.bounds is None or tensor_of(op.x).element_type != f32:
            return None
        low, high = (bound - int(zero.item()) for bound in op.bounds)
        found = Reciprocal.of(float(scale.item()), low, high)
        if found is None:
            return None
        near, rest = (scalar(number, op.x) for number in (found.high, found.low))
        ratio = FmaOp(op.x, near, MulOp(op.x, rest)) if found.low else MulOp(op.x, near)
        return QuantizeOp(ratio, scalar(1, ratio), op.zero, **op.options)


@dataclass(frozen=True)
class RoundCheaply(Pass):
    """
    Quantizing divides by no scale that is known: it multiplies with both halves of 1 / scale.

    Only when the pass finds, number by number, that quotients and products are rounded alike.
    """

    name = "round-cheaply"

    @classmethod
    def of(cls, options: Options) -> RoundCheaply | None:
        """Only where a machine rounds products and sums together."""
        return cls() if options.target.machine.fuses_multiply_add else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        apply_rules(module, [MultiplyByHalves(compilation.weights)])
