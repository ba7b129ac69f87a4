"""How optimizers change variables: the operators that PopART writes their rules as."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from enum import Enum, IntEnum

from popgraph.builder.opset.enums import CollectiveOperator
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.popart.names import GRADIENT, RESERVED_PREFIXES
from popgraph.passes.graphcore.training.weight_context import state_dtype
from popgraph.passes.optimizer_scalars import Compound
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.session.options import SessionOptions
from popgraph.session.popart_ir.graph import (
    COLLECTIVES,
    Context,
    Kind,
    Op,
    OpGraph,
    Settings,
    Value,
)
from popgraph.session.popart_ir.remote_ops import collective
from popgraph.session.step_shape import StepShape
from popgraph.support import dtypes
from popgraph.support.replicas import Grouping


def reserved(name: str) -> str:
    """What the names of tensors of this role begin with."""
    return RESERVED_PREFIXES[f"reserved{name}Prefix"]


UPDATED = reserved("UpdatedVar")

COMBINED = "popgraph.update"
"""What an update is, until the operators of its rule take its place."""

WEIGHT = "popgraph.weight"
"""The attribute of an update that names the weight whose numbers it uses."""

COUNTER = "Counter___"
_SCALAR = TensorInfo("FLOAT", [])
_EACH = Context.NORMAL
"""When what is done for each micro-batch runs."""


_NAMES = {
    "Accumulate": "_accumulate",
    "AccumulatorScale": "_accumupdate",
    "AdaDeltaUpdater": "_adadeltaupdater",
    "AdamUpdater": "_adamupdater",
    "AdamVarUpdate": "_var_update",
    "Cast": "_gradCast",
    "CopyVarUpdate": "_updatePrevLossScaling",
    "Div": "_lsRatio",
    "Mul": "_gradUnscale",
    "RMSPropUpdater": "_rmspropupdater",
    "ReplicatedAllReduce": "_reduce",
    "ReplicatedAllReduceInplace": "_reduce",
    "SGD0VarUpdate": "_var_update",
    "SGD1AcclUpdate": "_accl_update",
    "SGD1Nesterov": "_nesterov_1",
    "SGD1VarUpdate": "_var_update",
    "Scale": "_gradUnscale",
    "ScaledAdd": "_weightDecayScale",
    "ScaledVarUpdate": "_var_update",
}
"""How PopART calls what a rule is written as, unless it has another name there."""


class Gathering(IntEnum):
    """How an Accumulate brings a value into a variable, as PopART numbers the ways."""

    ADD, DAMPENED_ADD, DAMPENED_ADD_SQUARE, DECAY_ADD, DECAY_ADD_SQUARE = range(5)
    MOVING_AVERAGE, MOVING_AVERAGE_SQUARE, INFINITY, MEAN = range(5, 9)

    @property
    def attributes(self) -> dict[str, Value]:
        return {"type": int(self)}


class Turn(Enum):
    """When updates that are made for each micro-batch run."""

    ANY = "any"
    LAST = "last"
    LAST_BUT_SUMS = "last but sums"
    """Gradients of micro-batches are added up as soon as they are there."""

    @staticmethod
    def of(options: SessionOptions) -> Turn:
        """As PopART delays updates."""
        settings = options.batchSerializationSettings, options.executionPhaseSettings
        apart = settings[0].factor > 1 or settings[1].phases > 1
        if not options.delayVarUpdates or apart or options.explicitRecomputation:
            return Turn.ANY
        if options.enableExplicitMainLoops:
            return Turn.ANY
        early = options.scheduleNonWeightUpdateGradientConsumersEarly
        return Turn.LAST_BUT_SUMS if early else Turn.LAST

    @property
    def priority(self) -> float:
        return 0.0 if self is Turn.ANY else float("-inf")


def add_updates(graph: OpGraph, frozen: Collection[str]) -> None:
    """Adds one update for every trained variable that has a gradient."""
    for id in list(graph.infos):
        trained = graph.kind(id) is Kind.VARIABLE and id not in frozen
        if trained and GRADIENT + id in graph.infos:
            users = [op for op in graph.consumers(id) if not op.writes]
            settings = Settings(ipu=users[0].settings.ipu if users else None)
            updated = graph.add_tensor(UPDATED + id, graph.infos[id])
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


class Update:
    """One update, and the parts that the operators of all rules have in common."""

    def __init__(
        self,
        graph: OpGraph,
        op: Op,
        rule: OptimizerSpec,
        step: StepShape,
        scaling: str | None,
        shared_by: Callable[[str], Grouping],
        turn: Turn,
    ) -> None:
        """`shared_by` tells which replicas have the same value of a variable."""
        self._graph, self._op, self._step, self._shared_by = graph, op, step, shared_by
        self._turn, self.scaling = turn, scaling
        """The loss scale that the host writes, if it does."""
        self.variable, self.gradient = op.input(0), op.input(1)
        own = str(op.attributes[WEIGHT])
        """The weight whose numbers count; of a slice, that which it is part of."""
        row = dtypes.BY_POPART[self.info.data_type()]
        self.rule = rule.for_weight(own)
        self._scalars: Mapping[str, Compound] = rule.compounds(own, row)

    @property
    def info(self) -> TensorInfo:
        """What the variable is."""
        return self._graph.infos[self.variable]

    @property
    def ipu(self) -> int | None:
        """Where the update is."""
        return self._op.settings.ipu

    @property
    def updated(self) -> str:
        """The variable after the update."""
        return UPDATED + self.variable

    @property
    def accumulates(self) -> bool:
        """Whether gradients of several micro-batches add up before the update."""
        return self._step.accumulation > 1

    @property
    def reduces(self) -> bool:
        """Whether gradients of several replicas add up before the update."""
        return self._step.all_replicas > 1

    @property
    def made_first(self) -> Op:
        """What takes the gradient of a micro-batch, once the rule is written; or the update."""
        users = self._graph.consumers(self.gradient)
        sums = (op for op in users if op.type == "Accumulate" and op.settings.context is _EACH)
        made = next(sums, self._graph.producer(self.updated))
        assert made is not None, "every rule updates its variable"
        return made

    # tensors

    def named(self, role: str) -> str:
        """The tensor of this role that belongs to the variable."""
        return reserved(role) + self.variable

    def kept_as(self, role: str) -> str:
        """The element type of a state."""
        row = dtypes.BY_POPART[self.info.data_type()]
        return state_dtype(row, self.rule.state_type(reserved(role))).popart

    def state(self, role: str) -> str:
        """A variable of the optimizer, as large as the one that is trained."""
        info = TensorInfo(self.kept_as(role), self.info.shape())
        return self._graph.add_tensor(self.named(role), info, Kind.VARIABLE)

    @property
    def accumulated_as(self) -> str:
        """The element type in which gradients are added up."""
        asked = self.rule.accum_type
        return dtypes.BY_NAME[asked].popart if asked in dtypes.BY_NAME else self.info.data_type()

    def own_tensor(self, id: str) -> str:
        """A variable of the optimizer that is like the one that is trained."""
        return self._graph.add_tensor(id, self.info, Kind.VARIABLE)

    def is_known(self, id: str) -> bool:
        """Whether there is a tensor of this name."""
        return id in self._graph.infos

    def own_number(self, id: str) -> str:
        """A variable of the optimizer that is one number."""
        return self._graph.add_tensor(id, _SCALAR, Kind.VARIABLE)

    def fresh(self, base: str) -> str:
        """A new tensor like `base`."""
        return self._graph.fresh(base, self._graph.infos[base])

    def streamed(self, scalars: Mapping[int, str]) -> dict[int, str]:
        """Those of the rule's scalars, by input, that the host writes."""
        found = {}
        for index, prefix in scalars.items():
            scalar = self._scalars.get(prefix)
            if scalar is not None and not scalar.constant:
                info = TensorInfo(scalar.dtype.popart, [])
                found[index] = self._graph.add_tensor(scalar.variable, info, Kind.STREAM)
        return found

    def number(self, prefix: str) -> float:
        """The value of a scalar of the rule."""
        return self._scalars[prefix].value

    # operators

    def add(
        self,
        type_: str,
        inputs: Mapping[int, str],
        output: str,
        *,
        like: str = "",
        info: TensorInfo | None = None,
        writes: bool = True,
        for_each: bool = False,
        attributes: Mapping[str, Value] | None = None,
        name: str = "",
    ) -> Op:
        """
        Adds an operator whose result is like its first input, or like another tensor.

        It runs once gradients are added up, unless it does `for_each` micro-batch.
        """
        graph = self._graph
        graph.add_tensor(output, info or graph.infos[like or inputs[min(inputs)]])
        late = self.accumulates and not for_each
        context = Context.AFTER_BATCHES if late else Context.NORMAL
        priority = 0.0 if late else self._turn.priority
        name = name or _NAMES[type_]
        settings = replace(self._op.settings, name=name, context=context, priority=priority)
        made = Op(type_, dict(inputs), {0: output}, dict(attributes or {}), settings)
        made.writes, made.backward = writes, True
        made.optimizes = type_ not in COLLECTIVES
        return graph.add(made, before=self._op)

    def order(self, first: Op, later: Op) -> None:
        """Has one operator run before another one that it shares memory with."""
        self._graph.run_after(later, first)

    def accumulate(
        self,
        variable: str,
        value: str,
        output: str = "",
        *,
        way: Gathering,
        factor: Mapping[int, str] | None = None,
        for_each: bool = False,
        name: str = "",
    ) -> Op:
        """Brings a value into a variable."""
        inputs = {0: variable, 1: value} | self.streamed(factor or {})
        output = output or self.fresh(variable)
        told = way.attributes
        return self.add("Accumulate", inputs, output, for_each=for_each, attributes=told, name=name)

    def reduced(self, value: str, output: str = "") -> str:
        """The sum over replicas: of gradients as they come, or in place of what is added up."""
        type_ = "ReplicatedAllReduceInplace" if self.accumulates else "ReplicatedAllReduce"
        operator = CollectiveOperator.Mean if self.rule.keeps_means else CollectiveOperator.Add
        attributes = collective(
            [self._step.all_replicas, *self._shared_by(self.variable)], operator
        )
        output = output or self.fresh(value)
        return self.add(type_, {0: value}, output, writes=False, attributes=attributes).output

    def accumulated(self, final: str = "") -> str:
        """The gradient of all micro-batches and replicas; `final` is its name if it is new."""
        if not self.accumulates:
            return self.reduced(self.gradient, final) if self.reduces else self.gradient
        state = self.state("Accum")
        added = self._added_up(state, "" if self.reduces else final)
        return self.reduced(added, final) if self.reduces else added

    def _added_up(self, state: str, output: str) -> str:
        output = output or self.fresh(state)
        inputs = {0: state, 1: self.gradient}
        if self.rule.keeps_means:
            inputs[2] = self._counter()
        way = Gathering.MEAN if self.rule.keeps_means else Gathering.ADD
        told = way.attributes
        made = self.add("Accumulate", inputs, output, for_each=True, attributes=told)
        if self._turn is Turn.LAST_BUT_SUMS:
            made.settings = replace(made.settings, priority=sys.float_info.max)
        if self.rule.keeps_means:
            self._graph.run_after(self._counting(inputs[2]), made)
        return output

    def _counting(self, counter: str) -> Op:
        """What counts micro-batches."""
        return next(op for op in self._graph.consumers(counter) if op.input(0) == counter)

    def _counter(self) -> str:
        """How many micro-batches there were: one for each IPU and stage, begun where it is new."""
        settings = self._op.settings
        id = COUNTER
        id += "" if settings.ipu is None else f"_VGraph{settings.ipu}"
        id += "" if settings.stage is None else f"_PStage{settings.stage}"
        if id not in self._graph.infos:
            self.own_number(id)
            one = self._graph.constant("one", 1.0, _SCALAR)
            name = "_counterIncrement"
            counted = self.accumulate(id, one, way=Gathering.ADD, for_each=True, name=name)
            inputs = {0: counted.output}
            self.add("AccumulatorScale", inputs, self.fresh(id), name="_counterReset")
        return id

    @property
    def clears(self) -> bool:
        """Whether what gradients were added up in is emptied; a mean begins anew by itself."""
        return self.accumulates and not self.rule.keeps_means

    def clear(self, state: str, *after: Op) -> None:
        """Empties a state once these operators have read it."""
        made = self.add("AccumulatorScale", {0: state}, UPDATED + state)
        for op in after:
            self.order(op, made)
