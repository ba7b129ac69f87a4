"""Quantization, and products of quantized integers: sums in 32 bits, rounded once."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, is_float, shape_of
from popgraph.dialects.graphcore.broadcasting import along, broadcasts_to, reshaped
from popgraph.operators.arithmetic import cast, narrowed_to
from popgraph.operators.complaints import PADDING
from popgraph.operators.convolution import convolved, with_bias
from popgraph.operators.matrices import product_of
from popgraph.operators.movement import sliced
from popgraph.operators.node import Node
from popgraph.operators.record import INTEGERS, Lowered, chooses, lowers, without_gradient
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod, text

F32, F64, I32 = (dtypes.BY_NAME[name] for name in ("f32", "f64", "i32"))


@lowers("QuantizeLinear")
def quantize_linear(node: Node) -> Lowered:
    """y = x / scale, rounded to the nearest (even) number, + zero point, saturated."""
    zero, precision = node.optional(2), _precision(node)
    scale = cast(_spread(node, node[1]), precision)
    ratio = gc.DivOp(cast(node[0], precision), scale)
    saturates = bool(node.integer("saturate", 1))
    added = None if zero is None else _spread(node, zero)
    target = _target(node, zero)
    result = quantized(node, ratio, added, target, saturates)
    if node.lowering.straight_through:
        node.lowering.passages[result] = _passage(node, ratio, added, target)
    return result


def _passage(node: Node, ratio: Operand, zero: Operand | None, target: DType) -> SSAValue:
    """Zeros with the gradients of what is quantized, where it is not beyond the bounds."""
    ends = (ml_dtypes.finfo if target.is_float else ml_dtypes.iinfo)(target.numpy)
    near = cast(ratio if target.is_float else gc.RoundOp(ratio), F32)
    real = cast(ratio, F32)
    if zero is not None:
        near, real = (gc.AddOp(one, cast(zero, F32)).result for one in (near, real))
    above = gc.CompareOp(near, node.scalar(float(ends.min), F32), predicate="ge")
    below = gc.CompareOp(near, node.scalar(float(ends.max), F32), predicate="le")
    nothing = gc.SubOp(real, gc.DetachOp(real))
    return gc.WhereOp(gc.AndOp(above, below), nothing, node.scalar(0, F32)).result


def _target(node: Node, zero: SSAValue | None) -> DType:
    """The element type of the result, which a zero point has as well."""
    if zero is not None:
        return dtype_of(zero)
    number = node.integer("output_dtype")
    return dtypes.BY_ONNX[number] if number else dtypes.BY_NAME["u8"]


def _precision(node: Node) -> DType:
    """In what it is divided: in the scale's type, if there are fractions in it."""
    number = node.integer("precision")
    if number:
        return _real(node, "precision", number)
    scale = dtype_of(node[1])
    if is_float(node[1]):
        return scale
    return F64 if "i32" in (scale.name, node.dtype.name) else F32


def _real(node: Node, name: str, number: int) -> DType:
    """A float type that an attribute asks for."""
    found = dtypes.BY_ONNX.get(number)
    if found is None or found.name not in gc.FLOATS.names:
        listed = ", ".join(str(dtypes.BY_NAME[one].onnx) for one in sorted(gc.FLOATS.names))
        raise TypeMismatchError(f"{name} is {number}", hint=f"it is a float type: one of {listed}")
    return found


def quantized(
    node: Node, ratio: Operand, zero: Operand | None, target: DType, saturates: bool = True
) -> SSAValue:
    """Real numbers as integers or narrow floats; NaN is the least of integers."""
    if target.is_float:
        return narrowed_to(node, _moved(node, ratio, zero, target), target, saturates)
    whole: Operand = cast(gc.RoundOp(ratio), F32)
    if zero is not None:
        whole = gc.AddOp(whole, cast(zero, F32))
    ends = ml_dtypes.iinfo(target.numpy)
    low = node.scalar(int(ends.min), F32)
    numbers = gc.WhereOp(gc.CompareOp(whole, low, predicate="gt"), whole, low)
    return cast(gc.MinOp(numbers, node.scalar(int(ends.max), F32)), target)


def _moved(node: Node, ratio: Operand, zero: Operand | None, target: DType) -> Operand:
    """The sum with a zero point; one of 8 bits that is 0 leaves -0 as it is."""
    if zero is None:
        return ratio
    wide = dtype_of(ratio) if dtype_of(ratio) == F64 else F32
    value, added = cast(ratio, wide), cast(zero, wide)
    if not target.name.startswith("f8"):
        return gc.AddOp(value, added)
    is_nothing = gc.CompareOp(added, node.scalar(0, wide), predicate="eq")
    return gc.WhereOp(is_nothing, value, gc.AddOp(value, added))


without_gradient("QuantizeLinear QLinearConv QLinearMatMul", INTEGERS)


@lowers("DequantizeLinear")
def dequantize_linear(node: Node) -> Lowered:
    """y = (x - zero point) * scale, in single precision, rounded once to the result's type."""
    value: Operand = cast(node[0], F32)
    if (passage := node.lowering.passages.get(node[0])) is not None:
        value = gc.AddOp(value, passage)
    if (zero := node.optional(2)) is not None:
        value = gc.SubOp(value, cast(_spread(node, zero), F32))
    product = gc.MulOp(value, cast(_spread(node, node[1]), F32))
    number = node.integer("output_dtype")
    if number:
        return cast(product, _real(node, "output_dtype", number))
    return cast(product, dtype_of(node[1]) if is_float(node[1]) else F32)


