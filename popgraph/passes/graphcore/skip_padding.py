"""Skips multiplications of convolutions with padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import BroadcastOp, ConcatOp, ConvOp, SliceOp
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules
from popgraph.support.laws import Proof, real_law, variable
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning


@dataclass(frozen=True)
class Piece:
    """Results `start` to `stop` along one axis, and the taps that meet any of their inputs."""

    start: int
    stop: int
    first: int
    last: int

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def taps(self) -> int:
        return max(0, self.last + 1 - self.first)

    @property
    def products(self) -> int:
        return self.length * self.taps


@dataclass(frozen=True)
class Axis:
    """A spatial axis of a convolution."""

    size: int
    taps: int
    results: int
    stride: int
    dilation: int
    pad: int
    """Padding before the first element."""

    def place(self, result: int, tap: int) -> int:
        """The index of the element that a tap multiplies for a result."""
        return result * self.stride + tap * self.dilation - self.pad

    def piece(self, start: int, stop: int) -> Piece:
        """The piece with the taps from the first to the last that multiply an element."""
        first = -(self.place(stop - 1, 0) // self.dilation)
        last = (self.size - 1 - self.place(start, 0)) // self.dilation
        return Piece(start, stop, max(0, first), min(last, self.taps - 1))

    def cuts(self) -> set[int]:
        """The results at which a tap enters or leaves the elements."""
        found = set[int]()
        for tap in range(self.taps):
            first = -(self.place(0, tap) // self.stride)
            end = -((self.place(0, tap) - self.size) // self.stride)
            found |= {first, end}
        return found

    def pieces(self, least: int) -> Sequence[Piece]:
        """
        All results, cut greedily where that saves most multiplications.

        No piece is shorter than `least`.
        """
        found = [self.piece(0, self.results)]
        while True:
            halves = [
                (at, self.piece(one.start, cut), self.piece(cut, one.stop))
                for at, one in enumerate(found)
                for cut in self.cuts()
                if one.start + least <= cut <= one.stop - least
            ]
            halves = [(at, low, high) for at, low, high in halves if low.taps and high.taps]
            saved = [found[at].products - low.products - high.products for at, low, high in halves]
            if max(saved, default=0) <= 0:
                return found
            at, low, high = halves[saved.index(max(saved))]
            found[at : at + 1] = [low, high]


S, W = map(variable, ("s", "w"))
PADDING = (real_law(S + 0 * W, S),)


class SumElements(Rule[ConvOp]):
    """
    y = conv x, w  ->  y = concat (conv part of x, part of w) ...

    Only when a tap multiplies nothing but padding, for all results, or for a piece of them if that
    saves enough. If no tap meets an element, the results are zeros. w must be a finite literal:
    infinity * 0 is NaN.
    """

    ROOTS = (ConvOp,)
    PROOF = Proof(PADDING, approximate="sums of fewer terms may be added in another order")

    def __init__(self, weights: WeightStore, tuning: Tuning) -> None:
        super().__init__(weights)
        self._tuning = tuning

    def rewrite(self, op: ConvOp) -> Operand | None:
        axes = list(axes_of(op))
        pieces = [axis.pieces(self._tuning.least_piece) for axis in axes]
        whole: list[Sequence[Piece]] = [[axis.piece(0, axis.results)] for axis in axes]
        # Each piece is a kernel call with its own borders: small savings do not pay.
        if products_of(pieces) > (1 - self._tuning.least_skipped) * products_of(whole):
            pieces = whole
            if all(own.taps == axis.taps for (own,), axis in zip(whole, axes, strict=True)):
                return None
        array = self.array(op.w)
        if array is None or not np.all(np.isfinite(array)):
            return None
        if 0 in (own.taps for (own,) in whole):
            zero = self.literal(np.zeros((), array.dtype))
            return BroadcastOp(zero, shape=shape_of(op.result))
        made = {place: part(op, axes, place) for place in product(*pieces)}
        return joined(made, pieces)


def axes_of(op: ConvOp) -> Iterator[Axis]:
    for at, (size, taps) in enumerate(zip(shape_of(op.x)[2:], shape_of(op.w)[2:], strict=True)):
        yield Axis(
            size,
            taps,
            shape_of(op.result)[2 + at],
            op.strides.data[at],
            op.dilations.data[at],
            op.pads.data[at],
        )


def products_of(pieces: Sequence[Sequence[Piece]]) -> int:
    """The number of multiplications for one output and one input channel."""
    return prod(sum(piece.products for piece in along) for along in pieces)


def part(op: ConvOp, axes: Sequence[Axis], place: Sequence[Piece]) -> SSAValue:
    """The convolution of one piece along each axis."""
    x, w = [(0, size) for size in shape_of(op.x)[:2]], [(0, size) for size in shape_of(op.w)[:2]]
    low, high = [], []
    for axis, own in zip(axes, place, strict=True):
        first = axis.place(own.start, own.first)
        end = axis.place(own.stop - 1, own.last) + 1
        low.append(max(0, -first))
        high.append(max(0, end - axis.size))
        x.append((max(0, first), min(end, axis.size)))
        w.append((own.first, own.last + 1))
    options = op.options
    options["pads"] = (*low, *high)
    return ConvOp(cut(op.x, x), cut(op.w, w), **options).result


def cut(value: SSAValue, bounds: Sequence[tuple[int, int]]) -> SSAValue:
    """The slice of a value between bounds along each axis."""
    sizes = [stop - start for start, stop in bounds]
    if tuple(sizes) == tuple(shape_of(value)):
        return value
    starts = [start for start, _ in bounds]
    return SliceOp(value, starts=starts, sizes=sizes, steps=[1] * len(sizes)).result


def joined(made: dict[tuple[Piece, ...], SSAValue], pieces: Sequence[Sequence[Piece]]) -> SSAValue:
    """Concatenates the results of all pieces, axis by axis."""
    for axis in reversed(range(len(pieces))):
        rows: dict[tuple[Piece, ...], list[SSAValue]] = {}
        for place, value in made.items():
            rows.setdefault(place[:axis], []).append(value)
        made = {
            place: values[0] if len(values) == 1 else ConcatOp(values, axis=2 + axis).result
            for place, values in rows.items()
        }
    return made[()]


@dataclass(frozen=True)
class SkipPadding(Pass):
    """
    y = conv x, w  ->  y = concat (conv part of x, part of w) ..., without taps that meet padding.

    Only when that skips enough multiplications: each part omits taps that meet none of its
    elements.
    """

    name = "skip-padding"
    TOLERANCE = 1e-5
    AFTER = ("expand", "fold-constants", "canonicalize")
    tuning: Tuning = Tuning()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        apply_rules(module, [SumElements(compilation.weights, self.tuning)])
