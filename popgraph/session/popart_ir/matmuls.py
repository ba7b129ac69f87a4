"""Patterns of matrix products: three axes, and gradients as products."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.expression import added, finish, reshaped
from popgraph.session.popart_ir.graph import Op, OpGraph
from popgraph.session.popart_ir.moves import transposed
from popgraph.session.popart_ir.schedule import EARLY

PHASE = "popgraph.product"
"""An attribute that no serializer writes: which product of training an operator is."""

NO_PASS = "popgraph.no_pass"
"""Another one: the product is not planned together with its gradients."""

FORWARD, LEFT, RIGHT = "forward", "left", "right"


def product(graph: OpGraph, op: Op) -> bool:
    """MatMul(a, b) -> Reshape(MatMul(Reshape(a), Reshape(b))). Only when one has no 3 axes."""
    if op.type != "MatMul" or all(len(graph.shape(id)) >= 3 for id in op.inputs.values()):
        return False
    left, right = _opened(graph, op.input(0), op.input(1))
    if len(left) == len(right) == 3 and right[0] == 1:
        left = [1, left[0] * left[1], left[2]]
    output = graph.infos[op.output]
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    inner = TensorInfo(output.data_type(), [*batch, left[-2], right[-1]])
    inputs = [reshaped(graph, op, op.input(0), left), reshaped(graph, op, op.input(1), right)]
    made = added(graph, op, "MatMul", inputs, inner, {**op.attributes, PHASE: FORWARD})
    result = reshaped(graph, op, made, output.shape())
    for id in inputs:
        graph.tie(id, made, result)
    finish(graph, op, result)
    return True


def _opened(graph: OpGraph, left: str, right: str) -> tuple[list[int], list[int]]:
    """The shapes of the operands with at least three axes, both with as many."""
    a, b = graph.shape(left), graph.shape(right)
    a, b = a if len(a) > 1 else [1, *a], b if len(b) > 1 else [*b, 1]
    rank = max(3, len(a), len(b))
    return [1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b


def left_gradient(graph: OpGraph, op: Op) -> bool:
    """MatMulLhsGrad(g, b) -> MatMul(g, Transpose(b)), summed over what was broadcast."""
    if op.type != "MatMulLhsGrad":
        return False
    gradient, other = _flat(graph, op, other_is_left=False)
    turned = _turned(graph, op, other)
    _multiplied(graph, op, [gradient, turned], (gradient, other, turned), LEFT)
    return True


def right_gradient(graph: OpGraph, op: Op) -> bool:
    """MatMulRhsGrad(g, a) -> MatMul(Transpose(a), g), summed over what was broadcast."""
    if op.type != "MatMulRhsGrad":
        return False
    gradient, other = _flat(graph, op, other_is_left=True)
    turned = _turned(graph, op, other)
    _multiplied(graph, op, [turned, gradient], (gradient, other, turned), RIGHT)
    return True


def _flat(graph: OpGraph, op: Op, *, other_is_left: bool) -> tuple[str, str]:
    """Both operands of a gradient with three axes or more, as the product has them."""
    result, other = graph.shape(op.output), graph.shape(op.input(1))
    mine = _at_least_two(result, left=not other_is_left)
    theirs = _at_least_two(other, left=other_is_left)
    rank = max(3, len(mine), len(theirs))
    mine, theirs = _padded(mine, rank), _padded(theirs, rank)
    left, right = (theirs, mine) if other_is_left else (mine, theirs)
    batch = list(np.broadcast_shapes(left[:-2], right[:-2]))
    gradient = reshaped(graph, op, op.input(0), [*batch, left[-2], right[-1]])
    operand = reshaped(graph, op, op.input(1), theirs)
    first, then = graph.producer(gradient), graph.producer(operand)
    assert first is not None and then is not None, "both were just made"
    then.attributes[EARLY] = True
    graph.run_itself_after(then, first)
    return gradient, operand


def _turned(graph: OpGraph, op: Op, id: str) -> str:
    turned = transposed(graph, op, id)
    made = graph.producer(turned)
    assert made is not None, "it was just made"
    made.attributes[EARLY] = True
    return turned


def _at_least_two(shape: list[int], *, left: bool) -> list[int]:
    if len(shape) > 1:
        return shape
    return [1, *shape] if left else [*shape, 1]


def _padded(shape: list[int], rank: int) -> list[int]:
    return [1] * (rank - len(shape)) + shape


def _multiplied(graph: OpGraph, op: Op, inputs: list[str], tied: Iterable[str], phase: str) -> None:
    wanted = graph.infos[op.output]
    a, b = (graph.shape(id) for id in inputs)
    shape = [*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]]
    info = TensorInfo(wanted.data_type(), shape)
    result = added(graph, op, "MatMul", inputs, info, {**op.attributes, PHASE: phase})
    for id in tied:
        graph.tie(id, result)
    product = result
    if shape != wanted.shape():
        result = _reduced(graph, op, result, wanted)
        graph.tie(product, result)
    finish(graph, op, result)


def _reduced(graph: OpGraph, op: Op, id: str, wanted: TensorInfo) -> str:
    """The sum over the axes along which an operand was broadcast, in the operand's shape."""
    shape = graph.shape(id)
    leading = next((axis for axis, dim in enumerate(shape) if dim != 1), len(shape))
    if len(shape) - leading != wanted.rank():
        leading = min(leading, max(0, len(shape) - wanted.rank()))
    if shape[leading:] == wanted.shape():
        return reshaped(graph, op, id, wanted.shape())
    padded = _padded(wanted.shape(), len(shape))
    axes = [axis for axis, dim in enumerate(shape) if dim != padded[axis]]
    if not axes or wanted.nelms() == graph.infos[id].nelms():
        return reshaped(graph, op, id, wanted.shape())
    left = [dim for axis, dim in enumerate(shape) if axis not in axes]
    attributes: dict[str, object] = {"axes": axes, "keepdims": 0}
    info = TensorInfo(wanted.data_type(), left)
    summed = added(graph, op, "ReduceSum", [id], info, attributes)
    return reshaped(graph, op, summed, wanted.shape())
