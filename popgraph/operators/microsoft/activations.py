"""Activations of onnxruntime, those that are told by their name among them."""

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
    """The activation that the node names, with its numbers."""
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
            return value.HardSwish()  # Of other numbers onnxruntime takes no notice.
        case "Clip":
            return value.Clip(value.number(alpha), value.number(beta))
        case "Selu":
            return value.Selu(alpha=alpha, gamma=gamma)
        case "ScaledTanh":
            return value.scaled(beta).Tanh().scaled(alpha)
        case "ParametricSoftplus":
            return value.scaled(beta).Softplus().scaled(alpha)
        case _:
            raise call.refuse(f"the activation {name!r}", "use an activation of its own node")
