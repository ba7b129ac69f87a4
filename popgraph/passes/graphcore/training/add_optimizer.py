"""Adds the optimizer: gradients become updates of variables, scalars and optimizer state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import InsertPoint

from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.program import GraphOp
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.training.autodiff import DELAYED, requested
from popgraph.passes.graphcore.training.loss_scale import LossScale, gradients_of
from popgraph.passes.graphcore.training.ranks import (
    all_gather_weight,
    all_reduce_gradient,
    shard_variable,
    sum_of_ranks,
    take_shard,
)
from popgraph.passes.graphcore.training.replica_accumulators import ReplicaAccumulators
from popgraph.passes.graphcore.training.terms import Term
from popgraph.passes.graphcore.training.update_rules import UpdateRule, norm_squared, rule_for
from popgraph.passes.graphcore.training.variables import COUNTER, GOOD_UPDATES, UPDATED, Variables
from popgraph.passes.graphcore.training.weight_context import WeightContext
from popgraph.passes.optimizer_scalars import GRADIENT_SCALE
from popgraph.passes.optimizer_spec import ClipNorm, OptimizerSpec
from popgraph.passes.options import GRADIENT, Options
from popgraph.passes.properties import ONE_GRAPH
from popgraph.passes.replication import belongs
from popgraph.support.boxes import Box, split_slice
from popgraph.support.errors import PassError
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class AddOptimizer(Pass):
    """
    output Gradient___w  ->  update of `w` and of its optimizer state.

    Only when `w` is a variable that the graph does not update itself. `optimizer` is the text form
    of an `OptimizerSpec`. Gradient outputs are dropped, except of the tensors in `gradients` and
    `tracked`; the gradients in `tracked` decide an automatic loss scale. `extra_outputs` lists more
    outputs: variables, optimizer state and streamed scalars after the step (`UpdatedVar___w`), and
    intermediate values of update rules (`AdamUpdater___w`). With gradient accumulation, weights and
    states are shown before their update, as PopART does. `parts` are those of `Autodiff`: the
    optimizer state of such a variable is that of its box, and the rest never changes.
    """

    name = "add-optimizer"
    KEEPS_MEANING = False
    NEEDS = (ONE_GRAPH,)
    AFTER = ("autodiff", "spread-replicas")

    optimizer: str
    gradients: tuple[str, ...] = ()
    extra_outputs: tuple[str, ...] = ()
    tracked: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Options) -> AddOptimizer | None:
        if options.training is None:
            return None
        training = options.training
        found = cls.by(training.optimizer, training.gradients, training.after_step)
        return replace(found, tracked=training.tracked, parts=training.parts)

    @staticmethod
    def by(
        optimizer: OptimizerSpec,
        gradients: tuple[str, ...] = (),
        extra_outputs: tuple[str, ...] = (),
    ) -> AddOptimizer:
        """The pass with an optimizer in text form."""
        return AddOptimizer(str(optimizer), gradients, extra_outputs)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        graph = only_graph(module)
        spec = OptimizerSpec.parse(self.optimizer)
        variables = Variables(graph, compilation.weights)
        with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
            self._train(graph, spec, variables)
            variables.emit_updates()
        used = {GRADIENT + name for name in variables.trained}
        used -= requested((*self.gradients, *self.tracked))
        outputs = {name: value for name, value in graph.outputs.items() if name not in used}
        for name in self.extra_outputs:
            outputs[name] = variables.after(name)
        set_outputs(graph, outputs)

    def _train(self, graph: GraphOp, spec: OptimizerSpec, variables: Variables) -> None:
        contexts, slices = {}, dict(map(split_slice, self.parts))
        updated = {op.variable.text for op in graph.updates()}
        for op in list(graph.variables()):
            name = op.variable.text
            gradient = graph.outputs.get(GRADIENT + name)
            if gradient is None or name in updated:
                continue
            whole = name in slices or DELAYED + name in variables.now
            whole = whole or self._shows(name, itself=True)
            if spec.shards_weights(prod(shape_of(op.result))) and not whole:
                op = shard_variable(op, spec.ranks, variables.weights)
                variables.now[name] = op.result
                contexts[name] = WeightContext(spec, variables, op, gradient, is_shard=True)
            else:
                box = Box.of(slices[name], shape_of(op.result)) if name in slices else None
                contexts[name] = WeightContext(spec, variables, op, gradient, box=box)
        variables.trained = set(contexts)
        for context in contexts.values() if spec.keeps_means else ():
            context.average()
        several = contexts.values() if spec.ranks > 1 else ()
        shared = [one for one in several if spec.shares(one.count) and not self._shows(one.name)]
        for context in shared:
            if spec.shards_gradients(context.count):
                take_shard(context)
        last = None
        if spec.period > 1:
            before, last = variables.count(COUNTER, spec.period)
            for context in contexts.values():
                context.accumulate(before, last)
        for context in several:
            if not context.is_exchanged and context.spec.ranks > 1:
                (take_shard if context in shared else all_reduce_gradient)(context)
        if spec.skip_overflow:
            _skip_overflow(contexts, variables)
        if groups := [group for group in spec.clip if not group.of_updates]:
            unit = next(iter(contexts.values())).scalar(GRADIENT_SCALE.prefix)
            gradients = {name: context.gradient for name, context in contexts.items()}
            for name, term in _clipped(groups, gradients, contexts, scale=unit).items():
                contexts[name].gradient = term
        rules = {name: rule_for(context.spec, context) for name, context in contexts.items()}
        entered = {name: rule.enter() for name, rule in rules.items()}
        groups = [group for group in spec.clip if group.of_updates]
        replicas = {name: rule.replicas for name, rule in rules.items()}
        for name, term in _clipped(groups, entered, contexts, replicas=replicas).items():
            _finish(contexts[name], rules[name], term)
        if tracked := gradients_of(self.tracked, graph.outputs):
            scale = LossScale(spec, variables, last)
            scale.follow(tracked)
            scale.report_inverse(contexts.values())
        accumulators = ReplicaAccumulators(spec, variables, graph.outputs)
        for name in self.extra_outputs:
            accumulators.report(name, contexts)
        for context in contexts.values():
            context.report_scalars(self.extra_outputs)

    def _shows(self, weight: str, *, itself: bool = False) -> bool:
        """
        Whether a state of a weight is an extra output; with `itself`, the weight counts, too.

        Outputs show whole tensors, so such a weight cannot be sharded.
        """
        return any(
            belongs(name, weight) and (itself or name not in (weight, UPDATED + weight))
            for name in self.extra_outputs
        )


def _finish(context: WeightContext, rule: UpdateRule, entered: Term) -> None:
    weight = rule.finish(entered)
    whole = context.updated(weight) if context.whole is None else all_gather_weight(context, weight)
    context.set_at_update(context.name, context.inserted(whole))


def _clipped(
    groups: Sequence[ClipNorm],
    terms: Mapping[str, Term],
    contexts: Mapping[str, WeightContext],
    *,
    replicas: Mapping[str, float] | None = None,
    scale: Term | None = None,
) -> dict[str, Term]:
    """
    Clips by global norm: each term of a group times maximum / max(norm, maximum).

    `replicas` are factors of terms inside the norm. `scale` is a factor of the norm: it converts
    accumulated gradients to the mean gradient of the loss, which PyTorch's `clip_grad_norm_` clips.
    """
    result = dict(terms)
    for group in groups:
        members = [name for name in terms if name in group.weights or not group.weights]
        if not members:
            raise PassError(
                f"none of {list(group.weights)} is a trained weight", "clip norm settings"
            )
        units = {name: replicas[name] for name in members} if replicas else {}
        length = _norm({name: terms[name] for name in members}, contexts, units)
        if scale is not None:
            length = length * scale.cast(length.dtype)
        shrink = length.known(group.maximum) / length.maximum(group.maximum)
        for name in members:
            result[name] = terms[name] * shrink.cast(terms[name].dtype)
    return result


def _norm(
    terms: Mapping[str, Term],
    contexts: Mapping[str, WeightContext],
    units: Mapping[str, float] | None = None,
) -> Term:
    """The L2 norm of all terms; squares of sharded weights are all-reduced."""
    wide = next(iter(terms.values())).dtype
    squares = {name: norm_squared(term).cast(wide) for name, term in terms.items()}
    if units:
        squares = {name: square * units[name] ** 2 for name, square in squares.items()}
    shared = [name for name in terms if contexts[name].has_shard]
    parts = [squares.pop(name) for name in shared]
    if shared:
        squares[""] = sum_of_ranks(reduce(add, parts), contexts[shared[0]])
    return reduce(add, squares.values()).sqrt()


def _skip_overflow(contexts: Mapping[str, WeightContext], variables: Variables) -> None:
    """Skips an update if a gradient is not finite; counts the updates since the last skip."""
    finite = _norm({name: one.gradient for name, one in contexts.items()}, contexts).less(np.inf)
    before = variables.get(GOOD_UPDATES, np.array(0, np.float32))
    counted = (before + 1.0).where(finite, 0.0)
    last = next(iter(contexts.values())).last
    variables.set(GOOD_UPDATES, counted if last is None else counted.where(last, before))
    for context in contexts.values():
        context.finite = finite
