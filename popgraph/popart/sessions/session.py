"""PopART's sessions: they compile a model, hold its weights and run its steps."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp

from popgraph.background import Backlog
from popgraph.builder.onnx.external import Place
from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import (
    DeviceType,
    IrSerializationFormat,
    SyntheticDataMode,
)
from popgraph.dialects.program import WeightStore
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import GRADIENT
from popgraph.passes.options import Options as CodeOptions
from popgraph.passes.replication import Replication, belongs
from popgraph.popart.api.dataflow import DataFlow, InputShapeInfo
from popgraph.popart.api.devices import DeviceInfo, DeviceManager
from popgraph.popart.api.ipu_only import IpuOnly
from popgraph.popart.api.losses import Loss
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.patterns import Patterns
from popgraph.popart.api.step_shape import StepShape
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import (
    as_popart_errors,
    popart_exception,
)
from popgraph.popart.ir import RESTORED, Ir
from popgraph.popart.model.grouped_weights import Grouped, replication_of
from popgraph.popart.model.model import SessionModel
from popgraph.popart.programs.program import Program, Request
from popgraph.popart.programs.weights import HostWeights
from popgraph.popart.refusals import Asked, Moment, refuse
from popgraph.popart.reports.debug_notes import note_session
from popgraph.popart.reports.dot_files import DotFiles
from popgraph.popart.reports.executions import Executions
from popgraph.popart.sessions.delayed_weights import DelayedWeights, delays_of
from popgraph.popart.sessions.engine import Engine
from popgraph.popart.sessions.ipu_memory import check_memory
from popgraph.popart.sessions.overlap import overlap_of
from popgraph.popart.sessions.pipelining import check_device, check_placement
from popgraph.popart.sessions.randomness import Randomness
from popgraph.popart.sessions.replicas import InTurn, Replicas, Together
from popgraph.popart.sessions.reporting import Reporting
from popgraph.popart.sessions.split import Share, check_ranks
from popgraph.popart.sessions.stepping import Stepping
from popgraph.popart.sessions.steps import Steps
from popgraph.popart.sessions.synthetic import SyntheticIO
from popgraph.popart.sessions.weight_transfers import WeightTransfers
from popgraph.support.arrays import Array
from popgraph.support.index_checks import NEAREST
from popgraph.support.ipu import MK2, Ipu
from popgraph.support.logs import log_of
from popgraph.support.writing import write_file

_LOG = log_of("session")


@typed
class Session(Stepping, WeightTransfers, Reporting, Randomness, IpuOnly):
    """
    What both kinds of session do: compile a model, move weights, run steps.

    Unlike an IPU, this machine has 64-bit numbers: tensors of DOUBLE and INT64 stay what they are,
    and so do their anchors, but for those of ArgMax and ArgMin, which are INT32. Inputs of INT32
    and INT64 are taken for each other where they fit.
    """

    _advice = ""
    """What a constructor that is called as others are adds to its refusal."""

    def __init__(
        self,
        module: ModuleOp,
        weights: WeightStore,
        losses: Sequence[str | Loss],
        rule: OptimizerSpec | None,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo | None,
        inputShapeInfo: InputShapeInfo | None,
        patterns: Patterns | None,
        userOptions: SessionOptions | None,
        name: str,
        external: Mapping[str, Place],
        grouped: Grouped,
    ) -> None:
        """
        `external` are the weights that stand in files of their own; `grouped` those that not all
        replicas share.
        """
        self.name = name
        self._external, self._grouped = dict(external), grouped
        self._dataflow = dataFlow
        self._rule = rule
        self._options = SessionOptions() if userOptions is None else userOptions
        self._patterns = patterns or Patterns()
        self._device = deviceInfo or DeviceManager().createCpuDevice()
        self._sent = False
        self._has_run = False
        self._ir: Ir | None = None
        if rule is None and not dataFlow.nAnchors() and self._insists_on_anchors():
            raise popart_exception("User must specify an anchor tensor when doing inference.")
        with as_popart_errors():
            shapes = inputShapeInfo or InputShapeInfo()
            self._model = SessionModel(module, weights, shapes, losses)
        refuse(Moment.MADE, self._asked())
        self._step = StepShape.of(dataFlow.batchesPerStep(), self._options)
        with as_popart_errors():
            self._share = Share.of(self._step)
        self._patterns.check()
        with as_popart_errors():
            self._model.check_loss()
            log_of("ir").info("Preparing the model of session %s", name)
            self._model.heed(self._options, group_variances=self._gives_group_variances())
            refuse(Moment.READ, self._asked())
            self._placement = check_placement(
                self._model, self._options, self._step, self._ipus, self._training
            )
            self._program = Program(self._model, self._request())
            self._program.check_work()
        self._weights = HostWeights(self._program.initial_values)
        backlog = Backlog() if self._options.enableQuickStart else None
        self._engine = Engine(self._program, backlog)
        alone = self._program.replicas.is_one
        own = {*self._own(), *self._program.accumulators}
        in_turn = InTurn(self._share.own, own, self._common(), draws=self._program.uses_seed)
        self._replicas: Replicas = in_turn if alone else Together(self._program)
        self._steps = Steps(self._program, dataFlow, self._share, self._model.broadcast_inputs)
        delayed = self._program.delayed
        delays = {id: delay for id, delay in self._delays().items() if id in delayed}
        self._delayed = DelayedWeights(delays)
        self._executions = Executions(self._share.own.runs, self._share.own.micro_batches)
        DotFiles(self._options).draw(self.getIr)
        note_session(self._model, self.getIr, "Const" if self._constant_weights else "Variable")
        if path := os.environ.get("POPART_IR_DUMP"):
            log_of("ir").debug("Writing ir to %s", path)
            write_file(path, [self.getIr().serialised().encode()])
        mode = self._options.syntheticDataMode
        self._synthetic = None if mode is SyntheticDataMode.Off else SyntheticIO(mode)

    def _asked(self, inputs: Collection[str] = ()) -> Asked:
        return Asked(
            self._model,
            self._options,
            self._dataflow,
            self._rule,
            self._patterns,
            self._device,
            self._grouped,
            self._differentiated(),
            inputs,
        )

    @property
    def _ipus(self) -> int | None:
        """How many IPUs a replica has; None on a CPU, which stands for as many as are wanted."""
        if self._device.type is DeviceType.Cpu:
            return None
        return self._device.numIpus // self._step.replicas

    @property
    def _modelled(self) -> Ipu:
        """
        The IPUs of the program: those of a replica, unless it is one of all replicas.

        A CPU is one tile.
        """
        ipu = self._device.ipu
        if ipu is None:
            return MK2.of(tiles=1)
        together = self._program.replicas.count > 1
        return ipu.of(ipu.count if together else self._ipus or 1)

    @property
    def _training(self) -> bool:
        return self._rule is not None

    @property
    def _constant_weights(self) -> bool:
        return not self._training and self._options.constantWeights

    def _own(self) -> Collection[str]:
        """The variables of which every replica has its own value."""
        return self._program.moved

    def _common(self) -> Collection[str]:
        """The anchors that are the same on all replicas once each has had its turn."""
        own = self._own()
        states = self._program.of_all_replicas
        return [id for id in states if not any(belongs(id, weight) for weight in own)]

    def _code(self) -> CodeOptions:
        code = self._options.compilation()
        named = self._model.recomputed
        if named and not code.recompute:
            code = replace(code, recompute="nodes", recomputed=named)
        if self._options.syntheticDataMode is not SyntheticDataMode.Off:
            # Numbers drawn for labels may be too large.
            return replace(code, indices=code.indices or NEAREST)
        return code

    def _gradient_prefixes(self) -> tuple[str, ...]:
        """What the names of gradients may begin with."""
        return (GRADIENT,)

    def _gives_group_variances(self) -> bool:
        """Whether group normalization gives variances, not inverse standard deviations."""
        return False

    def _insists_on_anchors(self) -> bool:
        """Whether a session that does not train must have an anchor."""
        return True

    def _insists_on_weights(self) -> bool:
        """Whether training is refused before `weightsFromHost`."""
        return True

    def _request(self) -> Request:
        return Request(
            anchors=tuple(self._dataflow.anchors()),
            optimizer=self._rule,
            variables=not self._constant_weights or bool(self._grouped),
            disabled=self._patterns.disabled_passes(),
            gradient_prefixes=self._gradient_prefixes(),
            replicas=self._written_out(),
            aliases={} if self._placement.stages is None else self._restored(),
            delayed=tuple(self._delays()),
            stages={} if self._placement.stages is None else self._placement.stages.of_tensors,
            grouped=self._grouped,
            code=self._code(),
        )

    def _restored(self) -> Mapping[str, str]:
        """The anchors that a pipeline restores, and what they are."""
        anchors = self._dataflow.anchors()
        return {id: id.removeprefix(RESTORED) for id in anchors if id.startswith(RESTORED)}

    def _delays(self) -> Mapping[str, int]:
        """The weights that batches of the pipeline meet before they were updated."""
        accumulates = self._options.enableGradientAccumulation
        if self._placement.stages is None or not self._training or accumulates:
            return {}
        talks = bool(self._grouped) or self._model.has_collectives
        return delays_of(self._placement.stages, sorted(self._model.weight_names), talks=talks)

    def _written_out(self) -> Replication:
        """The replicas of one program: all, if they differ or talk; else it runs in turn."""
        if not self._grouped and not self._model.has_collectives:
            return Replication()
        own = self._share.own
        return replication_of(
            self._grouped,
            own,
            self._model.broadcast_inputs,
            self._model.weight_names,
            self._rule,
        )

    # what was asked for

    @property
    def dataFlow(self) -> DataFlow:
        return self._dataflow

    @property
    def replicationFactor(self) -> int:
        return self._step.replicas

    @property
    def accumulationFactor(self) -> int:
        return self._step.accumulation

    def _getDataFlow(self) -> DataFlow:
        return self.dataFlow

    def _replicationFactor(self) -> int:
        return self.replicationFactor

    def _accumulationFactor(self) -> int:
        return self.accumulationFactor

    def getInfo(self, id: str) -> TensorInfo:
        """The element type and shape of any tensor, those of PopART's IR among them."""
        found = self._program.infos.get(id) or self.getIr().infos().get(id)
        if found is None:
            raise popart_exception(f"TensorId {id} does not exist")
        return found

    def _tensor_ids(self) -> list[str]:
        return sorted({*self._program.infos, *self.getIr().infos()})

    def initAnchorArrays(self) -> dict[str, Array]:
        """An array for every anchor, of the shape that a step fills."""
        return self._steps.anchor_arrays()

    def _differentiated(self) -> Collection[str]:
        """The tensors for which a session that trains computes gradients."""
        if not self._training:
            return ()
        anchored = {
            id.removeprefix(prefix)
            for id in self._dataflow.anchors()
            for prefix in self._gradient_prefixes()
            if id.startswith(prefix)
        }
        return self._model.weight_names | anchored

    # getting ready

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compiles the model."""
        _LOG.debug("Session::prepareDevice()")
        self._options.log_what_has_no_effect()
        check_device(self._model, self._options, self._dataflow, self._ipus)
        refuse(Moment.PREPARED, self._asked(self._program.inputs))
        if self._device.type is DeviceType.IpuModel:
            allowed = self._options.engineOptions.get("debug.allowOutOfMemory", "false")
            with as_popart_errors():
                check_memory(self._program, self._modelled, tells=allowed == "true")
        if not self._options.compileEngine:
            log_of("devicex").info("Not compiling engine by request")
            return
        with as_popart_errors():
            check_ranks(self._share.own, self._program.code.exchanges)
        forward = self._options.createImplicitPipeliningFwdOnlyProgram
        overlap = overlap_of(
            self._placement.stages, self._options, self._device, self._step, self._program
        )
        self._engine.prepare(self._device, self._share.own.rank, forward=forward, overlap=overlap)
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
        """Of old programs, which chose the device after the session was made."""
        self._device = deviceInfo
        self.__dict__.pop("_ipu_model", None)

    # PopART's IR

    def getIr(self) -> Ir:
        """The graph of the session in PopART's words: the one that is compiled."""
        if self._ir is None:
            self._ir = self._program.ir(self._placement)
        return self._ir

    def _serializeIr(self, format: IrSerializationFormat = IrSerializationFormat.JSON) -> str:
        """`getIr` as PopART's JSON: operators with inputs, outputs and attributes, by graph."""
        if format is not IrSerializationFormat.JSON:
            raise TypeError(f"_serializeIr(): {format!r} is not an IrSerializationFormat")
        return self.getIr().serialised()


def flow_of(session: Session, new: DataFlow | None, old: DataFlow | None) -> DataFlow:
    """The flow under its new or its old name; a TypeError without one leads to our own API."""
    found = new or old
    if found is None:
        raise TypeError(
            f"{type(session).__name__}(): the argument dataFlow is missing{session._advice}"
        )
    return found
