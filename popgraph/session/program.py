"""The program of a session, whose anchors, weights and scalars have PopART's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import ModuleOp, i32

from popgraph.backends.base import Executable
from popgraph.builder.opset.exceptions import popart_exception
from popgraph.builder.opset.tensorinfo import TensorInfo
from popgraph.builder.popart.names import GRADIENT
from popgraph.compiler import BuildRequest, for_this_machine, lower
from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.functions import CastOp
from popgraph.dialects.onnx import model_of
from popgraph.dialects.program import GraphOp
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training.add_optimizer import UPDATED, AddOptimizer
from popgraph.passes.onnx.to_graphcore import OnnxToGraphcore
from popgraph.passes.onnx.to_graphcore.context import SEED
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import Options, Training
from popgraph.session.aborts import take_aborts
from popgraph.session.buffers import Stream
from popgraph.session.model import SessionModel
from popgraph.session.popart_meaning import heed_popart
from popgraph.session.printed_tensors import Printed, printed_tensors
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import DifferentiationError, PassError
from popgraph.training.driver import HostScalars


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
    disabled: frozenset[str] = frozenset()
    gradient_prefixes: tuple[str, ...] = (GRADIENT,)
    """What the user's names of gradients may begin with."""
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
    `build` only makes code.
    """

    def __init__(self, model: SessionModel, request: Request) -> None:
        self._model, self._request = model, request
        self._compilation: Compilation = model.compilation()
        self._module: ModuleOp = model.module.clone()
        heed_popart(self._module, model.weights)
        self.infos: dict[str, TensorInfo] = model.infos()
        self.loss = model.final_loss
        self.aborts = take_aborts(self._module)
        self.printed = self._found_printed()
        self._lower(self._sorted_anchors())
        self._loss_row = self._found_loss_dtype()
        self.tracked = tuple(self._found_tracked())
        self._keep_only_anchors()
        self.inputs = self._streams(self._graph.inputs)
        outputs = self._streams(self._graph.outputs)
        self.outputs = {id: one for id, one in outputs.items() if id in self._request.anchors}
        self.unused_inputs = {id for id, value in self._graph.inputs.items() if not value.uses}
        self.streamed = self.scalars.of(request.optimizer) if request.optimizer else {}
        self.initial_values = self._first_values()
        for stream in (*self.inputs.values(), *self.outputs.values()):
            self.infos[stream.id] = TensorInfo(stream.dtype.popart, stream.shape)
        for id, array in self.initial_values.items():
            self.infos[id] = TensorInfo(array)

    @property
    def _graph(self) -> GraphOp:
        return only_graph(self._module)

    def _found_printed(self) -> dict[str, Printed]:
        loss = None if self._request.optimizer is None else self.loss
        graph = model_of(self._module).graph
        found = printed_tensors(graph, self._model.weights, loss)
        return {one.id: one for one in found}

    @property
    def _computed(self) -> tuple[str, ...]:
        """The anchors, and behind them what is only printed, or may end a step."""
        conditions = filter(None, self.aborts)
        return tuple(dict.fromkeys([*self._request.anchors, *self.printed, *conditions]))

    def _sorted_anchors(self) -> _Anchors:
        """Which anchors are tensors of the model, gradients, or what only training knows."""
        known = {name for name, _ in self._model.values()}
        weights = self._model.weight_names
        found = _Anchors()
        for id in self._computed:
            if self._request.optimizer is not None and id in weights:
                found.after_step.append(id)
            elif id in known:
                found.tensors.append(id)
            elif self._request.optimizer is None:
                raise _no_such_anchor(id, known)
            elif self._canonical(id).startswith(GRADIENT):
                found.gradients.append(self._canonical(id).removeprefix(GRADIENT))
                if found.gradients[-1] not in known:
                    raise _no_such_anchor(id, known)
            else:
                found.after_step.append(id)
        return found

    def _canonical(self, id: str) -> str:
        """An anchor that is no tensor of the model, with the prefix that training gives it."""
        for prefix in self._request.gradient_prefixes:
            if id.startswith(prefix):
                return GRADIENT + id.removeprefix(prefix)
        return id

    def _lower(self, anchors: _Anchors) -> None:
        weights = [id for id in anchors.after_step if id in self._model.weight_names]
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
            )
        options = replace(
            self._request.code,
            training=training,
            variables=self._request.variables,
            extra_outputs=tuple(dict.fromkeys(wanted)),
            disabled=self._request.disabled,
        )
        last = OnnxToGraphcore.name if training is None else AddOptimizer.name
        try:
            lower(self._module, self._compilation, options, until=last)
        except (PassError, DifferentiationError) as error:
            raise self._as_anchor_error(error, anchors) from error
        # What training adds is in the graph now; it must not be added again.
        self._options = replace(options, training=None, extra_outputs=())

    def _as_anchor_error(
        self, error: PassError | DifferentiationError, anchors: _Anchors
    ) -> Exception:
        """PopART's words for an anchor that does not exist."""
        named = [GRADIENT + id for id in anchors.gradients] + anchors.after_step
        for id in named:
            plain = id.removeprefix(GRADIENT).removeprefix(UPDATED)
            if repr(plain) in error.what:
                return _no_such_anchor(id, {name for name, _ in self._model.values()})
        return error

    def _keep_only_anchors(self) -> None:
        """The model's own outputs are computed only where they are anchored."""
        outputs = self._graph.outputs
        wanted = (*self._computed, *self.tracked)
        kept = {id: outputs[id if id in outputs else self._canonical(id)] for id in wanted}
        for id in filter(self._model.places.__contains__, list(kept)):
            cast = CastOp(kept[id], to=i32)
            self._graph.block.insert_op_before(cast, self._graph.return_op)
            kept[id] = cast.result
        set_outputs(self._graph, kept)

    def check_work(self) -> None:
        """Refuses a model of which no node is needed for an anchor or for a weight."""
        weights = self._model.weight_names
        given = {*self._graph.inputs, *weights}
        trained = self._request.optimizer is not None and weights
        if not trained and given.issuperset(self._request.anchors):
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

    def _first_values(self) -> dict[str, Array]:
        """The weights and the optimizer's state, before the first step."""
        initial = self._model.initializers()
        store = self._compilation.weights
        for op in self._graph.variables():
            name = op.variable.text
            if name != SEED and name not in self.streamed:
                initial.setdefault(name, store.array(op.literal))
        return initial

    @property
    def moved(self) -> set[str]:
        """The weights that a run changes."""
        return {op.variable.text for op in self._graph.updates()} & self._model.weight_names

    @property
    def uses_seed(self) -> bool:
        return any(op.variable.text == SEED for op in self._graph.variables())

    @property
    def scalars(self) -> HostScalars:
        """What the host writes of the optimizer."""
        compiled = self._request.optimizer
        assert compiled is not None, "only training has an optimizer"
        variables = {op.variable.text: dtype_of(op.result) for op in self._graph.variables()}
        assert self._loss_row is not None, "training has a loss"
        return HostScalars(compiled, variables, self._loss_row)

    def _found_loss_dtype(self) -> DType | None:
        """Of the loss, which is among the outputs until only the anchors are."""
        found = None if self.loss is None else self._graph.outputs.get(self.loss)
        return None if found is None else dtype_of(found)

    def _found_tracked(self) -> Iterator[str]:
        """The results that are gradients of tracked tensors."""
        for id in self._request.tracked:
            if GRADIENT + id in self._graph.outputs:
                yield GRADIENT + id

    def build(self, backend: str, threads: int) -> Executable:
        """Makes the code."""
        return self._build_request(backend, threads).executable()

    def lowered(self, threads: int) -> BuildRequest:
        """The program of kernels, as `build` compiles it for the C backend."""
        request = self._build_request("c", threads)
        options = for_this_machine(request.options, threads)
        lower(request.module, request.compilation, options)
        return request

    def _build_request(self, backend: str, threads: int) -> BuildRequest:
        module = self._module.clone()
        return BuildRequest(module, self._compilation, self._options, backend, threads)


def _no_such_anchor(id: str, known: Iterable[str]) -> popart_exception:
    message = f"Anchor tensor `{id}' not in Ir Tensors. "
    tensor = id.removeprefix(GRADIENT)
    if tensor != id and tensor in set(known):
        message += (
            f"The tensor `{tensor}' exists, but has no gradient: no differentiable path leads from "
            "it to the loss, or the session does not train."
        )
    return popart_exception(message)
