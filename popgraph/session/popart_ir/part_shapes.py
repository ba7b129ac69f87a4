"""The shapes of an operator's results where it computes a part of its batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from popgraph.session.popart_ir.graph import Op, OpGraph, words
from popgraph.support.shapes import prod

_Shapes = Mapping[int, list[int]]
_Rule = Callable[[OpGraph, Op, int, _Shapes], list[int]]
"""Gives the shape of one result, of which it is told the index."""

_ELEMENTWISE = words(
    "Abs Asin Atan BitwiseNot Cast CastGrad Ceil Clip Cos Detach Dropout DropoutGrad Elu Erf Exp "
    "Expm1 Floor Gelu GeluErf HardSigmoid Identity IdentityGrad IncrementMod IsInf IsNaN LeakyRelu "
    "Log Log1p LogSoftmax NearbyInt Neg NegGrad Nop Not PrintTensor Reciprocal Relu Round Scale "
    "ScaleGrad Selu ShapedDropout Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt "
    "Square Swish Tanh ThresholdedRelu "
    "Add And Atan2 BitwiseAnd BitwiseOr BitwiseXnor BitwiseXor Div Equal Fmod Greater Less Mul Or "
    "PRelu Pow ScaledAdd Sub Max Mean Min Sum "
    "AsinGrad AtanGrad CosGrad EluGrad ErfGrad GeluErfGrad GeluGrad HardSigmoidGrad Log1pGrad "
    "LogGrad ReciprocalGrad ReluGrad SeluGrad ShrinkGrad SinGrad SinhGrad SoftPlusGrad "
    "SoftSignGrad SwishGrad TanhGrad ThresholdedReluGrad"
)
_REDUCTIONS = words(
    "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
    "ReduceMedian ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)
_LIKE_FIRST = words("L1Grad NllGrad GroupNormalization Slice Split IoTileCopy")
_LOSSES = words("IdentityLoss L1 Nll")
_RESHAPES = words("Flatten Reshape ReshapeGrad")


def can_part(op: Op) -> bool:
    """Whether an operator can compute the parts of its batch one after the other."""
    if op.type == "Softmax":
        return op.attributes.get("axis", 1) != 0
    return op.type in _RULES


def part_shape(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    """The shape of a result, where operands have those shapes; ValueError if they do not fit."""
    return _RULES[op.type](graph, op, index, shapes)


def _broadcast(_graph: OpGraph, _op: Op, _index: int, shapes: _Shapes) -> list[int]:
    return list(np.broadcast_shapes(*map(tuple, shapes.values())))


def _like_first(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    """Each axis shrinks as that of the first operand does."""
    pairs = zip(graph.shape(op.input(0)), shapes[0], strict=True)
    shares = [whole // max(1, part) for whole, part in pairs]
    shape = graph.shape(op.outputs[index])
    return [size // share for size, share in zip(shape, [*shares, *([1] * 8)], strict=False)]


def _whole(graph: OpGraph, op: Op, index: int, _shapes: _Shapes) -> list[int]:
    return graph.shape(op.outputs[index])


def _loss(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    if str(op.attributes.get("reduction", "Mean")) != "None":
        return []
    return list(shapes[1] if op.type.startswith("Nll") else shapes[0])


def _loss_and_gradient(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    return list(shapes[0]) if index else _loss(graph, op, index, shapes)


def _reduced(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    rank = len(shapes[0])
    default = [op.integers_or("axis", 0)] if op.type.startswith("Arg") else [*range(rank)]
    axes = {axis % rank for axis in op.integers("axes") or default}
    if op.integers_or("keepdims", 1):
        return [1 if axis in axes else size for axis, size in enumerate(shapes[0])]
    return [size for axis, size in enumerate(shapes[0]) if axis not in axes]


def _reshaped(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    """PopART looks for the batch on the first axis that is long enough to be cut."""
    share = prod(graph.shape(op.input(0))) // prod(shapes[0])
    shape = graph.shape(op.outputs[index])
    for axis, size in enumerate(shape):
        if size >= share:
            shape[axis] = size // share
            break
    return shape


def _turned(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    order = op.integers("perm") or [*range(len(shapes[0]))][::-1]
    return [shapes[0][axis] for axis in order]


def _product(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    left, right = list(shapes[0]), list(shapes[1])
    a, b = ([1, *left] if len(left) == 1 else left), ([*right, 1] if len(right) == 1 else right)
    if a[-1] != b[-2]:
        raise ValueError("contracting dimensions differ")
    rows = a[-2:-1] if len(left) > 1 else []
    columns = b[-1:] if len(right) > 1 else []
    return [*np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2])), *rows, *columns]


def _joined(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    axis = op.integers_or("axis", 0) % len(shapes[0])
    shape = list(shapes[0])
    shape[axis] = sum(one[axis] for one in shapes.values())
    return shape


def _gathered(graph: OpGraph, op: Op, index: int, shapes: _Shapes) -> list[int]:
    axis = op.integers_or("axis", 0) % len(shapes[0])
    return [*shapes[0][:axis], *shapes[1], *shapes[0][axis + 1 :]]


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _broadcast),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    **dict.fromkeys(_LIKE_FIRST, _like_first),
    **dict.fromkeys(_LOSSES, _loss),
    **dict.fromkeys(_RESHAPES, _reshaped),
    "NlllWithSoftmaxGradDirect": _loss_and_gradient,
    "IdentityLossGrad": _whole,
    "GatherGrad": _whole,
    "Transpose": _turned,
    "MatMul": _product,
    "Concat": _joined,
    "Gather": _gathered,
}
