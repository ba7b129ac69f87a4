"""Quantizes by multiplication with a reciprocal instead of division, if integers stay equal."""

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
from popgraph.support.laws import Proof

_NEIGHBOURS = 8
"""Number of floats that are tested on either side of each midpoint between two integers."""

_SMALLEST, _GREATEST = 2.0**-60, 2.0**60
"""Divisors in this range cannot make the products underflow or overflow."""

_MOST = 4096
"""Maximum number of integers to test: a bound of compile time."""


@dataclass(frozen=True)
class Reciprocal:
    """
    1 / divisor as a sum of two non-negative floats.

    x / divisor and fma (x, high, x * low) round to the same integers between two bounds, and exceed
    a bound for the same x. Both are monotonic in x, so it is enough to compare them around each
    midpoint between two integers.
    """

    high: float
    low: float

    @staticmethod
    def of(divisor: float, first: int, last: int) -> Reciprocal | None:
        """The reciprocal for integers from `first` to `last`; None if one would differ."""
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
        """Whether floats around each midpoint round alike, and on both sides of the midpoint."""
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
        """fma (x, high, x * low); None if double rounding through f64 could differ."""
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

    Only when s and z are literals, and both formulas round alike near every midpoint between two
    integers. high + low is 1 / s. A division takes longer than the rest of the operation.
    """

    ROOTS = (QuantizeOp,)
    PROOF = Proof(unproven="the pass compares both formulas around every midpoint of each literal")

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
    quantize x, s, z  ->  quantize (fma x, high, x * low), 1, z, where high + low = 1 / s.

    Only when s is a literal, and tests around every integer show that both round alike.
    """

    name = "round-cheaply"
    BEFORE = ("expand",)

    @classmethod
    def of(cls, options: Options) -> RoundCheaply | None:
        """The pass, if the machine has a fused multiply-add."""
        return cls() if options.target.machine.fuses_multiply_add else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        apply_rules(module, [MultiplyByHalves(compilation.weights)])
