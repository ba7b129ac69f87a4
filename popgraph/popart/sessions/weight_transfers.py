"""The ways of weights and optimizer states between host, program and files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from popgraph.builder.onnx.external import Place
from popgraph.builder.onnx.external_weights import append
from popgraph.builder.opset.arguments import typed
from popgraph.passes.graphcore.training.update_rules import VELOCITY
from popgraph.passes.graphcore.training.variables import COUNTER
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.step_io import PyWeightsIO
from popgraph.popart.exceptions import as_popart_errors, popart_runtime_error, writing
from popgraph.popart.model.model import SessionModel, Source
from popgraph.popart.programs.weights import HostWeights
from popgraph.popart.sessions.engine import Engine
from popgraph.popart.sessions.export import (
    model_with_weights,
    places_of_states,
    relocated,
    weights_of,
)
from popgraph.popart.sessions.inference_file import save_inference
from popgraph.popart.sessions.replicas import Replicas
from popgraph.popart.sessions.split import Share
from popgraph.popart.sessions.synthetic import SyntheticIO
from popgraph.support.arrays import Array
from popgraph.support.logs import log_of
from popgraph.support.writing import write_file

_LOG = log_of("session")


@typed
class WeightTransfers(ABC):
    """Methods of a session that move weights and optimizer states."""

    _engine: Engine
    _external: dict[str, Place]
    _model: SessionModel
    _options: SessionOptions
    _replicas: Replicas
    _sent: bool
    _share: Share
    _synthetic: SyntheticIO | None
    _weights: HostWeights

    @property
    @abstractmethod
    def _constant_weights(self) -> bool: ...

    def weightsFromHost(self) -> None:
        """Sends the host's weights and optimizer state to the program."""
        _LOG.debug("Session::weightsFromHost()")
        self._weights.send(self._engine.prepared_for("weightsFromHost()"))
        self._replicas.restart()
        self._sent = True

    def optimizerFromHost(self) -> None:
        """Of old programs: sends the optimizer's values, of which only training has any."""
        self._engine.prepared_for("optimizerFromHost()")

    def weightsToHost(self) -> None:
        """Fetches the weights and optimizer state, for `readWeights` to hand out."""
        _LOG.debug("Session::weightsToHost()")
        call = "weightsToHost(const std::map<TensorId, MutableVoidData> &)"
        executable = self._engine.prepared_for(call)
        if self._synthetic:  # weights that saw no data stay on the device
            return
        self._replicas.enter(executable, 0)
        self._weights.fetch(executable, self._share.agreed)

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copies the weights that `weightsToHost` fetched into the user's arrays."""
        self._weights.read(weightsIo.weights)

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Takes new weights; `weightsFromHost` sends them."""
        self._refuse_if_constant("writeWeights")
        self._weights.write(weightsIo.weights)

    def weights(self) -> Mapping[str, Array]:
        """The weights and states that `weightsToHost` fetched, by name."""
        return self._weights.fetched()

    def resetHostWeights(
        self,
        modelProtoOrFilename: Source,
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Takes the weights of another model; `weightsFromHost` sends them."""
        self._refuse_if_constant("resetHostWeights")
        self._weights.reset(
            weights_of(modelProtoOrFilename, self._options),
            ignoreWeightsInModelWithoutCorrespondingHostWeight,
        )
        self._sent = False

    def _refuse_if_constant(self, call: str) -> None:
        if self._constant_weights:
            raise popart_runtime_error(
                f"Cannot call {call} when constantWeights is set. Set `constantWeights` to False "
                "in the `SessionOption`s when initialising the session to enable this behaviour."
            )

    def modelToHost(self, filename: str | Path) -> None:
        """Writes the model with its weights and optimizer state as they are now."""
        _LOG.debug("Session::modelToHost(%s)", filename)
        values = self._current_weights()
        with as_popart_errors():
            kept = {id: values[id] for id in values if self._is_saved(id)}
            content = model_with_weights(self._model, kept, self._external)
            if self._share.writes:
                with writing(f"Failed to open file {filename}"):
                    write_file(filename, [content])

    def _place_states(self) -> None:
        """Adds states to the files of their weights, where `modelToHost` will write them."""
        values = self._weights.values()
        kept = {id: values[id] for id in values if self._is_saved(id)}
        places = places_of_states(kept, self._external)
        self._external |= places
        if self._share.writes:
            with as_popart_errors():
                append({id: values[id].tobytes() for id in places}, places)

    def _is_saved(self, id: str) -> bool:
        """
        Weights are, and states, unless options keep them on the device.

        Accumulators are zero between steps, so PopART never saves them; a velocity that is one
        as well stays only where both options say so.
        """
        options = self._options
        if id in self._model.weight_names:
            return True
        if id == COUNTER or id.startswith(ACCUMULATED):
            return False
        both = id.startswith(VELOCITY) and not options.disableGradAccumulationTensorStreams
        return both or not options.disableOptimizerStateTensorStreams

    def save(self, path: str | Path) -> None:
        """
        Writes the model with its weights as they are now for inference, as .onnx or .pgraph.

        Its loss and its labels are gone, BatchNormalization uses the running statistics, Dropout
        drops nothing, and batches have any size if the model lets them: any program that runs
        ONNX takes the file. PopART's `modelToHost` writes what was trained, losses included.
        """
        values = self._current_weights()
        if self._share.writes:
            save_inference(Path(path), self._model, values)

    def _current_weights(self) -> Mapping[str, Array]:
        """Weights and states, fetched and kept for the next `weightsFromHost`."""
        self.weightsToHost()
        if not self._constant_weights:
            self._weights.keep_fetched()
        return self._weights.values()

    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str) -> None:
        """Copies weights that stand in a file to another one, where `modelToHost` then writes."""
        with as_popart_errors():
            self._external |= relocated(self._external, fromLocation, toLocation)
