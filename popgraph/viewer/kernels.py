"""The kernels of a program and their calls: C, loops, work, and the nodes they compute."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from popgraph.backends.tools import Tools
from popgraph.dialects.levels import GRAPHCORE, ONNX, STRUCTURED
from popgraph.dialects.tile import CallOp, ProgramOp
from popgraph.dialects.tile.program.lifetimes import bytes_touched
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.program_control import RunsPrograms
from popgraph.dialects.tile.program.work import Counter
from popgraph.measure.facts import cycles
from popgraph.passes.structured.alternatives import ContractionCandidates
from popgraph.viewer.provenance import origins, source_line
from popgraph.viewer.recording import CONTRACTION, LoweringRecorder

MAIN = "main"
MOST_SHOWN = 8
"""Most candidate schedules shown per contraction."""


def kernels(module: ModuleOp, tools: Tools) -> list[dict[str, Any]]:
    """Every kernel, as loops and as C."""
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}
    return [
        {"name": one.name, "symbol": one.symbol, "c": one.text, "loops": str(functions[one.name])}
        for one in tools.kernels(module)
    ]


def calls(module: ModuleOp, recording: LoweringRecorder) -> list[dict[str, Any]]:
    """
    Every call of a kernel in program order, prepare calls first.

    Each row has its source operations on every level and an estimate of its cycles.
    """
    reader = _Calls(module, recording)
    steps = count()
    return [
        {
            **reader.row(op, program),
            "program": program.sym_name.data,
            "prepared": prepared,
            "step": next(steps) if is_step(program, prepared) else None,
        }
        for program, prepared, op in called(module)
    ]


def is_step(program: ProgramOp, prepared: bool) -> bool:
    """Whether a call belongs directly to a step: not to `prepare`, and not to a body."""
    return not prepared and program.sym_name.data == MAIN


def called(module: ModuleOp) -> Iterator[tuple[ProgramOp, bool, CallOp | RunsPrograms]]:
    """Yields (program, whether it is in `prepare`, call)."""
    main = find_program(module, MAIN)
    others = [op for op in module.ops if isinstance(op, ProgramOp) and op is not main]
    for program in (main, *others):
        for prepared, block in ((True, program.prepare.block), (False, program.body.block)):
            for op in block.ops:
                if isinstance(op, CallOp | RunsPrograms):
                    yield program, prepared, op


class _Calls:
    """Builds the rows of calls."""

    def __init__(self, module: ModuleOp, recording: LoweringRecorder) -> None:
        self._counter, self._recording = Counter(module), recording
        self._machine = recording.options.target.machine

    def row(self, op: CallOp | RunsPrograms, program: ProgramOp) -> dict[str, Any]:
        """The row of a call: its identity, work, estimate and origins."""
        held = program.arena.value.data + program.persistent.value.data
        work = self._counter.call(op)
        moved = bytes_touched([argument.owner for argument in op.arguments])
        return {
            "kernel": op.callee.string_value() if isinstance(op, CallOp) else None,
            "programs": [] if isinstance(op, CallOp) else list(op.programs),
            "label": op.label,
            "chunks": op.chunks.value.data if isinstance(op, CallOp) else 1,
            "name": source_line(op).name,
            "flops": work.flops,
            "moved": moved,
            "cycles": cycles(work.flops, moved, held, self._machine),
            **self._origins(op),
        }

    def _origins(self, op: Operation) -> dict[str, Any]:
        """The operations from which a call comes; of fused operations, all."""
        structured = origins(op, STRUCTURED)
        graph = self._recording.graphs[STRUCTURED] if structured else []
        within = [number for one in structured for number in graph[one]["sources"]]
        core = list(dict.fromkeys([*origins(op, GRAPHCORE), *within]))
        above = self._recording.graphs.get(GRAPHCORE, [])
        nodes = [number for one in core for number in (above[one]["sources"] if above else [])]
        contractions = origins(op, CONTRACTION)
        return {
            STRUCTURED: structured,
            GRAPHCORE: core,
            ONNX: list(dict.fromkeys(nodes)),
            "schedules": self._schedules(contractions[0]) if contractions else None,
        }

    def _schedules(self, number: int) -> dict[str, Any] | None:
        """The candidate schedules of a contraction, the cost model's choice first."""
        found = next((one for one in self._recording.candidates if number in one.places), None)
        return None if found is None else _shown(found)


def _shown(found: ContractionCandidates) -> dict[str, Any]:
    rows = [{"schedule": str(spec), "cycles": round(cost)} for spec, cost in found.specs]
    row = {"contraction": found.text, "reason": found.reason}
    return {**row, "of": len(rows), "candidates": rows[:MOST_SHOWN]}
