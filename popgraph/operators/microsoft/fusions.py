"""onnxruntime's activations, and matmuls and convolutions with fused bias and activation."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.operators.microsoft.body import Value, total
from popgraph.operators.microsoft.call import Call, defines


@defines("Gelu", "X")
def gelu(call: Call) -> Value:
    return call["X"].Gelu()


@defines("BiasGelu", "A B")
def bias_gelu(call: Call) -> Value:
    return (call["A"] + call["B"]).Gelu()


@defines("FastGelu", "X bias")
def fast_gelu(call: Call) -> Value:
    return total(call["X"], call.get("bias")).Gelu(approximate="tanh")


@defines("QuickGelu", "X")
def quick_gelu(call: Call) -> Value:
    x = call["X"]
    return x * x.scaled(call.real("alpha", 1.702)).Sigmoid()


@defines("BiasSoftmax", "data bias", ignored="is_inner_broadcast")
def bias_softmax(call: Call) -> Value:
    axis = call.integer("axis", 1) % call.rank("data")
    scores = call["data"] + call["bias"]
    return scores.reshaped(*[0] * axis, -1).Softmax(axis=-1).Reshape(scores.Shape())


@defines("BiasDropout", "data bias residual ratio training_mode")
def bias_dropout(call: Call) -> Sequence[Value]:
    kept, mask = (call["data"] + call["bias"]).several(
        "Dropout", 2, call.get("ratio"), call.get("training_mode"), **call.copied("seed")
    )
    return total(kept, call.get("residual")), mask


_PLAIN = ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign")
_BY_ALPHA = ("LeakyRelu", "Elu", "ThresholdedRelu", "Celu")


def activated(call: Call, value: Value, given: Sequence[float]) -> Value:
    """The activation that the node names, with its parameters."""
    name = call.text("activation")
    alpha, beta, gamma = (float(one) for one in (*given, 0.0, 0.0, 0.0)[:3])
    if name in _PLAIN:
        return value.applied(name)
    if name in _BY_ALPHA:
        return value.applied(name, alpha=alpha)
    match name:
        case "":
            return value
        case "HardSigmoid":
            return value.HardSigmoid(alpha=alpha, beta=beta)
        case "HardSwish":
            return value.HardSwish()  # onnxruntime ignores the parameters, too.
        case "Clip":
            return value.Clip(value.number(alpha), value.number(beta))
        case "Selu":
            return value.Selu(alpha=alpha, gamma=gamma)
        case "ScaledTanh":
            return value.scaled(beta).Tanh().scaled(alpha)
        case "ParametricSoftplus":
            return value.scaled(beta).Softplus().scaled(alpha)
        case _:
            raise call.refuse(f"the activation {name!r}", "use a separate node for the activation")


WINDOW = "auto_pad dilations group kernel_shape pads strides"
"""The attributes of a convolution."""


def _transposed(call: Call, name: str) -> Value:
    """An operand of a matmul, transposed by `trans*` (last axes) and `transBatch*` (first axis)."""
    value = call[name]
    by_rows, by_batch = call.integer(f"trans{name}"), call.integer(f"transBatch{name}")
    if not (by_rows or by_batch) or call.rank(name) < 2:
        return value
    order = list(range(call.rank(name)))
    if by_batch:
        order = [*order[1:-1], 0, order[-1]]
    if by_rows:
        order[-2:] = order[:-3:-1]
    return value.permuted(*order)


@defines("FusedMatMul TransposeMatMul", "A B")
def fused_matmul(call: Call) -> Value:
    return (_transposed(call, "A") @ _transposed(call, "B")).scaled(call.real("alpha", 1.0))


@defines("FusedGemm", "A B C")
def fused_gemm(call: Call) -> Value:
    given = call.copied("alpha beta transA transB")
    numbers = [call.real(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return activated(call, call["A"].Gemm(call["B"], call.get("C"), **given), numbers)


@defines("FusedConv", "X W B Z")
def fused_conv(call: Call) -> Value:
    made = call["X"].Conv(call["W"], call.get("B"), **call.copied(WINDOW))
    return activated(call, total(made, call.get("Z")), call.reals("activation_params"))


@defines("NhwcConv NhwcFusedConv", "X W B Z")
def nhwc_conv(call: Call) -> Value:
    """FusedConv with channels as the last axis of images and results; filters as in Conv."""
    rank, filters = call.rank("X"), call["W"]
    images = channels_first(call["X"], rank)
    made = images.Conv(filters, call.get("B"), **call.copied(WINDOW))
    added = total(channels_last(made, rank), call.get("Z"))
    return activated(call, added, call.reals("activation_params"))


def channels_first(images: Value, rank: int) -> Value:
    return images.permuted(0, rank - 1, *range(1, rank - 1))


def channels_last(images: Value, rank: int) -> Value:
    return images.permuted(0, *range(2, rank), 1)
