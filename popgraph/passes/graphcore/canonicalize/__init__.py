"""Canonicalization: algebraic rewrite rules over graphcore operations, applied to a fixpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.program.sizes import sizes_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize import (
    arithmetic,
    branches,
    caches,
    lookups,
    loops,
    movement_rules,
    parts,
    pieces,
    pools,
    powers,
    projections,
    quantized,
    rows,
    scaling,
    shuffles,
)
from popgraph.passes.graphcore.canonicalize.rewriting import apply_rules
from popgraph.passes.options import Options

RULES = (
    *arithmetic.RULES,
    *powers.RULES,
    *movement_rules.RULES,
    *parts.RULES,
    *pieces.RULES,
    *pools.RULES,
    *scaling.RULES,
    *shuffles.RULES,
    *branches.RULES,
    *loops.RULES,
    *projections.RULES,
    *quantized.RULES,
    *caches.RULES,
    *rows.RULES,
    *lookups.RULES,
)

OF_NUMBERS = (arithmetic.MultiplyByReciprocal,)
"""Rules that read a number which may be a size of the call; skipped in programs with such sizes."""

OF_VECTORS = (quantized.KeepAsFloats,)
"""Rules that save conversions at the price of memory; skipped on machines without vectors."""


@dataclass(frozen=True)
class Canonicalize(Pass):
    """
    Algebra: x * 1  ->  x;  reshape (reshape x)  ->  reshape x;  conv(x, w) * c  ->  conv(x, w * c).

    Only when the result is equal to the bit, signs of zeros and NaN included. Exceptions are the
    rules in `scaling.py`, `powers.py`, `projections.py`, `caches.py` and `parts.py`, which round
    differently, and in `pieces.py`, which keep a -0.
    """

    name = "canonicalize"
    TOLERANCE: ClassVar[float] = 1e-5
    keeps_integers: bool = False
    """Whether integers that are read as floats are stored as integers."""

    @classmethod
    def of(cls, options: Options) -> Canonicalize:
        return cls(options.target.machine.is_scalar)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        without = {
            *(OF_NUMBERS if sizes_of(module) else ()),
            *(OF_VECTORS if self.keeps_integers else ()),
        }
        apply_rules(module, [rule(compilation.weights) for rule in RULES if rule not in without])
