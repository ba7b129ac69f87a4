"""The order of elements: positions of the largest, of the smallest, and of true ones."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i64
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.base import (
    BOOLS,
    ORDERED,
    Array,
    Operand,
    Reduction,
    Tensor,
    flag,
    integer,
    is_float,
    operation,
    shape_of,
)


@operation
class ArgTopKOp(Reduction):
    """
    The positions of the `count` largest (or smallest) along `axis`, in order. ONNX TopK.

    Of equals the lower position comes first. A NaN is larger than every number.
    """

    name = "graphcore.arg_top_k"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    count = prop_def(IntegerAttr)
    largest = prop_def(BoolAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, axis: int, count: int, largest: bool = True) -> None:
        super().__init__([x], {"axis": axis, "count": count, "largest": bool(largest)})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(ORDERED, self.x)
        shape, axis, count = shape_of(self.x), integer(self.axis), integer(self.count)
        self.check_axes([axis], len(shape))
        if not 0 <= count <= shape[axis]:
            raise self.fail(
                f"cannot choose {count} of the {shape[axis]} elements along axis {axis}",
                f"the number of elements is between 0 and {shape[axis]}",
            )
        return (TensorType(i64, (*shape[:axis], count, *shape[axis + 1 :])),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        axis = integer(self.axis)
        keys = x.astype(np.float64) if is_float(self.x) else x
        if flag(self.largest):
            # Backwards, so that of equals the lower positions come first when it is turned round.
            backwards = np.argsort(np.flip(keys, axis), axis, kind="stable")
            order = x.shape[axis] - 1 - np.flip(backwards, axis)
        else:
            order = np.argsort(keys, axis, kind="stable")
        return (np.take(order, range(integer(self.count)), axis).astype(np.int64),)


@operation
class PositionsOp(Reduction):
    """
    The positions of the true elements of a list in ascending order, followed by zeros.

    The result is as long as the list, its bound; `reduce_sum` counts the true elements.
    """

    name = "graphcore.positions"
    mask = operand_def(TensorType)
    result = result_def(TensorType)

    def __init__(self, mask: Operand) -> None:
        super().__init__([mask], {})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(BOOLS, self.mask)
        shape = shape_of(self.mask)
        if len(shape) != 1:
            raise self.fail(f"takes a list, not a tensor of {len(shape)} axes", "reshape it")
        return (TensorType(i64, shape),)

    def evaluate(self, mask: Array) -> tuple[Array, ...]:
        found = np.zeros(mask.shape, np.int64)
        positions = np.flatnonzero(mask)
        found[: len(positions)] = positions
        return (found,)
