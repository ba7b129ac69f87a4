"""Largest and mean elements of windows, as ONNX defines them where its reference does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_average_pool import AveragePool_19
from onnx.reference.ops.op_max_pool import MaxPool as ReferenceMaxPool

Numbers = Sequence[int]


class GlobalMaxPool(OpRun):  # type: ignore[misc]
    """The reference's own drops dimensions of tensors that are no images."""

    op_domain = ""

    def _run(self, x: Any) -> tuple[Any]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class MaxPool(ReferenceMaxPool):  # type: ignore[misc]
    """
    The reference's own is right for windows that are moved by more than one, with `pads`.

    It takes windows that are moved by one for images, whose pads it reads in an order that is not
    ONNX's, and SAME_LOWER for SAME_UPPER. NaN is the largest element of its window, as in
    `graphcore.max_pool`; the reference forgets it, depending on where it stands.
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
    """The reference's own takes NaN for padding; the mean of NaN and anything is NaN."""

    op_domain = ""

    def _run(self, x: Any, **attributes: Any) -> Any:
        holes = np.isnan(x)
        (mean,) = super()._run(np.where(holes, 0, x).astype(x.dtype), **attributes)
        if holes.any():
            (share,) = super()._run(holes.astype(x.dtype), **attributes)
            mean = np.where(share > 0, np.array(np.nan, x.dtype), mean)
        return (mean,)


def _pads(mode: str, sizes: Numbers, spans: Numbers, strides: Numbers) -> list[int]:
    """All that come before, then all that come behind."""
    if mode == "VALID":
        return [0] * 2 * len(sizes)
    totals = [
        max(0, (-(-size // stride) - 1) * stride + span - size)
        for size, span, stride in zip(sizes, spans, strides, strict=True)
    ]
    less, more = [total // 2 for total in totals], [-(-total // 2) for total in totals]
    return [*less, *more] if mode == "SAME_UPPER" else [*more, *less]
