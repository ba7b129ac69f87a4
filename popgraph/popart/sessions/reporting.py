"""The reports of a session: what its program is, what it took, and what IPUs would take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from popgraph.builder.opset.arguments import typed
from popgraph.builder.opset.enums import DeviceType
from popgraph.measure.ipu import IpuModel
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.step_shape import StepShape
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import (
    as_popart_errors,
    popart_runtime_error,
    poplar_exception,
)
from popgraph.popart.model.grouped_weights import Grouped
from popgraph.popart.programs.program import Program
from popgraph.popart.reports.graph_report import TileMap
from popgraph.popart.reports.reports import Executions, Reports, written
from popgraph.popart.reports.tensor_locations import told
from popgraph.popart.sessions.engine import Engine
from popgraph.popart.sessions.steps import Steps
from popgraph.support.ipu import Ipu


@typed
class Reporting(ABC):
    """Methods of a session that tell of its program and of its steps."""

    name: str
    _device: DeviceInfo
    _engine: Engine
    _executions: Executions
    _grouped: Grouped
    _has_run: bool
    _options: SessionOptions
    _program: Program
    _step: StepShape
    _steps: Steps

    @property
    @abstractmethod
    def _modelled(self) -> Ipu:
        """The IPUs of the program."""

    @cached_property
    def _ipu_model(self) -> IpuModel:
        """Made when a report asks for it."""
        return self._program.on_ipus(self._modelled)

    def _reports(self) -> Reports:
        executable = self._engine.prepared(
            "Session must have been prepared before a report can be fetched"
        )
        if self._device.type is DeviceType.Cpu:
            raise poplar_exception("Profiling is disabled for current device type.")
        with as_popart_errors():
            return Reports(
                self._program, self._device, executable, self._executions, self._ipu_model
            )

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """What the compiled program is and what it took, as a text."""
        with as_popart_errors():
            title = f"{self.name}: {self._steps.report()}"
            text = self._reports().summary(title, self._options.reportOptions)
            held = self._program.initial_values.items()
            infos = {id: TensorInfo(one.of_group(0)) for id, one in held}
            lines = told(infos, self._options, self._grouped)
            text = "\n".join([text, *lines])
        if resetProfile:
            self._executions.reset()
        return text

    def getReport(self) -> str:
        """The graph and its executions, as JSON."""
        reports = self._reports()
        with as_popart_errors():
            both = {"graph": reports.graph(), "execution": reports.execution()}
        return written(both, useCbor=False).decode()

    def getGraphReport(self, useCbor: bool = False) -> bytes:
        """The compiled program: kernels, calls, memory, tiles; as JSON or CBOR."""
        reports = self._reports()
        with as_popart_errors():
            return written(reports.graph(), useCbor=useCbor)

    def getExecutionReport(self, useCbor: bool = False, resetProfile: bool = True) -> bytes:
        """The steps since the last report, and what each kernel takes; as JSON or CBOR."""
        reports = self._reports()
        with as_popart_errors():
            content = reports.execution()
        if resetProfile:
            self._executions.reset()
        return written(content, useCbor=useCbor)

    def getSerializedGraph(self) -> bytes:
        """The compiled program, as `getGraphReport` has it."""
        return self.getGraphReport()

    def getTensorTileMap(self) -> TileMap:
        """For each tensor, on each tile, which of its elements lie there: from, to."""
        with as_popart_errors():
            tiles = self._ipu_model.ipu.total_tiles
            return {id: one.intervals(tiles) for id, one in self._ipu_model.mappings().items()}

    def getCycleCount(self, id: str = "") -> int:
        """The cycles of a step on the modelled IPUs, whose replicas run side by side."""
        if not self._has_run:
            raise popart_runtime_error("Must call run before getCycleCount.")
        if not self._options.instrumentWithHardwareCycleCounter:
            raise popart_runtime_error(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order "
                "to measure cycle count",
                hint="the count is that of the model of an IPU; a CPU has none",
            )
        if id or self._device.type is DeviceType.Cpu:
            raise popart_runtime_error(
                f"Invalid id for cycle counter, '{id}'. Make sure you have set "
                "SessionOption::hardwareInstrumentations correctly.",
                hint="a CPU has no counter of cycles, and the model of an IPU one, without an id",
            )
        with as_popart_errors():
            return self._ipu_model.cycles * self._step.micro_batches
