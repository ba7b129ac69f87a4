"""Nodes on tensors whose sizes data decide, in training; `data_sizes` has the rules."""

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


def check_followed(op: OnnxOp, inputs: Sequence[SSAValue | None], sizes: DataSizes) -> None:
    """An error for a node on a tensor whose size data decide, unless that is computed with."""
    if not any(value is not None and sizes.of(value) for value in inputs):
        return
    is_mask_of_nothing = op.op_type == "Dropout" and len(op.output_names) > 1
    record = record_of(op.domain, op.op_type)
    if record is None or not record.follows_data_sizes or is_mask_of_nothing:
        raise UnsupportedError(
            f"data decide the size of an input of {op.op_type}, and no gradient of that is known",
            hint="in training, elements that data select can be computed with one by one, "
            "multiplied by matrices and added up; use a mask (Where, Mul) where more is computed",
        )


def has_bounds(op: OnnxOp, context: LoweringContext) -> bool:
    """Whether a step computes a node up to a bound: data decide how large its results are."""
    return context.training and op.domain == "" and lowering_of(OWN, op.op_type) is not None


def bounded(outputs: Sequence[SSAValue | None], sizes: DataSizes) -> list[SSAValue | None]:
    """The results of such a node; the second half of its outputs are their shapes."""
    count = len(outputs) // 2
    pairs = zip(outputs[:count], outputs[count:], strict=True)
    return [
        value if value is None or shape is None else sizes.bounded(value, extents_of(shape))
        for value, shape in pairs
    ]


def reshaped_by_data(node: Node, wanted: SSAValue) -> tuple[list[int], list[int]] | None:
    """The largest that a computed shape can be, and the axes whose sizes depend on counts."""
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
    """A shape, or a part of it, with the sizes that data decide."""
    parts: list[Operand] = [
        gc.ReshapeOp(number_of(extents[axis]), shape=(1,))
        if axis in extents
        else context.literal(np.array([size], np.int64))
        for axis, size in enumerate(shape)
    ]
    return gc.ConcatOp(parts[start:end], axis=0)
