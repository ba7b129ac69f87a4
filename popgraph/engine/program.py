"""A model as a program of micro-batches: its outputs, weights and host-written scalars."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, i32
from xdsl.ir import SSAValue

from popgraph.compiler import lower
from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.functions import CastOp
from popgraph.dialects.graphcore.random import SEED
from popgraph.dialects.onnx import model_of
from popgraph.dialects.program import GraphOp, WeightStore
from popgraph.engine.accumulators import (
    counts_large_gradients,
    differs_between_replicas,
    is_known_state,
)
from popgraph.engine.errors import UnknownOutputError
from popgraph.engine.grouped_weights import Grouped, rule_of_replicas
from popgraph.engine.host_scalars import HostScalars
from popgraph.engine.host_weights import InitialValues, WeightBinding, groups_of_variables
from popgraph.engine.program_code import ProgramCode
from popgraph.engine.streams import Stream
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.analysis.stage_notes import note_stage
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.spread_replicas import GROUPS
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
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import (
    DifferentiationError,
    PassError,
    PopgraphError,
    UnsupportedError,
)
from popgraph.support.memo import cached_property

_OF_LOSS_SCALE = {FACTOR, UPDATES}


@dataclass(frozen=True)
class Request:
    """The outputs of a program, and how they are computed."""

    outputs: tuple[str, ...]
    optimizer: OptimizerSpec | None = None
    variables: bool = False
    """Whether the host can change weights; always so in training."""
    frozen: tuple[str, ...] = ()
    """Weights that training does not update; the host may change them."""
    parts: tuple[str, ...] = ()
    """Weights that are trained in part, as in `Training`."""
    tracked: tuple[str, ...] = ()
    """Tensors whose gradients the host reads, if they have gradients."""
    watched: tuple[str, ...] = ()
    """Tensors that the host reads after each run, although steps do not return them."""
    narrowed: Collection[str] = ()
    """Outputs that are converted to i32."""
    loss: str | None = None
    tensors: Collection[str] = ()
    """Names of the model's tensors; an output is one of these, or a gradient of one."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """
    Outputs that are aliases of other tensors.

    A tensor restored in a pipeline is the one stashed before; states returned once a step are those
    after the update.
    """
    delayed: tuple[str, ...] = ()
    """Weights that the loss reads at an older value, written by the host."""
    stages: Mapping[str, int] = field(default_factory=dict)
    """In a pipeline, the stage that computes each tensor of the model."""
    disabled: frozenset[str] = frozenset()
    gradient_prefixes: tuple[str, ...] = (GRADIENT,)
    """Prefixes by which users name gradients."""
    replicas: Replication = field(default_factory=Replication)
    """The replicas that one run of the program executes."""
    grouped: Grouped = field(default_factory=dict)
    """Weights whose values differ between replicas."""
    code: Options = field(default_factory=Options)
    """Compiler options."""


@dataclass
class _OutputsByOrigin:
    """Outputs by origin: tensors of the model, gradients, values after the step."""

    tensors: list[str] = field(default_factory=list)
    gradients: list[str] = field(default_factory=list)
    after_step: list[str] = field(default_factory=list)


class Program:
    """
    A model as a graph of graphcore operations, ready to be built.

    Errors in the model are raised by the constructor; `code` only generates code.
    """

    def __init__(self, module: ModuleOp, weights: WeightStore, request: Request) -> None:
        """Lowers `module`, a model of static shapes, in place."""
        self._module, self._request = module, request
        self._compilation = Compilation(weights)
        graph = model_of(module).graph
        inputs = graph.input_names
        firsts = {op.value_name.text: op.array(weights) for op in graph.initializers}
        self._weight_names = frozenset(firsts)
        self._note_stages()
        self.replicas, self._rule = request.replicas, request.optimizer
        found = self._outputs_by_origin()
        self._after_step = frozenset(found.after_step)
        self.code = self._lowered(found)
        """The lowered program, and the options to build it."""
        self._loss_dtype = self._found_loss_dtype()
        self.tracked = tuple(self._found_tracked())
        self._keep_only_outputs()
        values = {id: self._graph.inputs[self.replicas.inputs(id)[0]] for id in inputs}
        self.inputs = _streams(values)
        self.unused_inputs = {id for id, value in values.items() if not value.uses}
        outputs = self._graph.outputs
        self.outputs = _streams({id: outputs[self.results(id)[0]] for id in request.outputs})
        self.streamed = self.scalars.of(self._rule) if self._rule else {}
        self.initial_values = self._first_values(firsts)

    @property
    def _graph(self) -> GraphOp:
        return only_graph(self._module)

    def _note_stages(self) -> None:
        for op in model_of(self._module).graph.nodes:
            for id in op.output_names:
                if id in self._request.stages:
                    note_stage(op, self._request.stages[id])
                    break

    @property
    def computed(self) -> tuple[str, ...]:
        """The outputs, then the tensors that only the host reads."""
        return tuple(dict.fromkeys([*self._request.outputs, *self._request.watched]))

    def _outputs_by_origin(self) -> _OutputsByOrigin:
        """Sorts the outputs: tensors of the model, gradients, or values that only training has."""
        known, rule = self._request.tensors, self._request.optimizer
        found = _OutputsByOrigin()
        for id in map(self._source, self.computed):
            if rule is not None and id in self._weight_names:
                found.after_step.append(id)
            elif id in known:
                found.tensors.append(id)
            elif rule is None or not is_known_state(id, rule):
                raise UnknownOutputError(id, known)
            elif counts_large_gradients(self._canonical(id), rule):
                found.after_step.append(self._canonical(id))
            elif self._canonical(id).startswith(GRADIENT):
                found.gradients.append(self._canonical(id).removeprefix(GRADIENT))
                if found.gradients[-1] not in known:
                    raise UnknownOutputError(id, known)
            else:
                found.after_step.append(id)
        return found

    def _source(self, id: str) -> str:
        """Resolves the alias of an output."""
        return self._request.aliases.get(id, id)

    def _canonical(self, id: str) -> str:
        """Replaces a user's gradient prefix by the compiler's."""
        for prefix in self._request.gradient_prefixes:
            if id.startswith(prefix):
                return GRADIENT + id.removeprefix(prefix)
        return id

    def _lowered(self, found: _OutputsByOrigin) -> ProgramCode:
        request = self._request
        shown = (id.removeprefix(UPDATED) for id in found.after_step)
        weights = [id for id in shown if id in self._weight_names]
        wanted = [*found.tensors, *found.gradients, *weights]  # they stay, read or not
        wanted += request.tracked
        training = None
        if request.optimizer is not None:
            assert request.loss is not None, "training needs a loss"
            wanted.append(request.loss)
            training = Training(
                request.loss,
                request.optimizer,
                tuple(found.gradients),
                tuple(found.after_step),
                request.frozen,
                request.tracked,
                request.delayed,
                request.parts,
            )
        options = replace(
            request.code,
            training=training,
            variables=request.variables,
            extra_outputs=tuple(dict.fromkeys(wanted)),
            disabled=request.disabled,
            replicas=self.replicas,
        )
        try:
            if not self.replicas.is_one:
                options = self._with_replicas(options)
            return ProgramCode.lowered_from(self._module, self._compilation, options)
        except (PassError, DifferentiationError) as error:
            raise self._as_unknown_output(error, found) from error

    def _with_replicas(self, options: Options) -> Options:
        """
        Lowers a program of several replicas to graphcore; returns the options of the remaining
        passes.
        """
        lower(self._module, self._compilation, options, until=OnnxToGraphcore.name)
        moved = {op.variable.text for op in self._graph.updates()}
        self.replicas = self.replicas.with_own(moved - {SEED})
        self._attach_group_values()
        training = options.training
        if training is not None:
            after = [one for id in training.after_step for one in self._states(id)]
            self._rule = self.rule_of_groups(training.optimizer)
            training = replace(
                training, optimizer=self._rule, after_step=tuple(dict.fromkeys(after))
            )
        return replace(options, replicas=self.replicas, training=training)

    def _attach_group_values(self) -> None:
        """Attaches the initial values of groups to their variables, as an attribute."""
        store = self._compilation.weights
        variables = {op.variable.text: op for op in self._graph.variables()}
        for id, weight in self._request.grouped.items():
            if not weight.is_stacked:
                continue
            if id not in variables:
                raise UnsupportedError(
                    f"{id} is constant and cannot differ between groups of replicas",
                    "groups",
                    "only floating-point weights can; make it an input, or use the same value for "
                    "all replicas",
                )
            firsts = [store.attribute(np.asarray(value)) for value in weight.first]
            copies = zip(
                self.replicas.variables(id), groups_of_variables(weight, self.replicas), strict=True
            )
            own = [firsts[group] for group in dict(copies).values()]
            variables[id].attributes[GROUPS] = ArrayAttr(own)

    def rule_of_groups(self, rule: OptimizerSpec) -> OptimizerSpec:
        """Extends the settings of each weight to the variables of its groups."""
        return rule_of_replicas(rule, self.replicas, self._weight_names)

    def _as_unknown_output(
        self, error: PassError | DifferentiationError, found: _OutputsByOrigin
    ) -> PopgraphError:
        """Converts an error about a nonexistent output to UnknownOutputError."""
        named = [GRADIENT + id for id in found.gradients] + found.after_step
        for id in named:
            plain = id.removeprefix(GRADIENT).removeprefix(UPDATED)
            if repr(plain) in error.what or repr(id) in error.what:
                asked = next((one for one in self.computed if self._source(one) == id), id)
                return UnknownOutputError(asked, self._request.tensors)
        return error

    def _keep_only_outputs(self) -> None:
        """Drops the model's own outputs unless they are requested."""
        outputs, narrowed = self._graph.outputs, self._request.narrowed
        kept = {}
        for id in self.computed:
            for name, source in zip(self.results(id), self._sources(id), strict=True):
                kept[name] = self._narrow(outputs[source]) if id in narrowed else outputs[source]
        set_outputs(self._graph, kept)

    def _narrow(self, value: SSAValue) -> SSAValue:
        cast = CastOp(value, to=i32)
        self._graph.block.insert_op_before(cast, self._graph.return_op)
        return cast.result

    def results(self, id: str) -> list[str]:
        """The results of an output, one per replica."""
        return self.replicas.copies(id)

    def _sources(self, id: str) -> list[str]:
        """The results from which an output comes, by the names that passes give them."""
        id = self._source(id)
        for name in (id, self._canonical(id)):
            if name in self._after_step:
                return self._states(name)
        outputs = self._graph.outputs
        for name in (id, self._canonical(id)):
            if (found := self.results(name))[0] in outputs:
                return found
        raise UnknownOutputError(id, outputs.keys())

    def _states(self, id: str) -> list[str]:
        """The results of a state after the step, one per replica."""
        found = self.replicas.states(id)
        is_own = id.startswith(ACCUMULATED) or len(set(found)) == 1
        differs = is_own and differs_between_replicas(id, self._request.optimizer)
        return self.replicas.copies(id) if differs else found

    @property
    def common_outputs(self) -> frozenset[str]:
        """State outputs that are the same on all replicas."""
        rule = self._request.optimizer
        return frozenset(
            id
            for id in self.computed
            if self._source(id) in self._after_step and not differs_between_replicas(id, rule)
        )

    @property
    def accumulators(self) -> set[str]:
        """Variables in which each replica accumulates its own outputs."""
        return {name for name in self.updated if name.startswith(OWN)}

    @property
    def computes(self) -> bool:
        """Whether any node of the model is needed, for an output or for an update."""
        given = {*self._graph.inputs, *self._weight_names}
        trains = self._request.optimizer is not None and self._weight_names
        return bool(trains) or not given.issuperset(self._request.outputs)

    def _first_values(self, weights: Mapping[str, Array]) -> dict[str, WeightBinding]:
        """The weights and the optimizer state before the first step."""
        firsts = InitialValues(weights, self._request.grouped, self.replicas, self._rule)
        store = self._compilation.weights
        variables = {op.variable.text: op.literal for op in self._graph.variables()}
        ours = {SEED, RANK, *self.streamed}
        return firsts.bindings(
            {
                name: store.array(literal)
                for name, literal in variables.items()
                if name not in ours and not name.startswith((DELAYED, OWN))
            }
        )

    @cached_property
    def changed_weights(self) -> set[str]:
        """The weights that a run changes. Cached: every step reads it."""
        names = {without_group(op.variable.text) for op in self._graph.updates()}
        return (names & self._weight_names) - _OF_LOSS_SCALE

    @property
    def delayed(self) -> set[str]:
        """Weights that the loss reads at an older value. Running statistics are not delayed."""
        names = (op.variable.text for op in self._graph.variables())
        return {name.removeprefix(DELAYED) for name in names if name.startswith(DELAYED)}

    @property
    def updated(self) -> set[str]:
        """The variables that a run changes, except the seed."""
        return {op.variable.text for op in self._graph.updates()} - {SEED}

    @property
    def forward_outputs(self) -> frozenset[str]:
        """The outputs that the forward pass computes."""
        return frozenset(self._forward_tensors & self.outputs.keys())

    @property
    def uses_seed(self) -> bool:
        return any(op.variable.text == SEED for op in self._graph.variables())

    @property
    def scalars(self) -> HostScalars:
        """The scalars of the optimizer that the host writes."""
        compiled = self._rule
        assert compiled is not None, "only training has an optimizer"
        variables = {op.variable.text: dtype_of(op.result) for op in self._graph.variables()}
        assert self._loss_dtype is not None, "training has a loss"
        return HostScalars(compiled, variables, self._loss_dtype)

    def _found_loss_dtype(self) -> DType | None:
        """The element type of the loss. Must run before results other than outputs are dropped."""
        loss = self._request.loss
        found = None if loss is None else self._graph.outputs.get(self.results(loss)[0])
        return None if found is None else dtype_of(found)

    def _found_tracked(self) -> Iterator[str]:
        """The results that are gradients of tracked tensors."""
        for id in self._request.tracked:
            if self.results(GRADIENT + id)[0] in self._graph.outputs:
                yield GRADIENT + id

    @property
    def _forward_tensors(self) -> set[str]:
        """The computed tensors that are neither gradients nor states after a step."""
        forward = set(self._request.tensors) - self._after_step
        return {id for id in self.computed if self._source(id) in forward}

    @property
    def forward_results(self) -> set[str]:
        """The results of the forward pass alone."""
        return {name for id in self._forward_tensors for name in self.results(id)}


def _streams(values: Mapping[str, SSAValue]) -> dict[str, Stream]:
    return {id: Stream(id, dtype_of(value), shape_of(value)) for id, value in values.items()}
