"""Patterns that write gradients, which PopART does not compute themselves, as other operators."""

from __future__ import annotations

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.session.popart_ir.expression import Expression, added, build, finish, of
from popgraph.session.popart_ir.graph import Op, OpGraph, words

_SQUARES = of("Add", of("Square", 2), of("Square", 1))
_NEARLY = of("Sub", 2, 1.0)

_POW_BASE = of(
    "Where",
    of("Equal", 2, 0.0, elements="BOOL"),
    0.0,
    of("Mul", 0, of("Mul", 2, of("Pow", 1, _NEARLY))),
)
_POW_EXPONENT = of(
    "Mul",
    0,
    of(
        "Where",
        of(
            "And",
            of("Equal", 1, 0.0, elements="BOOL"),
            of(
                "Not",
                of(
                    "Or",
                    of("Less", 2, 0.0, elements="BOOL"),
                    of("IsNaN", 2, elements="BOOL"),
                ),
            ),
        ),
        0.0,
        of("Mul", 3, of("Log", 1)),
    ),
)

EXPRESSIONS: dict[str, dict[str, Expression]] = {
    "AbsGradOp": {"AbsGrad": of("Mul", of("Sign", 1), 0)},
    "SinGradOp": {"SinGrad": of("Mul", of("Cos", 1), 0)},
    "CosGradOp": {"CosGrad": of("Neg", of("Mul", 0, of("Sin", 1)))},
    "CoshOp": {"Cosh": of("Scale", of("Add", of("Exp", 0), of("Exp", of("Neg", 0))), scale=0.5)},
    "LogGradOp": {"LogGrad": of("Div", 0, 1)},
    "Log1pGradOp": {"Log1pGrad": of("Div", 0, of("Add", 1, 1.0))},
    "ExpGradOp": {"ExpGrad": of("Mul", 0, 1)},
    "Expm1GradOp": {"Expm1Grad": of("Mul", 0, of("Add", 1, 1.0))},
    "SqrtGradOp": {"SqrtGrad": of("Div", 0, of("Scale", 1, scale=2.0))},
    "ReciprocalGradOp": {
        "ReciprocalGrad": of("Mul", of("Neg", of("Reciprocal", of("Square", 1))), 0)
    },
    "MulArgGradOp": {"MulArg0Grad": of("Mul", 0, 2), "MulArg1Grad": of("Mul", 0, 1)},
    "SubtractArg1GradOp": {"SubArg1Grad": of("Neg", 0)},
    "DivArg0GradOp": {"DivArg0Grad": of("Div", 0, 2)},
    "DivArg1GradOp": {"DivArg1Grad": of("Neg", of("Div", of("Mul", 0, 1), of("Square", 2)))},
    "PowArg0GradOp": {"PowArg0Grad": _POW_BASE},
    "PowArg1GradOp": {"PowArg1Grad": _POW_EXPONENT},
    "Atan2Arg0GradOp": {"Atan2Arg0Grad": of("Mul", 0, of("Div", 2, _SQUARES))},
    "Atan2Arg1GradOp": {"Atan2Arg1Grad": of("Mul", 0, of("Neg", of("Div", 1, _SQUARES)))},
    "FmodArg0GradOp": {"FmodArg0Grad": of("Mul", 0, of("Cast", 1.0))},
    "ConvFlipWeightsGradOp": {"ConvFlipWeightsGrad": of("ConvFlipWeights", 0)},
}
"""By pattern, what each gradient becomes; 0 is the gradient that comes in."""

REDUCED = words(
    """
    MulArg0Grad MulArg1Grad SubArg1Grad DivArg0Grad DivArg1Grad PowArg0Grad PowArg1Grad
    Atan2Arg0Grad Atan2Arg1Grad FmodArg0Grad
    """
)
"""Gradients of operands that may have been broadcast."""


def replace_and_reduce(graph: OpGraph, op: Op, expression: Expression) -> None:
    """Puts a ReduceSum over what was broadcast, and a Reshape, behind an expression."""
    wanted = graph.infos[op.output]
    whole = build(graph, op, expression)
    shape = graph.shape(whole)
    padded = [1] * (len(shape) - wanted.rank()) + wanted.shape()
    axes = [
        axis
        for axis, (have, want) in enumerate(zip(shape, padded, strict=True))
        if have != want or axis < len(shape) - wanted.rank()
    ]
    left = [dim for axis, dim in enumerate(shape) if axis not in axes]
    attributes: dict[str, object] = {"axes": axes, "keepdims": 0}
    info = TensorInfo(wanted.data_type(), left)
    reduced = added(graph, op, "ReduceSum", [whole], info, attributes)
    finish(graph, op, added(graph, op, "Reshape", [reduced], wanted))


def convolution(graph: OpGraph, op: Op) -> bool:
    """ConvDataGrad(w, g) -> Conv(g, ConvFlipWeights(w))."""
    if op.type != "ConvDataGrad":
        return False
    _flipped(graph, op, op.input(1), op.input(0))
    return True


def transposed_convolution(graph: OpGraph, op: Op) -> bool:
    """ConvTranspose(x, w) -> Conv(x, ConvFlipWeights(w))."""
    if op.type != "ConvTranspose":
        return False
    _flipped(graph, op, op.input(0), op.input(1))
    return True


def _flipped(graph: OpGraph, op: Op, data: str, weights: str) -> None:
    info = graph.infos[weights]
    shape = [info.shape()[1], info.shape()[0], *info.shape()[2:]]
    flipped = TensorInfo(info.data_type(), shape)
    filters = added(graph, op, "ConvFlipWeights", [weights], flipped)
    output = graph.infos[op.output]
    finish(graph, op, added(graph, op, "Conv", [data, filters], output, op.attributes))


def two_flips(graph: OpGraph, op: Op) -> bool:
    """ConvFlipWeights(ConvFlipWeights(w)) -> w."""
    before = graph.producer(op.input(0)) if op.type == "ConvFlipWeights" else None
    if before is None or before.type != "ConvFlipWeights" or graph.is_protected(op.output):
        return False
    graph.replace_uses(op.output, before.input(0))
    graph.remove(op)
    if not graph.consumers(before.output) and not graph.is_protected(before.output):
        graph.remove(before)
    return True
