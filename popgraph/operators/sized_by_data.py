"""Nodes on tensors of data-dependent size, in training; `data_sizes` has the rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.dialects.onnx import OnnxOp
from popgraph.dialects.onnx.custom import OWN
from popgraph.dialects.onnx.record import record_of
from popgraph.operators.context import LoweringContext
from popgraph.operators.data_sizes import DataSizes, Extents, extents_of, number_of
from popgraph.operators.node import Node
from popgraph.operators.record import lowering_of
from popgraph.support.errors import UnsupportedError
from popgraph.support.shapes import Shape


def check_data_sizes(op: OnnxOp, inputs: Sequence[SSAValue | None], sizes: DataSizes) -> None:
    """Raises an error for a node on a tensor of data-dependent size, unless it supports that."""
    if not any(value is not None and sizes.of(value) for value in inputs):
        return
    is_mask_of_nothing = op.op_type == "Dropout" and len(op.output_names) > 1
    record = record_of(op.domain, op.op_type)
    if record is None or not record.follows_data_sizes or is_mask_of_nothing:
        raise UnsupportedError(
            f"an input of {op.op_type} has a data-dependent size, which has no gradient there",
            hint="in training, such tensors allow elementwise operators, matmuls and reductions; "
            "use a mask (Where, Mul) for others",
        )


def has_bounds(op: OnnxOp, context: LoweringContext) -> bool:
    """Whether training pads a node's results to a bound, as their sizes depend on data."""
    return context.training and op.domain == "" and lowering_of(OWN, op.op_type) is not None


def bounded(outputs: Sequence[SSAValue | None], sizes: DataSizes) -> list[SSAValue | None]:
    """The padded results of a node, whose second half of outputs are the shapes of the first."""
    count = len(outputs) // 2
    pairs = zip(outputs[:count], outputs[count:], strict=True)
    return [
        value if value is None or shape is None else sizes.bounded(value, extents_of(shape))
        for value, shape in pairs
    ]


def reshaped_by_data(node: Node, wanted: SSAValue) -> tuple[list[int], list[int]] | None:
    """The upper bound of a computed shape, and the axes whose sizes depend on counts."""
    sizes = node.lowering.data_sizes
    if not sizes or node.lowering.array(wanted) is not None:
        return None
    most, more = sizes.at_most(wanted), sizes.at_most(wanted, 1)
    if most is None or more is None:
        return None
    return most.tolist(), np.flatnonzero(most != more).tolist()


def shape_of_data(
    context: LoweringContext,
    shape: Shape,
    extents: Extents,
    start: int = 0,
    end: int | None = None,
) -> Operand:
    """A shape or a slice of it, computed from the data-dependent extents."""
    parts: list[Operand] = [
        gc.ReshapeOp(number_of(extents[axis]), shape=(1,))
        if axis in extents
        else context.literal(np.array([size], np.int64))
        for axis, size in enumerate(shape)
    ]
    return gc.ConcatOp(parts[start:end], axis=0)
