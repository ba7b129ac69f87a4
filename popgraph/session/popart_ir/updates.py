"""How optimizers change variables: the operators that PopART writes their rules as."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.popart.names import GRADIENT, RESERVED_PREFIXES
from popgraph.passes.graphcore.training.weight_context import state_dtype
from popgraph.passes.optimizer_spec import SGD, Adam, Adaptive, OptimizerSpec
from popgraph.session.popart_ir.graph import Kind, Op, OpGraph, Settings
from popgraph.session.step_shape import StepShape
from popgraph.support import dtypes


def _reserved(name: str) -> str:
    return RESERVED_PREFIXES[f"reserved{name}Prefix"]


_UPDATED = _reserved("UpdatedVar")


COMBINED = "popgraph.update"
"""What an update is, until the operators of its rule take its place."""

WEIGHT = "popgraph.weight"
"""The attribute of an update that names the weight whose numbers it uses."""


def add_updates(graph: OpGraph, frozen: Collection[str]) -> None:
    """Adds one update for every trained variable that has a gradient."""
    for id in list(graph.infos):
        trained = graph.kind(id) is Kind.VARIABLE and id not in frozen
        if trained and GRADIENT + id in graph.infos:
            users = [op for op in graph.consumers(id) if not op.writes]
            settings = Settings(ipu=users[0].settings.ipu if users else None)
            updated = graph.add_tensor(_UPDATED + id, graph.infos[id])
            inputs = {0: id, 1: GRADIENT + id}
            graph.add(
                Op(
                    COMBINED,
                    inputs,
                    {0: updated},
                    {WEIGHT: id},
                    settings,
                    writes=True,
                    backward=True,
                )
            )


class Decomposition:
    """Writes updates as the operators of a rule."""

    def __init__(self, graph: OpGraph, rule: OptimizerSpec, step: StepShape) -> None:
        self._graph, self._rule, self._step = graph, rule, step
        self._op: Op
        self._after_batches = False

    def run(self) -> None:
        for op in [op for op in self._graph.ops if op.type == COMBINED]:
            self._op, self._after_batches = op, False
            self._update(op.input(0))
            self._empty_accumulator(op.input(0))
            self._graph.forget(op)

    def _own(self) -> str:
        """The weight whose numbers count; of a slice, that which it is part of."""
        return str(self._op.attributes[WEIGHT])

    def _update(self, weight: str) -> None:
        rule = self._rule.for_weight(self._own())
        match rule:
            case SGD() if not rule.has_velocity:
                self._write("SGD0VarUpdate", weight, self._reduced(weight), weight, _UPDATED)
            case SGD():
                self._momentum(rule, weight)
            case Adam():
                self._adam(rule, weight)
            case Adaptive():
                self._adaptive(rule, weight)

    def _reduced(self, weight: str) -> str:
        """The gradient of all micro-batches and replicas."""
        gradient = self._op.input(1)
        if self._accumulates:
            accumulator = self._state("Accum", weight)
            gradient = self._accumulate(weight, accumulator, gradient)
            self._after_batches = True
            if self._step.all_replicas > 1:
                gradient = self._all_reduced(weight, gradient, f"{accumulator}__reduced")
        elif self._step.all_replicas > 1:
            gradient = self._all_reduced(weight, gradient, _reserved("FinalReducedGrad") + weight)
        return gradient

    def _empty_accumulator(self, weight: str) -> None:
        """For the next batch, once the update has read it; a mean is overwritten by the next."""
        accumulator = _reserved("Accum") + weight
        if accumulator in self._graph.infos and not self._rule.keeps_means:
            self._add("AccumulatorScale", weight, [accumulator], _UPDATED + accumulator)

    @property
    def _accumulates(self) -> bool:
        return self._step.accumulation > 1

    def _all_reduced(self, weight: str, value: str, output: str) -> str:
        type_ = "ReplicatedAllReduceInplace" if self._accumulates else "ReplicatedAllReduce"
        return self._add(type_, weight, [value], output, writes=False)

    # parts of rules

    def _state(self, prefix: str, weight: str) -> str:
        info = self._graph.infos[weight]
        asked = self._rule.state_type(_reserved(prefix))
        kept = state_dtype(dtypes.BY_POPART[info.data_type()], asked)
        state = TensorInfo(kept.popart, info.shape())
        return self._graph.add_tensor(_reserved(prefix) + weight, state, Kind.VARIABLE)

    def _add(
        self, type_: str, weight: str, inputs: list[str], output: str, writes: bool = True
    ) -> str:
        graph = self._graph
        graph.add_tensor(output, graph.infos[inputs[0]])
        settings = replace(self._op.settings, name=type_, after_batches=self._after_batches)
        tensors = dict(enumerate(inputs))
        made = Op(type_, tensors, {0: output}, {}, settings, writes=writes, backward=True)
        graph.add(made, before=self._op)
        return output

    def _write(self, type_: str, weight: str, value: str, variable: str, prefix: str) -> str:
        """A variable, changed by a value and by the host's numbers of the rule."""
        inputs = [variable, value, *self._scalars(type_, weight)]
        return self._add(type_, weight, inputs, prefix + variable)

    def _accumulate(self, weight: str, variable: str, value: str) -> str:
        return self._add("Accumulate", weight, [variable, value], f"{variable}__updated")

    def _scalars(self, type_: str, weight: str) -> list[str]:
        """The numbers that the host writes, of those that the operator reads."""
        graph = self._graph
        row = dtypes.BY_POPART[graph.infos[weight].data_type()]
        found = []
        for compound in self._rule.compounds(self._own(), row).values():
            if not compound.constant and compound.prefix in _READ.get(type_, ()):
                info = TensorInfo(compound.dtype.popart, [])
                found.append(graph.add_tensor(compound.variable, info, Kind.STREAM))
        return found

    # rules

    def _momentum(self, rule: SGD, weight: str) -> None:
        combined = rule.combined
        state = self._state("Accl" if combined else "Accl1", weight)
        scalars = self._scalars("Accumulate", weight)
        accumulated = _reserved("AcclToUpdate") + weight
        if combined and self._accumulates:
            self._add_up(weight, [state, self._op.input(1), *scalars], accumulated)
        else:
            inputs = [state, self._reduced(weight), *scalars]
            self._add("Accumulate", weight, inputs, accumulated)
        if not combined:
            self._add("ScaledVarUpdate", weight, [weight, accumulated], _UPDATED + weight)
            return
        value = accumulated
        if rule.nesterov:
            output = weight + "_nesterovGradOut"
            inputs = [self._op.input(1), weight, accumulated]
            value = self._add("SGD1Nesterov", weight, inputs, output, writes=False)
        self._write("SGD1VarUpdate", weight, value, weight, _UPDATED)
        final = _reserved("AcclFinalOut") + weight
        inputs = [accumulated, *self._scalars("SGD1AcclUpdate", weight)]
        self._add("SGD1AcclUpdate", weight, inputs, final)

    def _add_up(self, weight: str, inputs: list[str], accumulated: str) -> None:
        """Gradients of micro-batches go into the velocity, of which replicas then have the sum."""
        reduces = self._step.all_replicas > 1
        first = _reserved("AcclToReduce") + weight if reduces else accumulated
        self._add("Accumulate", weight, inputs, first)
        self._after_batches = True
        if reduces:
            self._all_reduced(weight, first, accumulated)

    def _adam(self, rule: Adam, weight: str) -> None:
        gradient = self._regular(rule, rule.decay, weight)
        first = self._accumulate(weight, self._state("Accl1", weight), gradient)
        second = self._accumulate(weight, self._state("Accl2", weight), gradient)
        inputs = [weight, first, second]
        if rule.corrects_bias:
            step = _reserved("Step") + weight
            info = TensorInfo("FLOAT", [])
            inputs.append(self._graph.add_tensor(step, info, Kind.VARIABLE))
        updater = _reserved("AdamUpdater") + weight
        self._add("AdamUpdater", weight, inputs, updater)
        norms = []
        if rule.is_lamb and rule.max_weight_norm.value != 0:
            for prefix, tensor in (("LambR1Sq", weight), ("LambR2Sq", updater)):
                output = _reserved(prefix) + weight
                norms.append(self._add("LambSquare", weight, [tensor], output, writes=False))
        inputs = [weight, updater, *norms, *self._scalars("AdamVarUpdate", weight)]
        self._add("AdamVarUpdate", weight, inputs, _UPDATED + weight)

    def _regular(self, rule: OptimizerSpec, decays: bool, weight: str) -> str:
        """The gradient of a rule, divided by the loss scale and with its L2 regularization."""
        gradient = self._reduced(weight)
        if not rule.loss_scaling.constant:
            gradient = self._add("Mul", weight, [gradient], f"{gradient}__unscaled", writes=False)
        elif rule.loss_scaling.value != 1:
            gradient = self._add("Scale", weight, [gradient], f"{gradient}__unscaled", writes=False)
        if not decays and (rule.weight_decay.value or not rule.weight_decay.constant):
            output = f"{gradient}__regularized"
            gradient = self._add("ScaledAdd", weight, [gradient, weight], output, writes=False)
        return gradient

    def _adaptive(self, rule: Adaptive, weight: str) -> None:
        gradient = self._regular(rule, rule.decay, weight)
        first = self._accumulate(weight, self._state("Accl1", weight), gradient)
        inputs, delta = [gradient, first], rule.mode == "ada_delta"
        if rule.mode == "centered_rms_prop":
            inputs.append(self._accumulate(weight, self._state("Accl2", weight), gradient))
        if delta:
            inputs.append(self._state("Accl2", weight))
        type_ = "AdaDeltaUpdater" if delta else "RMSPropUpdater"
        updater = f"AdaptiveUpdater___{weight}"
        value = self._add(type_, weight, inputs, updater, writes=False)
        if delta:
            self._accumulate(weight, _reserved("Accl2") + weight, updater)
        if rule.has_velocity:
            if rule.tf_variant:
                scale = "Scale" if rule.learning_rate.constant else "Mul"
                value = self._add(scale, weight, [value], f"{updater}__scaled", writes=False)
            value = self._accumulate(weight, self._state("Accl3", weight), value)
        inputs = [weight, value, *self._scalars("ScaledVarUpdate", weight)]
        self._add("ScaledVarUpdate", weight, inputs, _UPDATED + weight)


_READ: dict[str, tuple[str, ...]] = {
    "SGD0VarUpdate": ("scaledLearningRate0", "weightDecayScaleFactor0"),
    "Accumulate": ("dampeningScaleFactor1", "dampeningScaleFactor2"),
    "SGD1VarUpdate": ("scaledLearningRate1",),
    "SGD1AcclUpdate": ("scaledMomentum1", "scaledWeightDecay1"),
    "AdamVarUpdate": ("learningRate", "maxWeightNorm"),
    "ScaledVarUpdate": ("learningRate", "weightDecay"),
}
"""The scalars that an operator reads, by the prefixes of their names."""
