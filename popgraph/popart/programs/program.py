"""The program of a session, whose anchors, weights and scalars have PopART's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, i32
from xdsl.ir import SSAValue

from popgraph.compiler import lower
from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.functions import CastOp
from popgraph.dialects.graphcore.random import SEED
from popgraph.dialects.onnx import OnnxOp, model_of
from popgraph.dialects.program import GraphOp
from popgraph.engine.accumulators import counts_gradient, is_accumulated, is_of_replica
from popgraph.engine.host_scalars import HostScalars
from popgraph.engine.program_code import ProgramCode
from popgraph.engine.replica_rules import rule_of_replicas
from popgraph.measure.ipu import IpuModel
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.analysis.notes import noted
from popgraph.passes.analysis.stage_notes import put_on_stage
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.bucket_exchanges import BucketExchanges
from popgraph.passes.graphcore.round_stochastically import RoundStochastically
from popgraph.passes.graphcore.spread_replicas import GROUPS, SpreadReplicas
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.autodiff import DELAYED
from popgraph.passes.graphcore.training.loss_scale import UPDATES
from popgraph.passes.graphcore.training.ranks import RANK
from popgraph.passes.graphcore.training.replica_accumulators import OWN
from popgraph.passes.graphcore.training.variables import UPDATED
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.optimizer_spec import FACTOR, OptimizerSpec
from popgraph.passes.options import GRADIENT, Options, Training
from popgraph.passes.replication import Replication, without_group
from popgraph.popart.api.step_io import Stream
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import popart_exception, popart_unsupported_exception
from popgraph.popart.ir import NODE, Ir, Placement
from popgraph.popart.model.aborts import take_aborts
from popgraph.popart.model.grouped_weights import Grouped
from popgraph.popart.model.model import SessionModel
from popgraph.popart.model.popart_meaning import heed_popart
from popgraph.popart.programs.automatic_loss_scaling import check_tracked
from popgraph.popart.programs.first_values import FirstValues, held_groups
from popgraph.popart.programs.printed_tensors import Printed, printed_tensors
from popgraph.popart.programs.weights import Held
from popgraph.support.dtypes import DType
from popgraph.support.errors import DifferentiationError, PassError
from popgraph.support.ipu import Ipu

_OF_LOSS_SCALE = {FACTOR, UPDATES}


@dataclass(frozen=True)
class Request:
    """What a session wants of its model."""

    anchors: tuple[str, ...]
    optimizer: OptimizerSpec | None = None
    variables: bool = False
    """Weights can be changed by the host (always so in training)."""
    frozen: tuple[str, ...] = ()
    """Weights that steps of training leave as they are; the host may change them."""
    tracked: tuple[str, ...] = ()
    """Tensors whose gradients the host looks at, where they have any."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """
    Anchors that are other tensors: what a pipeline restores is what it has stashed, and states that
    come back once a step are those after the update.
    """
    delayed: tuple[str, ...] = ()
    """Weights of which the loss reads an older value, which the host gives."""
    stages: Mapping[str, int] = field(default_factory=dict)
    """In a pipeline, the stage that computes each tensor of the model."""
    disabled: frozenset[str] = frozenset()
    gradient_prefixes: tuple[str, ...] = (GRADIENT,)
    """What the user's names of gradients may begin with."""
    replicas: Replication = field(default_factory=Replication)
    """The replicas that one run of the program is of."""
    grouped: Grouped = field(default_factory=dict)
    """Weights that not all of them have in common."""
    code: Options = field(default_factory=Options)
    """How code is made."""


@dataclass
class _Anchors:
    """The anchors, by where each comes from."""

    tensors: list[str] = field(default_factory=list)
    gradients: list[str] = field(default_factory=list)
    after_step: list[str] = field(default_factory=list)


