"""Meanings of older operators and of pools that onnx.reference lacks or computes wrongly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_average_pool import AveragePool_19
from onnx.reference.ops.op_max_pool import MaxPool as ReferenceMaxPool
from onnx.reference.ops.op_rnn import RNN_7
from onnx.reference.ops.op_roi_align import RoiAlign
from onnx.reference.ops.op_scatter_elements import ScatterElements

from popgraph.support.arrays import Array

Numbers = Sequence[int]


class GlobalMaxPool(OpRun):  # type: ignore[misc]
    """GlobalMaxPool for any rank: the reference drops dimensions of other ranks than images."""

    op_domain = ""

    def _run(self, x: Any) -> tuple[Any]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(ReferenceMaxPool):  # type: ignore[misc]
    """
    MaxPool of any rank, stride and padding; the reference's own is right for strides above 1.

    For stride 1 the reference assumes images, reads pads in another order than ONNX's, and treats
    SAME_LOWER as SAME_UPPER. NaN is the largest element of its window, as in `graphcore.max_pool`;
    the reference drops it, depending on its position.
    """

    op_domain = ""

    def _run(
        self,
        x: Any,
        auto_pad: str | None = None,
        ceil_mode: int | None = None,
        dilations: Numbers | None = None,
        kernel_shape: Numbers = (),
        pads: Numbers | None = None,
        storage_order: int | None = None,
        strides: Numbers | None = None,
    ) -> Any:
        strides = strides or [1] * len(kernel_shape)
        dilations = dilations or [1] * len(kernel_shape)
        if auto_pad not in (None, "", "NOTSET"):
            spans = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations, strict=True)]
            pads = _pads(auto_pad, x.shape[2:], spans, strides)
        options = "NOTSET", ceil_mode, dilations, kernel_shape, pads, storage_order or 0, strides
        largest, *indices = self._max_pool(x, *options)
        if np.isnan(x).any():
            holes = self._max_pool(np.isnan(x).astype(x.dtype), *options)[0]
            largest = np.where(holes > 0, np.array(np.nan, x.dtype), largest)
        return (largest, *indices)


class AveragePool(AveragePool_19):  # type: ignore[misc]
    """AveragePool that propagates NaN, which the reference treats as padding."""

    op_domain = ""

    def _run(self, x: Any, **attributes: Any) -> Any:
        holes = np.isnan(x)
        (mean,) = super()._run(np.where(holes, 0, x).astype(x.dtype), **attributes)
        if holes.any():
            (share,) = super()._run(holes.astype(x.dtype), **attributes)
            mean = np.where(share > 0, np.array(np.nan, x.dtype), mean)
        return (mean,)


def _pads(mode: str, sizes: Numbers, spans: Numbers, strides: Numbers) -> list[int]:
    """Pads at the begin of all axes, then at the end of all axes."""
    if mode == "VALID":
        return [0] * 2 * len(sizes)
    totals = [
        max(0, (-(-size // stride) - 1) * stride + span - size)
        for size, span, stride in zip(sizes, spans, strides, strict=True)
    ]
    less, more = [total // 2 for total in totals], [-(-total // 2) for total in totals]
    return [*less, *more] if mode == "SAME_UPPER" else [*more, *less]


Meaning = Callable[..., Array]
"""The result for the operands and the attributes by name; absent attributes are None."""


def placed(function: Callable[..., Any]) -> Meaning:
    """Broadcasts the second operand at `axis` of the first, instead of at its last axes."""

    def compute(a: Array, b: Array, axis: int | None = None, **_: Any) -> Array:
        if axis is not None:
            b = b.reshape(*b.shape, *(1,) * (a.ndim - axis % a.ndim - b.ndim))
        return np.asarray(function(a, b))

    return compute


def flattened(function: Callable[[Array], Array]) -> Meaning:
    """Applies a function along all axes from `axis` on, flattened to one."""

    def compute(x: Array, axis: int | None = None, **_: Any) -> Array:
        before = x.shape[: 1 if axis is None else axis]
        return function(x.reshape(int(np.prod(before)), -1)).reshape(x.shape)

    return compute


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _log_softmax(x: Array) -> Array:
    below = x - x.max(1, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(1, keepdims=True)))


def _hardmax(x: Array) -> Array:
    return np.asarray(np.arange(x.shape[1]) == x.argmax(1)[:, None], x.dtype)


def _clip(x: Array, min: float | None = None, max: float | None = None, **_: Any) -> Array:
    low = -np.inf if min is None else min
    return np.clip(x, low, np.inf if max is None else max).astype(x.dtype)


def _prelu(x: Array, slope: Array, **_: Any) -> Array:
    """PRelu; a vector of slopes is per channel."""
    if slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return np.where(np.less(x, 0), np.multiply(x, slope), x)


def _divide(a: Array, b: Array) -> Array:
    return np.asarray(np.divide(a, b) if a.dtype.kind == "f" else np.floor_divide(a, b))


def _batch_normalization(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array,
    epsilon: float = 1e-5, spatial: int | None = 1, **_: Any,
) -> Array:  # fmt: skip
    """Inference mode; onnx's reference mixes in the statistics of the batch."""

    def of_channels(numbers: Array) -> Array:
        return numbers.reshape(-1, *(1,) * (x.ndim - 2)) if spatial != 0 else numbers

    scale, bias, mean, variance = map(of_channels, (scale, bias, mean, variance))
    normal = (x - mean) / np.sqrt(variance + x.dtype.type(epsilon))
    return np.asarray(normal * scale + bias, x.dtype)


