"""PopART's sessions: they compile a model, hold its weights and run its steps."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from popgraph.background import Backlog
from popgraph.builder.opset.arguments import incompatible_arguments, typed
from popgraph.builder.opset.enums import IrSerializationFormat
from popgraph.engine.host_weights import HostWeights
from popgraph.engine.program import Request
from popgraph.engine.replicas import JointReplicas, Replicas, SequentialReplicas
from popgraph.engine.runs import StepRunner
from popgraph.passes.replication import belongs
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.ipu_only import IpuOnly
from popgraph.popart.api.step_io import PyWeightsIO, StepIO
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import as_popart_errors, popart_exception, popart_runtime_error
from popgraph.popart.ir import Ir
from popgraph.popart.model.model import Source
from popgraph.popart.programs.program import Program
from popgraph.popart.reports.graph_report import TileMap
from popgraph.popart.reports.ir_files import DotFiles, note_session
from popgraph.popart.sessions.checking import (
    check_compilation,
    check_floats,
    check_setup,
    is_forward_only,
)
from popgraph.popart.sessions.device_engine import DeviceEngine
from popgraph.popart.sessions.reporting import Reporting
from popgraph.popart.sessions.setup import EraBehaviour, Setup
from popgraph.popart.sessions.step_buffers import StepBuffers, SyntheticIO, steps_of
from popgraph.popart.sessions.weight_transfers import WeightTransfers
from popgraph.support.arrays import Array
from popgraph.support.logs import TRACE, log_of
from popgraph.support.writing import write_file

_LOG = log_of("session")


@typed
class Session(IpuOnly):
    """
    The common base of sessions: compiles a model, transfers weights and runs steps.

    Unlike an IPU, this machine has 64-bit numbers: tensors of DOUBLE and INT64 keep their type, and
    so do their anchors, except for results of ArgMax and ArgMin, which are INT32. INT32 inputs
    are converted to INT64 and vice versa if the values fit.
    """

    _advice = ""
    """A hint added to the error of a constructor that is called in PopGraph's style."""

    def __init__(self, setup: Setup) -> None:
        self.name = setup.name
        self._setup = setup
        check_setup(setup)
        with as_popart_errors():
            self._program = Program(setup.model, self._request())
            self._program.check_work()
        backlog = Backlog() if setup.options.enableQuickStart else None
        self._engine = DeviceEngine(self._program, backlog)
        self._steps = steps_of(self._program, setup.dataflow, setup.share)
        self._buffers = StepBuffers(self._program, setup.dataflow, self._steps)
        self._runs = self._step_runner()
        host = HostWeights(self._program.initial_values)
        self._transfers = WeightTransfers(setup, self._engine, self._runs.replicas, host)
        self._reporting = Reporting(setup, self._program, self._engine, self._runs)
        mode = setup.options.syntheticDataMode
        self._synthetic = SyntheticIO(mode) if setup.draws_data else None
        self._ir: Ir | None = None
        self._note_ir()

    @property
    def _behaviour(self) -> EraBehaviour:
        """The behaviour that differs between eras of PopART."""
        return EraBehaviour()

    @property
    def _device(self) -> DeviceInfo:
        return self._setup.device

    def _note_ir(self) -> None:
        """Writes the IR to the files that options and the environment name."""
        setup = self._setup
        DotFiles(setup.options).draw(self.getIr)
        note_session(setup.model, self.getIr, "Const" if setup.constant_weights else "Variable")
        if path := os.environ.get("POPART_IR_DUMP"):
            log_of("ir").debug("Writing ir to %s", path)
            write_file(path, [self.getIr().serialised().encode()])

    def _request(self) -> Request:
        return self._setup.request()

    def _step_runner(self) -> StepRunner:
        delayed = self._program.delayed
        delays = {id: delay for id, delay in self._setup.delays.items() if id in delayed}
        checks = [check_floats] if self._setup.options.enableFloatingPointChecks else ()
        return StepRunner(
            self._engine.engine, self._steps, self._replicas_of_program(), delays, checks
        )

    def _replicas_of_program(self) -> Replicas:
        program, moved = self._program, self._changed_weights()
        if not program.replicas.is_one:
            inputs = {id: program.replicas.inputs(id) for id in program.inputs}
            return JointReplicas(inputs, {id: program.results(id) for id in program.computed})
        states = program.common_outputs
        common = [id for id in states if not any(belongs(id, weight) for weight in moved)]
        own = {*moved, *program.accumulators}
        return SequentialReplicas(self._setup.share.own, own, common, draws=program.uses_seed)

    def _changed_weights(self) -> Collection[str]:
        """The variables with a separate value per replica."""
        return self._program.changed_weights

    # queries

    @property
    def dataFlow(self) -> DataFlow:
        return self._setup.dataflow

    @property
    def replicationFactor(self) -> int:
        return self._setup.plan.replicas

    @property
    def accumulationFactor(self) -> int:
        return self._setup.plan.accumulate

    def _getDataFlow(self) -> DataFlow:
        return self.dataFlow

    def _replicationFactor(self) -> int:
        return self.replicationFactor

    def _accumulationFactor(self) -> int:
        return self.accumulationFactor

    def getInfo(self, id: str) -> TensorInfo:
        """The element type and shape of a tensor of the model or of the IR."""
        found = self._program.infos.get(id) or self.getIr().infos().get(id)
        if found is None:
            raise popart_exception(f"TensorId {id} does not exist")
        return found

    def _tensor_ids(self) -> list[str]:
        return sorted({*self._program.infos, *self.getIr().infos()})

    def initAnchorArrays(self) -> dict[str, Array]:
        """An uninitialized array for each anchor, in the shape of a step."""
        return self._buffers.anchor_arrays()

    # preparation

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compiles the model."""
        _LOG.debug("Session::prepareDevice()")
        setup, program, own = self._setup, self._program, self._setup.share.own
        check_compilation(setup, program)
        if not setup.options.compileEngine:
            log_of("devicex").info("Not compiling engine by request")
            return
        with as_popart_errors():
            setup.share.check(program.code.exchanges)
            overlap = setup.overlap(program)
        forward = setup.options.createImplicitPipeliningFwdOnlyProgram
        self._engine.prepare(setup.device, own.rank, forward=forward, overlap=overlap)
        _LOG.info("Graph compiled")
        if loadEngine:
            self._engine.load()

    def loadEngineAndConnectStreams(self) -> None:
        self._engine.prepared(
            "Trying to load an engine but no compiled engine. Did you forget to call "
            "prepareDevice()?"
        )
        self._engine.load()

    def setDevice(self, deviceInfo: DeviceInfo) -> None:
        """Sets the device after construction, for old programs."""
        self._setup.device = deviceInfo
        self._reporting.forget_device()

    # steps

    def run(
        self, stepio: Any, debugName: object = "", *rest: object, programHandle: object = 0
    ) -> None:
        """
        Runs one step, with inputs from and anchors to `stepio`.

        The model runs `batchesPerStep` times, each time on the micro-batches of all replicas. With
        `createImplicitPipeliningFwdOnlyProgram`, the handle "implicitPipeliningFwdOnly" selects a
        program without update that returns the anchors of the forward pass.
        """
        is_stepio = isinstance(stepio, StepIO)  # here, because a step is too short for `typed`
        if not is_stepio and isinstance(stepio, int | str):  # the form with a handle in front
            programHandle, stepio, debugName = stepio, debugName, rest[0] if rest else ""
            is_stepio = isinstance(stepio, StepIO)
        forward = is_forward_only(programHandle, self._setup.options)
        if not is_stepio:
            raise incompatible_arguments("run", "(self, stepio: IStepIO)", (self, stepio), {})
        if not self._device.runs:
            raise popart_runtime_error("Offline IPU device is not configured for execution")
        self._transfers.check_sent()
        self._engine.prepared(
            "Devicex::prepare() must be called before Devicex::run(const IStepIO &) is called."
        )
        if not self._engine.loaded:
            self._engine.load()
        _LOG.log(TRACE, "Session::run(%s)", debugName)
        stepio = self._synthetic or stepio
        with as_popart_errors():
            self._buffers.check(stepio)
            start = time.perf_counter_ns()
            self._runs.step(stepio, forward=forward)
            self._reporting.note_step(str(debugName), start)
        if self._program.changed_weights:
            self._transfers.host.in_sync = False

    @property
    def tuned(self) -> bool:
        """
        Whether the next batch runs the tuned program; with `enableQuickStart`, the first ones may
        not.
        """
        return self._engine.engine.tuned

    def wait(self, timeout: float | None = None) -> bool:
        """Waits at most `timeout` seconds for the tuned program; returns whether it is ready."""
        return self._engine.engine.wait(timeout)

    # weights

    def weightsFromHost(self) -> None:
        """Sends the host's weights and optimizer state to the program."""
        _LOG.debug("Session::weightsFromHost()")
        self._transfers.send()

    def optimizerFromHost(self) -> None:
        """Sends the optimizer's hyperparameters, for old programs; only training has any."""
        self._engine.prepared_for("optimizerFromHost()")

    def weightsToHost(self) -> None:
        """Fetches the weights and optimizer state for `readWeights`."""
        _LOG.debug("Session::weightsToHost()")
        self._transfers.fetch()

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copies the fetched weights into the user's arrays."""
        self._transfers.read(weightsIo.weights)

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Stores new weights on the host; `weightsFromHost` sends them."""
        self._transfers.write(weightsIo.weights)

    def weights(self) -> Mapping[str, Array]:
        """{name: array} of the weights and states fetched by `weightsToHost`."""
        return self._transfers.host.fetched()

    def resetHostWeights(
        self,
        modelProtoOrFilename: Source,
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Loads the weights of another model; `weightsFromHost` sends them."""
        ignore = ignoreWeightsInModelWithoutCorrespondingHostWeight
        self._transfers.reset(modelProtoOrFilename, ignore)

    def modelToHost(self, filename: str | Path) -> None:
        """Writes the model with its current weights and optimizer state."""
        _LOG.debug("Session::modelToHost(%s)", filename)
        self._transfers.write_model(filename)

    def save(self, path: str | Path) -> None:
        """
        Writes the model with its current weights for inference, as .onnx or .pgraph.

        The loss and the labels are removed, BatchNormalization uses the running statistics, Dropout
        is the identity, and the batch size is dynamic if the model permits: any ONNX runtime reads
        the file. PopART's `modelToHost` writes the training model, including losses.
        """
        self._transfers.save(path)

    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str) -> None:
        """Copies external weights to another file, to which `modelToHost` then writes."""
        self._transfers.relocate(fromLocation, toLocation)

    # randomness

    def setRandomSeed(self, seedValue: int) -> None:
        """
        Sets the seed of the following steps; the default seed is 0.

        A value from `getRandomSeed` continues its sequence: the high bits count the steps.
        """
        self._engine.seed = seedValue

    def getRandomSeed(self) -> int:
        """The seed, plus 2^64 times the number of steps since it was set."""
        return self._engine.seed

    def getRNGState(self) -> list[int]:
        """The state for `setRNGState`: seed and step count, as 32-bit words."""
        self._check_state_is_kept("get")
        return [] if self._setup.draws_data else self._engine.random_state

    def setRNGState(self, rngValue: Sequence[int]) -> None:
        """Restores a state returned by `getRNGState`."""
        self._check_state_is_kept("set")
        self._engine.random_state = rngValue

    def _check_state_is_kept(self, verb: str) -> None:
        if not self._setup.options.enableLoadAndOffloadRNGState:
            raise popart_runtime_error(
                f"Trying to {verb} the RNG state, but the session option "
                "enableLoadAndOffloadRNGState must be set to True.",
                f"{verb}RNGState",
                "set it, or keep what getRandomSeed gives",
            )

    # reports

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """A text summary of the compiled program and its execution times."""
        return self._reporting.summary(self._buffers.report(), resetProfile)

    def getReport(self) -> str:
        """The graph report and the execution report, as JSON."""
        return self._reporting.both()

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        """The compiled program: kernels, calls, memory, tiles; as JSON or CBOR."""
        return self._reporting.graph(useCbor)

    def getExecutionReport(self, useCbor: bool = False, resetProfile: bool = True) -> bytes:
        """The steps since the last report, and the time of each kernel, as JSON or CBOR."""
        return self._reporting.execution(useCbor, resetProfile)

    def getSerializedGraph(self) -> bytes:
        """The compiled program, in the format of `getGraphReport`."""
        return self.getGraphReport()

    def getTensorTileMap(self) -> TileMap:
        """{tensor: per tile, the element intervals [from, to) on it}."""
        return self._reporting.tile_map()

    def getCycleCount(self, id: str = "") -> int:
        """The cycles of a step on the modelled IPUs, with replicas in parallel."""
        return self._reporting.cycles(id)

    # PopART's IR

    def getIr(self) -> Ir:
        """The compiled graph in the form of PopART's IR."""
        if self._ir is None:
            self._ir = self._program.ir(self._setup.placement)
        return self._ir

    def _serializeIr(self, format: IrSerializationFormat = IrSerializationFormat.JSON) -> str:
        """
        `getIr` as PopART's JSON: the operators of each graph with inputs, outputs and attributes.
        """
        if format is not IrSerializationFormat.JSON:
            raise TypeError(f"_serializeIr(): {format!r} is not an IrSerializationFormat")
        return self.getIr().serialised()


def flow_of(session: Session, new: DataFlow | None, old: DataFlow | None) -> DataFlow:
    """
    The data flow under its new or old name; the TypeError for a missing one points to PopGraph's
    own API.
    """
    found = new or old
    if found is None:
        raise TypeError(
            f"{type(session).__name__}(): the argument dataFlow is missing{session._advice}"
        )
    return found
