"""What reductions, ArgMax, ArgMin and TopK ask of their axes."""

from __future__ import annotations

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import axes_of, in_range, one_element
from popgraph.operators.record import requires


@requires("ArgMax", "ArgMin")
def place(node: NodeView) -> Complaints:
    yield from in_range("axis", [node.integer("axis")], node.rank_of(0))
    shape, axis = node.shape_of(0), node.integer("axis")
    if shape and shape[axis] == 0:
        yield TypeConflict(f"axis {axis} is empty", "no element of it is the largest or least")


@requires("TopK")
def top_k(node: NodeView) -> Complaints:
    axis, shape = node.integer("axis", -1), node.shape_of(0)
    yield from in_range("axis", [axis], node.rank_of(0))
    if node.version > 1:
        yield from one_element(node, 1)
    count = node.integer("k") if node.version == 1 else next(iter(node.integers_of(1) or []), None)
    size = shape[axis] if shape else None
    if count is not None and (count < 0 or (isinstance(size, int) and count > size)):
        most = size if isinstance(size, int) else "the size of the axis"
        yield TypeConflict(f"`K` is {count}", f"it is at least 0 and at most {most}")


REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)


@requires(*REDUCTIONS)
def reduction(node: NodeView) -> Complaints:
    yield from axes_of(node, "axes", 1, node.rank_of(0))
