"""Transfers weights and optimizer states between host, program and files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from popgraph.builder.onnx.external_weights import append
from popgraph.compiler.saving import check_kind, save_model
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.engine.host_weights import HostWeights
from popgraph.engine.replicas import Replicas
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training.update_rules import VELOCITY
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.popart.exceptions import as_popart_errors, popart_runtime_error, writing
from popgraph.popart.model.model import SessionModel, Source
from popgraph.popart.sessions.device_engine import DeviceEngine
from popgraph.popart.sessions.export import (
    model_with_weights,
    places_of_states,
    relocated,
    weights_of,
)
from popgraph.popart.sessions.setup import Setup
from popgraph.support.arrays import Array
from popgraph.support.ranks.world import world
from popgraph.support.writing import write_file
from popgraph.training.inference_form import to_inference
from popgraph.training.inference_model import without_loss
from popgraph.training.open_batch import open_batch
from popgraph.training.trained_weights import put_weights


class WeightTransfers:
    """Transfers the weights and optimizer states of a session."""

    def __init__(
        self, setup: Setup, engine: DeviceEngine, replicas: Replicas, host: HostWeights
    ) -> None:
        self._setup, self._engine, self._replicas, self.host = setup, engine, replicas, host
        self.sent = False
        """Whether the program has the host's weights."""

    def send(self) -> None:
        self.host.send(self._engine.prepared_for("weightsFromHost()"))
        self._replicas.restart()
        self.sent = True

    def fetch(self) -> None:
        call = "weightsToHost(const std::map<TensorId, MutableVoidData> &)"
        executable = self._engine.prepared_for(call)
        if self._setup.draws_data:  # weights that saw no data stay on the device
            return
        self._replicas.enter(executable, 0)
        self.host.fetch(executable, self._setup.share.broadcast)

    def fetch_and_keep(self) -> Mapping[str, Array]:
        """Fetches weights and states, and keeps them for the next `weightsFromHost`."""
        self.fetch()
        if not self._setup.constant_weights:
            self.host.keep_fetched()
        return self.host.values()

    def broadcast(self, root: int) -> None:
        """Copies the weights and states on the device of one rank to all ranks."""
        if self._setup.share.own.ranks == 1:
            return
        self.fetch()
        self.host.keep_fetched()
        self.host.take(world().broadcast(dict(self.host.values()), root))
        self.send()

    def read(self, targets: Mapping[str, Array]) -> None:
        with as_popart_errors():
            self.host.read(targets)

    def write(self, sources: Mapping[str, Array]) -> None:
        self._refuse_if_constant("writeWeights")
        with as_popart_errors():
            self.host.write(sources)

    def reset(self, source: Source, ignore_unknown: bool) -> None:
        self._refuse_if_constant("resetHostWeights")
        found = weights_of(source, self._setup.options)
        with as_popart_errors():
            self.host.reset(found, ignore_unknown)
        self.sent = False

    def _refuse_if_constant(self, call: str) -> None:
        if self._setup.constant_weights:
            raise popart_runtime_error(
                f"Cannot call {call} when constantWeights is set. Set `constantWeights` to False "
                "in the `SessionOption`s when initialising the session to enable this behaviour."
            )

    def check_sent(self) -> None:
        """Refuses a training step before weights are sent."""
        setup = self._setup
        in_shares = setup.share.own.ranks > 1 and setup.options.weights_sharded_from
        insists = setup.behaviour.insists_on_weights or in_shares
        if setup.trains and not self.sent and insists and setup.model.weight_names:
            raise popart_runtime_error(
                "Must call weightsFromHost before run as the model has initializers and the "
                "session has been created in training mode"
            )

    def write_model(self, filename: str | Path) -> None:
        setup, values = self._setup, self.fetch_and_keep()
        with as_popart_errors():
            kept = {id: values[id] for id in self._saved(values)}
            content = model_with_weights(setup.model, kept, setup.external)
            if setup.share.writes:
                with writing(f"Failed to open file {filename}"):
                    write_file(filename, [content])

    def place_states(self) -> None:
        """Appends states to the files of their weights, to which `modelToHost` then writes."""
        external, values = self._setup.external, self.host.values()
        places = places_of_states({id: values[id] for id in self._saved(values)}, external)
        external |= places
        if self._setup.share.writes:
            with as_popart_errors():
                append({id: values[id].tobytes() for id in places}, places)

    def _saved(self, ids: Collection[str]) -> list[str]:
        """
        The weights, and the states unless options keep them on the device.

        Accumulators are zero between steps, so PopART never saves them. A velocity that is also an
        accumulator is kept on the device only if both options say so.
        """
        return [id for id in ids if id in self._setup.model.weight_names or self._is_saved(id)]

    def _is_saved(self, state: str) -> bool:
        options = self._setup.options
        if state == COUNTER or state.startswith(ACCUMULATED):
            return False
        both = state.startswith(VELOCITY) and not options.disableGradAccumulationTensorStreams
        return both or not options.disableOptimizerStateTensorStreams

    def save(self, path: str | Path) -> None:
        values = self.fetch_and_keep()
        if self._setup.share.writes:
            save_inference(Path(path), self._setup.model, values)

    def relocate(self, source: str, target: str) -> None:
        with as_popart_errors():
            self._setup.external |= relocated(self._setup.external, source, target)


def save_inference(path: Path, model: SessionModel, values: Mapping[str, Array]) -> None:
    """Writes a model with these weights, without loss and labels, for any batch size."""
    check_kind(path)
    loss, store = model.final_loss, WeightStore(model.weights)
    module = model.module.clone() if loss is None else without_loss(model.module, loss)
    held = weights_by_name(model_of(module).graph)
    put_weights(module, {name: one for name, one in values.items() if name in held}, store)
    to_inference(module)
    save_model(path, open_batch(module, store, {}) or module, Compilation(store))