def _gemm(
    a: Array, b: Array, c: Array, alpha: float = 1.0, beta: float = 1.0, **turned: Any
) -> Array:
    left = a.T if turned.get("transA") else a
    right = b.T if turned.get("transB") else b
    return np.asarray(alpha * (left @ right) + beta * c, a.dtype)


def _global_lp_pool(x: Array, p: float = 2, **_: Any) -> Array:
    powers = np.abs(x.astype(np.float64)) ** p
    total = powers.sum(axis=tuple(range(2, x.ndim)), keepdims=True)
    return np.asarray(total ** (1 / p), x.dtype)


def _max_roi_pool(
    x: Array, regions: Array, pooled_shape: Any = (), spatial_scale: float = 1.0, **_: Any
) -> Array:
    """The largest element of each bin, 0 for an empty bin."""
    found = np.zeros((len(regions), x.shape[1], *pooled_shape), x.dtype)
    corners = regions[:, 1:].astype(np.float64) * spatial_scale
    rounded = np.sign(corners) * np.floor(np.abs(corners) + 0.5)
    for at, (image, (left, top, right, bottom)) in enumerate(
        zip(regions[:, 0].astype(int), rounded, strict=True)
    ):
        rows = _bins(top, bottom, pooled_shape[0], x.shape[2])
        columns = _bins(left, right, pooled_shape[1], x.shape[3])
        for (row, high), (column, wide) in product(enumerate(rows), enumerate(columns)):
            seen = x[image, :, high, wide]
            if seen.size:
                found[at, :, row, column] = seen.max(axis=(1, 2))
    return found


def _bins(first: float, last: float, count: int, size: int) -> list[slice]:
    """The elements of each of `count` bins from `first` to `last`, clipped to the tensor."""
    length = max(last - first + 1, 1) / count
    ends = [
        (first + np.floor(at * length), first + np.ceil((at + 1) * length)) for at in range(count)
    ]
    return [slice(*(int(np.clip(end, 0, size)) for end in pair)) for pair in ends]


