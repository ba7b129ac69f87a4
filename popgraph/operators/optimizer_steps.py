"""Optimizer steps as operators (ai.onnx.preview.training): Momentum, Adagrad, Adam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.complaints import of_shape, one_element
from popgraph.operators.movement import reshaped
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, chooses, lowers, requires
from popgraph.support.dtypes import BY_NAME

PREVIEW = "ai.onnx.preview.training"

F64 = BY_NAME["f64"]
"""The type of rates: in f32, 1 - 0.999 ** T would keep half of its digits."""


GROUPS = {"Momentum": 3, "Adagrad": 3, "Adam": 4}
"""The number of tensors per optimized one: value, gradient and state."""


@requires(*GROUPS, domain=PREVIEW)
def optimizer(node: NodeView) -> Conflicts:
    groups = GROUPS[node.op.op_type]
    for index in (0, 1):
        yield from one_element(node, index)
    count, rest = divmod(len(node) - 2, groups)
    if rest or not count:
        yield TypeConflict(
            f"the number of tensors is {len(node) - 2}, which is not a multiple of {groups}",
            "give all values first, then all gradients, then all states of each kind",
        )
    outputs = count * (groups - 1)
    if node.output_count > outputs:
        yield TypeConflict(
            f"the node has {node.output_count} outputs instead of {outputs}",
            "there is one output for each value and each of its states",
        )
    for index in range(2 + count, len(node)):
        if (shape := node.shape_of((index - 2) % count + 2)) is not None:
            yield from of_shape(node, index, *shape)


@dataclass(frozen=True)
class Tensor:
    """An optimized tensor: its value, its regularized gradient, and its optimizer state."""

    value: SSAValue
    gradient: SSAValue
    state: Sequence[SSAValue]

    def known(self, number: float) -> Operand:
        """A literal in the tensor's type."""
        return scalar(number, self.value)

    def moved(self, rate: SSAValue, step: Operand) -> Operand:
        """value - rate * step"""
        return gc.SubOp(self.value, gc.MulOp(cast(rate, dtype_of(self.value)), step))


def _tensors(node: Node) -> Iterator[Tensor]:
    groups = GROUPS[node.op.op_type]
    count = (len(node) - 2) // groups
    for at in range(count):
        value, given, *state = (node[2 + at + count * group] for group in range(groups))
        dtype = dtype_of(value)
        kept = gc.MulOp(value, scalar(node.real("norm_coefficient"), value))
        gradient = gc.AddOp(kept, cast(given, dtype)).result
        yield Tensor(value, gradient, [cast(one, dtype) for one in state])


def _outputs(node: Node, updated: Sequence[Sequence[Operand]]) -> Lowered:
    """New values and states, ordered by kind, each in the type of the input that it updates."""
    by_kind = [SSAValue.get(one) for kind in zip(*updated, strict=True) for one in kind]
    count = len(updated)
    replaced = [*range(2, 2 + count), *range(2 + 2 * count, len(node))]
    return [cast(one, dtype_of(node[at])) for one, at in zip(by_kind, replaced, strict=True)]


def _rate(node: Node) -> SSAValue:
    return SSAValue.get(reshaped(cast(node[0], F64), ()))


def _count(node: Node) -> SSAValue:
    """The number of steps so far."""
    return SSAValue.get(reshaped(node[1], ()))


def _is_later(count: SSAValue) -> Operand:
    """Whether this step is not the first."""
    return gc.CompareOp(count, scalar(0, count), predicate="gt")


chooses("Momentum", domain=PREVIEW, mode=("nesterov", "standard"))


@lowers("Momentum", domain=PREVIEW)
def momentum(node: Node) -> Lowered:
    """v' = alpha * v + beta * g, where beta is 1 in the first step; w' = w - rate * v'."""
    share = gc.WhereOp(
        _is_later(_count(node)), node.scalar(node.real("beta"), F64), node.scalar(1, F64)
    )
    rate, nesterov = _rate(node), node.text("mode") == "nesterov"
    updated = []
    for one in _tensors(node):
        decay, fresh = one.known(node.real("alpha")), cast(share, dtype_of(one.value))
        velocity = gc.AddOp(gc.MulOp(one.state[0], decay), gc.MulOp(one.gradient, fresh))
        ahead = gc.AddOp(one.gradient, gc.MulOp(velocity, decay)) if nesterov else velocity
        updated.append([one.moved(rate, ahead), velocity])
    return _outputs(node, updated)


@lowers("Adagrad", domain=PREVIEW)
def adagrad(node: Node) -> Lowered:
    steps = gc.MulOp(cast(_count(node), F64), node.scalar(node.real("decay_factor"), F64))
    rate = gc.DivOp(_rate(node), gc.AddOp(steps, node.scalar(1, F64))).result
    updated = []
    for one in _tensors(node):
        squares = gc.AddOp(one.state[0], gc.MulOp(one.gradient, one.gradient))
        step = gc.DivOp(one.gradient, _root(one, squares, node.real("epsilon", 1e-6)))
        updated.append([one.moved(rate, step), squares])
    return _outputs(node, updated)


@lowers("Adam", domain=PREVIEW)
def adam(node: Node) -> Lowered:
    first, second = node.real("alpha", 0.9), node.real("beta", 0.999)
    rate = _corrected(node, first, second)
    updated = []
    for one in _tensors(node):
        mean = _average(one, one.state[0], first, one.gradient)
        squares = _average(one, one.state[1], second, gc.MulOp(one.gradient, one.gradient))
        step = gc.DivOp(mean, _root(one, squares, node.real("epsilon", 1e-6)))
        kept = one.known(1 - node.real("norm_coefficient_post"))
        updated.append([gc.MulOp(one.moved(rate, step), kept), mean, squares])
    return _outputs(node, updated)


def _corrected(node: Node, first: float, second: float) -> SSAValue:
    """The bias-corrected rate, rate * sqrt(1 - beta^T) / (1 - alpha^T); uncorrected in step 0."""
    count, one = _count(node), node.scalar(1, F64)
    is_later = _is_later(count)
    steps = cast(gc.WhereOp(is_later, count, scalar(1, count)), F64)
    rests = [gc.SubOp(one, gc.PowOp(node.scalar(each, F64), steps)) for each in (first, second)]
    correction = gc.DivOp(gc.SqrtOp(rests[1]), rests[0])
    return gc.MulOp(_rate(node), gc.WhereOp(is_later, correction, one)).result


def _average(one: Tensor, old: SSAValue, decay: float, new: Operand) -> Operand:
    kept = gc.MulOp(old, one.known(decay))
    return gc.AddOp(kept, gc.MulOp(new, one.known(1 - decay)))


def _root(one: Tensor, squares: Operand, epsilon: float) -> Operand:
    """
    sqrt(squares) + epsilon.

    Where the sum is 0, sqrt has an infinite slope, but the dividend is 0 as well: the slope
    is set to 0.
    """
    is_zero = gc.CompareOp(squares, one.known(0), predicate="eq")
    root = gc.SqrtOp(gc.WhereOp(is_zero, one.known(1), squares))
    return gc.AddOp(gc.WhereOp(is_zero, one.known(0), root), one.known(epsilon))
