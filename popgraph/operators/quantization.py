"""Quantization, and matmuls and convolutions of quantized integers: i32 sums, rounded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, is_float, shape_of
from popgraph.dialects.graphcore.broadcasting import along, broadcasts_to, reshaped
from popgraph.dialects.graphcore.quantization import SMALLEST_SCALE
from popgraph.dialects.onnx.custom import FIT_GRID, Custom
from popgraph.dialects.onnx.record import enter
from popgraph.dialects.onnx.types import dims, tensor_type
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import WeightStore
from popgraph.operators.arithmetic import cast
from popgraph.operators.complaints import PADDING
from popgraph.operators.convolution import convolved, with_bias
from popgraph.operators.matrices import product_of
from popgraph.operators.movement import sliced
from popgraph.operators.node import Node
from popgraph.operators.record import INTEGERS, Lowered, chooses, lowers, without_gradient
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod, text

F32, F64, I32 = (dtypes.BY_NAME[name] for name in ("f32", "f64", "i32"))


@lowers("QuantizeLinear")
def quantize_linear(node: Node) -> Lowered:
    """y = saturate(round(x / scale) + zero point), rounding half to even."""
    zero, precision = node.optional(2), _precision(node)
    x, scale = cast(node[0], precision), cast(_spread(node, node[1]), precision)
    target = _target(node, zero)
    added = _none(node, target) if zero is None else _spread(node, zero)
    made = quantized(x, scale, added, target, saturates=bool(node.integer("saturate", 1)))
    if node.lowering.straight_through:
        node.lowering.passages[made.result] = _passage(node, made)
    return made


def quantized(
    x: Operand, scale: Operand, zero: Operand, target: DType, *, saturates: bool = True
) -> gc.QuantizeOp:
    bounds = gc.QuantizeOp.bounds_of(target, saturates=saturates)
    return gc.QuantizeOp(x, scale, zero, to=element_types.to_ir(target), **bounds)


def _none(node: Node, dtype: DType) -> SSAValue:
    """The zero point of a node without one: -0.0 for floats, since x + -0.0 keeps x = -0.0."""
    return node.literal(np.array(-0.0).astype(dtype.numpy))


def _passage(node: Node, op: gc.QuantizeOp) -> SSAValue:
    """A zero whose gradient is that of x / scale where it is within bounds (straight-through)."""
    target = op.target
    ratio = gc.DivOp(op.x, op.scale)
    near = cast(ratio if target.is_float else gc.RoundOp(ratio), F32)
    zero = cast(op.zero, F32)
    near, real = (gc.AddOp(one, zero).result for one in (near, cast(ratio, F32)))
    ends = (ml_dtypes.finfo if target.is_float else ml_dtypes.iinfo)(target.numpy)
    above = gc.CompareOp(near, node.scalar(float(ends.min), F32), predicate="ge")
    below = gc.CompareOp(near, node.scalar(float(ends.max), F32), predicate="le")
    nothing = gc.SubOp(real, gc.DetachOp(real))
    return gc.WhereOp(gc.AndOp(above, below), nothing, node.scalar(0, F32)).result


def _target(node: Node, zero: SSAValue | None) -> DType:
    """The element type of the result, which equals that of the zero point."""
    if zero is not None:
        return dtype_of(zero)
    number = node.integer("output_dtype")
    return dtypes.BY_ONNX[number] if number else dtypes.BY_NAME["u8"]


def _precision(node: Node) -> DType:
    """The type of the division: `precision`, else the scale's type if that is a float type."""
    number = node.integer("precision")
    if number:
        return _real(node, "precision", number)
    scale = dtype_of(node[1])
    if is_float(node[1]):
        return scale
    return F64 if "i32" in (scale.name, node.dtype.name) else F32


def _real(node: Node, name: str, number: int) -> DType:
    """The float type that an attribute names."""
    found = dtypes.BY_ONNX.get(number)
    if found is None or found.name not in gc.FLOATS.names:
        listed = ", ".join(str(dtypes.BY_NAME[one].onnx) for one in sorted(gc.FLOATS.names))
        raise TypeMismatchError(f"{name} is {number}", hint=f"use a float type: one of {listed}")
    return found


without_gradient("QuantizeLinear QLinearConv QLinearMatMul", INTEGERS)


@lowers("DequantizeLinear")
def dequantize_linear(node: Node) -> Lowered:
    """y = (x - zero point) * scale, in f32, rounded once to the result's type."""
    x, zero = node[0], node.optional(2)
    taken = _none(node, node.dtype) if zero is None else _spread(node, zero)
    if (passage := node.lowering.passages.get(x)) is not None:
        x = gc.AddOp(cast(x, F32), passage).result
    scale, number = _spread(node, node[1]), node.integer("output_dtype")
    target = dtype_of(scale) if is_float(scale) else F32
    if number:
        target = _real(node, "output_dtype", number)
    return gc.DequantizeOp(x, scale, taken, to=element_types.to_ir(target))


