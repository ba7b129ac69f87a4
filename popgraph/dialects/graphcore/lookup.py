"""Gather, its gradient, index checks, iota."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from popgraph.dialects import element_types
from popgraph.dialects.graphcore.base import (
    ANY,
    INTEGERS,
    NUMBERS,
    Array,
    GraphcoreOp,
    Lookup,
    Operand,
    Tensor,
    integer,
    operation,
    precisely,
    shape_of,
    tensor_of,
)
from popgraph.dialects.program.attributes import BytesAttr, IntsAttr
from popgraph.support import shapes
from popgraph.support.errors import IndicesError
from popgraph.support.index_checks import IndexCheck
from popgraph.support.shapes import Shape


def positions(indices: Array, size: int) -> Array:
    """Positions of indices: negative ones count from the end, all are clamped to the axis."""
    last = max(0, size - 1)
    if indices.dtype.kind == "u":
        # Clamped as u64: large indices would become negative in i64.
        return np.minimum(indices, np.uint64(last), dtype=np.uint64).astype(np.int64)
    places = indices.astype(np.int64)
    return np.clip(np.where(places < 0, places + size, places), 0, last)


def gathered_shape(op: GraphcoreOp, data: Shape, indices: Shape, axis: int) -> Shape:
    """The result shape of `gather`."""
    op.check_axes([axis], len(data))
    if data[axis] == 0 and 0 not in indices:
        raise op.fail(f"cannot select from the empty axis {axis} of {shapes.text(data)}")
    return (*data[:axis], *indices, *data[axis + 1 :])


@operation
class GatherOp(Lookup):
    """
    result[..., i, ...] = data[..., indices[i], ...] along `axis`. ONNX Gather.

    Negative indices count from the end; indices out of range are clamped to the nearest end.
    """

    name = "graphcore.gather"
    data = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, data: Operand, indices: Operand, *, axis: int) -> None:
        super().__init__([data, indices], {"axis": axis})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(ANY, self.data)
        self.common_element(INTEGERS, self.indices)
        data, indices = shape_of(self.data), shape_of(self.indices)
        return (TensorType(element, gathered_shape(self, data, indices, integer(self.axis))),)

    def evaluate(self, data: Array, indices: Array) -> tuple[Array, ...]:
        axis = integer(self.axis)
        return (np.take(data, positions(indices, data.shape[axis]), axis),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        axis = integer(self.axis)
        size = shape_of(self.data)[axis]
        return (GatherGradOp(dy, self.indices, axis=axis, size=size), None)


@operation
class CheckIndicesOp(Lookup):
    """
    The same indices, which a run must find between `low` and `last`, or equal to `ignored`.

    There is one pair of bounds, or one for each position along the last axis. The operation itself
    checks nothing: the `check-indices` pass adds a program output that reports violations.
    """

    name = "graphcore.check_indices"
    indices = operand_def(TensorType)
    low = prop_def(IntsAttr)
    last = prop_def(IntsAttr)
    ignored = opt_prop_def(IntegerAttr)
    what = prop_def(BytesAttr)
    place = prop_def(BytesAttr)
    result = result_def(TensorType)

    def __init__(
        self,
        indices: Operand,
        *,
        low: Sequence[int],
        last: Sequence[int],
        what: str = "index",
        place: str = "",
        ignored: int | None = None,
    ) -> None:
        given = {} if ignored is None else {"ignored": ignored}
        words = {"what": BytesAttr.of(what), "place": BytesAttr.of(place)}
        super().__init__([indices], {"low": low, "last": last, **given, **words})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(INTEGERS, self.indices)
        count, shape = len(self.low), shape_of(self.indices)
        if count != len(self.last) or (count != 1 and (count,) != shape[-1:]):
            raise self.fail(
                f"has {count} and {len(self.last)} bounds for indices of {shapes.text(shape)}"
            )
        return (tensor_of(self.indices),)

    def evaluate(self, indices: Array) -> tuple[Array, ...]:
        return (indices,)

    def check(self, output: str) -> IndexCheck:
        """The check whose result is reported in the output of this name."""
        words = self.what.text, self.place.text
        return IndexCheck(output, *words, self.low.data, self.last.data)

    def error(self, indices: Array) -> IndicesError | None:
        """The error of constant indices, if they are out of range."""
        wide = indices.astype(np.int64)
        if self.ignored is not None:
            wide = wide[wide != integer(self.ignored)]
        rows = wide.reshape(-1, len(self.low)) - np.array(self.low.data)
        largest = rows.astype(np.uint64).max(axis=0, initial=0)
        return self.check("").error(np.asarray(largest))


@operation
class GatherGradOp(Lookup):
    """The gradient of `gather` for data of `size` along `axis`: accumulates slices of dy."""

    name = "graphcore.gather_grad"
    dy = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    size = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, dy: Operand, indices: Operand, *, axis: int, size: int) -> None:
        super().__init__([dy, indices], {"axis": axis, "size": size})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.dy)
        self.common_element(INTEGERS, self.indices)
        dy, indices, axis = shape_of(self.dy), shape_of(self.indices), integer(self.axis)
        data = (*dy[:axis], integer(self.size), *dy[axis + len(indices) :])
        expected = gathered_shape(self, data, indices, axis)
        if dy != expected:
            raise self.fail(
                f"needs a gradient of shape {shapes.text(expected)}, not {shapes.text(dy)}"
            )
        return (TensorType(element, data),)

    def evaluate(self, dy: Array, indices: Array) -> tuple[Array, ...]:
        return (precisely(lambda a: self.add(a, indices), dy),)

    def add(self, dy: Array, indices: Array) -> Array:
        axis = integer(self.axis)
        before, after = dy.shape[:axis], dy.shape[axis + indices.ndim :]
        result = np.zeros((*before, integer(self.size), *after), dy.dtype)
        places = positions(indices, integer(self.size)).ravel()
        slices = dy.reshape(*before, places.size, *after)
        np.add.at(np.moveaxis(result, axis, 0), places, np.moveaxis(slices, axis, 0))
        return result

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (GatherOp(dy, self.indices, axis=integer(self.axis)), None)


@operation
class IotaOp(Lookup):
    """Each element is its index along `axis`. Used for ONNX Range, EyeLike and OneHot."""

    name = "graphcore.iota"
    shape = prop_def(IntsAttr)
    axis = prop_def(IntegerAttr)
    dtype = prop_def(Attribute)
    result = result_def(TensorType)

    def __init__(self, *, shape: Sequence[int], axis: int, dtype: Attribute) -> None:
        super().__init__([], {"shape": shape, "axis": axis, "dtype": dtype})

    def infer(self) -> tuple[Tensor, ...]:
        self.check_axes([integer(self.axis)], len(self.shape))
        return (TensorType(self.checked_element(NUMBERS, self.dtype), self.shape.data),)

    def evaluate(self) -> tuple[Array, ...]:
        shape, axis = self.shape.data, integer(self.axis)
        column = np.arange(shape[axis]).reshape([-1] + [1] * (len(shape) - axis - 1))
        dtype = element_types.from_ir(self.dtype).numpy
        return (np.broadcast_to(column, shape).astype(dtype),)
