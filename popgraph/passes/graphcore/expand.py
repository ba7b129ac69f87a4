"""Expands composite operations into the smaller operations that define them."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.graphcore import GRAPHCORE, GeluOp, LayerNormOp, ReduceMeanOp, SoftmaxOp
from popgraph.dialects.graphcore.base import Composite
from popgraph.dialects.graphcore.outside import OUTSIDE
from popgraph.passes.analysis.graph import expanded
from popgraph.passes.analysis.repeats import Repeats
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import EXPANDED, Property
from popgraph.support.errors import PassError
from popgraph.support.laws import FIRED, Proof


def composite_names() -> set[str]:
    """The names of all composites, without the dialect prefix."""
    return {
        op.name.removeprefix("graphcore.")
        for op in (*GRAPHCORE.operations, *OUTSIDE.values())
        if issubclass(op, Composite)
    }


REPEATED = (LayerNormOp, ReduceMeanOp, SoftmaxOp, GeluOp)
"""Composites that are often equal, and whose expansion reads types and properties only."""

EXACT = {
    "detach": Proof(construction="the expansion is the operand"),
    "dequantize": Proof(exhaustive="all x of at most 16 bits; some scales and zero points"),
    "quantize": Proof(exhaustive="all x of f16 and bf16; some scales, zero points and types"),
}
"""Composites whose expansion has the same bits as their meaning."""
ROUNDED = Proof(approximate="the smaller operations round one by one, the meaning once")


def expansions() -> dict[str, Proof]:
    """The proof of the expansion of each composite of the dialect."""
    return {
        op.name.removeprefix("graphcore."): EXACT.get(op.name.removeprefix("graphcore."), ROUNDED)
        for op in GRAPHCORE.operations
        if issubclass(op, Composite)
    }


@dataclass(frozen=True)
class Expand(Pass):
    """
    y = softmax x  ->  e = exp (x - max x), y = e / sum e; and so on for every composite.

    Only composites that are not named in `keep` (`softmax`, `layer_norm`, ...).
    """

    name = "expand"
    TOLERANCE = 1e-5
    GIVES = (EXPANDED,)
    keep: tuple[str, ...] = ()

    @property
    def gives(self) -> tuple[Property, ...]:
        return () if self.keep else self.GIVES

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        unknown = sorted(set(self.keep) - composite_names())
        if unknown:
            raise PassError(
                f"unknown composites to keep: {', '.join(unknown)}",
                hint=f"the composites are {', '.join(sorted(composite_names()))}",
            )
        while found := [op for op in module.walk() if self._is_wanted(op)]:
            repeats = Repeats(REPEATED)
            for op in found:
                assert isinstance(op, Composite)
                FIRED[f"expand {op.title}"] += 1
                expanded(op, repeats)

    def _is_wanted(self, op: object) -> bool:
        return isinstance(op, Composite) and op.title not in self.keep
