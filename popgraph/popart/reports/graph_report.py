"""The compiled program of a session for `getGraphReport`: kernels, calls, memory and tiles."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator
from typing import TypeAlias

from xdsl.dialects.builtin import MemRefType, ModuleOp

from popgraph.dialects.locations import source
from popgraph.dialects.tile import BufferOp, CallOp, CondOp, LoopOp, ProgramOp, RunsPrograms
from popgraph.dialects.tile.program.lifetimes import bytes_in_use, bytes_touched, calls
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import Counter, size
from popgraph.ipu.model import IpuModel
from popgraph.popart.api.devices import DeviceInfo
from popgraph.support.shapes import prod

Json: TypeAlias = (
    bool | int | float | str | list["Json"] | list[int] | list[str] | dict[str, "Json"] | None
)

_KINDS = {LoopOp: "Repeat", CondOp: "If"}
"""{operation with a body: its name in reports}."""


_PLACES = ("arena", "persistent")
"""Memory spaces that several values share; reports name their buffers by byte range."""

TileMap: TypeAlias = dict[str, list[list[tuple[int, int]]]]


class GraphReport:
    """
    The compiled program of a session in the terms of PopART's reports.

    A compute set is a kernel call, its vertices the chunks that threads execute. The report
    describes the program of the C backend, whichever backend runs. The tile mapping and memory per
    tile come from the IPU's cost model.
    """

    def __init__(self, module: ModuleOp, device: DeviceInfo, model: IpuModel) -> None:
        self._program, self._counter = find_program(module, "main"), Counter(module)
        self._device, self._model = device, model
        self._calls = list(dict.fromkeys(self._every_call(self._program)))
        self._in_use = bytes_in_use(self._program, self._counter)
        self._tensors = _tensors(self._program)

    def _every_call(self, program: ProgramOp) -> Iterator[CallOp]:
        """The calls of a program and, recursively, of the programs that it runs, in order."""
        for call in calls(program):
            if isinstance(call, CallOp):
                yield call
            else:
                for name in call.programs:
                    yield from self._every_call(self._counter.program(name))

    def content(self) -> dict[str, Json]:
        """The whole report."""
        return {
            "target": self._target(),
            "graph": self._sizes(),
            "vertexTypes": self._kernels(),
            "computeSets": self._compute_sets(),
            "programs": self._steps(self._program),
            "memory": self._memory(),
            "tileMapping": {name: str(one) for name, one in self._model.mappings().items()},
        }

    def _target(self) -> dict[str, Json]:
        device = self._device
        return {
            "type": str(device.type),
            "version": device.ipuVersion,
            "numIPUs": device.numIpus,
            "tilesPerIPU": device.tilesPerIPU,
            "totalTiles": self._model.ipu.total_tiles,
            "backend": device.backend,
            "threads": device.threads,
        }

    def _sizes(self) -> dict[str, Json]:
        return {
            "numVars": len(self._tensors),
            "numComputeSets": len(self._calls),
            "numVertices": sum(call.chunks.value.data for call in self._calls),
            "numEdges": sum(len(call.arguments) for call in self._calls),
        }

    def _kernels(self) -> dict[str, Json]:
        """The number of calls of each kernel."""
        counts = Count(call.callee.string_value() for call in self._calls)
        return {"names": list(counts), "counts": list(counts.values())}

    def _compute_sets(self) -> dict[str, Json]:
        """Properties of each call, as one list per property."""
        return {
            "names": [call.label for call in self._calls],
            "sources": [source(call.location) for call in self._calls],
            "vertexCounts": [call.chunks.value.data for call in self._calls],
            "flops": [self._counter.call(call).flops for call in self._calls],
            "bytesMoved": [
                bytes_touched([value.owner for value in call.arguments]) for call in self._calls
            ],
        }

    def _steps(self, program: ProgramOp) -> list[Json]:
        """The steps of a program, which refer to compute sets by index."""
        numbers = {call: number for number, call in enumerate(self._calls)}
        return [
            {"type": "Execute", "computeSet": numbers[call]}
            if isinstance(call, CallOp)
            else self._nested(call)
            for call in calls(program)
        ]

    def _nested(self, call: RunsPrograms) -> Json:
        bodies: list[Json] = [
            {"name": name, "programs": self._steps(self._counter.program(name))}
            for name in call.programs
        ]
        return {"type": _KINDS[type(call)], "bodies": bodies}

    def _memory(self) -> dict[str, Json]:
        """Memory by category, by tensor, over time and by tile."""
        arena, always = self._program.arena.value.data, self._always_live()
        tensors: list[Json] = [dict(row) for row in self._tensors]
        return {
            "byCategory": {"arena": arena, **always},
            "tensors": tensors,
            "liveness": {
                "alwaysLive": sum(always.values()),
                "notAlwaysLive": list(self._in_use),
                "maxNotAlwaysLive": max(self._in_use, default=0),
            },
            "byTile": {"total": self._model.memory.by_tile.tolist()},
        }

    def _always_live(self) -> dict[str, int]:
        """Bytes live between steps, by category."""
        found = Count({"prepared": self._program.persistent.value.data})
        for row in self._tensors:
            if row["category"] not in _PLACES:
                found[str(row["category"])] += _number(row["bytes"])
        return dict(found)


def _number(value: Json) -> int:
    assert isinstance(value, int)
    return value


def _tensors(program: ProgramOp) -> list[dict[str, Json]]:
    """The allocations of a program, one row each, with the steps that use them."""
    rows: dict[tuple[object, ...], dict[str, Json]] = {}
    uses = {call: number for number, call in enumerate(calls(program))}
    for op in program.body.block.ops:
        if isinstance(op, BufferOp):
            used = [uses[use.operation] for use in op.memory.uses if use.operation in uses]
            _add(rows, op, used)
    return list(rows.values())


def _add(rows: dict[tuple[object, ...], dict[str, Json]], op: BufferOp, used: list[int]) -> None:
    """Adds a buffer; one that aliases a known allocation only extends its uses."""
    space, offset, label = op.space.data, op.offset.value.data, op.label.text
    key: tuple[object, ...] = (space, label)
    if space == "constant":
        key, label = (space, op.literal), f"constant {len(rows)}"
    elif space in _PLACES:
        label = f"{space} bytes {offset} to {offset + size(op.memory.type)}"
        key = (label,)
    if key not in rows:
        rows[key] = _row(op, label)
    row = rows[key]
    for name, choose in (("firstUse", min), ("lastUse", max)):
        known = [row[name]] if row[name] is not None else []
        row[name] = choose([*used, *map(_number, known)], default=None)


def _row(op: BufferOp, name: str) -> dict[str, Json]:
    memory = op.memory.type
    assert isinstance(memory, MemRefType)
    shape = list(memory.get_shape())
    return {
        "name": name,
        "category": op.space.data,
        "offset": op.offset.value.data,
        "bytes": size(memory),
        "elements": prod(shape),
        "shape": shape,
        "type": str(memory.element_type),
        "firstUse": None,
        "lastUse": None,
    }