class Program:
    """
    A model as a graph of graphcore operations, ready to be built.

    Errors in the model show when this is made, as PopART reports them when a session is made;
    `code` only makes code.
    """

    def __init__(self, model: SessionModel, request: Request) -> None:
        self._model, self._request = model, request
        self._compilation: Compilation = model.compilation()
        self._module: ModuleOp = model.module.clone()
        self.nodes = tuple(op for op in model.module.walk() if isinstance(op, OnnxOp))
        """The nodes of the model, as operations of the graph note their numbers."""
        self._note_nodes()
        self._note_stages()
        heed_popart(self._module, model.weights, any_label=request.code.indices is None)
        self.infos: dict[str, TensorInfo] = model.infos()
        self.loss = model.final_loss
        self.aborts = take_aborts(self._module)
        self.printed = self._found_printed()
        self.replicas, self._rule = request.replicas, request.optimizer
        anchors = self._sorted_anchors()
        self._after_step = frozenset(anchors.after_step)
        self._lower(anchors)
        self._loss_row = self._found_loss_dtype()
        self.tracked = tuple(self._found_tracked())
        check_tracked(self.tracked, request.optimizer)
        self._keep_only_anchors()
        inputs = {
            id: self._graph.inputs[self.replicas.inputs(id)[0]] for id in model.graph.input_names
        }
        self.inputs = self._streams(inputs)
        outputs = {id: self._graph.outputs[self.results(id)[0]] for id in request.anchors}
        self.outputs = self._streams(outputs)
        self.unused_inputs = {id for id, value in inputs.items() if not value.uses}
        self.streamed = self.scalars.of(self._rule) if self._rule else {}
        self.initial_values = self._first_values()
        for stream in (*self.inputs.values(), *self.outputs.values()):
            self.infos[stream.id] = TensorInfo(stream.dtype.popart, stream.shape)
        for id, one in self.initial_values.items():
            self.infos[id] = TensorInfo(one.of_group(0))

    @property
    def _graph(self) -> GraphOp:
        return only_graph(self._module)

    def ir(self, placement: Placement) -> Ir:
        """The graph as PopART's IR."""
        return Ir(self._module, self._model, self.nodes, placement)

    def _note_nodes(self) -> None:
        nodes = (op for op in self._module.walk() if isinstance(op, OnnxOp))
        for number, op in enumerate(nodes):
            op.location = noted(op.location, [f"{NODE} {number}"])

    def _note_stages(self) -> None:
        for op in model_of(self._module).graph.nodes:
            for id in op.output_names:
                if id in self._request.stages:
                    put_on_stage(op, self._request.stages[id])
                    break

    def _found_printed(self) -> dict[str, Printed]:
        loss = None if self._request.optimizer is None else self.loss
        graph = model_of(self._module).graph
        found = printed_tensors(graph, self._model.weights, loss)
        return {one.id: one for one in found}

    @property
    def computed(self) -> tuple[str, ...]:
        """The anchors, and behind them what is only printed, or may end a step."""
        conditions = filter(None, self.aborts)
        return tuple(dict.fromkeys([*self._request.anchors, *self.printed, *conditions]))

    @property
    def _known(self) -> set[str]:
        """The tensors of the model, and those that hold conditions to abort."""
        return {name for name, _ in self._model.values()} | set(filter(None, self.aborts))

    def _sorted_anchors(self) -> _Anchors:
        """Which anchors are tensors of the model, gradients, or what only training knows."""
        known = self._known
        weights = self._model.weight_names
        found = _Anchors()
        for id in map(self._source, self.computed):
            if self._request.optimizer is not None and id in weights:
                found.after_step.append(id)
            elif id in known:
                found.tensors.append(id)
            elif self._request.optimizer is None or not is_accumulated(id, self._request.optimizer):
                raise _no_such_anchor(id, known)
            elif counts_gradient(self._canonical(id), self._request.optimizer):
                found.after_step.append(self._canonical(id))
            elif self._canonical(id).startswith(GRADIENT):
                found.gradients.append(self._canonical(id).removeprefix(GRADIENT))
                if found.gradients[-1] not in known:
                    raise _no_such_anchor(id, known)
            else:
                found.after_step.append(id)
        return found

    def _source(self, id: str) -> str:
        """The tensor that an anchor is."""
        return self._request.aliases.get(id, id)

    def _canonical(self, id: str) -> str:
        """An anchor that is no tensor of the model, with the prefix that training gives it."""
        for prefix in self._request.gradient_prefixes:
            if id.startswith(prefix):
                return GRADIENT + id.removeprefix(prefix)
        return id

    def _lower(self, anchors: _Anchors) -> None:
        shown = (id.removeprefix(UPDATED) for id in anchors.after_step)
        weights = [id for id in shown if id in self._model.weight_names]
        wanted = [*anchors.tensors, *anchors.gradients, *weights]  # they stay, read or not
        wanted += self._request.tracked
        training = None
        if self._request.optimizer is not None:
            assert self.loss is not None, "training needs a loss"
            wanted.append(self.loss)
            training = Training(
                self.loss,
                self._request.optimizer,
                tuple(anchors.gradients),
                tuple(anchors.after_step),
                self._request.frozen,
                self._request.tracked,
                self._request.delayed,
            )
        options = replace(
            self._request.code,
            training=training,
            variables=self._request.variables,
            extra_outputs=tuple(dict.fromkeys(wanted)),
            disabled=self._request.disabled,
            replicas=self.replicas,
        )
        last = OnnxToGraphcore.name if training is None else AddOptimizer.name
        try:
            if not self.replicas.is_one:
                last = SpreadReplicas.name if training is None else last
                options = self._with_replicas(options)
            if BucketExchanges.of(options) and BucketExchanges.name not in options.disabled:
                last = BucketExchanges.name
            if options.stochastic_rounding:
                last = RoundStochastically.name
            lower(self._module, self._compilation, options, until=last)
        except (PassError, DifferentiationError) as error:
            raise self._as_anchor_error(error, anchors) from error
        # What training adds is in the graph now, and all replicas: they must not be added again.
        self._options = replace(
            options, training=None, extra_outputs=(), replicas=None, stochastic_rounding=False
        )

    def _with_replicas(self, options: Options) -> Options:
        """What is left to be done with a program of several replicas, now of one as graphcore."""
        lower(self._module, self._compilation, options, until=OnnxToGraphcore.name)
        moved = {op.variable.text for op in self._graph.updates()}
        self.replicas = self.replicas.with_own(moved - {SEED})
        self._tell_groups()
        training = options.training
        if training is not None:
            after = [one for id in training.after_step for one in self._states(id)]
            self._rule = self.rule_of_groups(training.optimizer)
            training = replace(
                training, optimizer=self._rule, after_step=tuple(dict.fromkeys(after))
            )
        return replace(options, replicas=self.replicas, training=training)

    def _tell_groups(self) -> None:
        """Puts the first values of groups on their variables, as an attribute."""
        store = self._compilation.weights
        variables = {op.variable.text: op for op in self._graph.variables()}
        for id, weight in self._request.grouped.items():
            if not weight.is_stacked:
                continue
            if id not in variables:
                raise popart_unsupported_exception(
                    f"groups of replicas cannot have {id} apart, which is constant",
                    "VariableSettings",
                    "weights of floats can; make it an input, or give all replicas the same",
                )
            firsts = [store.attribute(np.asarray(value)) for value in weight.first]
            copies = zip(
                self.replicas.variables(id), held_groups(weight, self.replicas), strict=True
            )
            own = [firsts[group] for group in dict(copies).values()]
            variables[id].attributes[GROUPS] = ArrayAttr(own)

    def rule_of_groups(self, rule: OptimizerSpec) -> OptimizerSpec:
        """An update rule that says of the weights of each group what it says of a weight."""
        return rule_of_replicas(rule, self.replicas, self._model.weight_names)

    def _as_anchor_error(
        self, error: PassError | DifferentiationError, anchors: _Anchors
    ) -> Exception:
        """PopART's words for an anchor that does not exist."""
        named = [GRADIENT + id for id in anchors.gradients] + anchors.after_step
        for id in named:
            plain = id.removeprefix(GRADIENT).removeprefix(UPDATED)
            if repr(plain) in error.what or repr(id) in error.what:
                asked = next((one for one in self.computed if self._source(one) == id), id)
                return _no_such_anchor(asked, {name for name, _ in self._model.values()})
        return error

    def _keep_only_anchors(self) -> None:
        """The model's own outputs are computed only where they are anchored."""
        outputs = self._graph.outputs
        places = self._model.places
        kept = {}
        for id in self.computed:
            for name, source in zip(self.results(id), self._sources(id), strict=True):
                kept[name] = self._as_place(outputs[source]) if id in places else outputs[source]
        set_outputs(self._graph, kept)

    def _as_place(self, value: SSAValue) -> SSAValue:
        cast = CastOp(value, to=i32)
        self._graph.block.insert_op_before(cast, self._graph.return_op)
        return cast.result

    def results(self, id: str) -> list[str]:
        """The results that an anchor is, replica by replica."""
        return self.replicas.copies(id)

    def _sources(self, id: str) -> list[str]:
        """The outputs that an anchor comes from, under the names that passes give them."""
        id = self._source(id)
        for name in (id, self._canonical(id)):
            if name in self._after_step:
                return self._states(name)
        outputs = self._graph.outputs
        for name in (id, self._canonical(id)):
            if (found := self.results(name))[0] in outputs:
                return found
        raise _no_such_anchor(id, outputs)

    def _states(self, id: str) -> list[str]:
        """What a state is after the step, replica by replica."""
        found = self.replicas.states(id)
        is_own = id.startswith(ACCUMULATED) or len(set(found)) == 1
        differs = is_own and is_of_replica(id, self._request.optimizer)
        return self.replicas.copies(id) if differs else found

    @property
    def of_all_replicas(self) -> frozenset[str]:
        """The anchors of states that all replicas have in common."""
        rule = self._request.optimizer
        return frozenset(
            id
            for id in self.computed
            if self._source(id) in self._after_step and not is_of_replica(id, rule)
        )

    @property
    def accumulators(self) -> set[str]:
        """The variables in which a replica adds up what is its own, for anchors."""
        return {name for name in self.updated if name.startswith(OWN)}

    def check_work(self) -> None:
        """Refuses a model of which no node is needed for an anchor or for a weight."""
        weights, trains = self._model.weight_names, self._request.optimizer is not None
        if not trains and not self._request.anchors:
            return  # The session has agreed to compute nothing.
        given = {*self._graph.inputs, *weights}
        if not (trains and weights) and given.issuperset(self._request.anchors):
            raise popart_exception(
                "All operations in the main graph were pruned, nothing to compute",
                "DataFlow",
                "anchor what a node computes",
            )

    def _streams(self, values: Mapping[str, object]) -> dict[str, Stream]:
        return {
            id: Stream(id, dtype_of(value), shape_of(value))  # type: ignore[arg-type]
            for id, value in values.items()
        }

    def _first_values(self) -> dict[str, Held]:
        """The weights and the optimizer's state, before the first step."""
        firsts = FirstValues(
            self._model.initializers(), self._request.grouped, self.replicas, self._rule
        )
        store = self._compilation.weights
        variables = {op.variable.text: op.literal for op in self._graph.variables()}
        ours = {SEED, RANK, *self.streamed}
        return firsts.held(
            {
                name: store.array(literal)
                for name, literal in variables.items()
                if name not in ours and not name.startswith((DELAYED, OWN))
            }
        )

    @cached_property
    def moved(self) -> set[str]:
        """The weights that a run changes; sessions ask in every step."""
        names = {without_group(op.variable.text) for op in self._graph.updates()}
        return (names & self._model.weight_names) - _OF_LOSS_SCALE

    @property
    def delayed(self) -> set[str]:
        """The weights of which the loss reads an older value: of running statistics it does not."""
        names = (op.variable.text for op in self._graph.variables())
        return {name.removeprefix(DELAYED) for name in names if name.startswith(DELAYED)}

    @property
    def updated(self) -> set[str]:
        """The variables that a run changes, but for the seed."""
        return {op.variable.text for op in self._graph.updates()} - {SEED}

    @property
    def of_forward(self) -> frozenset[str]:
        """The anchors that are tensors of the model, as the forward pass computes them."""
        return frozenset(self._known_to_forward & self.outputs.keys())

    @property
    def uses_seed(self) -> bool:
        return any(op.variable.text == SEED for op in self._graph.variables())

    @property
    def scalars(self) -> HostScalars:
        """What the host writes of the optimizer."""
        compiled = self._rule
        assert compiled is not None, "only training has an optimizer"
        variables = {op.variable.text: dtype_of(op.result) for op in self._graph.variables()}
        assert self._loss_row is not None, "training has a loss"
        return HostScalars(compiled, variables, self._loss_row)

    def _found_loss_dtype(self) -> DType | None:
        """Of the loss, which is among the outputs until only the anchors are."""
        found = None if self.loss is None else self._graph.outputs.get(self.results(self.loss)[0])
        return None if found is None else dtype_of(found)

    def _found_tracked(self) -> Iterator[str]:
        """The results that are gradients of tracked tensors."""
        for id in self._request.tracked:
            if self.results(GRADIENT + id)[0] in self._graph.outputs:
                yield GRADIENT + id

    @property
    def _known_to_forward(self) -> set[str]:
        """What is computed and no gradient, nor a state after a step."""
        forward = self._known - self._after_step
        return {id for id in self.computed if self._source(id) in forward}

    @property
    def forward_results(self) -> set[str]:
        """The results that the forward pass alone has."""
        return {name for id in self._known_to_forward for name in self.results(id)}

    def on_ipus(self, ipu: Ipu) -> IpuModel:
        """The program as the model of these IPUs has it."""
        return IpuModel.of(self._module, self._compilation, self._options, ipu)

    @property
    def code(self) -> ProgramCode:
        """What is made of it."""
        period = 1 if self._rule is None else self._rule.period
        return ProgramCode(self._module, self._compilation, self._options, period)


def _no_such_anchor(id: str, known: Iterable[str]) -> popart_exception:
    message = f"Anchor tensor `{id}' not in Ir Tensors. "
    tensor, tensors = id.removeprefix(GRADIENT), set(known)
    if tensor == id:
        message += f"The tensors are:\n[{' '.join(sorted(tensors))}]"
    elif tensor in tensors:
        message += (
            f"\nInterestingly, `{tensor}' IS in tensors.\n"
            "Note that not all tensors can have their gradients anchored:\n"
            "if an activation tensor does not lead to the loss,\n"
            "its gradient is zero and never computed."
        )
    return popart_exception(message)
