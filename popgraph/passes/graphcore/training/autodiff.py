"""Reverse-mode automatic differentiation: adds the gradients of a loss to a graph or block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue, Use
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import element_types
from popgraph.dialects.graphcore import BroadcastOp, CastOp, CondOp, LoopOp, MulOp, ReshapeOp
from popgraph.dialects.graphcore.base import dtype_of, is_float, is_number, shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.graphcore.control import yield_of
from popgraph.dialects.graphcore.movement import boxed
from popgraph.dialects.program import ConstantOp, GraphOp, ReturnOp, VariableOp, WeightStore
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.training.dependence import dependent, expand_on_path, needed
from popgraph.passes.graphcore.training.influence import (
    flat_location,
    influential,
    is_only_detached,
)
from popgraph.passes.graphcore.training.reverse_cond import reverse_cond
from popgraph.passes.graphcore.training.reverse_loop import reverse_loop
from popgraph.passes.graphcore.training.reverse_mode import ReverseMode, Rule, zeros
from popgraph.passes.optimizer_spec import (
    FACTOR,
    OptimizerSpec,
    loss_scale_type,
    loss_scale_variable,
)
from popgraph.passes.options import GRADIENT, Options
from popgraph.passes.properties import EXPANDED, ONE_GRAPH, WORDLESS
from popgraph.support.boxes import Box, split_slice
from popgraph.support.errors import DifferentiationError, PassError
from popgraph.support.shapes import prod, text
from popgraph.support.warnings import UntrainedWeightsWarning

DELAYED = "Delayed___"
"""Prefix of a variable that holds the older value of `w` that the loss is computed with."""

MOST_NAMES = 5
"""Maximum number of weights, and of nodes, that one warning lists."""

HINT = (
    "freeze weights that are not to be trained; the option straight_through lets gradients pass "
    "QuantizeLinear, but no other rounding operation"
)

RULES: Mapping[type[Operation], Rule] = {CondOp: reverse_cond, LoopOp: reverse_loop}
"""Gradients of operations with bodies, which need the state of the reverse walk around them."""


@dataclass(frozen=True)
class Autodiff(Pass):
    """
    loss  ->  loss, Gradient___w = dloss/dw: one output for each variable `w` on its path.

    Only when `loss` is an output with one element. `wrt` lists the variables to differentiate
    by; without it, all float variables except those in `frozen`. `gradients` lists more inputs,
    outputs or variables; each must have a gradient. `tracked` lists some that may have none. The
    gradient of the loss itself is `loss_scale`. With `stream_loss_scale` it is the variable
    `lossScaling_<type>`, initially `loss_scale`. With `follows_gradients` that is multiplied by the
    variable `lossScaleUpdateFactor`, initially 1. The loss reads the variables in `delayed` from
    `Delayed___w`, an older value. `parts` lists variables of which only a box is trained, such as
    `w[0:8, 0:4]`: their gradient is that of the box.
    """

    name = "autodiff"
    NEEDS = (ONE_GRAPH, WORDLESS)
    LOSES = (EXPANDED,)
    BEFORE = ("expand",)

    loss: str
    wrt: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    loss_scale: float = 1.0
    stream_loss_scale: bool = False
    frozen: tuple[str, ...] = ()
    tracked: tuple[str, ...] = ()
    delayed: tuple[str, ...] = ()
    follows_gradients: bool = False
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Options) -> Autodiff | None:
        if options.training is None:
            return None
        training = options.training
        found = cls.towards(training.loss, training.optimizer, training.gradients, training.frozen)
        return replace(
            found, tracked=training.tracked, delayed=training.delayed, parts=training.parts
        )

    @staticmethod
    def towards(
        loss: str,
        optimizer: OptimizerSpec,
        gradients: tuple[str, ...] = (),
        frozen: tuple[str, ...] = (),
    ) -> Autodiff:
        """The pass with the loss scale of an optimizer."""
        scale = optimizer.loss_scaling
        return Autodiff(
            loss,
            gradients=gradients,
            loss_scale=scale.value,
            stream_loss_scale=not scale.constant,
            frozen=frozen,
            follows_gradients=optimizer.scale_period > 0,
        )

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        graph = only_graph(module)
        expand_on_path(
            graph.block,
            lambda: [self._loss(graph)],
            lambda: dependent(graph.block, self._targets(graph).values()),
        )
        loss, targets = self._loss(graph), self._targets(graph)
        reading = self._reading_delayed(graph)
        backwards = ReverseMode(graph.block, dependent(graph.block, targets.values()), RULES)
        with backwards.building():
            backwards.add(loss, self._seed(graph, loss, compilation.weights))
        backwards.walk(needed([loss]))
        _name(backwards.gradients)
        outputs, slices = dict(graph.outputs), dict(map(split_slice, self.parts))
        for name, value in targets.items():
            gradient = backwards.gradients.get(value)
            if gradient is not None:
                if name in slices:
                    with backwards.building():
                        gradient = boxed(gradient, Box.of(slices[name], shape_of(value)))
                outputs[GRADIENT + name] = gradient
            elif name in self.gradients:
                raise DifferentiationError(
                    f"{self.loss!r} has no gradient with respect to {name!r}",
                    hint="no differentiable path leads from one to the other",
                )
        if not self.wrt:
            self._warn_of_untrained(compilation, graph, targets, backwards)
        set_outputs(graph, outputs)
        backwards.erase_unused()
        _delay(reading)

    def _reading_delayed(self, graph: GraphOp) -> dict[VariableOp, list[Use]]:
        """Uses of delayed variables by the loss; without variables that the graph updates."""
        delayed = set(self.delayed).difference(op.variable.text for op in graph.updates())
        return {
            op: [use for use in op.result.uses if not isinstance(use.operation, ReturnOp)]
            for op in graph.variables()
            if op.variable.text in delayed
        }

    def _warn_of_untrained(
        self,
        compilation: Compilation,
        graph: GraphOp,
        targets: Mapping[str, SSAValue],
        backwards: ReverseMode,
    ) -> None:
        """Warns of weights that are to be trained but that no step can change."""
        loss, weights = self._loss(graph), compilation.weights
        moving = influential(graph.block, [loss], weights) & backwards.gradients.keys()
        kept = {op.variable.text for op in graph.updates()}.union(self.gradients, self.tracked)
        still = {
            name: value
            for name, value in targets.items()
            if name not in kept and value not in moving and not is_only_detached(value)
        }
        if not still:
            return
        on_the_way = needed([loss])
        nodes = {flat_location(value, on_the_way, weights) for value in still.values()} - {""}
        reason = f" (rounded, compared or detached at {_listed(sorted(nodes))})" if nodes else ""
        compilation.warn(
            f"no gradient of the loss {self.loss!r} reaches {_counted(list(still))}, which "
            f"{'is' if len(still) == 1 else 'are'} not trained{reason}",
            HINT,
            UntrainedWeightsWarning,
        )

    def _loss(self, graph: GraphOp) -> SSAValue:
        if self.loss not in graph.outputs:
            raise PassError(
                f"the loss {self.loss!r} is not an output of the graph",
                self.name,
                f"its outputs are {', '.join(map(repr, graph.outputs)) or 'none'}",
            )
        loss = graph.outputs[self.loss]
        if prod(shape_of(loss)) != 1 or not self._is_differentiable(loss, graph):
            raise DifferentiationError(
                f"the loss {self.loss!r} must be one float, "
                f"not {dtype_of(loss).name} of shape {text(shape_of(loss))}",
                hint="reduce it to its sum or its mean",
            )
        return loss

    def _is_differentiable(self, loss: SSAValue, graph: GraphOp) -> bool:
        """True for floats, and for integers if a requested gradient has the same type."""
        wanted = {dtype_of(value) for value in self._targets(graph).values()}
        return is_float(loss) or (is_number(loss) and dtype_of(loss) in wanted)

    def _targets(self, graph: GraphOp) -> dict[str, SSAValue]:
        """
        The values to differentiate by, by name.

        Variables that the graph itself updates, such as running statistics, are not trained.
        """
        variables = {op.variable.text: op.result for op in graph.variables()}
        known = {**graph.inputs, **graph.outputs, **variables}
        floats = {name for name, value in variables.items() if is_float(value)}
        trained = floats.difference(self.frozen, (op.variable.text for op in graph.updates()))
        wrt = self.wrt or tuple(name for name in variables if name in trained)
        wanted = tuple(dict.fromkeys((*wrt, *self.gradients, *self.tracked)))
        for name in wanted:
            if name not in known:
                raise PassError(
                    f"the graph has no tensor {name!r} to differentiate by",
                    self.name,
                    "make an inner tensor an output first",
                )
        return {name: known[name] for name in wanted}

    def _seed(self, graph: GraphOp, loss: SSAValue, weights: WeightStore) -> SSAValue:
        """The gradient of the loss by itself: the loss scale."""
        dtype, shape = dtype_of(loss), shape_of(loss)
        if not dtype.is_float and (self.stream_loss_scale or self.loss_scale % 1):
            raise DifferentiationError(
                f"the gradients of the loss {self.loss!r} are integers, which can only be scaled "
                "by a constant integer",
                hint="leave out the loss scaling, or cast the loss to float",
            )
        if not self.stream_loss_scale:
            return ConstantOp(
                weights.attribute(np.full(shape, self.loss_scale, dtype.numpy))
            ).result
        held = loss_scale_type(dtype, follows_gradients=self.follows_gradients)
        first = weights.attribute(np.array(self.loss_scale, held.numpy))
        scale = VariableOp(loss_scale_variable(dtype), first).result
        if self.follows_gradients:
            variables = {op.variable.text: op.result for op in graph.variables()}
            one = weights.attribute(np.array(1, held.numpy))
            factor = variables.get(FACTOR) or VariableOp(FACTOR, one).result
            scale = CastOp(MulOp(scale, factor), to=element_types.to_ir(dtype)).result
        return ReshapeOp(scale, shape=shape).result if shape else scale


def _name(gradients: Mapping[SSAValue, SSAValue]) -> None:
    """Names gradients in IR text: `%Gradient___x` for the gradient of `%x`."""
    for value, gradient in gradients.items():
        if value.name_hint is not None and gradient.name_hint is None:
            gradient.name_hint = GRADIENT + value.name_hint


def _delay(reading: Mapping[VariableOp, Sequence[Use]]) -> None:
    """Redirects the given uses of `w` to the variable `Delayed___w`."""
    for op, uses in reading.items():
        older = VariableOp(DELAYED + op.variable.text, op.literal)
        Rewriter.insert_op(older, InsertPoint.after(op))
        for use in uses:
            use.operation.operands[use.index] = older.result


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} weight{'s' * (len(names) != 1)}: {_listed([repr(one) for one in names])}"


def _listed(names: Sequence[str]) -> str:
    """The first `MOST_NAMES` names."""
    return ", ".join(names[:MOST_NAMES]) + ", ..." * (len(names) > MOST_NAMES)


def requested(names: Sequence[str]) -> set[str]:
    """The output names of requested gradients."""
    return {GRADIENT + name for name in names}


def differentiate(block: Block, sources: Sequence[SSAValue]) -> list[SSAValue]:
    """
    Appends to a block d sum(y) / d source for each source, where y is its one yielded value.

    Sources that y does not depend on get zeros.
    """
    expand_on_path(block, lambda: yield_of(block).values, lambda: dependent(block, sources))
    (target,) = yield_of(block).values
    backwards = ReverseMode(block, dependent(block, sources), RULES)
    with backwards.building():
        one = scalar(1, target)
        shape = shape_of(target)
        seed = BroadcastOp(one, shape=shape) if shape else one
        backwards.add(target, SSAValue.get(seed))
    backwards.walk(needed([target]))
    with backwards.building():
        found = [backwards.gradients.get(source) or zeros(source) for source in sources]
    return [SSAValue.get(value) for value in found]
