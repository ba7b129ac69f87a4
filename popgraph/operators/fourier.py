"""Discrete Fourier transforms: products with matrices, of long signals in several rounds."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.support.dtypes import DType

Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class Fourier:
    """
    Transforms of signals, [signals, length, 1] of real numbers or [signals, length, 2].

    The last axis has the real and the imaginary part.
    """

    node: Node
    kind: DType
    inverse: bool
    """Whether the sign of the exponent is that of the inverse; nothing is divided by."""

    def __call__(self, signals: SSAValue) -> SSAValue:
        """[signals, length, 2]"""
        length = shape_of(signals)[1]
        # The shortest are products whatever the tuning: a convolution would be made of them again.
        if length <= max(3, self.node.lowering.tuning.longest_dense_transform):
            return self.dense(signals, length)
        rows = next(rows for rows in range(isqrt(length), 0, -1) if length % rows == 0)
        return self.in_rounds(signals, rows) if rows > 1 else self.by_convolution(signals)

    def turns(self, numbers: NDArray[np.int64], length: int) -> Complex:
        """Roots of one: so many parts of a turn, counted exactly."""
        angle = 2 * np.pi * (numbers % length) / length
        roots: Complex = np.exp((1j if self.inverse else -1j) * angle)
        return roots

    def dense(self, signals: SSAValue, count: int) -> SSAValue:
        """The first `count` numbers of the transform, by one product."""
        size, length, parts = shape_of(signals)
        roots = self.turns(np.multiply.outer(np.arange(length), np.arange(count)), length)
        flat = reshaped(signals, (size, length * parts))
        product = gc.MatMulOp(flat, self.literal(_matrix(roots, parts)))
        return SSAValue.get(reshaped(product.result, (size, count, 2)))

    def real(self, signals: SSAValue, length: int) -> SSAValue:
        """The real parts of the transform of what the first half of its numbers stands for."""
        size, half, _ = shape_of(signals)
        if length > self.node.lowering.tuning.longest_dense_transform:
            whole = self(self.completed(signals, length))
            return SSAValue.get(sliced(whole, {2: (0, 1, 1)}))
        roots = self.turns(np.multiply.outer(np.arange(half), np.arange(length)), length)
        # All but the first number, and the middle one of an even length, stand for two.
        twice = np.where((np.arange(half) == 0) | (2 * np.arange(half) == length), 1, 2)
        matrix = _matrix(roots * twice[:, None], 2).reshape(2 * half, length, 2)[..., 0]
        product = gc.MatMulOp(reshaped(signals, (size, 2 * half)), self.literal(matrix))
        return SSAValue.get(reshaped(product.result, (size, length, 1)))

    def completed(self, signals: SSAValue, length: int) -> SSAValue:
        """With the second half, which is the first one backwards and conjugated."""
        half = shape_of(signals)[1]
        rest = sliced(signals, {1: (length - half, length - half, -1)})
        signs = self.literal(np.array([1.0, -1.0]))
        return gc.ConcatOp([signals, gc.MulOp(rest, signs)], axis=1).result

    def in_rounds(self, signals: SSAValue, rows: int) -> SSAValue:
        """
        A signal as a matrix: its columns are transformed, turned, and then its rows.

        Number k1 + rows * k2 of the result is number k2 of row k1.
        """
        size, length, parts = shape_of(signals)
        columns = length // rows
        matrix = gc.ReshapeOp(signals, shape=(size, rows, columns, parts))
        turned = gc.TransposeOp(matrix, perm=[0, 2, 1, 3]).result
        first = self(SSAValue.get(reshaped(turned, (size * columns, rows, parts))))
        roots = self.turns(np.multiply.outer(np.arange(columns), np.arange(rows)), length)
        apart = gc.ReshapeOp(first, shape=(size, columns, rows, 2))
        moved = gc.TransposeOp(self.times(apart, roots), perm=[0, 2, 1, 3]).result
        second = self(SSAValue.get(reshaped(moved, (size * rows, columns, 2))))
        result = gc.ReshapeOp(second, shape=(size, rows, columns, 2))
        joined = gc.TransposeOp(result, perm=[0, 2, 1, 3]).result
        return SSAValue.get(reshaped(joined, (size, length, 2)))

    def by_convolution(self, signals: SSAValue) -> SSAValue:
        """
        A long prime length, as a convolution with a chirp, which transforms of another one do.

        With 2 t k = t^2 + k^2 - (k - t)^2, after Bluestein.
        """
        _, length, parts = shape_of(signals)
        chirp = self.turns(np.arange(length) ** 2, 2 * length)
        room = 1 << (2 * length - 2).bit_length()
        around = np.zeros(room, np.complex128)
        around[:length] = chirp.conj()
        around[room - length + 1 :] = chirp[:0:-1].conj()
        wave = np.fft.fft(around) / room
        if parts == 1:
            signals = gc.PadOp(
                signals, low=(0, 0, 0), high=(0, 0, 1), interior=(0, 0, 0), value=0.0
            ).result
        high = (0, room - length, 0)
        wide = gc.PadOp(
            self.times(signals, chirp), low=(0, 0, 0), high=high, interior=(0, 0, 0), value=0.0
        )
        forth, back = (Fourier(self.node, self.kind, inverse) for inverse in (False, True))
        found = back(SSAValue.get(self.times(forth(wide.result), wave)))
        return SSAValue.get(self.times(sliced(found, {1: (0, length, 1)}), chirp))

    def times(self, value: Operand, factors: Complex) -> Operand:
        """Complex numbers times known ones."""
        real = factors.real[..., None]
        imaginary = np.stack([-factors.imag, factors.imag], -1)
        last = len(shape_of(value)) - 1
        swapped = sliced(SSAValue.get(value), {last: (1, 2, -1)})
        return gc.AddOp(
            gc.MulOp(value, self.literal(real)), gc.MulOp(swapped, self.literal(imaginary))
        )

    def literal(self, array: NDArray[np.float64]) -> SSAValue:
        return self.node.literal(array.astype(self.kind.numpy))


def _matrix(roots: Complex, parts: int) -> NDArray[np.float64]:
    """A complex matrix as one of real numbers, for rows of real or of complex numbers."""
    of_real = np.stack([roots.real, roots.imag], -1)
    rows = [of_real, np.stack([-roots.imag, roots.real], -1)][:parts]
    length, count = roots.shape
    return np.stack(rows, 1).reshape(length * parts, count * 2)
