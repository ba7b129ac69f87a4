"""Computes matmuls and convolutions of small integers exactly in floats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import AddOp, CastOp, ConvOp, MatMulOp, SliceOp
from popgraph.dialects.graphcore.base import (
    Operand,
    dtype_of,
    integer,
    shape_of,
    tensor_of,
)
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules
from popgraph.passes.graphcore.whole_sums import AnyContraction, IntegerSums, summed_axes
from popgraph.passes.options import Options
from popgraph.support.laws import Law, Proof, function, variable

EXACT = 1 << 24
"""An f32 represents all integers up to 2^24."""
MOST_PARTS = 16
"""Maximum number of parts of a sum; sums that need more are computed in integers."""
STRIP = 16
"""Granularity of parts in terms: one AVX-512 vector of f32."""


A, B = map(variable, ("a", "b"))


def _exact(name: str) -> Law:
    """A sum or product of bytes; larger numbers follow from `EXACT`."""
    numbers = (function(name, *(function(f"cast {to}", x) for x in (A, B))) for to in WIDE)
    floats, integers = numbers
    return Law(function("cast i32", floats), integers, types=frozenset({"i8", "u8"}))


WIDE = ("f32", "i32")
EXACT_SUMS = (
    *map(_exact, ("add", "mul")),
    Law(
        function("cast i32", function("cast f32", A)),
        A,
        given=function("small", A),
        types=frozenset({"i32"}),
    ),
)
"""Floats of integers up to 2^24 are exact, so that their sums are rounded to themselves."""


class SumInFloats(Rule[AnyContraction]):
    """
    y = mat_mul a, b  ->  y = cast i32 (mat_mul (cast f32 a), (cast f32 b))

    The same for conv. Only when partial sums cannot exceed 2^24, up to which f32 is exact. Larger
    sums are cut into at most `MOST_PARTS` parts, which are added as integers.
    """

    ROOTS = (MatMulOp, ConvOp)
    PROOF = Proof(EXACT_SUMS)

    def __init__(self, weights: WeightStore) -> None:
        super().__init__(weights)
        self._sums = IntegerSums(weights)

    def rewrite(self, op: AnyContraction) -> Operand | None:
        sizes = [*shape_of(op.operands[0]), *shape_of(op.operands[1])]
        if not dtype_of(op.result).is_integer or 0 in sizes:
            return None
        cuts = self._cuts(op)
        if not cuts:
            return None
        element = tensor_of(op.result).element_type
        sums: Iterator[Operand] = (
            CastOp(_in_floats(op, factors), to=element) for factors in _parts(op, cuts)
        )
        return reduce(AddOp, sums)

    def _cuts(self, op: AnyContraction) -> Sequence[int]:
        """Bounds of the fewest exact parts of the summed axis; empty if it cannot be cut so."""
        limits = self._sums.limits(op)
        if limits is None:
            return ()
        whole, is_grouped = len(limits), isinstance(op, ConvOp) and integer(op.groups) > 1
        sums = np.concatenate([np.zeros((1, limits.shape[1])), limits.cumsum(axis=0)])
        for count in range(1, 2 if is_grouped else MOST_PARTS + 1):  # fewest parts first
            cuts = [*range(0, whole, -(-whole // (count * STRIP)) * STRIP), whole]
            if np.diff(sums[cuts], axis=0).max() <= EXACT:
                return cuts
        return ()


def _in_floats(op: AnyContraction, factors: Sequence[SSAValue]) -> Operand:
    floats = [CastOp(factor, to=f32) for factor in factors]
    return ConvOp(*floats, **op.options) if isinstance(op, ConvOp) else MatMulOp(*floats)


def _parts(op: AnyContraction, cuts: Sequence[int]) -> Iterator[Sequence[SSAValue]]:
    """The operands, cut along the summed axis."""
    if len(cuts) == 2:  # Summed axes of a grouped convolution differ in length: never cut.
        yield op.operands
        return
    for begin, end in pairwise(cuts):
        yield [
            _part(factor, axis, begin, end)
            for factor, axis in zip(op.operands, summed_axes(op), strict=True)
        ]


def _part(value: SSAValue, axis: int, begin: int, end: int) -> SSAValue:
    sizes = list(shape_of(value))
    starts, steps = [0] * len(sizes), [1] * len(sizes)
    starts[axis], sizes[axis] = begin, end - begin
    return SliceOp(value, starts=starts, sizes=sizes, steps=steps).result


@dataclass(frozen=True)
class ContractInFloats(Pass):
    """
    y = mat_mul a, b  ->  y = cast i32 (mat_mul (cast f32 a), (cast f32 b)), of small integers.

    Only when f32 sums are exact, perhaps in parts. The same for conv.
    """

    name = "contract-in-floats"
    AFTER = ("contract-in-words",)

    @classmethod
    def of(cls, options: Options) -> ContractInFloats | None:
        """The pass, unless the machine has no vectors: it multiplies integers as fast as floats."""
        return None if options.target.machine.is_scalar else cls()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        apply_rules(module, [SumInFloats(compilation.weights)])