def _dequantize_linear(
    x: Array, scale: Array, zero: Array | None = None, axis: int | None = 1, **_: Any
) -> Array:
    wide = x.astype(np.int64)
    along = [1] * x.ndim
    if scale.size > 1:
        along[1 if axis is None else axis] = scale.size
        scale, zero = scale.reshape(along), None if zero is None else zero.reshape(along)
    shifted = wide if zero is None else wide - zero.astype(np.int64)
    return np.asarray(shifted * scale, scale.dtype)


def _upsample(x: Array, mode: str | None = "nearest", scales: Any = None, **more: Any) -> Array:
    """Nearest upsampling by integer scales: repeats elements."""
    if scales is None:
        scales = [1, 1, more["height_scale"], more["width_scale"]]
    if mode not in (None, "nearest") or any(scale != int(scale) for scale in scales):
        raise NotImplementedError("Upsample between elements")
    for axis, scale in enumerate(scales):
        x = np.repeat(x, int(scale), axis)
    return x


def _cast(x: Array, to: str = "FLOAT", **_: Any) -> Array:
    """Cast of versions whose `to` is a name."""
    return x.astype(helper.tensor_dtype_to_np_dtype(helper.TensorProto.DataType.Value(to)))


def _reshape(x: Array, shape: Any = (), **_: Any) -> Array:
    return x.reshape([x.shape[at] if size == 0 else size for at, size in enumerate(shape)])


def _dropout(x: Array, **_: Any) -> Array:
    """Dropout in inference mode: a random mask could not be compared."""
    return x


PLACED: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": _divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": np.power,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}
EVER = 1 << 31
"""The end of versions for operators that onnx's reference lacks."""
OLDER: dict[str, tuple[int, Meaning]] = {
    **{name: (7, placed(function)) for name, function in PLACED.items()},
    "BatchNormalization": (14, _batch_normalization),
    "Cast": (6, _cast),
    "Clip": (6, _clip),
    "DequantizeLinear": (19, _dequantize_linear),
    "Dropout": (7, _dropout),
    "Gemm": (7, _gemm),
    "PRelu": (7, _prelu),
    "GlobalLpPool": (EVER, _global_lp_pool),
    "MaxRoiPool": (EVER, _max_roi_pool),
    "Reshape": (5, _reshape),
    "Upsample": (9, _upsample),
    "Softmax": (13, flattened(_softmax)),
    "LogSoftmax": (13, flattened(_log_softmax)),
    "Hardmax": (13, flattened(_hardmax)),
}
"""Older meanings of operators, each with the first version that no longer has it."""


class _RoiAlign(RoiAlign):  # type: ignore[misc]
    """RoiAlign without the half-pixel shift, before its attribute existed."""

    def _run(self, *operands: Array, **attributes: Any) -> Any:
        shift = {"coordinate_transformation_mode": "output_half_pixel"}
        return super()._run(*operands, **attributes | shift)


SUCCESSORS: dict[str, tuple[int, type[OpRun]]] = {
    "RNN": (7, RNN_7),
    "RoiAlign": (16, _RoiAlign),
    "Scatter": (11, ScatterElements),
}
"""Later versions that also compute older ones, each with the version of the change."""


def older(op_type: str, version: int) -> list[type[OpRun]]:
    """The class that replaces the reference's operator for a version, if one is required."""
    last, successor = SUCCESSORS.get(op_type, (0, None))
    if successor is not None and version < last:
        return [type(op_type, (successor,), {"op_domain": ""})]
    until, meaning = OLDER.get(op_type, (0, None))
    if version >= until:
        return []
    return [type(op_type, (OpRun,), {"op_domain": "", "_run": _run_of(meaning)})]


def _run_of(meaning: Any) -> Callable[..., tuple[Array]]:
    def run(self: OpRun, *operands: Array, **attributes: Any) -> tuple[Array]:
        if len(self.onnx_node.output) > 1:
            raise NotImplementedError(f"{self.onnx_node.op_type} of more than one result")
        return (meaning(*operands, **attributes),)

    return run
