"""Matrix products, convolutions, and the gradients of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypedDict, Unpack

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.base import (
    NUMBERS,
    Array,
    Contraction,
    Elements,
    Operand,
    Tensor,
    integer,
    operation,
    precisely,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import reshaped, sum_to
from popgraph.dialects.graphcore.geometry import Geometry, Index
from popgraph.dialects.graphcore.movement import swapped
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.support import shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape


class MatrixProduct(Contraction):
    """Matmul over the last two axes; leading axes broadcast."""

    ELEMENTS: ClassVar[Elements] = NUMBERS
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(self.ELEMENTS, self.lhs, self.rhs)
        left, right = shape_of(self.lhs), shape_of(self.rhs)
        if min(len(left), len(right)) < 2 or left[-1] != right[-2]:
            raise self.fail(
                f"cannot multiply {shapes.text(left)} by {shapes.text(right)}",
                "the last dimension of lhs must equal the second-to-last of rhs",
            )
        batch = shapes.broadcast(left[:-2], right[:-2])
        return (tensor_type(element, (*batch, left[-2], right[-1])),)


@operation
class MatMulOp(MatrixProduct):
    """Matmul over the last two axes; leading axes broadcast. ONNX MatMul, Gemm."""

    name = "graphcore.mat_mul"

    def __init__(self, lhs: Operand, rhs: Operand) -> None:
        super().__init__([lhs, rhs])

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(np.matmul, lhs, rhs),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        dlhs = sum_to(MatMulOp(dy, swapped(self.rhs)), shape_of(self.lhs))
        if len(shape_of(self.rhs)) > 2:
            return (dlhs, sum_to(MatMulOp(swapped(self.lhs), dy), shape_of(self.rhs)))
        # A 2-D rhs is shared by all batches: one matmul accumulates over batches and rows.
        lhs, rows = flattened(self.lhs), flattened(dy)
        return (dlhs, MatMulOp(swapped(lhs), rows))


def flattened(value: Operand) -> Operand:
    """`value` as a matrix: all leading axes merged into one."""
    *leading, last = shape_of(value)
    return reshaped(value, (shapes.prod(leading), last))


class ConvolutionOptions(TypedDict):
    """The properties that convolutions and their gradients share."""

    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    groups: int


class Convolution(Contraction):
    """
    Convolution and its two gradients: each is the gradient of the other two.

    x is [batch, channels, space...], w [maps, channels / groups, kernel...], y [batch, maps,
    windows...]. `pads` lists all low ends, then all high ends.
    """

    strides = prop_def(IntsAttr)
    dilations = prop_def(IntsAttr)
    pads = prop_def(IntsAttr)
    groups = prop_def(IntegerAttr)
    result = result_def(TensorType)

    @property
    def options(self) -> ConvolutionOptions:
        """The properties shared with the gradients."""
        return {
            "strides": self.strides.data,
            "dilations": self.dilations.data,
            "pads": self.pads.data,
            "groups": integer(self.groups),
        }

    def convolve(self, x: Array, w: Array) -> Array:
        """y, from x and w."""
        geometry, groups = self.geometry(w.shape), integer(self.groups)
        shape = self.result_shape(x.shape, w.shape)
        windows = geometry.view(geometry.padded(x, 0, shape[2:]), shape[2:])
        space = range(2, w.ndim)
        results = []
        for x_part, w_part in zip(
            np.split(windows, groups, axis=1), np.split(w, groups, axis=0), strict=True
        ):
            axes = ([1, *(at + w.ndim - 2 for at in space)], [1, *space])
            results.append(np.moveaxis(np.tensordot(x_part, w_part, axes), -1, 1))
        return np.concatenate(results, axis=1)

    def spread(self, dy: Array, w: Array, shape: Shape) -> Array:
        """dx of `shape`: scatters each element of dy, times the kernel, to its window."""
        geometry, groups = self.geometry(w.shape), integer(self.groups)
        sizes = dy.shape[2:]
        padded = geometry.padded(np.zeros(shape, dy.dtype), 0, sizes)
        parts = zip(
            np.split(padded, groups, axis=1),
            np.split(dy, groups, axis=1),
            np.split(w, groups, axis=0),
            strict=True,
        )
        for dx_part, dy_part, w_part in parts:
            for offset in geometry.offsets():
                corner: Index = (..., *offset)
                products = np.tensordot(dy_part, w_part[corner], ([1], [0]))
                dx_part[geometry.places(offset, sizes)] += np.moveaxis(products, -1, 1)
        return padded[geometry.inside(shape[2:])]

    def correlate(self, x: Array, dy: Array, shape: Shape) -> Array:
        """dw of `shape`: for each weight, the sum over batch and windows of its inputs times dy."""
        geometry, groups = self.geometry(shape), integer(self.groups)
        sizes = dy.shape[2:]
        windows = geometry.view(geometry.padded(x, 0, sizes), sizes)
        over = [0, *range(2, dy.ndim)]
        parts = zip(np.split(dy, groups, axis=1), np.split(windows, groups, axis=1), strict=True)
        return np.concatenate(
            [np.tensordot(dy_part, x_part, (over, over)) for dy_part, x_part in parts], axis=0
        )

    def geometry(self, weight: Shape) -> Geometry:
        rank = len(weight) - 2
        low, high = self.pads.data[:rank], self.pads.data[rank:]
        return Geometry(weight[2:], self.strides.data, self.dilations.data, low, high)

    def result_shape(self, x: Shape, w: Shape) -> Shape:
        """The shape of y; TypeMismatchError if the operands do not fit."""
        rank, groups = len(x) - 2, integer(self.groups)
        if rank < 1 or len(w) != len(x):
            raise self.fail(
                f"cannot slide weights {shapes.text(w)} over {shapes.text(x)}",
                "both need the same rank, 3 or more: batch, channels, space",
            )
        self.check_lengths(rank, strides=self.strides, dilations=self.dilations)
        self.check_lengths(2 * rank, pads=self.pads)
        if min(*self.strides, *self.dilations, groups) < 1 or min(self.pads) < 0:
            raise self.fail(
                "needs strides, dilations and groups of at least 1 and pads of at least 0"
            )
        if x[1] != w[1] * groups or w[0] % groups:
            raise self.fail(
                f"with {groups} groups cannot take {x[1]} channels with weights {shapes.text(w)}",
                "channels must be groups times the weights' second dimension, "
                "and groups must divide their first",
            )
        windows = self.geometry(w).fits(x[2:])
        if min(windows) < 1 or min(w[2:]) < 1:
            raise self.too_large(x[2:], w[2:])
        return (x[0], w[0], *windows)

    def too_large(self, space: Shape, kernel: Shape) -> TypeMismatchError:
        return self.fail(
            f"cannot fit a kernel of {shapes.text(kernel)} into {shapes.text(space)}",
            "increase pads, or reduce dilations or the kernel",
        )

    def check_gradient(self, x: Shape, w: Shape, dy: Shape) -> None:
        expected = self.result_shape(x, w)
        if dy != expected:
            raise self.fail(
                f"needs a gradient of shape {shapes.text(expected)}, not {shapes.text(dy)}"
            )


@operation
class ConvOp(Convolution):
    """y = cross-correlation of x with w, in `groups` of channels. ONNX Conv."""

    name = "graphcore.conv"
    x = operand_def(TensorType)
    w = operand_def(TensorType)

    def __init__(self, x: Operand, w: Operand, **options: Unpack[ConvolutionOptions]) -> None:
        super().__init__([x, w], options)

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.x, self.w)
        return (tensor_type(element, self.result_shape(shape_of(self.x), shape_of(self.w))),)

    def evaluate(self, x: Array, w: Array) -> tuple[Array, ...]:
        return (precisely(self.convolve, x, w),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (
            ConvInputGradOp(dy, self.w, shape=shape_of(self.x), **self.options),
            ConvWeightGradOp(self.x, dy, shape=shape_of(self.w), **self.options),
        )


@operation
class ConvInputGradOp(Convolution):
    """The gradient of `conv` for x of `shape`, given that of y. ONNX ConvTranspose."""

    name = "graphcore.conv_input_grad"
    dy = operand_def(TensorType)
    w = operand_def(TensorType)
    shape = prop_def(IntsAttr)

    def __init__(
        self,
        dy: Operand,
        w: Operand,
        *,
        shape: Sequence[int],
        **options: Unpack[ConvolutionOptions],
    ) -> None:
        super().__init__([dy, w], {**options, "shape": shape})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.dy, self.w)
        self.check_gradient(self.shape.data, shape_of(self.w), shape_of(self.dy))
        return (tensor_type(element, self.shape.data),)

    def evaluate(self, dy: Array, w: Array) -> tuple[Array, ...]:
        return (precisely(lambda dy, w: self.spread(dy, w, self.shape.data), dy, w),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (
            ConvOp(dy, self.w, **self.options),
            ConvWeightGradOp(dy, self.dy, shape=shape_of(self.w), **self.options),
        )


@operation
class ConvWeightGradOp(Convolution):
    """The gradient of `conv` for w of `shape`, given that of y."""

    name = "graphcore.conv_weight_grad"
    x = operand_def(TensorType)
    dy = operand_def(TensorType)
    shape = prop_def(IntsAttr)

    def __init__(
        self,
        x: Operand,
        dy: Operand,
        *,
        shape: Sequence[int],
        **options: Unpack[ConvolutionOptions],
    ) -> None:
        super().__init__([x, dy], {**options, "shape": shape})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.x, self.dy)
        self.check_gradient(shape_of(self.x), self.shape.data, shape_of(self.dy))
        return (tensor_type(element, self.shape.data),)

    def evaluate(self, x: Array, dy: Array) -> tuple[Array, ...]:
        return (precisely(lambda x, dy: self.correlate(x, dy, self.shape.data), x, dy),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (
            ConvInputGradOp(self.dy, dy, shape=shape_of(self.x), **self.options),
            ConvOp(self.x, dy, **self.options),
        )
