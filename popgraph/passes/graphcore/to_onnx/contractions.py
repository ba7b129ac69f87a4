"""ONNX forms of matmuls, convolutions, pools and their gradients."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore
from popgraph.dialects.graphcore.base import Array, as_array, dtype_of, integer, shape_of
from popgraph.dialects.graphcore.geometry import Geometry
from popgraph.dialects.graphcore.pooling import Pool, lowest
from popgraph.passes.graphcore.to_onnx.printer import Printer, form, no_form, refused
from popgraph.passes.graphcore.to_onnx.reductions import NARROW
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape, prod

no_form(
    "it is formed after the export, for instructions of the machine",
    graphcore.DotMatMulOp,
    graphcore.DotConvOp,
    graphcore.DotConvInputGradOp,
    graphcore.DotConvWeightGradOp,
    graphcore.MatMulInPairsOp,
    graphcore.ConvInPairsOp,
    graphcore.PartsOp,
)


@form(graphcore.MatMulOp, by="MatMul")
def mat_mul(to: Printer, op: graphcore.MatMulOp) -> SSAValue:
    lhs, rhs, dtype = to(op.lhs), to(op.rhs), dtype_of(op.lhs)
    if dtype.name not in NARROW:
        return to.node("MatMul", lhs, rhs)
    return to.cast(to.node("MatMul", to.cast(lhs, "i32"), to.cast(rhs, "i32")), dtype)


def _check_floats(op: graphcore.Convolution) -> None:
    if not dtype_of(op.operands[0]).is_float:
        raise refused(op, "ONNX convolves floats")


@form(graphcore.ConvOp, by="Conv")
def conv(to: Printer, op: graphcore.ConvOp) -> SSAValue:
    _check_floats(op)
    return to.node(
        "Conv",
        to(op.x),
        to(op.w),
        strides=list(op.strides),
        dilations=list(op.dilations),
        pads=list(op.pads),
        group=integer(op.groups),
    )


@form(graphcore.ConvInputGradOp, by="ConvTranspose")
def conv_input_grad(to: Printer, op: graphcore.ConvInputGradOp) -> SSAValue:
    _check_floats(op)
    geometry = op.geometry(shape_of(op.w))
    return _spread(to, to(op.dy), to(op.w), op.dy, geometry, op.shape.data, integer(op.groups))


def _spread(
    to: Printer,
    dy: SSAValue,
    w: SSAValue,
    like: SSAValue,
    geometry: Geometry,
    shape: Shape,
    groups: int,
) -> SSAValue:
    """
    ConvTranspose without padding, then cut or padded to `shape`; `dy` has the type of `like`.

    ONNX's pads must be smaller than the kernel; the pads of a convolution may be larger.
    """
    full = geometry.reach(shape_of(like)[2:])
    made = to.node(
        "ConvTranspose",
        dy,
        w,
        strides=list(geometry.strides),
        dilations=list(geometry.dilations),
        group=groups,
    )
    return _inside(to, made, dtype_of(like), full, geometry.low, shape)


@form(graphcore.ConvWeightGradOp, by="Conv")
def conv_weight_grad(to: Printer, op: graphcore.ConvWeightGradOp) -> SSAValue:
    """
    A convolution whose channels are the batch and whose kernel is dy.

    Strides and dilations change places. Group g of the channels is x[:, g], one map for each of
    its input channels, so that maps of all groups are one convolution.
    """
    _check_floats(op)
    x, dy, groups = shape_of(op.x), shape_of(op.dy), integer(op.groups)
    batch, channels, *space = x
    maps, inner, *kernel = op.shape.data
    axes = range(3, 3 + len(space))
    images = to.reshape(to(op.x), [batch, groups, inner, *space])
    images = to.transpose(images, [2, 1, 0, *axes])
    images = to.reshape(images, [inner, channels // inner * batch, *space])
    kernels = to.transpose(to(op.dy), [1, 0, *range(2, len(dy))])
    geometry = op.geometry(op.shape.data)
    made = to.node(
        "Conv",
        images,
        kernels,
        strides=list(op.dilations),
        dilations=list(op.strides),
        pads=list(op.pads),
        group=groups,
    )
    found = Geometry(dy[2:], op.dilations.data, op.strides.data, geometry.low, geometry.high)
    if list(found.fits(tuple(space))) != kernel:
        made = to.slice(made, [0] * len(x), [inner, maps, *kernel])
    return to.transpose(made, [1, 0, *range(2, len(x))])


def _padded(to: Printer, op: Pool, value: SSAValue, like: SSAValue, fill: Array) -> SSAValue:
    """`value`, of the type of `like`, to the end of the last window; cut where it is longer."""
    geometry, sizes = op.geometry, op.sizes.data
    space, full = shape_of(like)[2:], geometry.reach(sizes)
    high = [
        max(0, end - low - size) for end, low, size in zip(full, geometry.low, space, strict=True)
    ]
    value = to.pad(value, (0, 0, *geometry.low), (0, 0, *high), fill)
    whole = [low + size + more for low, size, more in zip(geometry.low, space, high, strict=True)]
    if whole == list(full):
        return value
    return to.slice(value, [0] * len(shape_of(like)), [*shape_of(like)[:2], *full])


def _windows(op: Pool) -> dict[str, list[int]]:
    return {
        "kernel_shape": list(op.kernel),
        "strides": list(op.strides),
        "dilations": list(op.dilations),
    }


def _pooled(to: Printer, op: Pool, x: SSAValue) -> tuple[SSAValue, DType]:
    """x in a type that ONNX pools."""
    dtype = dtype_of(x)
    if dtype.is_float or dtype.name in ("i8", "u8"):
        return to(x), dtype
    if dtype.numpy.itemsize > 4:
        raise refused(op, f"ONNX pools no {dtype.name}, and f64 does not hold them")
    return to.cast(to(x), "f64"), dtypes.BY_NAME["f64"]


@form(graphcore.MaxPoolOp, by="MaxPool")
def max_pool(to: Printer, op: graphcore.MaxPoolOp) -> SSAValue:
    x, dtype = _pooled(to, op, op.x)
    x = _padded(to, op, x, op.x, as_array(lowest(dtype.numpy), dtype))
    found = to.node("MaxPool", x, **_windows(op))
    return found if dtype == dtype_of(op.x) else to.cast(found, dtype_of(op.x))


@form(graphcore.MaxPoolGradOp, by="MaxPool, ScatterElements")
def max_pool_grad(to: Printer, op: graphcore.MaxPoolGradOp) -> SSAValue:
    """The indices of MaxPool are positions in the padded tensor, to which dy is added."""
    x, dtype = _pooled(to, op, op.x)
    x = _padded(to, op, x, op.x, as_array(lowest(dtype.numpy), dtype))
    shape, full = shape_of(op.x), op.geometry.reach(op.sizes.data)
    count, whole = prod(shape_of(op.dy)), [*shape[:2], *full]
    places = to.reshape(to.nodes("MaxPool", [x], 2, **_windows(op))[1], [count])
    zeros = to.node("Expand", to.scalar(0, dtype_of(op.dy)), to.ints([prod(whole)]))
    flat = to.reshape(to(op.dy), [count])
    flat = to.node("ScatterElements", zeros, places, flat, axis=0, reduction="add")
    flat = to.reshape(flat, whole)
    return _inside(to, flat, dtype_of(op.dy), full, op.geometry.low, shape)


def _inside(
    to: Printer, value: SSAValue, dtype: DType, full: Shape, low: Shape, shape: Shape
) -> SSAValue:
    """`shape` cut out of a tensor whose space is `full`, from `low` on; zeros beyond its end."""
    space = shape[2:]
    high = [max(0, at + size - end) for at, size, end in zip(low, space, full, strict=True)]
    value = to.pad(value, [0] * len(shape), (0, 0, *high), as_array(0, dtype))
    whole = [end + more for end, more in zip(full, high, strict=True)]
    return value if whole == list(space) else to.slice(value, (0, 0, *low), shape)


@form(graphcore.AveragePoolOp, by="AveragePool")
def average_pool(to: Printer, op: graphcore.AveragePoolOp) -> SSAValue:
    """The mean of the padded tensor, times the kernel's size over the number of elements."""
    dtype = dtype_of(op.x)
    x = _padded(to, op, to(op.x), op.x, as_array(0, dtype))
    mean = to.node("AveragePool", x, **_windows(op))
    share = prod(op.kernel.data) / op.counts
    return mean if (share == 1).all() else to.node("Mul", mean, to.constant(as_array(share, dtype)))


@form(graphcore.AveragePoolGradOp, by="ConvTranspose")
def average_pool_grad(to: Printer, op: graphcore.AveragePoolGradOp) -> SSAValue:
    """The transposed convolution of dy / count with ones, each channel alone."""
    dtype, shape, sizes = dtype_of(op.dy), op.shape.data, op.sizes.data
    share = to.node("Mul", to(op.dy), to.constant(as_array(1 / op.counts, dtype)))
    share = to.reshape(share, [prod(shape[:2]), 1, *sizes])
    ones = to.constant(as_array(np.ones((1, 1, *op.kernel.data)), dtype))
    made = to.node(
        "ConvTranspose", share, ones, strides=list(op.strides), dilations=list(op.dilations)
    )
    full = op.geometry.reach(sizes)
    made = to.reshape(made, [*shape[:2], *full])
    return _inside(to, made, dtype, full, op.geometry.low, shape)
