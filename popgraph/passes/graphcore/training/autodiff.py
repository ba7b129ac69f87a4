"""Reverse-mode automatic differentiation: adds the gradients of a loss to the graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint

from popgraph.dialects.graphcore import AddOp, Composite, GraphcoreOp, ReshapeOp
from popgraph.dialects.graphcore.base import dtype_of, is_float, shape_of, tensor_of
from popgraph.dialects.program import ConstantOp, GraphOp, VariableOp, WeightStore
from popgraph.passes.analysis.graph import expanded, only_graph, origin, set_outputs
from popgraph.passes.analysis.replace import erase_dead, made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.optimizer_spec import OptimizerSpec, loss_scale_variable
from popgraph.passes.options import Options
from popgraph.support.errors import DifferentiationError, PassError
from popgraph.support.shapes import prod, text

PREFIX = "Gradient___"
"""An output of this name and a tensor's is the gradient of the loss with respect to it."""


@dataclass(frozen=True)
class Autodiff(Pass):
    """
    Adds the gradients of a loss: an output `Gradient___w` for every variable w that it has one.

    `loss` is an output of one element. `wrt`: only these variables. `gradients`: inputs, outputs
    or variables whose gradient must be there. The gradient of the loss itself is `loss_scale`,
    or, with `stream_loss_scale`, the variable `lossScaling_<type>` that starts with it.
    """

    name = "autodiff"

    loss: str
    wrt: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    loss_scale: float = 1.0
    stream_loss_scale: bool = False

    @classmethod
    def of(cls, options: Options) -> Autodiff | None:
        if options.training is None:
            return None
        training = options.training
        return cls.towards(training.loss, training.optimizer, training.gradients)

    @staticmethod
    def towards(loss: str, optimizer: OptimizerSpec, gradients: tuple[str, ...] = ()) -> Autodiff:
        """The pass for what an optimizer wants: it is the optimizer that scales the loss."""
        scale = optimizer.loss_scaling
        return Autodiff(
            loss,
            gradients=gradients,
            loss_scale=scale.value,
            stream_loss_scale=not scale.constant,
        )

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        graph = only_graph(module)
        self._expand(graph)
        loss, targets = self._loss(graph), self._targets(graph)
        backwards = ReverseMode(_dependent(graph, targets.values()))
        with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
            backwards.add(loss, self._seed(loss, compilation.weights))
            backwards.walk(graph, _needed(loss))
        outputs = dict(graph.outputs)
        for name, value in targets.items():
            gradient = backwards.gradients.get(value)
            if gradient is not None:
                outputs[PREFIX + name] = gradient
            elif name in self.gradients:
                raise DifferentiationError(
                    f"{self.loss!r} has no gradient with respect to {name!r}",
                    hint="no differentiable path leads from one to the other",
                )
        set_outputs(graph, outputs)
        backwards.erase_unused()

    def _expand(self, graph: GraphOp) -> None:
        """Composites on the way that have no gradient of their own give way to what they are."""
        while True:
            needed = _needed(self._loss(graph))
            dependent = _dependent(graph, self._targets(graph).values())
            blocking = [
                op
                for op in graph.block.ops
                if op in needed
                and isinstance(op, Composite)
                and not op.is_differentiable()
                and any(result in dependent for result in op.results)
            ]
            if not blocking:
                return
            for op in blocking:
                expanded(op)

    def _loss(self, graph: GraphOp) -> SSAValue:
        if self.loss not in graph.outputs:
            raise PassError(
                f"the graph has no output {self.loss!r} to be the loss",
                self.name,
                f"its outputs are {', '.join(map(repr, graph.outputs)) or 'none'}",
            )
        loss = graph.outputs[self.loss]
        if prod(shape_of(loss)) != 1 or not is_float(loss):
            raise DifferentiationError(
                f"the loss {self.loss!r} must be one float, "
                f"not {dtype_of(loss).name} of shape {text(shape_of(loss))}",
                hint="reduce it to its sum or its mean",
            )
        return loss

    def _targets(self, graph: GraphOp) -> dict[str, SSAValue]:
        """The values of which gradients are wanted, by name."""
        variables = {op.variable.text: op.result for op in graph.variables()}
        known = {**graph.inputs, **graph.outputs, **variables}
        wrt = self.wrt or tuple(name for name, value in variables.items() if is_float(value))
        for name in (*wrt, *self.gradients):
            if name not in known:
                raise PassError(
                    f"the graph has no tensor {name!r} to differentiate by",
                    self.name,
                    "an inner tensor must be made an output first",
                )
        return {name: known[name] for name in (*wrt, *self.gradients)}

    def _seed(self, loss: SSAValue, weights: WeightStore) -> SSAValue:
        """The gradient of the loss."""
        dtype, shape = dtype_of(loss), shape_of(loss)
        if not self.stream_loss_scale:
            return ConstantOp(
                weights.attribute(np.full(shape, self.loss_scale, dtype.numpy))
            ).result
        first = weights.attribute(np.array(self.loss_scale, dtype.numpy))
        scale = VariableOp(loss_scale_variable(dtype), first).result
        return ReshapeOp(scale, shape=shape).result if shape else scale


