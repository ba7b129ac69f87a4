"""Data movement: transpose, concat, slice, insert, pad."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import BaseAttr, operand_def, prop_def, result_def, var_operand_def

from popgraph.dialects.graphcore.base import (
    ANY,
    Array,
    Movement,
    Operand,
    Tensor,
    as_array,
    dtype_of,
    integer,
    operation,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import BroadcastOp, scalar
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.support import shapes
from popgraph.support.boxes import Box


@operation
class TransposeOp(Movement):
    """Axis i of the result is axis `perm[i]` of x. ONNX Transpose."""

    name = "graphcore.transpose"
    x = operand_def(TensorType)
    perm = prop_def(IntsAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, perm: Sequence[int]) -> None:
        super().__init__([x], {"perm": perm})

    def infer(self) -> tuple[Tensor, ...]:
        shape = shape_of(self.x)
        if sorted(self.perm) != list(range(len(shape))):
            raise self.fail(
                f"cannot permute {len(shape)} axes by {list(self.perm)}",
                "perm must list every axis once",
            )
        element = self.common_element(ANY, self.x)
        return (tensor_type(element, [shape[axis] for axis in self.perm]),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (
            # `ascontiguousarray` makes a vector of a scalar: `reshape` undoes it.
            np.ascontiguousarray(np.transpose(x, self.perm.data)).reshape(
                [x.shape[axis] for axis in self.perm]
            ),
        )

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        inverse = sorted(range(len(self.perm)), key=self.perm.data.__getitem__)
        return (TransposeOp(dy, perm=inverse),)


def swapped(value: Operand) -> Operand:
    """`value` with its last two axes swapped."""
    *batch, row, column = range(len(shape_of(value)))
    return TransposeOp(value, perm=[*batch, column, row])


@operation
class ConcatOp(Movement):
    """Concatenates the operands along `axis`. ONNX Concat."""

    name = "graphcore.concat"
    xs = var_operand_def(BaseAttr(TensorType))
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, xs: Sequence[Operand], *, axis: int) -> None:
        super().__init__([xs], {"axis": axis})

    def infer(self) -> tuple[Tensor, ...]:
        if not self.xs:
            raise self.fail("needs at least one operand")
        element = self.common_element(ANY, *self.xs)
        first, *others = (shape_of(x) for x in self.xs)
        axis = integer(self.axis)
        self.check_axes([axis], len(first))
        for other in others:
            same = len(other) == len(first) and all(
                at == axis or mine == its
                for at, (mine, its) in enumerate(zip(first, other, strict=True))
            )
            if not same:
                raise self.fail(
                    f"cannot concatenate {shapes.text(first)} and {shapes.text(other)} "
                    f"along axis {axis}",
                    "all other dimensions must be equal",
                )
        total = sum(shape_of(x)[axis] for x in self.xs)
        return (tensor_type(element, (*first[:axis], total, *first[axis + 1 :])),)

    def evaluate(self, *xs: Array) -> tuple[Array, ...]:
        return (np.concatenate(xs, integer(self.axis)),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        axis, start = integer(self.axis), 0
        parts: list[Operand] = []
        for x in self.xs:
            shape = shape_of(x)
            starts = [start if at == axis else 0 for at in range(len(shape))]
            parts.append(SliceOp(dy, starts=starts, sizes=shape, steps=[1] * len(shape)))
            start += shape[axis]
        return tuple(parts)


@operation
class SliceOp(Movement):
    """Along each axis, `sizes` elements from `starts` with `steps`, also negative. ONNX Slice."""

    name = "graphcore.slice"
    x = operand_def(TensorType)
    starts = prop_def(IntsAttr)
    sizes = prop_def(IntsAttr)
    steps = prop_def(IntsAttr)
    result = result_def(TensorType)

    def __init__(
        self, x: Operand, *, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]
    ) -> None:
        super().__init__([x], {"starts": starts, "sizes": sizes, "steps": steps})

    def infer(self) -> tuple[Tensor, ...]:
        shape = shape_of(self.x)
        self.check_lengths(len(shape), starts=self.starts, sizes=self.sizes, steps=self.steps)
        ranges = zip(shape, self.starts, self.sizes, self.steps, strict=True)
        for axis, (dim, start, size, step) in enumerate(ranges):
            if step == 0:
                raise self.fail(f"cannot step by 0 along axis {axis}")
            if size < 0:
                raise self.fail(f"cannot take {size} elements along axis {axis}")
            last = start + (size - 1) * step
            if size and not (0 <= start < dim and 0 <= last < dim):
                raise self.fail(f"reads elements {start} to {last} of axis {axis}, which has {dim}")
        return (tensor_type(self.common_element(ANY, self.x), self.sizes.data),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        for axis, (start, size, step) in enumerate(
            zip(self.starts, self.sizes, self.steps, strict=True)
        ):
            x = np.take(x, start + step * np.arange(size), axis)
        return (x,)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        """Pads dy with zeros around and between its elements."""
        low, high, interior = [], [], []
        ranges = zip(shape_of(self.x), self.starts, self.sizes, self.steps, strict=True)
        for dim, start, size, step in ranges:
            first = min(start, start + (size - 1) * step) if size else 0
            span = (size - 1) * abs(step) + 1 if size else 0
            low.append(first)
            high.append(dim - first - span)
            interior.append(abs(step) - 1)
        back = [step < 0 for step in self.steps]
        dx: Operand = reverse(dy, back) if any(back) else dy
        return (PadOp(dx, low=low, high=high, interior=interior, value=0.0),)


def boxed(value: Operand, box: Box) -> SSAValue:
    """The elements of a box of a tensor."""
    steps = [1] * len(box.sizes)
    return SliceOp(value, starts=box.starts, sizes=box.sizes, steps=steps).result


@operation
class InsertOp(Movement):
    """`x` with the elements from `starts` on replaced by those of `piece`."""

    name = "graphcore.insert"
    x = operand_def(TensorType)
    piece = operand_def(TensorType)
    starts = prop_def(IntsAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, piece: Operand, *, starts: Sequence[int]) -> None:
        super().__init__([x, piece], {"starts": starts})

    def infer(self) -> tuple[Tensor, ...]:
        shape, piece = shape_of(self.x), shape_of(self.piece)
        element = self.common_element(ANY, self.x, self.piece)
        self.check_lengths(len(shape), starts=self.starts)
        ranges = zip(self.starts, piece, shape, strict=False)
        if len(piece) != len(shape) or any(
            start < 0 or start + size > dim for start, size, dim in ranges
        ):
            raise self.fail(
                f"cannot insert {shapes.text(piece)} at {list(self.starts)} "
                f"into {shapes.text(shape)}",
                "the piece must lie in the tensor",
            )
        return (tensor_type(element, shape),)

    def evaluate(self, x: Array, piece: Array) -> tuple[Array, ...]:
        result = np.array(x)
        ranges = zip(self.starts, piece.shape, strict=True)
        result[tuple(slice(start, start + size) for start, size in ranges)] = piece
        return (result,)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        sizes = shape_of(self.piece)
        zeros = BroadcastOp(scalar(0, dy), shape=sizes) if sizes else scalar(0, dy)
        return (
            InsertOp(dy, zeros, starts=self.starts.data),
            SliceOp(dy, starts=self.starts.data, sizes=sizes, steps=[1] * len(sizes)),
        )


def reverse(value: Operand, axes: Sequence[bool]) -> Operand:
    """`value` reversed along the marked axes."""
    sizes = shape_of(value)
    starts = [max(0, size - 1) if back else 0 for size, back in zip(sizes, axes, strict=True)]
    return SliceOp(value, starts=starts, sizes=sizes, steps=[-1 if back else 1 for back in axes])


@operation
class PadOp(Movement):
    """
    x with `low` copies of `value` before, `high` after and `interior` between its elements.

    ONNX Pad (constant).
    """

    name = "graphcore.pad"
    x = operand_def(TensorType)
    low = prop_def(IntsAttr)
    high = prop_def(IntsAttr)
    interior = prop_def(IntsAttr)
    value = prop_def(BaseAttr(FloatAttr) | BaseAttr(IntegerAttr))
    result = result_def(TensorType)

    def __init__(
        self,
        x: Operand,
        *,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int],
        value: float,
    ) -> None:
        kind = float if dtype_of(x).is_float else bool if dtype_of(x).name == "bool" else int
        properties = {"low": low, "high": high, "interior": interior, "value": kind(value)}
        super().__init__([x], properties)

    def infer(self) -> tuple[Tensor, ...]:
        shape = shape_of(self.x)
        self.check_lengths(len(shape), low=self.low, high=self.high, interior=self.interior)
        if min((*self.low, *self.high, *self.interior), default=0) < 0:
            raise self.fail("cannot add fewer than 0 elements", "slice to remove elements")
        if isinstance(self.value, FloatAttr) != dtype_of(self.x).is_float:
            raise self.fail(f"cannot fill {dtype_of(self.x).name} elements with {self.value}")
        rows = zip(shape, self.low, self.high, self.interior, strict=True)
        padded = [low + dim + max(0, dim - 1) * inner + high for dim, low, high, inner in rows]
        return (tensor_type(self.common_element(ANY, self.x), padded),)

    @property
    def fill(self) -> Array:
        """`value` as a scalar of the element type."""
        number: float = self.value.value.data
        dtype = dtype_of(self.x)
        return as_array(bool(number) if dtype.name == "bool" else number, dtype)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        result = np.full(shape_of(self.result), self.fill)
        rows = zip(x.shape, self.low, self.interior, strict=True)
        places = tuple(
            slice(low, low + max(0, dim * (inner + 1) - inner), inner + 1)
            for dim, low, inner in rows
        )
        result[places] = x
        return (result,)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        steps = [inner + 1 for inner in self.interior]
        return (SliceOp(dy, starts=self.low.data, sizes=shape_of(self.x), steps=steps),)
