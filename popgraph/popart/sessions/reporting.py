"""The reports of a session: its program, measured times, and modelled IPU cycles."""

from __future__ import annotations

from popgraph.builder.opset.enums import DeviceType
from popgraph.engine.runs import StepRunner
from popgraph.ipu.mapping import intervals_by_tile
from popgraph.ipu.model import IpuModel
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.exceptions import as_popart_errors, popart_runtime_error, poplar_exception
from popgraph.popart.programs.program import Program
from popgraph.popart.reports.graph_report import TileMap
from popgraph.popart.reports.reports import Executions, Reports, written
from popgraph.popart.reports.tensor_locations import location_lines
from popgraph.popart.sessions.device_engine import DeviceEngine
from popgraph.popart.sessions.setup import Setup
from popgraph.support.memo import cached_property


class Reporting:
    """Reports on the program and the steps of a session."""

    def __init__(
        self, setup: Setup, program: Program, engine: DeviceEngine, runs: StepRunner
    ) -> None:
        self._setup, self._program, self._engine, self._runs = setup, program, engine, runs
        own = setup.share.own
        self._executions = Executions(own.runs, own.micro_batches)

    def note_step(self, name: str, start: int) -> None:
        """Counts a successful step that began at `start`, by `perf_counter_ns`."""
        self._executions.note_step(name, start)

    @cached_property
    def _model(self) -> IpuModel:
        """The cost model, built on demand."""
        return self._program.on_ipus(self._setup.modelled(self._program.replicas.count))

    def forget_device(self) -> None:
        """Drops the cost model when the device changes."""
        self.__dict__.pop("_model", None)

    def _reports(self) -> Reports:
        device = self._setup.device
        executable = self._engine.prepared(
            "Session must have been prepared before a report can be fetched"
        )
        if device.type is DeviceType.Cpu:
            raise poplar_exception("Profiling is disabled for current device type.")
        self._executions.inputs = self._runs.inputs
        with as_popart_errors():
            return Reports(self._program, device, executable, self._executions, self._model)

    def summary(self, contents: str, reset: bool) -> str:
        with as_popart_errors():
            title = f"{self._setup.name}: {contents}"
            text = self._reports().summary(title, self._setup.options.reportOptions)
            held = self._program.initial_values.items()
            infos = {id: TensorInfo(one.of_group(0)) for id, one in held}
            lines = location_lines(infos, self._setup.options, self._setup.grouped)
            text = "\n".join([text, *lines])
        if reset:
            self._executions.reset()
        return text

    def both(self) -> str:
        reports = self._reports()
        with as_popart_errors():
            both = {"graph": reports.graph(), "execution": reports.execution()}
        return written(both, useCbor=False).decode()

    def graph(self, cbor: bool) -> bytes:
        reports = self._reports()
        with as_popart_errors():
            return written(reports.graph(), useCbor=cbor)

    def execution(self, cbor: bool, reset: bool) -> bytes:
        reports = self._reports()
        with as_popart_errors():
            content = reports.execution()
        if reset:
            self._executions.reset()
        return written(content, useCbor=cbor)

    def tile_map(self) -> TileMap:
        with as_popart_errors():
            tiles = self._model.ipu.total_tiles
            mappings = self._model.mappings()
            return {id: intervals_by_tile(one, tiles) for id, one in mappings.items()}

    def cycles(self, id: str) -> int:
        if self._runs.inputs is None:
            raise popart_runtime_error("Must call run before getCycleCount.")
        if not self._setup.options.instrumentWithHardwareCycleCounter:
            raise popart_runtime_error(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true in order "
                "to measure cycle count",
                hint="the count is that of the model of an IPU; a CPU has none",
            )
        if id or self._setup.device.type is DeviceType.Cpu:
            raise popart_runtime_error(
                f"Invalid id for cycle counter, '{id}'. Make sure you have set "
                "SessionOption::hardwareInstrumentations correctly.",
                hint="a CPU has no counter of cycles, and the model of an IPU one, without an id",
            )
        with as_popart_errors():
            return self._model.cycles * self._setup.plan.micro_batches
