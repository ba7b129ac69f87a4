"""The activations of recurrent layers: functions of gates, by ONNX's names for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of
from popgraph.operators.node import Node
from popgraph.support.errors import TypeMismatchError

Activation: TypeAlias = Callable[[Operand], SSAValue]


class Gate(NamedTuple):
    """What a function of a gate is applied to, and where its literals are from."""

    node: Node
    x: Operand

    def number(self, value: float) -> SSAValue:
        return self.node.scalar(value, dtype_of(self.x))

    def scaled(self, factor: float, value: Operand | None = None) -> Operand:
        value = self.x if value is None else value
        return value if factor == 1 else gc.MulOp(value, self.number(factor))

    def affine(self, alpha: float, beta: float) -> Operand:
        scaled = self.scaled(alpha)
        return scaled if beta == 0 else gc.AddOp(scaled, self.number(beta))

    def at_least(self, bound: float) -> SSAValue:
        return gc.CompareOp(self.x, self.number(bound), predicate="ge").result


def _relu(gate: Gate) -> Operand:
    return gc.ReluOp(gate.x)


def _tanh(gate: Gate) -> Operand:
    return gc.TanhOp(gate.x)


def _sigmoid(gate: Gate) -> Operand:
    return gc.SigmoidOp(gate.x)


def _affine(gate: Gate, alpha: float, beta: float) -> Operand:
    return gate.affine(alpha, beta)


def _leaky_relu(gate: Gate, alpha: float) -> Operand:
    return gc.LeakyReluOp(gate.x, alpha=alpha)


def _thresholded_relu(gate: Gate, alpha: float) -> Operand:
    return gc.WhereOp(gate.at_least(alpha), gate.x, gate.number(0.0))


def _scaled_tanh(gate: Gate, alpha: float, beta: float) -> Operand:
    return gate.scaled(alpha, gc.TanhOp(gate.scaled(beta)))


def _hard_sigmoid(gate: Gate, alpha: float, beta: float) -> Operand:
    raised = gc.MaxOp(gate.affine(alpha, beta), gate.number(0.0))
    return gc.MinOp(raised, gate.number(1.0))


def _elu(gate: Gate, alpha: float) -> Operand:
    """Chosen twice, so that the exponential cannot overflow, nor its gradient."""
    above = gate.at_least(0.0)
    below = gc.Expm1Op(gc.WhereOp(above, gate.number(0.0), gate.x))
    return gc.WhereOp(above, gate.x, gate.scaled(alpha, below))


def _softsign(gate: Gate) -> Operand:
    return gc.DivOp(gate.x, gc.AddOp(gc.AbsOp(gate.x), gate.number(1.0)))


def _softplus(gate: Gate) -> Operand:
    """log(1 + e^x), whose exponential cannot overflow."""
    tail = gc.Log1pOp(gc.ExpOp(gc.NegOp(gc.AbsOp(gate.x))))
    return gc.AddOp(gc.MaxOp(gate.x, gate.number(0.0)), tail)


class _Function(NamedTuple):
    """A function, and what its alpha and beta are unless a node says so; None: it must."""

    of: Callable[..., Operand]
    defaults: tuple[float | None, ...] = ()


FUNCTIONS: dict[str, _Function] = {
    "Relu": _Function(_relu),
    "Tanh": _Function(_tanh),
    "Sigmoid": _Function(_sigmoid),
    "Affine": _Function(_affine, (1.0, 0.0)),
    "LeakyRelu": _Function(_leaky_relu, (0.01,)),
    "ThresholdedRelu": _Function(_thresholded_relu, (1.0,)),
    "ScaledTanh": _Function(_scaled_tanh, (None, None)),
    "HardSigmoid": _Function(_hard_sigmoid, (0.2, 0.5)),
    "Elu": _Function(_elu, (1.0,)),
    "Softsign": _Function(_softsign),
    "Softplus": _Function(_softplus),
}
"""The activations, with the defaults of the operators of the same names."""

_BY_LOWER = {name.lower(): function for name, function in FUNCTIONS.items()}
"""Exporters differ in how they write capitals."""


def activations(node: Node, names: Sequence[str]) -> list[Activation]:
    """The functions of these names, which take their parameters from the node's lists in turn."""
    given = [iter(node.reals(name)) for name in ("activation_alpha", "activation_beta")]
    return [_activation(node, name, given) for name in names]


def _activation(node: Node, name: str, given: Sequence[Iterator[float]]) -> Activation:
    function = _BY_LOWER.get(name.lower())
    if function is None:
        raise TypeMismatchError(
            f"{name!r} is no activation of {node.op.op_type}", hint=f"one of {', '.join(FUNCTIONS)}"
        )
    taken = [next(one, default) for one, default in zip(given, function.defaults, strict=False)]
    if None in taken:
        raise TypeMismatchError(
            f"the activation {name} has no default parameters",
            hint="give activation_alpha and activation_beta",
        )
    parameters = [float(np.float32(number)) for number in taken if number is not None]
    return lambda x: SSAValue.get(function.of(Gate(node, x), *parameters))
