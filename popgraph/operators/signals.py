"""
DFT, STFT, MelWeightMatrix, and the checks of window functions, which ONNX defines as functions.

A short Fourier transform is a matmul; longer ones are factored (Cooley-Tukey, Bluestein).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.complaints import (
    MOST,
    at_least,
    in_range,
    of_rank,
    of_shape,
    one_element,
    wrong_sizes,
)
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import STRUCTURE, Lowered, lowers, requires, without_gradient
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod

# Fourier transforms

Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class Fourier:
    """
    The transform of signals, [signals, length, 1] if real or [signals, length, 2] if complex.

    The last axis holds the real and the imaginary part.
    """

    node: Node
    kind: DType
    inverse: bool
    """Whether the exponent has the inverse's sign; the caller divides by the length."""

    @property
    def longest_dense(self) -> int:
        return self.node.lowering.tuning.longest_dense_transform

    def __call__(self, signals: Operand) -> SSAValue:
        """[signals, length, 2]"""
        length = shape_of(signals)[1]
        # Up to 3 always dense: Bluestein's powers of two recurse down to length 2, a prime again.
        if length <= max(3, self.longest_dense):
            return self.dense(signals, length)
        rows = next(rows for rows in range(isqrt(length), 0, -1) if length % rows == 0)
        return self.in_rounds(signals, rows) if rows > 1 else self.by_convolution(signals)

    def spectrum(self, signals: Operand, onesided: bool) -> SSAValue:
        """The transform, or its first length // 2 + 1 elements, which suffice for real signals."""
        length = shape_of(signals)[1]
        if not onesided:
            return self(signals)
        if length <= self.longest_dense:
            return self.dense(signals, length // 2 + 1)
        return _fitted(self(signals), length // 2 + 1)

    def roots(self, numbers: NDArray[np.int64], length: int) -> Complex:
        """Roots of unity: exp(-2 pi i numbers / length); conjugates for the inverse."""
        angle = 2 * np.pi * (numbers % length) / length
        roots: Complex = np.exp((1j if self.inverse else -1j) * angle)
        return roots

    def dense(self, signals: Operand, count: int) -> SSAValue:
        """The first `count` elements of the transform, by one matmul."""
        size, length, parts = shape_of(signals)
        roots = self.roots(np.multiply.outer(np.arange(length), np.arange(count)), length)
        flat = reshaped(signals, (size, length * parts))
        product = gc.MatMulOp(flat, self.literal(_matrix(roots, parts)))
        return reshaped(product, (size, count, 2))

    def real(self, signals: Operand, length: int) -> SSAValue:
        """The real inverse transform of a half spectrum."""
        size, half, _ = shape_of(signals)
        if length > self.longest_dense:
            return sliced(self(self.completed(signals, length)), {2: (0, 1, 1)})
        roots = self.roots(np.multiply.outer(np.arange(half), np.arange(length)), length)
        # Elements with a conjugate in the missing half count twice: all but 0 and length / 2.
        twice = np.where((np.arange(half) == 0) | (2 * np.arange(half) == length), 1, 2)
        matrix = _matrix(roots * twice[:, None], 2).reshape(2 * half, length, 2)[..., 0]
        product = gc.MatMulOp(reshaped(signals, (size, 2 * half)), self.literal(matrix))
        return reshaped(product, (size, length, 1))

    def completed(self, signals: Operand, length: int) -> Operand:
        """A full spectrum from its first half: the rest is reversed and conjugated."""
        half = shape_of(signals)[1]
        rest = sliced(signals, {1: (length - half, length - half, -1)})
        signs = self.literal(np.array([1.0, -1.0]))
        return gc.ConcatOp([signals, gc.MulOp(rest, signs)], axis=1)

    def in_rounds(self, signals: Operand, rows: int) -> SSAValue:
        """
        Cooley-Tukey: transforms the columns of a signal as a matrix, twiddles, then its rows.

        Element k1 + rows * k2 of the result is element k2 of row k1.
        """
        size, length, parts = shape_of(signals)
        columns = length // rows
        matrix = gc.ReshapeOp(signals, shape=(size, rows, columns, parts))
        first = self(_transposed(matrix, (size * columns, rows, parts)))
        roots = self.roots(np.multiply.outer(np.arange(columns), np.arange(rows)), length)
        matrix = gc.ReshapeOp(first, shape=(size, columns, rows, 2))
        second = self(_transposed(self.times(matrix, roots), (size * rows, columns, 2)))
        matrix = gc.ReshapeOp(second, shape=(size, rows, columns, 2))
        return _transposed(matrix, (size, length, 2))

    def by_convolution(self, signals: Operand) -> SSAValue:
        """
        Bluestein's transform of a prime length: a convolution with a chirp.

        2 t k = t^2 + k^2 - (k - t)^2. The convolution uses transforms of a power of two.
        """
        _, length, parts = shape_of(signals)
        chirp = self.roots(np.arange(length) ** 2, 2 * length)
        room = 1 << (2 * length - 2).bit_length()
        around = np.zeros(room, np.complex128)
        around[:length] = chirp.conj()
        around[room - length + 1 :] = chirp[:0:-1].conj()
        wave = np.fft.fft(around) / room
        if parts == 1:
            none = (0, 0, 0)
            signals = gc.PadOp(signals, low=none, high=(0, 0, 1), interior=none, value=0.0)
        forth, back = (Fourier(self.node, self.kind, inverse) for inverse in (False, True))
        found = back(self.times(forth(_fitted(self.times(signals, chirp), room)), wave))
        return self.times(_fitted(found, length), chirp)

    def times(self, value: Operand, factors: Complex) -> SSAValue:
        """Complex elements times constant complex factors."""
        real = factors.real[..., None]
        imaginary = np.stack([-factors.imag, factors.imag], -1)
        swapped = sliced(value, {len(shape_of(value)) - 1: (1, 2, -1)})
        first = gc.MulOp(value, self.literal(real))
        return gc.AddOp(first, gc.MulOp(swapped, self.literal(imaginary))).result

    def literal(self, array: NDArray[np.float64]) -> SSAValue:
        return self.node.literal(array.astype(self.kind.numpy))


def _matrix(roots: Complex, parts: int) -> NDArray[np.float64]:
    """A complex matrix as a real one, for rows of real (1 part) or complex (2 parts) elements."""
    of_real = np.stack([roots.real, roots.imag], -1)
    rows = [of_real, np.stack([-roots.imag, roots.real], -1)][:parts]
    length, count = roots.shape
    return np.stack(rows, 1).reshape(length * parts, count * 2)


def _transposed(matrix: Operand, shape: Shape) -> SSAValue:
    return reshaped(gc.TransposeOp(matrix, perm=[0, 2, 1, 3]), shape)


def _fitted(value: Operand, size: int) -> SSAValue:
    """Truncates the second to last axis, or pads it with zeros."""
    shape = shape_of(value)
    axis, none = len(shape) - 2, [0] * len(shape)
    if size <= shape[axis]:
        whole = size == shape[axis]
        return SSAValue.get(value) if whole else sliced(value, {axis: (0, size, 1)})
    high = [*none[:-2], size - shape[axis], 0]
    return gc.PadOp(value, low=none, high=high, interior=none, value=0.0).result


# Requirements of all operators on signals


def _number(node: NodeView, index: int) -> int | None:
    return next(iter(node.integers_of(index) or []), None)


def _positive(node: NodeView, index: int, what: str) -> Conflicts:
    yield from one_element(node, index)
    number = _number(node, index)
    if number is not None and not 1 <= number <= MOST:
        yield TypeConflict(f"{what} is {number}", "it must be 1 or more")


def _parts(node: NodeView, is_real: bool | None) -> Conflicts:
    """The last axis has 1 (real) or 2 (complex) elements."""
    size = (node.shape_of(0) or (None,))[-1]
    wanted = (1, 2) if is_real is None else (1,) if is_real else (2,)
    if isinstance(size, int) and size not in wanted:
        yield TypeConflict(
            f"the last axis has {size} elements",
            f"it must have {' or '.join(map(str, wanted))}: one for real signals, two for "
            "complex ones; `onesided` is for real signals",
        )


# DFT and STFT


@requires("DFT")
def require_dft(node: NodeView) -> Conflicts:
    yield from at_least(node, 0, 2)
    onesided = node.integer("onesided")
    yield from _parts(node, not node.integer("inverse") if onesided else None)
    yield from _positive(node, 1, "`dft_length`")
    yield from one_element(node, 2)
    axis = node.integer("axis", 1) if node.version < 20 else _number(node, 2)
    axis, shape = -2 if axis is None else axis, node.shape_of(0)
    if shape is None:
        return
    yield from in_range("axis", [axis], len(shape))
    if axis % len(shape) == len(shape) - 1:
        yield TypeConflict(f"axis {axis} holds real and imaginary parts", "choose another axis")
    size, least = shape[axis], 2 if onesided and node.integer("inverse") else 1
    if not node.has(1) and isinstance(size, int) and size < least:
        yield TypeConflict(f"the transformed axis has size {size}", f"it must be {least} or more")


@lowers("DFT", structural=[1, 2])
def fourier_transform(node: Node) -> Lowered:
    """Moves the axis before that of the parts, fits it to the length, and transforms it."""
    axis, wide = _signal_axis(node), computing(node)
    inverse, onesided = bool(node.integer("inverse")), bool(node.integer("onesided"))
    length = _length(node, node.shape[axis], inverse and onesided)
    others = [one for one in range(node.rank - 1) if one != axis]
    perm = [*others, axis, node.rank - 1]
    moved = cast(gc.TransposeOp(node[0], perm=perm), wide)
    fitted = _fitted(moved, length // 2 + 1 if inverse and onesided else length)
    counts = [node.shape[one] for one in others]
    signals = reshaped(fitted, (prod(counts), *shape_of(fitted)[-2:]))
    fourier = Fourier(node, wide, inverse)
    if inverse:
        found = fourier.real(signals, length) if onesided else fourier(signals)
        found = gc.MulOp(found, node.scalar(1 / length, wide)).result
    else:
        found = fourier.spectrum(signals, onesided)
    split = reshaped(found, (*counts, *shape_of(found)[1:]))
    back = [perm.index(one) for one in range(node.rank)]
    return cast(gc.TransposeOp(split, perm=back), node.dtype)


def _signal_axis(node: Node) -> int:
    given = node.optional(2)
    if node.version < 20:
        axis = node.integer("axis", 1)
    else:
        axis = -2 if given is None else node.numbers(2, "the axis")[0]
    found = node.axis(axis)
    if found == node.rank - 1:
        raise TypeMismatchError(
            f"axis {axis} holds real and imaginary parts", hint="choose another axis"
        )
    return found


def _length(node: Node, size: int, is_half: bool) -> int:
    if node.optional(1) is None:
        length = 2 * (size - 1) if is_half else size
    else:
        (length,) = node.numbers(1, "the length")
    if length < 1:
        raise TypeMismatchError(
            f"the length of the transform is {length}", hint="it must be 1 or more"
        )
    return length


@requires("STFT")
def require_stft(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 3)
    yield from _parts(node, True if node.integer("onesided", 1) else None)
    yield from _positive(node, 1, "`frame_step`")
    yield from of_rank(node, 2, 1)
    yield from _positive(node, 3, "`frame_length`")
    shape, window, length = node.shape_of(0), node.shape_of(2), _number(node, 3)
    if length is not None:
        yield from of_shape(node, 2, length)
    found = window[0] if length is None and window else length
    if shape is None:
        return
    size = shape[1]
    if found == 0 or (not node.has(2) and not node.has(3) and size == 0):
        yield TypeConflict("frames have no elements", "use frames of 1 or more elements")
    if isinstance(size, int) and isinstance(found, int) and found > size:
        yield TypeConflict(
            f"frames of {found} are longer than the signal of {size}", "use shorter frames"
        )


@lowers("STFT", structural=[1, 3])
def short_time_fourier_transform(node: Node) -> Lowered:
    """The transform of all frames, gathered from the signals and multiplied by the window."""
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
    signals = reshaped(frames, (batch * count, length, parts))
    fourier = Fourier(node, wide, inverse=False)
    found = fourier.spectrum(signals, bool(node.integer("onesided", 1)))
    return cast(reshaped(found, (batch, count, *shape_of(found)[1:])), node.dtype)


# MelWeightMatrix and windows


@requires("MelWeightMatrix")
def require_mel_weight_matrix(node: NodeView) -> Conflicts:
    for index, name in enumerate(("num_mel_bins", "dft_length", "sample_rate")):
        yield from _positive(node, index, f"`{name}`")
    for index in (3, 4):
        yield from one_element(node, index)
    lower, upper, rate = node.elements_of(3), node.elements_of(4), _number(node, 2)
    if lower is None or upper is None or rate is None:
        return
    low, high = (float(edge.reshape(-1)[0]) for edge in (lower, upper))
    if not 0 <= low <= high <= rate / 2:
        yield TypeConflict(
            f"the bands are {low:g} to {high:g} Hz at a sample rate of {rate} Hz",
            "use edges between 0 and half the sample rate, the lower one first",
        )


@lowers("MelWeightMatrix", structural=[0, 1, 2, 3, 4])
def mel_weight_matrix(node: Node) -> Lowered:
    """A constant matrix, since all inputs are structural."""
    names = ("number of bands", "length", "rate", "lower edge", "upper edge")
    bands, length, rate, lower, upper = (
        node.array(index, f"the {name}").reshape(-1)[0].item() for index, name in enumerate(names)
    )
    weights = _mel_weights(bands, length, rate, lower, upper)
    return node.literal(weights.astype(dtypes.BY_ONNX[node.integer("output_datatype", 1)].numpy))


def _mel_weights(bands: int, length: int, rate: int, lower: float, upper: float) -> Array:
    """Triangular filters over the bins of a spectrum, spaced like ONNX's reference."""
    low, high = (2595 * np.log10(1 + edge / 700) for edge in (lower, upper))
    mels = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    points = ((length + 1) * hertz // rate).astype(np.int64)
    numbers = np.arange(length // 2 + 1)[:, None]
    left, centre, right = points[:-2], points[1:-1], points[2:]
    if points.min() < 0 or centre.max(initial=0) > length // 2:
        raise TypeMismatchError(
            f"the bands are {lower:g} to {upper:g} Hz for {length // 2 + 1} bins at {rate} Hz",
            hint="use edges between 0 and half the sample rate",
        )
    rising = (numbers - left) / np.maximum(centre - left, 1)
    rising = np.where(centre == left, 1.0, rising)
    falling = (right - numbers) / np.maximum(right - centre, 1)
    weights = np.where((numbers >= left) & (numbers <= centre), rising, 0.0)
    return np.where((numbers >= centre) & (numbers < right), falling, weights)


without_gradient("MelWeightMatrix", STRUCTURE)


@requires("BlackmanWindow", "HammingWindow", "HannWindow")
def require_window(node: NodeView) -> Conflicts:
    yield from one_element(node, 0)
    yield from wrong_sizes(node.integers_of(0) or [])
