"""Turns 3-D convolutions into 2-D convolutions, which Winograd transforms accelerate."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, f32, f64

from popgraph.dialects.graphcore import ConcatOp, ConvOp, PadOp, ReshapeOp, SliceOp, TransposeOp
from popgraph.dialects.graphcore.base import Operand, integer, shape_of, tensor_of
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules
from popgraph.passes.options import Options
from popgraph.support.index_laws import ROW_MAJOR
from popgraph.support.laws import Proof
from popgraph.support.tuning import Tuning

WINDOW = (3, 3)
"""The spatial window of the Winograd transforms."""


class SumOverDepth(Rule[ConvOp]):
    """
    y = conv [n, c, d, h, w]  ->  y = conv [n * d, c * taps, h, w], both moved back and forth.

    The inputs of all taps along the depth are concatenated as channels. Only when the window of
    the other two axes is 3x3 with stride 1, and there are at least `least_folded_channels`.
    Winograd then saves more than the copies cost.
    """

    ROOTS = (ConvOp,)
    PROOF = Proof(ROW_MAJOR, approximate="terms of a sum are added in another order")

    def __init__(self, weights: WeightStore, tuning: Tuning) -> None:
        super().__init__(weights)
        self._tuning = tuning

    def rewrite(self, op: ConvOp) -> Operand | None:
        if len(shape_of(op.x)) != 5 or not self._pays(op):
            return None
        batch, inputs, *_ = shape_of(op.x)
        outputs, _, taps, *window = shape_of(op.w)
        _, _, depth, *image = shape_of(op.result)
        channels = ConcatOp(self._met(op, taps, depth), axis=2)
        images = ReshapeOp(channels, shape=(batch * depth, taps * inputs, *shape_of(op.x)[3:]))
        weights = ReshapeOp(
            TransposeOp(op.w, perm=(0, 2, 1, 3, 4)), shape=(outputs, taps * inputs, *window)
        )
        pads = op.pads.data
        made = ConvOp(
            images,
            weights,
            strides=(1, 1),
            dilations=(1, 1),
            pads=(*pads[1:3], *pads[4:]),
            groups=1,
        )
        split = ReshapeOp(made, shape=(batch, depth, outputs, *image))
        return TransposeOp(split, perm=(0, 2, 1, 3, 4))

    def _pays(self, op: ConvOp) -> bool:
        least = self._tuning.least_folded_channels
        return (
            tensor_of(op.x).element_type in (f32, f64)
            and shape_of(op.w)[3:] == WINDOW
            and op.strides.data[1:] == op.dilations.data[1:] == (1, 1)
            and integer(op.groups) == 1
            and min(shape_of(op.w)[:2]) >= least
            and min(shape_of(op.result)[3:]) >= 2
        )

    def _met(self, op: ConvOp, taps: int, depth: int) -> list[Operand]:
        """For every tap along the depth, its input for each result: [n, d, c, h, w]."""
        low, high = op.pads.data[0], op.pads.data[3]
        around = [0, low, 0, 0, 0], [0, high, 0, 0, 0]
        x = TransposeOp(op.x, perm=(0, 2, 1, 3, 4))
        padded = PadOp(x, low=around[0], high=around[1], interior=[0] * 5, value=0.0)
        sizes = list(shape_of(padded.result))
        sizes[1] = depth
        steps = [1, op.strides.data[0], 1, 1, 1]
        starts = ([0, tap * op.dilations.data[0], 0, 0, 0] for tap in range(taps))
        return [SliceOp(padded, starts=start, sizes=sizes, steps=steps) for start in starts]


@dataclass(frozen=True)
class FoldDepth(Pass):
    """
    y = conv [n, c, d, h, w]  ->  y = conv [n * d, c * taps, h, w]: 3-D convolutions become 2-D.

    Only when the window along h and w is 3x3: `use-winograd` then saves most multiplications.
    """

    name = "fold-depth"
    TOLERANCE = 1e-5
    AFTER = ("skip-padding",)
    tuning: Tuning = Tuning()

    @classmethod
    def of(cls, options: Options) -> FoldDepth | None:
        return cls(options.tuning) if options.winograd else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        apply_rules(module, [SumOverDepth(compilation.weights, self.tuning)])