def _spread(node: Node, value: SSAValue) -> Operand:
    """A scale or zero point of the tensor, of an axis or of blocks, as it broadcasts to x."""
    shape = shape_of(value)
    if prod(shape) == 1:
        return reshaped(value, ())
    axis = node.axis(node.integer("axis", 1))
    if block := node.integer("block_size"):
        return _of_blocks(node, value, axis, block)
    if shape != (node.shape[axis],):
        raise TypeMismatchError(
            f"a scale or zero point is {text(shape)}, axis {axis} of {text(node.shape)}",
            hint="give one, or one for each place of the axis; blocks need block_size",
        )
    return along(value, axis, node.rank)


def _of_blocks(node: Node, value: SSAValue, axis: int, block: int) -> Operand:
    """Each number so many times along the axis; the last block may be shorter."""
    before, behind = node.shape[:axis], node.shape[axis + 1 :]
    count = -(-node.shape[axis] // block) if block > 0 else -1
    if shape_of(value) != (*before, count, *behind):
        raise TypeMismatchError(
            f"a scale or zero point is {text(shape_of(value))}, "
            f"for blocks of {block} along axis {axis} of {text(node.shape)}",
            hint="as many as blocks along that axis, as many as elements along the others",
        )
    apart = gc.ReshapeOp(value, shape=(*before, count, 1, *behind))
    wide = gc.BroadcastOp(apart, shape=(*before, count, block, *behind))
    repeated = gc.ReshapeOp(wide, shape=(*before, count * block, *behind))
    return sliced(repeated.result, {axis: (0, node.shape[axis], 1)})


# Products of integers


chooses("ConvInteger", "QLinearConv", auto_pad=PADDING)


@lowers("MatMulInteger")
def matmul_integer(node: Node) -> Lowered:
    return product_of(node, _centered(node, 0, 2, _rows), _centered(node, 1, 3, _columns))


@lowers("QLinearMatMul")
def qlinear_matmul(node: Node) -> Lowered:
    """The product of the integers, times a * b / y of the scales, rounded once."""
    kind = I32 if dtype_of(node[0]).is_integer and dtype_of(node[3]).is_integer else F32
    left, right = _centered(node, 0, 2, _rows, kind), _centered(node, 3, 5, _columns, kind)
    scales = _ratio(_rows(node, 0, 1), _columns(node, 3, 4), _single(node, 3, 6))
    return product_of(node, left, right, lambda sums: _rescaled(node, sums, scales, 7))


@lowers("ConvInteger")
def conv_integer(node: Node) -> Lowered:
    return convolved(node, _centered(node, 0, 2, _single), _centered(node, 1, 3, _maps))


@lowers("QLinearConv")
def qlinear_conv(node: Node) -> Lowered:
    """As QLinearMatMul; the bias has the scale of the products."""
    sums = convolved(node, _centered(node, 0, 2, _single), _centered(node, 3, 5, _maps))
    of_maps = _maps(node, 3, 4)
    if shape_of(of_maps):
        of_maps = gc.ReshapeOp(of_maps, shape=shape_of(of_maps)[:-1])
    scales = _ratio(_single(node, 0, 1), of_maps, _single(node, 3, 6))
    return _rescaled(node, with_bias(sums, node.optional(8)), scales, 7)


def _centered(
    node: Node, of: int, zero: int, fit: Callable[[Node, int, int], Operand], kind: DType = I32
) -> Operand:
    """A factor without its zero point, if there is one, in a type that holds it."""
    offset = fit(node, of, zero) if node.has(zero) else None
    wide = cast(node[of], kind)
    return wide if offset is None else gc.SubOp(wide, cast(offset, kind))


def _ratio(left: Operand, right: Operand, result: Operand) -> Operand:
    """The scales of both factors through that of the result."""
    return gc.DivOp(gc.MulOp(left, right), result)


def _rescaled(node: Node, sums: Operand, scales: Operand, zero: int) -> SSAValue:
    """In double precision, which holds the products of sums and scales."""
    product = gc.MulOp(cast(sums, F64), cast(scales, F64))
    return quantized(node, product, _single(node, 0, zero), dtype_of(node[zero]))


# Scales and zero points, by their number, as they broadcast to the operand `of`


def _single(node: Node, of: int, index: int) -> Operand:
    """One number, as a scalar."""
    return _fitting(node, node[index], ())


def _rows(node: Node, of: int, index: int) -> Operand:
    """One number, or one for each row of a matrix: a list of them is a column."""
    value, shape = node[index], shape_of(node[of])
    sizes = shape_of(value)
    if len(sizes) == 1 < len(shape) and sizes != (1,):
        value = gc.ReshapeOp(value, shape=(*sizes, 1)).result
    return _fitting(node, value, (*shape[:-1], 1))


def _columns(node: Node, of: int, index: int) -> Operand:
    """One number, or one for each column of a matrix."""
    shape = shape_of(node[of])
    wanted = () if len(shape) == 1 else (*shape[:-2], 1, shape[-1])
    return _fitting(node, node[index], wanted)


def _maps(node: Node, of: int, index: int) -> Operand:
    """One number, or one for each output channel of weights."""
    weights = shape_of(node[of])
    found = _fitting(node, node[index], weights[:1])
    return along(found, 0, len(weights)) if shape_of(found) == weights[:1] else found


def _fitting(node: Node, value: SSAValue, wanted: Shape) -> Operand:
    """A scale or zero point that broadcasts to a shape; one number is a scalar."""
    shape = shape_of(value)
    if prod(shape) == 1:
        return reshaped(value, ())
    if not broadcasts_to(shape, wanted):
        raise TypeMismatchError(
            f"a scale or zero point of {node.op.op_type} is {text(shape)}, not {text(wanted)}",
            hint="give one number, or a list of as many as are asked for here",
        )
    return value