def _spread(node: Node, value: SSAValue) -> Operand:
    """A scale or zero point (per tensor, axis or block), reshaped to broadcast to x."""
    shape = shape_of(value)
    if prod(shape) == 1:
        return reshaped(value, ())
    axis = node.axis(node.integer("axis", 1))
    if block := node.integer("block_size"):
        return _of_blocks(node, value, axis, block)
    if shape != (node.shape[axis],):
        raise TypeMismatchError(
            f"a scale or zero point is {text(shape)}, for axis {axis} of {text(node.shape)}",
            hint="give one, or one per element of the axis; blocks require block_size",
        )
    return along(value, axis, node.rank)


def _of_blocks(node: Node, value: SSAValue, axis: int, block: int) -> Operand:
    """Repeats each element `block` times along the axis; the last block may be shorter."""
    before, after = node.shape[:axis], node.shape[axis + 1 :]
    count = -(-node.shape[axis] // block) if block > 0 else -1
    if shape_of(value) != (*before, count, *after):
        raise TypeMismatchError(
            f"a scale or zero point is {text(shape_of(value))}, "
            f"for blocks of {block} along axis {axis} of {text(node.shape)}",
            hint="give one per block along that axis, one per element along the others",
        )
    column = gc.ReshapeOp(value, shape=(*before, count, 1, *after))
    wide = gc.BroadcastOp(column, shape=(*before, count, block, *after))
    repeated = gc.ReshapeOp(wide, shape=(*before, count * block, *after))
    return sliced(repeated.result, {axis: (0, node.shape[axis], 1)})


# Grids of quantization-aware training


def types_of_grid(
    op: Custom, known: Mapping[SSAValue, Array], store: WeightStore
) -> list[Attribute]:
    """A scale and a zero point, one per element of `axis` if that is given, and a range."""
    view = NodeView(op)
    sizes, shape = dims(op.operands[0].type), None
    if sizes is not None:
        shape = (sizes[view.integer("axis")],) if view.has("axis") else ()
    zero = dtypes.BY_ONNX[view.integer("to")]
    types = [tensor_type("f32", shape), tensor_type(zero, shape), tensor_type("f32", (2,))]
    return types[: len(op.results)]


enter(*FIT_GRID).types = types_of_grid


@lowers(FIT_GRID[1], domain=FIT_GRID[0])
def fit_grid(node: Node) -> Lowered:
    """
    (scale, zero point, seen) of the integers of type `to` that hold the range of x.

    Without further inputs, the grid is symmetric and holds the largest magnitude of x, along `axis`
    one per element. Otherwise `range` is the moving average [least, most], and [0, 0] before the
    first step. Training updates it by `seen`, the range of x together with that of an earlier
    value that has the same grid.
    """
    x = gc.DetachOp(cast(node[0], F32))
    target = dtypes.BY_ONNX[node.integer("to")]
    if not node.has(1):
        kept = [node.integer("axis")] if node.has("axis") else []
        axes = [axis for axis in range(node.rank) if axis not in kept]
        largest = gc.ReduceMaxOp(gc.AbsOp(x), axes=axes, keepdims=False)
        scale = _scale(node, largest, int(ml_dtypes.iinfo(target.numpy).max))
        zero = node.literal(np.zeros(shape_of(scale), target.numpy))
        return [scale, zero]
    seen = _seen(node, x)
    found = _moving_range(node, seen)
    least, most = (sliced(found, {0: (end, 1, 1)}) for end in (0, 1))
    bounds = gc.QuantizeOp.bounds_of(target)
    scale = _scale(node, gc.SubOp(most, least), bounds["high"] - bounds["low"])
    ratio = gc.SubOp(node.scalar(bounds["low"], F32), gc.DivOp(least, scale))
    middle = quantized(ratio, node.scalar(1, F32), _none(node, target), target)
    return [reshaped(scale, ()), reshaped(middle, ()), seen]


def _scale(node: Node, size: Operand, steps: int) -> Operand:
    """The scale with which this number of steps spans a size."""
    step = gc.DivOp(size, node.scalar(steps, F32))
    least = gc.MaxOp(step, node.scalar(SMALLEST_SCALE, F32))
    nothing = gc.CompareOp(size, node.scalar(0, F32), predicate="eq")
    return gc.WhereOp(nothing, node.scalar(1, F32), least)


def _seen(node: Node, x: Operand) -> Operand:
    """[least, most] of x, of 0, and of the range that another value has seen."""
    ends = list[Operand]()
    for number, (reduce, join) in enumerate(
        ((gc.ReduceMinOp, gc.MinOp), (gc.ReduceMaxOp, gc.MaxOp))
    ):
        flat = reduce(x, axes=list(range(node.rank)), keepdims=False)
        end: Operand = join(reshaped(flat, (1,)), node.scalar(0, F32))
        if node.has(2):
            end = join(end, sliced(node[2], {0: (number, 1, 1)}))
        ends.append(end)
    return gc.ConcatOp(ends, axis=0)


def _moving_range(node: Node, seen: Operand) -> Operand:
    """The range of the grid: the moving average, or what this batch has before the first step."""
    old = gc.DetachOp(node[1])
    low, high = (sliced(old, {0: (end, 1, 1)}) for end in (0, 1))
    unknown = gc.CompareOp(low, high, predicate="eq")
    if not node.lowering.moves(node[1]):
        return gc.WhereOp(unknown, seen, old)
    momentum = node.real("momentum", 0.9)
    kept = gc.MulOp(old, node.scalar(momentum, F32))
    added = gc.MulOp(seen, node.scalar(1 - momentum, F32))
    new = gc.WhereOp(unknown, seen, gc.AddOp(kept, added)).result
    node.lowering.update(node[1], new)
    return new


# Matmuls and convolutions of integers


chooses("ConvInteger", "QLinearConv", auto_pad=PADDING)


@lowers("MatMulInteger")
def matmul_integer(node: Node) -> Lowered:
    return product_of(node, _centered(node, 0, 2, _rows), _centered(node, 1, 3, _columns))


@lowers("QLinearMatMul")
def qlinear_matmul(node: Node) -> Lowered:
    """y = quantize((a @ b) * (a_scale * b_scale / y_scale)), in i32 and then f64."""
    kind = I32 if dtype_of(node[0]).is_integer and dtype_of(node[3]).is_integer else F32
    left, right = _centered(node, 0, 2, _rows, kind), _centered(node, 3, 5, _columns, kind)
    scales = _ratio(_rows(node, 0, 1), _columns(node, 3, 4), _single(node, 3, 6))
    return product_of(node, left, right, lambda sums: _rescaled(node, sums, scales, 7))


@lowers("ConvInteger")
def conv_integer(node: Node) -> Lowered:
    return convolved(node, _centered(node, 0, 2, _single), _centered(node, 1, 3, _maps))


@lowers("QLinearConv")
def qlinear_conv(node: Node) -> Lowered:
    """Like QLinearMatMul, for a convolution; the bias has scale x_scale * w_scale."""
    sums = convolved(node, _centered(node, 0, 2, _single), _centered(node, 3, 5, _maps))
    of_maps = _maps(node, 3, 4)
    if shape_of(of_maps):
        of_maps = gc.ReshapeOp(of_maps, shape=shape_of(of_maps)[:-1])
    scales = _ratio(_single(node, 0, 1), of_maps, _single(node, 3, 6))
    return _rescaled(node, with_bias(sums, node.optional(8)), scales, 7)


def _centered(
    node: Node, of: int, zero: int, fit: Callable[[Node, int, int], Operand], kind: DType = I32
) -> Operand:
    """An operand minus its zero point, if there is one, in a type that holds the difference."""
    offset = fit(node, of, zero) if node.has(zero) else None
    wide = cast(node[of], kind)
    return wide if offset is None else gc.SubOp(wide, cast(offset, kind))


def _ratio(left: Operand, right: Operand, result: Operand) -> Operand:
    """left * right / result, of scales."""
    return gc.DivOp(gc.MulOp(left, right), result)


def _rescaled(node: Node, sums: Operand, scales: Operand, zero: int) -> SSAValue:
    """sums * scales, in f64: it holds every i32, and rounds only in the quantization."""
    product = gc.MulOp(cast(sums, F64), cast(scales, F64))
    one = node.scalar(1, F64)
    return quantized(product, one, _single(node, 0, zero), dtype_of(node[zero])).result


# Scales and zero points of input `index`, reshaped to broadcast to operand `of`


def _single(node: Node, of: int, index: int) -> Operand:
    """One value, as a scalar."""
    return _fitting(node, node[index], ())


def _rows(node: Node, of: int, index: int) -> Operand:
    """One value, or one per row of a matrix: a vector becomes a column."""
    value, shape = node[index], shape_of(node[of])
    sizes = shape_of(value)
    if len(sizes) == 1 < len(shape) and sizes != (1,):
        value = gc.ReshapeOp(value, shape=(*sizes, 1)).result
    return _fitting(node, value, (*shape[:-1], 1))


def _columns(node: Node, of: int, index: int) -> Operand:
    """One value, or one per column of a matrix."""
    shape = shape_of(node[of])
    wanted = () if len(shape) == 1 else (*shape[:-2], 1, shape[-1])
    return _fitting(node, node[index], wanted)


def _maps(node: Node, of: int, index: int) -> Operand:
    """One value, or one per output channel of weights."""
    weights = shape_of(node[of])
    found = _fitting(node, node[index], weights[:1])
    return along(found, 0, len(weights)) if shape_of(found) == weights[:1] else found


def _fitting(node: Node, value: SSAValue, wanted: Shape) -> Operand:
    """A scale or zero point that broadcasts to a shape; one value becomes a scalar."""
    shape = shape_of(value)
    if prod(shape) == 1:
        return reshaped(value, ())
    if not broadcasts_to(shape, wanted):
        raise TypeMismatchError(
            f"a scale or zero point of {node.op.op_type} is {text(shape)}, not {text(wanted)}",
            hint=f"give one value, or a tensor that broadcasts to {text(wanted)}",
        )
    return value
