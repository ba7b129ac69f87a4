"""Lowers DFT, STFT and MelWeightMatrix."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.fourier import Fourier
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import STRUCTURE, Lowered, lowers, without_gradient
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod


@lowers("DFT", structural=[1, 2])
def fourier_transform(node: Node) -> Lowered:
    """The axis is brought before the parts of the numbers, and its length made what is asked."""
    axis, wide = _signal_axis(node), computing(node)
    inverse, onesided = bool(node.integer("inverse")), bool(node.integer("onesided"))
    length = _length(node, node.shape[axis], inverse and onesided)
    others = [one for one in range(node.rank - 1) if one != axis]
    perm = [*others, axis, node.rank - 1]
    moved = cast(gc.TransposeOp(node[0], perm=perm), wide)
    fitted = _fitted(moved, length // 2 + 1 if inverse and onesided else length)
    counts = [node.shape[one] for one in others]
    signals = SSAValue.get(reshaped(fitted, (prod(counts), *shape_of(fitted)[-2:])))
    found = _transformed(node, signals, length)
    apart = reshaped(found, (*counts, *shape_of(found)[1:]))
    back = [perm.index(one) for one in range(node.rank)]
    return cast(gc.TransposeOp(apart, perm=back), node.dtype)


def _signal_axis(node: Node) -> int:
    given = node.optional(2)
    if node.version < 20:
        axis = node.integer("axis", 1)
    else:
        axis = -2 if given is None else node.numbers(2, "the axis")[0]
    found = node.axis(axis)
    if found == node.rank - 1:
        raise TypeMismatchError(
            f"axis {axis} has the parts of complex numbers", hint="choose another one"
        )
    return found


def _length(node: Node, size: int, is_half: bool) -> int:
    if node.optional(1) is None:
        length = 2 * (size - 1) if is_half else size
    else:
        (length,) = node.numbers(1, "the length")
    if length < 1:
        raise TypeMismatchError(f"a transform of length {length}", hint="it is 1 or more")
    return length


def _fitted(value: SSAValue, size: int) -> SSAValue:
    """The last axis but one cut off or filled up with zeros."""
    shape = shape_of(value)
    axis, none = len(shape) - 2, [0] * len(shape)
    if size <= shape[axis]:
        return value if size == shape[axis] else SSAValue.get(sliced(value, {axis: (0, size, 1)}))
    high = [size - shape[axis] if one == axis else 0 for one in range(len(shape))]
    return gc.PadOp(value, low=none, high=high, interior=none, value=0.0).result


def _transformed(node: Node, signals: SSAValue, length: int) -> SSAValue:
    inverse, onesided = bool(node.integer("inverse")), bool(node.integer("onesided"))
    wide = computing(node)
    fourier = Fourier(node, wide, inverse)
    if not inverse:
        return _spectrum(node, fourier, signals, onesided)
    found = fourier.real(signals, length) if onesided else fourier(signals)
    return gc.MulOp(found, node.scalar(1 / length, wide)).result


def _spectrum(node: Node, fourier: Fourier, signals: SSAValue, onesided: bool) -> SSAValue:
    """All numbers of a transform, or those that say the others of a real signal."""
    length = shape_of(signals)[1]
    if not onesided:
        return fourier(signals)
    if length <= node.lowering.tuning.longest_dense_transform:
        return fourier.dense(signals, length // 2 + 1)
    return SSAValue.get(sliced(fourier(signals), {1: (0, length // 2 + 1, 1)}))


@lowers("STFT", structural=[1, 3])
def short_time_fourier_transform(node: Node) -> Lowered:
    """Every frame of a signal is a signal."""
    batch, size, parts = node.shape
    (step,), wide = node.numbers(1, "the step"), computing(node)
    window = node.optional(2)
    length = size if window is None else prod(shape_of(window))
    if node.optional(3) is not None:
        (length,) = node.numbers(3, "the length of frames")
    count = (size - length) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(length)
    frames: Operand = gc.GatherOp(
        cast(node[0], wide), node.literal(places.astype(np.uint64)), axis=1
    )
    if window is not None:
        frames = gc.MulOp(frames, reshaped(cast(window, wide), (length, 1)))
    signals = SSAValue.get(reshaped(SSAValue.get(frames), (batch * count, length, parts)))
    onesided = bool(node.integer("onesided", 1))
    found = _spectrum(node, Fourier(node, wide, inverse=False), signals, onesided)
    return cast(reshaped(found, (batch, count, *shape_of(found)[1:])), node.dtype)


@lowers("MelWeightMatrix", structural=[0, 1, 2, 3, 4])
def mel_weight_matrix(node: Node) -> Lowered:
    """A matrix that is known: its shape and all of its numbers follow from structural inputs."""
    names = ("number of bands", "length", "rate", "lower edge", "upper edge")
    bands, length, rate, lower, upper = (
        node.array(index, f"the {name}").reshape(-1)[0].item() for index, name in enumerate(names)
    )
    weights = _mel_weights(bands, length, rate, lower, upper)
    return node.literal(weights.astype(dtypes.BY_ONNX[node.integer("output_datatype", 1)].numpy))


def _mel_weights(bands: int, length: int, rate: int, lower: float, upper: float) -> Array:
    """Triangles over the numbers of a spectrum, as ONNX's reference spaces them."""
    low, high = (2595 * np.log10(1 + edge / 700) for edge in (lower, upper))
    mels = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    points = ((length + 1) * hertz // rate).astype(np.int64)
    numbers = np.arange(length // 2 + 1)[:, None]
    left, centre, right = points[:-2], points[1:-1], points[2:]
    if points.min() < 0 or centre.max(initial=0) > length // 2:
        raise TypeMismatchError(
            f"bands from {lower:g} to {upper:g} Hz of {length // 2 + 1} numbers at {rate} Hz",
            hint="the edges are between 0 and half the sample rate",
        )
    rising = (numbers - left) / np.maximum(centre - left, 1)
    rising = np.where(centre == left, 1.0, rising)
    falling = (right - numbers) / np.maximum(right - centre, 1)
    weights = np.where((numbers >= left) & (numbers <= centre), rising, 0.0)
    return np.where((numbers >= centre) & (numbers < right), falling, weights)


without_gradient("MelWeightMatrix", STRUCTURE)
