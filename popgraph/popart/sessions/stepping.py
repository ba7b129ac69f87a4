"""The steps of a session: what runs between a user's arrays of inputs and of anchors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from popgraph.backends.base import Executable
from popgraph.builder.opset.arguments import incompatible_arguments, typed
from popgraph.engine.staged import StagedExecutable
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.step_io import StepIO
from popgraph.popart.exceptions import as_popart_errors, popart_runtime_error
from popgraph.popart.model.model import SessionModel
from popgraph.popart.programs.program import Program
from popgraph.popart.programs.weights import HostWeights
from popgraph.popart.reports.executions import Executions
from popgraph.popart.sessions.delayed_weights import DelayedWeights
from popgraph.popart.sessions.engine import Engine
from popgraph.popart.sessions.float_checks import check_floats
from popgraph.popart.sessions.forward_only import is_forward_only
from popgraph.popart.sessions.replicas import Replicas
from popgraph.popart.sessions.split import Share
from popgraph.popart.sessions.steps import Steps
from popgraph.popart.sessions.synthetic import SyntheticIO
from popgraph.support.arrays import Array
from popgraph.support.logs import TRACE, log_of

_LOG = log_of("session")


@typed
class Stepping(ABC):
    """The method of a session that runs a step."""

    _delayed: DelayedWeights
    _device: DeviceInfo
    _engine: Engine
    _executions: Executions
    _has_run: bool
    _model: SessionModel
    _options: SessionOptions
    _program: Program
    _replicas: Replicas
    _sent: bool
    _share: Share
    _steps: Steps
    _synthetic: SyntheticIO | None
    _weights: HostWeights

    @property
    @abstractmethod
    def _training(self) -> bool: ...

    @abstractmethod
    def _insists_on_weights(self) -> bool:
        """Whether training is refused before `weightsFromHost`."""

    def run(
        self, stepio: Any, debugName: object = "", *rest: object, programHandle: object = 0
    ) -> None:
        """
        One step, inputs from and anchors to `stepio`.

        The model runs `batchesPerStep` times, each time on the micro-batches of all replicas. With
        `createImplicitPipeliningFwdOnlyProgram`, there is a program "implicitPipeliningFwdOnly",
        which trains nothing and returns the anchors of the forward pass.
        """
        if isinstance(stepio, int | str):  # the form with a program handle in front
            programHandle, stepio, debugName = stepio, debugName, rest[0] if rest else ""
        forward = is_forward_only(programHandle, self._options)
        if not isinstance(stepio, StepIO):  # here, because a step is too short for `typed`
            raise incompatible_arguments("run", "(self, stepio: IStepIO)", (self, stepio), {})
        if not self._device.runs:
            raise popart_runtime_error("Offline IPU device is not configured for execution")
        in_shares = self._share.own.ranks > 1 and self._options.weights_sharded_from
        insists = self._insists_on_weights() or in_shares
        unsent = self._training and not self._sent and insists
        if unsent and self._model.weight_names:
            raise popart_runtime_error(
                "Must call weightsFromHost before run as the model has initializers and the "
                "session has been created in training mode"
            )
        executable = self._engine.prepared(
            "Devicex::prepare() must be called before Devicex::run(const IStepIO &) is called."
        )
        if not self._engine.loaded:
            self._engine.load()
        _LOG.log(TRACE, "Session::run(%s)", debugName)
        stepio = self._synthetic or stepio
        with as_popart_errors():
            self._steps.check(stepio)
            self._delayed.begin_step()
            with self._executions.step(str(debugName)):
                in_row = partial(self._run_in_row, executable)
                if isinstance(executable, StagedExecutable):
                    self._steps.run_together(stepio, in_row)
                elif forward or self._looks_on or not self._steps.run_in_row(stepio, in_row):
                    run = partial(self._run_replicas, executable, forward=forward)
                    self._steps.run(stepio, run, self._program.of_forward if forward else None)
        self._has_run = True
        if self._program.moved:
            self._weights.in_sync = False

    @property
    def tuned(self) -> bool:
        """Whether the next batch runs the tuned program: `enableQuickStart` lets others begin."""
        return self._engine.backlog is None or self._engine.backlog.tuned

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, at most `timeout` seconds, for the tuned program; says whether it is there."""
        return self._engine.backlog is None or self._engine.backlog.wait(timeout)

    @property
    def _looks_on(self) -> bool:
        """Whether something is to be done between micro-batches."""
        several = self._share.own.all_replicas > 1
        return several or self._delayed.are_any or self._options.enableFloatingPointChecks

    def _run_in_row(
        self, executable: Executable, inputs: Mapping[str, Array], count: int
    ) -> Mapping[str, Array]:
        """All micro-batches of a step, by one call."""
        self._executions.inputs = {id: rows[-1] for id, rows in inputs.items()}
        return executable.run_in_row(inputs, count)

    def _run_replicas(
        self, executable: Executable, inputs: Sequence[Mapping[str, Array]], *, forward: bool
    ) -> Sequence[Mapping[str, Array]]:
        """A micro-batch of each replica."""
        self._delayed.enter(executable)
        run = partial(self._run_on, executable, forward=forward)
        return self._replicas.run(executable, inputs, run)

    def _run_on(
        self, executable: Executable, inputs: Mapping[str, Array], *, forward: bool
    ) -> Mapping[str, Array]:
        """A run of the program, which reports know of."""
        self._executions.inputs = inputs
        if forward:
            assert self._engine.forward is not None, "only such sessions have the handle"
            results: Mapping[str, Array] = self._engine.forward.run(inputs)
        else:
            results = self._run_batch(executable, inputs)
        if self._options.enableFloatingPointChecks:
            check_floats(executable, results)
        return results

    def _run_batch(
        self, executable: Executable, inputs: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """The results of one micro-batch."""
        return executable.run(inputs)