@dataclass
class ReverseMode:
    """The gradients so far, and what was made to compute them."""

    dependent: set[SSAValue]
    """The values that depend on something whose gradient is wanted."""
    gradients: dict[SSAValue, SSAValue] = field(default_factory=dict)
    made: list[Operation] = field(default_factory=list)

    def walk(self, graph: GraphOp, needed: set[Operation]) -> None:
        """Through all operations that the loss needs, last first."""
        for op in reversed(list(graph.block.ops)):
            if op in needed and any(result in self.dependent for result in op.results):
                self._operation(graph, op)

    def _operation(self, graph: GraphOp, op: Operation) -> None:
        arriving = [self.gradients.get(result) for result in op.results]
        if not isinstance(op, GraphcoreOp) or all(one is None for one in arriving):
            return
        if not op.is_differentiable():
            raise DifferentiationError(
                f"{op.title} has no gradient, but the loss depends on a weight through it",
                origin(op),
                "detach what goes into it, or do without it in training",
            )
        with made_for(op, InsertPoint.before(graph.return_op)) as made:
            leaving = op.gradient(*arriving)
            for operand, gradient in zip(op.operands, leaving, strict=True):
                if gradient is not None and operand in self.dependent:
                    self.add(operand, SSAValue.get(gradient))
        self.made += made

    def add(self, value: SSAValue, gradient: SSAValue) -> None:
        """One more way by which the loss depends on `value`."""
        wanted, given = tensor_of(value), tensor_of(gradient)
        assert wanted == given, f"the gradient of {wanted} cannot be {given}"
        known = self.gradients.get(value)
        self.gradients[value] = gradient if known is None else AddOp(known, gradient).result

    def erase_unused(self) -> None:
        """Gradients that nobody wanted, such as those of the first layer's input."""
        erase_dead(self.made)


def _dependent(graph: GraphOp, targets: Iterable[SSAValue]) -> set[SSAValue]:
    """The float values that depend on a target; gradients flow through floats only."""
    found = {value for value in targets if is_float(value)}
    for op in graph.block.ops:
        if any(operand in found for operand in op.operands):
            found.update(result for result in op.results if is_float(result))
    return found


def _needed(loss: SSAValue) -> set[Operation]:
    """All operations that the loss depends on."""
    found: set[Operation] = set()
    waiting: list[SSAValue] = [loss]
    while waiting:
        owner = waiting.pop().owner
        if isinstance(owner, Operation) and owner not in found:
            found.add(owner)
            waiting.extend(owner.operands)
    return found


def requested(names: Sequence[str]) -> set[str]:
    """The output names of requested gradients."""
    return {PREFIX + name for name in names}
